"""Messages as a person pages through them.

Invariant: a page costs what it shows: a position is found by its id, and each visible run is a range of the index.
What was rewound is left out unless asked for; what was compacted is shown, because it was said. What a compression
repeats for the model's sake is left out, as long as the session that it repeats is there. A cursor is a message
id; one that was deleted since still marks its place.

Not for: what a model is sent (see `context`). OFFSET was rejected: page 1,000 would read all pages before it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hermes_state.conversation.bodies import decode, read_contents
from hermes_state.conversation.context import is_compacted, parsed
from hermes_state.conversation.lineage import Segment, conversation_groups, names_of, segments, shown_under
from hermes_state.conversation.records import CARRIED_FROM, Message, Page, Window
from hermes_state.conversation.session_rows import BEING_DELETED, Reads, left_over, valid_number
from hermes_state.conversation.view import Action, View, view_of
from hermes_state.errors import Corrupt, InvalidInput, NotFound

COLUMNS = (
    "m.content_type, m.content, m.body_no, m.id, m.session_no, m.seq, m.role, m.tool_calls, m.tool_call_id,"
    " m.tool_name, m.finish_reason, m.token_count, m.reasoning, m.platform_message_id, m.client_key, m.created_at,"
    " m.extra"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """A visible run of one session's messages: a range of `seq`, and the view that says what hides each.

    `named` is the id under which they are shown; `repeats` says that some may repeat what a compression has hidden.
    """

    session_no: int
    first: int
    last: int
    offset: int
    view: View
    named: str
    repeats: bool


MOST = 1_000_000  # messages in one answer
Place = tuple[int, int]  # the number of a run, and a seq in it


def runs_of(reader: Reads, no: int, *, chain: bool, include_rewound: bool, live: bool = False) -> list[Run]:
    """The runs of a session's history, oldest first; with `chain` those of its whole conversation, root to tip.

    `live` leaves out what was compacted as well, and has what a compression repeats for the model's sake.
    """
    hiding: tuple[Action, ...] = () if include_rewound else ("rewind", "compact") if live else ("rewind",)
    groups = conversation_groups(reader, no) if chain else [segments(reader, no)]
    parts = [part for group in groups for part in group]
    names = names_of(reader, parts)
    again = set() if live else _continuations(reader, parts)
    return [
        Run(
            session_no=session_no, first=first, last=last, offset=offset, view=view, named=names[session_no],
            repeats=session_no in again,
        )
        for view in (_seen(reader, group) for group in groups)
        for session_no, first, last, offset in view.visible(*hiding)
    ]


def _seen(reader: Reads, group: Sequence[Segment]) -> View:
    """The view of the youngest session of a group, in which what a generation has taken out is hidden as compacted."""
    if is_compacted(reader, group[-1].session_no):
        from hermes_state.compaction.generations.effective import seen_view

        return seen_view(reader, group[-1].session_no)
    return view_of(reader, group)


def _continuations(reader: Reads, parts: Sequence[Segment]) -> set[int]:
    """Those sessions that may repeat messages of the one before. Without that one nothing is shown twice."""
    return {
        no for (no,) in reader.rows(
            "SELECT no FROM sessions WHERE no IN (SELECT value FROM json_each(?)) AND relation = 'continuation'",
            (json.dumps([part.session_no for part in parts]),),
        )
    }


def page(
    reader: Reads, no: int, *, before: int | None, after: int | None, limit: int, chain: bool, include_rewound: bool
) -> Page:
    """See `Messages.history`; call it inside a snapshot."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 0 < limit <= MOST:
        raise InvalidInput(f"limit is a whole number from 1 to {MOST}, not {limit!r}.", argument="limit")
    for name, cursor in (("before", before), ("after", after)):
        if cursor is not None:
            valid_number(name, cursor)
    runs = runs_of(reader, no, chain=chain, include_rewound=include_rewound)
    start = None if after is None else place_of(reader, runs, after)
    end = None if before is None else place_of(reader, runs, before, before=True)
    rows = list(_take(reader, _cut(runs, start, end), limit + 1, forward=after is not None))
    more = len(rows) > limit
    rows = rows[:limit] if after is not None else rows[:limit][::-1]
    messages = records(reader, rows)
    following = None if not more else messages[-1 if after is not None else 0].id
    return Page(messages=tuple(messages), next=following)


