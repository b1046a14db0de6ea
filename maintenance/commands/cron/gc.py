"""`hermes-state cron gc`: let go of old history."""

from __future__ import annotations

import click

from maintenance.context import Context, store_options

HELP = """Let go of old records of slots, of runs beyond what each job keeps, and of old events.

Records of slots are kept for --keep-days, runs by number for each job and source (`cron edit --keep`), the newest 1,000
events. What is let go is never run again: each job remembers through which slot everything is accounted for.

What changes on disk: those rows go, at most 500 in a transaction. Lock: the write lock, for some milliseconds each,
beside whoever uses the store. Left alone: jobs, whatever is in flight or due, incidents.

\b
Example:
  hermes cron gc --dry-run
  hermes cron gc --keep-days 90

Exit: 0 done, 1 failed, 2 usage, 65 damaged, 75 busy.
"""


@click.command("gc", help=HELP, short_help="Let go of old records of slots, runs and events.")
@click.option("--keep-days", type=click.FloatRange(min=0, max=36_500), default=30.0, show_default=True, metavar="DAYS",
              help="How long records of slots are kept.")
@click.option("--dry-run", is_flag=True, help="Say how much would go; change nothing.")
@click.option("--yes", "-y", is_flag=True, help="Accepted for scripts; this verb never asks.")
@store_options
def command(ctx: Context, *, keep_days: float, dry_run: bool, yes: bool) -> None:
    from cron_store import retention
    from cron_store.cron import Cron
    from maintenance.commands.cron.shown import opened
    from maintenance.output.documents import print_json
    from maintenance.output.text import plural

    with opened(ctx, read_only=dry_run) as store:
        if dry_run:
            before = ctx.clock.now() - keep_days * retention.DAY
            with store.core.reader() as reader:
                done = retention.prunable(reader, before=before)
        else:
            done = Cron(store).upkeep(keep_days=keep_days)
    if ctx.json:
        print_json({
            "dry_run": dry_run, "path": ctx.db, "slots": done.slots, "runs": done.runs, "events": done.events,
            "more": done.more,
        })
        return
    counted = [plural(done.slots, "record of slots", "records of slots"), plural(done.runs, "run"),
               plural(done.events, "event")]
    click.echo(f"{', '.join(counted)} {'would go' if dry_run else 'gone'}.")
    if done.more:
        click.echo("More are due: run it again.", err=True)
