"""Schedules as values and their slots as pure functions.

    schedule = parse("0 9 * * 1-5", zone="Europe/Berlin", now=clock.time())
    require_fire(schedule, now)                  # ScheduleRefused: no fire within 8 years
    slots(schedule, after, until, limit=1000)    # sorted UTC seconds, after < slot <= until
"""

from cron_store.schedule.codec import from_json, to_json
from cron_store.schedule.describing import describe
from cron_store.schedule.enumeration import (
    FIRE_HORIZON_SECONDS,
    finished,
    has_fire_within,
    next_slot,
    next_slots,
    require_fire,
    slots,
    span,
)
from cron_store.schedule.host_zone import host_zone
from cron_store.schedule.kinds import CronExpression, Fold, Gap, Interval, Once, Schedule, Span
from cron_store.schedule.parsing import parse
from cron_store.schedule.zones import TzDatabase, check_zone, refresh_zones, tz_database, zone_version

__all__ = [
    "FIRE_HORIZON_SECONDS", "CronExpression", "Fold", "Gap", "Interval", "Once", "Schedule", "Span", "TzDatabase",
    "check_zone", "describe", "finished", "from_json", "has_fire_within", "host_zone", "next_slot", "next_slots",
    "parse", "refresh_zones", "require_fire", "slots", "span", "to_json", "tz_database", "zone_version",
]
