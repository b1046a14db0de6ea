"""One tick of one home: the lease, a sign of life, what is due, and runs begun.

Invariant: the order is fixed: the lease first, then what dead owners left, then what is due; each is committed under
the fence of the lease. Every claim that is taken is given to a thread, or let go in this function.

Not for: which homes and when (see `ticker`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cron_store.records import Claim
from cron_store.ticker.deciding import Part
from cron_store.ticker.pools import Task
from cron_store.ticker.running import Ended, Owed, Running, Work, run, settle
from cron_store.ticker.seats import Openings, Seat
from hermes_state.errors import HomeRemoved, LeaseHeld, LeaseLost, StaleFence
from hermes_state.host.ticking import TickStanding
from hermes_state.owners import provably_dead

if TYPE_CHECKING:
    from cron_store.cron import Cron
    from cron_store.occurrences.tick import Notice
    from hermes_state.clock import Clock
    from hermes_state.leases import Lease

# How long the tick lease lasts unless it is renewed: three signs of life of an idle home. Only an owner of another boot
# or machine is waited for that long; one that is provably dead is followed at once.
LEASE_SECONDS = 300.0
# How often a home says that it is ticked: one that is open, and one that must be opened for it. Twice the second and a
# tick are still within the 200 s after which it counts as silent.
BEAT_SECONDS, IDLE_BEAT_SECONDS = 60.0, 90.0


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Something that did not go as it should; nothing of it is lost but the time."""

    home: str  # "": of the ticker itself
    error: Exception
    job_id: str | None = None  # None: of the home
    fence: int | None = None


@dataclass(frozen=True, kw_only=True)
class Ticked:
    """What one tick did."""

    claims: tuple[Claim, ...] = ()  # given to threads
    accounted: int = 0  # slots that got their record
    missed: dict[str, dict[str, int]] = field(default_factory=dict)  # home -> job -> slots
    problems: tuple[Problem, ...] = ()  # since the last tick, of runs that ended as well

    def plus(self, other: Ticked) -> Ticked:
        """Both."""
        return Ticked(
            claims=self.claims + other.claims, accounted=self.accounted + other.accounted,
            missed=self.missed | other.missed, problems=self.problems + other.problems,
        )


