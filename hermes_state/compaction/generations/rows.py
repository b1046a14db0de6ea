"""Rows of compactions, heads and clips, read inside the caller's snapshot or transaction.

Invariant: one statement for each way of finding rows, all by an index; what is read is what stands there, in positions
of the session that the row belongs to.

Not for: deciding which generation counts (see `effective`), nor for changing rows (see `passes` and `heads`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hermes_state import json_values
from hermes_state.clock import ClockDomain
from hermes_state.compaction.clips import Clip
from hermes_state.compaction.generations.records import Generation
from hermes_state.conversation.context import parsed
from hermes_state.conversation.session_rows import Reads

_COLUMNS = (
    "id, parent_id, session_no, generation, state, cut_at, watermark, edit_mark, anchors, source_rows, source_digest,"
    " summary, form, summarizer, prompt_digest, window, tokenizer, tokens_fixed, tokens_reserved, tokens_before,"
    " tokens_after, policy, reason, turn, model, error, owner, renewals, boot_id, time_namespace, expires_boottime,"
    " term_seconds, started_at, ended_at"
)


@dataclass(frozen=True, kw_only=True)
class Head:
    """Which generation a session is to be seen through. `moves` is 0 when there is no row."""

    id: int | None
    moves: int


def head_of(reader: Reads, no: int) -> Head:
    """The head of a session."""
    row = reader.row("SELECT compaction_id, moves FROM compaction_heads WHERE session_no = ?", (no,))
    return Head(id=None, moves=0) if row is None else Head(id=row[0], moves=row[1])


def one(reader: Reads, id: int) -> Generation | None:
    """The generation in row `id`, None when there is none."""
    return next(iter(_found(reader, "WHERE id = ?", (id,))), None)


def running_of(reader: Reads, no: int) -> Generation | None:
    """The pass that is being made of a session, None when none is."""
    return next(iter(_found(reader, "WHERE session_no = ? AND state = 'running'", (no,))), None)


def all_running(reader: Reads) -> list[Generation]:
    """Every pass of the store that is being made, or was by somebody who is gone."""
    return _found(reader, "WHERE state = 'running' ORDER BY id", ())


def of_session(reader: Reads, no: int) -> list[Generation]:
    """The generations made in a session, oldest first."""
    return _found(reader, "WHERE session_no = ? ORDER BY generation", (no,))


def newest_of(reader: Reads, no: int, most: int) -> list[Generation]:
    """The `most` newest generations made in a session, newest first."""
    return _found(reader, "WHERE session_no = ? ORDER BY generation DESC LIMIT ?", (no, most))


def chain(reader: Reads, id: int | None) -> list[Generation]:
    """The generation in row `id` and those that it was made from, newest first."""
    found: list[Generation] = []
    seen: set[int] = set()
    while id is not None and id not in seen:
        seen.add(id)
        generation = one(reader, id)
        if generation is None:
            break
        found.append(generation)
        id = generation.parent_id
    return found


def summary_of(reader: Reads, generation: Generation) -> str | None:
    """The summary that a view through this generation begins with: its own, or the newest before it."""
    current: Generation | None = generation
    while current is not None:
        if current.form != "none":
            return current.summary
        current = None if current.parent_id is None else one(reader, current.parent_id)
    return None


def clips_of(reader: Reads, id: int, shift: int = 0) -> dict[int, Clip]:
    """What row `id` shows shortened, by position moved by `shift`.

    A clip that cannot be read is none: it only shortens, so its message is shown whole until the next pass.
    """
    return {
        position + shift: clip
        for position, text in reader.rows(
            "SELECT position, clip FROM compaction_clips WHERE compaction_id = ? ORDER BY position", (id,)
        )
        if (clip := Clip.read(text)) is not None
    }


def _found(reader: Reads, where: str, values: Sequence[Any]) -> list[Generation]:
    return [_generation(row) for row in reader.rows(f"SELECT {_COLUMNS} FROM compactions {where}", values)]


def _generation(row: tuple[Any, ...]) -> Generation:
    (id, parent_id, session_no, generation, state, cut_at, watermark, edit_mark, anchors, source_rows, source_digest,
     summary, form, summarizer, prompt_digest, window, tokenizer, tokens_fixed, tokens_reserved, tokens_before,
     tokens_after, policy, reason, turn, model, error, owner, renewals, boot_id, time_namespace, expires_boottime,
     term_seconds, started_at, ended_at) = row
    kept = _anchors(anchors, cut_at)
    return Generation(
        id=id, parent_id=parent_id, session_no=session_no, generation=generation, state=state, cut_at=cut_at,
        watermark=watermark, edit_mark=edit_mark,
        anchors=kept or (), damaged=kept is None, source_rows=source_rows,
        source_digest=source_digest, summary=summary, form=form, summarizer=summarizer, prompt_digest=prompt_digest,
        window=window, tokenizer=tokenizer, tokens_fixed=tokens_fixed, tokens_reserved=tokens_reserved,
        tokens_before=tokens_before, tokens_after=tokens_after, policy=policy, reason=reason, turn=turn, model=model,
        error=None if error is None else parsed(error, dict), owner_text=owner, renewals=renewals,
        domain=ClockDomain(boot_id=boot_id or "", time_namespace=time_namespace or ""),
        expires_boottime=expires_boottime, term_seconds=term_seconds, started_at=started_at, ended_at=ended_at,
    )


def _anchors(text: str, cut_at: int) -> tuple[int, ...] | None:
    """Positions below the cut, ascending; None when they cannot be read. `positions_json` wrote them."""
    try:
        found = json_values.read(text)
    except ValueError:
        return None
    if not isinstance(found, list) or any(type(one) is not int or one >= cut_at for one in found):
        return None
    return tuple(sorted(set(found)))


def positions_json(positions: Sequence[int]) -> str:
    """The `anchors` of a row."""
    return json.dumps(sorted(set(positions)), separators=(",", ":"))


