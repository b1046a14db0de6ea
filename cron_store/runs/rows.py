"""Rows of runs, read and written inside the caller's transaction.

Invariant: a run that is open is what is in flight, and there is no other record of that: what ends a run lets go of its
job. A write names the fence, and is done only while the row is the caller's: same owner, same content of the store. A
run that ended never changes.

Not for: what an end means for its slot and job (see `ending`). A registry in memory beside the rows was rejected: it
was what leaked, and what one process had of it no other could see.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cron_store.records import Claim, Run
from cron_store.states import OPEN_RUNS, RunState
from hermes_state.clock import ClockDomain
from hermes_state.errors import InvalidInput, StaleFence
from hermes_state.leases.rows import LeaseRow
from hermes_state.owners import OwnerIdentity

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction

SOURCES = ("schedule", "manual", "import")
_COLUMNS = (
    "fence, job_id, slot, run_id, source, state, owner, waiter, detached, handed_off_boottime, claimed_at, started_at,"
    " finished_at, lateness_seconds, interrupted_at, interrupted_reason, forced, allowance_seconds, error,"
    " failure_type, session_id, result, attempt"
)
_LEASE = "renewals, owner, boot_id, time_namespace, claimed_boottime, expires_boottime, term_seconds"


def read(reader: Reader, fence: int) -> Run | None:
    """One run."""
    row = reader.row(f"SELECT {_COLUMNS} FROM cron_executions WHERE fence = ?", (fence,))
    return None if row is None else _run(row)


def by_run_id(reader: Reader, run_id: str) -> Run | None:
    """The run by hand of that id."""
    row = reader.row(f"SELECT {_COLUMNS} FROM cron_executions WHERE run_id = ?", (run_id,))
    return None if row is None else _run(row)


def in_flight(reader: Reader, job_id: str | None) -> list[Run]:
    """The open runs of a job, or of all, by fence."""
    return [
        _run(row)
        for row in reader.rows(
            f"SELECT {_COLUMNS} FROM cron_executions INDEXED BY cron_executions_open WHERE finished_at IS NULL"
            + (" AND job_id = ?" if job_id is not None else "") + " ORDER BY fence",
            () if job_id is None else (job_id,),
        )
    ]


def count_in_flight(reader: Reader, job_id: str) -> int:
    """How many runs of a job are open."""
    row = reader.row(
        "SELECT count(*) FROM cron_executions INDEXED BY cron_executions_open WHERE finished_at IS NULL"
        " AND job_id = ?", (job_id,),
    )
    return 0 if row is None else int(row[0])


def last_start_at(reader: Reader, job_id: str) -> float | None:
    """When the newest run of a job's slots was claimed, whatever became of it."""
    row = reader.row(
        "SELECT max(claimed_at) FROM (SELECT max(claimed_at) AS claimed_at FROM cron_executions"
        " INDEXED BY cron_executions_open WHERE finished_at IS NULL AND job_id = ?1 AND slot IS NOT NULL UNION ALL"
        " SELECT * FROM (SELECT claimed_at FROM cron_executions INDEXED BY cron_executions_job"
        " WHERE finished_at IS NOT NULL AND job_id = ?1 AND source = 'schedule' ORDER BY fence DESC LIMIT 1))",
        (job_id,),
    )
    return None if row is None else row[0]


def next_attempt(reader: Reader, before: int | None) -> int:
    """The number of the next run of a slot whose newest run is `before`; None: it had none."""
    if before is None:
        return 1
    row = reader.row("SELECT attempt FROM cron_executions WHERE fence = ?", (before,))
    return 2 if row is None else int(row[0]) + 1  # its row was pruned: it had one at least


def history(
    reader: Reader, *, job_id: str | None, source: str | None, limit: int, before: int | None
) -> list[Run]:
    """Up to `limit` runs, newest first, open ones too; `before` is the fence that the last page ended at."""
    below = 2**62 if before is None else before
    if job_id is None:
        rows = reader.rows(
            f"SELECT {_COLUMNS} FROM cron_executions WHERE fence < ?1 AND (?2 IS NULL OR source = ?2)"
            " ORDER BY fence DESC LIMIT ?3", (below, source, limit),
        )
        return [_run(row) for row in rows]
    found = [
        run for run in in_flight(reader, job_id) if run.fence < below and (source is None or run.source == source)
    ]
    for one in SOURCES if source is None else (source,):
        found += [
            _run(row)
            for row in reader.rows(
                f"SELECT {_COLUMNS} FROM cron_executions INDEXED BY cron_executions_job WHERE finished_at IS NOT NULL"
                " AND job_id = ? AND source = ? AND fence < ? ORDER BY fence DESC LIMIT ?",
                (job_id, one, below, limit),
            )
        ]
    return sorted(found, key=lambda run: -run.fence)[:limit]


def leases(reader: Reader) -> list[tuple[Run, LeaseRow, float | None]]:
    """Every open run, as a lease that can be judged, and the boot time at which it was handed off."""
    return [
        (_run(row[:-7]), _lease(row[0], row[-7:]), row[9])
        for row in reader.rows(
            f"SELECT {_COLUMNS}, {_LEASE} FROM cron_executions INDEXED BY cron_executions_open"
            " WHERE finished_at IS NULL ORDER BY fence"
        )
    ]


def lease(reader: Reader, fence: int) -> LeaseRow | None:
    """One open run as a lease, to be compared with what was judged."""
    row = reader.row(f"SELECT {_LEASE} FROM cron_executions WHERE fence = ? AND finished_at IS NULL", (fence,))
    return None if row is None else _lease(fence, row)


