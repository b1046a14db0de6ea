"""The door to a store whose whole content is about to be replaced, whatever state its file is in.

Invariant: the exclusive lock is taken without looking at a single page, so a store with a zeroed header, no header, or
no bytes at all is locked like a healthy one; and the new content arrives in one transaction of SQLite's backup API on
the same inode. Until that commits, a kill leaves what was there (measured in WAL and in rollback mode, over a zeroed
header, a cut file and a file that is no database); after it, the new content. A WAL that belongs to the old content is
written on, not replayed: the commit that replaces everything is later than all its frames.

SQLITE_DBCONFIG_RESET_DATABASE does it: SQLite then takes the file for one of no pages and checks none. The recipe of
SQLite's manual, a VACUUM under that setting and the copy afterwards, was rejected: a kill between the two leaves an
empty database.

Not for: deciding who may do it, or keeping what was there (`maintenance.replacement`).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

from hermes_state.clock import SYSTEM, Clock
from hermes_state.engine.busy import BusyWait
from hermes_state.engine.connection import _connect
from hermes_state.engine.descriptors import REGISTRY, StoreDescriptors
from hermes_state.engine.files import real_path
from hermes_state.engine.guarded import Guarded
from hermes_state.engine.own_lock import SHARED_FIRST, own_lock
from hermes_state.engine.parking import LIVE
from hermes_state.engine.pragmas import SYNCHRONOUS, read_pragma, set_pragma
from hermes_state.engine.stale import refuse_stale_holders
from hermes_state.engine.translate import named, translated
from hermes_state.errors import Corrupt, InvalidInput, PragmaRefused, ReadOnlyStore, Refused, StateError

STEP_PAGES = 4096  # pages a step of the copy; between two steps the caller hears of it


class Replacement(Guarded):
    """A store of any state under SQLite's exclusive lock, from open to close."""

    # True once the new content is committed, whatever comes afterwards.
    replaced = False

    def old(self, sql: str) -> list[tuple[Any, ...]]:
        """Rows of the content that is there now, few and soon. Raises `Corrupt` and its kind where it is damaged."""
        with self._lock:
            self._ready()
            # SQLite may open the -wal file only now, and no other thread may take its descriptor for a stranger's.
            with REGISTRY.lock:
                self._believe_nothing(False)
                try:
                    return self._connection.execute(sql).fetchall()
                except (apsw.Error, UnicodeDecodeError) as error:
                    raise named(error, self.path, "reading", self._connection) from error
                finally:
                    self._believe_nothing(True)
                    self._guard_anew(str(read_pragma(self._connection, "journal_mode")))

    def page_size(self) -> int | None:
        """The page size that new content must have, None when any will do (outside WAL mode)."""
        with self._lock:
            self._ready()
            if read_pragma(self._connection, "journal_mode") != "wal":
                return None
            return int(str(read_pragma(self._connection, "page_size")))

    def replace(
        self, new: Path, *, journal_mode: str, progress: Callable[[int, int], None] | None = None
    ) -> None:
        """Put the pages of the private file `new` in place of all that is there, durably, then set the journal mode.

        `progress(done, total)` in pages; what it raises undoes everything. Raises what SQLite says; the store is then
        as it was. `journal_mode` is "wal" or "delete".
        """
        with self._lock:
            self._ready()
            self._check_generation(committed=False, contents=False)
            set_pragma(self._connection, self.path, "synchronous", SYNCHRONOUS["power"])
            REGISTRY.start_writing(self.token)
            try:
                self._copy_from(new, progress)
                self.replaced = True
            finally:
                REGISTRY.stop_writing(self.token)
            self._check_generation(committed=True, contents=False)
            self._check_standing_lock(committed=True)
            self._settle(journal_mode)

    def checkpoint(self, *, keep_wal: bool = False) -> None:
        """Copy every frame into the file and empty the WAL, unless `keep_wal`."""
        with self._lock:
            self._ready()
            mode = "passive" if keep_wal else "truncate"
            with translated(self.path, "checkpointing", self._connection):
                (found,) = self._connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
            if found[0] != 0 or found[1] != found[2]:
                raise Corrupt(
                    f"The WAL of {self.path} was not copied into the file ({found[2]} of {found[1]} frames).",
                    hint="Check the disk, then open the store: SQLite reads the rest from its WAL.",
                    path=self.path, search_index=False,
                )

    # --- parts -----------------------------------------------------------------------------------------------

    def _believe_nothing(self, on: bool) -> None:
        self._connection.config(apsw.SQLITE_DBCONFIG_RESET_DATABASE, int(on))

    def _copy_from(self, new: Path, progress: Callable[[int, int], None] | None) -> None:
        source = _open_source(new)
        try:
            with (
                translated(self.path, "replacing the content of", self._connection),
                self._connection.backup("main", source, "main") as backup,
            ):
                while not backup.done:
                    backup.step(STEP_PAGES)
                    if progress is not None and not backup.done:
                        progress(backup.page_count - backup.remaining, backup.page_count)
        finally:
            source.close()

    def _guard_anew(self, journal_mode: str) -> None:
        """Guard the files that SQLite has open now; the caller has the registry's lock since before it opened them."""
        descriptors = REGISTRY.adopt(self.path, self._connection)
        if journal_mode == "wal":
            # Taking the lock made one before SQLite knew the mode. Under the lock and in WAL mode none can be hot.
            Path(f"{self.path}-journal").unlink(missing_ok=True)
        self._watch.close()
        REGISTRY.leave(self.token)
        LIVE.discard(self)
        Guarded.__init__(
            self, self._connection, self.path, descriptors, self._wait, self._clock, journal_mode=journal_mode,
            patience_seconds=self._patience, exclusive=True,
        )

    def _settle(self, journal_mode: str) -> None:
        """Believe the new content, set its journal mode, and guard the files that SQLite has open from here on."""
        with REGISTRY.lock:
            self._believe_nothing(False)
            with translated(self.path, "setting the journal mode of", self._connection):
                got = self._connection.execute(f"PRAGMA journal_mode = {journal_mode}").fetchall()[0][0]
                # SQLite opens the -wal file at the first read.
                self._connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
            self._guard_anew(str(got))
        if got != journal_mode:
            raise PragmaRefused(
                f"{self.path} has its new content, but SQLite kept journal_mode = {got} although {journal_mode} was "
                "asked for.",
                hint="Check that this file system allows WAL, then set the mode while nothing uses the store.",
                path=self.path, pragma="journal_mode", wanted=journal_mode, got=got,
            )


