"""Exports of this program and of hermes-agent: a session a line, or a line for each session and message.

Invariant: both layouts give the same sessions and messages; a session's hidden messages come hidden. What a session is
to its parent is what it says of itself, or what hermes-agent's rules make of the rows of the file.

Not for: other programs' transcripts. Reading a whole export into memory was rejected; a line may still be as large as
the longest conversation, which `sessions export --since-id 0` avoids.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hermes_state.conversation.fields import LATEST_TIME
from maintenance.dialects.base import LineageRow
from maintenance.intake.columns import NAMESPACE, RELATIONS, hidden_of, message_of, session_of
from maintenance.intake.lines import Line, read_lines
from maintenance.intake.model import Event, Hide, IncomingSession, Looked, Passes, SourceName, Tally
from maintenance.lineage import Forest, Kind
from maintenance.output.text import plural

FEED = "hermes-state/messages"
FEED_VERSION = 1


# What of a record is kept for all sessions at once; the rest, system prompts above all, comes as an event.
_LIGHT = (
    "id", "source", "started_at", "ended_at", "end_reason", "parent_session_id", "relation", "state", "session_key",
    "branched_at_seq", "branched_at_edit",
)


@dataclass(kw_only=True)
class Seen:
    """One session while its records are read."""

    light: dict[str, Any]  # the fields of `_LIGHT`
    lineage: LineageRow  # what its relation follows from
    edits: list[Any] | None  # what hides its messages, where the record tells it
    passes: dict[str, Any] | None = None  # its compactions, where the record tells them; empty when they were given on
    numbers: list[tuple[int, str]] = field(default_factory=list)  # position and key of the messages that came
    messages: int = 0  # messages so far
    run: Hide | None = None  # hidden messages that have not come to an end


class RecordReader:
    """One pass over session and message records, from a file or a store."""

    def __init__(self) -> None:
        self.tally = Tally()
        self.seen: dict[str, Seen] = {}
        self._current: str | None = None

    def session(self, key: str, record: Mapping[str, Any]) -> IncomingSession:
        """A session record; gives it as the event."""
        light, edits = {name: record[name] for name in _LIGHT if name in record}, record.get("view_edits")
        passes = record.get("compactions") if isinstance(record.get("compactions"), dict) else None
        new = Seen(
            light=light, lineage=_lineage(key, record), edits=edits if isinstance(edits, list) else None, passes=passes
        )
        if key in self.seen:
            before = self.seen[key]
            before.light, before.lineage, before.edits = new.light, new.lineage, new.edits
            before.passes = passes if passes is not None else before.passes
        else:
            self.seen[key] = new
        return session_of({name: record[name] for name in record if name != "messages"}, key, 0)

    def message(self, key: str, record: Mapping[str, Any], line: int) -> Iterator[Event]:
        """A message record of a session that is known."""
        if self._current not in (None, key):
            yield from self.close(str(self._current))
        self._current = key
        seen = self.seen[key]
        seen.messages += 1
        self.tally.messages += 1
        message = message_of(record, key, f"{NAMESPACE}#{seen.messages}", line)
        yield message
        if seen.edits is not None:
            seen.numbers.append((message.position, message.key))
            return  # what hides it is told by the session
        hidden = hidden_of(record)
        if seen.run is not None and seen.run.kind == hidden:
            seen.run = replace(seen.run, last_key=message.key, at=message.at)
            return
        yield from self.close(key)
        if hidden is not None:
            seen.run = Hide(
                session_id=key, kind=hidden, first_key=message.key, last_key=message.key, at=message.at
            )

    def close(self, key: str) -> Iterator[Event]:
        """What hides the messages that came."""
        seen = self.seen[key]
        run, seen.run = seen.run, None
        if run is not None:
            yield run
        numbers, seen.numbers = seen.numbers, []
        for edit in seen.edits or ():
            if isinstance(edit, dict) and (hide := _hide(key, edit, numbers)) is not None:
                yield hide
        if seen.passes is not None:
            # Given on once: summaries of all sessions are not to be kept at the same time.
            told, seen.passes = seen.passes, {}
            yield Passes(session_id=key, told=told, keys=dict(numbers))

    def sessions(self) -> tuple[IncomingSession, ...]:
        """All sessions, parents first."""
        forest = Forest([seen.lineage for seen in self.seen.values()])
        continued = {
            str(seen.lineage.parent_id) for key, seen in self.seen.items()
            if _relation(forest, key, seen.lineage) == "continuation"
        }
        found: dict[str, IncomingSession] = {}
        for key in self.seen:
            self._add(key, forest, continued, found)
        return tuple(found.values())

    def _add(self, key: str, forest: Forest, continued: set[str], found: dict[str, IncomingSession]) -> None:
        """A session after its parents; a circle of parents is entered once."""
        path: list[str] = []
        current: Any = key
        while isinstance(current, str) and current in self.seen and current not in found and current not in path:
            path.append(current)
            current = self.seen[current].lineage.parent_id
        for one in reversed(path):
            seen = self.seen[one]
            session = session_of(seen.light, one, seen.messages)
            relation = _relation(forest, one, seen.lineage)
            columns = dict(session.columns)
            if one in continued and session.ended_at is not None and session.end_reason == "compression":
                columns["replaced"] = True
            found[one] = replace(session, relation=relation, columns=columns)


class RecordSource:
    """An export file as a `Source`."""

    def __init__(self, path: Path, name: SourceName) -> None:
        self.path = path
        self.name: SourceName = name
        self._end: int | None = None

    def look(self) -> Looked:
        """Read it once. Later passes stop at the size it has now."""
        self._end = self.path.stat().st_size
        reader = RecordReader()
        for _ in self._pass(reader):
            pass
        return Looked(sessions=reader.sessions(), tally=reader.tally, namespace=NAMESPACE, one_by_one=True)

    def events(self) -> Generator[Event, None, None]:
        """Messages, and what hides them."""
        yield from self._pass(RecordReader())

    def _pass(self, reader: RecordReader) -> Iterator[Event]:
        feed = _Feed(reader)
        for line in read_lines(self.path, end=self._end):
            reader.tally.lines += 1
            if line.unfinished:
                reader.tally.unfinished += 1
            elif line.reason:
                reader.tally.refuse(line.number, line.reason)
            elif line.value is None:
                reader.tally.blank += 1
            elif feed.takes(line.value):
                yield from feed.line(line.number, line.value)
            else:
                yield from _whole(reader, line)
        yield from feed.finish()


class _Feed:
    """Lines of an export by message id."""

    def __init__(self, reader: RecordReader) -> None:
        self._reader = reader
        self._begun = self._ended = False

    def takes(self, value: Mapping[str, Any]) -> bool:
        """Whether a line belongs to such an export."""
        if value.get("type") == "export" and value.get("format") == FEED:
            self._begun = True
        return self._begun

    def line(self, number: int, value: dict[str, Any]) -> Iterator[Event]:
        """The events of one line."""
        tally, kind = self._reader.tally, value.get("type")
        if kind == "export":
            version = value.get("version")
            if version != FEED_VERSION:
                tally.refuse(number, f"says version {version} of its format, and this program knows {FEED_VERSION}")
                return
            tally.facts += 1
        elif kind == "end":
            self._ended = True
            tally.facts += 1
        elif kind == "session" and isinstance(value.get("session"), dict):
            key = _key(value["session"])
            if key is None:
                tally.refuse(number, "is a session without an id")
                return
            tally.facts += 1
            yield self._reader.session(key, value["session"])
        elif kind == "message" and isinstance(value.get("message"), dict):
            key = value["message"].get("session_id")
            if not isinstance(key, str) or key not in self._reader.seen:
                tally.refuse(number, "is a message of a session that no line before it tells")
                return
            tally.messages_from += 1
            yield from self._reader.message(key, value["message"], number)
        else:
            tally.left_out[f"type {json.dumps(kind)[:40]}"] += 1

    def finish(self) -> Iterator[Event]:
        """End what is open."""
        if self._begun and not self._ended:
            self._reader.tally.unfinished += 1
            self._reader.tally.lines += 1  # the line that is missing
        for key in self._reader.seen:
            yield from self._reader.close(key)


def _whole(reader: RecordReader, line: Line) -> Iterator[Event]:
    """A line that is a session with its messages. A conversation of several segments is told by segment."""
    value = line.value or {}
    messages = value.get("messages")
    if not isinstance(messages, list):
        reader.tally.refuse(line.number, "is no session with messages")
        return
    segments = value.get("segments")
    told = [one for one in segments if isinstance(one, dict)] if isinstance(segments, list) else []
    keys = []
    for record in told or [value]:
        if (key := _key(record)) is not None:
            keys.append(key)
            yield reader.session(key, record)
    if not keys:
        reader.tally.refuse(line.number, "is a session without an id")
        return
    bad = sum(not isinstance(message, dict) for message in messages)
    if bad:
        what = "is no JSON object" if bad == 1 else "are no JSON objects"
        reader.tally.refuse(line.number, f"has {plural(bad, 'message')} that {what}")
    else:
        reader.tally.messages_from += 1
    for message in messages:
        if isinstance(message, dict):
            owner = message.get("session_id")
            yield from reader.message(owner if owner in keys else keys[-1], message, line.number)
    for key in keys:
        yield from reader.close(key)


def _hide(key: str, edit: Mapping[str, Any], numbers: list[tuple[int, str]]) -> Hide | None:
    """An edit by position as one by key, as far as its messages came."""
    action, first, last, number = (edit.get(name) for name in ("action", "from_seq", "to_seq", "id"))
    if action not in ("rewind", "compact") or not isinstance(first, int) or not isinstance(last, int):
        return None
    inside = [name for position, name in numbers if first <= position <= last]
    made = edit.get("made_at")
    if not inside and first > 0:
        return None
    return Hide(
        session_id=key, kind=action, first_key=inside[0] if inside else "", last_key=inside[-1] if inside else "",
        at=float(made) if isinstance(made, (int, float)) and 0 <= made < LATEST_TIME else 0.0,
        number=number if isinstance(number, int) else 0, first_position=min(first, 1), last_position=min(last, 0),
    )


def _key(record: Mapping[str, Any]) -> str | None:
    key = record.get("id")
    return key if isinstance(key, str) and key else None


def _relation(forest: Forest, key: str, row: LineageRow) -> str | None:
    if row.parent_id is None:
        return None
    kind = forest.kind(key)
    if kind is Kind.ROOT and row.relation is not None:
        return row.relation  # the parent is not in the file
    return "other" if kind is Kind.ROOT else kind.value


def _lineage(key: str, record: Mapping[str, Any]) -> LineageRow:
    config: Any = record.get("model_config")
    if isinstance(config, str):
        try:
            config = json.loads(config)
        except (ValueError, RecursionError):
            config = None
    markers = config if isinstance(config, dict) else {}

    def text(value: Any) -> str | None:
        return value if isinstance(value, str) and value else None

    def time(value: Any) -> float | None:
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None

    return LineageRow(
        id=key, parent_id=text(record.get("parent_session_id")), source=text(record.get("source")) or "",
        started_at=time(record.get("started_at")), ended_at=time(record.get("ended_at")),
        ended=record.get("ended_at") is not None, end_reason=text(record.get("end_reason")),
        session_key=text(record.get("session_key")), last_activity_at=None,
        branched_from=text(markers.get("_branched_from")), delegate_from=text(markers.get("_delegate_from")),
        reset_from=text(markers.get("_reset_from")),
        relation=relation if (relation := text(record.get("relation"))) in RELATIONS else None,
    )
