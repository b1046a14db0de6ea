"""Sessions as hermes-agent's own import takes them, within the limits of one call.

Invariant: a record holds what the model and a reader see of a session: its live messages in order, with structured
content and tool calls as values, and every column of its row. What hermes-agent 0.19.0 imports from it reads back equal
through its own listing and transcripts. By design the import starts anew: message ids, routing (session key, chat
fields, display name, origin), handoff, compression state, rewind count, profile, usage by model; and it keeps the
reasoning of assistant messages only. Rewound and compacted messages have no place in it: left out, and counted; the
summary that stands for them is in it, as the user message that begins the view.

Not for: a backup (that is the store itself), or a whole `state.db` (`state_db.py`: for stores that were adopted).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from maintenance.interop.compacted import compacted, view_cells
from maintenance.interop.fields import MARKER
from maintenance.interop.foreign_rows import ForeignRows, Live
from maintenance.interop.typed import BadText, Cell
from maintenance.lineage import Forest

if TYPE_CHECKING:
    from hermes_state.engine import Reader
    from maintenance.dialects.base import Dialect

# What the import refuses unless it is text.
_SESSION_TEXTS = (
    "source", "user_id", "model", "system_prompt", "end_reason", "cwd", "git_branch", "git_repo_root",
    "billing_provider", "billing_base_url", "billing_mode", "cost_status", "cost_source", "pricing_version", "title",
)
_MESSAGE_TEXTS = (
    "tool_call_id", "tool_name", "effect_disposition", "finish_reason", "reasoning", "reasoning_content",
    "platform_message_id",
)
# Columns of JSON text that the import wants as values.
_VALUES = ("tool_calls", "reasoning_details", "codex_reasoning_items", "codex_message_items")

Record = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one call of hermes-agent's import takes; the numbers are those of release 0.19.0."""

    sessions: int = 500  # in one call
    messages: int = 50_000  # in one call
    bytes: int = 25 * 1024 * 1024  # in one call, as compact JSON in UTF-8
    session_messages: int = 10_000  # in one session
    session_bytes: int = 5 * 1024 * 1024  # of one session


RELEASE = Limits()


@dataclass(frozen=True, kw_only=True)
class TooLarge:
    """A session that the import would refuse, and with it the whole file."""

    id: str  # session
    messages: int  # live messages, as far as they were counted
    bytes: int  # of its record, as far as it was measured


@dataclass(kw_only=True)
class Tally:
    """What happened; filled in while records are made."""

    sessions: int = 0  # records made
    messages: int = 0  # messages in them
    hidden: int = 0  # rewound or compacted messages left out
    missing: list[str] = field(default_factory=list)  # ids that are not in the store
    too_large: list[TooLarge] = field(default_factory=list)  # sessions left out


def records(
    reader: Reader, dialect: Dialect, ids: Sequence[str], *, limits: Limits = RELEASE, tally: Tally | None = None
) -> Iterator[Record]:
    """One record a session, parents before their children, each within the limits of one session.

    Sessions that exceed those limits are left out and are in `tally.too_large`; so are unknown ids in `tally.missing`.
    The caller holds a snapshot. Memory: one record, which `limits` bounds.
    """
    counted = Tally() if tally is None else tally
    source = _Native(reader) if dialect.is_native else _Foreign(reader, dialect)
    for session_id in parents_first(Forest(dialect.lineage(reader)), ids):
        found = source.session(session_id)
        if found is None:
            counted.missing.append(session_id)
            continue
        session, messages = found
        record = _session(session)
        size, kept = _size(record), []
        large = None
        for cells in messages:
            if cells.get("active", 1) != 1:
                counted.hidden += 1
                continue
            message = _message(cells)
            size += _size(message) + 1
            kept.append(message)
            if len(kept) > limits.session_messages or size > limits.session_bytes:
                large = TooLarge(id=session_id, messages=len(kept), bytes=size)
                break
        if large is not None:
            counted.too_large.append(large)
            continue
        counted.sessions += 1
        counted.messages += len(kept)
        calls = sum(len(message["tool_calls"]) for message in kept if isinstance(message.get("tool_calls"), list))
        yield {**record, "message_count": len(kept), "tool_call_count": calls, "messages": kept}


