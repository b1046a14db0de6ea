"""`hermes-state cron inflight`: what runs now."""

from __future__ import annotations

import click

from maintenance.context import Context, store_options

HELP = """List the cron runs in flight: claimed or running, by whom, since when.

With each: whether its process lives. One whose process is gone is taken back by the next tick: a claim becomes due
again, a run becomes interrupted. With --everywhere, of the installation's root and all its profiles; a job of one home
says nothing of the job of that name in another.

What changes on disk: nothing. Lock: none; read-only beside whoever uses the store.
Left alone: everything.

\b
Example:
  hermes cron inflight
  hermes cron inflight --everywhere --json

Exit: 0 done, 1 failed, 2 usage, 65 damaged, 75 busy.
"""


@click.command("inflight", help=HELP, short_help="List the cron runs in flight: by whom, since when.")
@click.option("--job", "which", metavar="ID", help="Only of this job.")
@click.option("--everywhere", is_flag=True, help="Of all homes of this installation.")
@store_options
def command(ctx: Context, *, which: str | None, everywhere: bool) -> None:
    from dataclasses import replace

    from cron_store.looking import Looking
    from hermes_state.errors import ForeignStore
    from hermes_state.owners import provably_dead
    from maintenance.commands.cron.homes import homes_of
    from maintenance.commands.cron.shown import find, opened, run_document, run_line
    from maintenance.output.documents import print_json
    from maintenance.output.text import safe_text

    found, skipped = [], []
    for db in homes_of(ctx) if everywhere else [ctx.db]:
        try:
            with opened(replace(ctx, db=db), read_only=True) as store:
                cron = Looking(store)
                runs = cron.in_flight(None if which is None else find(cron, which).job_id)
        except ForeignStore:
            if not everywhere:
                raise
            skipped.append(db)
            continue
        for run in runs:
            verdict = None if run.owner is None else provably_dead(run.owner, db.parent, clock=ctx.clock)
            found.append((db, run, verdict))
    if ctx.json:
        print_json({
            "path": ctx.db,
            "runs": [
                {"home": db.parent, **run_document(run), "owner_gone": verdict is not None and verdict.dead,
                 "because": None if verdict is None else verdict.because}
                for db, run, verdict in found
            ],
            "skipped": skipped,
        })
        return
    if not found:
        click.echo("No cron run is in flight.")
    for db, run, verdict in found:
        gone = f", its process is gone ({verdict.because})" if verdict is not None and verdict.dead else ""
        click.echo(f"{run_line(run, ctx)}{gone}{safe_text(f'  {db.parent}') if everywhere else ''}")
    for db in skipped:
        click.echo(safe_text(f"{db} belongs to hermes-agent: ask `hermes cron list` there."), err=True)
