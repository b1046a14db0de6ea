"""Deleting sessions: what goes with them, who keeps them, and at what pace.

Invariant: a deletion is there at once and whole, in one transaction; the rows of a large session follow in short ones,
and a crash in between leaves them to the next deletion, which finishes it (see `removal_steps`). Nothing that another
session still shows is removed.

What goes with a session: its delegates, their delegates, and what continues those; its messages, edits, usage rows and
streams; bodies and shared texts that nothing else uses. What stays: its continuations (they become roots, unless whole
conversations are deleted), branches and resets, the store's usage by day, and the messages that a branch shares. Those
are kept in a row that nobody gets hold of: they are shown as the branch's, and go with the last branch that shares
them.

Who is at work in a session keeps it from being deleted: a lease named `turn:ID`, `compaction:ID` or `write:ID` whose
owner is neither dead nor late, an unsettled stream whose owner is not proven dead, and a compaction whose maker is at
work. A turn keeps the whole conversation: its lease is named after the first session, and with one in the middle gone
the rest would be a conversation of its own, which somebody else could begin a turn of. What the conversation made
(continuations, delegates and theirs) belongs to it.

Not for: choosing what to delete (see the prune command), nor single messages (see `single_deletes`). One transaction
for any size was rejected: it would hold the write lock for as long as a million messages take.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from hermes_state.conversation.lineage import chain_numbers
from hermes_state.conversation.removal_steps import (
    DEFAULT_HORIZON_SECONDS,
    GUARDING_LEASES,
    Deleted,
    is_left_over,
    left_behind,
    remove_left_behind,
    take_out,
)
from hermes_state.conversation.session_rows import required_text, session_no, valid_seconds, wall_time
from hermes_state.errors import InvalidInput, SessionGuarded
from hermes_state.leases import rows as lease_rows
from hermes_state.leases.states import ACQUIRE, Outcome, standing
from hermes_state.owners import OwnerIdentity, Verdict, provably_dead

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction
    from hermes_state.engine.core import Core

__all__ = ["DEFAULT_HORIZON_SECONDS", "Deleted", "delete", "delete_if_empty", "finish", "guard_of", "refuse_guarded"]
# One transaction takes 1 to 5 ms (measured with bodies of 300 bytes to 40 KB).
BATCH_MESSAGES = 500
BATCH_SESSIONS = 50
PAUSE_SECONDS = 0.004  # between two transactions, so that others get the write lock


def delete(
    core: Core, ids: Sequence[str], *, actor: str, reason: str, whole_conversations: bool = False,
    horizon_seconds: float = DEFAULT_HORIZON_SECONDS,
) -> Deleted:
    """Remove sessions, in as many short transactions as it takes. See `sessions.delete`.

    What earlier deletions left goes at the end with the rest: trouble with it cannot keep this one from being made.
    """
    actor, reason = required_text("actor", actor), required_text("reason", reason)
    horizon_seconds = valid_seconds("horizon_seconds", horizon_seconds)
    seeds: list[int] = []
    with core.reader() as reader, reader.snapshot():
        for session_id in dict.fromkeys(ids):
            no = session_no(reader, session_id)
            # Tips first, so that nothing is detached that goes next.
            seeds += reversed(chain_numbers(reader, no)) if whole_conversations else [no]
        seeds = list(dict.fromkeys(seeds))
        for seed in seeds:
            refuse_guarded(core, reader, _plan(reader, seed))
    asked, steps, at = frozenset(seeds), list[Deleted](), 0
    while at < len(seeds):

        def some(tx: Transaction, start: int = at) -> tuple[Deleted, int]:
            numbers, following = _group(tx, seeds, start)
            refuse_guarded(core, tx, numbers)
            return take_out(
                tx, numbers, actor=actor, reason=reason, at=wall_time(core.clock), limit=BATCH_MESSAGES,
                horizon_seconds=horizon_seconds, asked=asked,
            ), following

        if steps:
            core.clock.sleep(PAUSE_SECONDS)
        try:
            done, at = core.write(some, durability="power")
        except SessionGuarded as error:
            if not steps:
                raise
            removed = tuple(one for step in steps for one in step.sessions)
            finish(core)
            raise SessionGuarded(
                f"{error.message} {len(removed)} sessions before it were.", hint=error.hint, removed=removed,
                **error.facts,
            ) from error
        steps.append(done)
    finish(core)
    gone = {one for step in steps for one in step.sessions}
    return Deleted(
        sessions=tuple(one for step in steps for one in step.sessions),
        delegates=tuple(one for step in steps for one in step.delegates),
        messages=sum(step.messages for step in steps), kept_messages=sum(step.kept_messages for step in steps),
        detached=tuple(one for step in steps for one in step.detached if one not in gone),
    )


def delete_if_empty(core: Core, session_id: str, *, actor: str, reason: str) -> bool:
    """Remove a session without messages, title and children, looked at and removed in one transaction."""
    actor, reason = required_text("actor", actor), required_text("reason", reason)

    def work(tx: Transaction) -> bool:
        no = session_no(tx, session_id)
        empty = tx.row(
            "SELECT 1 FROM sessions s WHERE no = ? AND title IS NULL"
            " AND NOT EXISTS (SELECT 1 FROM messages WHERE session_no = s.no)"
            " AND NOT EXISTS (SELECT 1 FROM streams WHERE session_no = s.no)"
            " AND NOT EXISTS (SELECT 1 FROM sessions c WHERE c.parent_no = s.no)",
            (no,),
        )
        if empty is None or guard_of(core, tx, no) is not None:
            return False
        take_out(tx, [no], actor=actor, reason=reason, at=wall_time(core.clock), limit=0)
        return True

    gone = core.write(work, durability="power")
    if gone:
        finish(core)  # it may have been the last branch of something
    return gone


def finish(core: Core) -> None:
    """Remove what deletions have left behind, also those that a crash ended; pauses before each transaction."""
    with core.reader() as reader:
        waiting = left_behind(reader) > 0
    while waiting:
        core.clock.sleep(PAUSE_SECONDS)
        waiting = core.write(lambda tx: remove_left_behind(tx, BATCH_MESSAGES))


# --- who is at work ----------------------------------------------------------------------------------------------

# The turns that are had of a session and of those that it continues or is a delegate of; ends in a circle too.
_TURNS = """
WITH RECURSIVE up (no) AS (
    SELECT ?1
    UNION SELECT s.parent_no FROM up JOIN sessions s ON s.no = up.no
        WHERE s.relation IN ('continuation', 'delegate') AND s.parent_no IS NOT NULL
)
SELECT l.name FROM up JOIN sessions s ON s.no = up.no JOIN leases l ON l.name = 'turn:' || s.id
    WHERE l.owner IS NOT NULL
