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
        "DELETE FROM cron_occurrences WHERE job_id = ?1 AND slot IN (SELECT slot FROM cron_occurrences WHERE job_id = ?1"
        " AND slot < ?2 AND last_slot < ?2 AND settled_at IS NOT NULL ORDER BY slot LIMIT ?3)",
        (job_id, before, MOST_ROWS),
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


def trim_events(tx: Transaction) -> int:
    """Keep the newest events."""
    return events.trim(tx)
