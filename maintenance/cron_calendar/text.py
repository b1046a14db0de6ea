"""The calendar as text: a day after the other.

Invariant: every line is one line, whatever a name holds. Not for: programs, which get the same as a document.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from zoneinfo import ZoneInfo

from maintenance.cron_calendar.days import Calendar, Cell, Row
from maintenance.output.text import plural, safe_text

# Words for a count of one outcome, in this order.
STATES = (
    "succeeded", "failed", "interrupted", "missed", "skipped", "unknown", "running", "claimed", "due",
)
_WIDTH = 160


def lines(calendar: Calendar) -> Iterator[str]:
    """What is printed."""
    zone = ZoneInfo(calendar.zone)
    behind, ahead = calendar.days[: calendar.today + 1], calendar.days[calendar.today :]
    yield f"The last {plural(len(behind) - 1, 'day')} of {safe_text(calendar.home)}, in {calendar.zone}"
    for number, day in enumerate(behind):
        told = [(row, outcomes(row.cells[number])) for row in calendar.rows if row.cells[number].outcomes]
        yield f"{day:%a %Y-%m-%d}{'  today' if number == calendar.today else ''}"
        for row, words in told:
            yield safe_text(f"  {_name(row)}: {words}", _WIDTH)
        if not told:
            yield "  nothing"
    yield ""
    yield f"The next {plural(len(ahead) - 1, 'day')}"
    for number, day in enumerate(ahead, start=calendar.today):
        yield f"{day:%a %Y-%m-%d}{'  today' if number == calendar.today else ''}"
        single = sorted(
            (slot, row.job_id, _name(row)) for row in calendar.rows for slot in row.cells[number].times
        )
        for slot, _job_id, name in single:
            yield safe_text(f"  {wall(slot, zone)}  {name}", _WIDTH)
        cells = [(row, row.cells[number]) for row in calendar.rows]
        many = [(row, cell) for row, cell in cells if cell.coming and not cell.times]
        for row, cell in many:
            yield safe_text(f"  {coming(cell, zone)}  {_name(row)}, {row.schedule}", _WIDTH)
        if not single and not many:
            yield "  nothing"
    for row in calendar.rows:
        if row.state == "paused":
            yield safe_text(f"Paused: {_name(row)} ({row.reason})", _WIDTH)


def outcomes(cell: Cell) -> str:
    """`3 succeeded, 1 missed`."""
    return ", ".join(f"{cell.outcomes[state]:,} {state}" for state in STATES if state in cell.outcomes)


def coming(cell: Cell, zone: ZoneInfo) -> str:
    """`09:00, 12:00`, or `144 times, 00:00 to 23:50`."""
    if cell.times:
        return ", ".join(wall(slot, zone) for slot in cell.times)
    if cell.first is None or cell.last is None:
        return ""
    return f"{cell.coming:,} times, {wall(cell.first, zone)} to {wall(cell.last, zone)}"


def wall(slot: int, zone: ZoneInfo) -> str:
    """The time of a slot on the wall clock."""
    moment = datetime.fromtimestamp(slot, zone)
    return f"{moment:%H:%M}{f':{moment:%S}' if moment.second else ''}"


def _name(row: Row) -> str:
    return f"{row.job_id} ({row.name})" if row.name and row.name != row.job_id else row.job_id
