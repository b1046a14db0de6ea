"""`hermes-state cron import`: bring in the jobs of hermes-agent, and hand them over."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from maintenance.context import Context, store_options

if TYPE_CHECKING:
    from maintenance.cron_import.bringing import Brought, Intake
    from maintenance.cron_import.sides import Side

_RUNS = {
    "here": "runs here", "there": "runs on in hermes-agent", "nowhere": "runs nowhere", "both": "RUNS ON BOTH SIDES",
}
HELP = """Bring in the cron jobs and the history of a home of hermes-agent; with --cutover, hand them over.

Every job comes in paused, with its id, its fields, unknown ones too, and what its runs came to. Its next slot is
strictly after its last run and after the import: nothing that came due before is run. Old runs come in as history and
prove no slot. A job that came in before and was not touched here comes in anew; one that was changed here stays as it
is.

With --cutover, the jobs that hermes-agent would have run are paused there and resumed here, under its own locks, in
that order; asks first. One that was changed here or run by hand meanwhile is among them; one that a person paused here
goes on there. Afterwards each job is named with where it runs. It is refused while a gateway of hermes-agent lives. If
it is broken off, each job runs on one side or on none, and the same command goes on.

The zone of a job that names none is HERMES_TIMEZONE, else `timezone` of the home's config.yaml, else the name that this
machine is set to; when none is found you are asked for --zone.

What changes on disk: the jobs and runs in the store; with --new, a store where there is none; with --cutover,
cron/jobs.json of the home. Lock: hermes-agent's .tick.lock and .jobs.lock of that home, for less than 25 seconds; the
write lock, for some milliseconds.
Left alone: executions.db; every record that cannot be a job here, which is named with the reason.

\b
Example:
  hermes cron import --dry-run
  hermes cron import --from ~/.hermes/profiles/work
  hermes cron import --cutover

