"""A log of everything that reaches the files of a folder, in order: what a power cut could take away again.

Invariant: each write, truncation, sync, creation, removal and renaming is one event, with its bytes. What goes through
SQLite is seen under its VFS; other files are looked at before and after each event and each os.fsync, os.replace,
os.rename and os.unlink, so however they are written, their content is in the log before anything later is.
The folder of a file counts as synced when somebody syncs the folder, or SQLite does (for a WAL or journal).

Not for: folders in which another program works meanwhile, and not for the WAL index (-shm), which a crash ends. Tracing
system calls was rejected: it needs a tracer and sees every other file too.
"""

from __future__ import annotations

import os
import stat
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import apsw

from hermes_state.errors import InvalidInput
from hermes_state.testing.faults import role_of
from hermes_state.testing.file_hooks import FileHooks, Hooks, hooked

Kind = Literal["write", "truncate", "sync", "create", "remove", "rename", "sync_folder", "mark"]
_PATCHED = ("fsync", "fdatasync", "replace", "rename", "unlink", "remove", "link")


@dataclass(frozen=True, kw_only=True)
class Event:
    """One thing that happened. Which fields are set depends on `kind`."""

    kind: Kind
    # file by a number of its own, which it keeps when it is renamed: write, truncate, sync, create
    file: int = 0
    # name relative to the folder: create, remove, rename (the new one), sync_folder ('' is the folder itself)
    name: str = ""
    # rename: the name before
    old_name: str = ""
    # write: where; truncate: the new size; in bytes
    offset: int = 0
    data: bytes = b""
    # mark: what the test said
    label: Any = None


@dataclass
class _Seen:
    """What is known of one file on disk."""

    file: int
    size: int
    changed_ns: int
    content: bytes | None  # None once SQLite has had it open: its writes are seen as such


