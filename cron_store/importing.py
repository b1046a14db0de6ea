"""Jobs and runs that another program kept, brought in as they stood there.

Invariant: what is brought in proves nothing about slots: runs come without one, as history, and a job's slots are those
strictly after the instant that the caller names. A run comes in once, by the id that it had there.

Not for: reading the other program's files, or when to bring in (see `maintenance.cron_import`). Giving imported runs
their slots was rejected: a lost row there would be a slot that runs again here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cron_store.jobs import declaring
from cron_store.jobs.rows import find
from cron_store.records import Job, Policies
from cron_store.runs import rows as run_rows
from cron_store.schedule import Schedule
from cron_store.states import RunState
from hermes_state.errors import InvalidInput

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction

ENDED = (RunState.SUCCEEDED, RunState.FAILED, RunState.INTERRUPTED, RunState.UNKNOWN)
FOREIGN_ID = "imported_id"


def bring_in_job(
    tx: Transaction, job_id: str, schedule: Schedule, *, name: str, fields: Mapping[str, Any], policies: Policies,
    paused: str, after: float, at: float, last_run_at: float | None = None, last_state: str | None = None,
    last_error: str | None = None, repeat_completed: int = 0, failure_streak: int = 0,
) -> Job:
    """A job that starts paused, with what its runs elsewhere came to. Its slots are those after `after`.

    Raises `JobExists`, `Entombed`, `InvalidInput`. A schedule without a slot left is let in: resumed, it is completed.
    """
    declaring.checked_reason(paused)
    declaring.add(
        tx, job_id, schedule, name=name, fields=fields, policies=policies, paused=paused, after=after, at=at
    )
    tx.execute(
        "UPDATE cron_runtime SET last_run_at = ?, last_state = ?, last_error = ?, repeat_completed = ?,"
        " failure_streak = ? WHERE job_id = ?",
        (last_run_at, last_state, last_error, repeat_completed, failure_streak, job_id),
    )
    return find(tx, job_id)


def take_back_untouched(tx: Transaction, job: Job) -> bool:
    """Let go of a job that was brought in and that nobody changed, resumed or ran since, so that it comes in anew."""
    if job.version != 1 or job.schedule_version != 1 or job.active:
        return False
    seen = tx.row(
        "SELECT 1 FROM cron_occurrences WHERE job_id = ?1 UNION ALL SELECT 1 FROM cron_executions WHERE job_id = ?1 AND"
        " source <> 'import' LIMIT 1", (job.job_id,),
    )
    if seen is not None:
        return False
    for table in ("cron_jobs", "cron_runtime", "cron_schedules"):
        tx.execute(f"DELETE FROM {table} WHERE job_id = ?", (job.job_id,))
    return True


def bring_in_run(
    tx: Transaction, job_id: str, foreign_id: str, *, state: RunState, claimed_at: float, started_at: float | None,
    finished_at: float, error: str | None = None, detail: Mapping[str, Any] | None = None,
) -> int:
    """A run that ended elsewhere, as history of a job that may not be here; gives its fence. Raises `InvalidInput`."""
    if state not in ENDED:
        raise InvalidInput(f"An imported run has ended: {state} is no end.", argument="state")
    content = json.dumps({**(detail or {}), FOREIGN_ID: foreign_id}, separators=(",", ":"))
    return run_rows.write_imported(
        tx, job_id=job_id, state=state, claimed_at=claimed_at, started_at=started_at, finished_at=finished_at,
        error=error, result=content,
    )


def brought_in(reader: Reader) -> set[str]:
    """The ids that imported runs had elsewhere."""
    return {
        str(row[0])
        for row in reader.rows(
            f"SELECT json_extract(result, '$.{FOREIGN_ID}') FROM cron_executions WHERE source = 'import'"
        )
    }


def count(reader: Reader) -> tuple[int, int]:
    """How many jobs and how many imported runs there are."""
    row = reader.row(
        "SELECT (SELECT count(*) FROM cron_jobs), (SELECT count(*) FROM cron_executions WHERE source = 'import')"
    )
    return (0, 0) if row is None else (int(row[0]), int(row[1]))
