"""The runs of one home, from their claim to their end, whoever ends them.

Invariant: each method is one transaction at `power`, but for renewals and heartbeats, which tell nothing that a crash
must not undo. Every method that ends or moves a run names its claim, and does it only while that is its owner's.

Not for: what is due (see `cron`). One class for all of it was rejected: whoever runs a claim needs no way to declare.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from cron_store import home
from cron_store.jobs.declaring import checked_reason
from cron_store.looking import Looking
from cron_store.occurrences.taking import Owner
from cron_store.records import Claim, ClockStep, Delivery, Interrupted, Outcome, Reaped, Settled
from cron_store.runs import ending, handing, losing
from cron_store.runs import rows as run_rows
from cron_store.runs.handing import HandOff
from hermes_state.errors import LedgerUnreadable, StaleFence
from hermes_state.leases import Lease
from hermes_state.leases.judging import Judging
from hermes_state.outbox.inputs import seconds
from hermes_state.owners.presence import presence_of
from hermes_state.routing.homes import refuse_other_home

if TYPE_CHECKING:
    from hermes_state.engine import Transaction
    from hermes_state.owners import OwnerIdentity, Presence
    from hermes_state.store import Store

Result = TypeVar("Result")
# How long a claim lasts unless it is renewed (facts section 3.3); renew it every minute.
TERM_SECONDS = 300.0


class Running(Looking):
    """The runs of one home. Safe for threads."""

    def __init__(
        self, store: Store, *, presence: Presence | None = None, term_seconds: float = TERM_SECONDS
    ) -> None:
        """`presence` makes another owner than this process of what is claimed here; for tests."""
        super().__init__(store)
        self._presence = presence
        self._term = seconds("term_seconds", term_seconds, most=86_400.0, zero=False)
        self._watch = losing.Watch(store.core)
        self._judging = Judging(store.core)
        self._told: tuple[OwnerIdentity, str] | None = None
        self._reported: set[str] = set()
        self._stuck: dict[str, Exception] = {}  # job -> why a run of it that lost its owner stays open

    # --- runs ------------------------------------------------------------------------------------------------

    def start(self, claim: Claim) -> None:
        """Before the first effect of a run. Raises `StaleFence`, `JobRemoved`, `Refused` (interrupted before): then do
        not run it. Said again, it changes nothing."""
        now = self._of(claim)
        self._write(lambda tx: ending.start(tx, claim, at=home.judge(tx, now).at))

    def renew(self, claims: Iterable[Claim]) -> list[Claim]:
        """Have claims for another term; gives those that are not ours any more: stop them."""
        ours, owner = list(claims), self._owner(at=self._clock.now())
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
        now = self._of(claim)
        return self._write(
            lambda tx: ending.settle(
                tx, claim, outcome, at=home.judge(tx, now).at, deliveries=deliveries, alert=alert,
                session_id=session_id, mirror=mirror,
            )
        )

    def release(self, claim: Claim, *, why: str = "it was released") -> bool:
        """Let go without a verdict: due again if it was not started, else interrupted. False: it is not ours any more.

        Raises `WrongHome`, `HomeRemoved`.
        """
        now = self._of(claim)

        def work(tx: Transaction) -> bool:
            run = run_rows.held(tx, claim)
            why_not = None if run.started_at is None else Interrupted(why=why)
            ending.end(tx, run, why_not, at=home.judge(tx, now).at)
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
        checked_reason(reason)
        at = self._at()
        return self._write(lambda tx: handing.interrupt(tx, job_id, reason=reason, at=at))

    def reap(self, lease: Lease | None = None, *, job_id: str | None = None) -> list[Reaped]:
        """Take runs from owners that are gone. No write when there are none.

        A run of a job that cannot be read stays open; the next `take` has it in `unreadable`.
        """
        own = self._identity()
        done, stuck = self._take_lost(
            lease, self._read(lambda reader: self._watch.lost(reader, own=own, job_id=job_id))
        )
        if job_id is None:
            self._stuck = stuck
        return done

    def force_release(self, living: Container[int], *, lease: Lease | None = None) -> list[Reaped]:
        """Let go of our own runs that have no thread any more: older than their allowance, or dated in the future.

        `living` are the fences of runs whose thread lives; those are never let go. No repeat is used up.
        """
        own = self._identity()
        done, stuck = self._take_lost(
            lease, self._read(lambda reader: losing.forced(reader, own=own, living=living, clock=self._clock))
        )
        self._stuck |= stuck
        return done

    def heartbeat(self, *, succeeded: bool = False, error: str | None = None) -> ClockStep | None:
        """Note that the ticker of this home lives; gives a step of the wall clock of more than 60 s when it is first
        seen. It is believed once it stands (see `home`); until then jobs go by the boot clock.

        `succeeded`: a tick without errors is done; `error`: why one was not.
        """
        own, now = self._identity(), self._clocks()
        return self._core.write(lambda tx: home.beat(tx, now, owner=own, succeeded=succeeded, error=error))

    def accept_clock(self) -> ClockStep | None:
        """A person says that the wall clock is right: the step that was in doubt, if there is one, is believed now."""
        now = self._clocks()
        return self._write(lambda tx: home.note(tx, now, accept=True))

    # --- within ----------------------------------------------------------------------------------------------

    def _write(self, work: Callable[[Transaction], Result]) -> Result:
        return self._core.write(work, durability="power")

    def _identity(self) -> str:
        """Who we are, as JSON."""
        identity = (self._presence or presence_of(self._core.path.parent, clock=self._clock)).identity
        if self._told is None or self._told[0] is not identity:
            self._told = identity, identity.to_json()
        return self._told[1]

    def _owner(self, *, at: float | None = None) -> Owner:
        core, clock = self._core, self._clock
        return Owner(
            text=self._identity(), home=self.home, incarnation=core.incarnation, at=self._at() if at is None else at,
            boottime=clock.boottime(), domain=clock.domain(), term_seconds=self._term,
        )

    def _clocks(self) -> home.Now:
        clock = self._clock
        return home.Now(at=clock.now(), boottime=clock.boottime(), domain=clock.domain())

    def _at(self) -> float:
        """What time it is taken to be; epoch seconds UTC. A step of the wall clock that matters is noted."""
        now = self._clocks()
        told = self._read(lambda reader: home.judge(reader, now))
        if told.notes:
            self._core.write(lambda tx: home.note(tx, now))
        return told.at

    def _of(self, claim: Claim) -> home.Now:
        """Now, for a change of a claim. Raises `WrongHome` for the claim of another home, `HomeRemoved`.

        What time that is taken to be is read within the transaction: a thread that runs a job needs no connection of
        its own for it.
        """
        refuse_other_home(self._core, claim.home)
        return self._clocks()

    def _take_lost(
        self, lease: Lease | None, lost: Sequence[losing.Lost]
    ) -> tuple[list[Reaped], dict[str, Exception]]:
        """End what was judged lost; gives also, by job, why a run was left: what cannot be read of one job keeps no
        other from its end."""
        stuck: dict[str, Exception] = {}
        at = self._at() if lost else 0.0

        def work(tx: Transaction) -> list[Reaped]:
            if lease is not None:
                lease.guard(tx)
            return losing.take(tx, lost, at=at)

        done: list[Reaped] = []
        while lost:
            try:
                done = self._write(work)
                break
            except LedgerUnreadable as error:
                job_id = error.facts["job_id"]
                if job_id is None:
                    raise
                # All of it was rolled back, and goes on without that job.
                stuck[job_id] = error
                lost = [one for one in lost if one.job_id != job_id]
        return done, stuck
