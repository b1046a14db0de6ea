"""How a run ends, and what follows for its slot and its job: one place for every path.

Invariant: run, slot, job, incident and what is owed change in one transaction, and nothing of it unless the run is open
and the caller's. That transaction is also what lets go of the job: no path can forget it. A run that was flagged as
interrupted ends as interrupted, whatever it says of itself. Only runs of slots that ended by themselves count as
repeats.

Not for: finding runs that lost their owner (see `losing`). Releasing after the settlement, in a step of its own, was
rejected: every path that missed it left the job in flight for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import floor
from typing import TYPE_CHECKING

from cron_store import incidents
from cron_store.jobs import rows as job_rows
from cron_store.occurrences import rows as slot_rows
from cron_store.records import (
    Claim,
    Delivery,
    Failed,
    Incident,
    Interrupted,
    Job,
    Outcome,
    Run,
    Settled,
    Succeeded,
    has_no_grid,
    period_of,
)
from cron_store.runs import rows
from cron_store.states import RUN, SLOT_EVENT, JobState, RunEvent, RunState, SlotEvent, SlotState
from hermes_state import json_values
from hermes_state.errors import InvalidInput, JobRemoved, Refused
from hermes_state.outbox import append

if TYPE_CHECKING:
    from hermes_state.engine import Transaction

Mirror = Callable[["Transaction"], None]
MOST_ERROR = 4_000


def start(tx: Transaction, claim: Claim, *, at: float) -> None:
    """Let its effect begin. Raises `StaleFence`, `JobRemoved`, `Refused` (interrupted before it began)."""
    run = rows.held(tx, claim)
    if run.state is RunState.RUNNING:
        return  # said again: the answer to the first time was lost
    job = job_rows.read(tx, claim.job_id)
    if job is None:
        raise JobRemoved(
            f"Cron job {claim.job_id!r} was removed from {tx.path} after its run was claimed (fence {claim.fence}).",
            hint="Do not run it; release the claim.", path=tx.path, job_id=claim.job_id, fence=claim.fence,
        )
    if run.interrupted_at is not None:
        raise Refused(
            f"The run of cron job {claim.job_id!r} in {tx.path} (fence {claim.fence}) was interrupted before it began:"
            f" {run.interrupted_reason}.",
            hint="Do not run it; release the claim.", path=tx.path, job_id=claim.job_id, fence=claim.fence,
        )
    begin(tx, run, at=at)


def begin(tx: Transaction, run: Run, *, at: float) -> None:
    """Claimed becomes running, for the run and its slot."""
    assert RUN[run.state, RunEvent.START] is RunState.RUNNING
    rows.write_started(tx, run.fence, at=at)
    _step_slot(tx, run, SLOT_EVENT[RunEvent.START], at=at, reason="")


def settle(
    tx: Transaction, claim: Claim, outcome: Outcome, *, at: float, deliveries: Sequence[Delivery] = (),
    alert: Delivery | None = None, session_id: str | None = None, mirror: Mirror | None = None,
) -> Settled:
    """Write how a run ended, and what is owed because of it. Raises `StaleFence`, `Refused` (a success before the
    start), and what `mirror` and the outbox raise: then nothing was written."""
    ended = rows.read(tx, claim.fence)
    if ended is not None and not ended.is_open and _was_ours(tx, claim) and ended.state is _state_of(outcome, ended):
        return Settled(state=ended.state, incident=None, alerted=False)  # said again
    run = rows.held(tx, claim)
    if run.state is RunState.CLAIMED and not isinstance(outcome, Failed):
        raise Refused(
            f"The run of cron job {claim.job_id!r} in {tx.path} (fence {claim.fence}) was not started, so it did not"
            " succeed and was not interrupted.",
            hint="Call start before the first effect; release a claim that is not to be run.",
            path=tx.path, job_id=claim.job_id, fence=claim.fence,
        )
    interrupted = run.interrupted_at is not None and run.state is RunState.RUNNING
    if interrupted and not isinstance(outcome, Interrupted):
        outcome = Interrupted(why=run.interrupted_reason or "it was interrupted")
    incident, tell = end(tx, run, outcome, at=at, session_id=session_id)
    if not isinstance(outcome, Interrupted):
        for number, owed in enumerate(deliveries):
            _owe(tx, claim, owed, f"delivery/{number}", at=at)
    if tell and alert is not None and incident is not None:
        _owe(tx, claim, alert, f"alert/{incident.generation}", at=at)
    if mirror is not None and not isinstance(outcome, Interrupted):
        mirror(tx)
    return Settled(state=_state_of(outcome, None), incident=incident, alerted=tell)


def end(
    tx: Transaction, run: Run, outcome: Outcome | None, *, at: float, session_id: str | None = None,
    forced: bool = False, effect: str = "once", again: bool = False,
) -> tuple[Incident | None, bool]:
    """End an open run; None gives back a claim that was not started. `again`: the slot of an interrupted run may run
    again, where its effect is idempotent. Gives the incident of a failure, and whether people are to be told.
    """
    job = job_rows.read(tx, run.job_id)
    event, error, failure_type, result = _told(outcome)
    rows.write_end(
        tx, run.fence, RUN[run.state, event], at=at, error=error, failure_type=failure_type, result=result,
        session_id=session_id, forced=forced,
    )
    slot_event = SLOT_EVENT[event]
    if event is RunEvent.RELEASE and job is None:
        slot_event = SlotEvent.SKIP
    elif event is RunEvent.INTERRUPT and again and effect == "idempotent" and job is not None:
        slot_event = SlotEvent.REPEAT
    elif event is RunEvent.RELEASE and job is not None and not job.active:
        slot_event = SlotEvent.SKIP  # paused meanwhile: nothing of it waits
    reason = "removed" if job is None else "paused"
    to = _step_slot(tx, run, slot_event, at=at, reason=reason if slot_event is SlotEvent.SKIP else "")
    if job is None:
        return None, False
    _job_goes_on(tx, job, run, outcome, to, at=at, session_id=session_id)
    if isinstance(outcome, Succeeded):
        incidents.succeeded(tx, job.job_id)
    if isinstance(outcome, Failed):
        return incidents.failed(tx, job.job_id, outcome.error, outcome.failure_type, fence=run.fence, at=at)
    return None, False


def _job_goes_on(
    tx: Transaction, job: Job, run: Run, outcome: Outcome | None, to: SlotState | None, *, at: float,
    session_id: str | None,
) -> None:
    """What an end means for the job: its counts, and when it is looked at again."""
    by_itself = isinstance(outcome, Succeeded | Failed)
    completed = job.repeat_completed + (by_itself and run.slot is not None)
    waiting = slot_rows.waiting(tx, job.job_id)
    flying = rows.count_in_flight(tx, job.job_id)
    due_at, next_slot, state = job.due_at, job.waiting_slot, job.state
    if run.slot is not None and has_no_grid(job.schedule) and to is not SlotState.DUE and job.active:
        # A clock that was set back meanwhile does not bring back what is accounted for.
        next_slot = max(floor(at), job.settled_through) + (period_of(job.schedule) or 0)
        due_at = float(next_slot)
    if job.policies.repeat_times is not None and completed >= job.policies.repeat_times:
        for slot in waiting:
            slot_rows.step_waiting(tx, job.job_id, slot, SlotEvent.SKIP, at=at, reason="repeat")
        waiting, due_at, next_slot, state = (), None, None, JobState.COMPLETED
    elif waiting and job.active:
        due_at = at if due_at is None else min(due_at, at)
    elif due_at is None and not flying and job.state is JobState.SCHEDULED:
        state = JobState.COMPLETED
    last = (None, None) if outcome is None else (
        str(_state_of(outcome, None)), getattr(outcome, "error", None) or getattr(outcome, "why", None)
    )
    tx.execute(
        "UPDATE cron_runtime SET due_at = ?1, next_slot = ?2, state = ?3, state_at = CASE WHEN state = ?3 THEN state_at"
        " ELSE ?4 END, repeat_completed = ?5, failure_streak = ?6, last_run_at = CASE WHEN ?7 THEN ?4 ELSE last_run_at"
        " END, last_state = CASE WHEN ?7 THEN ?8 ELSE last_state END, last_error = CASE WHEN ?7 THEN ?9 ELSE last_error"
        " END, session_id = CASE WHEN ?10 THEN coalesce(?11, session_id) ELSE session_id END,"
        " revision = revision + 1 WHERE job_id = ?12",
        (
            due_at, next_slot, str(state), at, completed,
            job.failure_streak + 1 if isinstance(outcome, Failed) else 0 if isinstance(outcome, Succeeded)
            else job.failure_streak,
            outcome is not None, last[0], None if last[1] is None else last[1][:MOST_ERROR],
            job.policies.session_reuse, session_id, job.job_id,
        ),
    )


def _step_slot(tx: Transaction, run: Run, event: SlotEvent, *, at: float, reason: str) -> SlotState | None:
    if run.slot is None:
        return None
    to = slot_rows.step(tx, run.job_id, run.slot, run.fence, SlotState(run.state), event, at=at, reason=reason)
    if to is None:
        raise job_rows.unreadable(
            tx, run.job_id, f"slot {run.slot} is not {run.state} under fence {run.fence}, as its run says"
        )
    return to


def _told(outcome: Outcome | None) -> tuple[RunEvent, str | None, str | None, str | None]:
    """The event of an outcome, and what is kept of it. Raises `InvalidInput` for a result that is no JSON."""
    match outcome:
        case None:
            return RunEvent.RELEASE, None, None, None
        case Interrupted(why=why):
            return RunEvent.INTERRUPT, why[:MOST_ERROR], None, None
        case Succeeded(result=result):
            event, error, failure_type = RunEvent.SUCCEED, None, None
        case Failed(error=said, failure_type=kind, result=result):
            event, error, failure_type = RunEvent.FAIL, said[:MOST_ERROR], kind
    try:
        return event, error, failure_type, None if result is None else json_values.dump(dict(result))
    except ValueError as problem:
        raise InvalidInput(f"The result of a run is JSON: {problem}.", argument="result") from problem


def _state_of(outcome: Outcome, ended: Run | None) -> RunState:
    if isinstance(outcome, Interrupted) or (ended is not None and ended.interrupted_at is not None):
        return RunState.INTERRUPTED
    return RunState.SUCCEEDED if isinstance(outcome, Succeeded) else RunState.FAILED


def _was_ours(tx: Transaction, claim: Claim) -> bool:
    row = tx.row(
        "SELECT owner, forced, (SELECT incarnation FROM store) FROM cron_executions WHERE fence = ?", (claim.fence,)
    )
    return row == (claim.owner, 0, claim.incarnation)


def _owe(tx: Transaction, claim: Claim, owed: Delivery, what: str, *, at: float) -> None:
    append(
        tx, dedupe_id=f"cron/{claim.key}/{claim.fence}/{what}", kind=owed.kind, transport=owed.transport,
        payload=owed.payload, policy=owed.policy, target=owed.target, lane=owed.lane, priority=owed.priority, at=at,
    )
