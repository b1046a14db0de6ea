"""Marks on sessions that a file has no column for, in `<db>.hermes-state.json` beside it.

Invariant: a marks file is whole or not there: it is written to a private file, synced and put in place in one step, by
one writer at a time. What we do not know in it is kept. One that cannot be read, or whose pin is neither true nor
false, stops every verb that filters, because a pin that is not seen is a session deleted.

Not for: what the file has a column for; that is set in the file. Marks are never stored in the foreign database itself:
hermes-agent's own migrations and repairs would meet a table they do not know.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hermes_state.errors import MarksDamaged
from hermes_state.file_lock import CLOSE_ON_EXEC, lock_alone
from hermes_state.flushing import sync_folder
from maintenance.beside import share_like_store, why_no_file

FORMAT = 1
_MARKS = ("pinned", "archived")
_HINT = "Restore the file from a backup, or move it away if its pins and archive marks may be lost."


@dataclass(frozen=True, kw_only=True)
class Marks:
    """The marks of one store."""

    path: Path  # the marks file, existing or not
    pinned: frozenset[str] = frozenset()  # ids of sessions that every sweep keeps
    archived: frozenset[str] = frozenset()  # ids of sessions hidden from listings


def marks_path(db: Path) -> Path:
    """The marks file of a store; one store has one, whatever link names it."""
    real = db.resolve()
    return real.with_name(f"{real.name}.hermes-state.json")


def read_marks(db: Path) -> Marks:
    """The marks of a store. MarksDamaged when the file is there and cannot be understood."""
    path = marks_path(db)
    document = _read(path)
    sessions = document.get("sessions", {})
    return Marks(
        path=path,
        **{mark: frozenset(key for key, marks in sessions.items() if marks.get(mark) is True) for mark in _MARKS},
    )


def set_mark(db: Path, ids: Iterable[str], mark: str, value: bool) -> int:
    """Set or clear `pinned` or `archived`; returns how many sessions changed."""
    return _change(db, {key: {mark: value} for key in ids})


def forget_sessions(db: Path, ids: Iterable[str]) -> int:
    """Drop the marks of deleted sessions; returns how many had any."""
    return _change(db, {key: dict.fromkeys(_MARKS, False) for key in ids})


def _change(db: Path, changes: dict[str, dict[str, bool]]) -> int:
    path = marks_path(db)
    if not changes or (not os.path.lexists(path) and not any(any(marks.values()) for marks in changes.values())):
        return 0
    with _only_writer(path, db):
        document = _read(path)
        sessions = document.setdefault("sessions", {})
        changed = 0
        for key, marks in changes.items():
            entry = dict(sessions.get(key, {}))
            for mark, value in marks.items():
                if value:
                    entry[mark] = True
                else:
                    entry.pop(mark, None)
            if entry != sessions.get(key, {}):
                changed += 1
                sessions[key] = entry
            if not entry:
                sessions.pop(key, None)
        if changed:
            _write(path, {**document, "format": FORMAT}, db)
    return changed


def _read(path: Path) -> dict[str, Any]:
    problem = why_no_file(path)
    if problem:
        raise MarksDamaged(f"The marks file {path} {problem}.", hint=_HINT, path=str(path))
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise MarksDamaged(f"The marks file {path} cannot be read.", hint=_HINT, path=str(path)) from error
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MarksDamaged(f"The marks file {path} is not valid JSON.", hint=_HINT, path=str(path)) from error
    sessions = document.get("sessions", {}) if isinstance(document, dict) else None
    if not isinstance(sessions, dict) or not all(isinstance(marks, dict) for marks in sessions.values()):
        raise MarksDamaged(f"The marks file {path} does not have the shape of one.", hint=_HINT, path=str(path))
    if document.get("format", FORMAT) != FORMAT:
        raise MarksDamaged(
            f"The marks file {path} has format {document['format']!r}; this program knows {FORMAT}.",
            hint="Use the release of hermes-state that wrote it.",
            path=str(path),
        )
    for key, marks in sessions.items():
        for mark in _MARKS:
            if not isinstance(marks.get(mark, False), bool):
                raise MarksDamaged(
                    f"The marks file {path} says {json.dumps(marks[mark])[:40]} for {mark!r} of session {key!r}; "
                    "that is neither true nor false.",
                    hint=f"Write true or false there, without quotes. {_HINT}",
                    path=str(path),
                    session_id=key,
                    mark=mark,
                )
    return dict(document)


def _write(path: Path, document: dict[str, Any], db: Path) -> None:
    staged = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | CLOSE_ON_EXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            share_like_store(descriptor, db)
            json.dump(document, out, indent=1, sort_keys=True)
            out.write("\n")
            out.flush()
            os.fsync(out.fileno())
        os.replace(staged, path)
    except BaseException:
        staged.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


@contextmanager
def _only_writer(path: Path, db: Path) -> Iterator[None]:
    """Hold the lock file of the marks. It stays: removing it would let two writers lock two different files."""
    lock = path.with_name(f"{path.name}.lock")
    existed = lock.exists()
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | CLOSE_ON_EXEC, 0o600)
    try:
        if not existed:
            share_like_store(descriptor, db)
        lock_alone(descriptor)
        yield
    finally:
        os.close(descriptor)
