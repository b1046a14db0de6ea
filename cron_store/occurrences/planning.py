"""What becomes of the slots of a job that are pending now: a pure function of the job, its open rows and the time.

Invariant: every slot after `settled_through` up to now is in exactly one of a plan's verdicts and new rows. Whatever
the length of a backlog, a plan has at most `most_late` slots of their own; the others are told as spans, which cost
nothing for each slot.

Misfire: `coalesce` runs the newest slot for all; `skip` and `notify` run the newest one if it is on time; `run_all`
runs the newest `most_late`, one after the other. Overlap is judged when a slot comes due: while a run is in flight
`skip` skips, `queue` keeps one, `allow` does not mind.

Not for: writing (see `taking`). Going through the slots of a backlog in steps of 1,000 was rejected: a week of a
minutely job took eleven transactions before its one late run began.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor

from cron_store.records import Job, has_no_grid
from cron_store.schedule import Interval, Schedule, Span, next_slot, slots, span
from cron_store.states import SlotState

# How long a recorded slot may wait for room beyond its grace before `skip` and `notify` give it up: it was seen in
# time, and pools are busy for a while after a start. The longest grace, once more.
MOST_WAIT_SECONDS = 7200.0


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What is written of consecutive slots that are not run."""

    span: Span
    state: SlotState  # missed or skipped
    reason: str


@dataclass(frozen=True, kw_only=True)
class End:
    """What becomes of a slot that was waiting."""

    slot: int
    state: SlotState  # missed or skipped
    reason: str


