"""The kinds of schedule, as values: once, interval, cron expression.

Invariant: a schedule is frozen and complete: with the rules of its zone it says every slot, and nothing else about a
job does. Times are whole seconds, UTC, since 1970. The zone is an IANA name, stored when the schedule is made.

Not for: reading what a person wrote (`parsing`) or computing slots (`enumeration`). One class with fields that mean
something for one kind only was rejected: `interval_seconds` of an expression would be a question without an answer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from hermes_state.errors import InvalidInput

# From when a schedule is read to when it is stored.
JUST_NOW_SECONDS = 60


class Gap(StrEnum):
    """What becomes of a wall time that its zone leaves out (clocks put forward)."""

    NEXT = "next"  # the first instant after the gap; several become one
    SKIP = "skip"  # nothing


class Fold(StrEnum):
    """What becomes of a wall time that its zone has twice (clocks put back)."""

    FIRST = "first"  # the earlier instant
    BOTH = "both"
    SKIP = "skip"  # nothing


@dataclass(frozen=True, kw_only=True)
class Once:
    """One slot. Exactly one of `wall` and `at` is given."""

    wall: str | None = None
    """Naive wall time in `zone`, `YYYY-MM-DDTHH:MM:SS`: it moves with the zone's rules."""
    at: int | None = None
    """The instant itself: a duration from now, or a time written with its offset."""
    delay: int | None = None
    """The duration, in seconds, that `at` was told from; None: it was told otherwise."""
    zone: str = "UTC"
    """IANA name."""
    gap: Gap = Gap.NEXT
    """For `wall` only."""
    fold: Fold = Fold.FIRST
    """For `wall` only. `both` is `first` here: once is once."""

    def __post_init__(self) -> None:
        if (self.wall is None) == (self.at is None):
            raise InvalidInput("Once has exactly one of wall and at.")


@dataclass(frozen=True, kw_only=True)
class Interval:
    """`anchor` + k x `seconds` for k = 0, 1, 2, ...: a grid of UTC seconds that no late run moves."""

    seconds: int
    """The period, at least 60: a tick looks once a minute."""
    anchor: int
    """When the grid starts: the second in which the schedule was made."""
    zone: str = "UTC"
    """IANA name, for showing times: the grid does not depend on it."""
    after_finish: bool = False
    """Not a grid: one slot, `anchor` + `seconds`, and the next only after the run (`finished`)."""

    def __post_init__(self) -> None:
        if self.seconds < 60:
            raise InvalidInput(f"An interval of {self.seconds} s is below 60 s.")


@dataclass(frozen=True, kw_only=True)
class CronExpression:
    """Five fields on the wall clock of `zone`.

    An hour field of `*` or `*/n` follows elapsed time: it fires whenever the clock shows the time; no policy applies.
    """

    expression: str
    """Five fields with single spaces, upper case; an alias is written out."""
    zone: str
    """IANA name."""
    gap: Gap = Gap.NEXT
    """For wall times that do not exist."""
    fold: Fold = Fold.FIRST
    """For wall times that exist twice."""


Schedule = Once | Interval | CronExpression


def made_by(schedule: Schedule, *, made_at: float, ahead_seconds: float) -> Schedule:
    """What a schedule means that was made just now, by a clock that says `made_at` and is ahead: a grid that starts now
    and a duration from now are told by the right clock."""
    ahead = round(ahead_seconds)
    if isinstance(schedule, Interval) and abs(schedule.anchor - made_at) <= JUST_NOW_SECONDS:
        return replace(schedule, anchor=schedule.anchor - ahead)
    if isinstance(schedule, Once) and schedule.at is not None and schedule.delay is not None and (
        abs(schedule.at - schedule.delay - made_at) <= JUST_NOW_SECONDS
    ):
        return replace(schedule, at=schedule.at - ahead)
    return schedule


def as_declared(schedule: Schedule, *, before: Schedule) -> Schedule:
    """What a declaration that is made again means for a job that is there: `every 6h` and `30m` said anew, and read
    anew with another now, are the schedule that it has."""
    if isinstance(schedule, Interval) and isinstance(before, Interval):
        same = (schedule.seconds, schedule.after_finish) == (before.seconds, before.after_finish)
        return replace(schedule, anchor=before.anchor) if same else schedule
    if isinstance(schedule, Once) and isinstance(before, Once) and schedule.delay is not None:
        return before if schedule.delay == before.delay else schedule
    return schedule


@dataclass(frozen=True, kw_only=True)
class Span:
    """What lies between two instants, without a list of it."""

    first: int
    """The earliest slot."""
    last: int
    """The latest slot."""
    count: int
    """How many, both included."""