NOTHING = Ticked()


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What is the same for all homes of a ticker."""

    clock: Clock
    openings: Openings
    work: Work
    most_owned: int
    notice: Notice | None
    tick_seconds: float
    on_end: Callable[[], None]  # a run is over: its job, or another, may be due by that
    tell: Callable[[Problem], None]

    def opened(self, seat: Seat) -> Callable[[], AbstractContextManager[Cron]]:
        """What opens its store for a moment."""
        return lambda: self.openings.use(seat)


def tick(seat: Seat, rules: Rules, *, signs: bool) -> Ticked:
    """One tick of a home that is ours to tick; with `signs`, it also says that it lives where that is due. Raises what
    its store raises."""
    keep(seat, rules)
    at = rules.clock.now()
    due = seat.next_due_at is not None and seat.next_due_at <= at
    beats = signs and sign_in(seat, rules) <= 0
    if seat.lease is None:
        if _still_waits(seat, rules):
            return NOTHING
    elif not due and not beats and seat.may_rest():
        _close_idle(seat, rules)
        return NOTHING
    if seat.presence is None and not _has_place(rules):
        seat.stands(TickStanding.WAITS, "as many homes as descriptors allow have runs in flight", at=at)
        return NOTHING
    began, sign = rules.clock.monotonic(), seat.files()
    with rules.openings.use(seat) as cron:
        beats = _take_lease(seat, cron, rules) or beats
        if seat.lease is None:
            done = NOTHING
        else:
            try:
                done = _look(seat, cron, seat.lease, rules, beats=beats)
            except (StaleFence, LeaseLost) as lost:
                lose(seat, str(lost), rules)
                raise
            seat.looked(sign, now=began)
            if seat.wrote and _is_idle(seat, rules) and seat.store is not None:
                # What we wrote would have it looked at again. The checkpoint is that of its close, made here, and takes
                # about as long as file times need; so the look after it is the last one.
                seat.looked(seat.files(), now=rules.clock.monotonic())
                seat.store.core.writer.checkpoint()
                seat.looked(seat.files(), now=rules.clock.monotonic())
                seat.next_due_at, seat.wrote = cron.next_due_at(), False
                seat.to_confirm = not seat.is_still
            else:
                seat.to_confirm = False
    if not seat.busy and len(rules.openings.owners) >= rules.most_owned:
        give_up(seat, rules)
    else:
        _close_idle(seat, rules)
    return done


def stand_aside(seat: Seat, rules: Rules, part: Part, why: str) -> Ticked:
    """Another process ticks this home: let it. Runs that are ours go on here. Raises what its store raises."""
    keep(seat, rules)
    lease = seat.lease
    if lease is not None:
        with rules.openings.use(seat) as cron:
            if seat.lease is not None:
                seat.lease.release()
            heard = cron.ticker()
            if part is Part.YIELD and heard is not None and heard.owner == lease.owner:
                # Until the other one is heard, this home is not green.
                cron.heartbeat(error=why)
        lose(seat, why, rules)
    seat.stands(TickStanding.YIELDS if part is Part.YIELD else TickStanding.STANDS_DOWN, why, at=rules.clock.now())
    _close_idle(seat, rules)
    return NOTHING


def keep(seat: Seat, rules: Rules) -> None:
    """What our claims need, whoever ticks the home: verdicts that are owed are written, terms renewed."""
    if not seat.busy:
        return
    for owed in seat.owed[:]:
        ended = settle(owed, rules.opened(seat))
        with seat.lock:
            seat.owed.remove(owed)
            if ended.owed is not None:
                seat.owed.append(ended.owed)
        if ended.error is not None:
            rules.tell(Problem(home=seat.home, error=ended.error, job_id=owed.claim.job_id, fence=owed.claim.fence))
    if not _is_over(seat.kept_boottime, BEAT_SECONDS, rules):
        return
    claims = seat.claims()
    with rules.openings.use(seat) as cron:
        lost = cron.renew(claims)
    seat.kept_boottime = rules.clock.boottime()
    for claim in lost:
        running = seat.runs.get(claim.fence)
        if running is not None:
            running.end("the run is not ours any more")


def fail(seat: Seat, rules: Rules, error: Exception) -> None:
    """Note that a tick of this home failed: for its row, where that is ours to write and can be written."""
    said = f"{type(error).__name__}: {error}"
    seat.stands(TickStanding.FAILS, said, at=rules.clock.now())
    seat.wakes_at = None
    if seat.lease is None or (seat.told == said and sign_in(seat, rules) > 0):
        return
    seat.beat_boottime = rules.clock.boottime()  # also where it fails: it is not tried again before the next is due
    try:
        with rules.openings.use(seat) as cron:
            cron.heartbeat(error=said)
    except Exception as also:
        rules.tell(Problem(home=seat.home, error=also))
    else:
        seat.told = said


def sign_in(seat: Seat, rules: Rules) -> float:
    """In how many seconds a home that we tick has to say that it lives; 0 or less: now."""
    if seat.beat_boottime is None:
        return 0.0
    most = BEAT_SECONDS if seat.store is not None else IDLE_BEAT_SECONDS
    gone = rules.clock.boottime() - seat.beat_boottime
    return most - gone if gone >= 0 else 0.0


def lose(seat: Seat, why: str, rules: Rules) -> None:
    """We have not, or not any more, the lease of this home."""
    seat.lease = None
    seat.stands(TickStanding.WAITS, why, at=rules.clock.now())
    seat.next_due_at = seat.wakes_at = seat.beat_boottime = None
    seat.is_still = False


def leave(seat: Seat, rules: Rules) -> bool:
    """Let go of a home for good; False while claims of it are ours: those go on, and it is asked again."""
    seat.leaving = True
    for task in seat.pool.withdraw():
        running = seat.runs[task.fence]
        _ended(seat, running, settle(Owed(claim=running.claim), rules.opened(seat)), rules)
    keep(seat, rules)
    if seat.busy or seat.pool.threads:
        return False
    give_up(seat, rules)
    return True


def give_up(seat: Seat, rules: Rules) -> None:
    """Be no owner at this home any more: its lease and its lock file go, and its store is closed."""
    clean = True
    if seat.lease is not None:
        try:
            with rules.openings.use(seat):
                if seat.lease is not None:
                    seat.lease.release()
        except Exception as error:  # a home that was removed has none; of another one it ends with its owner, now
            clean = False
            if not isinstance(error, HomeRemoved):
                rules.tell(Problem(home=seat.home, error=error))
    lose(seat, seat.said, rules)
    rules.openings.close(seat)
    rules.openings.owners.pop(seat, None)
    seat.disown(clean=clean and not seat.busy)


# --- within ------------------------------------------------------------------------------------------------------


def _take_lease(seat: Seat, cron: Cron, rules: Rules) -> bool:
    """Have the lease, if it can be had; whether it was taken just now."""
    if seat.lease is not None:
        return False
    try:
        seat.lease = cron.tick_lease(term_seconds=LEASE_SECONDS)
    except LeaseHeld as held:
        lose(seat, held.message, rules)
        left = held.facts["expires_in_seconds"]
        seat.waits_for = None if left is None else held.facts["owner"]
        seat.waits_boottime = rules.clock.boottime() + min(left or 0.0, BEAT_SECONDS)
        return False
    seat.stands(TickStanding.TICKS, at=rules.clock.now())
    return True


def _has_place(rules: Rules) -> bool:
    """Whether one more home can be owned; for that the one that was longest, and has nothing in flight, is given up."""
    owners = rules.openings.owners
    while len(owners) >= rules.most_owned:
        idle = next((seat for seat in list(owners) if not seat.busy and not seat.users), None)
        if idle is None:
            return False
        give_up(idle, rules)
    return True


def _still_waits(seat: Seat, rules: Rules) -> bool:
    """Whether the one that has the lease certainly has it still. Opens no store."""
    owner = seat.waits_for
    if owner is None or rules.clock.boottime() >= seat.waits_boottime:
        return False
    return provably_dead(owner, seat.path, clock=rules.clock).runs


def _look(seat: Seat, cron: Cron, lease: Lease, rules: Rules, *, beats: bool) -> Ticked:
    if beats:
        seat.wrote = True
        lease.renew()
        cron.reap(lease)
        cron.force_release(seat.pool.living(), lease=lease)
    claims: list[Claim] = []
    missed: dict[str, int] = {}
    accounted, more, unreadable = 0, True, {}
    while more:
        taken = cron.take(lease, room=seat.pool.room, notice=rules.notice)
        for claim in taken.claims:
            _begin(seat, claim, rules)
        claims += taken.claims
        missed |= taken.missed
        accounted, unreadable = accounted + taken.accounted, dict(taken.unreadable)
        more = taken.more and bool(taken.claims) and seat.pool.room > 0
    seat.next_due_at = cron.next_due_at()
    at = rules.clock.now()
    waits = seat.next_due_at is not None and seat.next_due_at <= at
    seat.wakes_at = None if waits else seat.next_due_at
    _say(seat, cron, rules, unreadable, beats=beats)
    return Ticked(claims=tuple(claims), accounted=accounted, missed={seat.home: missed} if missed else {})


def _say(seat: Seat, cron: Cron, rules: Rules, unreadable: dict[str, Exception], *, beats: bool) -> None:
    """The sign of life, and whether all went well."""
    said = None
    if unreadable:
        job_id, error = next(iter(unreadable.items()))
        said = f"{len(unreadable)} jobs are not run, the first is {job_id}: {error}"
        for job_id, error in unreadable.items():
            rules.tell(Problem(home=seat.home, error=error, job_id=job_id))
    if beats or said != seat.told:
        seat.wrote = True
        cron.heartbeat(succeeded=said is None, error=said)
        seat.told = said
        seat.beat_boottime = rules.clock.boottime()
    seat.stands(TickStanding.TICKS, said or "", at=rules.clock.now())


def _begin(seat: Seat, claim: Claim, rules: Rules) -> None:
    running = Running(claim=claim)
    seat.wrote = True
    with seat.lock:
        seat.runs[claim.fence] = running
        if seat.kept_boottime is None or len(seat.runs) == 1:
            seat.kept_boottime = rules.clock.boottime()

    def work() -> None:
        _ended(seat, running, run(running, rules.work, rules.opened(seat)), rules)

    task = Task(fence=claim.fence, job_id=claim.job_id, began=rules.clock.monotonic(), work=work)
    try:
        seat.pool.give(task)
    except Exception as error:
        rules.tell(Problem(home=seat.home, error=error, job_id=claim.job_id, fence=claim.fence))
        _ended(seat, running, settle(Owed(claim=claim), rules.opened(seat)), rules)


def _ended(seat: Seat, running: Running, ended: Ended, rules: Rules) -> None:
    claim = running.claim
    with seat.lock:
        del seat.runs[claim.fence]
        if ended.owed is not None:
            seat.owed.append(ended.owed)
    if ended.error is not None:
        rules.tell(Problem(home=seat.home, error=ended.error, job_id=claim.job_id, fence=claim.fence))
    rules.on_end()


def _close_idle(seat: Seat, rules: Rules) -> None:
    """Close its store unless it is needed soon."""
    if seat.store is not None and _is_idle(seat, rules):
        rules.openings.close(seat)


def _is_idle(seat: Seat, rules: Rules) -> bool:
    """Whether nothing of it is needed before the next tick of all."""
    later = rules.clock.now() + rules.tick_seconds
    return not seat.busy and (seat.next_due_at is None or seat.next_due_at > later)


def _is_over(since: float | None, seconds: float, rules: Rules) -> bool:
    return since is None or not 0 <= rules.clock.boottime() - since < seconds
