"""`hermes-state cron list`: which jobs there are."""

from __future__ import annotations

import click

from maintenance.context import Context, store_options

STATES = ("scheduled", "paused", "completed", "error")

HELP = """List cron jobs, by id.

Each with its name, its schedule and zone, how it stands, when it is due next in its own zone, and how its last run
ended. All are listed, paused and completed ones too. `hermes cron show ID` has one whole.

\b
scheduled  it has a next slot           paused  its slots are skipped until it is resumed
completed  no slot is left for it       error   its next slot cannot be told; it is tried again

What changes on disk: nothing. Lock: none; read-only beside whoever uses the store.
Left alone: everything.

\b
Example:
  hermes cron list
  hermes cron list --state paused --json

Exit: 0 done, 1 failed, 2 usage, 3 a job cannot be read and is named, 65 damaged, 75 busy.
"""


@click.command("list", help=HELP, short_help="List cron jobs, by id.")
@click.option("--state", "states", multiple=True, type=click.Choice(STATES), help="Only this state; may be repeated.")
@click.option("--after", metavar="ID", help="Go on after the page that ended at ID.")
@click.option("--limit", "-n", type=click.IntRange(min=1, max=10_000), default=200, show_default=True,
              help="How many at most.")
@store_options
def command(ctx: Context, *, states: tuple[str, ...], after: str | None, limit: int) -> int:
    from cron_store.looking import Looking
    from cron_store.states import JobState
    from maintenance.commands.cron.shown import document, line, opened, tell_unreadable, unreadable_document
    from maintenance.output.documents import print_json

    bad: dict[str, Exception] = {}
    with opened(ctx, read_only=True) as store:
        found = Looking(store).jobs(
            states=[JobState(state) for state in states] or None, limit=limit, after=after, unreadable=bad
        )
    more = found[-1].job_id if len(found) == limit else None
    if ctx.json:
        print_json({
            "path": ctx.db, "jobs": [document(job) for job in found], "unreadable": unreadable_document(bad),
            "next_after": more,
        })
        return 3 if bad else 0
    if not found and not bad:
        like = " like that" if states or after else ""
        click.echo(f"There is no cron job{like} in {ctx.db}; `hermes-state cron add --help` says how to add one.")
    for job in found:
        click.echo(line(job, ctx))
    tell_unreadable(bad)
    if more is not None:
        click.echo(f"There may be more: --after {more} goes on.", err=True)
    return 3 if bad else 0
