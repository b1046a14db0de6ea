"""`hermes-state cron calendar`: the week ahead and what became of the last one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from maintenance.context import Context, store_options

if TYPE_CHECKING:
    from maintenance.cron_calendar.days import Calendar

HELP = """Draw the week ahead and what became of the last week, a day after the other.

Behind: how many slots of each job succeeded, failed, were interrupted, missed or skipped. Ahead: when each job is due;
of a job that is due often, how often and from when to when. Days and times are of one zone: --zone, else that of this
machine. With --html, the same as a page for a browser, one file that loads nothing, on stdout or in --output.

What changes on disk: nothing; with --output that file, which may be there already. Lock: none; read-only beside whoever
uses the store.
Left alone: everything.

\b
Example:
  hermes cron calendar
  hermes cron calendar --html --output week.html --zone Europe/Berlin

Exit: 0 done, 1 failed, 2 usage, 3 a job cannot be read and is named, 65 damaged, 75 busy.
"""


@click.command("calendar", help=HELP, short_help="Draw the week ahead and what became of the last one.")
@click.option("--days", type=click.IntRange(min=1, max=31), default=7, show_default=True, help="How many, each way.")
@click.option("--job", "which", multiple=True, metavar="ID", help="Only this job; may be repeated.")
@click.option("--zone", metavar="NAME", help="IANA time zone of the days.")
@click.option("--html", "as_html", is_flag=True, help="A page for a browser.")
@click.option("--output", "-o", metavar="FILE", help="Where the page goes.")
@store_options
def command(
    ctx: Context, *, days: int, which: tuple[str, ...], zone: str | None, as_html: bool, output: str | None
) -> int:
    from pathlib import Path

    from cron_store.looking import Looking
    from cron_store.schedule import check_zone, host_zone
    from maintenance.commands.cron.shown import every, find, opened, tell_unreadable, unreadable_document
    from maintenance.cron_calendar.days import calendar_of
    from maintenance.output.documents import print_json
    from maintenance.output.text import safe_text

    if output is not None and not as_html:
        raise click.UsageError("--output goes with --html.")
    chosen = check_zone(zone) if zone is not None else host_zone(os.environ) or "UTC"
    bad: dict[str, Exception] = {}
    with opened(ctx, read_only=True) as store:
        cron = Looking(store)
        jobs = [find(cron, word) for word in dict.fromkeys(which)] if which else every(cron, bad)
        calendar = calendar_of(cron, jobs, chosen, days_behind=days, days_ahead=days)
    if as_html:
        from maintenance.cron_calendar.page import page

        drawn = page(calendar)
        if output is not None:
            Path(output).write_text(drawn, encoding="utf-8")
            if not ctx.json:
                click.echo(safe_text(f"Written to {output}."), err=True)
        elif not ctx.json:
            click.echo(drawn, nl=False)
    if ctx.json:
        print_json({"path": ctx.db, "output": output, "unreadable": unreadable_document(bad), **_document(calendar)})
    elif not as_html:
        from maintenance.cron_calendar.text import lines

        for text in lines(calendar):
            click.echo(text)
    if not ctx.json:
        tell_unreadable(bad, err=as_html)
    return 3 if bad else 0


def _document(calendar: Calendar) -> dict[str, Any]:
    from maintenance.output.text import rfc3339

    return {
        "zone": calendar.zone, "at": rfc3339(calendar.now), "totals": calendar.totals,
        "jobs": [
            {
                "job_id": row.job_id, "name": row.name, "schedule_text": row.schedule, "state": row.state,
                "days": [
                    {"day": day.isoformat(), "outcomes": cell.outcomes, "coming": cell.coming,
                     "first_at": rfc3339(cell.times[0] if cell.times else cell.first),
                     "last_at": rfc3339(cell.times[-1] if cell.times else cell.last)}
                    for day, cell in zip(calendar.days, row.cells, strict=True)
                ],
            }
            for row in calendar.rows
        ],
    }
