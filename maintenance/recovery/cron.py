"""Cron of a recovered store: what is doubtful does not run by itself, and no slot that may have run runs again.

Invariant: of two versions of a row the later stands. A job whose declaration or schedule is lost, or cannot be read, is
kept apart with its rows; one of which any other row is not certain, or may have changed in commits that are gone, is
held: accounted for up to now, and paused until a person resumes it. What is in flight agrees with the slot that it is
for, or has ended. Where runs may be lost no fence is given twice. Nothing is filled in but the state of a job whose own
is lost, and that is: paused.

Not for: a store that takes recovered content (`maintenance.replacement.cron`). Letting certain jobs of a store go on
whose schedules are lost in part was rejected: the version that says that a job is paused may be among the lost.
"""

from __future__ import annotations

from math import floor
from typing import TYPE_CHECKING, Any

from maintenance.dialects.native import owed, scheduled
from maintenance.dialects.native.scheduled import NOT_SURE, STATE_LOST
from maintenance.interop.typed import CellReader
from maintenance.quoting import quoted
from maintenance.recovery.filling import key_of
from maintenance.recovery.notes import said_cells

if TYPE_CHECKING:
    from hermes_state.clock import Clock
    from maintenance.recovery.filling import Filler, TableFiller
    from maintenance.recovery.ladder import Fate
    from maintenance.recovery.notes import Key

STEP = 11  # the schema step that made the tables
RUNG = "judged"
NO_JOB = "there is no job for it"
NOT_READ = "its job cannot be read: "


def settle_cron(
    filler: Filler, fillers: dict[str, TableFiller], fates: dict[str, Fate], *, hidden: bool, numbered: bool,
    clock: Clock,
) -> None:
    """Judge jobs, slots and runs of a native result.

    `hidden`: commits were found that SQLite does not see; `numbered`: the counters of numbers could be read. One
    transaction, before the list of schema steps is completed: it says whether there was cron at all.
    """
    if not {*fillers} >= scheduled.TABLES:
        return
    with filler.mending("cron") as due:
        steps = {int(number) for (number,) in filler.db.rows("SELECT number FROM migrations")}
        if not due or (steps and max(steps) < STEP):
            return
        judging = _Judging(filler, fillers, fates, hidden, clock.now())
        judging.numbers(numbered)
        judging.parts()
        judging.jobs()
        judging.open_rows()