"""

def refuse_guarded(core: Core, reader: Reader, numbers: Iterable[int]) -> None:
    """Raise `SessionGuarded` when somebody is at work in one of these sessions."""
    for no in numbers:
        guard = guard_of(core, reader, no)
        if guard is not None:
            session_id = reader.rows("SELECT id FROM sessions WHERE no = ?", (no,))[0][0]
            raise SessionGuarded(
                f"Session {session_id!r} of {reader.path} is in use ({guard}); it was not deleted.",
                hint="Delete it when that is done, or stop that process.",
                path=reader.path, session_id=session_id, guard=guard,
            )


def guard_of(core: Core, reader: Reader, no: int) -> str | None:
    """What keeps a session from being deleted, in words; None when nothing does."""
    row = reader.row("SELECT id FROM sessions WHERE no = ?", (no,))
    if row is None:
        return None
    clock, home = core.clock, core.path.parent
    names = [f"{kind}:{row[0]}" for kind in GUARDING_LEASES]
    for name in dict.fromkeys([*names, *(str(name) for (name,) in reader.rows(_TURNS, (no,)))]):
        lease = lease_rows.read(reader, name)
        if lease is None or lease.owner is None:
            continue
        owner = lease.identity

        def judge(owner: OwnerIdentity | None = owner) -> Verdict:
            if owner is None:
                return Verdict(dead=False, because="it cannot be read")
            return provably_dead(owner, home, clock=clock)

        view = standing(lease, now=clock.boottime(), domain=clock.domain(), sighting=None, judge=judge)
        if ACQUIRE[view] is not Outcome.TAKE:
            return f"lease {lease.name} of {owner if owner is not None else 'an unknown owner'}"
    for (text,) in reader.rows("SELECT owner FROM streams WHERE session_no = ?", (no,)):
        try:
            owner = OwnerIdentity.from_json(text)
        except InvalidInput:
            return "a message that an unknown owner is still receiving"
        if not provably_dead(owner, home, clock=clock).dead:
            return f"a message that {owner} is still receiving"
    if reader.row("SELECT 1 FROM compactions WHERE session_no = ? AND state = 'running'", (no,)) is not None:
        from hermes_state.compaction.generations.makers import maker_at_work

        maker = maker_at_work(core, reader, no)
        if maker is not None:
            return f"a compaction that {maker} is making"
    return None


# --- what goes -----------------------------------------------------------------------------------------------------


def _group(tx: Transaction, seeds: Sequence[int], start: int) -> tuple[list[int], int]:
    """What of the seeds from `start` on one transaction takes out, children before parents; and where to go on."""
    numbers: dict[int, None] = {}
    messages, at = 0, start
    while at < len(seeds) and messages < BATCH_MESSAGES and len(numbers) < BATCH_SESSIONS:
        # A seed may have gone as the delegate of an earlier one, or by another process.
        for no in _plan(tx, seeds[at]):
            if no not in numbers:
                numbers[no] = None
                messages += tx.rows("SELECT coalesce(max(seq), 0) FROM messages WHERE session_no = ?", (no,))[0][0]
        at += 1
    return list(numbers), at


def _plan(reader: Reader, seed: int) -> list[int]:
    """The session and what goes with it, children before parents; empty when it is gone already."""
    if is_left_over(reader, seed):
        return []
    above, current = {seed}, reader.rows("SELECT parent_no FROM sessions WHERE no = ?", (seed,))[0][0]
    while current is not None and current not in above:
        above.add(current)
        current = reader.rows("SELECT parent_no FROM sessions WHERE no = ?", (current,))[0][0]
    plan, known, at = [seed], set(above), 0
    while at < len(plan):
        # What continues a delegate is the same delegate; what continues the session itself stays.
        kinds = "('delegate')" if plan[at] == seed else "('delegate', 'continuation')"
        for (child,) in reader.rows(
            f"SELECT no FROM sessions WHERE parent_no = ? AND relation IN {kinds}", (plan[at],)
        ):
            if child not in known:
                known.add(child)
                plan.append(child)
        at += 1
    return plan[::-1]
