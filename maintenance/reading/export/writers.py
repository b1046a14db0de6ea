"""Exports for programs: one JSON object a line, or one JSON array.

Invariant: a record is written piece by piece, so memory does not grow with a session; it is strict JSON in ASCII, so
bad text cannot break it. Each writer can read its own file back and count it.

Not for: people (`pages.py`) or SQL (`tables.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

from hermes_state.errors import Refused
from maintenance.reading.export.items import ExportRecord

Counts = tuple[int, int]


def write_jsonl(records: Iterable[ExportRecord], out: TextIO) -> None:
    """One line a record: every column of the session, and `messages`."""
    for record in records:
        for piece in _object(record):
            out.write(piece)
        out.write("\n")


def write_json(records: Iterable[ExportRecord], out: TextIO) -> None:
    """One array of the same records."""
    out.write("[")
    for number, record in enumerate(records):
        out.write(",\n" if number else "\n")
        for piece in _object(record):
            out.write(piece)
    out.write("\n]\n")


def count_jsonl(path: Path) -> Counts:
    """Records and messages of a file, each line parsed."""
    records = messages = 0
    with path.open(encoding="ascii") as lines:
        for line in lines:
            messages += len(_parsed(line, path)["messages"])
            records += 1
    return records, messages


def count_json(path: Path) -> Counts:
    """Records and messages of a file; its lines are the records."""
    records = messages = 0
    with path.open(encoding="ascii") as lines:
        if next(lines, "").rstrip("\n") != "[":
            raise unreadable(path)
        for line in lines:
            if line == "]\n":
                return records, messages
            if line.strip():
                messages += len(_parsed(line.rstrip(",\n"), path)["messages"])
                records += 1
    raise unreadable(path)


def unreadable(path: Path) -> Refused:
    """What is raised when a written file does not read back."""
    return Refused(
        f"The export {path.name} does not read back as it was written, so it was not put in place.",
        hint="Check the disk and try again.",
        path=str(path),
    )


def _parsed(line: str, path: Path) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise unreadable(path) from error
    if not isinstance(record, dict) or not isinstance(record.get("messages"), list):
        raise unreadable(path)
    return record


def _object(record: ExportRecord) -> Iterator[str]:
    session = {key: value for key, value in record.session.items() if key != "messages"}
    head = json.dumps(session, allow_nan=False)
    yield head[:-1] + (', "messages": [' if session else '"messages": [')
    for number, message in enumerate(record.messages):
        yield (", " if number else "") + json.dumps(message, allow_nan=False)
    yield "]}"
