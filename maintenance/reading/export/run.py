"""One export from start to end: records, file, verification, rename.

Invariant: what is put in place was read back and has as many records and messages as were written. Not for: choosing.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TextIO

from hermes_state.file_lock import BINARY, CLOSE_ON_EXEC
from hermes_state.flushing import sync_folder
from maintenance.reading.export import feed, pages, tables, writers
from maintenance.reading.export.items import ExportSource
from maintenance.reading.export.target import (
    file_name,
    refuse_target,
    sha256_of,
    staged,
    sync,
    working_name,
    writing,
)

Format = Literal["jsonl", "json", "html", "md", "sqlite", "messages", "hermes-agent"]
MANIFEST = "manifest.jsonl"


@dataclass(frozen=True, kw_only=True)
class ExportedFile:
    """One finished file."""

    path: Path  # where it is
    sha256: str  # its hash
    bytes: int  # its size


def export_to_stream(source: ExportSource, form: Format, out: TextIO, head: feed.FeedHead | None = None) -> None:
    """Write to a stream that cannot be read back. Only the format `messages` has a `head`."""
    # Closed here, so that a failed write ends the read before the store is closed.
    with closing(source.records()) as records:
        if form == "md":
            for record in records:
                pages.write_markdown(record, out)
        elif head is not None:
            feed.write_feed(records, out, head, source.tally)
        else:
            _STREAMS[form](records, out)
    out.flush()


def export_to_file(
    source: ExportSource, form: Format, target: Path, db: Path, *, force: bool, head: feed.FeedHead | None = None
) -> ExportedFile:
    """Write one file with all records."""
    refuse_target(target, db, force=force)
    with staged(target) as partial:
        if form == "sqlite":
            with closing(source.records()) as records:
                tables.write_tables(records, partial, named=target)
        else:
            with partial.open("w", encoding="utf-8", newline="\n") as out:
                export_to_stream(source, form, out, head)
        # Tables hold the segments of a conversation one by one.
        count = source.tally.sessions if form == "sqlite" else source.tally.records
        verify(partial, form, count, source.tally.messages)
    return finished(target)


def export_to_folder(source: ExportSource, folder: Path, db: Path, *, force: bool) -> list[ExportedFile]:
    """Write a Markdown file a record, and a line for each in the folder's manifest.

    All files are written and read back under a working name first: an export that fails leaves nothing.
    """
    made = _missing(folder)
    waiting: list[tuple[Path, ExportedFile, str, int]] = []  # where it is, what it will be, session, messages
    with writing(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        work = working_name(Path(os.path.realpath(folder)) / "export")
        work.mkdir(mode=0o700)
    try:
        with closing(source.records()) as records:
            for record in records:
                session_id = str(record.session.get("id"))
                target = folder / file_name(session_id, ".md")
                refuse_target(target, db, force=force)
                partial, before = work / target.name, source.tally.messages
                with writing(target):
                    with open(partial, "w", encoding="utf-8", newline="\n", opener=_private) as out:
                        pages.write_markdown(record, out)
                    messages = source.tally.messages - before
                    verify(partial, "md", 1, messages)
                    sync(partial)
                    waiting.append((partial, finished(partial, target), session_id, messages))
        _put_in_place(folder, waiting)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        for one in made:
            with suppress(OSError):  # somebody else has put something there meanwhile
                one.rmdir()
        raise
    work.rmdir()
    return [file for _partial, file, _session, _messages in waiting]


def _put_in_place(folder: Path, waiting: list[tuple[Path, ExportedFile, str, int]]) -> None:
    """Give the finished files their names, and tell the manifest of them; all or none of the new ones."""
    fresh: list[Path] = []
    try:
        with writing(folder):
            for partial, file, _session, _messages in waiting:
                new = not file.path.exists()
                os.replace(partial, Path(os.path.realpath(file.path)))
                fresh += [file.path] * new
            sync_folder(folder)
            _add_to_manifest(folder, waiting)
    except BaseException:
        for path in fresh:
            path.unlink(missing_ok=True)
        raise


def _missing(folder: Path) -> list[Path]:
    """The folders that have to be made for `folder`, innermost first."""
    return [one for one in (folder, *folder.parents) if not os.path.lexists(one)]


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_EXCL | CLOSE_ON_EXEC, 0o600)


def verify(path: Path, form: Format, records: int, messages: int) -> None:
    """Read a written file back; raises when it does not have as many records and messages."""
    if _COUNTS[form](path) != (records, messages):
        raise writers.unreadable(path)


def finished(path: Path, target: Path | None = None) -> ExportedFile:
    """What to report of a file that is in place, or of one that will be at `target`."""
    return ExportedFile(path=target or path, sha256=sha256_of(path), bytes=path.stat().st_size)


def _add_to_manifest(folder: Path, waiting: list[tuple[Path, ExportedFile, str, int]]) -> None:
    text = "".join(
        json.dumps({"file": file.path.name, "session": session, "messages": messages, "sha256": file.sha256}) + "\n"
        for _partial, file, session, messages in waiting
    ).encode()
    path = folder / MANIFEST
    before = path.stat().st_size if path.exists() else None
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | BINARY | CLOSE_ON_EXEC, 0o600)
    try:
        written = os.write(descriptor, text)
        if written < len(text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, before or 0)
        if before is None:
            path.unlink()
        raise
    finally:
        os.close(descriptor)


_STREAMS = {"jsonl": writers.write_jsonl, "json": writers.write_json, "html": pages.write_html}
_COUNTS: dict[str, Callable[[Path], tuple[int, int]]] = {
    "jsonl": writers.count_jsonl,
    "messages": feed.count_feed,
    "json": writers.count_json,
    "html": pages.count_pages,
    "md": pages.count_pages,
    "sqlite": tables.count_tables,
}