def open_replacement(
    path: Path | str, *, wal_page_size: int | None = None, deadline_seconds: float = 20.0, clock: Clock = SYSTEM
) -> Replacement:
    """Lock a store for the replacement of its content. A missing file is made first, empty and private.

    `wal_page_size`: what the header of the -wal file says, when there is one; SQLite goes by the header of the database
    file, which may be gone.

    Raises `LockTimeout` while others hold it, `GenerationLost` for holders of deleted files, `Refused` for a file with
    several names, `ReadOnlyStore`, `InvalidInput`, `CannotOpen`, `SecondSQLite`.
    """
    real = replaceable_file(path)
    if not real.exists():
        os.close(os.open(real, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    refuse_stale_holders(real)
    wait = BusyWait(clock, deadline_seconds)

    def prepare(connection: apsw.Connection) -> None:
        connection.drop_modules([])  # nothing of the content is used, and its modules may be missing
        connection.config(apsw.SQLITE_DBCONFIG_RESET_DATABASE, 1)
        if wal_page_size is not None:
            connection.execute(f"PRAGMA page_size = {int(wal_page_size)}").fetchall()
        set_pragma(connection, real, "locking_mode", "exclusive")
        connection.execute("BEGIN EXCLUSIVE").fetchall()
        # Never COMMIT: SQLite has begun a new first page, which a rollback throws away.
        connection.execute("ROLLBACK").fetchall()

    connection, descriptors, mode, _alone = _connect(
        real, apsw.SQLITE_OPEN_READWRITE, wait, prepare, wanted="exclusive", reads=False
    )
    _require_lock(connection, real, descriptors)
    return Replacement(
        connection, real, descriptors, wait, clock, journal_mode=mode, patience_seconds=deadline_seconds, exclusive=True
    )


def replaceable_file(path: Path | str) -> Path:
    """The real path of a file whose content may be replaced, or of none at all. Its content is not looked at."""
    real = real_path(path)
    try:
        found = os.stat(real)
    except FileNotFoundError:
        if not real.parent.is_dir():
            raise InvalidInput(
                f"The folder {real.parent} does not exist.", hint="Create it first.", path=real
            ) from None
        found = None
    if found is not None and not stat.S_ISREG(found.st_mode):
        raise InvalidInput(f"{real} is not a regular file.", hint="Name the state.db file itself.", path=real)
    if found is not None and found.st_nlink > 1:
        raise Refused(
            f"{real} has {found.st_nlink} names (hard links). Each name would get a WAL of its own over the same file, "
            "which destroys it.",
            hint="Make the other name a copy of its own (`cp --reflink=auto` and `mv`), then try again.",
            path=real, names=found.st_nlink,
        )
    if not os.access(real.parent, os.W_OK) or (found is not None and not os.access(real, os.W_OK)):
        raise ReadOnlyStore(
            f"{real} or its folder cannot be written by this user, or the file system is read-only.",
            hint="Run as the user who owns the store, or work on a copy.", path=real,
        )
    return real


def _open_source(new: Path) -> apsw.Connection:
    with translated(new, "opening"):
        return apsw.Connection(str(new), flags=apsw.SQLITE_OPEN_READONLY)


def _require_lock(connection: apsw.Connection, path: Path, descriptors: StoreDescriptors) -> None:
    problem: StateError | None = None
    if descriptors.main is not None and own_lock(descriptors.main, SHARED_FIRST) in ("read", "none"):
        problem = PragmaRefused(
            f"SQLite did not take the exclusive lock of {path}.", hint="Report this with the file system in use.",
            path=path, pragma="locking_mode", wanted="exclusive", got="normal",
        )
    if problem is not None:
        connection.close(True)
        raise problem
