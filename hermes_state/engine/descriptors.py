"""Which file descriptors of this process belong to SQLite, and which open stores it has.

Invariant: POSIX locks belong to the process and the inode, so a descriptor of a store that is not APSW's can cancel
APSW's locks when it is closed, and APSW's close can cancel the locks of another SQLite library. Before an open this
module looks for such descriptors; after it, it remembers which new ones are SQLite's; before a close it looks again.
Descriptors are only looked at (fstat, /proc/self/fdinfo), never opened or closed here.

Not for: other processes (see `lockowners`). Trusting SQLite's C structures alone was rejected: what they say is taken
only when the kernel's listing agrees.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import apsw

try:
    import fcntl
except ImportError:  # Windows, where nothing is listed
    fcntl = None  # type: ignore[assignment]

Identity = tuple[int, int]  # (st_dev, st_ino)

_O_PATH = getattr(os, "O_PATH", 0)
_O_DIRECTORY = getattr(os, "O_DIRECTORY", 0)
_O_CLOEXEC = getattr(os, "O_CLOEXEC", 0)


@dataclass(frozen=True, kw_only=True)
class StoreDescriptors:
    """SQLite's own descriptors for one store in this process; None where there is no such file."""

    # the database file
    main: int | None
    # the -wal file
    wal: int | None
    # the -shm file, shared by all connections of this process to the store
    shm: int | None


def identity_of(path: Path | str) -> Identity | None:
    """Device and inode of what `path` names now, or None when nothing is there."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


@functools.lru_cache(maxsize=64)
def sidecars(path: Path) -> tuple[Path, Path, Path]:
    """The three files of a WAL store: main, -wal, -shm."""
    return path, path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")


def _listing() -> dict[int, Identity]:
    """Every descriptor of this process with its identity."""
    names: Iterable[str | int]
    try:
        try:
            names = os.listdir("/proc/self/fd")
        except (FileNotFoundError, NotADirectoryError):
            names = os.listdir("/dev/fd")
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
        names = range(_limit())  # none is left to list with, so every number below the limit is in use
    found: dict[int, Identity] = {}
    for name in names:
        try:
            number = int(name)
            state = os.fstat(number)
        except (OSError, ValueError):
            continue  # the listing's own descriptor, or one closed meanwhile
        found[number] = (state.st_dev, state.st_ino)
    return found


def _limit() -> int:
    import resource  # not on Windows, where nothing is listed

    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


class DescriptorCount:
    """How many descriptors this process has, as Linux 6.2 and later say it in the size of /proc/self/fd.

    The folder is kept open: looking at it by name costs 2.4 microseconds, by descriptor 0.8.
    """

    def __init__(self) -> None:
        self.folder = -1
        self.inode = 0
        self._pid = 0

    def now(self) -> int:
        """The number of descriptors, -1 where the kernel does not say."""
        if self.folder < 0 or self._pid != os.getpid() or not self._still_there():
            self._open()
        return os.fstat(self.folder).st_size or -1 if self.folder >= 0 else -1

    def _still_there(self) -> bool:
        """False when other code of this process closed the folder, whatever has its number now."""
        try:
            return os.fstat(self.folder).st_ino == self.inode
        except OSError:
            return False

    def _open(self) -> None:
        self._pid = os.getpid()
        self.folder = -1
        try:
            self.folder = os.open("/proc/self/fd", _O_PATH | _O_DIRECTORY | _O_CLOEXEC)
            self.inode = os.fstat(self.folder).st_ino
        except OSError:
            return  # no /proc here, or no descriptor left

    def give_back(self) -> None:
        """Close the folder until it is needed again, where no other descriptor is left for something that matters."""
        self.forget()

    def forget(self) -> None:
        """In a forked child: what is open is the parent's folder."""
        if self.folder >= 0 and self._still_there():
            os.close(self.folder)
        self.folder = -1


