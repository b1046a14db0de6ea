"""Damage for the WAL of a closed database, each kind by name.

Invariant: only the -wal file changes; what is returned are the pages whose newest content it held. None of this is
seen by a page check: SQLite takes the frames for what a crash left and reads the older pages.

Not for: stores that anybody has open. Damaging through a VFS was rejected: the file must be wrong before it is opened.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from hermes_state.errors import NotFound
from hermes_state.testing.page_damage import Damage, refuse_open
from hermes_state.testing.pages import FRAME_HEADER_BYTES, WAL_HEADER_BYTES, Frame, frames, wal_of


def cut_wal(path: Path | str, fraction: float = 0.5, extra: int = 100) -> Damage:
    """Cut the WAL of the database `path` to a fraction of its frames plus `extra` bytes: in the middle of a frame."""
    found = _frames(path)
    kept = min(int(len(found) * fraction), len(found) - 1)
    os.truncate(wal_of(path), found[kept].start + extra)
    return Damage(kind="cut_wal", pages=tuple(sorted({frame.page for frame in found[kept:]})))


def break_wal_checksum(path: Path | str, at: float = 0.3) -> Damage:
    """Flip one bit in the content of the frame at this fraction: SQLite believes no frame from there on."""
    found = _frames(path)
    first = found[min(int(len(found) * at), len(found) - 1)]
    _flip(wal_of(path), first.start + FRAME_HEADER_BYTES + 8)
    return Damage(kind="break_wal_checksum", pages=tuple(sorted({frame.page for frame in found[first.number :]})))


def zero_wal_header(path: Path | str) -> Damage:
    """Zero the 32 bytes of the WAL's header: SQLite takes the WAL for empty."""
    found = _frames(path)
    with wal_of(path).open("r+b") as file:
        file.write(bytes(WAL_HEADER_BYTES))
    return Damage(kind="zero_wal_header", pages=tuple(sorted({frame.page for frame in found})))


def delete_wal(path: Path | str) -> Damage:
    """Remove the WAL."""
    found = _frames(path)
    wal_of(path).unlink()
    return Damage(kind="delete_wal", pages=tuple(sorted({frame.page for frame in found})))


def mismatch_wal(path: Path | str, other: Path | str | None = None) -> Damage:
    """Give the database another WAL: that of the database `other`, or its own under the salts of a later generation.

    The second has a valid header and no frame that belongs to it, as after a WAL that started over.
    """
    found = [] if other is not None and not wal_of(path).exists() else _frames(path)
    if other is not None:
        _frames(other)
        wal_of(path).write_bytes(wal_of(other).read_bytes())
    else:
        with wal_of(path).open("r+b") as file:
            header = bytearray(file.read(WAL_HEADER_BYTES))
            header[16:20] = (int.from_bytes(header[16:20], "big") + 1 & 0xFFFFFFFF).to_bytes(4, "big")
            header[20:24] = bytes(byte ^ 0xFF for byte in header[20:24])
            header[24:32] = wal_checksum(header[:24], big=bool(header[3] & 1))
            file.seek(0)
            file.write(header)
    return Damage(kind="mismatch_wal", pages=tuple(sorted({frame.page for frame in found})))


def wal_checksum(data: bytes | bytearray, *, big: bool, start: tuple[int, int] = (0, 0)) -> bytes:
    """The 8-byte checksum of the WAL format over `data` (a multiple of 8 bytes), going on from `start`."""
    first, second = start
    order: Literal["big", "little"] = "big" if big else "little"
    for place in range(0, len(data), 8):
        first = first + int.from_bytes(data[place : place + 4], order) + second & 0xFFFFFFFF
        second = second + int.from_bytes(data[place + 4 : place + 8], order) + first & 0xFFFFFFFF
    return first.to_bytes(4, "big") + second.to_bytes(4, "big")


def _frames(path: Path | str) -> list[Frame]:
    refuse_open(path)
    found = [frame for frame in frames(path) if frame.current]
    if not found:
        raise NotFound(
            f"{path} has no WAL with frames.", hint="Leave the WAL in place when the store is closed.", path=Path(path)
        )
    return found


def _flip(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1]))
