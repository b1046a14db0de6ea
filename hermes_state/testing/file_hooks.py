"""Between SQLite and the system: the file methods of its default VFS, seen and answered from Python.

Invariant: SQLite gets the result codes that it would get from the system, and no Python exception ever passes through
it: many failures it handles by itself, as that of the checkpoint at close, and they must stay its own. What a hook does
not answer is passed to the system's method as it is; file structures, descriptors and locks stay those of SQLite. A
file keeps the hooks that were there when it was opened.

Not for: anything but tests. Subclassing `apsw.VFS` was rejected: APSW raises the exception of a method from whatever
call is under way, also where SQLite went on (measured: from `close`, from the lock that a read-only close tries).
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import CFUNCTYPE, POINTER, Structure, addressof, c_char_p, c_int, c_int64, c_void_p
from typing import Any

import apsw

from hermes_state.errors import InvalidInput

# Answer of a hook: an SQLite result code instead of the operation, None to pass it on.
Answer = int | None


class FileHooks:
    """What hears of one open file. Each method is asked before the operation, and told afterwards of what worked."""

    def read(self) -> Answer:
        """A read; the buffer is zeroed when it is answered."""
        return None

    def write(self, size: int) -> tuple[int, int] | None:
        """A write of `size` bytes: how many of them to write, and the code to give."""
        return None

    def cut(self) -> None:
        """A write was answered, and the part of it that was to be written is in the file."""

    def wrote(self, data: bytes, offset: int) -> None:
        """Bytes are in the file."""

    def truncate(self) -> Answer:
        """A change of the size."""
        return None

    def truncated(self, size: int) -> None:
        """The file has `size` bytes."""

    def sync(self) -> Answer:
        """A sync."""
        return None

    def synced(self) -> None:
        """Everything written so far is durable."""

    def size(self) -> Answer:
        """A question for the size."""
        return None

    def lock(self) -> Answer:
        """A lock of the main file."""
        return None

    def map_index(self) -> Answer:
        """A request for a part of the WAL index."""
        return None

    def lock_index(self) -> Answer:
        """A lock of the WAL index."""
        return None

    def closed(self) -> None:
        """The file is closed."""


class Hooks:
    """What hears of opens and deletes, and gives each file its hooks."""

    def open(self, path: str, flags: int) -> Answer:
        """An open with SQLITE_OPEN_ flags; '' is a temporary file."""
        return None

    def opened(self, path: str, flags: int) -> FileHooks | None:
        """The file is open; None when its operations are of no interest."""
        return None

    def delete(self, path: str) -> Answer:
        """The removal of a file."""
        return None

    def deleted(self, path: str, *, folder_synced: bool) -> None:
        """The file is removed."""


@contextmanager
def hooked(hooks: Hooks, errno: Callable[[], int] = lambda: 0) -> Iterator[None]:
    """Let every open of the block go through `hooks`. `errno`: what the system "said" at an answer.

    What a hook raised makes its operation an I/O error, and is raised again when the block ends. Raises `InvalidInput`
    inside another block: each would hear only what the other one passes on.
    """
    shim = _shim()
    with shim.lock:
        if shim.hooks is not None:
            raise InvalidInput("Faults or a recording are under way in this process.", hint="One at a time.")
        shim.hooks, shim.errno, shim.raised = hooks, errno, []
        shim.put_in()
    try:
        yield
    finally:
        with shim.lock:
            shim.take_out()
            shim.hooks = None
            raised = list(shim.raised)
    if raised:
        raise raised[0]


# --- the structures of sqlite3.h -------------------------------------------------------------------------------------


def _function(*arguments: Any) -> Any:
    return CFUNCTYPE(c_int, *arguments, use_errno=True)


_OPEN = _function(c_void_p, c_void_p, c_void_p, c_int, POINTER(c_int))
_DELETE = _function(c_void_p, c_char_p, c_int)
_CLOSE = _function(c_void_p)
_TRANSFER = _function(c_void_p, c_void_p, c_int, c_int64)  # xRead, xWrite
_TRUNCATE = _function(c_void_p, c_int64)
_NUMBER = _function(c_void_p, c_int)  # xSync, xLock
_SIZE = _function(c_void_p, POINTER(c_int64))
_SHM_MAP = _function(c_void_p, c_int, c_int, c_int, POINTER(c_void_p))
_SHM_LOCK = _function(c_void_p, c_int, c_int, c_int)


class _Vfs(Structure):
    _fields_ = (
        ("iVersion", c_int), ("szOsFile", c_int), ("mxPathname", c_int), ("pNext", c_void_p), ("zName", c_char_p),
        ("pAppData", c_void_p), ("xOpen", c_void_p), ("xDelete", c_void_p),
    )


_METHODS = (
    "xClose", "xRead", "xWrite", "xTruncate", "xSync", "xFileSize", "xLock", "xUnlock", "xCheckReservedLock",
    "xFileControl", "xSectorSize", "xDeviceCharacteristics", "xShmMap", "xShmLock", "xShmBarrier", "xShmUnmap",
    "xFetch", "xUnfetch",
)


class _Methods(Structure):
    _fields_ = (("iVersion", c_int), *((name, c_void_p) for name in _METHODS))


# --- the shim --------------------------------------------------------------------------------------------------------


class _Shim:
    """The methods in place of the system's, for the length of a block.

    Files that were opened in it keep their tables until they are closed. Opening and deleting are the system's again at
    the end: left in, a signal that comes while Python answers would be lost in SQLite for the rest of the process.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.hooks: Hooks | None = None
        self.errno: Callable[[], int] = lambda: 0
        self.raised: list[BaseException] = []
        self._files: dict[int, FileHooks] = {}  # address of the file structure -> its hooks
        self._system: dict[int, _Methods] = {}  # the same -> the system's methods of the file
        self._tables: dict[int, _Methods] = {}  # address of a table of the system -> ours
        self._callbacks: list[Any] = []  # referred to by tables that SQLite has
        self._vfs = vfs = _default_vfs()
        self._systems = vfs.xOpen, vfs.xDelete
        self._open, self._delete = _OPEN(vfs.xOpen), _DELETE(vfs.xDelete)
        self._ours = self._callback(_OPEN, self._on_open), self._callback(_DELETE, self._on_delete)

    def put_in(self) -> None:
        """From now on every open and delete of the process comes here."""
        self._vfs.xOpen, self._vfs.xDelete = self._ours

    def take_out(self) -> None:
        """From now on they go to the system."""
        self._vfs.xOpen, self._vfs.xDelete = self._systems

    def _callback(self, kind: Any, function: Callable[..., int]) -> int:
        def guarded(*arguments: Any) -> int:
            try:
                return function(*arguments)
            except BaseException as error:
                self.raised.append(error)
                return apsw.SQLITE_IOERR

        callback = kind(guarded)
        self._callbacks.append(callback)
        return ctypes.cast(callback, c_void_p).value or 0

    def _answered(self, code: int) -> int:
        ctypes.set_errno(self.errno())
        return code

    def _on_open(self, vfs: int, name: int | None, file: int, flags: int, out_flags: Any) -> int:
        hooks = self.hooks
        path = "" if not name else os.fsdecode(ctypes.string_at(name))
        answer = None if hooks is None else hooks.open(path, flags)
        if answer is not None:
            c_void_p.from_address(file).value = None
            return self._answered(answer)
        code = int(self._open(vfs, name, file, flags, out_flags))
        if code == apsw.SQLITE_OK and hooks is not None:
            watching = hooks.opened(path, flags)
            if watching is not None:
                self._watch(file, watching)
        return code

    def _watch(self, file: int, watching: FileHooks) -> None:
        slot = c_void_p.from_address(file)
        address = slot.value or 0
        if address not in self._tables:
            self._tables[address] = self._table(_Methods.from_address(address))
        self._files[file], self._system[file] = watching, _Methods.from_address(address)
        slot.value = addressof(self._tables[address])

    def _table(self, system: _Methods) -> _Methods:
        ours = _Methods.from_buffer_copy(system)
        for name, kind, function in (
            ("xClose", _CLOSE, self._on_close), ("xRead", _TRANSFER, self._on_read),
            ("xWrite", _TRANSFER, self._on_write), ("xTruncate", _TRUNCATE, self._on_truncate),
            ("xSync", _NUMBER, self._on_sync), ("xFileSize", _SIZE, self._on_size), ("xLock", _NUMBER, self._on_lock),
        ):
            setattr(ours, name, self._callback(kind, function))
        if system.iVersion >= 2 and system.xShmMap:
            ours.xShmMap = self._callback(_SHM_MAP, self._on_shm_map)
            ours.xShmLock = self._callback(_SHM_LOCK, self._on_shm_lock)
        return ours

    def _on_close(self, file: int) -> int:
        watching, system = self._files.pop(file), self._system.pop(file)
        code = int(_CLOSE(system.xClose)(file))
        watching.closed()
        return code

    def _on_read(self, file: int, buffer: int, size: int, offset: int) -> int:
        answer = self._files[file].read()
        if answer is not None:
            ctypes.memset(buffer, 0, size)
            return self._answered(answer)
        return int(_TRANSFER(self._system[file].xRead)(file, buffer, size, offset))

    def _on_write(self, file: int, buffer: int, size: int, offset: int) -> int:
        watching, write = self._files[file], _TRANSFER(self._system[file].xWrite)
        answer = watching.write(size)
        if answer is not None:
            part, code = answer
            if part:
                write(file, buffer, part, offset)
            watching.cut()
            return self._answered(code)
        code = int(write(file, buffer, size, offset))
        if code == apsw.SQLITE_OK:
            watching.wrote(ctypes.string_at(buffer, size), offset)
        return code

    def _on_truncate(self, file: int, size: int) -> int:
        answer = self._files[file].truncate()
        if answer is not None:
            return self._answered(answer)
        code = int(_TRUNCATE(self._system[file].xTruncate)(file, size))
        if code == apsw.SQLITE_OK:
            self._files[file].truncated(size)
        return code

    def _on_sync(self, file: int, flags: int) -> int:
        answer = self._files[file].sync()
        if answer is not None:
            return self._answered(answer)
        code = int(_NUMBER(self._system[file].xSync)(file, flags))
        if code == apsw.SQLITE_OK:
            self._files[file].synced()
        return code

    def _on_size(self, file: int, size: Any) -> int:
        answer = self._files[file].size()
        if answer is not None:
            return self._answered(answer)
        return int(_SIZE(self._system[file].xFileSize)(file, size))

    def _on_lock(self, file: int, level: int) -> int:
        answer = self._files[file].lock()
        return self._answered(answer) if answer is not None else int(_NUMBER(self._system[file].xLock)(file, level))

    def _on_shm_map(self, file: int, region: int, size: int, extend: int, out: Any) -> int:
        answer = self._files[file].map_index()
        if answer is not None:
            return self._answered(answer)
        return int(_SHM_MAP(self._system[file].xShmMap)(file, region, size, extend, out))

    def _on_shm_lock(self, file: int, offset: int, count: int, flags: int) -> int:
        # Only a request can fail; a lock that is given back is given back.
        answer = self._files[file].lock_index() if flags & apsw.SQLITE_SHM_LOCK else None
        if answer is not None:
            return self._answered(answer)
        return int(_SHM_LOCK(self._system[file].xShmLock)(file, offset, count, flags))

    def _on_delete(self, vfs: int, name: bytes, sync_folder: int) -> int:
        hooks = self.hooks
        answer = None if hooks is None else hooks.delete(os.fsdecode(name))
        if answer is not None:
            return self._answered(answer)
        code = int(self._delete(vfs, name, sync_folder))
        if code == apsw.SQLITE_OK and hooks is not None:
            hooks.deleted(os.fsdecode(name), folder_synced=bool(sync_folder))
        return code


def _default_vfs() -> _Vfs:
    """SQLite's own structure of its default VFS: for the life of the process, and not constant."""
    pointer = c_void_p()
    connection = apsw.Connection(":memory:")
    try:
        connection.file_control("main", apsw.SQLITE_FCNTL_VFS_POINTER, addressof(pointer))
    finally:
        connection.close()
    return _Vfs.from_address(pointer.value or 0)


_installed: list[_Shim] = []


def _shim() -> _Shim:
    if not _installed:
        _installed.append(_Shim())
    return _installed[0]