def files(
    reader: Reader, dialect: Dialect, ids: Sequence[str], *, limits: Limits = RELEASE, tally: Tally | None = None
) -> Iterator[list[Record]]:
    """The same records in lists that one call of the import takes: each list is one file, to be imported in this order.

    Sessions of one lineage come together, in the order in which their messages began: hermes-agent shows a lineage by
    message id, and ids are given out anew. A lineage that one call does not take is split, parents first.
    """
    forest = Forest(dialect.lineage(reader))
    batch = _Batch(limits)
    for group in _lineages(forest, records(reader, dialect, ids, limits=limits, tally=tally), limits):
        if batch.records and not batch.takes(group):
            yield batch.records
            batch = _Batch(limits)
        for record in group:
            if not batch.takes([record]):
                yield batch.records
                batch = _Batch(limits)
            batch.add(record)
    if batch.records:
        yield batch.records


class _Batch:
    """Records for one call, and what they add up to."""

    def __init__(self, limits: Limits) -> None:
        self.records: list[Record] = []
        self._limits = limits
        self._messages = self._bytes = 0

    def takes(self, more: Sequence[Record]) -> bool:
        """Whether these fit in as well; one record always fits into an empty batch, see `records`."""
        return (
            len(self.records) + len(more) <= self._limits.sessions
            and self._messages + sum(len(record["messages"]) for record in more) <= self._limits.messages
            and self._bytes + sum(map(_size, more)) <= self._limits.bytes
        )

    def add(self, record: Record) -> None:
        """Put one in."""
        self.records.append(record)
        self._messages += len(record["messages"])
        self._bytes += _size(record)


def _lineages(forest: Forest, found: Iterable[Record], limits: Limits) -> Iterator[list[Record]]:
    """Records of one lineage at a time; of one that exceeds a call, as much as fits, so that memory stays bounded."""
    group, root = _Batch(limits), None
    for record in found:
        above = _top(forest, record["id"])
        if group.records and (above != root or not group.takes([record])):
            # Split for size alone: then the order stays parents first.
            yield group.records if above == root else sorted(group.records, key=_began)
            group = _Batch(limits)
        root = above
        group.add(record)
    if group.records:
        yield sorted(group.records, key=_began)


def _top(forest: Forest, session_id: str) -> str:
    """The session above all others of a lineage, by parent links of any kind."""
    seen = {session_id}
    while (above := forest.parent(session_id)) is not None and above not in seen:
        seen.add(above)
        session_id = above
    return session_id


def _began(record: Record) -> tuple[int, int]:
    messages = record["messages"]
    return (0, messages[0].get("id", 0)) if messages else (1, 0)


def parents_first(forest: Forest, ids: Sequence[str]) -> list[str]:
    """The same ids, each once, lineage by lineage, a parent before its children where both are there.

    The import drops the link to a parent that it does not find.
    """
    tops: dict[str, list[str]] = {}
    for name in dict.fromkeys(ids):
        tops.setdefault(_top(forest, name), []).append(name)
    wanted = dict.fromkeys(member for members in tops.values() for member in members)
    done: dict[str, None] = {}
    for start in wanted:
        chain: list[str] = []
        key: str | None = start
        while key is not None and key in wanted and key not in done and key not in chain:
            chain.append(key)
            key = forest.parent(key)
        done.update(dict.fromkeys(reversed(chain)))
    return list(done)


# --- where the cells come from -----------------------------------------------------------------------------------

_Session = tuple[dict[str, Cell], Iterator[dict[str, Cell]]]


