"""What every part of an open native store shares: one writer, a bounded pool of readers, the identity, the clock.

Invariant: one `Core` for writing and one for reading only per file in a process, however often it is opened: writes of
all threads go through its one writer, reads through its pool. Opening applies small additive schema steps and nothing
else. After the writer lost its files or its locks, the next write opens it again, which succeeds once no stale holder
remains; nothing is repeated by itself.

Not for: what rows mean (see `conversation`). A connection per thread was rejected: threads end and connections stay.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeVar

from hermes_state.clock import Clock
from hermes_state.engine.connection import APPLICATION_ID, ReadStore, open_read, open_write
from hermes_state.engine.create import create_store, refuse_leftovers
from hermes_state.engine.files import foreign_store, real_path
from hermes_state.engine.migrate import applied, migrate, pending, refuse_too_old
from hermes_state.engine.pool import ReaderPool
from hermes_state.engine.pragmas import DURABILITIES, unknown_durability
from hermes_state.engine.store import Durability, Store
from hermes_state.engine.transaction import Transaction
from hermes_state.errors import (
    IdentityConflict,
    NotAStore,
    NotFound,
    ReadOnlyStore,
    UnsafeProcess,
)

Result = TypeVar("Result")
POOL_SIZE = 4  # readers at a time; each costs three descriptors, and 200 open stores were measured at 606

_OPEN: dict[tuple[Path, bool], Core] = {}
_OPEN_LOCK = threading.RLock()


class Core:
    """One open native store. Made by `acquire`, given back by `release`; safe for threads."""

    def __init__(self, path: Path, *, read_only: bool, clock: Clock) -> None:
        self.path = path
        self.read_only = read_only
        self.clock = clock
        self._pid = os.getpid()
        self._wishes: list[Durability | None] = []  # one an open user: the durability it asked for
        self._lock = threading.Lock()
        self._writer: Store | None = None if read_only else open_write(path, clock=clock)
        # the durability of every commit here; None when each operation chooses
        self.forced: Durability | None = None
        # rises whenever the writer was opened anew: what a caller remembered of rows may be out of date then
        self.epoch = 0
        self._pool = ReaderPool(self.new_reader, POOL_SIZE, clock=clock)
        try:
            if self._writer is None:
                with self._pool.reader() as reader:
                    self.store_id, self.incarnation = identity(reader)
                    pending(path, applied(reader))
            else:
                self.store_id, self.incarnation = identity(self._writer)
                self._writer.mark_identity(self.store_id)
                if missing := pending(path, applied(self._writer)):
                    refuse_too_old(path, missing)
                    migrate(self._writer, clock=clock)
        except BaseException:
            self.close()
            raise

    # --- work ------------------------------------------------------------------------------------------------

    def reader(self) -> AbstractContextManager[ReadStore]:
        """A pooled reader for the `with` block; waits while all are in use by other threads.

        A block inside another one of the same thread gets the same reader, and sees what its snapshot sees.
        """
        return self._pool.reader()

    def new_reader(self) -> ReadStore:
        """A reader of the caller's own, to be closed by it; for long streams."""
        return open_read(self.path, clock=self.clock)

    def write(
        self, work: Callable[[Transaction], Result], *, durability: Durability = "process",
        deadline_seconds: float | None = None,
    ) -> Result:
        """Run `work(tx)` in one BEGIN IMMEDIATE and return what it returned, once it is committed.

        `deadline_seconds`: how long to wait for the lock (default 20). Raises `LockTimeout` (nothing was changed),
        `ReadOnlyStore`, `GenerationLost`, `WriteLockLost`, `Corrupt`, `DiskFull`, `InvalidInput` for a durability that
        is none, and what `work` raises. An interrupt leaves nothing open; one that comes after COMMIT undoes nothing.
        """
        if durability not in DURABILITIES:
            raise unknown_durability(durability, self.path)
        writer = self._writer
        if writer is None or writer.stopped is not None:
            writer = self._usable_writer()
        return writer.write(work, durability=self.forced or durability, deadline_seconds=deadline_seconds)

    def _usable_writer(self) -> Store:
        if self._writer is None:
            raise ReadOnlyStore(
                f"{self.path} was opened for reading only.", hint="Open it with read_only=False.", path=self.path
            )
        if self._pid != os.getpid():
            return self._writer  # a forked child, which it refuses by name; another thread may have had the lock
        with self._lock:
            if isinstance(self._writer.stopped, UnsafeProcess):
                self._writer.reopen()
                self.epoch += 1
                self.store_id, self.incarnation = identity(self._writer)
                self._writer.mark_identity(self.store_id)
        return self._writer

    def join(self, wish: Durability | None) -> None:
        """One user more. The most durable wish counts for all: they share the writer."""
        self._wishes.append(wish)
        self._choose()

    def part(self, wish: Durability | None) -> bool:
        """One user less; True when it was the last."""
        self._wishes.remove(wish)
        self._choose()
        return not self._wishes

    def _choose(self) -> None:
        if "power" in self._wishes:
            self.forced = "power"
        else:
            self.forced = "process" if self._wishes and None not in self._wishes else None

    @property
    def writer(self) -> Store:
        """The one writer, for maintenance of the whole file such as `incremental_vacuum`."""
        return self._usable_writer()

    def refuse_close_inside(self) -> None:
        """Raise `StateError` when it is the function given to `write` that wants to close."""
        if self._writer is not None:
            self._writer.refuse_close_inside()

    def close(self) -> None:
        """Close all connections. Use `release`, which counts the users."""
        try:
            self._pool.close()
        finally:
            if self._writer is not None:
                self._writer.close()


