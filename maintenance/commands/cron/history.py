"""`hermes-state cron history`: what was run."""

from __future__ import annotations

import click

from maintenance.context import Context, store_options

HELP = """List cron runs, newest first, those in flight too.

Each with its number, how it ended, its slot (or by hand, or imported), when, how long it took, and why it failed.
`interrupted`: its process died after the start, or said so; nobody knows how far it came, and it is not run again
unless the job declares its effect idempotent. `released`: it ended before its start. `unknown`: imported without a
verdict.

With --slots, the records of a job's slots instead: every slot is in exactly one, its own or a range.

What changes on disk: nothing. Lock: none; read-only beside whoever uses the store.
Left alone: everything.

\b
Example:
  hermes cron history
  hermes cron history --job daily-brief --json
  hermes cron history --job daily-brief --slots

Exit: 0 done, 1 not found or failed, 2 usage, 65 damaged, 75 busy.
"""


@click.command("history", help=HELP, short_help="List cron runs, newest first.")
@click.option("--job", "which", metavar="ID", help="Only of this job; its id also after it was removed.")
@click.option("--source", type=click.Choice(("schedule", "manual", "import")), help="Only these runs.")
@click.option("--slots", "as_slots", is_flag=True, help="The records of the job's slots, oldest first.")
@click.option("--since-days", type=click.FloatRange(min=0), default=7.0, show_default=True, metavar="DAYS",
              help="With --slots: how far back.")
@click.option("--before", type=click.IntRange(min=1), metavar="NUMBER", help="Go on after the page that ended there.")
@click.option("--limit", "-n", type=click.IntRange(min=1, max=10_000), default=50, show_default=True,
              help="How many at most.")
@store_options
def command(
    ctx: Context, *, which: str | None, source: str | None, as_slots: bool, since_days: float, before: int | None,
    limit: int,
) -> None:
    from cron_store.looking import Looking
    from hermes_state.errors import Entombed
    from maintenance.commands.cron.shown import find, opened, run_document, run_line, slot_document, slot_line
    from maintenance.output.documents import print_json

    if as_slots and which is None:
        raise click.UsageError("--slots needs --job.")
    with opened(ctx, read_only=True) as store:
        cron = Looking(store)
        job_id, zone = which, "UTC"
        if which is not None:
            try:
                job = find(cron, which)
                job_id, zone = job.job_id, job.schedule.zone
            except Entombed:
                pass  # its history outlives it
        if as_slots:
            after = int(ctx.clock.now() - since_days * 86_400)
            records = cron.slots(job_id or "", after=after, limit=limit)
            runs = []
        else:
            records = []
            runs = cron.history(job_id=job_id, source=source, limit=limit, before=before)
    more = runs[-1].fence if len(runs) == limit else None
    if ctx.json:
        print_json({
            "path": ctx.db, "runs": [run_document(run) for run in runs],
            "slots": [slot_document(one) for one in records], "next_before": more,
        })
        return
    if not runs and not records:
        click.echo("There is none.")
    for one in records:
        click.echo(slot_line(one, zone))
    for run in runs:
        click.echo(run_line(run, ctx))
    if more is not None:
        click.echo(f"There may be more: --before {more} goes on.", err=True)
    if len(records) == limit:
        click.echo("There may be more: give a smaller --since-days or a larger --limit.", err=True)
