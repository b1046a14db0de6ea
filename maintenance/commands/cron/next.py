"""`hermes-state cron next`: when a job runs next."""

from __future__ import annotations

import click

from maintenance.context import Context, store_options

HELP = """Show the next slots of a cron job, in its own zone and in UTC.

Of a paused one, they are those that it would have. Without ID, the next slot of every job that is not paused, the
earliest first. The zone's rules are those of this machine; a slot is a second in UTC, and the wall clock is how its
zone shows it, so a change to summer time shows as another offset.

What changes on disk: nothing. Lock: none; read-only beside whoever uses the store.
Left alone: everything.

\b
Example:
  hermes cron next daily-brief --count 10
  hermes cron next

Exit: 0 done, 1 not found or failed, 2 usage, 3 a job cannot be read and is named, 65 damaged, 75 busy.
"""


@click.command("next", help=HELP, short_help="Show the next slots of a cron job, in its own zone and in UTC.")
@click.argument("which", metavar="[ID]", required=False)
@click.option("--count", "-n", type=click.IntRange(min=1, max=1000), default=10, show_default=True,
              help="How many at most.")
@store_options
def command(ctx: Context, *, which: str | None, count: int) -> int:
    from cron_store.looking import Looking
    from cron_store.states import JobState
    from maintenance.commands.cron.shown import every, find, moment_of, opened, tell_unreadable, unreadable_document
    from maintenance.output.documents import print_json
    from maintenance.output.text import human_age, rfc3339, safe_text

    bad: dict[str, Exception] = {}
    with opened(ctx, read_only=True) as store:
        cron = Looking(store)
        if which is not None:
            job = find(cron, which)
            ended = job.state is JobState.COMPLETED
            coming = [] if ended else [(slot, job) for slot in cron.next_slots(job.job_id, count)]
        else:
            jobs = [job for job in every(cron, bad) if job.active and job.state is not JobState.COMPLETED]
            found = [(slot, job) for job in jobs for slot in cron.next_slots(job.job_id, 1)]
            coming = sorted(found, key=lambda pair: (pair[0], pair[1].job_id))[:count]
    if ctx.json:
        print_json({
            "path": ctx.db, "job_id": None if which is None else job.job_id,
            "slots": [
                {"job_id": one.job_id, "slot_at": rfc3339(slot), "zone": one.schedule.zone,
                 "wall": moment_of(slot, one.schedule.zone)}
                for slot, one in coming
            ],
            "unreadable": unreadable_document(bad),
        })
        return 3 if bad else 0
    if not coming and not bad:
        click.echo("No slot is left." if which is not None else f"No job of {ctx.db} has a slot.")
    for slot, one in coming:
        utc = (rfc3339(slot) or "").replace(".000Z", "Z")
        name = "" if which is not None else f"  {one.job_id}"
        click.echo(safe_text(
            f"{moment_of(slot, one.schedule.zone)}  {one.schedule.zone}  {utc}  {human_age(slot, ctx.clock)}{name}"
        ))
    tell_unreadable(bad)
    if which is not None and not job.active:
        click.echo(f"{safe_text(job.job_id)} is paused ({safe_text(job.state_reason)}): these are skipped.", err=True)
    return 3 if bad else 0
