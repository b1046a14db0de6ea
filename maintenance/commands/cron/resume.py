"""`hermes-state cron resume`: let jobs go on."""

from __future__ import annotations

import click

from maintenance.context import Context, store_options

HELP = """Resume paused cron jobs: they go on with their first slot after now.

What came due while they were paused is not run: it is recorded as skipped (paused), in one record. A job whose only
slot went by is completed then. When one of several is not known, none is resumed.

What changes on disk: some rows of each job. Lock: the write lock, for some milliseconds each, beside whoever uses the
store.
Left alone: jobs that are not paused.

\b
Example:
  hermes cron resume daily-brief
  hermes cron resume daily-brief backup --dry-run

Exit: 0 done, 1 not found or failed, 2 usage, 65 damaged, 75 busy.
"""


@click.command("resume", help=HELP, short_help="Resume paused cron jobs: they go on with their first slot after now.")
@click.argument("which", nargs=-1, required=True, metavar="ID...")
@click.option("--dry-run", is_flag=True, help="Say what would be resumed; change nothing.")
@click.option("--yes", "-y", is_flag=True, help="Accepted for scripts; this verb never asks.")
@store_options
def command(ctx: Context, *, which: tuple[str, ...], dry_run: bool, yes: bool) -> None:
    from cron_store.cron import Cron
    from maintenance.commands.cron.shown import find, opened
    from maintenance.commands.cron.turned import tell

    with opened(ctx, read_only=dry_run) as store:
        cron = Cron(store)
        before = [find(cron, word) for word in dict.fromkeys(which)]
        after = before if dry_run else [cron.resume(job.job_id) for job in before]
    tell(ctx, before, after, active=True, dry_run=dry_run)
