"""One row of a home: when its ticker was heard, and what the clocks said then.

Invariant: wall clock and boot time are written together, so that a step of the wall clock shows as what the two moved
apart; across a boot or a namespace nothing is concluded. Heartbeat, success and error are three times: a ticker that
lives and does nothing is told from one that works.

Not for: who ticks which homes (that is the host's). Leaving steps to be seen in the history of slots was rejected: an
hour of missed slots and an hour that never was look alike there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cron_store import events
from cron_store.records import ClockStep, TickerRow
from cron_store.runs.rows import owner_of
from hermes_state.clock import ClockDomain

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction

MOST_STEP_SECONDS = 60.0


def beat(
    tx: Transaction, *, at: float, boottime: float, domain: ClockDomain, owner: str, succeeded: bool, error: str | None
) -> ClockStep | None:
    """Note that the ticker lives; gives the step of the wall clock since it was heard last, if there was one."""
    row = tx.row("SELECT wall_at, boottime, boot_id, time_namespace FROM cron_home")
    step = None
    if row is not None and ClockDomain(boot_id=row[2], time_namespace=row[3]).comparable(domain):
        moved = (at - row[0]) - (boottime - row[1])
        if abs(moved) > MOST_STEP_SECONDS:
            step = ClockStep(seconds=moved, at=at)
            events.record(tx, "clock_step", at=at, seconds=moved, wall_before=row[0], wall_after=at)
            if moved < 0:
                # What waits is due, whatever the clock says now; it would be looked at only once that has caught up.
                tx.execute(
                    "UPDATE cron_runtime SET due_at = ?1 WHERE due_at > ?1 AND EXISTS (SELECT 1 FROM cron_occurrences"
                    " AS o WHERE o.job_id = cron_runtime.job_id AND o.settled_at IS NULL AND o.state = 'due')", (at,),
                )
    tx.execute(
        "INSERT INTO cron_home (one, wall_at, boottime, boot_id, time_namespace, heartbeat_at, success_at, error_at,"
        " error, ticker) VALUES (1, ?1, ?2, ?3, ?4, ?1, CASE WHEN ?5 THEN ?1 END, CASE WHEN ?6 IS NOT NULL THEN ?1 END,"
        " ?6, ?7) ON CONFLICT (one) DO UPDATE SET wall_at = ?1, boottime = ?2, boot_id = ?3, time_namespace = ?4,"
        " heartbeat_at = ?1, success_at = CASE WHEN ?5 THEN ?1 ELSE success_at END,"
        " error_at = CASE WHEN ?5 THEN NULL WHEN ?6 IS NOT NULL THEN ?1 ELSE error_at END,"
        " error = CASE WHEN ?5 THEN NULL WHEN ?6 IS NOT NULL THEN ?6 ELSE error END, ticker = ?7",
        (at, boottime, domain.boot_id, domain.time_namespace, int(succeeded), error, owner),
    )
    return step


def ticker(reader: Reader) -> TickerRow | None:
    """The ticker as it was last heard; None: never."""
    row = reader.row("SELECT heartbeat_at, success_at, error_at, error, ticker FROM cron_home")
    if row is None:
        return None
    return TickerRow(
        heartbeat_at=row[0], success_at=row[1], error_at=row[2], error=row[3], owner=owner_of(row[4])
    )
