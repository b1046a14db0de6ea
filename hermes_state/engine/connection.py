"""The one door: the only module that opens a live store.

Invariant: every connection is APSW's; has its busy handler before its first statement; never checkpoints by itself
and never at close; and is refused when this process has the file open by other means, or was forked from one that
had it open. Read-only opens take no write lock, make no schema change, no checkpoint and no unlink. What they may
leave is an empty -wal and a -shm beside the file. The first opener of a store that nobody else has open rebuilds the
WAL index, for which SQLite holds bytes 120 to 122 for a moment; that is reported as `index_rebuilt`.

Not for: policy. The `immutable` flag was rejected for reading: it ignores the WAL (measured: no tables seen).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import apsw

from hermes_state.clock import SYSTEM, Clock
from hermes_state.engine.busy import BusyWait
from hermes_state.engine.cut_file import refuse_cut
from hermes_state.engine.descriptors import REGISTRY, StoreDescriptors, identity_of
from hermes_state.engine.files import (
    existing_file,
    foreign_store,
    new_private_file,
    no_room_for_sidecars,
    unseen_descriptors,
    writable_file,
)
from hermes_state.engine.guarded import lock_lost
from hermes_state.engine.link import Link
from hermes_state.engine.own_lock import SHARED_FIRST, WAL_ALIVE_BYTE, others_lock, own_lock
from hermes_state.engine.parking import LIVE, close_parked, second_sqlite
from hermes_state.engine.pragmas import read_pragma, set_pragma
from hermes_state.engine.schema import STATE
from hermes_state.engine.stale import has_sidecars, refuse_other_sidecars, refuse_stale_holders, stale_here
from hermes_state.engine.store import ExclusiveStore, Store
from hermes_state.engine.tokenizers import NulRule, register
from hermes_state.engine.translate import named, translate, translated
from hermes_state.engine.waiting import lock_timeout
from hermes_state.errors import (
    CannotOpen,
    ForkedConnection,
    PragmaRefused,
)

APPLICATION_ID = STATE.application_id  # in the file header marks the store of a home
WAL_LIMIT_BYTES = 64 * 1024 * 1024
_Opened = TypeVar("_Opened", bound=Store)


class ReadStore(Link):
    """A store open for reading only."""

    # True when this open had to rebuild the WAL index because nobody else had the store open
    index_rebuilt: bool = False
    # frames that were found in the WAL by that rebuild, as after a crash
    recovered_frames: int = 0

    def _before_close(self) -> None:
        if self.stands_for_writer:
            self._check_generation(committed=False, contents=False)

    def backup_to(self, target: Path) -> None:
        """Copy the store, WAL content included, into the new private file `target` (mode 0600)."""
        with self._lock:
            self._ready()
            copy_into(self._connection, target)


def open_read(
    path: Path | str, *, busy_seconds: float = 5.0, nul_rule: NulRule = NulRule.NATIVE, search_modules: bool = True,
    tolerant: bool = False, clock: Clock = SYSTEM, is_real: bool = False,
) -> ReadStore:
    """Open a store for reading. Raises `NotFound`, `NotAStore`, `CannotOpen`, `LockTimeout`, `SecondSQLite`.

    `search_modules=False` leaves out FTS5 and its kind, so that a page check looks at pages only. `tolerant=True` opens
    a file whose schema has entries that SQLite cannot use: it shows those that it can, and nothing is written.
    `is_real`: `path` is what `files.real_path` gave.
    """
    real = existing_file(path, is_real=is_real)
    wait = BusyWait(clock, busy_seconds)

    def prepare(connection: apsw.Connection) -> None:
        if tolerant:
            connection.execute("PRAGMA writable_schema = ON").fetchall()
        if not search_modules:
            connection.drop_modules([])
        else:
            register(connection, nul_rule)

    connection, descriptors, mode, alone = _connect(real, apsw.SQLITE_OPEN_READONLY, wait, prepare)
    store = ReadStore(
        connection, real, descriptors, wait, clock, journal_mode=mode, patience_seconds=busy_seconds
    )
    if not tolerant:
        refuse_cut(store)
    if alone:
        state = store.wal_state()
        store.index_rebuilt = True
        store.recovered_frames = state.frames if state else 0
    return store


def open_write(
    path: Path | str, *, foreign: bool = False, deadline_seconds: float = 20.0, nul_rule: NulRule = NulRule.NATIVE,
    clock: Clock = SYSTEM, application_id: int = APPLICATION_ID,
) -> Store:
    """Open a store for writing. `foreign=True` is for maintenance commands on a hermes-agent file.

    `application_id`: the mark that the file must have otherwise.

    A native store whose -wal and -shm are there opens in about 0.4 ms; otherwise every process is looked at for stale
    holders first, which takes some milliseconds more (see `stale`). Raises `NotFound`, `NotAStore`, `ForeignStore`,
    `CannotOpen`, `LockTimeout`, `SecondSQLite`, `PragmaRefused`, `GenerationLost`.
    """
    real = writable_file(path)
    if foreign or not has_sidecars(real):
        refuse_stale_holders(real)
    wait = BusyWait(clock, deadline_seconds)

    def prepare(connection: apsw.Connection) -> None:
        _prepare_writer(connection, real, nul_rule)
        # Pages of an open transaction stay in memory until COMMIT has looked at the locks: written earlier, they would
        # go over what others commit once this process has lost its lock.
        set_pragma(connection, real, "cache_spill", 0)

    connection, descriptors, mode, _alone = _connect(real, apsw.SQLITE_OPEN_READWRITE, wait, prepare)
    store = Store(
        connection, real, descriptors, wait, clock, journal_mode=mode, patience_seconds=deadline_seconds
    )

    def again() -> Store:
        return open_write(
            real, foreign=foreign, deadline_seconds=deadline_seconds, nul_rule=nul_rule, clock=clock,
            application_id=application_id,
        )

    ready = _ready_for_writing(store, foreign, again, application_id)
    refuse_cut(ready)
    refuse_other_sidecars(ready, wait)
    return ready


def open_exclusive(
    path: Path | str, *, foreign: bool = False, deadline_seconds: float = 20.0, nul_rule: NulRule = NulRule.NATIVE,
    clock: Clock = SYSTEM,
) -> ExclusiveStore:
    """Open a store and hold SQLite's exclusive lock until it is closed. Raises `LockTimeout` while others hold it."""
    real = writable_file(path)
    refuse_stale_holders(real)
    wait = BusyWait(clock, deadline_seconds)

    def prepare(connection: apsw.Connection) -> None:
        set_pragma(connection, real, "locking_mode", "exclusive")
        _prepare_writer(connection, real, nul_rule)
        connection.execute("BEGIN EXCLUSIVE").fetchall()
        connection.execute("COMMIT").fetchall()

    connection, descriptors, mode, _alone = _connect(
        real, apsw.SQLITE_OPEN_READWRITE, wait, prepare, wanted="exclusive"
    )
    if descriptors.main is not None and own_lock(descriptors.main, SHARED_FIRST) in ("read", "none"):
        connection.close(True)
        raise PragmaRefused(
            f"SQLite did not take the exclusive lock of {real}.", hint="Report this with the file system in use.",
            path=real, pragma="locking_mode", wanted="exclusive", got="normal",
        )
    store = ExclusiveStore(
        connection, real, descriptors, wait, clock, journal_mode=mode, patience_seconds=deadline_seconds, exclusive=True
    )

    def again() -> Store:
        return open_exclusive(real, foreign=foreign, deadline_seconds=deadline_seconds, nul_rule=nul_rule, clock=clock)

    return _ready_for_writing(store, foreign, again)


