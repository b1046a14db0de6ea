"""Reading sessions of a native store.

Invariant: what a session is to its parent is what `relation` says; nothing is guessed from end reasons. What a deletion
left to be finished, or keeps for a branch, is no session here. Ids that a person
typed are bound as bytes, so that a name that is not UTF-8 finds nothing instead of raising.

Not for: messages, or a page of the list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from maintenance.dialects.base import Condition, LineageRow, SessionFacts, SessionRow, StoreCounts
from maintenance.dialects.cells import chunks, key_bytes, key_list
from maintenance.dialects.native.fields import HERE, TEXT_COLUMNS

if TYPE_CHECKING:
    from hermes_state.engine import Reader

_FACTS = (
    *("id", "source", "parent_id", "started_at", "ended_at", "ended", "last_activity_at", "message_count"),
    *("archived", "pinned", "hidden"),
)
_TEXTS = (*TEXT_COLUMNS, "provider")
_REST = ("tool_call_count", "input_tokens", "output_tokens", "cost", "auto_archived", "never_active")


class SessionReading:
    """Statements over `sessions`."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        self._fields = fields
        self._facts = ", ".join([*(fields[name] for name in _FACTS), "s.relation"])
        self._row = ", ".join([self._facts, *(fields[name] for name in (*_TEXTS, *_REST))])
        # Activity by the row alone: a tie-break of lineage is not worth a seek into messages.
        self._lineage = (
            f"s.id, {fields['parent_id']}, s.source, s.started_at, {fields['ended_at']}, s.state, s.relation,"
            f" {fields['end_reason']}, {fields['session_key']}, s.active_at"
        )

    def facts(self, reader: Reader, condition: Condition) -> Iterator[SessionFacts]:
        """Matching sessions, last activity first, then newest inserted."""
        activity = self._fields["last_activity_at"]
        sql = (
            f"SELECT {self._facts} FROM sessions AS s WHERE {HERE} AND ({condition.sql})"
            f" ORDER BY {activity} DESC, s.no DESC"
        )
        for values in reader.iterate(sql, condition.params):
            yield _facts(values)

    def rows(self, reader: Reader, ids: Sequence[str]) -> dict[str, SessionRow]:
        """Sessions by id."""
        found: dict[str, SessionRow] = {}
        for part in chunks(ids):
            sql = f"SELECT {self._row} FROM sessions AS s WHERE s.id IN {key_list(len(part))} AND {HERE}"
            for values in reader.rows(sql, [key_bytes(key) for key in part]):
                row = _row(values)
                found[row.id] = row
        return found

    def lineage(self, reader: Reader) -> list[LineageRow]:
        """Sessions with a parent, and the sessions that they name."""
        sql = (
            f"SELECT {self._lineage} FROM sessions AS s WHERE {HERE} AND (s.parent_no IS NOT NULL"
            " OR EXISTS (SELECT 1 FROM sessions AS c WHERE c.parent_no = s.no))"
        )
        return [_lineage(values) for values in reader.iterate(sql)]

    def children(self, reader: Reader, ids: Sequence[str]) -> dict[str, frozenset[str]]:
        """Children by parent link."""
        found: dict[str, set[str]] = {}
        for part in chunks(ids):
            rows = reader.rows(
                "SELECT p.id, c.id FROM sessions AS p JOIN sessions AS c ON c.parent_no = p.no"
                f" WHERE p.id IN {key_list(len(part))} AND NOT (c.hidden = 1 AND c.active_at = 0)",
                [key_bytes(key) for key in part],
            )
            for parent, child in rows:
                found.setdefault(parent, set()).add(child)
        return {parent: frozenset(children) for parent, children in found.items()}

    def ids_with_prefix(self, reader: Reader, prefix: str, limit: int) -> list[str]:
        """Ids that start with `prefix`, from the unique index on them."""
        low = key_bytes(prefix)
        rows = reader.rows(
            f"SELECT s.id FROM sessions AS s WHERE s.id >= CAST(? AS TEXT) AND s.id < CAST(? AS TEXT) AND {HERE}"
            " ORDER BY s.id LIMIT ?",
            (low, low + b"\xff\xff", limit),
        )
        return [str(row[0]) for row in rows]

    def ids_with_title(self, reader: Reader, title: str, limit: int) -> list[str]:
        """Ids of sessions with this title or a numbered form of it, highest number first."""
        base = key_bytes(title)
        rows = reader.rows(
            "SELECT id, title FROM sessions WHERE title = CAST(? AS TEXT)"
            " OR (title >= CAST(? AS TEXT) AND title < CAST(? AS TEXT))",
            (base, base + b" #", base + b" #\xff\xff"),
        )
        numbered: list[tuple[int, str]] = []
        for key, found in rows:
            suffix = str(found)[len(title) :]
            if suffix == "":
                numbered.append((1, key))
            elif suffix[2:].isascii() and suffix[2:].isdigit():
                numbered.append((int(suffix[2:][:18]), key))
        return [key for _, key in sorted(numbered, reverse=True)[:limit]]

    def count(self, reader: Reader) -> int:
        """Session rows of the whole store."""
        row = reader.row(f"SELECT count(*) FROM sessions AS s WHERE {HERE}")
        return 0 if row is None else int(row[0])

    def counts(self, reader: Reader) -> StoreCounts:
        """Figures of the whole store: one pass over sessions with a seek into messages each."""
        fields = self._fields
        by_source = reader.rows(
            f"SELECT s.source, count(*), total({fields['message_count']}), sum({fields['ended']}),"
            f" sum({fields['archived']}), sum({fields['pinned']}), min(s.started_at), max({fields['last_activity_at']})"
            f" FROM sessions AS s WHERE {HERE} GROUP BY 1 ORDER BY 2 DESC, 1"
        )
        messages = reader.row("SELECT count(*) FROM messages")
        return StoreCounts(
            sessions=sum(row[1] for row in by_source),
            messages=0 if messages is None else int(messages[0]),
            by_source=tuple((str(row[0]), int(row[1]), int(row[2])) for row in by_source),
            ended=sum(row[3] for row in by_source),
            archived=sum(row[4] for row in by_source),
            pinned=sum(row[5] for row in by_source),
            oldest_started_at=min((row[6] for row in by_source), default=None),
            newest_activity_at=max((row[7] for row in by_source), default=None),
        )


