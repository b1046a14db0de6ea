"""The rows of a native store as hermes-agent's cells: what adoption is verified by, and what is given back.

Invariant: for what was adopted the cells are the very ones that the file had, column by column. For what began in a
native store they are those that release 0.19.0 would have.

Not for: writing hermes-agent's files. Keeping the old rows beside the new ones was rejected: every text would be there
twice, and only one of them would be true.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from hermes_state.conversation.row_check import row_check
from hermes_state.engine.frames import decompress
from hermes_state.errors import Corrupt
from hermes_state.shell_words import shell_word
from maintenance.interop.adopt.source import Columns, read_adopted
from maintenance.interop.fields import (
    COSTS,
    MARKER,
    MESSAGE_MAPPED,
    ORIGINAL,
    PLACEHOLDER,
    RELEASE_MESSAGE_COLUMNS,
    RELEASE_SESSION_COLUMNS,
    RELEASE_ZEROES,
    ROUTE_TEXTS,
    SESSION_MAPPED,
    SESSION_TEXTS,
    TOTAL_COUNTS,
)
from maintenance.interop.typed import Cell, from_json

if TYPE_CHECKING:
    from hermes_state.engine import Reader

_SESSION_TEXTS = ", ".join(f"s.{name}" for name in SESSION_TEXTS.values())
_TOTALS = ", ".join(
    [*(f"coalesce(t.{name}, 0)" for name in TOTAL_COUNTS.values()),
     *(f"t.{name}" for name in (*COSTS, *ROUTE_TEXTS.values()))]
)
_SESSIONS = (
    "SELECT s.no, s.id, s.source, s.parent_no, s.started_at, s.ended_at, s.end_reason, s.title, s.title_source,"
    " s.archived_at IS NOT NULL, s.pinned_at IS NOT NULL, s.hidden, s.auto_archived, s.extra,"
    f" s.prompt_no, s.tools_no, s.model_config_no, {_SESSION_TEXTS}, {_TOTALS}"
    " FROM sessions AS s LEFT JOIN session_totals AS t ON t.session_no = s.no"
)
_MESSAGES = (
    "SELECT m.id, m.session_no, m.seq, m.role, m.content_type, m.content, b.codec, b.raw_bytes, b.frame, m.tool_name,"
    " m.tool_call_id, m.tool_calls, m.finish_reason, m.token_count, m.reasoning, m.platform_message_id, m.client_key,"
    " m.created_at, m.extra, m.row_check, m.calls FROM messages AS m LEFT JOIN bodies AS b ON b.no = m.body_no"
)
_EDITS = (
    "SELECT e.session_no, e.action, e.from_seq, e.to_seq FROM view_edits AS e WHERE e.action <> 'restore'"
    " AND NOT EXISTS (SELECT 1 FROM view_edits AS r WHERE r.undoes = e.id)"
)
_LAST = 2**63 - 1
_COMPACTED: Mapping[str, int] = {"rewind": 0, "compact": 1}

Cells = dict[str, Cell]


@dataclass(slots=True)
class Live:
    """What is live in one session, as hermes-agent counts it."""

    messages: int = 0  # rows that nothing hides
    calls: int = 0  # tool calls in them


@dataclass(kw_only=True)
class ForeignRows:
    """Cells of sessions and messages of one native store."""

    reader: Reader
    session_columns: Columns
    message_columns: Columns
    # session number -> what is live in it; filled by `messages`
    live: dict[int, Live] = field(default_factory=dict)
    _names: dict[int, Cell] = field(default_factory=dict)
    _edits: dict[int, list[tuple[str, int, int]]] = field(default_factory=dict)

    @classmethod
    def of(cls, reader: Reader, session_no: int | None = None) -> ForeignRows:
        """The rows of a store, with the columns that its content came with; `session_no` for those of one session."""
        row = reader.row("SELECT adopted_from FROM store")
        adopted = read_adopted(None if row is None else row[0])
        rows = cls(
            reader=reader,
            session_columns=adopted.get("sessions") or _release_columns(RELEASE_SESSION_COLUMNS),
            message_columns=adopted.get("messages") or _release_columns(RELEASE_MESSAGE_COLUMNS),
        )
        where = "" if session_no is None else f" AND e.session_no = {int(session_no)}"
        for no, action, first, last in reader.rows(_EDITS + where):
            rows._edits.setdefault(no, []).append((action, first, last))
        return rows

    # --- sessions --------------------------------------------------------------------------------------------

    def sessions(self, session_no: int | None = None) -> Iterator[tuple[int, Cells]]:
        """Number and cells of each session in order; counters are right once their messages were read."""
        where, params = ("", ()) if session_no is None else (" WHERE s.no = ?", (session_no,))
        for row in self.reader.iterate(f"{_SESSIONS}{where} ORDER BY s.no", params, batch=50):
            extra = _extra(row[13])
            if PLACEHOLDER not in extra:
                yield row[0], self._session(row, extra)

    def _session(self, row: Sequence[Any], extra: Mapping[str, Any]) -> Cells:
        live = self.live.get(row[0], Live())
        prompt, tools, config = (self._text(number) for number in row[14:17])
        texts = len(SESSION_TEXTS)
        said: Cells = {
            "id": row[1], "source": row[2], "parent_session_id": None if row[3] is None else self.name(row[3]),
            "started_at": row[4], "ended_at": row[5], "end_reason": row[6], "title": row[7], "title_source": row[8],
            "archived": row[9], "pinned": row[10], "hidden": row[11], "auto_archived": row[12],
            "system_prompt": prompt, "model_config": config,
            "tool_names": None if tools is None else sha256(tools.encode("utf-8")).hexdigest(),
            "message_count": live.messages, "tool_call_count": live.calls,
        }
        said.update(zip(SESSION_TEXTS, row[17 : 17 + texts], strict=True))
        said.update(zip((*TOTAL_COUNTS, *COSTS, *ROUTE_TEXTS), row[17 + texts :], strict=True))
        original = extra.get(ORIGINAL, {})
        if "system_prompt_hash" in self.session_columns.names and "system_prompt_hash" not in original:
            said["system_prompt_hash"] = None if prompt is None else sha256(prompt.encode("utf-8")).hexdigest()
            said["system_prompt"] = None
        return _cells(said, self.session_columns, SESSION_MAPPED, extra, original)

    def _text(self, number: int | None) -> str | None:
        if number is None:
            return None
        row = self.reader.row("SELECT codec, text_bytes, body FROM shared_texts WHERE no = ?", (number,))
        if row is None:
            raise Corrupt(
                f"{self.reader.path} has no shared text {number}.", hint=_hint(self.reader),
                path=self.reader.path, search_index=False,
            )
        return (decompress(row[2], row[1]) if row[0] == "zstd" else row[2]).decode("utf-8")

    def name(self, session_no: int) -> Cell:
        """The id of a session as hermes-agent had it."""
        if session_no not in self._names:
            row = self.reader.row("SELECT id, extra FROM sessions WHERE no = ?", (session_no,))
            key, extra = (None, {}) if row is None else (row[0], _extra(row[1]))
            original, placeholder = extra.get(ORIGINAL, {}), extra.get(PLACEHOLDER)
            if isinstance(placeholder, dict):
                key = from_json(placeholder["id"])
            elif "id" in original:
                key = from_json(original["id"])
            self._names[session_no] = key
        return self._names[session_no]

    # --- messages --------------------------------------------------------------------------------------------

    def messages(
        self, session_no: int | None = None, *, first: int = 0, last: int = _LAST, checked: bool = False
    ) -> Iterator[Cells]:
        """Cells of each message in order of id: of the store, or of one session with its numbers `first` to `last`.

        `checked` verifies each row's own check.
        """
        of_one = "" if session_no is None else " WHERE m.session_no = ? AND m.seq BETWEEN ? AND ?"
        params = () if session_no is None else (session_no, first, last)
        sql = f"{_MESSAGES}{of_one} ORDER BY {'m.id' if session_no is None else 'm.seq'}"
        before: dict[int, int] = {}
        for row in self.reader.iterate(sql, params, batch=100):
            content = _body(row)
            if checked:
                self._check(row, content)
            hidden = self._hidden(row[1], row[2]) if row[1] in self._edits else ""
            live = self.live.get(row[1])
            if live is None:
                live = self.live[row[1]] = Live()
            if not hidden:
                live.messages += 1
                live.calls += row[20] - before.get(row[1], 0)
            before[row[1]] = row[20]
            extra = _extra(row[18])
            said: Cells = {
                "id": row[0], "session_id": self.name(row[1]), "role": row[3],
                "content": MARKER + str(content) if row[4] == "json" else content,
                "tool_name": row[9], "tool_call_id": row[10], "tool_calls": row[11], "finish_reason": row[12],
                "token_count": row[13], "reasoning": row[14], "platform_message_id": row[15], "timestamp": row[17],
                "active": 0 if hidden else 1, "compacted": _COMPACTED.get(hidden, 0),
            }
            yield _cells(said, self.message_columns, MESSAGE_MAPPED, extra, extra.get(ORIGINAL, {}))

    def made(self, said: Cells) -> Cells:
        """The cells of a message that no row stands for, in the columns of this file."""
        return _cells(said, self.message_columns, MESSAGE_MAPPED, {}, {})

    def _hidden(self, session_no: int, seq: int) -> str:
        found = {action for action, first, last in self._edits[session_no] if first <= seq <= last}
        return "rewind" if "rewind" in found else "compact" if found else ""

    def _check(self, row: Sequence[Any], content: Any) -> None:
        check = row_check(
            row[1], row[3], row[4], content, row[9], row[10], row[11], row[12], row[13], row[14], row[15], row[16],
            row[17], row[18],
        )
        if check != row[19]:
            raise Corrupt(
                f"Message {row[0]} of {self.reader.path} is not what was written: its check differs.",
                hint=_hint(self.reader), path=self.reader.path, message_id=row[0], search_index=False,
            )


def _hint(reader: Reader) -> str:
    return f"Run `hermes-state doctor --db {shell_word(reader.path)}`."


def _cells(
    said: Cells, columns: Columns, mapped: frozenset[str], extra: Mapping[str, Any], original: Mapping[str, Any]
) -> Cells:
    found: Cells = {}
    for name in columns.names:
        if name in original:
            found[name] = from_json(original[name])
        elif name in mapped:
            found[name] = said.get(name)
        elif name in extra:
            found[name] = from_json(extra[name])
        else:
            found[name] = columns.defaults.get(name)
    return found


def _extra(text: str | None) -> dict[str, Any]:
    return {} if text is None else dict(json.loads(text))


def _body(row: Sequence[Any]) -> Any:
    """The whole body of a message row: from its frame when it is kept apart."""
    if row[6] is None:
        return row[5]
    raw: bytes = decompress(row[8], row[7]) if row[6] == "zstd" else row[8]
    return raw if row[4] == "bytes" else raw.decode("utf-8")


def _release_columns(names: tuple[str, ...]) -> Columns:
    return Columns(names=names, defaults={name: 0 if name in RELEASE_ZEROES else None for name in names})
