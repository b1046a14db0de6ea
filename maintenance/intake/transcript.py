"""What the transcripts of Claude Code and Codex have in common: one file, one or more sessions, lines in order.

Invariant: a line that is no message waits and goes into the `extra` field of the next message of its session, as it was
written; what still waits at the end goes into the session's own extra field. A file that grew gives the same messages
with the same keys, then new ones.

Not for: what a line means (`claude`, `codex`). A row for every line was rejected: file snapshots and progress reports
would be read by the model as things that somebody said.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol

from hermes_state.conversation.fields import LATEST_TIME
from maintenance.intake.lines import read_lines
from maintenance.intake.model import (
    Event,
    Hide,
    Hiding,
    IncomingMessage,
    IncomingSession,
    IncomingUsage,
    Looked,
    SourceName,
    Tally,
)

_NAMED_TIME = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d)-(\d\d)-(\d\d)")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)


@dataclass(kw_only=True)
class Chain:
    """One session while its lines are read."""

    session_id: str  # the source's id
    at: float | None = None  # time of its newest line that has one
    started_at: float | None = None  # time of its first line that has one
    columns: dict[str, Any] = field(default_factory=dict)  # session columns found so far
    usage: dict[str, IncomingUsage] = field(default_factory=dict)  # by model
    extra: dict[str, Any] = field(default_factory=dict)  # facts of the session without a column
    parent_id: str | None = None  # the session it came from
    relation: str | None = None  # what it is to that
    waiting: list[dict[str, Any]] = field(default_factory=list)  # lines for the next message's extra field
    messages: int = 0  # messages made
    last_key: str = ""  # key of the newest message
    open_key: str = ""  # key of the first message that nothing hides

    def see(self, at: float | None) -> float:
        """Note the time of a line; gives the time to use for it."""
        if at is not None:
            self.at = at
            if self.started_at is None:
                self.started_at = at
        return self.at if self.at is not None else 0.0

    def once(self, name: str, value: Any) -> None:
        """Set a column that is not set yet."""
        if value not in (None, "") and isinstance(value, str):
            self.columns.setdefault(name, value)


class Reader(Protocol):
    """A parser of one kind of transcript, made anew for each pass."""

    tally: Tally
    chains: dict[str, Chain]

    def feed(self, number: int, line: dict[str, Any]) -> Iterator[Event]:
        """The events of one line; counts the line in `tally`."""

    def finish(self) -> Iterator[Event]:
        """What is left when the file ends."""


class TranscriptSource:
    """A transcript file as a `Source`."""

    def __init__(self, path: Path, name: SourceName, source: str, reader: Callable[[Path], Reader]) -> None:
        self.path = path
        self.name: SourceName = name
        self._source = source
        self._reader = reader
        self._end: int | None = None

    def look(self) -> Looked:
        """Read the file once. Later passes stop at the size it has now, however it grows."""
        self._end = self.path.stat().st_size
        reader = self._reader(self.path)
        for _ in self._pass(reader):
            pass
        sessions = [self._session(chain) for chain in reader.chains.values() if chain.messages]
        sessions.sort(key=lambda session: session.parent_id is not None)
        return Looked(sessions=tuple(sessions), tally=reader.tally, namespace=f"{self.name}:", one_by_one=False)

    def events(self) -> Generator[Event, None, None]:
        """Messages and what hides them."""
        yield from self._pass(self._reader(self.path))

    def _pass(self, reader: Reader) -> Iterator[Event]:
        tally = reader.tally
        for line in read_lines(self.path, end=self._end):
            tally.lines += 1
            if line.unfinished:
                tally.unfinished += 1
            elif line.reason:
                tally.refuse(line.number, line.reason)
            elif line.value is None:
                tally.blank += 1
            else:
                yield from reader.feed(line.number, line.value)
        yield from reader.finish()
        for chain in reader.chains.values():
            if not chain.messages and chain.waiting:
                # No message ever came, so there is no session to keep these lines in.
                tally.kept -= len(chain.waiting)
                tally.left_out["no conversation"] += len(chain.waiting)

    def _session(self, chain: Chain) -> IncomingSession:
        extra: dict[str, Any] = dict(chain.extra)
        if chain.waiting:
            extra["after"] = list(chain.waiting)
        started = chain.started_at if chain.started_at is not None else time_of_name(self.path)
        return IncomingSession(
            id=chain.session_id,
            source=self._source,
            started_at=started,
            parent_id=chain.parent_id,
            relation=chain.relation if chain.parent_id is not None else None,
            columns=dict(chain.columns),
            usage=tuple(chain.usage.values()),
            extra={self.name: extra} if extra else {},
            messages=chain.messages,
        )


class ChainReader:
    """The common half of a `Reader`."""

    name: SourceName

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tally = Tally()
        self.chains: dict[str, Chain] = {}

    def chain(self, session_id: str) -> Chain:
        """The session of that id."""
        if session_id not in self.chains:
            self.chains[session_id] = Chain(session_id=session_id, at=time_of_name(self.path) or None)
        return self.chains[session_id]

    def message(self, chain: Chain, message: IncomingMessage) -> IncomingMessage:
        """Count a message and give it the lines that waited for it."""
        chain.messages += 1
        self.tally.messages += 1
        chain.last_key = message.key
        chain.open_key = chain.open_key or message.key
        if not chain.waiting:
            return message
        own = dict((message.extra or {}).get(self.name, {}))
        own["before"], chain.waiting = chain.waiting, []
        return replace(message, extra={**(message.extra or {}), self.name: own})

    def keep(self, chain: Chain, line: dict[str, Any]) -> None:
        """Let a line wait for the next message."""
        chain.waiting.append(line)
        self.tally.kept += 1

    def hide(self, chain: Chain, kind: Hiding, at: float, first_key: str = "") -> Iterator[Hide]:
        """Hide what the session has so far and nothing hides yet, or from `first_key` on."""
        first = first_key or chain.open_key
        if not first:
            return
        chain.open_key = ""
        yield Hide(session_id=chain.session_id, kind=kind, first_key=first, last_key=chain.last_key, at=at)

    def spend(self, chain: Chain, usage: IncomingUsage) -> None:
        """Add to what a model cost in a session."""
        before = chain.usage.get(usage.model)
        if before is not None:
            counters = (
                "api_calls", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens",
                "reasoning_tokens",
            )
            usage = replace(usage, **{name: getattr(before, name) + getattr(usage, name) for name in counters})
        chain.usage[usage.model] = usage


def time_of(value: Any) -> float | None:
    """Epoch seconds of an ISO 8601 text or a number of seconds or milliseconds; None when it is no time."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        seconds = value / 1000 if abs(value) > 1e11 else value
        return float(seconds) if 0 <= seconds < LATEST_TIME else None
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
        seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
    return seconds if 0 <= seconds < LATEST_TIME else None


