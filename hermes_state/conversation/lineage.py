"""What sessions are to each other: the walks up and down, continuing one, and branching off one.

Invariant: a conversation is a chain of sessions, each a continuation of the one before; its tip is where messages go. A
walk has no depth limit and ends in any file, also where an import made a circle. Continuing a session (the parent is
`replaced`, the child exists, the title moved) is one transaction: there is no half.

    relation      what the child is                          on delete of the parent    listed
    continuation  the same conversation, after compression   kept, becomes a root       as one entry with its chain
                  (it may share the parent's messages)       (a branch, if it shares)
    branch        another way on from one of its messages    kept with what it shares   yes
    delegate      work done for it by a sub-agent            deleted with it            no
    reset         a new conversation of the same peer        kept                       yes
    other         anything else with a parent                kept                       no

A branch copies no rows: it shares its parent's messages up to `branched_at_seq`, as they were to be seen then. What is
kept of a deleted parent (see `removal`) is nobody's but its branches': it is shown under the id of one of them.

Not for: reading messages (see `messages`, which reads `segments`). Choosing the tip by times alone was rejected: clocks
go back, and a stale closed sibling is often younger than the live one.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from hermes_state.conversation.session_rows import Reads, left_over


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """A run of messages of one session that belongs to a conversation."""

    session_no: int
    # messages with a higher `seq` do not belong to it; None: all do. Below 0: so many fewer of the segment before
    upto_seq: int | None = None
    # view edits with a higher id do not change it, nor do restores of theirs; None: all do
    upto_edit: int | None = None


def segments(reader: Reads, no: int) -> list[Segment]:
    """Whose messages the model's context of a session is made of, oldest first.

    For most sessions this is the session alone. For a branch its parent's part comes first, and if the parent is a
    branch itself, its parent's before that; so for a continuation that was made by rotating (it shares as a branch).
    """
    found: list[Segment] = []
    seen: set[int] = set()
    current: int | None = no
    upto_seq = upto_edit = None
    while current is not None and current not in seen:
        seen.add(current)
        found.append(Segment(session_no=current, upto_seq=upto_seq, upto_edit=upto_edit))
        row = reader.row(
            "SELECT parent_no, branched_at_seq, branched_at_edit FROM sessions WHERE no = ?"
            " AND (relation = 'branch' OR (relation = 'continuation' AND branched_at_seq IS NOT NULL))",
            (current,),
        )
        if row is None:
            break
        current, upto_seq = row[0], row[1] or 0
        # An older edge bounds what a younger one sees as well.
        upto_edit = row[2] if upto_edit is None else upto_edit if row[2] is None else min(upto_edit, row[2])
    return found[::-1]


# The sessions that show message ?2 of the deleted session ?1, nearest first. `at` is its number on the branch's axis
# (see `view`), below 1 when the branch shares it; the steps end in a circle too.
_SHOWING = f"""
WITH RECURSIVE below (no, at, step) AS (
    SELECT no, ?2 - branched_at_seq, 1 FROM sessions
        WHERE parent_no = ?1 AND relation = 'branch' AND branched_at_seq >= ?2
    UNION SELECT c.no, at - c.branched_at_seq, step + 1 FROM below JOIN sessions s ON s.no = below.no
        JOIN sessions c ON c.parent_no = s.no AND c.relation = 'branch' AND c.branched_at_seq >= at
        WHERE {left_over('s')} AND step < 1000
)
SELECT s.no FROM below JOIN sessions s ON s.no = below.no WHERE NOT {left_over('s')} ORDER BY step, s.no
"""


def shown_under(reader: Reads, no: int, seq: int) -> int | None:
    """The session that message `seq` of session `no` belongs to for callers: `no`, or a branch when `no` was deleted.

    None when no branch shares it: it is about to be removed.
    """
    if reader.row(f"SELECT 1 FROM sessions s WHERE no = ? AND {left_over('s')}", (no,)) is None:
        return no
    row = reader.row(f"{_SHOWING} LIMIT 1", (no, seq))
    return None if row is None else int(row[0])


def reaches(parts: Sequence[Segment]) -> list[int | None]:
    """The last message number of each segment that belongs to the youngest; below 1: nothing of it; None: all.

    A branch at a message that its parent only shares has a bound below 1 there, and so shares less of what is above.
    """
    found: list[int | None] = []
    missing = 0
    for part in reversed(parts):
        last = None if part.upto_seq is None else part.upto_seq + missing
        missing = 0 if last is None else min(last, 0)
        found.append(last)
    return found[::-1]


def names_of(reader: Reads, parts: Sequence[Segment]) -> dict[int, str]:
    """The ids under which the messages of these segments are shown, by session number.

    What is kept of a deleted session has that of the next segment, which shares it.
    """
    found = {
        no: None if kept else str(session_id)
        for no, session_id, kept in reader.rows(
            f"SELECT no, id, {left_over('s')} FROM sessions s WHERE no IN (SELECT value FROM json_each(?))",
            (json.dumps([part.session_no for part in parts]),),
        )
    }
    names: dict[int, str] = {}
    following: str | None = None
    for part in reversed(parts):
        following = found.get(part.session_no) or following
        if following is not None:
            names[part.session_no] = following
    return names


def conversation_segments(reader: Reads, no: int) -> list[Segment]:
    """Whose messages the whole conversation is made of, oldest first: every session of the chain, root to tip.

    A session before the first compression that branched off another brings the shared part with it.
    """
    return [part for group in conversation_groups(reader, no) for part in group]


def conversation_groups(reader: Reads, no: int) -> list[list[Segment]]:
    """The same in groups of one view each: a session, with those before it whose messages it shares."""
    chain = chain_numbers(reader, no)
    groups = [segments(reader, chain[0])]
    for later in chain[1:]:
        if reader.row("SELECT 1 FROM sessions WHERE no = ? AND branched_at_seq IS NOT NULL", (later,)) is None:
            groups.append([Segment(session_no=later)])
        else:
            groups[-1] = segments(reader, later)
    return groups


def root_no(reader: Reads, no: int) -> int:
    """The first session of the conversation: up while a session is a continuation."""
    return _up(reader, no)[-1]


def tip_no(reader: Reads, no: int) -> int:
    """The session in which the conversation of `no` goes on: `no` itself when nothing continues it."""
    return _down(reader, no)[-1]


def chain_numbers(reader: Reads, no: int) -> list[int]:
    """The sessions of the conversation of `no`: from the root to `no`, and on from there to the tip."""
    above = _up(reader, no)
    return above[:0:-1] + _down(reader, no, seen=set(above))


def _up(reader: Reads, no: int) -> list[int]:
    chain, seen = [no], {no}
    while True:
        row = reader.row("SELECT parent_no FROM sessions WHERE no = ? AND relation = 'continuation'", (chain[-1],))
        if row is None or row[0] is None or row[0] in seen:
            return chain
        chain.append(int(row[0]))
        seen.add(chain[-1])


def _down(reader: Reads, no: int, seen: set[int] | None = None) -> list[int]:
    chain, seen = [no], {no} if seen is None else seen
    while True:
        following = next_no(reader, chain[-1], seen)
        if following is None:
            return chain
        chain.append(following)
        seen.add(following)


def next_no(reader: Reads, no: int, seen: Collection[int] = ()) -> int | None:
    """The session that a session goes on in: the continuation with the best claim that is not in `seen`, or None."""
    children = [row for row in continuations(reader, no) if row[0] not in seen]
    return int(max(children, key=_claim)[0]) if children else None


def continuations(reader: Reads, no: int) -> list[tuple[Any, ...]]:
    """The continuations of a session, with what the choice between several needs."""
    return reader.rows(
        "SELECT no, state, started_at, (SELECT created_at FROM messages m WHERE m.session_no = c.no"
        " ORDER BY seq DESC LIMIT 1) FROM sessions c WHERE parent_no = ? AND relation = 'continuation'",
        (no,),
    )


def _claim(child: tuple[Any, ...]) -> tuple[int, float, float, int]:
    """The higher claim wins: one that went on itself, then a live one, then the latest activity, start and number."""
    no, state, started_at, newest = child
    rank = {"replaced": 2, "open": 1, "ended": 0}[state]
    return rank, started_at if newest is None else newest, started_at, no


def is_ancestor(reader: Reads, no: int, other: int) -> bool:
    """True when `no` is `other` or above it, by parent links of any kind."""
    seen: set[int] = set()
    current: int | None = other
    while current is not None and current not in seen:
        if current == no:
            return True
        seen.add(current)
        row = reader.row("SELECT parent_no FROM sessions WHERE no = ?", (current,))
        current = None if row is None else row[0]
    return False
