"""Declaring jobs: add, edit, pause, resume, remove.

Invariant: only what is named changes, and a fire never writes a declaration. A schedule that is changed, paused or
resumed is a new version, and what came due before is accounted for by the old one in the same transaction: a version's
slots all come after it was made. A removed job leaves a tombstone: whoever still has it in memory cannot bring it back.

Not for: slots that come due (see `occurrences`). Writing back a whole job that was read before was rejected: two quick
edits lost each other's columns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import floor
from typing import TYPE_CHECKING, Any

from cron_store import events
from cron_store.jobs import checking
from cron_store.jobs.rows import KIND, find, read
from cron_store.occurrences import rows as slot_rows
from cron_store.occurrences.planning import Plan, Verdict, pending, waiting_slot_of
from cron_store.occurrences.taking import account, first_due_at, is_still
from cron_store.records import Job, Policies, has_no_grid
from cron_store.runs import rows as run_rows
from cron_store.schedule import Schedule, zone_version
from cron_store.schedule.codec import to_json
from cron_store.states import JobState, SlotEvent, SlotState
from hermes_state import deletions, tombstones
from hermes_state.errors import InvalidInput, JobExists, JobMoved

if TYPE_CHECKING:
    from hermes_state.engine import Transaction

# For how long the id of a removed job stays refused: longer than any process keeps a list of jobs in memory.
HORIZON_SECONDS = 90 * 86_400.0

_POLICY_COLUMNS = {
    "effect": "effect", "misfire": "misfire", "grace_seconds": "grace_seconds", "spacing_seconds": "spacing_seconds",
    "most_late": "most_late", "overlap": "overlap", "repeat_times": "repeat_times",
    "allowance_seconds": "allowance_seconds", "session_reuse": "session_reuse", "keep_executions": "keep_executions",
}


class Moved(Exception):
    """A job changed between the look and the write: look again."""


def add(
    tx: Transaction, job_id: str, schedule: Schedule, *, name: str, fields: Mapping[str, Any], policies: Policies,
    paused: str | None, after: float, at: float,
) -> Job:
    """A new job, whose slots are those after `after`. Raises `JobExists`, `Entombed`, `InvalidInput`."""
    checking.job_id(job_id)
    checking.name(name)
    content = checking.fields(fields)
    chosen = checking.checked(policies)
    tombstones.refuse(tx, KIND, job_id)
    if tx.row("SELECT 1 FROM cron_jobs WHERE job_id = ?", (job_id,)) is not None:
        raise JobExists(
            f"Cron job {job_id!r} is in {tx.path} already.", hint="Edit it, or choose another id.", path=tx.path,
            job_id=job_id,
        )
    tx.execute(
        f"INSERT INTO cron_jobs (job_id, name, fields, {', '.join(_POLICY_COLUMNS.values())}, created_at, updated_at)"
        f" VALUES (?, ?, ?, {', '.join('?' * len(_POLICY_COLUMNS))}, ?, ?)",
        (job_id, name, content, *(getattr(chosen, policy) for policy in _POLICY_COLUMNS), at, at),
    )
    # Records of a job of that id whose tombstone is gone: their slots stay accounted for.
    last = tx.row("SELECT max(last_slot) FROM cron_occurrences WHERE job_id = ?", (job_id,))
    version = tx.row("SELECT max(version) FROM cron_schedules WHERE job_id = ?", (job_id,))
    mark = max(floor(after), -1 if last is None or last[0] is None else last[0])
    _write_version(
        tx, job_id, schedule, 1 if version is None or version[0] is None else version[0] + 1, from_slot=mark,
        active=paused is None, at=at,
    )
    due_at, waiting = (None, None) if paused is not None else first_due_at(schedule, after=mark)
    state = JobState.PAUSED if paused is not None else JobState.SCHEDULED if due_at is not None else JobState.COMPLETED
    tx.execute(
        "INSERT INTO cron_runtime (job_id, state, state_at, state_reason, due_at, settled_through, next_slot,"
        " tz_version) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (job_id, str(state), at, paused or "", due_at, mark, waiting, zone_version(schedule.zone)),
    )
    return find(tx, job_id)


def edit(
    tx: Transaction, planned: Plan, *, name: str | None, fields: Mapping[str, Any], remove_fields: Sequence[str],
    schedule: Schedule | None, policies: Mapping[str, Any], if_version: int | None, at: float,
) -> Job:
    """Change what is named. Raises `JobMoved`, `InvalidInput`, and `Moved` when the plan is out of date."""
    job = planned.job
    if if_version is not None and if_version != job.version:
        raise JobMoved(
            f"Cron job {job.job_id!r} in {tx.path} was edited since it was read: it is version {job.version}, not"
            f" {if_version}.",
            hint="Read it again and edit what it says now.", path=tx.path, job_id=job.job_id, version=if_version,
            now=job.version,
        )
    _refuse_moved(tx, job)
    chosen = checking.merged(job.policies, policies)
    kept = {key: value for key, value in job.fields.items() if key not in set(checking.names(remove_fields))}
    content = checking.fields({**kept, **fields})
    columns: dict[str, Any] = {
        column: getattr(chosen, policy) for policy, column in _POLICY_COLUMNS.items() if policy in policies
    }
    if fields or remove_fields:
        columns["fields"] = content
    if name is not None:
        columns["name"] = checking.name(name)
    account(tx, planned, at=at, through=floor(at) if schedule is not None else None)
    tx.execute(
        f"UPDATE cron_jobs SET {''.join(f'{column} = ?, ' for column in columns)}version = version + 1, updated_at = ?"
        " WHERE job_id = ?",
        (*columns.values(), at, job.job_id),
    )
    if schedule is not None:
        mark = max(floor(at), planned.through)
        _write_version(
            tx, job.job_id, schedule, job.schedule_version + 1, from_slot=mark, active=job.active, at=at
        )
        job = replace(job, schedule=schedule)
    _reschedule(tx, job, planned, at=at, policies=chosen, changed=schedule is not None)
    return find(tx, job.job_id)


def pause(tx: Transaction, planned: Plan, *, reason: str, at: float) -> Job:
    """Skip what comes due from now on, and what waits. A run in flight goes on. Paused before: the first stays."""
    job = planned.job
    _refuse_moved(tx, job)
    if not job.active:
        return find(tx, job.job_id)
    account(tx, planned, at=at, through=floor(at))
    for slot in slot_rows.waiting(tx, job.job_id):
        slot_rows.step_waiting(tx, job.job_id, slot, SlotEvent.SKIP, at=at, reason="paused")
    _write_version(
        tx, job.job_id, job.schedule, job.schedule_version + 1, from_slot=max(floor(at), planned.through), active=False,
        at=at,
    )
    tx.execute(
        "UPDATE cron_runtime SET state = 'paused', state_at = ?, state_reason = ?, due_at = NULL, next_slot = NULL,"
        " revision = revision + 1 WHERE job_id = ?",
        (at, reason, job.job_id),
    )
    return find(tx, job.job_id)


def resume(tx: Transaction, planned: Plan, *, at: float) -> Job:
    """Go on; what came due meanwhile is one skipped range. Not paused: nothing changes."""
    job = planned.job
    _refuse_moved(tx, job)
    if job.active:
        return find(tx, job.job_id)
    account(tx, planned, at=at, through=floor(at))
    mark = max(floor(at), planned.through)
    _write_version(tx, job.job_id, job.schedule, job.schedule_version + 1, from_slot=mark, active=True, at=at)
    _reschedule(tx, replace(job, active=True), planned, at=at, policies=job.policies, changed=True)
    return find(tx, job.job_id)


def remove(tx: Transaction, job: Job, *, actor: str, reason: str, at: float) -> None:
    """Remove a job and leave its tombstone. What came due and what waits is skipped; a run in flight goes on and
    settles."""
    _refuse_moved(tx, job)
    try:
        came = pending(job, at)
    except InvalidInput:
        came = None  # its zone is not known here: which slots came due, nobody can tell
    if came is not None:
        verdict = Verdict(span=came, state=SlotState.SKIPPED, reason="removed" if job.active else "paused")
        slot_rows.write_verdict(tx, job.job_id, verdict, version=job.schedule_version, at=at)
    for slot in slot_rows.waiting(tx, job.job_id):
        slot_rows.step_waiting(tx, job.job_id, slot, SlotEvent.SKIP, at=at, reason="removed")
    rows = sum(
        tx.execute(f"DELETE FROM {table} WHERE job_id = ?", (job.job_id,))
        for table in ("cron_jobs", "cron_runtime", "cron_schedules")
    )
    tombstones.entomb(
        tx, KIND, job.job_id, made_at=at, horizon_seconds=HORIZON_SECONDS, actor=actor, reason=reason
    )
    deletions.record(
        tx, actor=actor, reason=reason, kind=KIND, keys=[job.job_id], rows=rows, at=at,
        detail={"name": job.name, "schedule": json.loads(to_json(job.schedule))},
    )


def recompute(tx: Transaction, job: Job, *, at: float) -> None:
    """Tell anew when a job is due next, by the rules of zones as they are now. Slots before stay as they were."""
    _refuse_moved(tx, job)
    due_at, waiting = first_due_at(job.schedule, after=job.settled_through)
    if has_no_grid(job.schedule):
        waiting = waiting_slot_of(job)
        due_at = None if waiting is None else float(waiting)
    if slot_rows.waiting(tx, job.job_id) and not run_rows.count_in_flight(tx, job.job_id):
        due_at = at if due_at is None else min(at, due_at)
    tx.execute(
        "UPDATE cron_runtime SET due_at = ?, next_slot = ?, tz_version = ?, revision = revision + 1 WHERE job_id = ?",
        (
            due_at, waiting, zone_version(job.schedule.zone), job.job_id,
        ),
    )
    events.record(
        tx, "zone_changed", at=at, job_id=job.job_id, zone=job.schedule.zone, due_before=job.due_at, due=due_at
    )


def _reschedule(
    tx: Transaction, job: Job, planned: Plan, *, at: float, policies: Policies, changed: bool
) -> None:
    """`due_at` and state after an edit."""
    mark = max(floor(at), planned.through) if changed else planned.through
    due_at, waiting_slot = planned.due_at(at, claimed=False), planned.waiting_slot
    if changed or (has_no_grid(job.schedule) and waiting_slot is None and not planned.runs and not planned.in_flight):
        due_at, waiting_slot = first_due_at(job.schedule, after=mark)
    waiting, flying = slot_rows.waiting(tx, job.job_id), run_rows.count_in_flight(tx, job.job_id)
    if waiting and not (flying and policies.overlap != "allow"):
        due_at = at if due_at is None else min(at, due_at)
    used_up = policies.repeat_times is not None and job.repeat_completed >= policies.repeat_times
    if not job.active:
        state, due_at, waiting_slot = JobState.PAUSED, None, None
    elif used_up or (due_at is None and not waiting and not flying):
        state, due_at = JobState.COMPLETED, None
    else:
        state = JobState.SCHEDULED
    tx.execute(
        "UPDATE cron_runtime SET due_at = ?1, next_slot = ?2, tz_version = ?3, state = ?4, state_at = CASE WHEN state ="
        " ?4 THEN state_at ELSE ?5 END, state_reason = CASE WHEN state = ?4 THEN state_reason ELSE '' END,"
        " revision = revision + 1 WHERE job_id = ?6",
        (due_at, waiting_slot, zone_version(job.schedule.zone), str(state), at, job.job_id),
    )


def _write_version(
    tx: Transaction, job_id: str, schedule: Schedule, version: int, *, from_slot: int, active: bool, at: float
) -> None:
    tx.execute(
        "INSERT INTO cron_schedules (job_id, version, from_slot, active, schedule, made_at) VALUES (?, ?, ?, ?, ?, ?)",
        (job_id, version, from_slot, int(active), to_json(schedule), at),
    )


def _refuse_moved(tx: Transaction, job: Job) -> None:
    if not is_still(tx, job):
        found = read(tx, job.job_id)
        if found is None:
            find(tx, job.job_id)  # says who removed it
        raise Moved


def checked_reason(value: str) -> str:
    """Why a job is paused. Raises `InvalidInput` for none."""
    if not isinstance(value, str) or not value.strip() or len(value) > 4_000:
        raise InvalidInput(f"reason is a text that is not empty, not {value!r:.80}.", argument="reason")
    return value
