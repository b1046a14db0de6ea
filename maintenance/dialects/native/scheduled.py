"""Cron of one store in two files: which of two rows stands, and what may not run again.

Invariant: `settled_through` never falls, and no fence of a run is given twice. A job about which something may be lost
is held: every slot up to now counts as accounted for, what was open has ended as something that may have had its
effect, and it is paused until a person resumes it. A removed job stays removed. Nothing is filled in: no job, no
schedule.

Not for: running jobs, nor telling slots (`cron_store`). Letting a job go on after what the older file says of it was
rejected: each slot that ran since would run again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import floor
from typing import TYPE_CHECKING, Any

from maintenance.dialects.cells import chunks, key_bytes, key_list
from maintenance.dialects.native.owed import Row, Writer
from maintenance.quoting import quoted

if TYPE_CHECKING:
    from hermes_state.engine import Reader

Ask = Callable[[str], list[tuple[Any, ...]]]

KIND = "cron_job"  # of tombstones and of the ledger of deletions
TICK_LEASE = "cron tick"
# By table, what a row is known by in whichever file.
KEYS: Mapping[str, tuple[str, ...]] = {
    "cron_jobs": ("job_id",),
    "cron_schedules": ("job_id", "version"),
    "cron_runtime": ("job_id",),
    "cron_occurrences": ("job_id", "slot"),
    "cron_executions": ("fence",),
    "cron_incidents": ("incident_id",),
    "cron_events": ("id",),
    "cron_home": ("one",),
}
TABLES = frozenset(KEYS)
# What a job is, and how it stands: without one of them it cannot be read, and is not run.
PARTS = ("cron_jobs", "cron_schedules", "cron_runtime")
NUMBERED = {"cron_executions": "fence", "cron_events": "id"}
# Unique indexes that a stale row must not be refused by before it is known to be stale.
AFTER_ROWS = frozenset({"cron_executions_open"})
# Fences that may have been given since of which nothing is known.
FENCE_LEAP = 1_000_000
# Why a job is paused by a restore or a recovery.
NOT_KNOWN = "the content of the store was replaced, and it is not known what became of this job since: resume it"
NOT_THERE = "the store whose content was replaced had no such job: resume it if it is wanted"
NOT_SURE = "its store was damaged, and it is not known what became of this job since: resume it"
STATE_LOST = "how it stood was lost to damage: resume it"
LOST_WAL = "a WAL that was lost had it, and it is not known what became of it since: resume it if it is wanted"
HELD = (NOT_KNOWN, NOT_THERE, NOT_SURE, STATE_LOST, LOST_WAL)
MOST_ROWS = 1000
NAMED = 100  # jobs in a document
# The reason of a slot that was open in content that is older than what happened.
DOUBTED = "doubted"
# Jobs that go on in a session that was deleted. One that was never here may be the application's own.
SESSION_GONE = "session_id IN (SELECT key FROM tombstones WHERE kind = 'session')"
_HAS_SESSION = (
    "id = {} AND NOT (hidden = 1 AND active_at = 0 AND coalesce(end_reason, '') IN ('being_deleted',"
    " 'kept_for_branches'))"
)
_RUN = {"claimed": 0, "running": 1}
_SLOT = {"claimed": 0, "running": 1, "due": 2}  # under one fence: due again is what came last
_NEEDED: Mapping[str, frozenset[str]] = {
    "cron_jobs": frozenset({"version", "updated_at"}),
    "cron_runtime": frozenset({"settled_through", "revision"}),
    "cron_occurrences": frozenset({"settled_at", "fence", "state", "last_slot"}),
    "cron_executions": frozenset({"finished_at", "state", "renewals"}),
    "cron_incidents": frozenset({"state", "generation", "last_at", "count"}),
    "cron_home": frozenset({"heartbeat_at"}),
}


@dataclass(kw_only=True)
class Kept:
    """What became of cron, in rows."""

    jobs: int = 0  # stand as the other file had them: it knew them later, or alone
    runs: int = 0  # of the other file, made since
    removed: int = 0  # jobs that were removed since and stay so
    paused: list[str] = field(default_factory=list)  # jobs that fire nothing until somebody resumes them
    doubted: int = 0  # slots that were open and may have run: they never run again
    ended: int = 0  # runs in flight that ended by it
    sessions: int = 0  # jobs whose next run begins a new session, since theirs is not here

    def document(self) -> dict[str, Any]:
        """The counts, and up to `NAMED` of the jobs to resume."""
        return asdict(self) | {"paused": len(self.paused), "paused_jobs": sorted(self.paused)[:NAMED]}


def has_cron(ask: Ask) -> bool:
    """Whether a file has all the tables."""
    return {str(name) for (name,) in ask("SELECT name FROM sqlite_schema WHERE type = 'table'")} >= TABLES


def any_cron(ask: Ask) -> bool:
    """Whether there is anything in the tables that must not be lost."""
    return bool(ask(" UNION ALL ".join(f"SELECT * FROM (SELECT 1 FROM {name} LIMIT 1)" for name in sorted(TABLES))))


def columns(ask: Ask, table: str) -> list[str]:
    """The columns of a table."""
    return [str(name) for (name,) in ask(f"SELECT name FROM pragma_table_info('{table}')")]


def portions(ask: Ask, table: str, where: str = "true") -> Iterator[list[Row]]:
    """The rows of a table as dictionaries, in portions, in the order of their keys."""
    names, keys = columns(ask, table), KEYS[table]
    said, order = ", ".join(map(quoted, names)), ", ".join(keys)
    after = "true"
    while rows := ask(
        f"SELECT {said} FROM {table} NOT INDEXED WHERE {where} AND {after} ORDER BY {order} LIMIT {MOST_ROWS}"
    ):
        found = [dict(zip(names, row, strict=True)) for row in rows]
        yield found
        last = ", ".join(_literal(value) for value in key_of(table, found[-1]))
        after = f"({order}) > ({last})"


def rows_of(ask: Ask, table: str, where: str = "true") -> list[Row]:
    """Rows of a table as dictionaries, in the order of their keys."""
    return [row for rows in portions(ask, table, where) for row in rows]


def by_key(ask: Ask, table: str) -> dict[tuple[Any, ...], Row]:
    """The rows of a table by what they are known by."""
    return {key_of(table, row): row for row in rows_of(ask, table)}


def key_of(table: str, row: Mapping[str, Any]) -> tuple[Any, ...]:
    """What a row is known by in whichever file."""
    return tuple(row[name] for name in KEYS[table])


def put(tx: Writer, table: str, row: Mapping[str, Any], *, into: Sequence[str]) -> None:
    """Write a row in the place of one with the same key; the triggers of the table are away."""
    said = {name: value for name, value in row.items() if name in into}
    tx.execute(
        f"INSERT OR REPLACE INTO {table} ({', '.join(map(quoted, said))}) VALUES ({', '.join('?' * len(said))})",
        list(said.values()),
    )


def of_job(job_id: str) -> str:
    """The condition that a row is of a job, for an asker that binds no values."""
    return f"job_id = {_literal(job_id)}"


def _literal(value: Any) -> str:
    if isinstance(value, int):
        return str(value)
    return f"CAST(x'{str(value).encode('utf-8', 'surrogatepass').hex()}' AS TEXT)"


# --- which of two versions ---------------------------------------------------------------------------------------


def tells_later(table: str, names: Sequence[str]) -> bool:
    """Whether of two versions of a row of this table, with these columns, it can be told which is later."""
    return table in _NEEDED and {*names} >= {*_NEEDED[table], *KEYS[table]}


def later_of(table: str, one: Mapping[str, Any], two: Mapping[str, Any]) -> bool | None:
    """Whether `two` comes after `one`, two versions of one row; None: they do not say."""
    if key_of(table, one) != key_of(table, two):
        return None
    first, second = _place(table, one), _place(table, two)
    if first == second or not all(isinstance(value, int | float) for value in (*first, *second)):
        return None
    return second > first


def _place(table: str, row: Mapping[str, Any]) -> tuple[Any, ...]:
    """What counts the later the higher it is, in this order."""
    state = str(row.get("state"))
    if table == "cron_jobs":
        return row["version"], row["updated_at"]
    if table == "cron_runtime":
        return row["settled_through"], row["revision"]
    if table == "cron_occurrences":
        # A verdict is the end of a slot; of an open one the later run is the later version.
        return row["settled_at"] is not None, row["fence"] or 0, _SLOT.get(state, 3), row["last_slot"]
    if table == "cron_executions":
        return row["finished_at"] is not None, _RUN.get(state, 2), row["renewals"]
    if table == "cron_incidents":
        return state == "closed", row["generation"], row["last_at"], row["count"]
    return (row["heartbeat_at"] or 0.0,)


def problem_of(job: Mapping[str, Any], schedule: Mapping[str, Any] | None) -> str:
    """Why the program could not read a declaration; "" when it can."""
    from cron_store.schedule import from_json
    from hermes_state.errors import InvalidInput

    try:
        if not isinstance(json.loads(job["fields"]), dict):
            return "its fields are no object"
        if schedule is None:
            return "it has no schedule"
        from_json(schedule["schedule"])
    except (InvalidInput, ValueError, TypeError, RecursionError) as error:
        return str(error)
    return ""


def newest_schedule(tx: Writer | Reader, job_id: str) -> Row | None:
    """The newest version of a job's schedule."""
    names = columns(tx.rows, "cron_schedules")
    row = tx.row(
        f"SELECT {', '.join(names)} FROM cron_schedules WHERE job_id = ? ORDER BY version DESC LIMIT 1", (job_id,)
    )
    return None if row is None else dict(zip(names, row, strict=True))


