"""`hermes-state cron add`: declare a job."""

from __future__ import annotations

from typing import Any

import click

from maintenance.commands.cron.declared import declaring
from maintenance.context import Context, store_options

HELP = """Declare a cron job.

\b
SCHEDULE is one of
  "0 9 * * 1-5"         five fields on the wall clock of its zone, or @hourly @daily @weekly @monthly @yearly
  "every 30m"           a grid that a late run does not move; --after-finish counts from the end of a run instead
  "2027-01-31T09:00"    once, on the wall clock of its zone; with an offset, that instant
  "30m"                 once, that long from now

The zone is stored with the job: --zone, else HERMES_TIMEZONE, else `timezone` of the home's config.yaml, else the name
that this machine is set to; when none is found you are asked for --zone. A schedule without a slot within 8 years is
refused. An id that is taken is refused, or edited to say this with --replace, so that what runs at each start of a
program declares it once.

What changes on disk: one job; with --new, a store where there is none. Lock: the write lock, for some milliseconds,
beside whoever uses the store.
Left alone: every other job. The id of a job that was removed is refused for 90 days.

\b
Example:
  hermes cron add daily-brief "0 9 * * 1-5" --zone Europe/Berlin --prompt "What is new?"
  hermes cron add backup "every 6h" --set script=backup.sh --effect idempotent --dry-run

Exit: 0 done, 1 refused or failed, 2 usage, 65 damaged, 75 busy.
"""


@click.command("add", help=HELP, short_help="Declare a cron job.")
@click.argument("which", metavar="ID")
@click.argument("text", metavar="SCHEDULE")
@declaring
@click.option("--after-finish", is_flag=True, help="An interval that begins at the end of the run before.")
@click.option("--paused", metavar="REASON", help="Start it paused.")
@click.option("--replace", is_flag=True, help="Edit a job of that id to say this.")
@click.option("--new", is_flag=True, help="Make the store, and its folder, if there is none.")
@click.option("--dry-run", is_flag=True, help="Say what would be declared and when it would run; change nothing.")
@click.option("--yes", "-y", is_flag=True, help="Accepted for scripts; this verb never asks.")
@store_options(must_exist=False, home_must_exist=False)
def command(
    ctx: Context, *, which: str, text: str, prompt: str | None, texts: tuple[str, ...], values: tuple[str, ...],
    zone: str | None, gap: str | None, fold: str | None, after_finish: bool, paused: str | None, replace: bool,
    new: bool, dry_run: bool, yes: bool, **said: Any,
) -> None:
    from cron_store.cron import Cron
    from cron_store.jobs import checking
    from cron_store.records import Policies
    from cron_store.schedule import Fold, Gap, describe, next_slots, parse, require_fire
    from hermes_state.errors import JobExists, JobNotFound
    from maintenance.commands.cron.declared import fields_of, policies_of, zone_or_ask
    from maintenance.commands.cron.shown import document, line, moment_of, opened_or_made, schedule_document, tell_moved
    from maintenance.output.documents import print_json
    from maintenance.output.text import rfc3339, safe_text

    fields = fields_of(prompt, texts, values)
    now = ctx.clock.now()
    schedule = parse(
        text, zone=zone_or_ask(ctx, zone), now=now, gap=Gap(gap or "next"), fold=Fold(fold or "first"),
        after_finish=after_finish,
    )
    require_fire(schedule, now)
    policies = checking.merged(Policies(), policies_of(said))
    checking.job_id(which)
    checking.fields(fields)
    with opened_or_made(ctx, new=new, read_only=dry_run) as store:
        job = None
        if store is not None and not dry_run:
            job = Cron(store).add(
                which, schedule, name=said["name"] or "", fields=fields, policies=policies, paused=paused,
                replace=replace,
            )
        elif store is not None:
            try:
                Cron(store).job(which)
                if not replace:
                    raise JobExists(
                        f"Cron job {which!r} is in {ctx.db} already.", hint="Edit it, or choose another id.",
                        path=ctx.db, job_id=which,
                    )
            except JobNotFound:
                pass  # which is what adding needs; one that was removed is refused by the look
    coming = next_slots(schedule, now, 3)
    if ctx.json:
        print_json({
            "dry_run": dry_run, "path": ctx.db, "job": None if job is None else document(job),
            "schedule": schedule_document(schedule), "zone": schedule.zone,
            "next_at": [rfc3339(slot) for slot in coming],
        })
        return
    tell_moved(schedule, coming[0] if coming else None)
    if job is None:
        click.echo(safe_text(f"{which} would run {describe(schedule)}."))
        for slot in coming:
            click.echo(f"  {moment_of(slot, schedule.zone)}")
    else:
        click.echo(line(job, ctx))
