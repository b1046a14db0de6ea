"""`Cron(store)`: the jobs of one home, what is due, and the runs.

Invariant: each method is one snapshot or one transaction, and what claims, starts, settles or declares is committed at
`power`. Slots are computed before the transaction that writes them, and compared with the job inside it. Nothing runs
when what was done before cannot be read.

Not for: threads that tick (see `ticker`). A group on the store itself was rejected: this package is built on the store,
which knows nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from cron_store import events, home, incidents, retention
from cron_store.jobs import checking, declaring
from cron_store.jobs import rows as job_rows
from cron_store.looking import Looking
from cron_store.occurrences import by_hand, tick
from cron_store.occurrences.planning import Plan, plan
from cron_store.occurrences.taking import Owner, due, look, next_due_at
from cron_store.occurrences.tick import Notice
from cron_store.records import (
    Claim,
    ClockStep,
    Delivery,
    Incident,
    Interrupted,
    Job,
    Outcome,
    Policies,
    Pruned,
    Reaped,
    Settled,
    Taken,
)
from cron_store.runs import ending, handing, losing
from cron_store.runs import rows as run_rows
from cron_store.runs.handing import HandOff
from cron_store.schedule import Schedule, require_fire, zone_version
from hermes_state.errors import StaleFence
from hermes_state.leases import Lease, Leases
from hermes_state.outbox.inputs import seconds, text, whole
from hermes_state.owners.presence import presence_of
from hermes_state.routing import home_of
from hermes_state.routing.homes import refuse_other_home

if TYPE_CHECKING:
    from hermes_state.engine import Transaction
    from hermes_state.owners import OwnerIdentity, Presence
    from hermes_state.store import Store

Result = TypeVar("Result")
Given = TypeVar("Given", covariant=True)
TICK_LEASE = "cron tick"
# How long a tick lease lasts unless it is renewed: three ticks of 60 s.
LEASE_SECONDS = 180.0
# How long a claim lasts unless it is renewed (facts section 3.3); renew it every minute.
TERM_SECONDS = 300.0
# How often an edit looks at a job again that changed meanwhile.
MOST_LOOKS = 20


class _Change(Protocol[Given]):
    """What changes a job, by a plan that accounts for what came due before."""

    def __call__(self, tx: Transaction, planned: Plan, at: float) -> Given: ...


class Cron(Looking):
    """The cron of one home. Safe for threads."""

    def __init__(
        self, store: Store, *, presence: Presence | None = None, term_seconds: float = TERM_SECONDS
    ) -> None:
        """`presence` makes another owner than this process of what is claimed here; for tests."""
        super().__init__(store)
        self._presence = presence
        self._term = seconds("term_seconds", term_seconds, most=86_400.0, zero=False)
        self._watch = losing.Watch(store.core)
        self._told: tuple[OwnerIdentity, str] | None = None
        self._reported: set[str] = set()

    # --- jobs ------------------------------------------------------------------------------------------------

    def add(
        self, job_id: str, schedule: Schedule, *, name: str = "", fields: Mapping[str, Any] | None = None,
        policies: Policies | None = None, paused: str | None = None, after: float | None = None, replace: bool = False,
    ) -> Job:
        """Declare a job. Its slots are those strictly after `after` (default: now; epoch seconds UTC).

        `paused` is why it starts paused. With `replace`, a job of that id is edited to say this, and keeps how it
        stands, so that what is declared at each start is there once. Raises `JobExists`, `Entombed` (it was removed),
        `ScheduleRefused` (no fire within 8 years), `InvalidInput`.
        """
        at = self._clock.now()
        start = at if after is None else after
        chosen, said = policies or Policies(), dict(fields or {})
        require_fire(schedule, start)
        if replace and (found := self._read(lambda reader: job_rows.read(reader, job_id))) is not None:
            changes = {policy: getattr(chosen, policy) for policy in Policies.__dataclass_fields__}
            same = found.schedule == schedule
            if same and found.policies == chosen and found.fields == said and found.name == name:
                return found
            return self.edit(
                job_id, name=name, fields=said, remove_fields=[one for one in found.fields if one not in said],
                schedule=None if same else schedule, policies=changes,
            )
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
            require_fire(schedule, self._clock.now())
        return self._change(
            job_id,
            lambda tx, planned, at: declaring.edit(
                tx, planned, name=name, fields=fields or {}, remove_fields=remove_fields, schedule=schedule,
                policies=policies or {}, if_version=if_version, at=at,
            ),
        )

    def pause(self, job_id: str, *, reason: str) -> Job:
        """Skip its slots until `resume`; a run in flight goes on. Raises `JobNotFound`, `Entombed`, `InvalidInput`."""
        declaring.checked_reason(reason)
        return self._change(job_id, lambda tx, planned, at: declaring.pause(tx, planned, reason=reason, at=at))

    def resume(self, job_id: str) -> Job:
        """Go on with the first slot after now. Raises `JobNotFound`, `Entombed`."""
        return self._change(job_id, lambda tx, planned, at: declaring.resume(tx, planned, at=at))

    def remove(self, job_id: str, *, actor: str, reason: str) -> None:
        """Remove a job for good; its id is refused for 90 days. Raises `JobNotFound`, `Entombed`, `InvalidInput`."""
        self._change(
            job_id, lambda tx, planned, at: declaring.remove(tx, planned.job, actor=actor, reason=reason, at=at)
        )

    def recompute(self, *, limit: int = 200) -> int:
        """Tell anew when jobs are due whose zone has other rules by now; gives how many. Reads all jobs: rarely."""
        done, after = 0, None
        while done < limit and (found := self.jobs(limit=200, after=after)):
            after = found[-1].job_id
            for job in found:
                if job.due_at is not None and job.tz_version != zone_version(job.schedule.zone):
                    self._change(
                        job.job_id, lambda tx, planned, at: declaring.recompute(tx, planned.job, at=at)
                    )
                    done += 1
        return done

    # --- ticking ---------------------------------------------------------------------------------------------

    def tick_lease(self, *, term_seconds: float = LEASE_SECONDS, wait_seconds: float = 0.0) -> Lease:
        """The right to tick this home; keep it and renew it. Raises `LeaseHeld`, which names who ticks it."""
        leases = Leases(self._core, presence=self._presence)
        return leases.acquire(TICK_LEASE, term_seconds=term_seconds, wait_seconds=wait_seconds)

    def due(self, *, limit: int = 50) -> list[str]:
        """Up to `limit` ids of jobs that have to be looked at now, longest due first."""
        return [job_id for _due_at, job_id in self._read(
            lambda reader: due(reader, at=self._clock.now(), after=None, limit=limit)
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
            self._core, self._owner(), lease, room=room, most_jobs=most_jobs, notice=notice, reported=self._reported
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

    # --- runs ------------------------------------------------------------------------------------------------

    def start(self, claim: Claim) -> None:
        """Before the first effect of a run. Raises `StaleFence`, `JobRemoved`, `Refused` (interrupted before): then do
        not run it. Said again, it changes nothing."""
        at = self._of(claim)
        self._write(lambda tx: ending.start(tx, claim, at=at))

    def renew(self, claims: Iterable[Claim]) -> list[Claim]:
        """Have claims for another term; gives those that are not ours any more: stop them."""
        ours, owner = list(claims), self._owner()
        return self._core.write(lambda tx: handing.renew(tx, ours, owner)) if ours else []

    def settle(
        self, claim: Claim, outcome: Outcome, *, deliveries: Sequence[Delivery] = (), alert: Delivery | None = None,
        session_id: str | None = None, mirror: Callable[[Transaction], None] | None = None,
    ) -> Settled:
        """Write how a run ended, let go of its job, and record what is owed, all at once.

        `deliveries` go into the outbox, but for an interrupted run; `alert` does when people are to be told of the
        failure now (new, came back, or 6 h after the last time). `mirror(tx)` writes into the lane of a conversation in
        the same transaction. `session_id` is kept for the next run of a job with `session_reuse`. Safe to repeat after
        an error. Raises `StaleFence` (it was taken from us: nothing is written), `Refused` (it was not started),
        `InvalidInput`, and what `mirror` raises.
        """
        at = self._of(claim)
        return self._write(
            lambda tx: ending.settle(
                tx, claim, outcome, at=at, deliveries=deliveries, alert=alert, session_id=session_id, mirror=mirror
            )
        )

    def release(self, claim: Claim, *, why: str = "it was released") -> bool:
        """Let go without a verdict: due again if it was not started, else interrupted. False: it is not ours any more.

        Raises `WrongHome`, `HomeRemoved`.
        """
        at = self._of(claim)

        def work(tx: Transaction) -> bool:
            run = run_rows.held(tx, claim)
            ending.end(tx, run, None if run.started_at is None else Interrupted(why=why), at=at)
            return True

        try:
            return self._write(work)
        except StaleFence:
            return False

    def hand_off(self, claim: Claim, *, detached: bool = False) -> HandOff:
        """Let a process of its own run it; `detached`: it outlives this one. Raises `StaleFence`, `Refused`."""
        self._of(claim)
        return self._write(
            lambda tx: handing.hand_off(tx, claim, boottime=self._clock.boottime(), detached=detached)
        )

    def adopt(self, hand_off: HandOff) -> Claim:
        """In the worker: become its owner, and start it. Raises `StaleFence`, `Entombed`: do not run anything."""
        refuse_other_home(self._core, hand_off.home)
        owner = self._owner()
        return self._write(lambda tx: handing.adopt(tx, hand_off, owner))

    def interrupt(self, job_id: str | None = None, *, reason: str) -> list[int]:
        """Flag the open runs of a job, or of all, before they are stopped: they end as interrupted, whatever they say.

        Gives their fences.
        """
        declaring.checked_reason(reason)
        at = self._clock.now()
        return self._write(lambda tx: handing.interrupt(tx, job_id, reason=reason, at=at))

    def reap(self, lease: Lease | None = None, *, job_id: str | None = None) -> list[Reaped]:
        """Take runs from owners that are gone. No write when there are none."""
        own = self._owner().text
        return self._take_lost(lease, self._read(lambda reader: self._watch.lost(reader, own=own, job_id=job_id)))

    def force_release(self, living: Container[int], *, lease: Lease | None = None) -> list[Reaped]:
        """Let go of our own runs that have no thread any more: older than their allowance, or dated in the future.

        `living` are the fences of runs whose thread lives; those are never let go. No repeat is used up.
        """
        own = self._owner().text
        return self._take_lost(
            lease, self._read(lambda reader: losing.forced(reader, own=own, living=living, clock=self._clock))
        )

    # --- upkeep ----------------------------------------------------------------------------------------------

    def heartbeat(self, *, succeeded: bool = False, error: str | None = None) -> ClockStep | None:
        """Note that the ticker of this home lives; gives a step of the wall clock of more than 60 s, which is noted.

        `succeeded`: a tick without errors is done; `error`: why one was not.
        """
        owner = self._owner()
        return self._core.write(
            lambda tx: home.beat(
                tx, at=owner.at, boottime=owner.boottime, domain=owner.domain, owner=owner.text, succeeded=succeeded,
                error=error,
            )
        )

    def close_incident(self, incident_id: str) -> Incident:
        """Hear no more of it. Raises `NotFound`, `Refused`."""
        at = self._clock.now()
        return self._write(lambda tx: incidents.close(tx, incident_id, at=at))

    def upkeep(self, *, keep_days: float = retention.KEEP_DAYS, steps: int = 1000) -> Pruned:
        """Let go of old slots, of runs beyond what each job keeps, and of old events, in short steps."""
        seconds("keep_days", keep_days, most=36_500.0)
        whole("steps", steps, 1, 1_000_000)
        before = self._clock.now() - keep_days * retention.DAY
        slots = runs = 0
        after = ""
        while steps > 0 and (found := self._read(partial(retention.jobs, after=after, limit=50))):
            for job_id in found:
                more = True
                while more and steps > 0:
                    done = self._core.write(partial(retention.step, job_id=job_id, before=before))
                    slots, runs, more, steps = slots + done.slots, runs + done.runs, done.more, steps - 1
            after = found[-1]
        gone = self._core.write(events.trim)
        return Pruned(slots=slots, runs=runs, events=gone, more=steps <= 0)

    # --- within ----------------------------------------------------------------------------------------------

    def _write(self, work: Callable[[Transaction], Result]) -> Result:
        return self._core.write(work, durability="power")

    def _owner(self) -> Owner:
        core, clock = self._core, self._clock
        identity = (self._presence or presence_of(core.path.parent, clock=clock)).identity
        if self._told is None or self._told[0] is not identity:
            self._told = identity, identity.to_json()
        return Owner(
            text=self._told[1], home=home_of(core), incarnation=core.incarnation, at=clock.now(),
            boottime=clock.boottime(), domain=clock.domain(), term_seconds=self._term,
        )

    def _of(self, claim: Claim) -> float:
        """Now, for a change of a claim. Raises `WrongHome` for the claim of another home, `HomeRemoved`."""
        refuse_other_home(self._core, claim.home)
        return self._clock.now()

    def _change(self, job_id: str, work: _Change[Result]) -> Result:
        """Account for what came due, then change the job, in one transaction; look again when it changed between."""
        checking.job_id(job_id)
        for left in reversed(range(MOST_LOOKS)):
            at = self._clock.now()
            found = self._read(lambda reader: look(reader, job_id))
            if found is None:
                self.job(job_id)  # raises what became of it
                continue
            planned = plan(*found, at=at)
            try:
                return self._write(partial(work, planned=planned, at=at))
            except declaring.Moved:
                if not left:
                    raise
        raise AssertionError("unreachable")

    def _take_lost(self, lease: Lease | None, lost: Sequence[losing.Lost]) -> list[Reaped]:
        if not lost:
            return []
        at = self._clock.now()

        def work(tx: Transaction) -> list[Reaped]:
            if lease is not None:
                lease.guard(tx)
            return losing.take(tx, lost, at=at)

        return self._write(work)
