"""Cron of a store, once its content is replaced by older content: no slot that ran since runs again.

Invariant: cron is the present state of the store, not part of its history. Where the old content can be read whole, its
jobs stand as it has them, with declarations, budgets, incidents and the record of every slot; a claim that had not
begun is due again, a run that had is interrupted. A job that only the new content has was removed since, and stays so;
one that the old content cannot have removed is held. Where it cannot be read whole, removals and later declarations
that can be read stand, and every job is held: accounted for up to now, and paused until a person resumes it. The old
content of a store that had no cron is believed in nothing, since another program put it there. `settled_through` never
falls, and no fence is given twice.

Not for: counting it beforehand (`maintenance.backups.cron`). Letting jobs of a backup go on by themselves was rejected:
what ran since would run again, and what a person stopped since would start.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hermes_state import deletions
from hermes_state.errors import StorageError
from maintenance.dialects.native import owed, scheduled, scheduled_later, serving
from maintenance.dialects.native.scheduled import NOT_KNOWN, NOT_THERE
from maintenance.replacement import old as old_content
from maintenance.replacement.old import Old, look_at

if TYPE_CHECKING:
    from hermes_state.clock import Clock
    from hermes_state.engine import ExclusiveStore, Transaction

ACTOR = "hermes-state"
REMOVED = "it was removed in the store whose content was replaced"
REPLACED = "the content of the store was replaced"


def old_cron(ask: scheduled.Ask, *, hidden: bool) -> Old:
    """Look at the old content. `hidden`: commits may stand in its WAL that SQLite does not see."""
    tables = scheduled.TABLES | {"tombstones", "deletions"}
    return look_at(ask, scheduled.has_cron, tables, hidden=hidden)


def make_room(store: ExclusiveStore, old: Old, clock: Clock) -> bool:
    """Bring a private copy from before cron up, when the old content has some; whether it has the tables."""
    return old_content.make_room(store, old, clock, scheduled.has_cron, scheduled.any_cron)


def carry_over(tx: Transaction, old: Old, *, same_store: bool, at: float) -> scheduled.Kept:
    """Let what is known of the old content hold in the new. `at` is now, epoch seconds UTC."""
    carry = _Carry(tx, old.ask, at)
    with serving.unguarded(tx, sorted(scheduled.TABLES)):
        if same_store and old.there and old.whole:
            carry.all_of_it()
        else:
            carry.what_is_certain(there=same_store and old.there)
        with suppress(StorageError):  # as far as it can be read: a job that is held is looked at by a person anyway
            carry.kept.sessions = scheduled.forget_sessions(tx, old.ask) if same_store and old.there else 0
    if scheduled.any_cron(tx.rows):
        from cron_store import events

        events.record(tx, "content_replaced", at=at, **carry.kept.document())
    return carry.kept


class _Carry:
    """One carrying over, with the triggers away that demand an order of events."""

    def __init__(self, tx: Transaction, ask: scheduled.Ask, at: float) -> None:
        self._tx, self._ask, self._at = tx, ask, at
        self.kept = scheduled.Kept()
        self._into = {name: scheduled.columns(tx.rows, name) for name in scheduled.TABLES}

    # --- the old content is whole ----------------------------------------------------------------------------

    def all_of_it(self) -> None:
        """Take everything over."""
        tx, kept = self._tx, self.kept
        self._tombstones()
        mine, theirs = self._told(tx.rows), self._told(self._ask)
        kept.jobs = sum(mine.get(job_id) != said for job_id, said in theirs.items())
        (since,) = self._ask(
            f"SELECT count(*) FROM cron_executions NOT INDEXED WHERE fence > {scheduled.last_fence(tx.rows)}"
        )[0]
        kept.runs = int(since)
        alone = [job_id for job_id in mine if job_id not in theirs]
        stays = {
            job_id: self._rows(job_id) for job_id in alone if not self._remove_if_gone(job_id)
        }
        given = {
            name: max(scheduled.last_number(tx.rows, name), scheduled.last_number(self._ask, name))
            for name in scheduled.NUMBERED
        }
        for name in scheduled.TABLES:
            # Without a beat of a ticker there the one here is as good as any: it is only old.
            if name != "cron_home" or self._ask("SELECT 1 FROM cron_home"):
                tx.execute(f"DELETE FROM {name}")
            self._put(name, (row for rows in scheduled.portions(self._ask, name) for row in rows))
        for name, to in given.items():
            owed.raise_sequence(tx, name, to)
        for job_id, tables in stays.items():
            self._add(tables)
            self._hold(job_id, NOT_THERE)
        self._end_runs()

    def _told(self, ask: scheduled.Ask) -> dict[str, list[owed.Row]]:
        """What each job is and how it stands, as rows."""
        found: dict[str, list[owed.Row]] = {}
        for name in scheduled.PARTS:
            for row in scheduled.rows_of(ask, name):
                if name == "cron_jobs" or row["job_id"] in found:
                    found.setdefault(row["job_id"], []).append(row)
        return found

    def _remove_if_gone(self, job_id: str) -> bool:
        """Remove a job of the new content that the old one says was removed."""
        (created_at,) = self._tx.rows("SELECT created_at FROM cron_jobs WHERE job_id = ?", (job_id,))[0]
        if not scheduled.is_removed(self._ask, job_id, created_at):
            return False
        rows = scheduled.take_out(self._tx, job_id)
        deletions.record(
            self._tx, actor=ACTOR, reason=REMOVED, kind=scheduled.KIND, keys=[job_id], rows=rows, at=self._at
        )
        self.kept.removed += 1
        return True

    def _rows(self, job_id: str) -> dict[str, list[owed.Row]]:
        return {
            name: scheduled.rows_of(self._tx.rows, name, scheduled.of_job(job_id))
            for name in scheduled.TABLES if name not in ("cron_events", "cron_home")
        }

    def _add(self, tables: dict[str, list[owed.Row]]) -> None:
        """Put back a job that only the new content has; its runs get other fences where the old content gave theirs."""
        tx, fences = self._tx, {}
        for row in tables["cron_executions"]:
            fence = row["fence"]
            taken = tx.row("SELECT 1 FROM cron_executions WHERE fence = ?", (fence,)) is not None
            if taken:
                (fence,) = tx.rows("SELECT seq + 1 FROM sqlite_sequence WHERE name = 'cron_executions'")[0]
                owed.raise_sequence(tx, "cron_executions", fence)
            if tx.row("SELECT 1 FROM cron_executions WHERE run_id = ?", (row["run_id"],)) is not None:
                continue  # the same run by hand, which the old content knows later
            self._put("cron_executions", [row | {"fence": fence}])
            fences[row["fence"]] = fence
        for name, rows in tables.items():
            if name != "cron_executions":
                self._put(name, (
                    row if row.get("fence") is None else row | {"fence": fences.get(row["fence"], row["fence"])}
                    for row in rows
                ))

    def _end_runs(self) -> None:
        """Let go of runs in flight: whose they are cannot go on with them, since the content is another one."""
        from cron_store.records import Interrupted
        from cron_store.runs import rows as runs
        from cron_store.runs.ending import end
        from hermes_state.errors import LedgerUnreadable

        for run in runs.in_flight(self._tx, None):
            try:
                end(self._tx, run, None if run.started_at is None else Interrupted(why=REPLACED), at=self._at)
                self.kept.ended += 1
            except LedgerUnreadable:
                self._hold(run.job_id, NOT_KNOWN)

    # --- it is not -------------------------------------------------------------------------------------------

    def what_is_certain(self, *, there: bool) -> None:
        """Take over what is later in the old content, as far as it can be read, and let nothing run by itself."""
        tx = self._tx
        given = {name: scheduled.last_number(tx.rows, name) for name in scheduled.NUMBERED}
        if there:
            for name in scheduled.NUMBERED:
                try:
                    given[name] = max(given[name], scheduled.last_number(self._ask, name))
                except StorageError:
                    continue  # as far as it can be read; the leap is for the rest
            for take in (self._tombstones, self._removals, self._later_jobs, self._history, self._incidents):
                try:
                    take()
                except StorageError:
                    continue
        for name, to in given.items():
            owed.raise_sequence(tx, name, to + scheduled.FENCE_LEAP)
        for job_id in scheduled.jobs_to_hold(tx):
            self._hold(job_id, NOT_KNOWN)

    def _removals(self) -> None:
        for (job_id,) in self._tx.rows("SELECT job_id FROM cron_jobs ORDER BY job_id"):
            self._remove_if_gone(job_id)

    def _later_jobs(self) -> None:
        """Declarations and schedules that are later in the old content, and jobs that only it has."""
        for rows in scheduled.portions(self._ask, "cron_jobs"):
            for row in rows:
                of_job = scheduled.of_job(row["job_id"])
                schedules = scheduled.rows_of(self._ask, "cron_schedules", of_job)
                runtime = scheduled.rows_of(self._ask, "cron_runtime", of_job)
                if not runtime or scheduled.problem_of(row, schedules[-1] if schedules else None):
                    continue
                self.kept.jobs += scheduled_later.take_later(self._tx, row, schedules, runtime[0], into=self._into)

    def _history(self) -> None:
        """Runs, and records of slots, that only the old content has, or has later."""
        self.kept.runs += scheduled_later.take_history(
            self._tx, self._ask, NOT_KNOWN, into=self._into, at=self._at
        )

    def _incidents(self) -> None:
        scheduled_later.take_incidents(self._tx, self._ask, into=self._into)

    # --- both ------------------------------------------------------------------------------------------------

    def _tombstones(self) -> None:
        for row in serving.rows_of(self._ask, "tombstones", f"kind = '{scheduled.KIND}'"):
            serving.keep_tombstone(self._tx, row)

    def _hold(self, job_id: str, why: str) -> None:
        paused, doubted, ended = scheduled.hold(self._tx, job_id, why, at=self._at)
        self.kept.doubted += doubted
        self.kept.ended += ended
        if paused:
            self.kept.paused.append(job_id)

    def _put(self, table: str, rows: Iterable[dict[str, Any]]) -> None:
        for row in rows:
            scheduled.put(self._tx, table, row, into=self._into[table])
