"""Reading sessions: facts as a stream, whole rows by id, lineage, and the figures of the whole store.

Invariant: one row is read with one statement, text as bytes; no message text is read here. Not for: choosing sessions
(`maintenance.selection` writes the condition) or messages (`messages.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from maintenance.dialects.base import Condition, LineageRow, SessionFacts, SessionRow, StoreCounts, StoreShape
from maintenance.dialects.cells import chunks, decode_key, decode_text, key_bytes, key_list, text_cell
from maintenance.dialects.foreign.fields import LAST_MESSAGE_PASS, TEXT_COLUMNS
from maintenance.dialects.foreign.markers import MARKER_CELL, Markers, read_markers

if TYPE_CHECKING:
    from hermes_state.engine import Reader

_FACT_NUMBERS = ("started_at", "ended_at", "ended", "last_activity_at", "message_count", "archived", "pinned", "hidden")
_ROW_TEXTS = (
    "title",
    "model",
    "end_reason",
    "display_name",
    "session_key",
    "user_id",
    "chat_id",
    "chat_type",
    "thread_id",
    "cwd",
    "branch",
    "repo_root",
    "provider",
    "profile",
)
_ROW_NUMBERS = ("tool_call_count", "input_tokens", "output_tokens", "cost", "auto_archived", "never_active")
# Titles and the like are shown in a line; a cell of 300 KB is read no further than this.
LONGEST_SHOWN = 2_000


class SessionReading:
    """Statements over `sessions` for one shape of file."""

    def __init__(self, shape: StoreShape, fields: Mapping[str, str], *, message_times_indexed: bool) -> None:
        self._columns = frozenset(shape.session_columns)
        self._fields = fields
        self._with = "" if message_times_indexed else LAST_MESSAGE_PASS
        self._marker = MARKER_CELL if "model_config" in self._columns else "NULL"
        self._usage = "session_model_usage" in shape.tables
        id_cell = "CAST(s.id AS BLOB)"
        parent = "CASE WHEN s.parent_session_id IS NOT NULL THEN CAST(s.parent_session_id AS BLOB) END"
        if "parent_session_id" not in self._columns:
            parent = "NULL"
        numbers = ", ".join(fields[name] for name in _FACT_NUMBERS)
        self._facts = f"{id_cell}, {self._text('source')}, {parent}, {numbers}, {self._marker}"
        row_numbers = ", ".join(fields[name] for name in _ROW_NUMBERS)
        self._row = f"{self._facts}, {', '.join(self._text(name) for name in _ROW_TEXTS)}, {row_numbers}"
        self._lineage = f"{self._facts}, {self._text('end_reason')}, {self._text('session_key')}"

    def _text(self, name: str) -> str:
        column = TEXT_COLUMNS[name]
        return f"substr({text_cell(f's.{column}')}, 1, {LONGEST_SHOWN})" if column in self._columns else "NULL"

    def facts(self, reader: Reader, condition: Condition) -> Iterator[SessionFacts]:
        """Matching sessions, last activity first; those whose activity is unknown come last."""
        activity = len(("id", "source", "parent")) + _FACT_NUMBERS.index("last_activity_at") + 1
        sql = (
            f"{self._with}SELECT {self._facts} FROM sessions AS s WHERE typeof(s.id) = 'text' AND ({condition.sql})"
            f" ORDER BY {activity} DESC NULLS LAST, s.rowid DESC"
        )
        for values in reader.iterate(sql, condition.params):
            yield _facts(values, read_markers(values[11]))

    def rows(self, reader: Reader, ids: Sequence[str]) -> dict[str, SessionRow]:
        """Sessions by id."""
        found: dict[str, SessionRow] = {}
        for part in chunks(ids):
            sql = f"{self._with}SELECT {self._row} FROM sessions AS s WHERE s.id IN {key_list(len(part))}"
            for values in reader.rows(sql, [key_bytes(key) for key in part]):
                row = _row(values)
                found[row.id] = row
        return found

    def lineage(self, reader: Reader) -> list[LineageRow]:
        """Sessions with a parent or a marker, and the sessions that they name."""
        clauses = []
        if "parent_session_id" in self._columns:
            clauses.append("s.parent_session_id IS NOT NULL")
        if "model_config" in self._columns:
            clauses.append("(typeof(s.model_config) = 'text' AND instr(s.model_config, '_from\"') > 0)")
        if not clauses:
            return []
        sql = f"{self._with}SELECT {self._lineage} FROM sessions AS s WHERE typeof(s.id) = 'text' AND "
        found: dict[str, LineageRow] = {}
        for clause in clauses:
            found.update((row.id, row) for row in map(_lineage, reader.iterate(sql + clause)))
        named = {
            name
            for row in found.values()
            for name in (row.parent_id, row.delegate_from, row.branched_from, row.reset_from)
            if name is not None and name not in found
        }
        found.update(self._lineage_of(reader, sorted(named)))
        return list(found.values())

    def ancestry(self, reader: Reader, ids: Sequence[str]) -> list[LineageRow]:
        """These sessions and everything above them by parent links, without a pass over the table."""
        found: dict[str, LineageRow] = {}
        asked: set[str] = set()
        wanted = list(dict.fromkeys(ids))
        while wanted:
            asked.update(wanted)
            rows = self._lineage_of(reader, wanted)
            found.update(rows)
            parents = dict.fromkeys(row.parent_id for row in rows.values() if row.parent_id is not None)
            wanted = [key for key in parents if key not in asked]
        return list(found.values())

    def _lineage_of(self, reader: Reader, ids: Sequence[str]) -> dict[str, LineageRow]:
        found: dict[str, LineageRow] = {}
        for part in chunks(ids):
            sql = f"{self._with}SELECT {self._lineage} FROM sessions AS s WHERE s.id IN {key_list(len(part))}"
            rows = map(_lineage, reader.rows(sql, [key_bytes(key) for key in part]))
            found.update((row.id, row) for row in rows)
        return found

    def children(self, reader: Reader, ids: Sequence[str]) -> dict[str, frozenset[str]]:
        """Children by parent link."""
        if "parent_session_id" not in self._columns:
            return {}
        found: dict[str, set[str]] = {}
        for part in chunks(ids):
            rows = reader.rows(
                "SELECT CAST(parent_session_id AS BLOB), CAST(id AS BLOB) FROM sessions"
                f" WHERE parent_session_id IN {key_list(len(part))}",
                [key_bytes(key) for key in part],
            )
            for parent, child in rows:
                found.setdefault(decode_key(parent), set()).add(decode_key(child))
        return {parent: frozenset(children) for parent, children in found.items()}

    def ids_with_prefix(self, reader: Reader, prefix: str, limit: int) -> list[str]:
        """Ids that start with `prefix`, read from the primary key's index."""
        low = key_bytes(prefix)
        rows = reader.rows(
            "SELECT CAST(id AS BLOB) FROM sessions WHERE typeof(id) = 'text' AND id >= CAST(? AS TEXT)"
            " AND id < CAST(? AS TEXT) ORDER BY id LIMIT ?",
            (low, low + b"\xff\xff", limit),
        )
        return [decode_key(row[0]) for row in rows]

    def ids_with_title(self, reader: Reader, title: str, limit: int) -> list[str]:
        """Ids of sessions with this title or a numbered form of it, highest number first."""
        base = key_bytes(title)
        rows = reader.rows(
            "SELECT CAST(id AS BLOB), CAST(title AS BLOB) FROM sessions WHERE typeof(id) = 'text'"
            " AND typeof(title) = 'text' AND (title = CAST(? AS TEXT)"
            " OR (title >= CAST(? AS TEXT) AND title < CAST(? AS TEXT)))",
            (base, base + b" #", base + b" #\xff\xff"),
        )
        numbered: list[tuple[int, str]] = []
        for key, found in rows:
            suffix = bytes(found)[len(base) :].decode("utf-8", errors="replace")
            if suffix == "":
                numbered.append((1, decode_key(key)))
            elif suffix[2:].isascii() and suffix[2:].isdigit():
                numbered.append((int(suffix[2:][:18]), decode_key(key)))
        return [key for _, key in sorted(numbered, reverse=True)[:limit]]

    def unnamed(self, reader: Reader) -> int:
        """Rows whose id is no text: two seeks in the primary key's index, NULL sorts before text and bytes after."""
        row = reader.row("SELECT count(*) FROM sessions WHERE id IS NULL OR id >= X''")
        return 0 if row is None else int(row[0])

    def count(self, reader: Reader) -> int:
        """Session rows of the whole store."""
        row = reader.row("SELECT count(*) FROM sessions")
        return 0 if row is None else int(row[0])

    def counts(self, reader: Reader) -> StoreCounts:
        """Figures of the whole store, one pass over sessions and one count of messages."""
        fields = self._fields
        source = f"substr({text_cell('s.source')}, 1, {LONGEST_SHOWN})"
        by_source = reader.rows(
            f"{self._with}SELECT {source}, count(*), CAST(total({fields['message_count']}) AS INTEGER),"
            f" sum({fields['ended']}), sum({fields['archived']}), sum({fields['pinned']}), min({fields['started_at']}),"
            f" max({fields['last_activity_at']}) FROM sessions AS s GROUP BY 1 ORDER BY 2 DESC, 1"
        )
        messages = reader.row("SELECT count(*) FROM messages")
        starts = [row[6] for row in by_source if row[6] is not None]
        activity = [row[7] for row in by_source if row[7] is not None]
        return StoreCounts(
            sessions=sum(row[1] for row in by_source),
            messages=0 if messages is None else int(messages[0]),
            by_source=tuple((decode_text(row[0]) or "", int(row[1]), int(row[2] or 0)) for row in by_source),
            ended=sum(row[3] or 0 for row in by_source),
            archived=sum(row[4] or 0 for row in by_source),
            pinned=sum(row[5] or 0 for row in by_source),
            oldest_started_at=min(starts) if starts else None,
            newest_activity_at=max(activity) if activity else None,
        )


