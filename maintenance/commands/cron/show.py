"""`hermes-state cron show`: one job whole."""

from __future__ import annotations

import click

from maintenance.context import Context, store_options

HELP = """Show one cron job: its declaration, how it stands, its next and its latest slots.

ID is its id or its name. Times stand in the zone of the job; --json has them in UTC. Open incidents are the failures
that people are told of.

What changes on disk: nothing. Lock: none; read-only beside whoever uses the store.
Left alone: everything.

\b
Example:
  hermes cron show daily-brief
  hermes cron show daily-brief --json

Exit: 0 done, 1 not found or failed, 2 usage, 65 damaged, 75 busy.
"""
LATEST = 10


@click.command("show", help=HELP, short_help="Show one cron job: how it stands, its next and its latest slots.")
@click.argument("which", metavar="ID")
@store_options
def command(ctx: Context, *, which: str) -> None:
    from cron_store.looking import Looking
    from cron_store.states import IncidentState
    from maintenance.commands.cron.shown import (
        document,
        find,
        moment_of,
        opened,
        run_document,
        run_line,
        slot_document,
        slot_line,
    )
    from maintenance.output.documents import print_json
    from maintenance.output.tables import print_facts
    from maintenance.output.text import plural, rfc3339, safe_text

    with opened(ctx, read_only=True) as store:
        cron = Looking(store)
        job = find(cron, which)
        coming = cron.next_slots(job.job_id, 3)
        slots = cron.slots(job.job_id, after=int(ctx.clock.now()) - 30 * 86_400, limit=10_000)[-LATEST:]
        runs = cron.in_flight(job.job_id)
        wanted = (IncidentState.DETECTED, IncidentState.ALERTED)
        incidents = cron.incidents(job_id=job.job_id, states=wanted)
    if ctx.json:
        print_json({
            "path": ctx.db, **document(job), "fields": job.fields, "next_at": [rfc3339(slot) for slot in coming],
            "in_flight": [run_document(run) for run in runs], "slots": [slot_document(one) for one in slots],
            "incidents": [
                {"incident_id": one.incident_id, "state": str(one.state), "generation": one.generation,
                 "failure_type": one.failure_type, "error": one.error, "count": one.count,
                 "first_at": rfc3339(one.first_at), "last_at": rfc3339(one.last_at),
                 "alerted_at": rfc3339(one.alerted_at)}
                for one in incidents
            ],
        })
        return
    print_facts(_facts(job, ctx))
    zone = job.schedule.zone
    for name, value in job.fields.items():
        click.echo(f"{safe_text(name, 30)}: {safe_text(value, 200)}")
    click.echo(f"Next, in {zone}:" if coming else "No slot is left.")
    for slot in coming:
        click.echo(f"  {moment_of(slot, zone)}")
    for run in runs:
        click.echo(f"In flight: {run_line(run, ctx).lstrip()}")
    if slots:
        click.echo(f"The latest {plural(len(slots), 'record')} of slots, in {zone}:")
    for one in slots:
        click.echo(f"  {slot_line(one, zone).removeprefix(job.job_id).lstrip()}")
    for found in incidents:
        click.echo(safe_text(
            f"Incident {found.incident_id}: {found.state}, {plural(found.count, 'time')}, {found.failure_type}:"
            f" {found.error}", 400,
        ))


def _facts(job: object, ctx: Context) -> list[tuple[str, object]]:
    from cron_store.records import Job
    from cron_store.schedule import describe
    from maintenance.commands.cron.shown import moment_of, standing

    assert isinstance(job, Job)
    zone = job.schedule.zone
    chosen = job.policies
    grace = "by its period" if chosen.grace_seconds is None else f"{chosen.grace_seconds:g} s"
    return [
        ("id", job.job_id), ("name", job.name), ("schedule", describe(job.schedule)), ("zone", zone),
        ("stands", standing(job, ctx)),
        ("last run", "never" if job.last_run_at is None else f"{job.last_state}, {moment_of(job.last_run_at, zone)}"),
        ("last error", job.last_error), ("failures since", job.failure_streak),
        ("runs", job.repeat_completed if chosen.repeat_times is None
         else f"{job.repeat_completed} of {chosen.repeat_times}"),
        ("effect", chosen.effect), ("late slots", f"{job.misfire}, on time for {grace}"), ("overlap", chosen.overlap),
        ("session", job.session_id if chosen.session_reuse else "a new one for each run"),
        ("accounted for", f"through {moment_of(job.settled_through, zone)}"),
        ("declared", f"version {job.version}, schedule version {job.schedule_version}"),
    ]
