"""`hermes-state cron remove`: remove jobs for good."""

from __future__ import annotations

import click

from maintenance.context import Context, store_options

HELP = """Remove cron jobs for good.

Their ids are refused for 90 days, so that no program that still has one in memory brings it back. A slot that waits is
skipped (removed). `hermes cron pause` is what can be undone. When one of several is not known, none is removed.

What changes on disk: the rows of each job; a tombstone stays. Lock: the write lock, for some milliseconds each, beside
whoever uses the store.
Left alone: a run in flight, which goes on and is recorded; the history.

\b
Example:
  hermes cron remove daily-brief --reason "not read any more"
  hermes cron remove daily-brief backup --reason moved --yes

Exit: 0 done, 1 refused, not found, not confirmed or failed, 2 usage, 65 damaged, 75 busy.
"""


@click.command("remove", help=HELP, short_help="Remove cron jobs for good.", options_metavar="--reason TEXT [OPTIONS]")
@click.argument("which", nargs=-1, required=True, metavar="ID...")
@click.option("--reason", required=True, metavar="TEXT", help="Why, for whoever asks later.")
@click.option("--dry-run", is_flag=True, help="Say what would be removed; change nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@store_options
def command(ctx: Context, *, which: tuple[str, ...], reason: str, dry_run: bool, yes: bool) -> int:
    from cron_store.cron import Cron
    from cron_store.jobs.declaring import checked_reason
    from maintenance.commands.cron.shown import actor, document, find, line, opened
    from maintenance.output.documents import print_json
    from maintenance.output.text import plural
    from maintenance.plan import Plan, confirm

    checked_reason(reason)
    with opened(ctx, read_only=True) as store:
        cron = Cron(store)
        chosen = list({job.job_id: job for job in (find(cron, word) for word in which)}.values())
        running = {run.job_id for run in cron.in_flight()}
    facts = {
        "path": ctx.db, "jobs": [document(job) for job in chosen],
        "in_flight": [job.job_id for job in chosen if job.job_id in running],
    }
    plan = Plan(
        title=f"{plural(len(chosen), 'cron job')} of {ctx.db} to remove",
        lines=tuple(
            line(job, ctx) + (", runs now and goes on to its end" if job.job_id in running else "") for job in chosen
        ),
        facts=facts,
    )
    if dry_run:
        plan.answer(as_json=ctx.json)
        return 0
    if not confirm(plan, yes=yes, question="Remove them?", quiet=ctx.json):
        click.echo("Nothing was changed.", err=True)
        return 1
    with opened(ctx, read_only=False) as store:
        cron = Cron(store)
        for job in chosen:
            cron.remove(job.job_id, actor=actor("remove"), reason=reason)
    if ctx.json:
        print_json({"dry_run": False, **facts})
    else:
        click.echo(f"Removed {plural(len(chosen), 'cron job')}; their ids are refused for 90 days.")
    return 0