def _facts(values: tuple[Any, ...], markers: Markers) -> SessionFacts:
    return SessionFacts(
        id=decode_key(values[0]),
        source=decode_text(values[1]) or "",
        parent_id=None if values[2] is None else decode_key(values[2]),
        started_at=values[3],
        ended_at=values[4],
        ended=bool(values[5]),
        last_activity_at=values[6],
        message_count=values[7],
        archived=bool(values[8]),
        pinned=bool(values[9]),
        hidden=bool(values[10]),
        delegate=markers.delegate_from is not None,
    )


def _row(values: tuple[Any, ...]) -> SessionRow:
    markers = read_markers(values[11])
    texts = {name: decode_text(value) for name, value in zip(_ROW_TEXTS, values[12:26], strict=True)}
    tool_calls, input_tokens, output_tokens, cost, auto_archived, never_active = values[26:]
    return SessionRow(
        facts=_facts(values, markers),
        **texts,
        tool_call_count=tool_calls,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cost_usd=None if cost is None else float(cost),
        auto_archived=bool(auto_archived),
        never_active=bool(never_active),
        branched_from=markers.branched_from,
        delegate_from=markers.delegate_from,
        reset_from=markers.reset_from,
    )


def _lineage(values: tuple[Any, ...]) -> LineageRow:
    markers = read_markers(values[11])
    facts = _facts(values, markers)
    return LineageRow(
        id=facts.id,
        parent_id=facts.parent_id,
        source=facts.source,
        started_at=facts.started_at,
        ended_at=facts.ended_at,
        ended=facts.ended,
        end_reason=decode_text(values[12]),
        session_key=decode_text(values[13]),
        last_activity_at=facts.last_activity_at,
        branched_from=markers.branched_from,
        delegate_from=markers.delegate_from,
        reset_from=markers.reset_from,
    )
