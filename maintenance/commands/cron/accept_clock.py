"""`hermes-state cron accept-clock`: a person says that the wall clock is right."""

from __future__ import annotations

import click

from maintenance.context import Context, store_options

HELP = """Say that the wall clock is right, when cron doubts a step of it.

A wall clock that moved by more than 60 s against the boot clock is believed only once that has stood for a minute,
forwards by more than a day for an hour; jobs go by the boot clock meanwhile. This believes it at once. What it jumped
over is then caught up with as each job's misfire policy says, and those slots stay settled: when the clock is wrong,
set it back instead. Look at `date` first, or use --dry-run, which says by how much it moved.

What changes on disk: the clocks of the home and an event. Lock: the write lock, for some milliseconds, beside whoever
uses the store.
Left alone: jobs and their slots, until the next tick.

\b
Example:
  hermes cron accept-clock --dry-run
  hermes cron accept-clock

Exit: 0 done, or nothing was in doubt; 1 failed, 2 usage, 65 damaged, 75 busy.
"""


@click.command("accept-clock", help=HELP, short_help="Say that the wall clock is right, when cron doubts a step of it.")
@click.option("--dry-run", is_flag=True, help="Say which step is in doubt; change nothing.")
@click.option("--yes", "-y", is_flag=True, help="Accepted for scripts; this verb never asks.")
@store_options
def command(ctx: Context, *, dry_run: bool, yes: bool) -> None:
    from cron_store.cron import Cron
    from cron_store.looking import Looking
    from maintenance.commands.cron.shown import opened
    from maintenance.output.documents import print_json
    from maintenance.output.text import rfc3339

    with opened(ctx, read_only=dry_run) as store:
        step = Looking(store).clock_step() if dry_run else Cron(store).accept_clock()
    if ctx.json:
        print_json({
            "dry_run": dry_run, "path": ctx.db, "step_seconds": None if step is None else step.seconds,
            "wall_at": None if step is None else rfc3339(step.at), "already_done": step is None,
        })
        return
    if step is None:
        click.echo("No step of the wall clock is in doubt.")
        return
    at = (rfc3339(step.at) or "").replace(".000Z", "Z")
    done = "it would be believed" if dry_run else "it is believed now"
    click.echo(f"The wall clock moved by {step.seconds:+.0f} s, to {at}: {done}.")