def copy_into(connection: apsw.Connection, target: Path) -> None:
    """Copy the database that `connection` sees into the new private file `target`, in one step."""
    new_private_file(target)
    with translated(target, "copying into"):
        copy = apsw.Connection(str(target))
        try:
            with copy.backup("main", connection, "main") as backup:
                while not backup.done:
                    backup.step(-1)
        finally:
            copy.close()


def back_up(store: Link, target: Path) -> str:
    """Copy a store as its open connection sees it into the new private file `target`; what the copy's page check says.

    For stores under the exclusive lock, which no second connection can read.
    """
    with store._lock:
        store._ready()
        copy_into(store.raw_connection, target)
    return page_verdict(target)


def page_verdict(copy: Path) -> str:
    """ "ok", or the first thing that SQLite's page check says about a private copy."""
    with translated(copy, "checking"):
        # Not read-only: a reader of a WAL file would leave -wal and -shm beside the copy.
        connection = apsw.Connection(str(copy), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            connection.drop_modules([])  # pages only, no search indexes
            return str(connection.execute("PRAGMA quick_check(1)").fetchall()[0][0])
        finally:
            connection.close()


def copy_onto(source: Path, connection: apsw.Connection, path: Path) -> None:
    """Copy the private file `source` onto the store that `connection` has open under its exclusive lock."""
    with translated(path, "replacing the content of", connection):
        copy = apsw.Connection(str(source), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            with connection.backup("main", copy, "main") as backup:
                while not backup.done:
                    backup.step(-1)
        finally:
            copy.close()


# --- how a connection is made ------------------------------------------------------------------------------------


def _connect(
    path: Path, flags: int, wait: BusyWait, prepare: Callable[[apsw.Connection], None], *, wanted: str = "read",
    reads: bool = True,
) -> tuple[apsw.Connection, StoreDescriptors, str, bool]:
    """Open, prepare, read once (unless `reads` is False: `prepare` did), and find SQLite's own descriptors.

    The last item is True when this open was the first of a WAL store, so that SQLite had to rebuild the WAL index.
    """
    tries = 0
    while True:
        # Each try is short, and nobody waits while holding the registry: another thread's COMMIT needs it.
        try:
            with REGISTRY.lock:
                return _try_to_connect(path, flags, wait, prepare, reads)
        except apsw.BusyError as error:
            if not wait.nap(tries):
                raise lock_timeout(path, None, wait.waited, cause=error, wanted=wanted) from error
            tries += 1


def _try_to_connect(
    path: Path, flags: int, wait: BusyWait, prepare: Callable[[apsw.Connection], None], reads: bool
) -> tuple[apsw.Connection, StoreDescriptors, str, bool]:
    already_open = _refuse_unsafe_process(path)
    connection: apsw.Connection | None = None
    try:
        connection = apsw.Connection(str(path), flags=flags)
        connection.set_busy_handler(None)
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        # Plans follow from the statement alone: otherwise each call whose value could choose a partial index is
        # prepared anew (measured: 11 us instead of 1.7).
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        prepare(connection)
        if reads:
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        mode = str(read_pragma(connection, "journal_mode"))
        descriptors = REGISTRY.adopt(path, connection)
        connection.set_busy_handler(wait)
    except BaseException as error:
        try:
            problem = _failure(error, path, connection)
            if connection is not None:
                connection.close(True)
        finally:
            # SQLite keeps a descriptor for later when to close it would cancel the locks of another connection.
            REGISTRY.keep_known(path)
        if problem is error:
            raise
        raise problem from error
    alone = descriptors.shm is not None and others_lock(descriptors.shm, WAL_ALIVE_BYTE) is False
    if alone and own_lock(descriptors.shm or 0, WAL_ALIVE_BYTE) == "none":
        # A reader that may not lock the WAL index (read-only folder, nobody else there): SQLite works on a private copy
        # of the index and verifies it at each read. There is no lock to lose, and the file on disk says nothing.
        descriptors = replace(descriptors, shm=None)
    return connection, descriptors, mode, mode == "wal" and alone and not already_open


def _failure(error: BaseException, path: Path, connection: apsw.Connection | None) -> BaseException:
    """What an open that failed raises; asked while the connection can still say what the system said."""
    if connection is None and isinstance(error, apsw.Error):
        return named(error, path, "opening")
    if isinstance(error, apsw.BusyError):
        return error  # for `_connect`, which tries again
    if isinstance(error, apsw.Error) and connection is not None:
        problem = translate(error, path, "opening", system_errno=connection.system_errno)
        if isinstance(problem, CannotOpen) and not os.access(path.parent, os.W_OK):
            return no_room_for_sidecars(path, problem)
        return problem
    return unseen_descriptors(path, error) if isinstance(error, OSError) else error


def _refuse_unsafe_process(path: Path) -> bool:
    """Raise when a connection to `path` in this process could not rely on its locks; True when one is open already."""
    identity = identity_of(path)
    if identity in REGISTRY.inherited:
        raise ForkedConnection(
            f"{path} was open in the process that this one (PID {os.getpid()}) was forked from; SQLite's lock "
            "table was copied and cannot be trusted here.",
            hint="Start the child with exec (spawn), or fork before the store is opened.",
            path=path, opened_by_pid=os.getppid(),
        )
    try:
        close_parked()
        strangers = REGISTRY.strangers(path)
    except OSError as error:
        raise unseen_descriptors(path, error) from error
    if strangers:
        raise second_sqlite(path, strangers, "not opened")
    for link in [link for link in list(LIVE) if link.path == path]:
        if link.lost_files():
            raise stale_here(path, link.lost_files())
        which = link.lost_lock()
        if which:
            REGISTRY.distrust(link.token)
            raise lock_lost(path, which, committed=False)
    if REGISTRY.distrusted(identity):
        which = "the locks of another connection of this process, which is not closed yet,"
        raise lock_lost(path, which, committed=False)
    return identity in REGISTRY.identities()


def _prepare_writer(connection: apsw.Connection, path: Path, nul_rule: NulRule) -> None:
    register(connection, nul_rule)
    set_pragma(connection, path, "foreign_keys", 1)
    set_pragma(connection, path, "recursive_triggers", 0)
    # A WAL that grew in a rush is cut back to this when it starts over; its frames are all in the file then.
    set_pragma(connection, path, "journal_size_limit", WAL_LIMIT_BYTES)


def _ready_for_writing(
    store: _Opened, foreign: bool, reopen: Callable[[], Store], application_id: int = APPLICATION_ID
) -> _Opened:
    store._start(reopen)
    found = store.descriptors  # all None where a system cannot list its own descriptors
    if store.journal_mode == "wal" and not isinstance(store, ExclusiveStore) and found.main and found.shm is None:
        path = store.path
        store.close()
        raise CannotOpen(
            f"The WAL index of {path} ({path.name}-shm) cannot be locked for writing.",
            hint="Check that this user may write to the file and its folder.", path=path,
        )
    if store.application_id != application_id and not foreign:
        path = store.path
        store.close()
        raise foreign_store(path)
    return store

