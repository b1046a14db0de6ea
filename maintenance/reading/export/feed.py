"""An export by message id: one line a message, so that the next export goes on where this one ended.

Invariant, promised as version 1 in docs/interchange.md: the first line is `export`, the last is `end`, and a file
without it is not whole; a `session` line stands before the first of its messages; every message with an id above
`since_id` and up to `high_id` is here, each session's in order. A reader skips lines of a type that it does not know.

Not for: what changed in old rows (a title, a rewind): the whole export tells the present state. One line a session was
rejected here: a poller would get a session of 100,000 messages again for each new one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from maintenance.reading.export.items import ExportRecord, ExportTally
from maintenance.reading.export.writers import Counts, unreadable

FORMAT = "hermes-state/messages"
VERSION = 1


@dataclass(frozen=True, kw_only=True)
class FeedHead:
    """What the first line says."""

    since_id: int  # messages up to here are not in the file
    high_id: int  # nor those after this one; pass it as the next `since_id`
    dialect: str  # what kind of store it is from
    store_id: str | None  # the store's identity, None when it has none
    incarnation: str | None  # changes with every restore and repair: ids may then be used anew, so begin at 0 again
    made_at: str | None  # RFC 3339 UTC


def write_feed(records: Iterable[ExportRecord], out: TextIO, head: FeedHead, tally: ExportTally) -> None:
    """Write the lines. `tally` is the one that counts while `records` is read."""
    _line(
        out, "export", format=FORMAT, version=VERSION, since_id=head.since_id, high_id=head.high_id,
        dialect=head.dialect, store_id=head.store_id, incarnation=head.incarnation, made_at=head.made_at,
    )
    for record in records:
        _line(out, "session", session=record.session)
        for message in record.messages:
            _line(out, "message", message=message)
    _line(out, "end", high_id=head.high_id, sessions=tally.sessions, messages=tally.messages)


def count_feed(path: Path) -> Counts:
    """Sessions and messages of a file, each line parsed; raises when its end is missing or says other counts."""
    found = {"export": 0, "session": 0, "message": 0, "end": 0}
    last: dict[str, Any] = {}
    with path.open(encoding="ascii") as lines:
        for line in lines:
            try:
                last = json.loads(line)
                found[last["type"]] += 1
            except (ValueError, KeyError, TypeError) as error:
                raise unreadable(path) from error
    counts = found["session"], found["message"]
    if last.get("type") != "end" or (last.get("sessions"), last.get("messages")) != counts:
        raise unreadable(path)
    return counts


def _line(out: TextIO, kind: str, **values: Any) -> None:
    out.write(json.dumps({"type": kind, **values}, allow_nan=False) + "\n")
