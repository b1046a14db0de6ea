"""Must show 2: instants equal a minute walk with the policies applied (see `tests/support/minute_walk.py`).

The whole is 40 zones x 10 years x every expression x every policy, and a base at every minute of each fold. By default
the days around the changes of a few zones are walked.
"""

from __future__ import annotations

import os
import time

import pytest

from cron_store.schedule import CronExpression, Fold, Gap, next_slots, slots, span
from tests.support.minute_walk import POLICIES, Table, Walk, after, minute_of

# Named in the issue first; then every kind of offset, fold and gap that the database has in these years.
ZONES = (
    "Australia/Lord_Howe", "Antarctica/Troll", "America/Santiago", "America/Havana", "Asia/Beirut", "Africa/Cairo",
    "Africa/Casablanca", "Europe/Dublin", "Asia/Pyongyang", "Europe/Berlin", "Europe/London", "Europe/Lisbon",
    "America/New_York", "America/Los_Angeles", "America/St_Johns", "America/Sao_Paulo", "America/Asuncion",
    "America/Mexico_City", "America/Caracas", "America/Nuuk", "America/Scoresbysund", "America/Miquelon",
    "Atlantic/Azores", "Asia/Tehran", "Asia/Gaza", "Asia/Amman", "Asia/Damascus", "Asia/Jerusalem", "Asia/Kathmandu",
    "Asia/Kolkata", "Asia/Tokyo", "Asia/Ulaanbaatar", "Europe/Istanbul", "Europe/Volgograd", "Africa/Juba",
    "Africa/Sao_Tome", "Pacific/Auckland", "Pacific/Chatham", "Pacific/Apia", "Pacific/Norfolk",
)
EXPRESSIONS = (
    "30 2 * * *", "0 0 * * *", "15 1 * * *", "*/15 * * * *", "0 */2 * * *", "45 */3 * * 1-5", "0,30 0-3 * * *",
    "59 23 * * *", "* 2 * * *", "*/10 1-3 * 3,4,9,10,11 *", "0 2 28-31 * 7", "* * * * *",
)
FIRST_YEAR, YEARS = 2015, 10
DAY = 1440


def compare(zone: str, walk: Walk, tables: list[Table]) -> tuple[int, int]:
    """(instants compared, bases compared) of one zone; a difference fails."""
    instants = bases = 0
    low, high = walk.low * 60 - 1, walk.high * 60 - 1
    for table in tables:
        shown = walk.shown(table)
        for gap, fold in POLICIES[:1] if table.elapsed else POLICIES:
            expected = walk.fires(table, gap, fold, shown)
            schedule = CronExpression(expression=table.expression, zone=zone, gap=Gap(gap), fold=Fold(fold))
            found = slots(schedule, low, high, limit=10**9)
            assert found == expected, (zone, table.expression, gap, fold, set(found) ^ set(expected))
            instants += len(found)
            summary = span(schedule, low, high)
            if expected:
                assert summary is not None
                assert (summary.first, summary.last, summary.count) == (expected[0], expected[-1], len(expected))
            else:
                assert summary is None
            for fold_minutes in walk.folds:
                for base in fold_minutes:
                    right = after(expected, base * 60, 5)
                    assert next_slots(schedule, base * 60, 5)[: len(right)] == right, (
                        zone, table.expression, gap, fold, base,
                    )
                    bases += 1
    return instants, bases


@pytest.mark.parametrize("zone, change", [
    ("Australia/Lord_Howe", (2023, 4, 1)), ("Australia/Lord_Howe", (2023, 9, 30)), ("Antarctica/Troll", (2023, 3, 26)),
    ("America/Havana", (2023, 11, 5)), ("America/Havana", (2023, 3, 12)), ("Africa/Cairo", (2023, 10, 26)),
    ("Europe/Dublin", (2023, 10, 29)), ("Asia/Pyongyang", (2018, 5, 4)),
])
def test_a_change_of_clocks_equals_a_minute_walk(zone: str, change: tuple[int, int, int]) -> None:
    low, high = minute_of(*change) - DAY, minute_of(*change) + 2 * DAY
    tables = [Table(text, low - 2 * DAY, high + 2 * DAY) for text in ("30 2 * * *", "*/15 * * * *", "0,30 0-3 * * *")]
    walk = Walk(zone, low, high, low - 2 * DAY)
    assert len(walk.gaps) + len(walk.folds) == 1
    instants, _ = compare(zone, walk, tables)
    assert instants > 0


@pytest.mark.campaign
def test_forty_zones_equal_a_minute_walk_of_ten_years() -> None:
    """HERMES_STATE_ROUNDS is the number of zones, HERMES_STATE_SEED is added to the first year; all from 2015 on when
    unset, which takes about ten minutes."""
    first = FIRST_YEAR + int(os.environ.get("HERMES_STATE_SEED", "0"))
    zones = ZONES[: int(os.environ.get("HERMES_STATE_ROUNDS", str(len(ZONES))))]
    low, high = minute_of(first, 1, 1), minute_of(first + YEARS, 1, 1)
    began = time.monotonic()
    tables = [Table(text, low - 2 * DAY, high + 2 * DAY) for text in EXPRESSIONS]
    totals = [0, 0, 0, 0]
    for zone in zones:
        walk = Walk(zone, low, high, low - 2 * DAY)
        instants, bases = compare(zone, walk, tables)
        totals = [a + b for a, b in zip(totals, (instants, bases, len(walk.gaps), len(walk.folds)), strict=True)]
    print(
        f"{len(zones)} zones x {YEARS} years from {first}, {len(tables)} expressions: {totals[0]:,} instants, "
        f"{totals[1]:,} bases in folds, {totals[2]} gaps, {totals[3]} folds, 0 differences, "
        f"{time.monotonic() - began:.0f} s"
    )
