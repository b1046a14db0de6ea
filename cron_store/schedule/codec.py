"""Schedules as JSON, for a column of a row.

Invariant: `from_json(to_json(s)) == s`, and equal schedules have the same text. What is not one of our texts is an
error, never a guess: a schedule that is read wrongly fires at the wrong time. Not for: what a person types (`parsing`).
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from cron_store.schedule.expressions import expression
from cron_store.schedule.kinds import CronExpression, Fold, Gap, Interval, Once, Schedule
from hermes_state.errors import InvalidInput, ScheduleRefused

KINDS: dict[str, type[Once] | type[Interval] | type[CronExpression]] = {
    "once": Once, "interval": Interval, "cron": CronExpression,
}
TYPES: dict[str, tuple[type, ...]] = {
    "wall": (str, type(None)), "at": (int, type(None)), "delay": (int, type(None)), "zone": (str,), "seconds": (int,),
    "anchor": (int,), "after_finish": (bool,), "expression": (str,), "gap": (str,), "fold": (str,),
}


def kind_of(schedule: Schedule) -> str:
    """`once`, `interval` or `cron`."""
    return next(name for name, kind in KINDS.items() if isinstance(schedule, kind))


def to_json(schedule: Schedule) -> str:
    """One line with sorted keys; its kind is the key `kind`."""
    return json.dumps({"kind": kind_of(schedule), **asdict(schedule)}, sort_keys=True, separators=(",", ":"))


def from_json(text: str) -> Schedule:
    """The schedule of `to_json`; `ScheduleRefused` for anything else. Its zone is looked up when slots are computed."""
    try:
        said = json.loads(text)
    except ValueError as error:
        raise _refused(text, "it is no JSON") from error
    if not isinstance(said, dict) or said.get("kind") not in KINDS:
        raise _refused(text, f"its kind is none of {', '.join(KINDS)}")
    values: dict[str, Any] = {name: value for name, value in said.items() if name != "kind"}
    for name, value in values.items():
        # True is an int to Python, and no number of seconds.
        if name not in TYPES or type(value) not in TYPES[name]:
            raise _refused(text, f"{name} = {value!r} is not part of a schedule")
    try:
        for name, policy in (("gap", Gap), ("fold", Fold)):
            if name in values:
                values[name] = policy(values[name])
        schedule = KINDS[said["kind"]](**values)
    except (TypeError, ValueError, InvalidInput) as error:
        raise _refused(text, str(error).removesuffix(".")) from error
    if isinstance(schedule, CronExpression):
        expression(schedule.expression)
    return schedule


def _refused(text: str, reason: str) -> ScheduleRefused:
    return ScheduleRefused(
        f"The stored schedule {text!r} cannot be read: {reason}.", text=text, reason=reason,
        hint="Give the job a new schedule: it does not fire with this one.",
    )
