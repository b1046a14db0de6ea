"""The compactions of a session that comes in: generations, clips and head, at the numbers of its messages here.

Invariant: what is restored is a view that could have been made here: a finished generation stands for the very messages
that it stood for there, counted, or it comes as superseded and says so; a pass that was running comes as failed, since
its owner works on another file. A session that was compacted here in another way keeps what it has.

Not for: what hides single messages (`target`). Comparing source digests of two stores was rejected: the check of a
message is made with the number of its session.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hermes_state import changes
from hermes_state.conversation.fields import LATEST_TIME
from maintenance.dialects.native.compaction_source import source_of
from maintenance.dialects.native.compactions import PASS_COLUMNS
from maintenance.intake.model import Passes

if TYPE_CHECKING:
    from hermes_state.engine import Transaction
    from maintenance.intake.known import Known
    from maintenance.intake.target import Hidden, Target

# What the error of a restored row says.
_WAS_RUNNING = {"code": "imported_running", "message": "It was running when its store was exported."}
_IN_PART = {"code": "imported_in_part", "message": "Not all messages that it stands for came with it."}
_TEXTS = ("summary", "form", "summarizer", "prompt_digest", "model", "tokenizer", "policy", "reason")
_NUMBERS = ("window", "tokens_fixed", "tokens_reserved", "tokens_before", "source_rows", "turn")
_FORMS = ("model", "extractive", "none")
_STATES = ("running", "done", "failed", "superseded")


@dataclass(kw_only=True)
class Coming:
    """What of a session's compactions has come so far."""

    told: Mapping[str, Any] = field(default_factory=dict)  # the field `compactions` of its record
    keys: dict[int, str] = field(default_factory=dict)  # position in the source -> key of the message

    def add(self, passes: Passes) -> None:
        """Take over what one event says."""
        self.told = passes.told or self.told
        self.keys.update(passes.keys)


class Places:
    """Positions of the source as positions here. What is before the messages of this file came with an earlier one."""

    def __init__(self, keys: Mapping[int, str], known: Known) -> None:
        found = ((position, known.seq_of(key)) for position, key in keys.items())
        self._here = {position: seq for position, seq in found if seq is not None}
        self._order = sorted(self._here)
        self._away = self._here[self._order[0]] - self._order[0] if self._order else 0

    def exact(self, position: int) -> int | None:
        """Where a message is; what a branch shares with its parent is where it was."""
        return self._before(position) if self._is_before(position) else self._here.get(position)

    def upto(self, position: int) -> int:
        """The last place that is not behind a position; 0 before the first."""
        if self._is_before(position):
            return self._before(position)
        return self._here[self._order[bisect_right(self._order, position) - 1]]

    def _is_before(self, position: int) -> bool:
        return position < 1 or not self._order or position < self._order[0]

    def _before(self, position: int) -> int:
        return position if position < 1 else max(0, position + self._away)


def restore(
    tx: Transaction, target: Target, coming: Coming, known: Known, *, parents: Mapping[str, int],
    hidden: Sequence[Hidden], as_shared: bool, at: float,
) -> int:
    """Add what is not here yet; gives how many generations. `parents`: session id in the source -> its number here.

    `as_shared`: what the session shares with its parent has the same places here. Else nothing says which messages a
    generation of a branch stands for.

    Raises nothing for a record that is none: what cannot be a generation is left out.
    """
    no = target.no
    told = [one for one in coming.told.get("generations") or () if isinstance(one, dict) and _whole(one)]
    if no is None or not coming.told or not _agrees(tx, no, told):
        return 0
    places, added = Places(coming.keys, known), 0
    for one in sorted(told, key=lambda one: int(one["generation"])):
        if tx.row("SELECT 1 FROM compactions WHERE session_no = ? AND generation = ?", (no, one["generation"])):
            continue
        if tx.row("SELECT 1 FROM compactions WHERE session_no = ? AND generation > ?", (no, one["generation"])):
            continue  # a number is never used behind a later one
        _insert(tx, no, one, places, parents, hidden, target, as_shared)
        added += 1
    there = tx.row("SELECT moves FROM compaction_heads WHERE session_no = ?", (no,))
    moves = coming.told.get("moves")
    if isinstance(moves, int) and moves > 0 and (added or there is None):
        head = _number_of(tx, coming.told.get("head"), parents)
        if head is None and coming.told.get("head") is not None:
            return added  # what it is seen through did not come
        tx.execute(
            "INSERT INTO compaction_heads (session_no, compaction_id, moves) VALUES (?1, ?2, ?3)"
            " ON CONFLICT (session_no) DO UPDATE SET compaction_id = ?2, moves = max(moves + 1, ?3)", (no, head, moves),
        )
    if added:
        changes.record(tx, "compactions", target.id, "insert", at)
    return added


