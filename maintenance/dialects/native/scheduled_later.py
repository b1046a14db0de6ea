"""What another file of the same store knows later of cron, put into this one.

Invariant: of two versions of a row the later stands, and what counts up never falls: not `settled_through`, not the
repeats that are used. A run that is in flight there has ended here, since nobody can go on with it; a record of slots
that covers those of another one here is left. The triggers of the tables are away.

Not for: whether a job may go on after that (`scheduled.hold`), nor jobs that were removed (`scheduled.is_removed`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from maintenance.dialects.native.owed import Row, Writer
from maintenance.dialects.native.scheduled import KEYS, Ask, ended, key_of, later_of, portions, put, tells_later
from maintenance.quoting import quoted

if TYPE_CHECKING:
    from hermes_state.engine import Reader

Columns = Mapping[str, Sequence[str]]  # of the tables here


def take_later(
    tx: Writer, job: Row, schedules: Sequence[Row], runtime: Row, *, into: Columns
) -> bool:
    """Let a declaration, its schedule versions and how the job stands hold where they are later than here; whether
    anything was. What counts up never falls. The caller holds the job afterwards."""
    changed = False
    for table, rows in (("cron_jobs", [job]), ("cron_schedules", schedules), ("cron_runtime", [runtime])):
        for row in rows:
            there = find(tx, table, row, into[table])
            if there is not None and not (tells_later(table, [*row]) and later_of(table, there, row)):
                continue
            if there is not None and table == "cron_runtime":
                row = row | {
                    name: max(row[name], there[name])
                    for name in ("settled_through", "repeat_completed", "revision")
                }
            put(tx, table, row, into=into[table])
            changed = True
    return changed


def take_history(tx: Writer, ask: Ask, why: str, *, into: Columns, at: float) -> int:
    """Take runs and records of slots that another file has alone, or has later; how many runs. `why`: what is said of a
    run that is in flight there."""
    count = 0
    for rows in portions(ask, "cron_executions"):
        for row in rows:
            there = find(tx, "cron_executions", row, into["cron_executions"])
            if there is None:
                if row["run_id"] is not None and tx.row(
                    "SELECT 1 FROM cron_executions WHERE run_id = ?", (row["run_id"],)
                ) is not None:
                    continue
            elif there["job_id"] != row["job_id"] or not later_of("cron_executions", there, row):
                continue
            if row["finished_at"] is None:
                row |= ended(row, why, at=at)
            put(tx, "cron_executions", row, into=into["cron_executions"])
            count += 1
    for rows in portions(ask, "cron_occurrences"):
        for row in rows:
            there = find(tx, "cron_occurrences", row, into["cron_occurrences"])
            if there is not None and not later_of("cron_occurrences", there, row):
                continue
            if not overlaps(tx, row):
                put(tx, "cron_occurrences", row, into=into["cron_occurrences"])
    return count


def take_incidents(tx: Writer, ask: Ask, *, into: Columns) -> int:
    """Take incidents that another file has alone, or has later; how many."""
    count = 0
    for rows in portions(ask, "cron_incidents"):
        for row in rows:
            there = find(tx, "cron_incidents", row, into["cron_incidents"])
            if there is None or later_of("cron_incidents", there, row):
                put(tx, "cron_incidents", row, into=into["cron_incidents"])
                count += 1
    return count


def find(tx: Writer | Reader, table: str, row: Mapping[str, Any], names: Sequence[str]) -> Row | None:
    """The row here that is known by the same as this one. `names`: the columns of the table here."""
    same = " AND ".join(f"{name} IS ?" for name in KEYS[table])
    found = tx.row(f"SELECT {', '.join(map(quoted, names))} FROM {table} WHERE {same}", list(key_of(table, row)))
    return None if found is None else dict(zip(names, found, strict=True))


def overlaps(tx: Writer, row: Row) -> bool:
    """Whether another record of the job covers a slot of this one."""
    before = tx.row(
        "SELECT max(last_slot) FROM cron_occurrences WHERE job_id = ? AND slot < ?", (row["job_id"], row["slot"])
    )
    after = tx.row(
        "SELECT 1 FROM cron_occurrences WHERE job_id = ? AND slot > ? AND slot <= ?",
        (row["job_id"], row["slot"], row["last_slot"]),
    )
    return after is not None or (before is not None and before[0] is not None and before[0] >= row["slot"])