def was_removed(ask: Ask, job_id: str, created_at: float) -> bool:
    """Whether a file says that a job of that id was removed after `created_at`."""
    key = _literal(job_id)
    looks = (
        f"SELECT 1 FROM tombstones WHERE kind = '{KIND}' AND key = {key} AND made_at >= {created_at!r}",
        f"SELECT 1 FROM deletions, json_each(deletions.keys) WHERE kind = '{KIND}' AND value = {key}"
        f" AND made_at >= {created_at!r}",
    )
    return any(ask(f"{look} LIMIT 1") for look in looks)


def is_removed(ask: Ask, job_id: str, created_at: float) -> bool:
    """Whether a file says that a job was removed after `created_at`, or has only records left of it."""
    key = _literal(job_id)
    return was_removed(ask, job_id, created_at) or (has_cron(ask) and any(
        ask(
            f"SELECT 1 FROM {name} WHERE job_id = {key} AND NOT EXISTS (SELECT 1 FROM cron_jobs WHERE job_id = {key})"
            " LIMIT 1"
        ) for name in ("cron_occurrences", "cron_executions")
    ))


# --- holding a job -----------------------------------------------------------------------------------------------


def hold(tx: Writer, job_id: str, why: str, *, at: float) -> tuple[bool, int, int]:
    """Let nothing of a job that came due until `at` run by itself, and nothing later before it is resumed.

    The triggers of the tables are away. Gives whether it was paused by it, how many of its slots may have run, and how
    many of its runs ended.
    """
    ended, doubted = end_runs(tx, job_id, why, at=at), doubt_slots(tx, job_id, at=at)
    newest = tx.row("SELECT max(last_slot) FROM cron_occurrences WHERE job_id = ?", (job_id,))
    mark = max(floor(at), -1 if newest is None or newest[0] is None else int(newest[0]))
    tx.execute(
        "UPDATE cron_runtime SET settled_through = max(settled_through, ?), due_at = NULL, next_slot = NULL,"
        " revision = revision + 1 WHERE job_id = ?", (mark, job_id),
    )
    schedule = newest_schedule(tx, job_id)
    state = tx.row("SELECT state FROM cron_runtime WHERE job_id = ?", (job_id,))
    if schedule is None or state is None or state[0] in ("paused", "completed"):
        if schedule is not None and state == ("paused",) and schedule["active"]:
            _version(tx, schedule, active=0, at=at)
        return False, doubted, ended
    if schedule["active"]:
        _version(tx, schedule, active=0, at=at)
    tx.execute(
        "UPDATE cron_runtime SET state = 'paused', state_at = ?, state_reason = ? WHERE job_id = ?", (at, why, job_id)
    )
    return True, doubted, ended