def _agrees(tx: Transaction, no: int, told: Sequence[Mapping[str, Any]]) -> bool:
    """Whether everything that is here came from the same passes."""
    theirs = {(one["generation"], one["started_at"]) for one in told}
    mine = {tuple(row) for row in tx.rows(
        "SELECT generation, started_at FROM compactions WHERE session_no = ?", (no,)
    )}
    return mine <= theirs


def _insert(
    tx: Transaction, no: int, one: Mapping[str, Any], places: Places, parents: Mapping[str, int],
    hidden: Sequence[Hidden], target: Target, as_shared: bool,
) -> None:
    from maintenance.intake.target import edit_bound

    mark = int(one.get("edit_mark") or 0)
    bound = edit_bound(tx, target, [hide for hide in hidden if hide.number > mark])
    if bound is None:
        bound = int(tx.rows("SELECT coalesce(max(id), 0) FROM view_edits")[0][0])
    watermark = places.upto(one["watermark"])
    anchors = [places.exact(place) for place in one["anchors"]]
    clips = [(places.exact(item["position"]), item["clip"]) for item in one["clips"]]
    state, error = one["state"], one.get("error")
    if state == "running":
        state, error = "failed", _WAS_RUNNING
    values = {name: one.get(name) for name in PASS_COLUMNS} | {
        "session_no": no, "parent_id": _number_of(tx, one.get("parent"), parents), "state": state,
        "cut_at": min(places.upto(one["cut_at"] - 1) + 1, watermark + 1), "watermark": watermark, "edit_mark": bound,
        "anchors": _json(sorted(place for place in anchors if place is not None)),
        "error": None if error is None else _json(error),
        "owner": None if one.get("owner") is None else _json(one["owner"]),
        "ended_at": one["started_at"] if one.get("ended_at") is None else one["ended_at"],
    }
    names = ", ".join(values)
    tx.execute(f"INSERT INTO compactions ({names}) VALUES ({', '.join('?' * len(values))})", list(values.values()))
    number = tx.last_insert_rowid()
    tx.executemany(
        "INSERT INTO compaction_clips (compaction_id, position, clip) VALUES (?, ?, ?)",
        [(number, place, _json(clip)) for place, clip in clips if place is not None],
    )
    if state != "done":
        return
    source = source_of(tx, number)
    if source is None or source.rows != one["source_rows"] or not as_shared:
        tx.execute(
            "UPDATE compactions SET state = 'superseded', error = ? WHERE id = ?", (_json(_IN_PART), number)
        )
    else:
        tx.execute("UPDATE compactions SET source_digest = ? WHERE id = ?", (source.digest, number))


def _number_of(tx: Transaction, named: Any, parents: Mapping[str, int]) -> int | None:
    if not isinstance(named, dict):
        return None
    no, generation = parents.get(str(named.get("session_id"))), named.get("generation")
    if no is None or not isinstance(generation, int):
        return None
    row = tx.row("SELECT id FROM compactions WHERE session_no = ? AND generation = ?", (no, generation))
    return None if row is None else int(row[0])


def _whole(one: Mapping[str, Any]) -> bool:
    """Whether a record can be a row: its kinds of values, and what the schema demands of its state."""
    numbers = ("generation", "cut_at", "watermark", *_NUMBERS)
    if not all(type(one.get(name)) is int and abs(one[name]) < 2**53 for name in numbers):
        return False
    if one["generation"] < 1 or one["window"] < 1 or one["source_rows"] < 0 or one.get("state") not in _STATES:
        return False
    if not all(isinstance(one.get(name), str) for name in ("tokenizer", "policy", "reason")):
        return False
    if not all(one.get(name) is None or isinstance(one[name], str) for name in (*_TEXTS, "source_digest")):
        return False
    if one.get("form") not in (None, *_FORMS) or type(one.get("tokens_after")) not in (int, type(None)):
        return False
    if type(one.get("edit_mark") or 0) is not int or not _time(one.get("started_at")):
        return False
    if one.get("ended_at") is not None and not _time(one["ended_at"]):
        return False
    if one["state"] == "done" and (one.get("form") is None or one.get("tokens_after") is None):
        return False
    if one["state"] == "done" and (one.get("source_digest") is None or (
        one["form"] != "none" and one.get("summary") is None
    )):
        return False
    anchors, clips = one.get("anchors"), one.get("clips")
    if not isinstance(anchors, list) or not all(type(place) is int for place in anchors):
        return False
    return isinstance(clips, list) and all(
        isinstance(item, dict) and type(item.get("position")) is int and "clip" in item for item in clips
    )


def _time(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, (int, float)) and 0 <= value < LATEST_TIME


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