def acquire(
    path: Path | str, *, read_only: bool, create: bool, clock: Clock, durability: Durability | None = None
) -> Core:
    """The core of the native store at `path`, shared with whoever has it open in this process.

    Raises `InvalidInput`, `NotFound`, `ForeignStore`, `SchemaTooNew`, `SchemaTooOld`, `IdentityConflict`, `Refused`,
    and what opening raises.
    """
    real = real_path(path)
    with _OPEN_LOCK:
        core = _OPEN.get((real, read_only))
        if core is None or core._pid != os.getpid():
            if not real.exists():
                refuse_leftovers(real)
                if read_only or not create:
                    raise NotFound(f"There is no store at {path}.", hint="Open it for writing to make one.", path=path)
                create_store(real, clock=clock)
            core = Core(real, read_only=read_only, clock=clock)
            try:
                _refuse_twin(core)
            except BaseException:
                core.close()
                raise
            _OPEN[real, read_only] = core
        core.join(durability)
        return core


def release(core: Core, durability: Durability | None = None) -> None:
    """One user less, who had asked for `durability`; the last one closes."""
    core.refuse_close_inside()
    with _OPEN_LOCK:
        if not core.part(durability) or core._pid != os.getpid():
            return
        if _OPEN.get((core.path, core.read_only)) is core:
            del _OPEN[core.path, core.read_only]
        core.close()


def _forget_in_child() -> None:
    """In a forked child: the cores are the parent's, and one of its threads may have held the lock."""
    global _OPEN_LOCK
    _OPEN_LOCK = threading.RLock()
    _OPEN.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)


def identity(reader: ReadStore | Store | Transaction) -> tuple[str, str]:
    """Store id and incarnation of a native store: application id and identity row together make it one."""
    ours = reader.row("PRAGMA application_id") == (APPLICATION_ID,)
    if not ours:
        raise foreign_store(reader.path)
    tables = {name for (name,) in reader.rows("SELECT name FROM sqlite_schema WHERE name IN ('store', 'migrations')")}
    row = reader.row("SELECT store_id, incarnation FROM store") if len(tables) == 2 else None
    if row is None:
        raise NotAStore(
            f"{reader.path} carries this library's mark, but has no identity row.",
            hint=f"Run `hermes-state doctor --db {reader.path}`.", path=reader.path,
        )
    return str(row[0]), str(row[1])


def _refuse_twin(core: Core) -> None:
    for other in _OPEN.values():
        if other.store_id == core.store_id and other.path != core.path and other._pid == os.getpid():
            raise IdentityConflict(
                f"{core.path} is a copy of {other.path}, which is open here: both say they are store {core.store_id}.",
                hint=f"Give the copy an identity of its own: `hermes-state doctor --new-identity --db {core.path}`.",
                path=core.path, other_path=other.path, store_id=core.store_id,
            )
