"""Settling a claim: one verdict for all its obligations, in one transaction.

Invariant: a verdict counts only while every row of the claim is ours: same fence, same owner, same content of the
store. A claim past its term that nobody took is still ours; so is one that was taken for lost and made pending, until
somebody claims the row again: the late verdict is the truth, and spares a second sending. Nothing here touches a
settled row.

Not for: choosing what is sent (see `claims`). A verdict for each sibling was rejected: the receiver admits or refuses
one frame, and a refund of the first alone would leave the others an attempt poorer.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from hermes_state.changes.records import record
from hermes_state.errors import StaleFence
from hermes_state.outbox.inputs import MOST_REASON
from hermes_state.outbox.records import Claim, Obligation, read
from hermes_state.outbox.schedules import schedule_for
from hermes_state.outbox.states import TERMINAL, TRANSITIONS, Event, State, lost
from hermes_state.outbox.verdicts import Accepted, Failed, Lost, NotAdmitted, Refused, Suppressed, Verdict

if TYPE_CHECKING:
    from hermes_state.engine import Transaction


def settle(tx: Transaction, claimed: Claim, verdict: Verdict, *, at: float) -> dict[int, State]:
    """Write the verdict of a claim; returns the state of each obligation. Raises `StaleFence`, and changes nothing."""
    incarnation = tx.row("SELECT incarnation FROM store")
    ours = incarnation is not None and incarnation[0] == claimed.incarnation
    held = []
    for one in claimed:
        # Nothing but its end changes a claimed row, other than a renewal: the rest is as it was claimed.
        found = tx.row("SELECT fence, owner FROM outbox WHERE id = ? AND state = 'claimed'", (one.id,))
        if ours and found == (one.fence, claimed.owner):
            held.append(one)
            continue
        now = read(tx, one.id)
        if now is None or not ours or not _given_back(now, one):
            raise stale(tx, one, now)
        held.append(now)
    return {
        # Said again that it is lost: that was written when its claim was taken for lost.
        one.id: one.state if one.state is State.PENDING and isinstance(verdict, Lost)
        else _settle_one(tx, one, verdict, at=at)
        for one in held
    }


def _given_back(now: Obligation, claimed: Obligation) -> bool:
    """Whether a row is pending since this very claim was taken for lost."""
    return (
        now.state is State.PENDING and now.fence == claimed.fence and now.verdict is not None
        and now.verdict.get("verdict") == Lost.__name__
    )


def stale(tx: Transaction, claimed: Obligation, now: Obligation | None) -> StaleFence:
    """The error of a claim that is not ours any more."""
    stands = "is gone" if now is None else f"is {now.state} (fence {now.fence})"
    if now is not None and now.state is State.UNKNOWN and now.fence == claimed.fence:
        hint = "Its term ran out before the verdict came, and unknown is final. Renew the claim of what sends slowly."
    else:
        hint = "Somebody else decided about it: do nothing more for it."
    return StaleFence(
        f"Obligation {claimed.dedupe_id!r} in {tx.path} was claimed with fence {claimed.fence} and {stands} now.",
        hint=hint, path=tx.path, name=claimed.dedupe_id, fence=claimed.fence,
        current=None if now is None else now.fence, state=None if now is None else now.state,
    )


def lose(tx: Transaction, one: Obligation, why: str, *, at: float) -> State:
    """What becomes of a claimed row whose sender is gone."""
    return _settle_one(tx, one, Lost(why=why), at=at)


def end_pending(tx: Transaction, one: Obligation, event: Event, why: str, *, at: float) -> State:
    """Drop or suppress what nobody is sending."""
    return _write(tx, one, TRANSITIONS[State.PENDING, event], {"verdict": str(event), "why": why}, at=at)


def _settle_one(tx: Transaction, one: Obligation, verdict: Verdict, *, at: float) -> State:
    said: dict[str, Any] = {"verdict": type(verdict).__name__}
    attempts, recoveries, refunds = one.attempts, one.recoveries, one.refunds
    rest: float | None = None  # seconds from now until it is due; None: as it was
    # One that cannot be read stops nobody: the row ends, or waits, as its kind does.
    schedule = schedule_for(one.kind) if "schedule" in one.unreadable else one.schedule
    if one.state is State.PENDING:  # it came late: the sender was not lost after all
        recoveries = max(0, recoveries - 1)
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
            rest = schedule.rest if after is None else after
        case Failed(why=why, for_good=for_good):
            said["why"] = why
            attempts += 1
            last = attempts >= schedule.attempts
            event = Event.FAIL_FOR_GOOD if for_good else Event.FAIL_LAST if last else Event.FAIL
            rest = schedule.after(attempts)
        case Lost(why=why):
            said["why"] = why
            if one.owner is not None:
                said["sender"] = one.owner  # for whoever has to find out what became of it
            event = lost(one.policy)
            recoveries += 1
            # It rests longer each time, so that what kills its sender cannot keep it dying; it is never given up.
            rest = 0.0 if recoveries == 1 else schedule.after(recoveries - 1)
    state = TRANSITIONS[one.state, event]
    return _write(
        tx, one, state, said, at=at, attempts=attempts, recoveries=recoveries, refunds=refunds,
        due=None if rest is None else (at + rest, schedule.within(rest)),
    )


def _write(
    tx: Transaction, one: Obligation, state: State, said: dict[str, Any], *, at: float, attempts: int | None = None,
    recoveries: int | None = None, refunds: int | None = None, due: tuple[float, float] | None = None,
) -> State:
    tx.execute(
        "UPDATE outbox SET state = ?, owner = NULL, expires_boottime = NULL, verdict = ?, attempts = ?,"
        " recoveries = ?, refunds = ?, due_at = coalesce(?, due_at), due_within = coalesce(?, due_within),"
        " settled_at = ? WHERE id = ?",
        (
            str(state), _stored({**said, "at": at}),
            one.attempts if attempts is None else attempts, one.recoveries if recoveries is None else recoveries,
            one.refunds if refunds is None else refunds, *(due or (None, None)),
            at if state in TERMINAL else None, one.id,
        ),
    )
    record(tx, "outbox", one.dedupe_id, "update", at)
    return state


def _stored(said: dict[str, Any]) -> str:
    """A verdict as JSON that any reader can take: a lone surrogate becomes its escape, too long a reason is cut."""
    why = said.get("why", "")
    if len(why) > MOST_REASON:
        said = {**said, "why": f"{why[:MOST_REASON]}... ({len(why):,} characters)"}
    text = json.dumps(said, ensure_ascii=False)
    return re.sub("[\ud800-\udfff]", lambda found: f"\\\\u{ord(found[0]):04x}", text)