def _takes_part_in_locks(number: int, identity: Identity) -> bool:
    """False for an O_PATH descriptor, whose close cancels no lock, and for one that was closed meanwhile.

    Another thread's holder scan opens such descriptors for a moment.
    """
    try:
        flags = 0 if fcntl is None else fcntl.fcntl(number, fcntl.F_GETFL)
        state = os.fstat(number)
    except OSError:
        return False
    return (state.st_dev, state.st_ino) == identity and not flags & _O_PATH


def _descriptor_in(connection: apsw.Connection, pointer: int) -> int | None:
    """The descriptor number that SQLite keeps for a file of this connection.

    SQLite may reuse a descriptor that another connection left open, which a listing cannot show. The number is read
    from SQLite's `unixFile` (three pointers come before it); the caller takes it when it is on the right file.
    """
    address = ctypes.c_void_p()
    if not connection.file_control("main", pointer, ctypes.addressof(address)) or not address.value:
        return None
    return ctypes.c_int.from_address(address.value + 3 * ctypes.sizeof(ctypes.c_void_p)).value


class Registry:
    """The process-wide record of stores open through the door. One instance: `REGISTRY`."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._own: dict[int, Identity] = {}
        self._open: dict[int, tuple[Identity, ...]] = {}  # token -> identities of main, -wal, -shm
        self._writing: set[int] = set()  # tokens of stores that may have the write lock now
        self._distrusted: set[int] = set()  # tokens of stores that lost their locks and are not closed yet
        self.writes = 0  # how often a store of this process went for the write lock
        self._next_token = 0
        self.descriptors = DescriptorCount()
        self.counted = -1  # number of descriptors at the last look for strangers; -1 when the kernel does not count
        # Stores that the parent had open when this process was forked: SQLite's lock table was copied with them and
        # believes in locks that this process does not have, so they cannot be opened here.
        self.inherited: frozenset[Identity] = frozenset()

    def _forget_closed(self) -> None:
        """What `_prune` does, by a look at the known descriptors only."""
        for number, known in list(self._own.items()):
            try:
                state = os.fstat(number)
            except OSError:
                del self._own[number]
                continue
            if (state.st_dev, state.st_ino) != known:
                del self._own[number]

    def _prune(self, listing: dict[int, Identity]) -> None:
        self._own = {number: known for number, known in self._own.items() if listing.get(number) == known}

    def strangers(self, path: Path, opened: Iterable[Identity] = ()) -> tuple[int, ...]:
        """Descriptors of this process on the store's files that are not SQLite's of this library.

        `opened` adds the files that a connection has open, which the path may no longer name.
        """
        wanted = {found for found in map(identity_of, sidecars(path)) if found is not None} | set(opened)
        with self.lock:
            self.counted = self.descriptors.now()
            found, elsewhere = self._look(wanted)
            if found:
                # Looked at again: numbers that other threads open and close meanwhile can seem to be what they are not.
                found &= self._look(wanted)[0]
            if found or elsewhere:
                self.counted = -1  # everybody goes on looking while one is there
            return tuple(sorted(found))

    def _look(self, wanted: set[Identity]) -> tuple[set[int], bool]:
        """Unknown descriptors on `wanted` files, and whether there may be some on files of other open stores.

        Who uses one of those sees no other count than we do now, and must not miss what concerns it.
        """
        listing = _listing()
        self._prune(listing)
        unknown = {number: identity for number, identity in listing.items() if number not in self._own}
        found = {n for n, identity in unknown.items() if identity in wanted and _takes_part_in_locks(n, identity)}
        others = set().union(*self._open.values()) - wanted
        return found, any(identity in others for identity in unknown.values())

    def changed(self) -> bool:
        """True when this process may have other descriptors than at the last look. About 0.9 microseconds.

        The kernel's count misses an open and a close in balance between two looks; `Link` therefore also looks at the
        locks themselves.
        """
        try:
            state = os.fstat(self.descriptors.folder)
        except OSError:
            return True  # there is no such count, or other code closed the folder
        # A kernel that does not count says 0, and then `counted` is -1.
        return state.st_size != self.counted or state.st_ino != self.descriptors.inode

    def adopt(self, path: Path, connection: apsw.Connection) -> StoreDescriptors:
        """Remember SQLite's descriptors for the store and return those of `connection`.

        To be called under the registry's lock, after `strangers` found none and SQLite opened its files: whatever of
        this process is on them then and was not known is SQLite's.
        """
        main, wal, shm = (identity_of(name) for name in sidecars(path))
        self.counted = self.descriptors.now()  # before the listing: what is opened after it is looked at again
        listing = _listing()
        self._prune(listing)
        fresh = {
            number: identity
            for number, identity in listing.items()
            if identity in (main, wal, shm) and number not in self._own and _takes_part_in_locks(number, identity)
        }
        self._own |= fresh

        def choose(identity: Identity | None, pointer: int | None) -> int | None:
            mine = [number for number, known in self._own.items() if known == identity is not None]
            told = _descriptor_in(connection, pointer) if pointer is not None and mine else None
            if told in mine:
                return told
            return max([number for number in mine if number in fresh] or mine, default=None)

        return StoreDescriptors(
            main=choose(main, apsw.SQLITE_FCNTL_FILE_POINTER),
            wal=choose(wal, apsw.SQLITE_FCNTL_JOURNAL_POINTER),
            shm=choose(shm, None),
        )

    def keep_known(self, path: Path) -> None:
        """Remember descriptors on the store's files that an open which failed has left to SQLite.

        To be called as `adopt` is, instead of it. One that cannot be looked for now is a stranger later on.
        """
        try:
            identities, listing = {identity_of(name) for name in sidecars(path)}, _listing()
        except OSError:
            return
        self._prune(listing)
        self._own |= {
            number: identity
            for number, identity in listing.items()
            if identity in identities and _takes_part_in_locks(number, identity)
        }

    def enter(self, identities: Iterable[Identity]) -> int:
        """Record an open store; returns the token for `leave`."""
        with self.lock:
            self._next_token += 1
            self._open[self._next_token] = tuple(identities)
            return self._next_token

    def start_writing(self, token: int) -> None:
        """The store with this token is about to take the write lock.

        Without the registry's lock, which an open holds for long: each step is one of the interpreter's own, and of two
        stores that begin at once the count need only be seen to move.
        """
        self._writing.add(token)
        self.writes += 1

    def stop_writing(self, token: int) -> None:
        """The store with this token has let the write lock go."""
        self._writing.discard(token)

    def writing(self, identities: Iterable[Identity]) -> bool:
        """True when a store of this process with one of these files may have the write lock."""
        wanted = set(identities)
        with self.lock:
            return any(wanted.intersection(self._open.get(token, ())) for token in tuple(self._writing))

    def distrust(self, token: int) -> None:
        """The store with this token may have lost its locks; until it has left, its file is not opened again."""
        with self.lock:
            if token in self._open:
                self._distrusted.add(token)

    def distrusted(self, identity: Identity | None) -> bool:
        """True while a store of this process that lost its locks still has this file open."""
        with self.lock:
            return any(identity in self._open.get(token, ()) for token in self._distrusted)

    def leave(self, token: int) -> None:
        """The store with this token has been closed."""
        with self.lock:
            self._open.pop(token, None)
            self._writing.discard(token)
            self._distrusted.discard(token)
            self._forget_closed()

    def forget(self) -> None:
        """Drop the record of open stores; the descriptors stay known as SQLite's."""
        self._open = {}
        self._writing = set()
        self._distrusted = set()

    def identities(self) -> frozenset[Identity]:
        """Main, -wal and -shm of every store open in this process."""
        with self.lock:
            return frozenset(identity for group in self._open.values() for identity in group)


REGISTRY = Registry()


def _mark_inherited() -> None:
    REGISTRY.lock = threading.RLock()  # the parent's other threads may have held it
    REGISTRY.inherited |= REGISTRY.identities()
    REGISTRY.forget()
    REGISTRY.descriptors.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_mark_inherited)


def open_stores() -> frozenset[Identity]:
    """Device and inode of every file of every store that this process has open through the door."""
    return REGISTRY.identities()


def is_open(path: Path | str) -> bool:
    """True when this process has the store at `path` open through the door."""
    return identity_of(path) in REGISTRY.identities()
