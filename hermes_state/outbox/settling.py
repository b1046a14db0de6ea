"""Settling a claim: one verdict for all its obligations, in one transaction.

Invariant: a verdict counts only while every row of the claim is ours: same fence, same owner, same content of the
store. A claim past its term that nobody took is still ours. Nothing here touches a settled row.

Not for: choosing what is sent (see `claims`). A verdict for each sibling was rejected: the receiver admits or refuses
one frame, and a refund of the first alone would leave the others an attempt poorer.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hermes_state.changes.records import record
from hermes_state.errors import StaleFence
from hermes_state.outbox.records import Claim, Obligation, read
from hermes_state.outbox.states import TERMINAL, TRANSITIONS, Event, State, lost
from hermes_state.outbox.verdicts import Accepted, Failed, Lost, NotAdmitted, Refused, Suppressed, Verdict

if TYPE_CHECKING:
    from hermes_state.engine import Transaction


def settle(tx: Transaction, claimed: Claim, verdict: Verdict, *, at: float) -> dict[int, State]:
    """Write the verdict of a claim; returns the state of each obligation. Raises `StaleFence`, and changes nothing."""
    incarnation = tx.row("SELECT incarnation FROM store")
    held = []
    for one in claimed:
        # Nothing but its end changes a claimed row, other than a renewal: the rest is as it was claimed.
        found = tx.row("SELECT fence, owner FROM outbox WHERE id = ? AND state = 'claimed'", (one.id,))
        if found != (one.fence, claimed.owner) or incarnation is None or incarnation[0] != claimed.incarnation:
            raise stale(tx, one, read(tx, one.id))
        held.append(one)
    return {one.id: _settle_one(tx, one, verdict, at=at) for one in held}


def stale(tx: Transaction, claimed: Obligation, now: Obligation | None) -> StaleFence:
    """The error of a claim that is not ours any more."""
    stands = "is gone" if now is None else f"is {now.state} (fence {now.fence})"
    return StaleFence(
        f"Obligation {claimed.dedupe_id!r} in {tx.path} was claimed with fence {claimed.fence} and {stands} now.",
        hint="Somebody else decided about it: do nothing more for it.",
        path=tx.path, name=claimed.dedupe_id, fence=claimed.fence, current=None if now is None else now.fence,
    )


def lose(tx: Transaction, one: Obligation, why: str, *, at: float) -> State:
    """What becomes of a claimed row whose sender is gone."""
    return _settle_one(tx, one, Lost(why=why), at=at)


def end_pending(tx: Transaction, one: Obligation, event: Event, why: str, *, at: float) -> State:
    """Drop or suppress what nobody is sending."""
    return _write(tx, one, TRANSITIONS[State.PENDING, event], {"verdict": str(event), "why": why}, at=at)


def _settle_one(tx: Transaction, one: Obligation, verdict: Verdict, *, at: float) -> State:
    said: dict[str, Any] = {"verdict": type(verdict).__name__}
    attempts, recoveries, refunds, due_at = one.attempts, one.recoveries, one.refunds, one.due_at
    match verdict:
        case Accepted(result=result):
            event = Event.ACCEPT
            said["result"] = dict(result)
        case Refused(why=why):
            event = Event.REFUSE
            said["why"] = why
        case Suppressed(why=why):
            event = Event.SUPPRESS
            said["why"] = why
        case NotAdmitted(why=why, retry_after=after):
            event = Event.NOT_ADMIT
            said["why"] = why
            refunds += 1
            due_at = at + (one.schedule.rest if after is None else max(0.0, after))
        case Failed(why=why, for_good=for_good):
            said["why"] = why
            attempts += 1
            last = attempts >= one.schedule.attempts
            event = Event.FAIL_FOR_GOOD if for_good else Event.FAIL_LAST if last else Event.FAIL
            due_at = at + one.schedule.after(attempts)
        case Lost(why=why):
            said["why"] = why
            event = lost(one.policy)
            recoveries += 1
            # It rests longer each time, so that what kills its sender cannot keep it dying; it is never given up.
            due_at = at if recoveries == 1 else at + one.schedule.after(recoveries - 1)
    state = TRANSITIONS[State.CLAIMED, event]
    return _write(
        tx, one, state, said, at=at, attempts=attempts, recoveries=recoveries, refunds=refunds, due_at=due_at
    )


def _write(
    tx: Transaction, one: Obligation, state: State, said: dict[str, Any], *, at: float, attempts: int | None = None,
    recoveries: int | None = None, refunds: int | None = None, due_at: float | None = None,
) -> State:
    tx.execute(
        "UPDATE outbox SET state = ?, owner = NULL, expires_boottime = NULL, verdict = ?, attempts = ?,"
        " recoveries = ?, refunds = ?, due_at = ?, settled_at = ? WHERE id = ?",
        (
            str(state), json.dumps({**said, "at": at}, ensure_ascii=False, default=str),
            one.attempts if attempts is None else attempts, one.recoveries if recoveries is None else recoveries,
            one.refunds if refunds is None else refunds, one.due_at if due_at is None else due_at,
            at if state in TERMINAL else None, one.id,
        ),
    )
    record(tx, "outbox", one.dedupe_id, "update", at)
    return state