class _Native:
    """Cells of a native store. A branch brings the messages that it shares with its parent."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._rows = ForeignRows.of(reader)

    def session(self, session_id: str) -> _Session | None:
        row = self._reader.row("SELECT no FROM sessions WHERE id = ?", (session_id,))
        if row is None:
            return None
        no = int(row[0])
        cells = next((cells for _no, cells in self._rows.sessions(no)), None)
        if cells is None:  # made for messages without a session; the import knows no such thing
            cells = {"id": session_id, "source": "unknown", "started_at": self._start(no)}
        return cells, self._messages(no)

    def _messages(self, no: int) -> Iterator[dict[str, Cell]]:
        from hermes_state.conversation.lineage import segments
        from hermes_state.conversation.view import view_of

        self._rows.live[no] = Live()
        summarised = compacted(self._reader, no)
        if summarised is not None:
            yield from view_cells(self._reader, self._rows, summarised)
            stays = set(summarised.view.row_ids)
            for cells in self._rows.messages(no):
                if cells["id"] not in stays:
                    yield {**cells, "active": 0}
            return
        found = segments(self._reader, no)
        if len(found) == 1:
            yield from self._rows.messages(no)
            return
        for session_no, first, last, _offset in view_of(self._reader, found).visible("rewind", "compact"):
            for cells in self._rows.messages(session_no, first=first, last=last):
                yield {**cells, "active": 1}

    def _start(self, no: int) -> float:
        row = self._reader.row("SELECT started_at FROM sessions WHERE no = ?", (no,))
        return 0.0 if row is None else float(row[0])


class _Foreign:
    """Cells of a file of hermes-agent itself, as its dialect exports them."""

    def __init__(self, reader: Reader, dialect: Dialect) -> None:
        self._reader = reader
        self._dialect = dialect

    def session(self, session_id: str) -> _Session | None:
        record = self._dialect.session_record(self._reader, session_id)
        if record is None:
            return None
        return record, self._dialect.message_records(self._reader, session_id)


# --- what the import accepts -------------------------------------------------------------------------------------


def _session(cells: dict[str, Cell]) -> Record:
    record = {name: _plain(cell) for name, cell in cells.items()}
    record["id"] = _text(cells.get("id")) or ""
    for name in (*_SESSION_TEXTS, "parent_session_id"):
        if name in record:
            record[name] = _text(cells[name])
    config = _parsed(cells.get("model_config"))
    record["model_config"] = record.get("model_config") if isinstance(config, dict) else None
    return record


def _message(cells: dict[str, Cell]) -> Record:
    record = {name: _plain(cell) for name, cell in cells.items()}
    record["role"] = _text(cells.get("role")) or "unknown"
    record["content"] = _content(cells.get("content"))
    for name in _MESSAGE_TEXTS:
        if name in record:
            record[name] = _text(cells[name])
    for name in _VALUES:
        if isinstance(record.get(name), str):
            record[name] = _parsed(record[name])
    tokens = record.get("token_count")
    record["token_count"] = tokens if isinstance(tokens, int) else None
    return record


def _content(cell: Any) -> Any:
    """Structured content as the value that it is; a marked scalar stays marked, since only so it reads back as one."""
    if isinstance(cell, str) and cell.startswith(MARKER):
        value = _parsed(cell[len(MARKER) :])
        return value if isinstance(value, (list, dict)) else cell
    return _plain(cell)


def _plain(cell: Any) -> Any:
    if isinstance(cell, BadText):
        return str(cell)
    if isinstance(cell, bytes):
        return {"base64": base64.b64encode(cell).decode("ascii")}
    if isinstance(cell, float) and cell - cell != 0:
        return "Infinity" if cell > 0 else "-Infinity"  # the import turns the words into the numbers again
    return cell


def _text(cell: Any) -> str | None:
    if cell is None or isinstance(cell, str):
        return cell
    return str(cell) if isinstance(cell, (BadText, int, float)) else None


def _parsed(cell: Any) -> Any:
    if not isinstance(cell, str):
        return None
    try:
        return json.loads(cell)
    except (ValueError, RecursionError):
        return None


def _size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass"))
