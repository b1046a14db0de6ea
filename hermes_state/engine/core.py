"""What every part of an open native store shares: one writer, a bounded pool of readers, the identity, the clock.

Invariant: one `Core` for writing and one for reading only per file in a process, however often it is opened: writes of
all threads go through its one writer, reads through its pool. Opening applies small additive schema steps and nothing
else. After the writer lost its files or its locks, the next write opens it again, which succeeds once no stale holder
remains; nothing is repeated by itself.

A store whose -wal and -shm are there is opened through a reader, the *founder*, which answers all that an open asks;
the writer comes with the first write (a second connection is most of the cost of opening, and of closing, and many
programs only read). Until then the founder guards the generation as a writer would: its files are compared, and kept
when they are lost, before the writer is opened and before the close; and a writer that finds another store there than
was opened is refused.

Not for: what rows mean (see `conversation`). A connection per thread was rejected: threads end and connections stay.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TypeVar

from hermes_state.clock import Clock
from hermes_state.engine.busy import BusyWait
from hermes_state.engine.connection import ReadStore, open_read, open_write
from hermes_state.engine.create import create_store, refuse_leftovers
from hermes_state.engine.files import closed_here, foreign_store, forked, real_path, writable_file
from hermes_state.engine.migrate import Applied, applied, migrate, pending, refuse_too_old
from hermes_state.engine.pool import ReaderPool
from hermes_state.engine.pragmas import DURABILITIES, unknown_durability
from hermes_state.engine.schema import STATE, Layout
from hermes_state.engine.stale import has_sidecars, other_store_here, refuse_other_sidecars
from hermes_state.engine.store import Durability, Store
from hermes_state.engine.transaction import Transaction
from hermes_state.engine.translate import system_error
from hermes_state.errors import (
    IdentityConflict,
    NotAStore,
    NotFound,
    ReadOnlyStore,
    StatementFailed,
    UnsafeProcess,
)
from hermes_state.shell_words import shell_word

Result = TypeVar("Result")
_WHO = "SELECT store_id, incarnation, number, name, sha256 FROM store JOIN migrations"
POOL_SIZE = 4  # readers at a time; each costs three descriptors, and 200 open stores were measured at 606

_OPEN: dict[tuple[Path, bool], Core] = {}
_OPEN_LOCK = threading.RLock()


class Core:
    """One open native store. Made by `acquire`, given back by `release`; safe for threads."""

    def __init__(self, path: Path, *, read_only: bool, clock: Clock, layout: Layout = STATE) -> None:
        self.path = path
        self.layout = layout
        self.read_only = read_only
        self.clock = clock
        self._pid = os.getpid()
        self._closed = False
        self._wishes: list[Durability | None] = []  # one an open user: the durability it asked for
        self._lock = threading.Lock()
        # None for a store that is only read, and until the first write of one that another reader could open
        self._writer: Store | None = None
        self._founder: ReadStore | None = None  # the reader that opened the store, for as long as there is no writer
        # the durability of every commit here; None when each operation chooses
        self.forced: Durability | None = None
        # rises whenever the writer was opened anew: what a caller remembered of rows may be out of date then
        self.epoch = 0
        self._pool = ReaderPool(self._pooled_reader, POOL_SIZE, clock=clock)
        try:
            if read_only:
                with self._pool.reader() as reader:
                    self.store_id, self.incarnation = identity(reader, layout)
                    pending(path, applied(reader), layout.steps)
            elif not self._found():
                self._writer = open_write(path, clock=clock, application_id=layout.application_id)
                self.store_id, self.incarnation = identity(self._writer, layout)
                self._writer.mark_identity(self.store_id)
                if missing := pending(path, applied(self._writer), layout.steps):
                    refuse_too_old(path, missing)
                    migrate(self._writer, clock=clock, known=layout.steps)
        except BaseException:
            self.close()
            raise

    def _found(self) -> bool:
        """Open the store through a reader. False when that does not do: a writer then says why, or sees to it.

        Raises what the open of a writer raises about the file, its mark and its schema.
        """
        path = writable_file(self.path, is_real=True)
        if not has_sidecars(path):
            return False  # a writer makes them, after a look for stale holders
        with self._pool.reader() as reader:
            if reader.journal_mode != "wal" or reader.descriptors.main is None or reader.descriptors.shm is None:
                reader.close()  # it would open a WAL by itself later, and nobody would know the descriptor
                return False  # without a lock on the WAL index nobody may write
            refuse_other_sidecars(reader, BusyWait(self.clock, 1.0))
            self.store_id, self.incarnation, ledger = _identity_and_ledger(reader, self.layout)
            if pending(path, ledger, self.layout.steps):
                return False
            self._founder = reader
            reader.stands_for_writer = True
        return True

    # --- work ------------------------------------------------------------------------------------------------

    def reader(self) -> AbstractContextManager[ReadStore]:
        """A pooled reader for the `with` block; waits while all are in use by other threads.

        A block inside another one of the same thread gets the same reader, and sees what its snapshot sees.
        """
        return self._pool.reader()

    def new_reader(self) -> ReadStore:
        """A reader of the caller's own, to be closed by it; for long streams."""
        reader = open_read(self.path, clock=self.clock, is_real=True)
        reader.checks_files = True
        return reader

    def _pooled_reader(self) -> ReadStore:
        reader, founder = self.new_reader(), self._founder
        if founder is not None and founder.closed and founder.stopped is None:
            # The pool let the founder go, because somebody left a loop over its rows in the middle.
            self._founder = reader
            reader.stands_for_writer = True
        return reader

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
        if self.read_only:
            raise ReadOnlyStore(
                f"{self.path} was opened for reading only.", hint="Open it with read_only=False.", path=self.path
            )
        writer = self._writer
        if self._pid != os.getpid():  # a forked child, refused by name; another thread may have had the lock
            if writer is None:
                raise forked(self.path, self._pid)
            return writer
        with self._lock:
            writer = self._writer
            if writer is None:
                return self._first_writer()
            if isinstance(writer.stopped, UnsafeProcess):
                writer.reopen()
                self.epoch += 1
                self.store_id, self.incarnation = identity(writer, self.layout)
                writer.mark_identity(self.store_id)
        return writer

    def _first_writer(self) -> Store:
        """Open the writer. Raises `GenerationLost` when the files are not those that were opened.

        After that the next call opens whatever store is there then, as after the loss of a writer.
        """
        if self._closed:
            raise closed_here(self.path)
        founder = self._founder
        told = founder is None or founder.stopped is not None
        if founder is not None and not told and not founder.closed:
            founder.refuse_lost()
        writer = open_write(self.path, clock=self.clock, application_id=self.layout.application_id)
        try:
            found = identity(writer, self.layout)
            if told or found != (self.store_id, self.incarnation):
                self._founder = None
                self.epoch += 1
                self.store_id, self.incarnation = found
                if not told:
                    raise other_store_here(self.path)
            elif founder is not None:
                writer.has_seen_what(founder)
            writer.mark_identity(self.store_id)
            if founder is not None:
                founder.stands_for_writer = False
            self._founder, self._writer = None, writer
            if self._closed:  # by another thread, which may have looked for a writer before there was one
                raise closed_here(self.path)
        except BaseException:
            self._writer = None
            writer.close()
            raise
        return writer

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
        """Close all connections. Use `release`, which counts the users.

        Raises `GenerationLost` after what only these connections still see was kept, as every writer's close does.
        """
        self._closed = True
        founder, self._founder = self._founder, None
        try:
            if founder is not None and founder.stopped is None and not founder.closed and self._pid == os.getpid():
                founder.refuse_lost()
        finally:
            try:
                self._pool.close()
            finally:
                if self._writer is not None:
                    self._writer.close()