def around(reader: Reads, no: int, message_id: int, *, window: int, chain: bool, include_rewound: bool) -> Window:
    """See `Messages.around`; call it inside a snapshot."""
    if isinstance(window, bool) or not isinstance(window, int) or not 0 <= window <= MOST:
        raise InvalidInput(f"window is a whole number from 0 to {MOST}, not {window!r}.", argument="window")
    valid_number("message_id", message_id)
    runs = runs_of(reader, no, chain=chain, include_rewound=include_rewound)
    found = reader.rows("SELECT session_no, seq FROM messages WHERE id = ?", (message_id,))
    place = next((place for row in found if (place := _exact(runs, *row)) is not None), None)
    if place is None:
        raise not_here(reader, no, message_id)
    earlier = list(_take(reader, _cut(runs, None, place), window + 1, forward=False))
    later = list(_take(reader, _cut(runs, (place[0], place[1] - 1), None), window + 2, forward=True))
    if not later or later[0][0][3] != message_id:
        raise not_here(reader, no, message_id)  # it repeats another one
    shown = earlier[:window][::-1] + later[: window + 1]
    return Window(
        messages=tuple(records(reader, shown)), anchor=min(len(earlier), window), more_before=len(earlier) > window,
        more_after=len(later) > window + 1,
    )


def one(reader: Reads, message_id: int, *, or_preview: bool = False) -> Message:
    """The message of an id, whatever hides it. Raises `NotFound`.

    With `or_preview` the preview stands in for a body that is damaged, instead of `Corrupt`.
    """
    valid_number("message_id", message_id)
    found = reader.row(f"SELECT {COLUMNS} FROM messages m WHERE m.id = ?", (message_id,))
    under = None if found is None else shown_under(reader, found[4], found[5])
    if found is None or under is None:
        raise NotFound(
            f"There is no message {message_id} in {reader.path}.", hint="It was deleted, or never was here.",
            path=reader.path, message_id=message_id,
        )
    parts = [Segment(session_no=under)] if under == found[4] else segments(reader, under)
    view = _seen(reader, parts)
    offset = next(part.offset for part in view.parts if part.session_no == found[4])
    name = names_of(reader, parts)[under]
    return records(reader, [(found, name, view.hidden(found[5] + offset))], or_preview=or_preview)[0]


def count(reader: Reads, runs: Sequence[Run]) -> int:
    """How many messages the runs have: arithmetic over numbers.

    An index is scanned where some were deleted, and the rows where a compression may have repeated some.
    """
    total = 0
    for run in runs:
        newest, gaps = reader.rows(
            "SELECT coalesce((SELECT max(seq) FROM messages WHERE session_no = s.no), 0), s.deleted_messages"
            " FROM sessions s WHERE s.no = ?",
            (run.session_no,),
        )[0]
        last = min(run.last, newest)
        if run.repeats or gaps:
            total += reader.rows(
                f"SELECT count(*) FROM messages m WHERE session_no = ? AND seq BETWEEN ? AND ?{_but(run)}",
                (run.session_no, run.first, last),
            )[0][0]
        else:
            total += max(0, last - run.first + 1)
    return total


def newest_id(reader: Reads, runs: Sequence[Run]) -> int | None:
    """The id of the newest message of the runs, None when they have none."""
    for (row, _name, _hidden) in _take(reader, _cut(runs, None, None), 1, forward=False):
        return int(row[3])
    return None


def count_all(reader: Reads) -> int:
    """All messages that are stored for some session; what a deletion is still removing is not."""
    total = int(reader.rows("SELECT count(*) FROM messages")[0][0])
    for (no,) in reader.rows(
        f"SELECT no FROM sessions s WHERE active_at = 0 AND {left_over('s')} AND end_reason = ?", (BEING_DELETED,)
    ):
        for (seq,) in reader.rows("SELECT seq FROM messages WHERE session_no = ? ORDER BY seq DESC", (no,)):
            if shown_under(reader, no, seq) is not None:
                break
            total -= 1
    return total


def _but(run: Run) -> str:
    """Leaves out what a compression repeats for the model's sake, as a condition on rows `m` of that run."""
    if not run.repeats:
        return ""
    return f" AND (m.extra IS NULL OR NOT json_valid(m.extra) OR m.extra ->> '$.{CARRIED_FROM}' IS NULL)"


Shown = tuple[tuple[Any, ...], str, Action | None]  # a row of `COLUMNS`, the session's id, and what hides it