class Recording:
    """Everything that happens in `folder` within the `with` block, and what was there before.

    Only stores that nobody has open may be in the folder when the block begins. `children_sync`: content that another
    process put there counts as synced with its folder, since its syncs cannot be seen; False counts it as not synced.
    """

    def __init__(self, folder: Path | str, *, children_sync: bool = True) -> None:
        self.folder = Path(os.path.realpath(folder))
        # the files before the block, by name; all of it is durable
        self.before: dict[str, bytes] = {}
        self.events: list[Event] = []
        self._children_sync = children_sync
        self._names: dict[str, int] = {}  # name -> st_ino
        self._seen: dict[int, _Seen] = {}  # st_ino -> what is known
        self._open: dict[int, int] = {}  # st_ino -> how many of SQLite's files are open
        self._ours: set[str] = set()  # names that Python code of this process opened for writing
        self._lock = threading.RLock()
        self._exit = ExitStack()
        self._files = 0
        self.file_of: dict[str, int] = {}  # name before the block -> file number

    def __enter__(self) -> Self:
        if not self.folder.is_dir():
            raise InvalidInput(f"There is no folder {self.folder}.", hint="Make it first.", path=self.folder)
        for name, found in self._list().items():
            self.before[name] = self._read(name)
            self._learn(name, found, self.before[name])
            self.file_of[name] = self._seen[found.st_ino].file
        self._exit.enter_context(hooked(_RecordingHooks(self)))
        for name in _PATCHED:
            self._patch(name)
        _install_hook()
        _ACTIVE.append(self)
        self._exit.callback(_ACTIVE.remove, self)
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self.look()
        finally:
            self._exit.close()

    def mark(self, label: Any) -> None:
        """Say what the program knows now, such as an append that was acknowledged. Crashes after it carry the label."""
        with self._lock:
            self.look()
            self._add(Event(kind="mark", label=label))

    # --- for the VFS, the patches and the hook -----------------------------------------------------------------

    def look(self) -> None:
        """Put into the log what changed in files that SQLite does not have open."""
        with self._lock:
            found = self._list()
            known = {inode: name for name, inode in self._names.items()}
            now = {state.st_ino for state in found.values()}
            for name, state in found.items():
                old = known.get(state.st_ino)
                if self._names.get(name) == state.st_ino:
                    self._content(name, state)
                elif old is not None and old not in found:
                    self._add(Event(kind="rename", name=name, old_name=old))
                    del self._names[old]
                    self._names[name] = state.st_ino
                    self._content(name, state)
                else:
                    if name in self._names:
                        self._add(Event(kind="remove", name=name))
                    self._appeared(name, state)
            for name in [name for name in self._names if name not in found]:
                self._add(Event(kind="remove", name=name))
                inode = self._names.pop(name)
                if inode not in now and not self._open.get(inode):
                    self._seen.pop(inode, None)

    def opened(self, path: str) -> int | None:
        """SQLite opened a file; its number in the log, None for one outside the folder."""
        with self._lock:
            name = self._name(path)
            if name is None:
                return None
            # What was in it before was looked at before the open. From here on nobody else may open it: that would
            # cost SQLite its locks.
            inode = os.stat(path).st_ino
            self._open[inode] = self._open.get(inode, 0) + 1
            self.look()
            self._seen[inode].content = None
            return inode

    def closed(self, inode: int) -> None:
        with self._lock:
            self._open[inode] -= 1
            self._remember(inode)

    def wrote(self, inode: int, data: bytes, offset: int) -> None:
        with self._lock:
            self.look()
            self._add(Event(kind="write", file=self._seen[inode].file, offset=offset, data=data))
            self._remember(inode)

    def truncated(self, inode: int, size: int) -> None:
        with self._lock:
            self.look()
            self._add(Event(kind="truncate", file=self._seen[inode].file, offset=size))
            self._remember(inode)

    def synced(self, inode: int, *, with_folder: str | None = None) -> None:
        with self._lock:
            self.look()
            if inode in self._seen:
                self._add(Event(kind="sync", file=self._seen[inode].file))
            if with_folder is not None:
                self.folder_synced(with_folder)

    def folder_synced(self, path: str) -> None:
        with self._lock:
            self.look()
            name = self._name(path)
            if name is not None:
                self._add(Event(kind="sync_folder", name="" if name == "." else name))

    def opened_by_python(self, path: str) -> None:
        name = self._name(path)
        if name is not None:
            self._ours.add(name)

    def _patch(self, name: str) -> None:
        original = getattr(os, name)

        def patched(*arguments: Any, **named: Any) -> Any:
            with self._lock:
                self.look()
                if name in ("fsync", "fdatasync"):
                    return self._fsync(original, *arguments)
                result = original(*arguments, **named)
                self.look()
                return result

        setattr(os, name, patched)
        self._exit.callback(setattr, os, name, original)

    def _fsync(self, original: Callable[[int], None], target: Any) -> None:
        original(target)
        state = os.fstat(target if isinstance(target, int) else target.fileno())
        if stat.S_ISDIR(state.st_mode):
            self.folder_synced(os.readlink(f"/proc/self/fd/{target}"))
        else:
            self.synced(state.st_ino)

    # --- parts ---------------------------------------------------------------------------------------------------

    def _add(self, event: Event) -> None:
        self.events.append(event)

    def _name(self, path: str) -> str | None:
        """`path` relative to the folder, None outside it. The path itself is not followed when it is a link."""
        folder, base = os.path.split(os.path.abspath(path))
        inside = os.path.relpath(os.path.join(os.path.realpath(folder), base), self.folder)
        return None if inside.startswith("..") else inside

    def _list(self) -> dict[str, os.stat_result]:
        found: dict[str, os.stat_result] = {}
        waiting = [""]
        while waiting:
            inside = waiting.pop()
            with os.scandir(self.folder / inside) as entries:
                for entry in entries:
                    name = os.path.join(inside, entry.name)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(name)
                    elif not name.endswith("-shm"):
                        try:
                            state = entry.stat(follow_symlinks=False)
                        except FileNotFoundError:
                            continue
                        if stat.S_ISREG(state.st_mode):
                            found[name] = state
        return dict(sorted(found.items()))

    def _read(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()

    def _learn(self, name: str, state: os.stat_result, content: bytes | None) -> _Seen:
        self._files += 1
        seen = _Seen(file=self._files, size=state.st_size, changed_ns=state.st_mtime_ns, content=content)
        self._seen[state.st_ino], self._names[name] = seen, state.st_ino
        return seen

    def _appeared(self, name: str, state: os.stat_result) -> None:
        """A new name: a new file, or one more name of a file that is known (a hard link)."""
        seen = self._seen.get(state.st_ino)
        if seen is None or state.st_ino not in self._names.values():
            seen = self._learn(name, state, b"")
            seen.size, seen.changed_ns = 0, -1
        self._names[name] = state.st_ino
        self._add(Event(kind="create", name=name, file=seen.file))
        self._content(name, state)

    def _content(self, name: str, state: os.stat_result) -> None:
        seen = self._seen[state.st_ino]
        if self._open.get(state.st_ino) or (seen.size, seen.changed_ns) == (state.st_size, state.st_mtime_ns):
            return
        new, old = self._read(name), seen.content
        if old is not None and new.startswith(old):
            if len(new) > len(old):
                self._add(Event(kind="write", file=seen.file, offset=len(old), data=new[len(old) :]))
        elif new != old:
            self._add(Event(kind="truncate", file=seen.file, offset=0))
            self._add(Event(kind="write", file=seen.file, offset=0, data=new))
        seen.content, seen.size, seen.changed_ns = new, state.st_size, state.st_mtime_ns
        if self._children_sync and name not in self._ours:
            self._add(Event(kind="sync", file=seen.file))
            self._add(Event(kind="sync_folder", name=os.path.dirname(name)))

    def _remember(self, inode: int) -> None:
        """What SQLite did to the file is in the log: later looks compare with the file as it is now."""
        for name, known in self._names.items():
            if known == inode:
                state = os.stat(self.folder / name)
                self._seen[inode].size, self._seen[inode].changed_ns = state.st_size, state.st_mtime_ns


_ACTIVE: list[Recording] = []
_hooked = False


def _install_hook() -> None:
    """Learn which files this process opens for writing. A hook stays for life; without a recording it is idle."""
    global _hooked
    if not _hooked:
        _hooked = True
        sys.addaudithook(_hook)


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and _ACTIVE and isinstance(arguments[0], (str, bytes, os.PathLike)):
        path, _mode, flags = arguments
        if isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            for recording in _ACTIVE:
                recording.opened_by_python(os.fsdecode(path))


class _RecordedFile(FileHooks):
    def __init__(self, recording: Recording, inode: int, path: str, *, with_folder: bool) -> None:
        self._recording, self._inode, self._path, self._with_folder = recording, inode, path, with_folder

    def write(self, size: int) -> None:
        self._recording.look()

    def wrote(self, data: bytes, offset: int) -> None:
        self._recording.wrote(self._inode, data, offset)

    def truncated(self, size: int) -> None:
        self._recording.truncated(self._inode, size)

    def synced(self) -> None:
        folder = os.path.dirname(self._path) if self._with_folder else None
        self._with_folder = False
        self._recording.synced(self._inode, with_folder=folder)

    def closed(self) -> None:
        self._recording.closed(self._inode)


class _RecordingHooks(Hooks):
    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    def open(self, path: str, flags: int) -> None:
        self._recording.look()

    def opened(self, path: str, flags: int) -> FileHooks | None:
        inode = self._recording.opened(path) if path else None
        # SQLite syncs the folder together with the first sync of a WAL or journal that it may have created.
        with_folder = role_of(flags) in ("wal", "journal") and bool(flags & apsw.SQLITE_OPEN_CREATE)
        return None if inode is None else _RecordedFile(self._recording, inode, path, with_folder=with_folder)

    def deleted(self, path: str, *, folder_synced: bool) -> None:
        self._recording.look()
        if folder_synced:
            self._recording.folder_synced(os.path.dirname(path))