# --- writing -----------------------------------------------------------------------------------------------------


def held(tx: Reader, claim: Claim) -> Run:
    """The open run of a claim that is ours. Raises `StaleFence`: stop what it is doing."""
    found = tx.row(
        "SELECT owner, (SELECT incarnation FROM store) FROM cron_executions WHERE fence = ? AND finished_at IS NULL",
        (claim.fence,),
    )
    run = read(tx, claim.fence) if found == (claim.owner, claim.incarnation) else None
    if run is None or run.job_id != claim.job_id:
        raise stale(tx, claim)
    return run


def stale(tx: Reader, claim: Claim) -> StaleFence:
    """The error for a claim that is not the caller's any more."""
    row = tx.row("SELECT state, finished_at, owner, forced FROM cron_executions WHERE fence = ?", (claim.fence,))
    if row is None:
        how = "is not there: its row was pruned, or the store's content was replaced since"
    elif row[1] is None:
        how = "went on to another process"
    else:
        how = f"ended as {row[0]}{', let go by the rule for lost runs' if row[3] else ''}"
    what = f"by hand {claim.run_id!r}" if claim.slot is None else f"of slot {claim.slot}"
    return StaleFence(
        f"The run {what} of cron job {claim.job_id!r} in {tx.path} (fence {claim.fence}) {how}.",
        hint="Stop it: what it does is no longer recorded.", path=tx.path, name=claim.job_id, fence=claim.fence,
        current=None, state=None if row is None else row[0],
    )


def write_open(
    tx: Transaction, *, job_id: str, slot: int | None, run_id: str | None, lane: str, source: str, owner: str,
    domain: ClockDomain, boottime: float, term_seconds: float, allowance_seconds: float, at: float,
    lateness_seconds: float, session_id: str | None, attempt: int = 1,
) -> int:
    """A new run in flight; gives its fence."""
    tx.execute(
        "INSERT INTO cron_executions (job_id, slot, run_id, lane, source, state, owner, boot_id, time_namespace,"
        " claimed_boottime, expires_boottime, term_seconds, allowance_seconds, claimed_at, lateness_seconds, "
        " session_id, attempt) VALUES (?, ?, ?, ?, ?, 'claimed', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            job_id, slot, run_id, lane, source, owner, domain.boot_id, domain.time_namespace, boottime,
            boottime + term_seconds, term_seconds, allowance_seconds, at, lateness_seconds, session_id, attempt,
        ),
    )
    return tx.last_insert_rowid()


def write_imported(
    tx: Transaction, *, job_id: str, state: RunState, claimed_at: float, started_at: float | None, finished_at: float,
    error: str | None = None, session_id: str | None = None, result: str | None = None,
) -> int:
    """A run of another program as history; it proves no slot. `state` is one of those that end a run; gives its fence.

    `result` is JSON: whatever else was known of it.
    """
    assert state not in OPEN_RUNS
    tx.execute(
        "INSERT INTO cron_executions (job_id, lane, source, state, claimed_at, started_at, finished_at, error,"
        " session_id, result) VALUES (?, '', 'import', ?, ?, ?, ?, ?, ?, ?)",
        (job_id, str(state), claimed_at, started_at, finished_at, error, session_id, result),
    )
    return tx.last_insert_rowid()


def write_started(tx: Transaction, fence: int, *, at: float) -> None:
    """Its effect may begin."""
    tx.execute("UPDATE cron_executions SET state = 'running', started_at = ? WHERE fence = ?", (at, fence))


def write_end(
    tx: Transaction, fence: int, state: RunState, *, at: float, error: str | None = None,
    failure_type: str | None = None, result: str | None = None, session_id: str | None = None, forced: bool = False,
) -> None:
    """It is over."""
    tx.execute(
        "UPDATE cron_executions SET state = ?, finished_at = ?, error = ?, failure_type = ?, result = ?,"
        " session_id = coalesce(?, session_id), forced = ? WHERE fence = ?",
        (str(state), at, error, failure_type, result, session_id, int(forced), fence),
    )


def _lease(fence: int, row: Sequence[Any]) -> LeaseRow:
    renewals, owner, boot_id, time_namespace, claimed, expires, term = row
    return LeaseRow(
        name=f"cron run {fence}", fence=fence, renewals=renewals, owner=owner,
        domain=ClockDomain(boot_id=boot_id or "", time_namespace=time_namespace or ""),
        acquired_boottime=claimed or 0.0, expires_boottime=expires or 0.0, term_seconds=term or 0.0, acquired_at=None,
    )


def owner_of(text: str | None) -> OwnerIdentity | None:
    try:
        return None if text is None else OwnerIdentity.from_json(text)
    except InvalidInput:
        return None


def _run(row: Sequence[Any]) -> Run:
    (
        fence, job_id, slot, run_id, source, state, owner, waiter, detached, handed_off, claimed_at, started_at,
        finished_at, lateness, interrupted_at, interrupted_reason, forced, allowance, error, failure_type, session_id,
        result, attempt,
    ) = row
    return Run(
        fence=fence, job_id=job_id, slot=slot, run_id=run_id, source=source, state=RunState(state),
        owner=owner_of(owner), waiter=owner_of(waiter), detached=bool(detached), handed_off=handed_off is not None,
        claimed_at=claimed_at, started_at=started_at, finished_at=finished_at, lateness_seconds=lateness,
        attempt=attempt, interrupted_at=interrupted_at, interrupted_reason=interrupted_reason, forced=bool(forced),
        allowance_seconds=allowance, error=error,
        failure_type=failure_type, session_id=session_id, result=None if result is None else json.loads(result),
    )
