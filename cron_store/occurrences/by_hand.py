"""Claims that somebody asks for: a run by hand, and one named slot.

Invariant: they pass the same gate as a tick: one run at a time where the job allows one. A run by hand has an id of its
own and no slot, so it neither uses a slot up nor moves the grid.

Not for: what comes due (see `taking`). Giving a run by hand the next slot was rejected: it swallowed that slot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cron_store.jobs import rows as job_rows
from cron_store.occurrences import rows
from cron_store.occurrences.planning import is_exclusive
from cron_store.occurrences.taking import Owner, claim_slot
from cron_store.records import Claim, Job
from cron_store.runs import rows as run_rows
from cron_store.states import SlotState
from hermes_state.errors import IdempotencyConflict, JobBusy, Refused, SlotSettled
from hermes_state.routing import guard

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction


def take_manual(tx: Transaction, job_id: str, run_id: str, owner: Owner) -> Claim:
    """A run by hand. Raises `JobNotFound`, `Entombed`, `JobBusy`, `IdempotencyConflict`."""
    guard(tx, owner.home)
    job = job_rows.find(tx, job_id)
    before = run_rows.by_run_id(tx, run_id)
    if before is not None:
        ours = tx.row("SELECT owner FROM cron_executions WHERE fence = ?", (before.fence,)) == (owner.text,)
        if not before.is_open or not ours or before.job_id != job_id:
            raise IdempotencyConflict(
                f"Run {run_id!r} in {tx.path} was asked for before, of cron job {before.job_id!r}; it is"
                f" {before.state}.",
                hint="Give every run by hand an id of its own.", path=tx.path, key=run_id,
            )
        fence, session_id, claimed_at = before.fence, before.session_id, before.claimed_at
    else:
        refuse_busy(tx, job)
        session_id, claimed_at = job.session_id if job.policies.session_reuse else None, owner.at
        fence = run_rows.write_open(
            tx, job_id=job_id, slot=None, run_id=run_id, lane="" if is_exclusive(job) else f"run/{run_id}",
            source="manual", owner=owner.text, domain=owner.domain, boottime=owner.boottime,
            term_seconds=owner.term_seconds, allowance_seconds=job.allowance_seconds, at=owner.at, lateness_seconds=0.0,
            session_id=session_id,
        )
        touch(tx, job)
    return Claim(
        job_id=job_id, slot=None, run_id=run_id, fence=fence, source="manual", attempt=1, lateness_seconds=0.0,
        claimed_at=claimed_at, term_seconds=owner.term_seconds, home=owner.home, owner=owner.text,
        incarnation=owner.incarnation, job=job, session_id=session_id,
    )


def claim(tx: Transaction, job_id: str, slot: int, owner: Owner) -> Claim:
    """One slot that is due. Raises `SlotSettled`, `JobBusy`, `Refused`, `JobNotFound`, `Entombed`."""
    guard(tx, owner.home)
    job = job_rows.find(tx, job_id)
    found = rows.of_slot(tx, job_id, slot)
    if found is None or found.state is not SlotState.DUE:
        if found is None and slot > job.settled_through:
            raise Refused(
                f"Slot {slot} of cron job {job_id!r} in {tx.path} has not come due.",
                hint="Take what is due; run it by hand to have it earlier.", path=tx.path, job_id=job_id, slot=slot,
            )
        how = "its record was pruned" if found is None else f"it is {found.state}"
        raise SlotSettled(
            f"Slot {slot} of cron job {job_id!r} in {tx.path} was accounted for: {how}.",
            hint="It is not run again; run the job by hand if that is wanted.", path=tx.path, job_id=job_id, slot=slot,
            settled_through=job.settled_through,
        )
    refuse_busy(tx, job)
    times = job.policies.repeat_times
    if times is not None and job.repeat_completed + run_rows.count_in_flight(tx, job_id) >= times:
        raise Refused(
            f"Cron job {job_id!r} in {tx.path} is to run {times} times in all: {job.repeat_completed} runs are over and"
            " the others are in flight.",
            hint="Run it by hand, or let it run more often.", path=tx.path, job_id=job_id, slot=slot,
        )
    given = claim_slot(tx, job, slot, owner)
    touch(tx, job)
    return given


def refuse_busy(reader: Reader, job: Job) -> None:
    """Raise `JobBusy` when the job is in flight and allows one run at a time."""
    flying = run_rows.in_flight(reader, job.job_id) if is_exclusive(job) else []
    if flying:
        one = flying[0]
        raise JobBusy(
            f"Cron job {job.job_id!r} in {reader.path} is in flight: {one.owner or 'an owner that cannot be read'} has"
            f" it (fence {one.fence}, {one.state}).",
            hint="Wait for it, or interrupt it.", path=reader.path, job_id=job.job_id, fence=one.fence, owner=one.owner,
        )


def touch(tx: Transaction, job: Job) -> None:
    """Something open of the job changed: whoever decided on it before decides anew."""
    tx.execute("UPDATE cron_runtime SET revision = revision + 1 WHERE job_id = ?", (job.job_id,))
