"""Heads: going back to an older generation, what a branch takes over, and which generation hides what.

Invariant: a head only moves to a generation that is done, by compare-and-set, and every move is in the feed of changes.
A branch takes the head over, not rows. Going back adds and removes no row: the newer generations stay to go to again.

Not for: commits (see `committing`). Deleting what was gone back from was rejected: it could not be taken up again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from hermes_state.changes import record
from hermes_state.compaction.generations import effective, rows
from hermes_state.compaction.generations.committing import move_head
from hermes_state.compaction.generations.live import generation_id
from hermes_state.compaction.generations.records import Generation
from hermes_state.conversation import history
from hermes_state.conversation.records import Message
from hermes_state.conversation.session_rows import Reads, valid_number, wall_time, writable_no
from hermes_state.errors import NotFound, ViewMoved

if TYPE_CHECKING:
    from hermes_state.engine import Transaction
    from hermes_state.engine.core import Core


def rollback(core: Core, session_id: str, generation: int, *, moves: int | None = None) -> Generation | None:
    """See a session through one of its done generations, older or newer (0: the whole history), from now on.

    Returns the generation that it is really seen through then: an older one when messages that the chosen one covers
    were taken back since, None for the whole history. `moves`: only if its head was moved so often (`LiveView`).
    Committed at "power"; nothing is written when it is the head already. Raises `NotFound` (no such generation that is
    done), `ViewMoved`, `SessionReplaced`, `InvalidInput`, and as every write.
    """
    valid_number("generation", generation)

    def work(tx: Transaction) -> Generation | None:
        no = writable_no(tx, session_id)
        story, head = effective.story_of(tx, no), rows.head_of(tx, no)
        if moves is not None and moves != head.moves:
            raise ViewMoved(
                f"Session {session_id!r} of {tx.path} was moved to another generation meanwhile.",
                hint="Look at its generations again.", path=tx.path, session_id=session_id, because="head_moved",
            )
        target = generation_id(tx, story, generation)
        if target != head.id:
            move_head(tx, no, target, seen=head)
            record(tx, "compaction_heads", session_id, "update", wall_time(core.clock))
        return effective.effective(tx, story, target)

    return core.write(work, durability="power")


def take_over(tx: Transaction, no: int, parent_no: int) -> None:
    """Let a new session that shares its parent's messages be seen as its parent is, as far as they are shared."""
    head = rows.head_of(tx, parent_no)
    if head.id is None:
        return
    found = effective.effective(tx, effective.story_of(tx, no), head.id)
    if found is not None:
        move_head(tx, no, found.id, seen=rows.Head(id=None, moves=0))


def generations_of(reader: Reads, no: int) -> tuple[Generation, ...]:
    """Every generation made in a session, and those that it has taken over, oldest first, in its positions."""
    story = effective.story_of(reader, no)
    found = {one.id: one for one in effective.reachable(reader, story).values()}
    for one in rows.of_session(reader, no):
        found[one.id] = effective.placed_in(story, one) or one
    return tuple(sorted(found.values(), key=lambda one: (one.generation, one.id)))


def hidden_by(reader: Reads, no: int, positions: Iterable[int]) -> dict[int, int]:
    """Which of these positions of a session a compaction hides from its context: the number of the generation that
    took each out first. What is in the context, or taken back, is left out.

    A message of the session itself is at its `seq`.
    """
    story = effective.story_of(reader, no)
    current = effective.effective(reader, story, rows.head_of(reader, no).id)
    left = {one for one in positions if story.view.hidden(one) is None}
    found: dict[int, int] = {}
    while current is not None and left:
        ranges = effective.shown(reader, story, current)
        left = {one for one in left if not any(first <= one <= last for first, last in ranges)}
        found.update(dict.fromkeys(left, current.generation))
        parent = None if current.parent_id is None else rows.one(reader, current.parent_id)
        current = None if parent is None else effective.placed_in(story, parent)
    return found


def recover(reader: Reads, no: int, seq: int) -> Message:
    """The whole message at position `seq` of a session, whatever hides it or shows it shortened.

    `seq` is the number of a message of the session itself; what a branch shares with its parent is at 0 and below, as
    clips name it. Raises `NotFound` when it was deleted or never was, `InvalidInput`, `Corrupt`.
    """
    valid_number("seq", seq)
    story = effective.story_of(reader, no)
    for part in story.view.parts:
        if part.first <= seq <= part.last:
            row = reader.row(
                "SELECT id FROM messages WHERE session_no = ? AND seq = ?", (part.session_no, seq - part.offset)
            )
            if row is not None:
                return history.one(reader, row[0])
    (session_id,) = reader.rows("SELECT id FROM sessions WHERE no = ?", (no,))[0]
    raise NotFound(
        f"Session {session_id!r} of {reader.path} has no message {seq}.",
        hint="It was deleted, or never was here; history shows what is there.", path=reader.path,
        session_id=session_id, seq=seq,
    )
