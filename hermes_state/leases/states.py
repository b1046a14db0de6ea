"""The state machine of a lease: how a contender and how its holder see the row, and what each may do then.

Invariant: every pair of a view and an act has its outcome in a table here, and nothing else decides. A contender takes
what is free, what ran out on a clock it shares with the holder, what belonged to the provably dead, and, where it
shares no clock, what it has itself seen unchanged for long enough. Everything else waits.

Not for: reading or writing rows (see `rows`, `leases`). Comparing wall times was rejected: they are set, and differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from hermes_state.clock import ClockDomain
from hermes_state.leases.rows import LeaseRow
from hermes_state.owners import Verdict

# What a contender of another clock waits beyond the term before it takes over: the larger of both. Two clocks differ by
# at most 1 in 1000 while they are slewed (Linux: 500 ppm each), so a tenth is ample; the seconds are for a holder that
# was stopped between its guard and what it does outside the store.
MARGIN_SECONDS = 2.0
MARGIN_SHARE = 0.1


class Standing(Enum):
    """How a contender sees a lease."""

    FREE = "free"  # no row, or released
    RUN_OUT = "run out"  # past its expiry on a clock that contender and holder share
    DEAD = "dead"  # its owner is provably dead
    SILENT = "silent"  # another clock's: seen unchanged for its term and the margin
    HELD = "held"  # not expired on the shared clock
    WATCHED = "watched"  # another clock's: not yet seen unchanged for long enough


class Outcome(Enum):
    """What follows from a view and an act."""

    TAKE = "take"  # the contender gets it, with the next fence
    WAIT = "wait"  # the contender does not get it: LeaseHeld once it stops waiting
    EXTEND = "extend"  # the holder has it for another term
    PASS = "pass"  # the guarded write goes on
    FREE = "free"  # the row has no owner any more
    NOTHING = "nothing"  # said and not done
    LOST = "lost"  # LeaseLost
    STALE = "stale"  # StaleFence


ACQUIRE: Mapping[Standing, Outcome] = {
    Standing.FREE: Outcome.TAKE,
    Standing.RUN_OUT: Outcome.TAKE,
    Standing.DEAD: Outcome.TAKE,
    Standing.SILENT: Outcome.TAKE,
    Standing.HELD: Outcome.WAIT,
    Standing.WATCHED: Outcome.WAIT,
}


class Tenure(Enum):
    """How the one who acquired a lease sees it."""

    OURS = "ours"  # fence, owner and content are ours and the clock is before the expiry
    RUN_OUT = "run out"  # ours still, but the clock is past the expiry: we were away
    SPENT = "spent"  # ours still, but the longest life that was asked for is over
    FREED = "freed"  # released
    TAKEN = "taken"  # the next owner has it, or the content of the store was replaced
    FORKED = "forked"  # it belongs to the process that forked us


class Act(Enum):
    """What a holder does."""

    RENEW = "renew"
    GUARD = "guard"
    RELEASE = "release"


HOLD: Mapping[tuple[Tenure, Act], Outcome] = {
    (Tenure.OURS, Act.RENEW): Outcome.EXTEND,
    (Tenure.OURS, Act.GUARD): Outcome.PASS,
    (Tenure.OURS, Act.RELEASE): Outcome.FREE,
    (Tenure.RUN_OUT, Act.RENEW): Outcome.EXTEND,
    (Tenure.RUN_OUT, Act.GUARD): Outcome.LOST,
    (Tenure.RUN_OUT, Act.RELEASE): Outcome.FREE,
    (Tenure.SPENT, Act.RENEW): Outcome.LOST,
    (Tenure.SPENT, Act.GUARD): Outcome.LOST,
    (Tenure.SPENT, Act.RELEASE): Outcome.FREE,
    (Tenure.FREED, Act.RENEW): Outcome.LOST,
    (Tenure.FREED, Act.GUARD): Outcome.LOST,
    (Tenure.FREED, Act.RELEASE): Outcome.NOTHING,
    (Tenure.TAKEN, Act.RENEW): Outcome.LOST,
    (Tenure.TAKEN, Act.GUARD): Outcome.STALE,
    (Tenure.TAKEN, Act.RELEASE): Outcome.NOTHING,
    (Tenure.FORKED, Act.RENEW): Outcome.LOST,
    (Tenure.FORKED, Act.GUARD): Outcome.LOST,
    (Tenure.FORKED, Act.RELEASE): Outcome.NOTHING,
}


@dataclass(frozen=True, kw_only=True)
class Sighting:
    """What a contender saw, and since when on its own clock."""

    fence: int  # as seen
    renewals: int  # as seen
    since: float  # boot time of the contender at the first look that showed these two
    domain: ClockDomain  # of that boot time

    def still(self, row: LeaseRow, domain: ClockDomain) -> bool:
        """Whether the row shows the same, and the time since can be told."""
        return (self.fence, self.renewals) == (row.fence, row.renewals) and self.domain == domain


def silence_needed(term_seconds: float) -> float:
    """Seconds for which a contender of another clock must itself see the renewal counter unchanged."""
    return term_seconds + max(MARGIN_SECONDS, MARGIN_SHARE * term_seconds)


def standing(
    row: LeaseRow | None, *, now: float, domain: ClockDomain, sighting: Sighting | None, judge: Callable[[], Verdict]
) -> Standing:
    """How a contender whose boot time is `now` sees the row. `judge` says whether the owner is provably dead."""
    if row is None or row.owner is None:
        return Standing.FREE
    shared = row.domain.comparable(domain)
    if shared and now >= row.expires_boottime:
        return Standing.RUN_OUT
    if judge().dead:
        return Standing.DEAD
    if shared:
        return Standing.HELD
    if sighting is None or now - sighting.since < silence_needed(row.term_seconds):
        return Standing.WATCHED
    return Standing.SILENT
