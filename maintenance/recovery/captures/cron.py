"""Cron of a native capture: a slot that ran in a lost WAL does not run again, and what was stopped there is stopped.

Invariant: the record of a slot that only the lost WAL has comes in, with its run; one that is open here and was claimed
there ends, and no slot up to what was accounted for there is ever made anew. Runs that count there count against the
repeats here. A removal, a pause and a later declaration that only the lost WAL has take effect, unless the store
changed the job since; a job that only it has is held. What the store knows stays, and merging again changes nothing.

Not for: events, which are told and never asked. Taking runs over under their fences was rejected: the store went on
giving those out.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hermes_state import deletions
from maintenance.dialects.native import owed, scheduled, serving
from maintenance.dialects.native.scheduled import LOST_WAL
from maintenance.dialects.native.scheduled_later import find, overlaps, take_incidents

if TYPE_CHECKING:
    from hermes_state.engine import Reader
    from hermes_state.engine.core import Core
    from hermes_state.engine.transaction import Transaction
    from maintenance.recovery.captures.view import View

ACTOR = "hermes-state sessions captures"
REMOVED = "it was removed in a WAL that was lost"
ENDED = "it was in flight in a WAL that was lost"
# What a run is known by in both histories, whatever its fence.
_RUN = ("job_id", "source", "slot", "run_id", "claimed_at")


class _Counted(Exception):
    """What undoes the transaction that was only counted."""


def merge_cron(core: Core, view: View, *, at: float, write: bool) -> int:
    """Bring in what only the capture holds of cron; returns how many rows it changes or adds. `at` is now."""
    with view.opened(scheduled.has_cron) as both:
        if both is None:
            return 0
        whole, before = both
        done = 0

        def work(tx: Transaction) -> None:
            nonlocal done
            with serving.unguarded(tx, sorted(scheduled.TABLES)):
                done = _Merge(tx, whole, before, at).run()
            if not write:
                raise _Counted

        with suppress(_Counted):
            core.write(work, durability="power", deadline_seconds=60.0)
        return done


class _Merge:
    def __init__(self, tx: Transaction, whole: Reader, before: Reader | None, at: float) -> None:
        self._tx, self._whole, self._before, self._at = tx, whole, before, at
        self._into = {name: scheduled.columns(tx.rows, name) for name in scheduled.TABLES}
        self._fences: dict[int, int] = {}  # of runs there, by their fences there

    def run(self) -> int:
        """Everything; how many rows."""
        for name in scheduled.NUMBERED:
            owed.raise_sequence(self._tx, name, scheduled.last_number(self._whole.rows, name))
        done = self._removals() + self._jobs() + self._runs() + self._slots() + self._marks()
        return done + take_incidents(self._tx, self._whole.rows, into=self._into)

    def _removals(self) -> int:
        done = 0
        for row in serving.rows_of(self._whole.rows, "tombstones", f"kind = '{scheduled.KIND}'"):
            done += serving.keep_tombstone(self._tx, row)
        for job_id, created_at in self._tx.rows("SELECT job_id, created_at FROM cron_jobs ORDER BY job_id"):
            if not scheduled.was_removed(self._whole.rows, job_id, created_at):
                continue
            rows = scheduled.take_out(self._tx, job_id)
            scheduled.doubt_slots(self._tx, job_id, at=self._at)
            deletions.record(
                self._tx, actor=ACTOR, reason=REMOVED, kind=scheduled.KIND, keys=[job_id], rows=rows, at=self._at
            )
            done += 1
        return done

    # --- jobs ------------------------------------------------------------------------------------------------

    def _jobs(self) -> int:
        done = 0
        for row in scheduled.rows_of(self._whole.rows, "cron_jobs"):
            here, was = find(self._tx, "cron_jobs", row, self._into["cron_jobs"]), self._was("cron_jobs", row)
            if here is None:
                if was is None and not scheduled.was_removed(self._tx.rows, row["job_id"], row["created_at"]):
                    done += self._add(row)
                continue
            if scheduled.later_of("cron_jobs", here, row) and (was is None or was["version"] == here["version"]):
                scheduled.put(self._tx, "cron_jobs", row, into=self._into["cron_jobs"])
                self._touch(row["job_id"])
                done += 1
            done += self._schedule(row["job_id"])
        return done

    def _add(self, job: owed.Row) -> int:
        of_job = scheduled.of_job(job["job_id"])
        for name in scheduled.PARTS:
            for row in scheduled.rows_of(self._whole.rows, name, of_job):
                scheduled.put(self._tx, name, row, into=self._into[name])
        scheduled.hold(self._tx, job["job_id"], LOST_WAL, at=self._at)
        return 1

    def _schedule(self, job_id: str) -> int:
        """A schedule, a pause or a resume that only the capture has, where the store decided nothing since."""
        mine = scheduled.newest_schedule(self._tx, job_id)
        there = scheduled.newest_schedule(self._whole, job_id)
        was = None if self._before is None else scheduled.newest_schedule(self._before, job_id)
        if mine is None or there is None or there["version"] <= mine["version"]:
            return 0
        if was is not None and was["version"] != mine["version"]:
            return 0
        for row in scheduled.rows_of(
            self._whole.rows, "cron_schedules", f"{scheduled.of_job(job_id)} AND version > {int(mine['version'])}"
        ):
            scheduled.put(self._tx, "cron_schedules", row, into=self._into["cron_schedules"])
        (row,) = scheduled.rows_of(self._whole.rows, "cron_runtime", scheduled.of_job(job_id))
        names = ("state", "state_at", "state_reason", "due_at", "next_slot", "tz_version")
        sets = ", ".join(f"{name} = ?" for name in names)
        self._tx.execute(f"UPDATE cron_runtime SET {sets} WHERE job_id = ?", [*(row[name] for name in names), job_id])
        self._touch(job_id)
        return 1

    # --- runs and slots --------------------------------------------------------------------------------------

    def _runs(self) -> int:
        """Runs that only the capture has, under fences of this store; what was in flight there has ended."""
        done = 0
        for rows in scheduled.portions(self._whole.rows, "cron_executions"):
            for row in rows:
                done += self._run(row)
        return done

    def _run(self, row: owed.Row) -> int:
        tx, fence = self._tx, row["fence"]
        same = " AND ".join(f"{name} IS ?" for name in _RUN)
        there = tx.row(f"SELECT fence, finished_at FROM cron_executions WHERE {same}", [row[name] for name in _RUN])
        if there is not None:
            self._fences[fence] = there[0]
            if there[1] is not None or row["finished_at"] is None:
                return 0
            scheduled.put(tx, "cron_executions", row | {"fence": there[0]}, into=self._into["cron_executions"])
        else:
            if self._was("cron_executions", row) is not None or (
                row["run_id"] is not None
                and tx.row("SELECT 1 FROM cron_executions WHERE run_id = ?", (row["run_id"],)) is not None
            ):
                return 0  # the store had it and pruned it, or ran it itself
            (number,) = tx.rows("SELECT seq + 1 FROM sqlite_sequence WHERE name = 'cron_executions'")[0]
            if row["finished_at"] is None:
                row = row | scheduled.ended(row, ENDED, at=self._at)
            scheduled.put(tx, "cron_executions", row | {"fence": number}, into=self._into["cron_executions"])
            self._fences[fence] = number
        if row["slot"] is not None and row["state"] in ("succeeded", "failed"):
            tx.execute(
                "UPDATE cron_runtime SET repeat_completed = repeat_completed + 1 WHERE job_id = ?", (row["job_id"],)
            )
        self._touch(row["job_id"])
        return 1

    def _slots(self) -> int:
        """Records of slots that only the capture has; what is open there may have had its effect."""
        done = 0
        for rows in scheduled.portions(self._whole.rows, "cron_occurrences"):
            for row in rows:
                there = find(self._tx, "cron_occurrences", row, self._into["cron_occurrences"])
                if there is None:
                    if self._was("cron_occurrences", row) is not None or overlaps(self._tx, row):
                        continue
                elif there["settled_at"] is not None or not _went_further(there, row):
                    continue
                fence = None if row["fence"] is None else self._fences.get(row["fence"], row["fence"])
                row = row | {"fence": fence}
                if row["settled_at"] is None:
                    row |= scheduled.doubted(row, at=self._at)
                scheduled.put(self._tx, "cron_occurrences", row, into=self._into["cron_occurrences"])
                self._touch(row["job_id"])
                done += 1
        return done

    def _marks(self) -> int:
        """No slot up to what was accounted for there is made anew here."""
        done = 0
        for job_id, mark in self._whole.rows("SELECT job_id, settled_through FROM cron_runtime ORDER BY job_id"):
            row = self._tx.row("SELECT settled_through FROM cron_runtime WHERE job_id = ?", (job_id,))
            if row is not None and row[0] < mark:
                self._tx.execute("UPDATE cron_runtime SET settled_through = ? WHERE job_id = ?", (mark, job_id))
                self._touch(job_id)
                done += 1
        return done

    def _was(self, table: str, row: dict[str, Any]) -> owed.Row | None:
        """The row as it was in the store before the WAL."""
        if self._before is None:
            return None
        return find(self._before, table, row, scheduled.columns(self._before.rows, table))

    def _touch(self, job_id: str) -> None:
        self._tx.execute("UPDATE cron_runtime SET revision = revision + 1 WHERE job_id = ?", (job_id,))


def _went_further(here: owed.Row, there: owed.Row) -> bool:
    """Whether a slot that is open here was settled there, or had begun there and is only due here."""
    if there["settled_at"] is not None:
        return True
    return bool(here["state"] == "due" and there["state"] in ("claimed", "running"))
