"""What a person writes, as a schedule.

Invariant: `30m` is once, `every 30m` is an interval, five fields or an alias are an expression, an ISO time is once. A
time without an offset is wall time in the zone and stays so; one with an offset is that instant. Anything else is
refused with the reason: nothing is guessed.

Not for: whether it ever fires (`enumeration.require_fire`). A date parser for free text was rejected: "next friday"
means two days, and a wrong job is found out a week later.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime
from math import floor

from cron_store.schedule.expressions import expression
from cron_store.schedule.kinds import CronExpression, Fold, Gap, Interval, Once, Schedule
from cron_store.schedule.zones import check_zone
from hermes_state.errors import ScheduleRefused

UNIT_SECONDS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600),
    **dict.fromkeys(("d", "day", "days"), 86_400),
    **dict.fromkeys(("w", "week", "weeks"), 604_800),
}
PART = re.compile(r"(\d{1,9})\s*([a-z]+)\s*")
ISO_START = re.compile(r"\d{4}-|\d{8}(T|$)")
LONGEST_SECONDS = 100 * 366 * 86_400
HINT = "Write 30m (once), every 30m, 0 9 * * 1-5, @daily, or a time such as 2027-01-31T09:00."


def parse(
    text: str, *, zone: str, now: float, gap: Gap = Gap.NEXT, fold: Fold = Fold.FIRST, after_finish: bool = False
) -> Schedule:
    """Read a schedule. `zone` is the IANA name it is stored with, `now` in seconds UTC; the grid of an interval and a
    duration start in that second. Raises `ScheduleRefused`, `UnknownZone`."""
    check_zone(zone)
    said = " ".join(text.split())
    schedule = _read(said, text, zone, floor(now), gap, fold)
    if after_finish:
        if not isinstance(schedule, Interval):
            raise refused(text, "only an interval can count from the end of a run")
        schedule = replace(schedule, after_finish=True)
    return schedule


def _read(said: str, text: str, zone: str, now: int, gap: Gap, fold: Fold) -> Schedule:
    lower = said.lower()
    if not said:
        raise refused(text, "it is empty")
    if lower.startswith("every "):
        seconds = _duration(lower.removeprefix("every "), text)
        if seconds < 60:
            raise refused(text, "an interval is at least a minute: a tick looks once a minute")
        return Interval(seconds=seconds, anchor=now, zone=zone)
    if said.startswith("@") or len(said.split(" ")) >= 5:
        return CronExpression(expression=expression(said).text, zone=zone, gap=gap, fold=fold)
    if ISO_START.match(said):
        return _instant(said, text, zone, gap, fold)
    delay = _duration(lower, text)
    return Once(at=now + delay, delay=delay, zone=zone)


def _duration(said: str, text: str) -> int:
    """`90m`, `1h 30m`, `2 days` in seconds."""
    seconds = at = 0
    while at < len(said):
        part = PART.match(said, at)
        if part is None or part[2] not in UNIT_SECONDS:
            raise refused(text, f"{said!r} is no duration, no expression of 5 fields and no ISO time")
        seconds += int(part[1]) * UNIT_SECONDS[part[2]]
        at = part.end()
    if not 0 < seconds <= LONGEST_SECONDS:
        raise refused(text, "a duration is more than nothing and at most 100 years")
    return seconds


def _instant(said: str, text: str, zone: str, gap: Gap, fold: Fold) -> Once:
    try:
        moment = datetime.fromisoformat(said)
    except ValueError as error:
        raise refused(text, f"it begins like an ISO time, and is none ({error})") from error
    if moment.tzinfo is not None:
        return Once(at=floor(moment.timestamp()), zone=zone, gap=gap, fold=fold)
    return Once(wall=moment.replace(microsecond=0).isoformat(), zone=zone, gap=gap, fold=fold)


def refused(text: str, reason: str) -> ScheduleRefused:
    """The error, with what may be written instead."""
    return ScheduleRefused(f"The schedule {text!r} is refused: {reason}.", text=text, reason=reason, hint=HINT)
