"""What must be true before Litestream may run on a store, and whether another one does already.

Invariant: nothing is started beside another Litestream, on a store that is not in WAL mode, or while a process works on
deleted files of it: Litestream notices none of these, and its replica would be wrong without a word (measured).

Not for: what may run beside Litestream (`docs/replication.md`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_state.engine import open_read
from hermes_state.errors import LockTimeout, Refused
from hermes_state.file_lock import CLOSE_ON_EXEC, NO_LINK, try_lock_alone
from maintenance.gate import preflight
from maintenance.gate.native import refuse_other_program
from maintenance.replicate.position import Position, position_of
from maintenance.space.litestream import is_litestream

if TYPE_CHECKING:
    from lockowners import Scan
    from maintenance.store_context import Context

VERB = "sessions replicate"


@dataclass(frozen=True, kw_only=True)
class Looked:
    """A store that may be replicated."""

    # where its last commit was
    position: Position
    # processes of Litestream that have it open
    others: tuple[int, ...]


def look(ctx: Context, *, alone: bool = True) -> Looked:
    """Check the store; `alone` also refuses beside another Litestream.

    Raises `NotFound`, `Refused`, `GenerationLost`, `Corrupt` for a WAL with commits that cannot be seen.
    """
    refuse_other_program(ctx)
    scan = preflight(ctx, VERB, beside=True)
    with open_read(ctx.db, search_modules=False, clock=ctx.clock) as reader:
        mode = reader.journal_mode
        position = position_of(reader)
    if mode != "wal":
        raise Refused(
            f"{ctx.db} is in journal mode {mode}; Litestream copies the WAL, so it needs WAL mode.",
            hint="Set `database.journal_mode: wal` for hermes-agent and start it once, on a local disk.", path=ctx.db,
        )
    others = running(scan)
    if others and alone:
        who = " and ".join(f"PID {pid}" for pid in others)
        raise Refused(
            f"{who} (litestream) replicates {ctx.db} already; two of them would each miss what the other copies.",
            hint="Stop that one first, or leave it to its work; `--drill` may run beside it.", path=ctx.db, pids=others,
        )
    return Looked(position=position, others=others)


def running(scan: Scan) -> tuple[int, ...]:
    """Litestream processes among those that have the store open."""
    return tuple(holder.process.pid for holder in scan.holders if is_litestream(holder.process))


def lock_path(store: Path) -> Path:
    """The lock file of whoever runs Litestream for a store."""
    return store.with_name(f"{store.name}.hermes-state.litestream.lock")


def works_here(store: Path) -> bool:
    """Whether another run of this program works for the store: Litestream may then be starting."""
    try:
        with only_one(store, existing=True):
            return False
    except LockTimeout:
        return True
    except FileNotFoundError:
        return False


@contextmanager
def only_one(store: Path, *, existing: bool = False) -> Iterator[None]:
    """Be the one that runs Litestream here. Raises `LockTimeout` at once when there is another.

    `existing`: do not make the lock file.
    """
    flags = os.O_RDWR | (0 if existing else os.O_CREAT) | CLOSE_ON_EXEC | NO_LINK
    descriptor = os.open(lock_path(store), flags, 0o600)
    try:
        if not try_lock_alone(descriptor):
            raise LockTimeout(
                f"Another `hermes-state sessions replicate` works for {store}.",
                hint="Stop that one first, or leave it to its work.", path=store, holders=(), waited_seconds=0.0,
            )
        yield
    finally:
        os.close(descriptor)