Exit: 0 done, 1 refused, not confirmed or failed, 2 usage, 3 some records could not be brought in, 65 damaged, 75 busy.
"""


@click.command("import", help=HELP, short_help="Bring in the cron jobs of hermes-agent; hand them over.")
@click.option("--from", "source", metavar="HOME", help="The home of hermes-agent (default: the home of the store).")
@click.option("--zone", metavar="NAME", help="IANA time zone of jobs that name none.")
@click.option("--cutover", is_flag=True, help="Pause them there and resume them here.")
@click.option("--wait", "wait_seconds", type=click.FloatRange(min=0, max=600), default=10.0, show_default=True,
              metavar="SECONDS", help="How long to wait for hermes-agent's locks.")
@click.option("--new", is_flag=True, help="Make the store, and its folder, if there is none.")
@click.option("--dry-run", is_flag=True, help="Say what would come in; change nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask; only --cutover asks.")
@store_options(must_exist=False, home_must_exist=False)
def command(
    ctx: Context, *, source: str | None, zone: str | None, cutover: bool, wait_seconds: float, new: bool, dry_run: bool,
    yes: bool,
) -> int:
    from pathlib import Path

    from cron_store.schedule import check_zone
    from maintenance.commands.cron.shown import opened, opened_or_made
    from maintenance.cron_import.bringing import bring_in, hand_over, refuse_living_gateway, take_in
    from maintenance.cron_import.locks import both
    from maintenance.cron_import.sides import sides
    from maintenance.cron_import.zones import FoundZone, zone_of_home
    from maintenance.plan import Plan, confirm

    home = Path(os.path.realpath(ctx.home if source is None else Path(source).expanduser()))
    used = zone_of_home(home, os.environ) if zone is None else FoundZone(name=check_zone(zone), said_by="--zone")
    # A store that is hermes-agent's own is refused before anything is said about its jobs.
    with opened_or_made(ctx, new=new, read_only=True):
        first = take_in(home, used, ctx.clock)
    if cutover:
        refuse_living_gateway(home, os.environ)
    plan = Plan(
        title=f"{_counted(first)} of {home} to bring into {ctx.db}" + (", and to hand over" if cutover else ", paused"),
        lines=tuple(_line(one, ctx) for one in _documents(first)), facts=_document(ctx, first, None, cutover),
    )
    if dry_run:
        plan.answer(as_json=ctx.json)
        return 3 if first.problems else 0
    if cutover and not confirm(plan, yes=yes, question="Hand them over?", quiet=ctx.json):
        click.echo("Nothing was changed.", err=True)
        return 1
    with opened(ctx, read_only=False) as store, both(first.kept.folder, ctx.clock, wait_seconds=wait_seconds) as locks:
        # Read again under the locks: what was shown may have run since.
        intake = take_in(home, used, ctx.clock)
        if cutover:
            refuse_living_gateway(home, os.environ)
        done = bring_in(store, intake)
        if cutover:
            hand_over(store, intake, done, locks)
        where = sides(store, intake, done) if cutover else []
    _tell(ctx, intake, done, where, cutover)
    return 3 if intake.problems else 0


def _tell(ctx: Context, intake: Intake, done: Brought, where: list[Side], cutover: bool) -> None:
    from maintenance.output.documents import print_json
    from maintenance.output.text import plural, safe_text

    if ctx.json:
        told = [{"job_id": one.job_id, "name": one.name, "runs": one.runs, "why": one.why} for one in where]
        print_json({"dry_run": False, **_document(ctx, intake, done, cutover), "sides": told})
        return
    if not cutover:  # else the plan has said it
        for one in _documents(intake):
            click.echo(_line(one, ctx))
    for side in where:
        why = f" ({side.why})" if side.why else ""
        click.echo(safe_text(f"{side.job_id or '(no id)'}  {side.name!r} {_RUNS[side.runs]}{why}.", 400))
    counted = [
        (done.new, "brought in"), (done.renewed, "brought in anew"), (done.present, "here already"),
        (done.removed, "removed here before, left out"), (done.paused_there, "paused there"),
        (done.resumed, "resumed here"),
    ]
    said = [f"{plural(len(ids), 'job')} {what}" for ids, what in counted if ids]
    click.echo(safe_text(f"{', '.join(said) or 'No job'}; {plural(done.runs, 'old run')}."))
    if not cutover and (done.new or done.renewed):
        click.echo(
            "All are paused here and go on in hermes-agent; `hermes-state cron import --cutover` hands them over.",
            err=True,
        )


def _documents(intake: Intake) -> list[dict[str, Any]]:
    """Each record as it would come in, or why not."""
    from cron_store.schedule import describe, next_slot
    from maintenance.output.text import rfc3339

    found: list[dict[str, Any]] = [
        {
            "job_id": job.job_id, "name": job.name, "schedule_text": describe(job.schedule), "zone": job.schedule.zone,
            "zone_by": job.zone_by, "active_there": job.active_there,
            "next_at": None if job.is_over else rfc3339(next_slot(job.schedule, job.after)),
            "passed_at": rfc3339(job.passed), "notes": list(job.notes), "problem": None,
        }
        for job in intake.jobs
    ]
    return found + [
        {"job_id": one.job_id, "name": "", "schedule_text": None, "zone": None, "zone_by": None, "active_there": None,
         "next_at": None, "passed_at": None, "notes": [], "problem": one.why}
        for one in intake.problems
    ]


def _document(ctx: Context, intake: Intake, done: Brought | None, cutover: bool) -> dict[str, Any]:
    return {
        "path": ctx.db, "from": intake.home, "cutover": cutover, "jobs": _documents(intake), "runs": len(intake.runs),
        "new": [] if done is None else done.new, "renewed": [] if done is None else done.renewed,
        "present": [] if done is None else done.present, "removed": [] if done is None else done.removed,
        "new_runs": 0 if done is None else done.runs,
        "paused_there": [] if done is None else done.paused_there, "resumed": [] if done is None else done.resumed,
    }


def _line(one: dict[str, Any], ctx: Context) -> str:
    from maintenance.output.text import safe_text

    if one["problem"] is not None:
        return safe_text(f"{one['job_id'] or '(no id)'}  not brought in: {one['problem']}", 300)
    when = "no slot is left" if one["next_at"] is None else f"next {one['next_at'].replace('.000Z', 'Z')}"
    paused = "" if one["active_there"] else ", paused there"
    passed = f", {one['passed_at'].replace('.000Z', 'Z')} came due and is not run" if one["passed_at"] else ""
    notes = "".join(f"; note: {note}" for note in one["notes"])
    zone = f", zone of {one['zone_by']}"
    said = f"{one['schedule_text']}{zone}, {when}{paused}{passed}{notes}"
    return safe_text(f"{one['job_id']}  {one['name']!r}  {said}", 600)


def _counted(intake: Intake) -> str:
    from maintenance.output.text import plural

    return f"{plural(len(intake.kept.records), 'cron job')} and {plural(len(intake.runs), 'old run')}"
