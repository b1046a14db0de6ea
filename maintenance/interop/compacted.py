"""The view of a session that this library compacted, as the rows that hermes-agent would have after its own compaction.

Invariant: hermes-agent keeps what a model gets as active rows, and what was summarised, with the rows that it copied
from there, as rows that are neither active nor rewound. So the rows of the view come as rows of their own behind all
others: the summary as the user message that it is in the view, then anchors and tail as they are shown, clips applied.

Not for: sessions that hermes-agent compacted itself; their flags are view edits here and go back as they came. Putting
the summary among the old ids was rejected: there is no id free between two rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from maintenance.dialects.native.compactions import has_compactions
from maintenance.interop.fields import MARKER
from maintenance.interop.foreign_rows import ForeignRows
from maintenance.interop.typed import Cell

if TYPE_CHECKING:
    from hermes_state.compaction.generations import LiveView
    from hermes_state.engine import Reader

Cells = dict[str, Cell]
# What belongs to the content as it was: hermes-agent sends the one in its place, and counts by the other.
_OF_CONTENT = ("api_content", "token_count")


@dataclass(frozen=True, kw_only=True)
class Compacted:
    """What one session is seen through."""

    session_no: int  # the session
    view: LiveView  # with a generation in effect


def compacted(reader: Reader, session_no: int) -> Compacted | None:
    """The view of a session; None when no generation is in effect."""
    from hermes_state.compaction.generations import live_view

    if not has_compactions(reader) or reader.row(
        "SELECT 1 FROM compaction_heads WHERE session_no = ? AND compaction_id IS NOT NULL", (session_no,)
    ) is None:
        return None
    view = live_view(reader, session_no)
    return None if view.generation is None else Compacted(session_no=session_no, view=view)


def compacted_sessions(reader: Reader) -> list[int]:
    """Numbers of all sessions that are seen through a generation, in order."""
    if not has_compactions(reader):
        return []
    rows = reader.rows("SELECT session_no FROM compaction_heads WHERE compaction_id IS NOT NULL ORDER BY session_no")
    return [int(no) for (no,) in rows if compacted(reader, int(no)) is not None]


def view_cells(reader: Reader, rows: ForeignRows, found: Compacted) -> Iterator[Cells]:
    """The rows of the view in order, with the ids of the messages they show; of a summary alone that is 0."""
    view = found.view
    shown = {key: message for key, message in zip(view.ids, view.messages, strict=True) if key is not None}
    changed = {
        key for key, position in zip(view.row_ids, view.row_positions, strict=True) if position in view.clips
    }
    at = view.summary_at
    alone = at is not None and view.ids[at] is None
    if at is not None and not alone:
        changed.add(view.ids[at] or 0)
    for key, cells in _cells_of(reader, rows, view.row_ids):
        if alone and at is not None and cells["role"] not in ("system", "developer"):
            alone = False
            yield _summary(rows, found, view.messages[at])
        cells = {**cells, "session_id": rows.name(found.session_no), "active": 1}
        if "compacted" in cells:
            cells["compacted"] = 0
        if key in changed and key in shown:
            cells["content"] = _content(shown[key]["content"])
            if "tool_calls" in shown[key]:
                cells["tool_calls"] = json.dumps(shown[key]["tool_calls"], ensure_ascii=False, separators=(",", ":"))
            for name in _OF_CONTENT:
                if name in cells:
                    cells[name] = None
        yield cells
    if alone and at is not None:
        yield _summary(rows, found, view.messages[at])


def _summary(rows: ForeignRows, found: Compacted, message: dict[str, Any]) -> Cells:
    generation = found.view.generation
    at = None if generation is None else generation.ended_at or generation.started_at
    return rows.made({
        "id": 0, "session_id": rows.name(found.session_no), "role": message["role"],
        "content": _content(message["content"]), "timestamp": at, "active": 1, "compacted": 0,
    })


def _cells_of(reader: Reader, rows: ForeignRows, ids: tuple[int, ...]) -> Iterator[tuple[int, Cells]]:
    """Cells of these messages, in their order; runs of one session are read at once."""
    places = {
        int(key): (int(no), int(seq)) for key, no, seq in reader.rows(
            "SELECT id, session_no, seq FROM messages WHERE id IN (SELECT value FROM json_each(?))",
            (json.dumps(list(ids)),),
        )
    }
    at = 0
    while at < len(ids):
        no, first = places[ids[at]]
        end = at + 1
        while end < len(ids) and places[ids[end]] == (no, first + end - at):
            end += 1
        yield from zip(ids[at:end], rows.messages(no, first=first, last=first + end - at - 1), strict=True)
        at = end


def _content(value: Any) -> Cell:
    if value is None or isinstance(value, str):
        return value
    return MARKER + json.dumps(value, ensure_ascii=False, separators=(",", ":"))
