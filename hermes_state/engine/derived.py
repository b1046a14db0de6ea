"""A file of derived data beside a store: opened, made, and put back to empty without harm to anyone who has it open.

Invariant: a path never gets another file while something is there; a file that is damaged, cut off or not SQLite at
all is emptied in place, through the pager, under SQLite's own write lock (measured: readers that have it open in other
processes go on with the emptied content). Nothing here waits: whoever finds the file in use does without it. Losing
the file loses nothing, so nothing is captured, and a connection whose files were deleted is simply let go.

Not for: canonical data. Rejected: a rename over the path (old connections and the new file then share a WAL), and a
new name for each generation (its sidecars and its damaged predecessors stay for as long as an idle process lives).
"""

from __future__ import annotations

import os
import secrets
import stat
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import apsw

from hermes_state.clock import Clock
from hermes_state.engine.busy import BusyWait
from hermes_state.engine.connection import ReadStore, _connect, _prepare_writer, _refuse_unsafe_process
from hermes_state.engine.create import publish
from hermes_state.engine.descriptors import REGISTRY
from hermes_state.engine.files import existing_file, new_private_file, writable_file
from hermes_state.engine.generation import Lost
from hermes_state.engine.own_lock import SHARED_FIRST, WAL_ALIVE_BYTE, WAL_WRITE_BYTE, others_lock
from hermes_state.engine.parking import LIVE
from hermes_state.engine.pragmas import set_pragma
from hermes_state.engine.store import Store
from hermes_state.engine.tokenizers import NulRule
from hermes_state.engine.translate import translated
from hermes_state.engine.wal_index import WAL_HEADER_BYTES
from hermes_state.engine.whole_file import copy_back
from hermes_state.errors import ForeignStore, GenerationLost, LockTimeout, NotAStore, PragmaRefused

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

# Called for each matching row of a full-text query: (FTS5 extension interface, the statement's other arguments).
Auxiliary = Callable[..., float | bytes]
PAGE_BYTES = 4096  # SQLite's default, which is what a file without a readable header is taken to have


class _LetGo:
    """What derived connections do differently: nothing of a lost generation is worth keeping."""

    path: Path

    def _generation_lost(self, lost: Lost, *, committed: bool) -> NoReturn:
        problem = GenerationLost(
            f"{self.path} was deleted or replaced while it was open; it holds nothing that cannot be made again.",
            hint="Repeat: it is opened or made anew.", path=self.path, lost=lost, capture=None, committed=committed,
            user_sentence="", operator_detail="",
        )
        self._abandon(problem)  # type: ignore[attr-defined]
        raise problem

    def let_go(self) -> None:
        """Close without a last look at the files. Safe to call twice."""
        with self._lock:  # type: ignore[attr-defined]
            if not self._closed:  # type: ignore[attr-defined]
                self._release()  # type: ignore[attr-defined]


class DerivedReader(_LetGo, ReadStore):
    """A derived file open for reading."""


class DerivedStore(_LetGo, Store):
    """A derived file open for writing."""

    def _check_generation(self, *, committed: bool, contents: bool) -> None:
        # Bytes overwritten in place are met as damage, or covered by the WAL and made good by its next checkpoint.
        super()._check_generation(committed=committed, contents=False)

    def busy(self) -> bool:
        """True while another process has the write lock."""
        return self.descriptors.shm is not None and others_lock(self.descriptors.shm, WAL_WRITE_BYTE) is True


def unicode61(*arguments: str) -> Callable[[str], list[str]]:
    """SQLite's own tokenizer of that name, as a function from text to terms. Safe for threads."""
    connection = apsw.Connection(":memory:")
    tokenizer = connection.fts5_tokenizer("unicode61", list(arguments))
    lock = threading.Lock()

    def terms(text: str) -> list[str]:
        with lock:
            found = tokenizer(
                text.encode("utf-8", "replace"), apsw.FTS5_TOKENIZE_DOCUMENT, None, include_offsets=False,
                include_colocated=False,
            )
        return [str(term) for term in found]

    return terms