def _facts(values: tuple[Any, ...]) -> SessionFacts:
    return SessionFacts(
        id=values[0],
        source=values[1],
        parent_id=values[2],
        started_at=values[3],
        ended_at=values[4],
        ended=bool(values[5]),
        last_activity_at=values[6],
        message_count=values[7],
        archived=bool(values[8]),
        pinned=bool(values[9]),
        hidden=bool(values[10]),
        delegate=values[11] == "delegate",
    )


def _row(values: tuple[Any, ...]) -> SessionRow:
    facts, relation = _facts(values), values[11]
    texts = dict(zip(_TEXTS, values[12 : 12 + len(_TEXTS)], strict=True))
    tool_calls, input_tokens, output_tokens, cost, auto_archived, never_active = values[12 + len(_TEXTS) :]
    return SessionRow(
        facts=facts,
        **texts,
        tool_call_count=tool_calls,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cost_usd=cost,
        auto_archived=bool(auto_archived),
        never_active=bool(never_active),
        branched_from=facts.parent_id if relation == "branch" else None,
        delegate_from=facts.parent_id if relation == "delegate" else None,
        reset_from=facts.parent_id if relation == "reset" else None,
    )


def _lineage(values: tuple[Any, ...]) -> LineageRow:
    key, parent_id, source, started_at, ended_at, state, relation, end_reason, session_key, active_at = values
    return LineageRow(
        id=key,
        parent_id=parent_id,
        source=source,
        started_at=started_at,
        ended_at=ended_at,
        ended=state != "open",
        # A session that was replaced goes on in its continuation, whatever reason was given first.
        end_reason="compression" if state == "replaced" else end_reason,
        session_key=session_key,
        last_activity_at=active_at,
        branched_from=parent_id if relation == "branch" else None,
        delegate_from=parent_id if relation == "delegate" else None,
        reset_from=parent_id if relation == "reset" else None,
        relation=relation,
    )