def ended(run: Mapping[str, Any], why: str, *, at: float) -> Row:
    """What an open run is once nobody goes on with it: of one that had not begun it is not known whether it did."""
    return {"state": "unknown" if run["started_at"] is None else "interrupted", "finished_at": at, "error": why}


def doubted(slot: Mapping[str, Any], *, at: float) -> Row:
    """What an open slot is once nobody knows whether it ran."""
    begun = slot["fence"] is not None and (slot["state"] == "running" or slot["reason"] == "repeated")
    return {"state": "interrupted" if begun else "unknown", "reason": DOUBTED, "settled_at": at}


def end_runs(tx: Writer, job_id: str, why: str, *, at: float) -> int:
    """End the open runs of a job, which may have gone on since; how many. One that had not begun is `unknown`."""
    (count,) = tx.rows(
        "SELECT count(*) FROM cron_executions WHERE finished_at IS NULL AND job_id = ?", (job_id,)
    )[0]
    if count:
        tx.execute(
            "UPDATE cron_executions SET state = CASE WHEN started_at IS NULL THEN 'unknown' ELSE 'interrupted' END,"
            " finished_at = ?, error = ? WHERE finished_at IS NULL AND job_id = ?", (at, why, job_id),
        )
    return int(count)


def doubt_slots(tx: Writer, job_id: str, *, at: float) -> int:
    """End the open slots of a job, each of which may have had its effect; how many.

    One whose run had begun is interrupted, as its run is; of the others it is not known whether they ran.
    """
    open_rows = "settled_at IS NULL AND job_id = ?"
    (count,) = tx.rows(f"SELECT count(*) FROM cron_occurrences WHERE {open_rows}", (job_id,))[0]
    if count:
        tx.execute(
            "UPDATE cron_occurrences SET state = CASE WHEN fence IS NOT NULL AND (state = 'running' OR reason ="
            f" 'repeated') THEN 'interrupted' ELSE 'unknown' END, reason = ?, settled_at = ? WHERE {open_rows}",
            (DOUBTED, at, job_id),
        )
    return int(count)


