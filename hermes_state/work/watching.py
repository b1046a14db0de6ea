"""How often a match of a process's output is told: a table of what is known to what is done.

Invariant: pure. A process is told of at most once in 15 s; a match that comes sooner is not told and strikes its window
once; three struck windows in a row turn the patterns off, and the end of the process begins a turn instead, so that
nothing is lost by it. Over all processes at most 15 are told in 10 s; beyond it none is for 30 s, and nobody is struck
for that.

Not for: finding matches in output. Counting every match was rejected: a chatty process struck out in its first second.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

# Numbers of hermes-agent (facts on gateways, 5).
LEAST_SECONDS = 15.0
MOST_STRIKES = 3
ALL_MOST, ALL_SECONDS, ALL_REST_SECONDS = 15, 10.0, 30.0


@dataclass(frozen=True, kw_only=True)
class Watch:
    """What is known of the matches of one process."""

    last_at: float | None  # epoch seconds UTC of the last match that was told; None: none was
    strikes: int  # struck windows in a row
    struck: bool  # whether a match since the last one was not told
    told: int  # matches that were told, ever
    disabled: bool


class Match(StrEnum):
    """What becomes of a match."""

    TELL = "tell"
    STRIKE = "strike"  # not told, and the window is struck
    DROP = "drop"  # not told; the window is struck already, or there are too many over all
    DISABLE = "disable"  # not told, and the patterns are turned off
    TRIP = "trip"  # not told, and for a while none of any process
    IGNORE = "ignore"  # the patterns are turned off, or the process has ended


def decide(watch: Watch, *, at: float, ended: bool, told_lately: int, tripped_at: float | None) -> Match:
    """What becomes of a match at `at`. `told_lately`: matches of all processes told in the last 10 s."""
    if ended or watch.disabled:
        return Match.IGNORE
    # A clock that was ahead does not silence a process: what was told later than now was told before.
    if watch.last_at is not None and 0 <= at - watch.last_at < LEAST_SECONDS:
        if watch.struck:
            return Match.DROP
        return Match.DISABLE if watch.strikes + 1 >= MOST_STRIKES else Match.STRIKE
    if tripped_at is not None and 0 <= at - tripped_at < ALL_REST_SECONDS:
        return Match.DROP
    return Match.TRIP if told_lately >= ALL_MOST else Match.TELL


def after(watch: Watch, match: Match, *, at: float) -> Watch:
    """What is known once that is done."""
    match match:
        case Match.TELL:  # a window in which nothing was held back ends the row of strikes
            strikes = watch.strikes if watch.struck else 0
            return Watch(last_at=at, strikes=strikes, struck=False, told=watch.told + 1, disabled=False)
        case Match.STRIKE | Match.DISABLE:
            return Watch(
                last_at=watch.last_at, strikes=watch.strikes + 1, struck=True, told=watch.told,
                disabled=match is Match.DISABLE,
            )
        case _:
            return watch
