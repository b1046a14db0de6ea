"""Reading jobs.

Invariant: a job is read whole, declaration, newest schedule version and runtime together, or not at all: a row that is
missing or says what nothing here wrote is `LedgerUnreadable`, never a default. Dropping it could run a slot again.

Not for: changing jobs (see `declaring`). Reading the runtime alone for a tick was rejected: what is claimed is claimed
as it was declared.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cron_store.records import Job, Policies
from cron_store.schedule.codec import from_json
from cron_store.states import JobState
from hermes_state import tombstones
from hermes_state.errors import InvalidInput, JobNotFound, LedgerUnreadable
from hermes_state.shell_words import shell_word

if TYPE_CHECKING:
    from hermes_state.engine import Reader

KIND = "cron_job"  # of the tombstones and of the ledger of deletions

_SELECT = (
    "SELECT j.job_id, j.name, j.fields, j.effect, j.misfire, j.grace_seconds, j.spacing_seconds, j.most_late,"
    " j.overlap, j.repeat_times, j.allowance_seconds, j.session_reuse, j.keep_executions, j.version, j.created_at,"
    " j.updated_at, s.schedule, s.version, s.active, r.state, r.state_at, r.state_reason, r.due_at, r.settled_through,"
    " r.next_slot, r.tz_version, r.repeat_completed, r.failure_streak, r.last_run_at, r.last_state, r.last_error,"
    " r.session_id, r.revision FROM cron_jobs AS j LEFT JOIN cron_runtime AS r ON r.job_id = j.job_id"
    " LEFT JOIN cron_schedules AS s ON s.job_id = j.job_id AND s.version ="
    " (SELECT max(version) FROM cron_schedules WHERE job_id = j.job_id)"
)


def read(reader: Reader, job_id: str) -> Job | None:
    """One job. Raises `LedgerUnreadable`."""
    row = reader.row(f"{_SELECT} WHERE j.job_id = ?", (job_id,))
    return None if row is None else job(reader, row)


def find(reader: Reader, job_id: str) -> Job:
    """One job. Raises `JobNotFound`, `Entombed` (it was removed), `LedgerUnreadable`."""
    found = read(reader, job_id)
    if found is None:
        tombstones.refuse(reader, KIND, job_id)
        raise JobNotFound(
            f"There is no cron job {job_id!r} in {reader.path}.",
            hint=f"`hermes-state cron list --db {shell_word(reader.path)}` shows which there are.",
            path=reader.path, job_id=job_id,
        )
    return found


def page(
    reader: Reader, *, states: Sequence[JobState] | None, limit: int, after: str | None,
    unreadable: dict[str, Exception] | None = None,
) -> list[Job]:
    """Up to `limit` jobs by id. One that cannot be read goes into `unreadable`; without that, raises
    `LedgerUnreadable`."""
    wanted = None if states is None else json.dumps([str(state) for state in states])
    found: list[Job] = []
    while len(found) < limit:
        rows = reader.rows(
            f"{_SELECT} WHERE (?1 IS NULL OR j.job_id > ?1) AND (?2 IS NULL OR r.state IN"
            " (SELECT value FROM json_each(?2))) ORDER BY j.job_id LIMIT ?3",
            (after, wanted, limit - len(found)),
        )
        for row in rows:
            try:
                found.append(job(reader, row))
            except LedgerUnreadable as error:
                if unreadable is None:
                    raise
                unreadable[row[0]] = error
        if not rows or unreadable is None:
            break
        after = rows[-1][0]
    return found


def job(reader: Reader, row: Sequence[Any]) -> Job:
    """A row of the query above. Raises `LedgerUnreadable`."""
    (
        job_id, name, fields, effect, misfire, grace, spacing, most_late, overlap, repeat_times, allowance, reuse, keep,
        version, created_at, updated_at, schedule, schedule_version, active, state, state_at, state_reason, due_at,
        settled_through, next_slot, tz_version, repeat_completed, streak, last_run_at, last_state, last_error,
        session_id, revision,
    ) = row
    try:
        if schedule is None or state is None:
            raise InvalidInput(f"its {'schedule' if schedule is None else 'runtime'} row is missing")
        said = json.loads(fields)
        if not isinstance(said, dict):
            raise InvalidInput("its fields are no JSON object")
        return Job(
            job_id=job_id, name=name, fields=said, policies=Policies(
                effect=effect, misfire=misfire, grace_seconds=grace, spacing_seconds=spacing, most_late=most_late,
                overlap=overlap, repeat_times=repeat_times, allowance_seconds=allowance, session_reuse=bool(reuse),
                keep_executions=keep,
            ),
            version=version, created_at=created_at, updated_at=updated_at, schedule=from_json(schedule),
            schedule_version=schedule_version, active=bool(active), state=JobState(state), state_at=state_at,
            state_reason=state_reason, due_at=due_at, settled_through=settled_through, waiting_slot=next_slot,
            tz_version=tz_version, repeat_completed=repeat_completed, failure_streak=streak, last_run_at=last_run_at,
            last_state=last_state, last_error=last_error, session_id=session_id, revision=revision,
        )
    except (ValueError, InvalidInput) as error:
        raise unreadable(reader, job_id, str(error)) from error


def unreadable(reader: Reader, job_id: str | None, because: str) -> LedgerUnreadable:
    """The error for what cannot be read of one job, or of all (None)."""
    what, not_run = ("What cron did", "nothing is run") if job_id is None else (f"Cron job {job_id!r}", "it is not run")
    return LedgerUnreadable(
        f"{what} in {reader.path} cannot be read, so {not_run}: {because}.",
        hint=f"Run `hermes-state doctor --db {shell_word(reader.path)}`.", path=reader.path, job_id=job_id,
    )