def open_derived_reader(path: Path, *, auxiliaries: Mapping[str, Auxiliary], clock: Clock) -> DerivedReader:
    """Open for reading, with FTS5 auxiliary functions by name. Raises what `open_read` raises, never after a wait."""
    _refuse_empty(path)
    real = existing_file(path)
    _drop_stale(real)
    wait = BusyWait(clock, 0.0)

    def prepare(connection: apsw.Connection) -> None:
        try:
            for name, function in auxiliaries.items():
                connection.register_fts5_function(name, function)
        except apsw.NoFTS5Error:
            # APSW asks SQLite for the full-text interface with a SELECT and hides why that failed.
            connection.execute("SELECT 1 FROM sqlite_schema LIMIT 0").fetchall()
            raise

    connection, descriptors, mode, _alone = _connect(real, apsw.SQLITE_OPEN_READONLY, wait, prepare)
    return DerivedReader(connection, real, descriptors, wait, clock, journal_mode=mode, patience_seconds=0.05)


def open_derived_writer(path: Path, *, application_id: int, clock: Clock) -> DerivedStore:
    """Open for writing. Raises `ForeignStore` for a file without this `application_id`, and as `open_write` does.

    Unlike there, no other process is looked up: what a stale one may do to a derived file costs a rebuild at most.
    """
    _refuse_empty(path)
    real = writable_file(path)
    _drop_stale(real)
    wait = BusyWait(clock, 0.0)

    def prepare(connection: apsw.Connection) -> None:
        _prepare_writer(connection, real, NulRule.NATIVE)
        set_pragma(connection, real, "cache_spill", 0)

    connection, descriptors, mode, _alone = _connect(real, apsw.SQLITE_OPEN_READWRITE, wait, prepare)
    store = DerivedStore(connection, real, descriptors, wait, clock, journal_mode=mode, patience_seconds=0.05)

    def again() -> Store:
        return open_derived_writer(real, application_id=application_id, clock=clock)

    store._start(again)
    try:
        if store.application_id != application_id:
            raise ForeignStore(
                f"{real} was not made by this library.", hint="Move it away: its name is needed.", path=real
            )
        main, shm = descriptors.main, descriptors.shm
        if main is not None and shm is not None and others_lock(main, SHARED_FIRST) and not others_lock(
            shm, WAL_ALIVE_BYTE
        ):
            raise LockTimeout(
                f"Another process is just opening {real}, or has it open with other -wal and -shm files.",
                hint="It lets go at its next use of the file.", path=real, holders=(), waited_seconds=0.0,
            )
    except BaseException:
        store.let_go()
        raise
    return store


def make_derived(
    path: Path, statements: Sequence[tuple[str, Sequence[Any]]], *, application_id: int,
    unless: Callable[[], bool] = lambda: False,
) -> bool:
    """Make the file, or empty the one that is there, and run `statements` in it; False while others are doing that.

    `unless` is asked once it is our turn: another process may have done it meanwhile. Everything that was in the file
    is gone afterwards. Raises `DiskFull`, `ReadOnlyStore`, `LockTimeout`, and `OSError` for the folder.
    """
    real = Path(os.path.realpath(path))
    with _folder_turn(real.parent) as ours:
        if not ours:
            return False
        _drop_stale(real)
        if unless():
            return True
        if real.exists():
            _empty(_whole_page(real), statements, application_id)
        else:
            _create(real, statements, application_id)
    return True


def _refuse_empty(path: Path) -> None:
    """Raise `NotAStore` for a file that was cut off before its first page: SQLite would delete the WAL beside it."""
    try:
        found = os.stat(path)
    except OSError:
        return  # `existing_file` says what is wrong
    if stat.S_ISREG(found.st_mode) and found.st_size < 512:  # a folder's size is any number
        raise NotAStore(f"{path} was cut off.", hint="It is made anew.", path=path)


def _whole_page(real: Path) -> Path:
    """`real`, made one page long when it is shorter, with a WAL beside it that is not empty.

    SQLite deletes the WAL of an empty file under whoever has it open, and takes an empty WAL for none, so that it would
    need the file for itself alone. Beside a page of zeros and a WAL header of zeros it joins the others. Both are
    done by name: no descriptor of ours is closed, so no lock of this process is lost.
    """
    found = os.stat(real)
    if stat.S_ISREG(found.st_mode) and found.st_size < PAGE_BYTES:
        os.truncate(real, PAGE_BYTES)
    wal = Path(f"{real}-wal")
    if wal.exists() and wal.stat().st_size == 0:
        os.truncate(wal, WAL_HEADER_BYTES)
    return writable_file(real)