def acquire(
    path: Path | str, *, read_only: bool, create: bool, clock: Clock, durability: Durability | None = None,
    layout: Layout = STATE,
) -> Core:
    """The core of the native store at `path`, shared with whoever has it open in this process.

    `layout`: what kind of file of this project it has to be.

    Raises `InvalidInput`, `NotFound`, `ForeignStore`, `SchemaTooNew`, `SchemaTooOld`, `IdentityConflict`, `Refused`,
    and what opening raises.
    """
    real = real_path(path)
    try:
        with _OPEN_LOCK:
            return _acquire(
                real, path, read_only=read_only, create=create, clock=clock, durability=durability, layout=layout
            )
    except OSError as error:
        raise system_error(real, error, "opening") from error


def _acquire(
    real: Path, path: Path | str, *, read_only: bool, create: bool, clock: Clock, durability: Durability | None,
    layout: Layout,
) -> Core:
    core = _OPEN.get((real, read_only))
    if core is None or core._pid != os.getpid():
        if not real.exists():
            refuse_leftovers(real)
            if read_only or not create:
                raise NotFound(f"There is no store at {path}.", hint="Open it for writing to make one.", path=path)
            create_store(real, clock=clock, layout=layout)
        core = Core(real, read_only=read_only, clock=clock, layout=layout)
        try:
            _refuse_twin(core)
        except BaseException:
            core.close()
            raise
        _OPEN[real, read_only] = core
    elif core.layout is not layout:
        raise foreign_store(real)
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


def identity(reader: ReadStore | Store | Transaction, layout: Layout = STATE) -> tuple[str, str]:
    """Store id and incarnation of a native store: application id and identity row together make it one."""
    ours = reader.row("PRAGMA application_id") == (layout.application_id,)
    if not ours:
        raise foreign_store(reader.path)
    tables = {name for (name,) in reader.rows("SELECT name FROM sqlite_schema WHERE name IN ('store', 'migrations')")}
    row = reader.row("SELECT store_id, incarnation FROM store") if len(tables) == 2 else None
    if row is None:
        raise NotAStore(
            f"{reader.path} carries this library's mark, but has no identity row.",
            hint=f"Run `hermes-state doctor --db {shell_word(reader.path)}`.", path=reader.path,
        )
    return str(row[0]), str(row[1])


def _identity_and_ledger(reader: ReadStore, layout: Layout) -> tuple[str, str, Applied]:
    """`identity` and `applied` by one query where all is as it should be; else those say what is wrong."""
    found: list[tuple[str, str, int, str, str]] = []
    if reader.row("PRAGMA application_id") == (layout.application_id,):
        with suppress(StatementFailed):
            found = reader.rows(_WHO)
    if not found:
        return *identity(reader, layout), applied(reader)
    return found[0][0], found[0][1], {number: (name, sha256) for _id, _in, number, name, sha256 in found}


def _refuse_twin(core: Core) -> None:
    for other in _OPEN.values():
        if other.store_id == core.store_id and other.path != core.path and other._pid == os.getpid():
            raise IdentityConflict(
                f"{core.path} is a copy of {other.path}, which is open here: both say they are store {core.store_id}.",
                hint="Give the copy an identity of its own: `hermes-state doctor --new-identity --db "
                f"{shell_word(core.path)}`.",
                path=core.path, other_path=other.path, store_id=core.store_id,
            )
