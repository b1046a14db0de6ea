"""The calendar as one page for a browser.

Invariant: the page is whole in itself: no script, no font, no image, nothing is loaded; whatever a job is called is
text in it and never markup, and its policy forbids a browser to run or to fetch anything. It reads without colours:
each outcome is a word.

Not for: a program that changes jobs. A library of templates was rejected: there is one page.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from html import escape
from zoneinfo import ZoneInfo

from maintenance.cron_calendar.days import Calendar, Cell, Row
from maintenance.cron_calendar.text import STATES, coming
from maintenance.output.text import safe_text

_STYLE = """
:root{color-scheme:light dark;--line:#8884;--soft:#8882}
body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:100rem;padding:0 1rem}
h1{font-size:1.4rem;margin:0 0 .2rem}h2{font-size:1.1rem;margin:2rem 0 .5rem}p{margin:.2rem 0}
.wide{overflow-x:auto}table{border-collapse:collapse;width:100%}
th,td{border:1px solid var(--line);padding:.35rem .5rem;text-align:left;vertical-align:top;min-width:5.5rem}
th{font-weight:600;background:var(--soft)}tbody th{min-width:11rem;background:none}
.today{outline:2px solid #2a7de1;outline-offset:-2px}.sub{display:block;font-weight:400;opacity:.75;font-size:.85em}
.mark{display:block;border-left:.35rem solid;padding-left:.4rem;margin:.1rem 0;white-space:nowrap}
.succeeded{border-color:#2a9d4a}.failed,.interrupted{border-color:#d0342c}.missed{border-color:#d98200}
.skipped,.unknown{border-color:#888}.running,.claimed,.due{border-color:#2a7de1}.none{opacity:.4}
"""


def page(calendar: Calendar) -> str:
    """The whole document."""
    return "".join(_parts(calendar))


def _parts(calendar: Calendar) -> Iterator[str]:
    zone = ZoneInfo(calendar.zone)
    made = f"{datetime.fromtimestamp(calendar.now, zone):%Y-%m-%d %H:%M %z}"
    yield '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    yield "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    yield f"<title>Cron of {_text(calendar.home)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
    yield f"<h1>Cron of {_text(calendar.home)}</h1>\n<p>Made {made}; days and times in {_text(calendar.zone)}.</p>\n"
    if not calendar.rows:
        yield "<p>There is no job.</p>\n"
    else:
        totals = ", ".join(f"{calendar.totals[one]:,} {one}" for one in STATES if one in calendar.totals)
        yield f"<h2>The last {calendar.today} days: {totals or 'nothing was due'}</h2>\n"
        yield from _table(calendar, range(calendar.today + 1), lambda cell: _outcomes(cell))
        yield f"<h2>The next {len(calendar.days) - 1 - calendar.today} days</h2>\n"
        yield from _table(calendar, range(calendar.today, len(calendar.days)), lambda cell: _coming(cell, zone))
    yield "</body>\n</html>\n"


def _table(calendar: Calendar, numbers: range, cell: object) -> Iterator[str]:
    assert callable(cell)
    yield '<div class="wide"><table>\n<thead><tr><th scope="col">job</th>'
    for number in numbers:
        today = ' class="today"' if number == calendar.today else ""
        yield f'<th scope="col"{today}>{calendar.days[number]:%a %d %b}</th>'
    yield "</tr></thead>\n<tbody>\n"
    for row in calendar.rows:
        yield f'<tr><th scope="row">{_head(row)}</th>'
        for number in numbers:
            today = ' class="today"' if number == calendar.today else ""
            yield f"<td{today}>{cell(row.cells[number])}</td>"
        yield "</tr>\n"
    yield "</tbody>\n</table></div>\n"


def _head(row: Row) -> str:
    name = f'<span class="sub">{_text(row.name)}</span>' if row.name and row.name != row.job_id else ""
    stands = "" if row.state == "scheduled" else f'<span class="sub">{_text(row.state)} {_text(row.reason)}</span>'
    return f'{_text(row.job_id)}{name}<span class="sub">{_text(row.schedule)}</span>{stands}'


def _outcomes(cell: Cell) -> str:
    marks = [
        f'<span class="mark {state}">{cell.outcomes[state]:,} {state}</span>'
        for state in STATES if state in cell.outcomes
    ]
    return "".join(marks) or '<span class="none">-</span>'


def _coming(cell: Cell, zone: ZoneInfo) -> str:
    return _text(coming(cell, zone)) if cell.coming else '<span class="none">-</span>'


def _text(value: str) -> str:
    return escape(safe_text(value, 200))
