"""One export from start to end: records, file, verification, rename.

Invariant: what is put in place was read back and has as many records and messages as were written. Not for: choosing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TextIO

from maintenance.file_lock import BINARY, CLOSE_ON_EXEC
from maintenance.reading.export import feed, pages, tables, writers
from maintenance.reading.export.items import ExportSource
from maintenance.reading.export.target import file_name, refuse_target, sha256_of, staged

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
                tables.write_tables(records, partial)
        else:
            with partial.open("w", encoding="utf-8", newline="\n") as out:
                export_to_stream(source, form, out, head)
        # Tables hold the segments of a conversation one by one.
        count = source.tally.sessions if form == "sqlite" else source.tally.records
        verify(partial, form, count, source.tally.messages)
    return finished(target)


def export_to_folder(source: ExportSource, folder: Path, db: Path, *, force: bool) -> list[ExportedFile]:
    """Write a Markdown file a record, and a line for each in the folder's manifest."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    written: list[ExportedFile] = []
    with closing(source.records()) as records:
        for record in records:
            target = folder / file_name(str(record.session.get("id")), ".md")
            refuse_target(target, db, force=force)
            before = source.tally.messages
            with staged(target) as partial:
                with partial.open("w", encoding="utf-8", newline="\n") as out:
                    pages.write_markdown(record, out)
                verify(partial, "md", 1, source.tally.messages - before)
            written.append(finished(target))
            _add_to_manifest(folder, written[-1], str(record.session.get("id")), source.tally.messages - before)
    return written


def verify(path: Path, form: Format, records: int, messages: int) -> None:
    """Read a written file back; raises when it does not have as many records and messages."""
    if _COUNTS[form](path) != (records, messages):
        raise writers.unreadable(path)


def finished(target: Path) -> ExportedFile:
    """What to report of a file that is in place."""
    return ExportedFile(path=target, sha256=sha256_of(target), bytes=target.stat().st_size)


def _add_to_manifest(folder: Path, file: ExportedFile, session_id: str, messages: int) -> None:
    line = {"file": file.path.name, "session": session_id, "messages": messages, "sha256": file.sha256}
    descriptor = os.open(folder / MANIFEST, os.O_WRONLY | os.O_APPEND | os.O_CREAT | BINARY | CLOSE_ON_EXEC, 0o600)
    try:
        os.write(descriptor, json.dumps(line).encode() + b"\n")
        os.fsync(descriptor)
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