@dataclass(frozen=True, kw_only=True)
class Open:
    """The rows of a job that are not settled."""

    waiting: tuple[int, ...]  # slots that are due, the oldest first
    in_flight: int  # runs, by hand too
    last_start_at: float | None  # of its newest run


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What one look at a job leads to."""

    job: Job  # as it was read: its revision is compared
    through: int  # every slot at or before it has its record then
    verdicts: tuple[Verdict, ...]  # of new slots, in order
    ends: tuple[End, ...]  # of slots that were waiting
    new: tuple[int, ...]  # slots that get a row of their own
    runs: tuple[int, ...]  # what may run, in order: what waited and is kept, then the new ones
    in_flight: int  # as it was read
    may_claim: bool  # whether the first of `runs` may be claimed now
    not_before: float | None  # when it may, by its spacing
    next_slot: int | None  # the first one after now
    waiting_slot: int | None  # of after_finish
    is_over: bool  # no slot is left

    @property
    def changes(self) -> bool:
        """Whether something has to be written without a claim."""
        return bool(self.verdicts or self.ends or self.new) or self.is_over

    @property
    def missed(self) -> int:
        """How many slots are given up."""
        counts = [one.span.count for one in self.verdicts if one.state is SlotState.MISSED]
        return sum(counts) + sum(end.state is SlotState.MISSED for end in self.ends)

    def due_at(self, at: float, *, claimed: bool) -> float | None:
        """When the job has to be looked at again; None: a run in flight wakes it, or nothing is left."""
        times = [float(one) for one in (self.next_slot, self.waiting_slot) if one is not None]
        flying = self.in_flight + claimed
        if len(self.runs) > claimed and not (flying and is_exclusive(self.job)):
            spaced = claimed and self.job.misfire == "run_all"
            times.append(at + self.job.policies.spacing_seconds if spaced else max(at, self.not_before or at))
        return min(times, default=None)


def is_exclusive(job: Job) -> bool:
    """Whether it allows one run at a time."""
    return job.policies.overlap != "allow"


def plan(job: Job, open_rows: Open, *, at: float) -> Plan:
    """What becomes of a job at `at` (epoch seconds UTC). Raises `UnknownZone` when its zone is not known here."""
    pending, following = _pending(job, at)
    times, used = job.policies.repeat_times, job.repeat_completed
    if not job.active:
        return _not_run(job, open_rows, pending, None, reason="paused")
    if times is not None and used >= times:
        return _not_run(job, open_rows, pending, following, reason="repeat")
    grace = job.grace_seconds(job.settled_through if pending is None else pending.last, following)
    on_time_from = ceil(at - grace)
    waiting, ends = _kept(job, open_rows.waiting, before=at - grace - MOST_WAIT_SECONDS)
    overlaps = open_rows.in_flight > 0 and is_exclusive(job)
    verdicts: list[Verdict] = []
    new: list[int] = []
    if pending is not None and overlaps and job.policies.overlap == "skip":
        verdicts.append(Verdict(span=pending, state=SlotState.SKIPPED, reason="overlap"))
    elif pending is not None:
        new, verdicts = _judged(job, pending, at=at, on_time_from=on_time_from)
        if overlaps:  # queue: one waits
            spare = new if waiting else new[:-1]
            if spare:
                verdicts.append(Verdict(span=_span_of(spare), state=SlotState.SKIPPED, reason="overlap"))
            new = [] if waiting else new[-1:]
    if job.misfire == "run_all":
        over = max(0, len(waiting) + len(new) - job.policies.most_late)
        ends += [End(slot=slot, state=SlotState.MISSED, reason="cap") for slot in waiting[:over]]
        waiting = waiting[over:]
    elif new:
        ends += [End(slot=slot, state=SlotState.MISSED, reason="coalesced") for slot in waiting]
        waiting = []
    runs = (*waiting, *new)
    not_before = _not_before(job, runs, open_rows.last_start_at, on_time_from, at)
    in_budget = times is None or used + open_rows.in_flight < times
    waiting_slot = waiting_slot_of(job)
    if has_no_grid(job.schedule) and pending is not None:
        # The next one is told when this one is over, which is now if it is not to run.
        waiting_slot = None if new else max(floor(at), pending.last) + _seconds(job.schedule)
    return Plan(
        job=job, through=job.settled_through if pending is None else pending.last, verdicts=tuple(verdicts),
        ends=tuple(ends), new=tuple(new), runs=runs, in_flight=open_rows.in_flight,
        may_claim=bool(runs) and not overlaps and in_budget and (not_before is None or not_before <= at),
        not_before=not_before, next_slot=following, waiting_slot=waiting_slot,
        is_over=not runs and not open_rows.in_flight and following is None and waiting_slot is None,
    )


def waiting_slot_of(job: Job) -> int | None:
    """The next slot of after_finish. One at or below the mark was accounted for: the next comes a period after that."""
    slot = job.waiting_slot
    if slot is None or slot > job.settled_through:
        return slot
    return job.settled_through + _seconds(job.schedule)


def untold(job: Job, open_rows: Open) -> Plan:
    """A plan that accounts for nothing: of a job whose slots cannot be told, for a change after which they can be, or
    need not be."""
    return Plan(
        job=job, through=job.settled_through, verdicts=(), ends=(), new=(), runs=open_rows.waiting,
        in_flight=open_rows.in_flight, may_claim=False, not_before=None, next_slot=None, waiting_slot=None,
        is_over=False,
    )


def pending(job: Job, at: float) -> Span | None:
    """The slots of an active job that came due and have no record yet. Raises `UnknownZone`."""
    return _pending(job, at)[0]


def _pending(job: Job, at: float) -> tuple[Span | None, int | None]:
    """What came due since, and the first slot after now."""
    after, now = job.settled_through, floor(at)
    if has_no_grid(job.schedule):
        slot = waiting_slot_of(job)
        return None if slot is None or slot > now else Span(first=slot, last=slot, count=1), None
    found = span(job.schedule, after, now) if now > after else None
    return found, next_slot(job.schedule, max(after, now))


def _not_run(job: Job, open_rows: Open, pending: Span | None, following: int | None, *, reason: str) -> Plan:
    """Of a job that is paused, or whose repeats are used up."""
    verdicts = () if pending is None else (Verdict(span=pending, state=SlotState.SKIPPED, reason=reason),)
    return Plan(
        job=job, through=job.settled_through if pending is None else pending.last, verdicts=verdicts,
        ends=tuple(End(slot=slot, state=SlotState.SKIPPED, reason=reason) for slot in open_rows.waiting),
        new=(), runs=(), in_flight=open_rows.in_flight, may_claim=False, not_before=None, next_slot=following,
        waiting_slot=None, is_over=job.active,
    )


def _kept(job: Job, waiting: Sequence[int], *, before: float) -> tuple[list[int], list[End]]:
    """What waits and is not given up by now."""
    if job.misfire == "run_all":
        return list(waiting), []
    ends: list[End] = []
    if job.misfire != "coalesce":
        ends = [End(slot=slot, state=SlotState.MISSED, reason="late") for slot in waiting if slot < before]
    kept = [slot for slot in waiting if job.misfire == "coalesce" or slot >= before]
    # More than one waits only when the policy was another one.
    ends += [End(slot=slot, state=SlotState.MISSED, reason="coalesced") for slot in kept[:-1]]
    return kept[-1:], ends


def _judged(job: Job, pending: Span, *, at: float, on_time_from: int) -> tuple[list[int], list[Verdict]]:
    """The new slots that run, and what is written of the others."""
    schedule, after = job.schedule, pending.first - 1
    if job.misfire == "run_all":
        chosen = newest(schedule, pending, job.policies.most_late)
        older = None if chosen[0] == pending.first else _between(schedule, after, chosen[0] - 1)
        return chosen, _missed((older, "cap"))
    if job.misfire == "coalesce":
        older = _between(schedule, after, pending.last - 1) if pending.count > 1 else None
        return [pending.last], _missed((older, "coalesced"))
    if pending.last < on_time_from:
        return [], _missed((pending, "late"))
    if pending.count == 1:
        return [pending.last], []
    late = _between(schedule, after, on_time_from - 1) if on_time_from > pending.first else None
    rest_from = after if late is None else late.last
    return [pending.last], _missed((late, "late"), (_between(schedule, rest_from, pending.last - 1), "coalesced"))


def _missed(*told: tuple[Span | None, str]) -> list[Verdict]:
    return [Verdict(span=one, state=SlotState.MISSED, reason=why) for one, why in told if one is not None]


def _between(schedule: Schedule, after: int, until: int) -> Span | None:
    return span(schedule, after, until) if until > after else None


def newest(schedule: Schedule, pending: Span, most: int) -> list[int]:
    """The newest `most` slots of a span, oldest first."""
    low, until = pending.first - 1, pending.last
    if pending.count > most and isinstance(schedule, Interval):
        low = until - most * schedule.seconds
    elif pending.count > most:
        # The latest instant with at least that many after it: counting is cheap, a list of a year is not.
        high = until
        while high - low > 1:
            middle = (low + high) // 2
            after = span(schedule, middle, until)
            low, high = (middle, high) if after is not None and after.count >= most else (low, middle)
    return slots(schedule, low, until, limit=pending.count)[-most:]


def _not_before(
    job: Job, runs: Sequence[int], last_start_at: float | None, on_time_from: int, at: float
) -> float | None:
    """Runs that catch up are spaced; one that is on time and alone is not. A start in the future is that of a clock
    that was ahead, and says nothing."""
    if job.misfire != "run_all" or not runs or last_start_at is None or last_start_at > at:
        return None
    catches_up = len(runs) > 1 or runs[0] < on_time_from
    return last_start_at + job.policies.spacing_seconds if catches_up else None


def _span_of(chosen: Sequence[int]) -> Span:
    return Span(first=chosen[0], last=chosen[-1], count=len(chosen))


def _seconds(schedule: Schedule) -> int:
    assert isinstance(schedule, Interval)
    return schedule.seconds