def _empty(real: Path, statements: Sequence[tuple[str, Sequence[Any]]], application_id: int) -> None:
    # Under the registry's lock: other threads must not meet descriptors that are not known as SQLite's yet.
    with REGISTRY.lock, translated(real, "emptying"):
        _refuse_unsafe_process(real)
        connection = apsw.Connection(str(real), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            # Nobody waits while holding the registry: another thread's COMMIT needs it.
            connection.set_busy_handler(None)
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            connection.wal_autocheckpoint(0)
            connection.config(apsw.SQLITE_DBCONFIG_RESET_DATABASE, 1)  # first of all: a pragma would read the header
            connection.execute("PRAGMA synchronous = normal").fetchall()
            connection.execute("PRAGMA auto_vacuum = incremental").fetchall()
            connection.execute("VACUUM").fetchall()
            connection.config(apsw.SQLITE_DBCONFIG_RESET_DATABASE, 0)
            _fill(connection, real, statements, application_id)
            connection.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.BusyError as error:
            raise LockTimeout(
                f"{real} is in use and cannot be emptied now.", hint="It is tried again at the next search.", path=real,
                holders=(), waited_seconds=0.0,
            ) from error
        finally:
            # SQLite keeps a closed descriptor of it open while another connection of this process has locks.
            REGISTRY.adopt(real, connection)
            connection.close(True)


def _create(real: Path, statements: Sequence[tuple[str, Sequence[Any]]], application_id: int) -> None:
    # Sidecars without their database belong to nobody any more: whoever still has them open has a deleted file open as
    # well, and lets go of all three at its next use.
    for leftover in (Path(f"{real}-wal"), Path(f"{real}-shm")):
        leftover.unlink(missing_ok=True)
    staged = real.with_name(f".{real.name}.{secrets.token_hex(6)}.new")
    new_private_file(staged)
    try:
        with translated(staged, "creating"):
            connection = apsw.Connection(str(staged))
            try:
                connection.execute("PRAGMA synchronous = off").fetchall()
                connection.execute("PRAGMA auto_vacuum = incremental").fetchall()
                _fill(connection, staged, statements, application_id)
            finally:
                connection.close()
        publish(staged, real)
    finally:
        for name in (staged, Path(f"{staged}-wal"), Path(f"{staged}-shm")):
            name.unlink(missing_ok=True)


def _fill(
    connection: apsw.Connection, path: Path, statements: Sequence[tuple[str, Sequence[Any]]], application_id: int
) -> None:
    if connection.execute("PRAGMA journal_mode = wal").fetchall() != [("wal",)]:
        raise PragmaRefused(
            f"{path} cannot be switched to WAL.", hint="Use a local file system.", path=path, pragma="journal_mode",
            wanted="wal", got="?",
        )
    connection.execute("BEGIN IMMEDIATE").fetchall()
    connection.execute(f"PRAGMA application_id = {application_id}").fetchall()
    for sql, params in statements:
        connection.execute(sql, params).fetchall()
    connection.execute("COMMIT").fetchall()
    # The file gets its name without its WAL, and a close whose own checkpoint fails says nothing.
    copy_back(connection, path)


def _drop_stale(real: Path) -> None:
    """Let go of this process's own connections to a generation of the file that is gone; they would block an open."""
    ours = [link for link in list(LIVE) if isinstance(link, (DerivedReader, DerivedStore)) and link.path == real]
    for link in ours:
        if link.lost_files() and link._lock.acquire(blocking=False):
            try:
                link.let_go()
            finally:
                link._lock.release()


@contextmanager
def _folder_turn(folder: Path) -> Iterator[bool]:
    """True when this process alone, of all of ours, makes or empties a file in `folder`; never waits.

    The lock is on the folder itself, so it cannot be deleted and leaves nothing behind.
    """
    if fcntl is None:
        yield True
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        yield True
    finally:
        with suppress(OSError):
            os.close(descriptor)
