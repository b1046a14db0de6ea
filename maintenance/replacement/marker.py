"""The note beside a store whose content is being replaced: `<db>.hermes-state.replacing.json`.

Invariant: it is there from the moment the old files are kept aside and verified until the new content is verified; it
is written whole and synced, and names both, so that whoever finds it knows where either is. The content itself is
always whole, the old one or the new one, because SQLite replaces it in one transaction: so nobody has to refuse to
write because of it.

Not for: locks. Whoever replaces content has SQLite's exclusive lock; a note that is found under that lock is a dead
run's.
"""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from hermes_state.flushing import sync_folder
from hermes_state.owners.identity import PROC, start_ticks
from hermes_state.shell_words import shell_word
from maintenance.beside import share_like_store

FORMAT = 1
ENDING = ".hermes-state.replacing.json"
State = Literal["kept", "replacing", "replaced", "unreadable"]


@dataclass(frozen=True, kw_only=True)
class Note:
    """What the file says."""

    verb: str  # as a person types it, such as "sessions restore"
    state: State  # "kept": nothing changed yet; "replacing": old or new, whole; "replaced": new, not yet verified
    started_at: float  # epoch seconds UTC
    pid: int
    start_ticks: int  # of that process, 0 where the system does not say
    boot_id: str  # of the machine's boot
    old: str  # folder with the files as they were
    old_sha256: str | None  # of the old database file; None when there was none
    new: str  # the file that the content comes from
    new_sha256: str  # of that file
    working: str | None  # the private copy of it that is put in place, beside the store


@dataclass(frozen=True, kw_only=True)
class Unfinished:
    """A replacement that did not come to its end."""

    path: Path  # the store
    marker: Path  # the note itself
    note: Note | None  # None when the note cannot be read
    running: bool | None  # whether the process that began it is still there; None when that cannot be told
    old_there: bool  # whether the folder with the old files is there
    new_there: bool  # whether the file with the new content is there
    next: str  # what to do, one sentence with the command


def marker_path(db: Path) -> Path:
    """The note of a store; one store has one, whatever link names it."""
    real = Path(os.path.realpath(db))
    return real.with_name(f"{real.name}{ENDING}")


def unfinished(db: Path, *, boot_id: str | None = None, proc_root: Path = PROC) -> Unfinished | None:
    """The replacement of this store's content that did not end, or None. Costs one look for a file when there is none.

    `boot_id` of this boot, when known: a process of another boot is gone. Raises OSError when it cannot be looked for.
    """
    marker = marker_path(db)
    try:
        text = marker.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    real = marker.with_name(marker.name.removesuffix(ENDING))
    note = _read(text)
    if note is None:
        return Unfinished(
            path=real, marker=marker, note=None, running=None, old_there=False, new_there=False,
            next=f"The note {marker} cannot be read. Check the store with `hermes-state doctor --db "
            f"{shell_word(real)}`; when "
            "it is sound, move the note away.",
        )
    old_there, new_there = Path(note.old).is_dir(), Path(note.new).is_file()
    return Unfinished(
        path=real, marker=marker, note=note, running=_running(note, boot_id, proc_root), old_there=old_there,
        new_there=new_there, next=_next(real, note, new_there),
    )


def write_note(db: Path, note: Note) -> None:
    """Put the note in place, whole and synced."""
    marker = marker_path(db)
    staged = marker.with_name(f".{marker.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            share_like_store(out.fileno(), db)
            json.dump({"format": FORMAT, **asdict(note)}, out, indent=1)
            out.flush()
            os.fsync(out.fileno())
        os.replace(staged, marker)
    finally:
        staged.unlink(missing_ok=True)
    sync_folder(marker.parent)


def remove_note(db: Path) -> None:
    """The replacement came to its end, or never began."""
    marker = marker_path(db)
    marker.unlink(missing_ok=True)
    sync_folder(marker.parent)


def _read(text: str) -> Note | None:
    try:
        found: dict[str, Any] = json.loads(text)
        if found.pop("format") != FORMAT:
            return None
        return Note(**found)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _running(note: Note, boot_id: str | None, proc_root: Path) -> bool | None:
    if boot_id is not None and note.boot_id and note.boot_id != boot_id:
        return False
    ticks = start_ticks(proc_root, note.pid)
    if ticks is None:
        return False if proc_root.joinpath("self").exists() else None
    return ticks == note.start_ticks if note.start_ticks else None


def _next(path: Path, note: Note, new_there: bool) -> str:
    command = f"`hermes-state {note.verb} --db {shell_word(path)}`"
    kept = f"The files as they were before are in {note.old}."
    if note.state == "kept":
        return f"Nothing was changed yet. Run {command} again, or leave it: the note goes with the next run. {kept}"
    if new_there:
        return f"The store holds the old content or that of {note.new}, whole. Run {command} again to be sure. {kept}"
    return (
        f"The store holds the old content or that of {note.new}, whole, and that file is gone. Look with "
        f"`hermes-state sessions list --db {shell_word(path)}`. {kept}"
    )