class _Judging:
    def __init__(
        self, filler: Filler, fillers: dict[str, TableFiller], fates: dict[str, Fate], hidden: bool, at: float
    ) -> None:
        self._filler, self._fillers, self._fates = filler, fillers, fates
        self._db, self._hidden, self._at = filler.db, hidden, at
        # Counted before anything is judged: rows that are kept apart here are no sign of damage beside them.
        self._found_apart = {
            name: filler.notes.count("_recovery_apart", fillers[name].number) for name in scheduled.TABLES
        }

    def numbers(self, numbered: bool) -> None:
        """No fence and no number of an event is given that may have been given before."""
        for name in scheduled.NUMBERED:
            to = scheduled.last_number(self._db.rows, name)
            if self._hidden or not numbered or self._in_part(name):
                to = max(to, self._filler.notes.highest(self._fillers[name].number)) + scheduled.FENCE_LEAP
                if name == "cron_executions":
                    self._say("cron_fences_raised", name, None, to=to)
            owed.raise_sequence(self._db, name, to)

    def parts(self) -> None:
        """What no job can be made of is kept apart; a job without its state gets one: paused."""
        for row in scheduled.rows_of(self._db.rows, "cron_jobs"):
            job_id = row["job_id"]
            problem = scheduled.problem_of(row, scheduled.newest_schedule(self._db, job_id))
            if problem:
                self._apart_with(job_id, f"{NOT_READ}{problem}")
                self._say("cron_job_kept_apart", "cron_jobs", job_id, why=problem)
            elif self._db.row("SELECT 1 FROM cron_runtime WHERE job_id = ?", (job_id,)) is None:
                self._db.execute(
                    "INSERT INTO cron_runtime (job_id, state, state_at, state_reason, settled_through, tz_version)"
                    " VALUES (?, 'error', ?, '', ?, '')", (job_id, self._at, floor(self._at)),
                )
                key = self._key("cron_runtime", {"job_id": job_id})
                self._filler.notes.made(self._fillers["cron_runtime"].number, key)
                self._hold(job_id, STATE_LOST)
        for (job_id,) in self._db.rows(
            "SELECT job_id FROM cron_runtime UNION SELECT job_id FROM cron_schedules EXCEPT SELECT job_id FROM"
            " cron_jobs"
        ):
            self._apart_with(job_id, NO_JOB)
            self._say("cron_job_kept_apart", "cron_runtime", job_id, why=NO_JOB)

    def jobs(self) -> None:
        """Hold what is not sure."""
        unsure = self._hidden or self._in_part("cron_schedules")
        for row in scheduled.rows_of(self._db.rows, "cron_jobs"):
            job_id = row["job_id"]
            newest = self._db.row("SELECT max(last_slot) FROM cron_occurrences WHERE job_id = ?", (job_id,))
            mark = self._db.row("SELECT settled_through FROM cron_runtime WHERE job_id = ?", (job_id,))
            behind = newest is not None and newest[0] is not None and mark is not None and newest[0] > mark[0]
            if unsure or behind or self._is_doubtful(job_id):
                self._hold(job_id, NOT_SURE)

    def open_rows(self) -> None:
        """A run in flight and its slot say the same, or both have ended; of a lane the newest run is in flight."""
        for fence, job_id in self._db.rows(
            "SELECT fence, job_id FROM cron_executions AS e WHERE finished_at IS NULL AND ((slot IS NOT NULL AND NOT"
            " EXISTS (SELECT 1 FROM cron_occurrences AS o WHERE o.job_id = e.job_id AND o.slot = e.slot AND o.fence ="
            " e.fence AND o.state = e.state)) OR EXISTS (SELECT 1 FROM cron_executions AS l WHERE l.job_id = e.job_id"
            " AND l.lane = e.lane AND l.finished_at IS NULL AND l.fence > e.fence)) ORDER BY fence"
        ):
            self._db.execute(
                "UPDATE cron_executions SET state = CASE WHEN started_at IS NULL THEN 'unknown' ELSE 'interrupted' END,"
                " finished_at = ?, error = ? WHERE fence = ?", (self._at, NOT_SURE, fence),
            )
            self._say("cron_run_ended", "cron_executions", fence, job=job_id)
        for job_id, slot, fence in self._db.rows(
            "SELECT job_id, slot, fence FROM cron_occurrences AS o WHERE state IN ('claimed', 'running') AND NOT EXISTS"
            " (SELECT 1 FROM cron_executions AS e WHERE e.fence = o.fence AND e.finished_at IS NULL AND e.state ="
            " o.state AND e.job_id = o.job_id AND e.slot = o.slot) ORDER BY job_id, slot"
        ):
            self._db.execute(
                "UPDATE cron_occurrences SET state = CASE WHEN state = 'running' OR reason = 'repeated' THEN"
                " 'interrupted' ELSE 'unknown' END, reason = ?, settled_at = ? WHERE job_id = ? AND slot = ?",
                (scheduled.DOUBTED, self._at, job_id, slot),
            )
            self._say("cron_slot_doubted", "cron_occurrences", [job_id, slot], fence=fence)

    # --- within ----------------------------------------------------------------------------------------------

    def _hold(self, job_id: str, why: str) -> None:
        paused, doubted, ended = scheduled.hold(self._db, job_id, why, at=self._at)
        if paused or doubted or ended:
            self._say("cron_job_held", "cron_jobs", job_id, why=why, paused=paused, slots=doubted, runs=ended)

    def _is_doubtful(self, job_id: str) -> bool:
        """Whether what the job is, how it stands, or anything of it that is open, is not certain."""
        still_open = {"cron_occurrences": "settled_at IS NULL", "cron_executions": "finished_at IS NULL"}
        return any(
            self._doubt(table, self._key(table, row))
            for table in (*scheduled.PARTS, *still_open)
            for row in scheduled.rows_of(
                self._db.rows, table, f"{scheduled.of_job(job_id)} AND {still_open.get(table, 'true')}"
            )
        )

    def _apart_with(self, job_id: str, reason: str) -> None:
        """Take what a job is out of the result and keep it beside it; the records of its slots and runs stay, ended."""
        for table in scheduled.PARTS:
            for row in scheduled.rows_of(self._db.rows, table, scheduled.of_job(job_id)):
                one, key = self._fillers[table], self._key(table, row)
                where = " AND ".join(f"{quoted(name)} IS ?" for name in scheduled.KEYS[table])
                found = self._db.row(
                    f"SELECT {CellReader(one.table.names).sql} FROM {table} WHERE {where}",
                    list(scheduled.key_of(table, row)),
                )
                assert found is not None  # it was read in this transaction
                cells = CellReader(one.table.names).cells(found)
                self._filler.notes.apart(one.number, key, reason, {
                    "table": table, "key": key, "reason": reason, "rung": RUNG,
                    "values": said_cells(one.table.names, cells),
                })
                self._filler.notes.proven(one.number, key)
        scheduled.take_out(self._db, job_id)
        scheduled.end_runs(self._db, job_id, NOT_SURE, at=self._at)
        scheduled.doubt_slots(self._db, job_id, at=self._at)

    def _in_part(self, table: str) -> bool:
        fate = self._fates.get(table)
        return (fate is not None and not fate.whole) or bool(self._found_apart[table])

    def _key(self, table: str, row: dict[str, Any]) -> Key:
        one = self._fillers[table]
        if one.table.rowid is not None:
            return int(row["fence"])  # of cron_executions, which alone has rowids here
        return key_of(one.table, None, [row.get(name) for name in one.table.names])

    def _doubt(self, table: str, key: Key) -> bool:
        return self._filler.notes.doubt(self._fillers[table].number, key) is not None

    def _say(self, what: str, table: str, key: Any, **more: Any) -> None:
        self._filler.decisions.append({"what": what, "table": table, "key": key} | more)
