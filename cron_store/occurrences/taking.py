"""Taking what is due: slots get their records, and those that may run get a claim, all in one transaction.

Invariant: what was decided outside is written only if the job's revision is still what it was, so two that looked at
one job get its slots between them. The fence of the tick lease is checked in the transaction that claims, advances and
records. A claim is had only once that has committed at `power`.

Bounds of one step: 50 jobs, each with at most 500 rows of their own and a few ranges. What is not due costs nothing: an
index on `due_at` is read from its beginning.

Not for: runs (see `runs`). Advancing a job and claiming its slot in two transactions was rejected: a crash between
them loses the slot, or needs a stamp of its own to bring it back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cron_store import events
from cron_store.jobs import rows as job_rows
from cron_store.occurrences import rows
from cron_store.occurrences.planning import Open, Plan, is_exclusive
from cron_store.records import Claim, Job
from cron_store.runs import rows as run_rows
from cron_store.schedule import Interval, Schedule, next_slot, zone_version
from cron_store.states import JobState
from hermes_state.clock import ClockDomain
from hermes_state.errors import InvalidInput, LedgerUnreadable
from hermes_state.routing import Home

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction

# Jobs of one transaction: some 5 ms.
MOST_JOBS = 50
# After how long a job whose next slot cannot be told is looked at again.
ERROR_REST_SECONDS = 300.0


@dataclass(frozen=True, kw_only=True)
class Owner:
    """Who claims, and by which clocks."""

    text: str  # JSON of the owner identity
    home: Home
    incarnation: str
    at: float  # epoch seconds UTC
    boottime: float
    domain: ClockDomain
    term_seconds: float


def due(reader: Reader, *, at: float, after: tuple[float, str] | None, limit: int) -> list[tuple[float, str]]:
    """Up to `limit` jobs that have to be looked at, longest due first, after a place in that order."""
    first = "" if after is None else " AND (due_at, job_id) > (?3, ?4)"
    return [
        (due_at, job_id)
        for due_at, job_id in reader.rows(
            f"SELECT due_at, job_id FROM cron_runtime INDEXED BY cron_runtime_due WHERE due_at <= ?1{first}"
            " ORDER BY due_at, job_id LIMIT ?2",
            (at, limit, *(after or ())),
        )
    ]


def next_due_at(reader: Reader) -> float | None:
    """When the first job has to be looked at."""
    row = reader.row("SELECT due_at FROM cron_runtime INDEXED BY cron_runtime_due WHERE due_at IS NOT NULL"
                     " ORDER BY due_at LIMIT 1")
    return None if row is None else float(row[0])


def look(reader: Reader, job_id: str) -> tuple[Job, Open] | None:
    """A job and its open rows; None: it was removed meanwhile. Raises `LedgerUnreadable`."""
    job = job_rows.read(reader, job_id)
    return None if job is None else (job, open_rows(reader, job))


def open_rows(reader: Reader, job: Job) -> Open:
    """The open rows of a job. Raises `LedgerUnreadable` when its rows and its mark say different things."""
    newest = rows.newest(reader, job.job_id)
    if newest is not None and newest > job.settled_through:
        raise job_rows.unreadable(
            reader, job.job_id, f"slot {newest} has a record, and the job says that slots are accounted for up to"
            f" {job.settled_through}"
        )
    spaced = job.misfire == "run_all"
    return Open(
        waiting=rows.waiting(reader, job.job_id), in_flight=run_rows.count_in_flight(reader, job.job_id),
        last_start_at=run_rows.last_start_at(reader, job.job_id) if spaced else None,
    )


# --- writing -----------------------------------------------------------------------------------------------------


def is_still(tx: Reader, job: Job) -> bool:
    """Whether nothing of a job and its open rows changed since it was read."""
    row = tx.row("SELECT revision FROM cron_runtime WHERE job_id = ?", (job.job_id,))
    return row is not None and row[0] == job.revision


def account(tx: Transaction, planned: Plan, *, at: float, through: int | None = None) -> None:
    """Write what a plan says of slots, without a claim and without `due_at`; `through`: raise the mark to there."""
    job = planned.job
    for end in planned.ends:
        if not rows.end_waiting(tx, job.job_id, end, at=at):
            raise _changed(tx, job, end.slot)
    for verdict in planned.verdicts:
        rows.write_verdict(tx, job.job_id, verdict, version=job.schedule_version, at=at)
    for slot in planned.new:
        rows.write_due(tx, job.job_id, slot, version=job.schedule_version)
    mark = planned.through if through is None else max(planned.through, through)
    if mark > job.settled_through:
        tx.execute("UPDATE cron_runtime SET settled_through = ? WHERE job_id = ?", (mark, job.job_id))


def apply(tx: Transaction, planned: Plan, owner: Owner, *, claims: bool) -> Claim | None:
    """Write a plan; with `claims`, claim its first run. The caller has compared the revision in this transaction."""
    job, at = planned.job, owner.at
    account(tx, planned, at=at)
    claim = None
    if claims and planned.may_claim:
        slot = planned.runs[0]
        claim = claim_slot(tx, job, slot, owner)
    state = JobState.COMPLETED if planned.is_over else JobState.SCHEDULED if job.active else JobState.PAUSED
    tx.execute(
        "UPDATE cron_runtime SET due_at = ?, next_slot = ?, tz_version = ?, state = ?, state_reason = CASE WHEN state"
        " = ? THEN state_reason ELSE '' END, state_at = CASE WHEN state = ? THEN state_at ELSE ? END,"
        " revision = revision + 1 WHERE job_id = ?",
        (
            None if planned.is_over else planned.due_at(at, claimed=claim is not None), planned.waiting_slot,
            zone_version(job.schedule.zone), str(state), str(state), str(state), at, job.job_id,
        ),
    )
    return claim


def claim_slot(tx: Transaction, job: Job, slot: int, owner: Owner) -> Claim:
    """Claim one slot that is due. Raises `LedgerUnreadable` when its row says otherwise."""
    before = tx.row("SELECT fence FROM cron_occurrences WHERE job_id = ? AND slot = ?", (job.job_id, slot))
    attempt = run_rows.next_attempt(tx, None if before is None else before[0])
    lateness = max(0.0, owner.at - slot)
    session_id = job.session_id if job.policies.session_reuse else None
    fence = run_rows.write_open(
        tx, job_id=job.job_id, slot=slot, run_id=None, lane="" if is_exclusive(job) else str(slot), source="schedule",
        owner=owner.text, domain=owner.domain, boottime=owner.boottime, term_seconds=owner.term_seconds,
        allowance_seconds=job.allowance_seconds, at=owner.at, lateness_seconds=lateness, session_id=session_id,
        attempt=attempt,
    )
    if not rows.claim(tx, job.job_id, slot, fence):
        raise _changed(tx, job, slot)
    return Claim(
        job_id=job.job_id, slot=slot, run_id=None, fence=fence, source="schedule", attempt=attempt,
        lateness_seconds=lateness, claimed_at=owner.at, term_seconds=owner.term_seconds, home=owner.home,
        owner=owner.text, incarnation=owner.incarnation, job=job, session_id=session_id,
    )


def fail(tx: Transaction, job: Job, error: InvalidInput, *, at: float) -> None:
    """Note that the next slot of a job cannot be told. It stays switched on and is tried again."""
    if job.state is not JobState.ERROR or job.state_reason != error.message:
        events.record(tx, "schedule_error", at=at, job_id=job.job_id, error=error.message)
    tx.execute(
        "UPDATE cron_runtime SET state = 'error', state_reason = ?, state_at = CASE WHEN state = 'error' THEN state_at"
        " ELSE ? END, due_at = ?, revision = revision + 1 WHERE job_id = ?",
        (error.message, at, at + ERROR_REST_SECONDS, job.job_id),
    )


def first_due_at(schedule: Schedule, *, after: int) -> tuple[float | None, int | None]:
    """`due_at` and the waiting slot of a job whose slots are accounted for up to `after`."""
    slot = next_slot(schedule, after)
    if isinstance(schedule, Interval) and schedule.after_finish:
        slot = after + schedule.seconds if slot is None else slot
        return float(slot), slot
    return None if slot is None else float(slot), None


def _changed(reader: Reader, job: Job, slot: int) -> LedgerUnreadable:
    return job_rows.unreadable(reader, job.job_id, f"slot {slot} is not due, though nothing of the job was changed")