def records(reader: Reads, shown: Sequence[Shown], *, or_preview: bool = False) -> list[Message]:
    """Messages from rows. With `or_preview` the preview stands in for a body that is damaged. Else raises `Corrupt`."""
    rows = [row for row, _name, _hidden in shown]
    try:
        contents = read_contents(reader, rows)
    except Corrupt:
        if not or_preview:
            raise
        contents = [row[1] for row in rows]
    out = []
    for (row, session_id, hidden), raw in zip(shown, contents, strict=True):
        (content_type, _content, _body_no, message_id, _no, seq, role, calls, call_id, name, finish_reason, tokens,
         reasoning, platform_message_id, client_key, created_at, extra) = row
        out.append(Message(
            id=message_id, session_id=session_id, seq=seq, role=role, content=decode(content_type, raw),
            tool_calls=None if calls is None else parsed(calls, list), tool_call_id=call_id, tool_name=name,
            finish_reason=finish_reason, token_count=tokens, reasoning=reasoning,
            platform_message_id=platform_message_id, client_key=client_key, created_at=created_at,
            extra={} if extra is None else parsed(extra, dict), hidden=hidden,
        ))
    return out


# --- places ------------------------------------------------------------------------------------------------------


def place_of(reader: Reads, runs: Sequence[Run], message_id: int, *, before: bool = False) -> Place:
    """Where a cursor stands: at the message, or after the newest one of a lower id when it is gone or hidden.

    With `before` the place is one that ends before the cursor.
    """
    found = reader.rows("SELECT session_no, seq FROM messages WHERE id = ?", (message_id,))
    for row in found:
        place = _exact(runs, *row)
        if place is not None:
            return place
    for number in range(len(runs) - 1, -1, -1):
        seq = _newest_below(reader, runs[number], message_id)
        if seq is not None:
            return number, seq + 1 if before else seq
    return -1, 0


def _exact(runs: Sequence[Run], session_no: int, seq: int) -> Place | None:
    for number, run in enumerate(runs):
        if run.session_no == session_no and run.first <= seq <= run.last:
            return number, seq
    return None


def _newest_below(reader: Reads, run: Run, message_id: int) -> int | None:
    """The highest `seq` of a run whose id is at most `message_id`; ids rise with `seq`, so half the range each time."""
    top = reader.rows(
        "SELECT seq, id FROM messages WHERE session_no = ? AND seq BETWEEN ? AND ? ORDER BY seq DESC LIMIT 1",
        (run.session_no, run.first, run.last),
    )
    if not top:
        return None
    low, high, best = run.first, int(top[0][0]), None
    while low <= high:
        middle = (low + high) // 2
        seq, found = reader.rows(
            "SELECT seq, id FROM messages WHERE session_no = ? AND seq >= ? ORDER BY seq LIMIT 1",
            (run.session_no, middle),
        )[0]
        if found <= message_id:
            low, best = seq + 1, int(seq)
        else:
            high = middle - 1
    return best


def _cut(runs: Sequence[Run], start: Place | None, end: Place | None) -> list[tuple[Run, int, int]]:
    """The runs after `start` and before `end`, each with its first and last `seq`."""
    out = []
    for number, run in enumerate(runs):
        first, last = run.first, run.last
        if start is not None:
            if number < start[0]:
                continue
            if number == start[0]:
                first = max(first, start[1] + 1)
        if end is not None:
            if number > end[0]:
                continue
            if number == end[0]:
                last = min(last, end[1] - 1)
        if first <= last:
            out.append((run, first, last))
    return out


def _take(
    reader: Reads, cut: Sequence[tuple[Run, int, int]], limit: int, *, forward: bool
) -> Iterator[Shown]:
    """Up to `limit` rows and what hides each, from the oldest on or from the newest back."""
    order = "" if forward else "DESC"
    for run, first, last in cut if forward else reversed(cut):
        rows = reader.rows(
            f"SELECT {COLUMNS} FROM messages m WHERE m.session_no = ? AND m.seq BETWEEN ? AND ?{_but(run)}"
            f" ORDER BY m.seq {order} LIMIT ?",
            (run.session_no, first, last, limit),
        )
        for row in rows:
            yield row, run.named, run.view.hidden(row[5] + run.offset)
        limit -= len(rows)
        if limit <= 0:
            return


def not_here(reader: Reads, no: int, message_id: int) -> NotFound:
    """The error for a message that is not in the session's view."""
    (session_id,) = reader.rows("SELECT id FROM sessions WHERE no = ?", (no,))[0]
    return NotFound(
        f"Message {message_id} is not to be seen in session {session_id!r} of {reader.path}.",
        hint="It belongs to another session, was rewound, or was deleted.", path=reader.path, session_id=session_id,
        message_id=message_id,
    )


def from_position(runs: Sequence[Run], position: int) -> list[Run]:
    """What of one session's runs lies at `position` of its view or after."""
    out = []
    for run in runs:
        first = max(run.first, position - run.offset)
        if first <= run.last:
            out.append(replace(run, first=first))
    return out