def time_of_name(path: Path) -> float:
    """The time in a file name such as rollout-2025-08-20T13-20-47-<id>.jsonl, taken as UTC; 0 without one."""
    found = _NAMED_TIME.search(path.name)
    if found is None:
        return 0.0
    day, hour, minute, second = found.groups()
    return time_of(f"{day}T{hour}:{minute}:{second}+00:00") or 0.0


def uuid_of_name(path: Path) -> str:
    """The last UUID in a file's name, "" without one."""
    found = _UUID.findall(path.stem)
    return found[-1] if found else ""


def whole_number(value: Any) -> int:
    """A count that a store can hold; 0 for everything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else 0


def short_hash(value: Any) -> str:
    """Sixteen hexadecimal digits that stand for a JSON value."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=True)
    return blake2b(text.encode(), digest_size=8).hexdigest()


def rest_of(values: Mapping[str, Any], taken: tuple[str, ...]) -> dict[str, Any]:
    """What of an object has no column."""
    return {key: value for key, value in values.items() if key not in taken and value is not None}


def content_of(parts: list[Any]) -> Any:
    """One text for a single plain text part, else the list of parts; None for no part."""
    if not parts:
        return None
    first = parts[0]
    if len(parts) == 1 and isinstance(first, dict) and first.keys() == {"type", "text"} and first["type"] == "text":
        return first["text"]
    return parts