def _version(tx: Writer, schedule: Row, *, active: int, at: float) -> None:
    tx.execute(
        "INSERT INTO cron_schedules (job_id, version, from_slot, active, schedule, made_at) SELECT job_id, ?,"
        " settled_through, ?, ?, ? FROM cron_runtime WHERE job_id = ?",
        (schedule["version"] + 1, active, schedule["schedule"], at, schedule["job_id"]),
    )


def take_out(tx: Writer, job_id: str) -> int:
    """Remove what a job is, and leave the records of its slots and runs; how many rows."""
    count = 0
    for table in PARTS:
        (rows,) = tx.rows(f"SELECT count(*) FROM {table} WHERE job_id = ?", (job_id,))[0]
        tx.execute(f"DELETE FROM {table} WHERE job_id = ?", (job_id,))
        count += int(rows)
    return count


def forget_sessions(tx: Writer, there: Ask) -> int:
    """Let jobs whose session another file has, and this one has not, begin a new one; how many."""
    count = 0
    for job_id, session_id in tx.rows("SELECT job_id, session_id FROM cron_runtime WHERE session_id IS NOT NULL"):
        look = f"SELECT 1 FROM sessions WHERE {_HAS_SESSION.format(_literal(session_id))}"
        if there(look) and not tx.rows(look):
            tx.execute(
                "UPDATE cron_runtime SET session_id = NULL, revision = revision + 1 WHERE job_id = ?", (job_id,)
            )
            count += 1
    return count


def jobs_to_hold(tx: Writer) -> list[str]:
    """Every job, and every id of which something is open."""
    return [str(job_id) for (job_id,) in tx.rows(
        "SELECT job_id FROM cron_jobs UNION SELECT job_id FROM cron_runtime UNION SELECT job_id FROM cron_executions"
        " WHERE finished_at IS NULL UNION SELECT job_id FROM cron_occurrences WHERE settled_at IS NULL ORDER BY job_id"
    )]


# --- looking -----------------------------------------------------------------------------------------------------


def jobs_in(reader: Reader, ids: Sequence[str]) -> int:
    """How many jobs would go on in these sessions."""
    if not has_cron(reader.rows):
        return 0
    return sum(
        int(reader.rows(
            f"SELECT count(*) FROM cron_runtime WHERE session_id IN {key_list(len(part))}",
            [key_bytes(key) for key in part],
        )[0][0])
        for part in chunks(ids)
    )


def jobs_lacking(copy: Reader, live: Reader) -> int:
    """How many jobs and runs a copy knows later than the store, or alone."""
    if not has_cron(copy.rows):
        return 0
    if not has_cron(live.rows):
        return len(rows_of(copy.rows, "cron_jobs"))
    later: set[str] = set()
    for table in ("cron_jobs", "cron_runtime"):
        mine = by_key(live.rows, table)
        for row in rows_of(copy.rows, table):
            there = mine.get(key_of(table, row))
            if there is None:
                lacks = table == "cron_jobs" and not is_removed(live.rows, row["job_id"], row["created_at"])
            else:
                lacks = bool(later_of(table, there, row))
            if lacks:
                later.add(row["job_id"])
    # A fence that the store gave and that nothing has any more is of a run that it pruned.
    given = last_fence(live.rows)
    return len(later) + int(copy.rows("SELECT count(*) FROM cron_executions WHERE fence > ?", (given,))[0][0])


def last_number(ask: Ask, table: str) -> int:
    """The highest number that was given out in a table whose rows are numbered."""
    (given,) = ask(
        f"SELECT max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = '{table}'), 0),"
        f" coalesce((SELECT max({NUMBERED[table]}) FROM {table} NOT INDEXED), 0))"
    )[0]
    return int(given)


def last_fence(ask: Ask) -> int:
    """The highest fence that was given to a run."""
    return last_number(ask, "cron_executions")
