"""A schedule in words, for listings.

Invariant: what `describe` says can be told apart when schedules differ in what a person decided; the anchor of a grid
is not said. Not for: storing (`codec`), or saying when a schedule fires next (`enumeration`).
"""

from __future__ import annotations

from datetime import UTC, datetime

from cron_store.schedule.kinds import CronExpression, Fold, Gap, Interval, Once, Schedule
from cron_store.schedule.zones import FIRST_INSTANT, LAST_INSTANT

UNITS = ((86_400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def duration_text(seconds: int) -> str:
    """`90m` for 5400: the largest unit that divides it."""
    size, unit = next((size, unit) for size, unit in UNITS if seconds % size == 0)
    return f"{seconds // size}{unit}"


def instant_text(instant: int) -> str:
    """`2027-01-31T08:00:00Z`; of a year that no calendar here has, the seconds themselves."""
    if not FIRST_INSTANT <= instant <= LAST_INSTANT:
        return f"{instant} s after 1970-01-01T00:00:00Z"
    return f"{datetime.fromtimestamp(instant, UTC).replace(tzinfo=None).isoformat()}Z"


def describe(schedule: Schedule) -> str:
    """One line: `0 9 * * 1-5 (Europe/Berlin)`, `every 30m`, `once at 2027-01-31T09:00:00 (Europe/Berlin)`."""
    if isinstance(schedule, Interval):
        after = ", each after the end of the one before" if schedule.after_finish else ""
        return f"every {duration_text(schedule.seconds)}{after}"
    if isinstance(schedule, Once) and schedule.wall is None:
        return f"once at {instant_text(schedule.at or 0)}"
    policies = [] if schedule.gap is Gap.NEXT else [f"gap {schedule.gap}"]
    policies += [] if schedule.fold is Fold.FIRST else [f"fold {schedule.fold}"]
    said = schedule.expression if isinstance(schedule, CronExpression) else f"once at {schedule.wall}"
    return f"{said} ({', '.join([schedule.zone, *policies])})"
