"""What history lets go of: slots that are settled, runs that ended, events.

Invariant: an open row is never pruned, and nothing that is pruned can come back: `settled_through` refuses its slots
for ever, whether or not rows still exist. Each step is one short transaction.

Not for: jobs (see `jobs/declaring`). Keeping the proof that a slot was run in the history of runs was rejected: when
that was cut to its last 1,000, old slots ran again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cron_store import events
from cron_store.records import KEEP_EXECUTIONS, Pruned
from cron_store.runs.rows import SOURCES

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction

MOST_ROWS = 500  # of each kind in one step
KEEP_DAYS = 30.0
DAY = 86_400.0


def jobs(reader: Reader, *, after: str, limit: int) -> list[str]:
    """Up to `limit` ids with any history, removed jobs too, after one."""
    found = []
    for _ in range(limit):
        row = reader.row(
            "SELECT min(job_id) FROM (SELECT * FROM (SELECT job_id FROM cron_occurrences WHERE job_id > ?1"
            " ORDER BY job_id LIMIT 1) UNION ALL SELECT * FROM (SELECT job_id FROM cron_executions"
            " INDEXED BY cron_executions_job WHERE finished_at IS NOT NULL AND job_id > ?1 ORDER BY job_id LIMIT 1))",
            (after,),
        )
        if row is None or row[0] is None:
            break
        after = row[0]
        found.append(after)
    return found


def step(tx: Transaction, job_id: str, *, before: float) -> Pruned:
    """Let go of up to `MOST_ROWS` of each kind of one job: slots before `before`, and runs beyond what it keeps."""
    slots = tx.execute(
        "DELETE FROM cron_occurrences WHERE job_id = ?1 AND slot IN (SELECT slot FROM cron_occurrences WHERE job_id ="
        " ?1 AND slot < ?2 AND last_slot < ?2 AND settled_at IS NOT NULL ORDER BY slot LIMIT ?3)",
        (job_id, before, MOST_ROWS),
    )
    tx.execute(
        "DELETE FROM cron_schedules WHERE job_id = ?1 AND made_at < ?2 AND version < (SELECT max(version) FROM"
        " cron_schedules WHERE job_id = ?1)", (job_id, before),
    )
    row = tx.row("SELECT keep_executions FROM cron_jobs WHERE job_id = ?", (job_id,))
    keep = KEEP_EXECUTIONS if row is None else int(row[0])
    runs, more = 0, slots == MOST_ROWS
    for source in SOURCES:
        gone = tx.execute(
            "DELETE FROM cron_executions WHERE fence IN (SELECT fence FROM cron_executions INDEXED BY"
            " cron_executions_job WHERE finished_at IS NOT NULL AND job_id = ?1 AND source = ?2 AND fence <= (SELECT"
            " fence FROM cron_executions INDEXED BY cron_executions_job WHERE finished_at IS NOT NULL AND job_id = ?1"
            " AND source = ?2 ORDER BY fence DESC LIMIT 1 OFFSET ?3) ORDER BY fence LIMIT ?4)",
            (job_id, source, keep, MOST_ROWS),
        )
        runs += gone
        more = more or gone == MOST_ROWS
    return Pruned(slots=slots, runs=runs, more=more)


def prunable(reader: Reader, *, before: float) -> Pruned:
    """How much `upkeep` would let go now: slots before `before`, runs beyond what jobs keep, events. Reads all runs."""
    slots = reader.row(
        "SELECT count(*) FROM cron_occurrences WHERE slot < ?1 AND last_slot < ?1 AND settled_at IS NOT NULL", (before,)
    )
    runs = reader.row(
        "SELECT coalesce(sum(max(0, e.ended - coalesce(j.keep_executions, ?1))), 0) FROM (SELECT job_id, source,"
        " count(*) AS ended FROM cron_executions INDEXED BY cron_executions_job WHERE finished_at IS NOT NULL"
        " GROUP BY job_id, source) AS e LEFT JOIN cron_jobs AS j ON j.job_id = e.job_id", (KEEP_EXECUTIONS,),
    )
    gone = reader.row(
        "SELECT count(*) FROM cron_events WHERE id <= (SELECT max(id) FROM cron_events) - ?", (events.KEPT,)
    )
    slot_count, run_count, event_count = (0 if row is None else int(row[0]) for row in (slots, runs, gone))
    return Pruned(slots=slot_count, runs=run_count, events=event_count)


def last_step(tx: Transaction, *, before: float) -> int:
    """Let go of incidents that are over since before `before`, but for closed ones, and of old events; how many."""
    tx.execute(
        "DELETE FROM cron_incidents WHERE last_at < ? AND (state = 'resolved' OR (state <> 'closed' AND job_id NOT IN"
        " (SELECT job_id FROM cron_jobs)))", (before,),
    )
    return events.trim(tx)
