"""`Cron(store)`: the jobs of one home, what is due, and the runs.

Invariant: each method is one snapshot or one transaction, and what claims, starts, settles or declares is committed at
`power`. Slots are computed before the transaction that writes them, and compared with the job inside it. Nothing runs
when what was done before cannot be read.

Not for: threads that tick (see `ticker`). A group on the store itself was rejected: this package is built on the store,
which knows nothing of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from cron_store import incidents, retention
from cron_store.jobs import checking, declaring
from cron_store.jobs import rows as job_rows
from cron_store.occurrences import by_hand, tick
from cron_store.occurrences.planning import Plan, plan, untold
from cron_store.occurrences.taking import due, look, next_due_at
from cron_store.occurrences.tick import Notice
from cron_store.records import (
    Claim,
    Incident,
    Job,
    Policies,
    Pruned,
    Taken,
)
from cron_store.running import Running
from cron_store.schedule import Schedule, require_fire, zone_version
from cron_store.schedule.kinds import as_declared, made_by
from hermes_state.errors import Entombed, InvalidInput, NotFound, UnknownZone
from hermes_state.leases import Lease, Leases
from hermes_state.outbox.inputs import seconds, text, whole

if TYPE_CHECKING:
    from hermes_state.engine import Transaction

Result = TypeVar("Result")
Given = TypeVar("Given", covariant=True)
TICK_LEASE = "cron tick"
# How long a tick lease lasts unless it is renewed: three ticks of 60 s.
LEASE_SECONDS = 180.0
# How often an edit looks at a job again that changed meanwhile.
MOST_LOOKS = 20


class _Change(Protocol[Given]):
    """What changes a job, by a plan that accounts for what came due before."""

    def __call__(self, tx: Transaction, planned: Plan, at: float) -> Given: ...


class Cron(Running):
    """The cron of one home. Safe for threads."""

    # --- jobs ------------------------------------------------------------------------------------------------

    def add(
        self, job_id: str, schedule: Schedule, *, name: str = "", fields: Mapping[str, Any] | None = None,
        policies: Policies | None = None, paused: str | None = None, after: float | None = None, replace: bool = False,
    ) -> Job:
        """Declare a job. Its slots are those strictly after `after` (default: now; epoch seconds UTC).

        `paused` is why it starts paused; then its schedule may have no slot left. With `replace`, a job of that id is
        edited to say this, and keeps how it stands, so that what is declared at each start is there once: an interval
        of the same period keeps its grid, a duration its slot, and `paused` pauses one that is not. Raises `JobExists`,
        `Entombed` (it was removed), `ScheduleRefused` (no fire within 8 years), `InvalidInput`.
        """
        schedule, at = self._meant(schedule)
        start = at if after is None else after
        chosen, said = policies or Policies(), dict(fields or {})
        if paused is None:
            require_fire(schedule, start)
        if replace and (found := self._read(lambda reader: job_rows.read(reader, job_id))) is not None:
            changes = {policy: getattr(chosen, policy) for policy in Policies.__dataclass_fields__}
            schedule = as_declared(schedule, before=found.schedule)
            same = found.schedule == schedule
            if not (same and found.policies == chosen and found.fields == said and found.name == name):
                found = self.edit(
                    job_id, name=name, fields=said, remove_fields=[one for one in found.fields if one not in said],
                    schedule=None if same else schedule, policies=changes,
                )
            return found if paused is None or not found.active else self.pause(job_id, reason=paused)
        return self._write(
            lambda tx: declaring.add(
                tx, job_id, schedule, name=name, fields=said, policies=chosen, paused=paused, after=start, at=at
            )
        )

    def edit(
        self, job_id: str, *, name: str | None = None, fields: Mapping[str, Any] | None = None,
        remove_fields: Sequence[str] = (), schedule: Schedule | None = None,
        policies: Mapping[str, Any] | None = None, if_version: int | None = None,
    ) -> Job:
        """Change what is named, and nothing else. Another schedule is a new version: earlier slots keep theirs.

        Raises `JobNotFound`, `Entombed`, `JobMoved` (it is not `if_version` any more), `ScheduleRefused`,
        `InvalidInput`.
        """
        if schedule is not None:
            schedule, at = self._meant(schedule)
            require_fire(schedule, at)
        return self._change(
            job_id,
            lambda tx, planned, at: declaring.edit(
                tx, planned, name=name, fields=fields or {}, remove_fields=remove_fields, schedule=schedule,
                policies=policies or {}, if_version=if_version, at=at,
            ),
            untellable=schedule is not None,
        )

    def pause(self, job_id: str, *, reason: str) -> Job:
        """Skip its slots until `resume`; a run in flight goes on. Raises `JobNotFound`, `Entombed`, `InvalidInput`."""
        declaring.checked_reason(reason)
        return self._change(
            job_id, lambda tx, planned, at: declaring.pause(tx, planned, reason=reason, at=at), untellable=True
        )

    def resume(self, job_id: str) -> Job:
        """Go on with the first slot after now. Raises `JobNotFound`, `Entombed`."""
        return self._change(job_id, lambda tx, planned, at: declaring.resume(tx, planned, at=at))

    def remove(self, job_id: str, *, actor: str, reason: str) -> None:
        """Remove a job for good; its id is refused for 90 days. Raises `JobNotFound`, `Entombed`, `InvalidInput`."""
        self._change(
            job_id, lambda tx, planned, at: declaring.remove(tx, planned.job, actor=actor, reason=reason, at=at),
            untellable=True,
        )

    def recompute(self, *, limit: int = 200) -> int:
        """Tell anew when jobs are due whose zone has other rules by now; gives how many. Reads all jobs: rarely.

        A job that cannot be read, or whose zone is not known here, is left: `take` tells of it.
        """
        done, after = 0, None
        skipped: dict[str, Exception] = {}
        while done < limit and (found := self.jobs(limit=200, after=after, unreadable=skipped)):
            after = found[-1].job_id
            for job in found:
                try:
                    if job.due_at is not None and job.tz_version != zone_version(job.schedule.zone):
                        self._change(
                            job.job_id, lambda tx, planned, at: declaring.recompute(tx, planned.job, at=at)
                        )
                        done += 1
                except (UnknownZone, NotFound, Entombed):
                    continue  # removed meanwhile, or looked at again by `take`, which says why
        return done

    # --- ticking ---------------------------------------------------------------------------------------------

    def tick_lease(self, *, term_seconds: float = LEASE_SECONDS, wait_seconds: float = 0.0) -> Lease:
        """The right to tick this home; keep it and renew it. Raises `LeaseHeld`, which names who ticks it."""
        leases = Leases(self._core, presence=self._presence, judging=self._judging)
        return leases.acquire(TICK_LEASE, term_seconds=term_seconds, wait_seconds=wait_seconds)

    def due(self, *, limit: int = 50) -> list[str]:
        """Up to `limit` ids of jobs that have to be looked at now, longest due first."""
        return [job_id for _due_at, job_id in self._read(
            lambda reader: due(reader, at=self._at(), after=None, limit=limit)
        )]

    def next_due_at(self) -> float | None:
        """When the first job has to be looked at (epoch seconds UTC); None: none has."""
        return self._read(next_due_at)

    def take(
        self, lease: Lease | None, *, room: int = 1, most_jobs: int = 1000, notice: Notice | None = None
    ) -> Taken:
        """Account for what is due, and claim up to `room` runs; no write when nothing is due.

        Every slot that came due gets its record, also without room; claims are committed when this returns. `lease`:
        its fence is checked in each transaction; None is for a home that nobody else ticks. `notice(job, missed)` says
        what is owed for slots that `misfire="notify"` gives up. Jobs that cannot be read are in `unreadable` and are
        not run. Raises `StaleFence`, `LeaseLost` (stop ticking), `LedgerUnreadable` (of the home: nothing is run).
        """
        whole("room", room, 0, 10_000)
        whole("most_jobs", most_jobs, 1, 1_000_000)
        return tick.take(
            self._core, self._owner(), lease, room=room, most_jobs=most_jobs, notice=notice, reported=self._reported,
            stuck=self._stuck,
        )

    def take_manual(self, job_id: str, run_id: str, *, lease: Lease | None = None) -> Claim:
        """Claim a run by hand, of no slot: it moves no grid. `run_id` is made by the caller, once for each run.

        Asked again with the same id while it is in flight here, it is the same claim. A run whose owner is dead is
        taken from it first. Raises `JobNotFound`, `Entombed`, `JobBusy`, `IdempotencyConflict`, `InvalidInput`.
        """
        text("run_id", run_id, most=200, of="")
        self.reap(lease, job_id=job_id)
        owner = self._owner()

        def work(tx: Transaction) -> Claim:
            if lease is not None:
                lease.guard(tx)
            return by_hand.take_manual(tx, job_id, run_id, owner)

        return self._write(work)

    def claim(self, job_id: str, slot: int, *, lease: Lease | None = None) -> Claim:
        """Claim one slot that is due. Raises `SlotSettled` for one that is accounted for otherwise, `JobBusy`,
        `Refused` for one that has not come due, `JobNotFound`, `Entombed`."""
        owner = self._owner()

        def work(tx: Transaction) -> Claim:
            if lease is not None:
                lease.guard(tx)
            return by_hand.claim(tx, job_id, slot, owner)

        return self._write(work)

    # --- upkeep ----------------------------------------------------------------------------------------------

    def close_incident(self, incident_id: str) -> Incident:
        """Hear no more of it. Raises `NotFound`, `Refused`."""
        at = self._at()
        return self._write(lambda tx: incidents.close(tx, incident_id, at=at))

    def upkeep(self, *, keep_days: float = retention.KEEP_DAYS, steps: int = 1000) -> Pruned:
        """Let go of old slots, of runs beyond what each job keeps, and of old events, in short steps."""
        seconds("keep_days", keep_days, most=36_500.0)
        whole("steps", steps, 1, 1_000_000)
        before = self._at() - keep_days * retention.DAY
        slots = runs = 0
        after = ""
        while steps > 0 and (found := self._read(partial(retention.jobs, after=after, limit=50))):
            for job_id in found:
                more = True
                while more and steps > 0:
                    done = self._core.write(partial(retention.step, job_id=job_id, before=before))
                    slots, runs, more, steps = slots + done.slots, runs + done.runs, done.more, steps - 1
            after = found[-1]
        gone = self._core.write(partial(retention.last_step, before=before))
        return Pruned(slots=slots, runs=runs, events=gone, more=steps <= 0)

    # --- within ----------------------------------------------------------------------------------------------

    def _meant(self, schedule: Schedule) -> tuple[Schedule, float]:
        """A schedule that was made by the wall clock, by the time that it is taken to be; and that."""
        wall, at = self._clock.now(), self._at()
        ahead = wall - at
        return (schedule if not ahead else made_by(schedule, made_at=wall, ahead_seconds=ahead)), at

    def _change(self, job_id: str, work: _Change[Result], *, untellable: bool = False) -> Result:
        """Account for what came due, then change the job, in one transaction; look again when it changed between.

        `untellable`: the change is for a job, too, whose slots cannot be told since its zone is not known here.
        """
        checking.job_id(job_id)
        for left in reversed(range(MOST_LOOKS)):
            at = self._at()
            found = self._read(lambda reader: look(reader, job_id))
            if found is None:
                self.job(job_id)  # raises what became of it
                continue
            try:
                planned = plan(*found, at=at)
            except InvalidInput:
                if not untellable:
                    raise
                planned = untold(*found)
            try:
                return self._write(partial(work, planned=planned, at=at))
            except declaring.Moved:
                if not left:
                    raise
        raise AssertionError("unreachable")
