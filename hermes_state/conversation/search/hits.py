"""From messages that match to hits: the session's place, the snippet, the neighbours.

Invariant: a fixed number of statements for all hits together, plus a walk for the sessions that are part of a chain;
neighbours go by number within the session, never by time, and are never rewound ones. Not for: finding.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from hermes_state.conversation.context import never_compacted
from hermes_state.conversation.lineage import root_no, tip_no
from hermes_state.conversation.search.candidates import Edits, Found
from hermes_state.conversation.search.query import Query, substring
from hermes_state.conversation.search.records import Hit, Neighbour
from hermes_state.conversation.search.snippets import snippet
from hermes_state.conversation.search.text import content_text
from hermes_state.engine import Reader
from hermes_state.errors import StatementFailed

PREVIEW_CHARACTERS = 200
_Place = tuple[str, str, str, str | None]  # session id, root id, tip id, title


def hits_of(
    reader: Reader, found: Sequence[Found], query: Query, edits: Edits, *, markers: tuple[str, str], store_id: str,
    store_path: Path,
) -> list[Hit]:
    """The hits for these messages, in the same order."""
    owners = {item.row.id: edits.owner(item.row.session_no, item.row.seq) for item in found}
    places = _places(reader, sorted(set(owners.values())))
    around = _neighbours(reader, found, edits)
    hits = []
    taken = _compacted_by(reader, {(item.row.session_no, item.row.seq): owners[item.row.id] for item in found})
    for item in found:
        row = item.row
        session_id, root_id, tip_id, title = places[owners[row.id]]
        hidden_by = edits.hiding(row.session_no, row.seq, "compact")
        hidden: Literal["compact"] | None = None if hidden_by is None else "compact"
        before, after = around[row.session_no, row.seq]
        hits.append(Hit(
            message_id=row.id, session_id=session_id, root_id=root_id, tip_id=tip_id, seq=row.seq, role=row.role,
            source=row.source, created_at=row.created_at, snippet=snippet(row.text, query.terms, markers),
            score=round(item.score, 4), title=title, hidden=hidden, hidden_by=hidden_by,
            compacted_by=taken.get((row.session_no, row.seq)), store_id=store_id, store_path=store_path,
            before=before, after=after,
        ))
    return hits


def title_hits(
    reader: Reader, session_nos: Sequence[int], query: Query, where: tuple[str, list[Any]], limit: int, *,
    markers: tuple[str, str], store_id: str, store_path: Path,
) -> list[Hit]:
    """One hit a session whose title was asked for, latest activity first. `where` speaks of sessions `s` only."""
    conditions, params = where
    rows = reader.rows(
        "SELECT s.no, s.source, s.active_at FROM sessions s WHERE s.no IN (SELECT value FROM json_each(?))"
        f"{conditions} ORDER BY s.active_at DESC, s.no DESC LIMIT ?",
        [json.dumps(list(session_nos)), *params, limit],
    )
    places = _places(reader, [row[0] for row in rows])
    wanted = [term for text in query.titles for term in substring(text).terms]
    return [
        Hit(
            message_id=None, session_id=places[no][0], root_id=places[no][1], tip_id=places[no][2], seq=0, role="",
            source=source, created_at=active_at, snippet=snippet(places[no][3] or "", wanted, markers), score=0.0,
            title=places[no][3], hidden=None, hidden_by=None, compacted_by=None, store_id=store_id,
            store_path=store_path,
        )
        for no, source, active_at in rows
    ]


def _compacted_by(reader: Reader, owners: dict[tuple[int, int], int]) -> dict[tuple[int, int], int]:
    """The generations that took messages out of the view of the session they are found under, where one did.

    `owners`: that session, by session number and seq. Nothing of compaction is loaded when none of them has a head.
    """
    try:
        heads = reader.rows(
            "SELECT session_no FROM compaction_heads WHERE compaction_id IS NOT NULL"
            " AND session_no IN (SELECT value FROM json_each(?))", (json.dumps(sorted(set(owners.values()))),)
        )
    except StatementFailed:
        if never_compacted(reader):
            return {}
        raise
    found: dict[tuple[int, int], int] = {}
    for (owner,) in heads:
        from hermes_state.compaction.generations import hidden_by
        from hermes_state.compaction.generations.effective import story_of

        story = story_of(reader, owner)
        places = {
            seq + shift: (number, seq) for (number, seq), under in owners.items()
            if under == owner and (shift := story.shift(number)) is not None
        }
        found |= {places[position]: generation for position, generation in hidden_by(reader, owner, places).items()}
    return found


def _places(reader: Reader, session_nos: Sequence[int]) -> dict[int, _Place]:
    rows = reader.rows(
        "SELECT s.no, s.id, s.title, s.relation IS 'continuation', EXISTS (SELECT 1 FROM sessions c"
        " WHERE c.parent_no = s.no AND c.relation = 'continuation') FROM sessions s"
        " WHERE s.no IN (SELECT value FROM json_each(?))",
        (json.dumps(list(session_nos)),),
    )
    roots = {no: root_no(reader, no) if continues else no for no, _, _, continues, _ in rows}
    tips = {no: tip_no(reader, no) if continued else no for no, _, _, _, continued in rows}
    ids = {no: session_id for no, session_id, *_ in rows}
    others = sorted({*roots.values(), *tips.values()} - ids.keys())
    if others:
        ids.update(reader.rows(
            "SELECT no, id FROM sessions WHERE no IN (SELECT value FROM json_each(?))", (json.dumps(others),)
        ))
    return {no: (session_id, ids[roots[no]], ids[tips[no]], title) for no, session_id, title, *_ in rows}


def _neighbours(
    reader: Reader, found: Sequence[Found], edits: Edits
) -> dict[tuple[int, int], tuple[Neighbour | None, Neighbour | None]]:
    """For each message, by (session number, seq), the visible ones next to it; all in one statement."""
    wanted: dict[tuple[int, int], tuple[int, int]] = {}
    for item in found:
        row = item.row
        wanted[row.session_no, row.seq] = (
            _visible_seq(edits, row.session_no, row.seq - 1, -1), _visible_seq(edits, row.session_no, row.seq + 1, 1)
        )
    pairs = sorted({(number, seq) for (number, _), both in wanted.items() for seq in both if seq > 0})
    # Text and previews begin with what is shown; of structured content a little more is needed to read it.
    rows = reader.rows(
        "SELECT m.session_no, m.seq, m.id, m.role, m.content_type, m.body_no, substr(m.content, 1,"
        " CASE WHEN m.content_type = 'json' THEN 4000 ELSE 200 END), m.tool_name FROM json_each(?) w"
        " JOIN messages m ON m.session_no = w.value ->> 0 AND m.seq = w.value ->> 1",
        (json.dumps(pairs),),
    )
    known = {
        (row[0], row[1]): Neighbour(message_id=row[2], role=row[3], preview=_preview(*row[4:])) for row in rows
    }
    return {
        (number, seq): (known.get((number, before)), known.get((number, after)))
        for (number, seq), (before, after) in wanted.items()
    }


def _visible_seq(edits: Edits, session_no: int, seq: int, step: int) -> int:
    """The first number from `seq` on, in steps of `step`, that no rewind hides; it need not exist."""
    moved = True
    while moved:
        moved = False
        for first, last, action, _ in edits.known[session_no]:
            if action == "rewind" and first <= seq <= last:
                seq = (last if step > 0 else first) + step
                moved = True
    return seq


def _preview(content_type: str | None, body_no: int | None, content: Any, tool_name: str | None) -> str:
    text = content if body_no is not None and isinstance(content, str) else content_text(content_type, content)
    return str(text or tool_name or "")[:PREVIEW_CHARACTERS]
