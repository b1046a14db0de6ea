"""`hermes-state cron tick`: one tick of a home, for the system's own cron."""

from __future__ import annotations

import click

from maintenance.context import Context, store_options

HELP = """Tick this home once, and run what is due by one command.

For machines without a program that ticks. COMMAND is started without a shell, once for each run that is due, --parallel
at a time, until nothing is left that is due; it gets the run as one JSON object on its stdin (fields of the job,
slot_at, key, attempt, session_id; see docs/cron-commands.md). Exit status 0 is success; everything else is a failure
with the last line of its stderr. The last 4,000 characters of what it prints are kept with the run. The right to tick
is had only while what is due is claimed, so the next tick does not wait for a long job. A command whose tick is killed
is killed too.

Without --exec nothing is run: slots get their records, late ones are missed as their jobs say, and what is due waits.

What changes on disk: a record of each slot that came due; a row a run. Lock: the write lock, for some milliseconds
each, beside whoever uses the store; the lease `cron tick` of the home, for some milliseconds. Left alone: everything
else. A home that another process ticks is refused with its PID, exit 75.

\b
Example, a line of a crontab:
  * * * * * hermes-state cron tick --once --exec /usr/local/bin/run-job
  hermes cron tick --once --dry-run

Exit: 0 done, 1 failed, 2 usage, 3 a run failed or a job cannot be read, 65 damaged, 75 busy.
"""


@click.command("tick", help=HELP, short_help="Tick this home once, and run what is due by one command.",
               options_metavar="--once [OPTIONS]")
@click.option("--once", is_flag=True, required=True, help="One tick; programs that stay embed cron_store.ticker.")
@click.option("--exec", "words", metavar="COMMAND", help="What runs a job; its words as a shell would split them.")
@click.option("--parallel", type=click.IntRange(min=1, max=64), default=4, show_default=True, help="Runs at a time.")
@click.option("--timeout", type=click.FloatRange(min=1), default=3600.0, show_default=True, metavar="SECONDS",
              help="After which a run is ended and has failed.")
@click.option("--dry-run", is_flag=True, help="Say which jobs are due; change nothing.")
@click.option("--yes", "-y", is_flag=True, help="Accepted for scripts; this verb never asks.")
@store_options
def command(
    ctx: Context, *, once: bool, words: str | None, parallel: int, timeout: float, dry_run: bool, yes: bool
) -> int:
    from cron_store.cron import Cron
    from cron_store.states import SlotState
    from maintenance.commands.cron.ran import program_of, run_result
    from maintenance.commands.cron.shown import opened
    from maintenance.cron_runs.once import Ticked, tick
    from maintenance.output.documents import print_json
    from maintenance.output.text import plural, safe_text

    work = program_of(words, timeout, ctx.clock)
    began_at = ctx.clock.now()
    with opened(ctx, read_only=dry_run) as store:
        cron = Cron(store)
        done = Ticked() if dry_run else tick(cron, work, parallel=parallel)
        due = cron.due(limit=1000)
        given_up = cron.missed(limit=1000) if done.missed else []
        results = [run_result(cron, claim, ended) for claim, ended in done.ended]
    reasons = {
        job_id: sorted({
            one.reason for one in given_up
            if one.job_id == job_id and one.state is SlotState.MISSED and (one.settled_at or 0) >= began_at
        })
        for job_id in done.missed
    }
    bad = [one for one in results if one["state"] != "succeeded"]
    if ctx.json:
        print_json({
            "dry_run": dry_run, "path": ctx.db, "runs": results, "due": due, "accounted": done.accounted,
            "missed": done.missed, "missed_because": reasons,
            "reaped": [
                {"fence": one.fence, "job_id": one.job_id, "to": str(one.to), "again": one.again,
                 "because": one.because}
                for one in done.reaped
            ],
            "unreadable": {job_id: str(error) for job_id, error in done.unreadable.items()},
        })
        if done.stopped_by is not None:
            raise done.stopped_by
        return 3 if bad or done.unreadable else 0
    for reaped in done.reaped:
        click.echo(safe_text(f"{reaped.job_id}: its run {reaped.fence} is {reaped.to} ({reaped.because})."), err=True)
    for job_id, error in done.unreadable.items():
        click.echo(safe_text(f"{job_id} cannot be read and is not run: {error}"), err=True)
    for job_id, count in done.missed.items():
        why = f" ({', '.join(reasons[job_id])})" if reasons[job_id] else ""
        click.echo(safe_text(f"{job_id}: {plural(count, 'slot')} missed{why}."))
    for one in results:
        click.echo(safe_text(f"{one['job_id']}: {one['state']}" + (f" ({one['error']})" if one["error"] else ""), 400))
    for job_id in due:
        click.echo(safe_text(f"{job_id} is due."))
    if done.stopped_by is not None:
        raise done.stopped_by
    if not (results or due or done.missed):
        click.echo("Nothing is due.")
    return 3 if bad or done.unreadable else 0
