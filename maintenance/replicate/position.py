"""How far a store has been written, and how far Litestream has copied it.

Invariant: a position is a place in a WAL: its salts and how many bytes of it hold commits. Litestream writes the place
that it copied up to into the header of each of its files, so that no clock and no guess is needed.

Not for: what the replica holds (`drill` restores it). The layout is that of LTX files
(https://github.com/superfly/ltx), of which only the header is read.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_state.engine.wal_index import FRAME_HEADER_BYTES, WAL_HEADER_BYTES

if TYPE_CHECKING:
    from hermes_state.engine import ReadStore

# magic, flags, page size, pages, first and last transaction, time in ms, checksum, WAL offset, WAL bytes, salts
_LTX = struct.Struct(">4sIIIQQqQqq8s")


@dataclass(frozen=True, kw_only=True)
class Position:
    """A place in a WAL."""

    # the eight bytes that all its frames carry
    salts: bytes
    # bytes of the WAL up to there, 0 for one that holds nothing
    end: int


@dataclass(frozen=True, kw_only=True)
class Copied:
    """How far Litestream came."""

    # its newest transaction, as its own commands show it
    transaction: str
    # up to where in the WAL
    position: Position


def position_of(reader: ReadStore) -> Position:
    """Where the store's last commit is now."""
    state = reader.wal_state()
    if state is None or not state.frames:
        return Position(salts=state.salt if state is not None else b"", end=0)
    return Position(
        salts=state.salt, end=WAL_HEADER_BYTES + state.frames * (FRAME_HEADER_BYTES + state.page_size)
    )


def meta_folder(store: Path) -> Path:
    """Where Litestream keeps what it has not sent yet."""
    return store.with_name(f".{store.name}-litestream")


def copied(store: Path) -> Copied | None:
    """How far Litestream copied the store by its own files; None when there are none (or they lie elsewhere)."""
    newest = max(meta_folder(store).glob("ltx/0/*.ltx"), default=None, key=lambda path: path.name)
    if newest is None:
        return None
    try:
        with newest.open("rb") as file:
            head = file.read(_LTX.size)
    except FileNotFoundError:
        return None  # Litestream let it go meanwhile
    if len(head) < _LTX.size:
        return None
    magic, *_numbers, last, _time, _checksum, offset, size, salts = _LTX.unpack(head)
    if magic != b"LTX1":
        return None
    return Copied(transaction=f"{last:016x}", position=Position(salts=salts, end=offset + size))


def covers(done: Copied | None, wanted: Position) -> bool | None:
    """Whether everything up to `wanted` was copied; None when that cannot be told.

    Other salts mean that the WAL was begun anew since: Litestream does that itself once it has copied everything, and
    after anybody else did it copies the whole file again. So `wanted` must have been read before Litestream ran.
    """
    if done is None:
        return None
    if not wanted.end or done.position.salts != wanted.salts:
        return True
    return done.position.end >= wanted.end
