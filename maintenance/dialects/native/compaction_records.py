"""The generations of a session in its record: what `sessions export` writes and `sessions import` restores.

Invariant: positions are those of the messages of the same record. A session whose parent is gone is told with what it
inherited of that one's generations as well, as with its messages. The lease of a running pass is no
fact about the session and is left out; the owner is kept for people.

Not for: windows and factors of models, which belong to no session (a backup has them).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from maintenance.dialects.native import compactions as rows
from maintenance.dialects.native.inherited import Story

if TYPE_CHECKING:
    from hermes_state.engine import Reader

# Columns of JSON text, told as the values that they are.
_VALUES = ("anchors", "error", "owner")
_PLACES = ("cut_at", "watermark")


def compaction_record(reader: Reader, session_no: int, story: Story | None) -> dict[str, Any] | None:
    """Head and generations of one session; None when it was never compacted and sees nothing that was."""
    if not rows.has_compactions(reader):
        return None
    head = rows.head(reader, session_no)
    told = [(one, 0) for one in rows.generations(reader, session_no)]
    inherits = story is not None and story.shift != 0
    if story is not None and inherits and head is not None and head[0] is not None:
        told = [*_inherited(reader, head[0], session_no, story), *told]
    if head is None and not told:
        return None
    # Generations of sessions that are gone are those of this one now.
    own = {one["session_no"]: _id_of(reader, session_no) for one, _away in told}
    record: dict[str, Any] = {
        "head": None if head is None or head[0] is None else _name(reader, head[0], own),
        "moves": 0 if head is None else head[1],
        "generations": [_told(reader, one, away + (0 if story is None else story.shift), own) for one, away in told],
    }
    if story is not None and inherits:
        # The edits of such a story are told as what they hide now, and are all older than its record.
        for said in record["generations"]:
            said["edit_mark"] = len(story.view.rewound) + len(story.view.compacted)
    return record


def _inherited(reader: Reader, head: int, session_no: int, story: Story) -> list[tuple[dict[str, Any], int]]:
    """Generations of sessions that are gone, with what a position is away from one of the story, oldest first.

    Their numbers are below those of the session itself.
    """
    offsets = {no: offset for no, _first, _last, offset in story.runs}
    found = [
        (one, offsets[one["session_no"]]) for one in rows.chain(reader, head)
        if one["session_no"] != session_no and one["session_no"] in offsets
    ]
    return found[::-1]


def _id_of(reader: Reader, session_no: int) -> str:
    return str(reader.rows("SELECT id FROM sessions WHERE no = ?", (session_no,))[0][0])


def _name(reader: Reader, compaction_id: int, own: Mapping[int, str]) -> dict[str, Any] | None:
    row = reader.row("SELECT session_no, generation FROM compactions WHERE id = ?", (compaction_id,))
    if row is None:
        return None
    return {"session_id": own.get(row[0]) or _id_of(reader, row[0]), "generation": row[1]}


def _told(reader: Reader, one: dict[str, Any], away: int, own: Mapping[int, str]) -> dict[str, Any]:
    said = {name: one[name] for name in rows.PASS_COLUMNS}
    for name in _VALUES:
        said[name] = _value(said[name])
    if one["state"] == "done" and isinstance(said["anchors"], list):
        said["anchors"] = sorted({*said["anchors"], *_brought_back(reader, one)})
    for name in _PLACES:
        said[name] += away
    if isinstance(said["anchors"], list):
        said["anchors"] = [place + away if isinstance(place, int) else place for place in said["anchors"]]
    said["parent"] = None if one["parent_id"] is None else _name(reader, one["parent_id"], own)
    said["clips"] = [
        {"position": position + away, "clip": _value(clip)} for position, clip in rows.clips(reader, one["id"])
    ]
    return said


def _brought_back(reader: Reader, one: dict[str, Any]) -> list[int]:
    """What was taken back when a generation was made and is there again: no record tells that edit any more.

    The view shows such messages below the cut, and anchors are what a record has for that.
    """
    from hermes_state.compaction.generations import effective

    story = effective.story_of(reader, one["session_no"])
    then = effective.view_at(reader, story, one["edit_mark"])
    late = [
        (first, min(last, one["cut_at"] - 1))
        for first, last in effective.less(then.rewound, story.view.rewound) if first < one["cut_at"]
    ]
    return [
        int(seq) + offset
        for session_no, first, last, offset in effective.runs(story.view, late)
        for (seq,) in reader.rows(
            "SELECT seq FROM messages WHERE session_no = ? AND seq BETWEEN ? AND ?", (session_no, first, last)
        )
    ]


def _value(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
