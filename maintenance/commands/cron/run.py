"""`hermes-state cron run`: run a job now, by hand."""

from __future__ import annotations

import click

from maintenance.context import Context, store_options

HELP = """Run a cron job now, by one command.

A run by hand has a number of its own and no slot: the next slot comes as it would have. It is refused with exit 75
while the job runs and its overlap policy is not `allow`; a run whose process is gone is taken from it first. COMMAND
gets the run as one JSON object on its stdin, as `cron tick --exec` gives it, and what it prints is printed.

With --run-id, the same id a second time is refused once that run has ended: what calls again after a lost answer runs
nothing twice.

What changes on disk: a row of the history. Lock: the write lock, for some milliseconds each, beside whoever uses the
store.
Left alone: the schedule; a paused job stays paused, and is run.

\b
Example:
  hermes cron run daily-brief --exec /usr/local/bin/run-job
  hermes cron run daily-brief --exec cat --dry-run

Exit: 0 done, 1 refused, not found or failed, 2 usage, 3 the run failed, 65 damaged, 75 busy.
"""


@click.command("run", help=HELP, short_help="Run a cron job now, by one command.",
               options_metavar="--exec COMMAND [OPTIONS]")
@click.argument("which", metavar="ID")
@click.option("--exec", "words", required=True, metavar="COMMAND", help="What runs it.")
@click.option("--run-id", metavar="TEXT", help="What this run is known by; made up when it is not given.")
@click.option("--timeout", type=click.FloatRange(min=1), default=3600.0, show_default=True, metavar="SECONDS",
              help="After which it is ended and has failed.")
@click.option("--dry-run", is_flag=True, help="Say what would be run; change nothing.")
@click.option("--yes", "-y", is_flag=True, help="Accepted for scripts; this verb never asks.")
@store_options
def command(
    ctx: Context, *, which: str, words: str, run_id: str | None, timeout: float, dry_run: bool, yes: bool
) -> int:
    from uuid import uuid4

    from cron_store.cron import Cron
    from maintenance.commands.cron.ran import program_of, run_result
    from maintenance.commands.cron.shown import document, find, opened, run_document
    from maintenance.cron_runs.once import run_by_hand
    from maintenance.output.documents import print_json
    from maintenance.output.text import safe_text

    work = program_of(words, timeout, ctx.clock)
    assert work is not None
    with opened(ctx, read_only=dry_run) as store:
        cron = Cron(store)
        job = find(cron, which)
        flying = cron.in_flight(job.job_id)
        if dry_run:
            result = output = None
        else:
            claim = cron.take_manual(job.job_id, run_id or f"cli-{uuid4().hex}")
            result = run_result(cron, claim, run_by_hand(cron, claim, work))
            output = cron.run(claim.fence).result
    if ctx.json:
        print_json({
            "dry_run": dry_run, "path": ctx.db, "job": document(job), "run": result,
            "in_flight": [run_document(run) for run in flying], "result": output,
        })
    elif result is None:
        busy = "" if not flying else f"; it runs now, as {flying[0].fence}"
        click.echo(safe_text(f"{job.job_id} would be run by {words}{busy}."))
    else:
        printed = (output or {}).get("output", "")
        if printed:
            click.echo(printed, nl=not printed.endswith("\n"))
        click.echo(safe_text(f"{job.job_id}: {result['state']}" + (f" ({result['error']})" if result["error"] else "")),
                   err=True)
    return 0 if result is None or result["state"] == "succeeded" else 3
