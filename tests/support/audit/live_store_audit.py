"""An audit hook that refuses Python's own opens of a store that APSW has open in the same process.

Invariant: while `hermes_state.engine` has a store open, no `open`, `os.open`, `sqlite3.connect` or `shutil.copyfile`
of its main file, `-wal`, `-shm` or `-journal` gets through: closing such a descriptor would cancel SQLite's POSIX
locks. The hook refuses *before* the open, so the store under test is unharmed, and it records the breach, so that code
which swallows the exception still fails its test.

Not for: opens made inside C libraries (no audit event), and relative paths with `dir_fd` (the event does not carry it).
O_PATH opens are let through: they take part in no lock. Patching `builtins.open` was rejected: it misses `os.open` and
the standard library's `sqlite3`.

A hook can never be removed, so there is one a process, switched by sets: `install` may be called again.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

REPORT_VARIABLE = "HERMES_STATE_AUDIT_REPORT"
SUFFIXES = ("-wal", "-shm", "-journal")

breaches: list[str] = []
protected: set[tuple[int, int]] = set()

_inside = threading.local()
_installed = False
_allowed = 0
_report: str | None = None


class LiveStoreOpened(AssertionError):
    """Python code opened a store that this process has open through APSW."""


def _identity(target: Any) -> tuple[int, int] | None:
    try:
        seen = os.stat(target)
    except (OSError, ValueError, TypeError):
        return None
    return seen.st_dev, seen.st_ino


def _identities(target: Any) -> Iterator[tuple[int, int]]:
    """The file itself, and for a sidecar the main file that it belongs to."""
    own = _identity(target)
    if own is not None:
        yield own
    if isinstance(target, int):
        try:
            text = os.readlink(f"/proc/self/fd/{target}")
        except OSError:
            return
    else:
        text = os.path.realpath(os.fsdecode(target))
    text = text.removesuffix(" (deleted)")
    for suffix in SUFFIXES:
        if text.endswith(suffix):
            main = _identity(text.removesuffix(suffix))
            if main is not None:
                yield main


def _live() -> frozenset[tuple[int, int]]:
    """What the door has open now. The engine is never imported from here: not imported means nothing is open."""
    engine = sys.modules.get("hermes_state.engine.descriptors")
    open_stores = getattr(engine, "open_stores", None)
    return frozenset() if open_stores is None else frozenset(open_stores())


def _targets(event: str, args: tuple[Any, ...]) -> Iterator[Any]:
    if event == "open":
        path, _mode, flags = args
        if path is not None and not (isinstance(flags, int) and flags & getattr(os, "O_PATH", 0)):
            yield path
    elif event == "sqlite3.connect":
        name = args[0]
        if isinstance(name, (str, bytes)):
            text = os.fsdecode(name)
            yield text.removeprefix("file:").partition("?")[0] if text.startswith("file:") else text
        elif isinstance(name, os.PathLike):
            yield name
    elif event == "shutil.copyfile":
        yield from args[:2]


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if event not in ("open", "sqlite3.connect", "shutil.copyfile") or _allowed or getattr(_inside, "busy", False):
        return
    _inside.busy = True
    try:
        live = _live() | protected
        if not live:
            return
        for target in _targets(event, args):
            if any(identity in live for identity in _identities(target)):
                _refuse(event, target)
    finally:
        _inside.busy = False


def _refuse(event: str, target: Any) -> None:
    name = f"descriptor {target}" if isinstance(target, int) else os.fsdecode(target)
    text = f"{event} of {name} in process {os.getpid()}"
    breaches.append(text)
    if _report is not None:
        descriptor = os.open(_report, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            os.write(descriptor, (text + "\n").encode())
        finally:
            os.close(descriptor)
    raise LiveStoreOpened(f"{text}: it has that store open through APSW, and closing the descriptor drops its locks")


def install(*, report: str | None = None) -> None:
    """Add the hook to this process, once. In children breaches also go to the file `report`."""
    global _installed, _report
    _report = report
    if not _installed:
        _installed = True
        sys.addaudithook(_hook)


def protect(path: str | os.PathLike[str]) -> None:
    """Treat the file at `path` as open through APSW, whoever opened it."""
    identity = _identity(path)
    if identity is None:
        raise FileNotFoundError(os.fspath(path))
    protected.add(identity)


@contextlib.contextmanager
def allowing() -> Iterator[None]:
    """Let opens through for a moment: for tests that stage the accident on purpose."""
    global _allowed
    _allowed += 1
    try:
        yield
    finally:
        _allowed -= 1
