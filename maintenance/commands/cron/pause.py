"""`hermes-state cron pause`: skip the slots of jobs."""

from __future__ import annotations

import click

from maintenance.context import Context, store_options

HELP = """Pause cron jobs: their slots are skipped until they are resumed.

What came due before is accounted for as it stood; a slot that waits is skipped; what comes due while it is paused is
one record, skipped (paused). When one of several is not known, none is paused.

What changes on disk: some rows of each job. Lock: the write lock, for some milliseconds each, beside whoever uses the
store.
Left alone: a run in flight, which goes on and is recorded. A job that is paused already keeps its reason.

\b
Example:
  hermes cron pause daily-brief --reason "on holiday"
  hermes cron pause daily-brief backup --reason moving --dry-run

Exit: 0 done, 1 not found or failed, 2 usage, 65 damaged, 75 busy.
"""


@click.command("pause", help=HELP, short_help="Pause cron jobs: their slots are skipped until they are resumed.",
               options_metavar="--reason TEXT [OPTIONS]")
@click.argument("which", nargs=-1, required=True, metavar="ID...")
@click.option("--reason", required=True, metavar="TEXT", help="Why, for whoever asks later.")
@click.option("--dry-run", is_flag=True, help="Say what would be paused; change nothing.")
@click.option("--yes", "-y", is_flag=True, help="Accepted for scripts; this verb never asks.")
@store_options
def command(ctx: Context, *, which: tuple[str, ...], reason: str, dry_run: bool, yes: bool) -> None:
    from cron_store.cron import Cron
    from maintenance.commands.cron.shown import find, opened
    from maintenance.commands.cron.turned import tell

    with opened(ctx, read_only=dry_run) as store:
        cron = Cron(store)
        before = [find(cron, word) for word in dict.fromkeys(which)]
        after = before if dry_run else [cron.pause(job.job_id, reason=reason) for job in before]
    tell(ctx, before, after, active=False, dry_run=dry_run)
