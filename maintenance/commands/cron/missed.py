"""`hermes-state cron missed`: slots that nobody ran."""

from __future__ import annotations

import click

from maintenance.context import Context, store_options

HELP = """List slots that were missed, newest first: which, how many, why.

A slot is missed when its time passed before anybody looked and the job's misfire policy gives it up. `late`: past its
grace. `coalesced`: a later slot was run for it. `cap`: more than the policy keeps. Consecutive ones are one record.
Slots of paused jobs and overlaps are skipped, not missed: `hermes cron history --job ID --slots` has those.

What changes on disk: nothing. Lock: none; read-only beside whoever uses the store.
Left alone: everything.

\b
Example:
  hermes cron missed
  hermes cron missed --since-days 30 --json

Exit: 0 done, 1 failed, 2 usage, 3 a job cannot be read and is named, 65 damaged, 75 busy.
"""


@click.command("missed", help=HELP, short_help="List slots that were missed: which, how many, why.")
@click.option("--since-days", type=click.FloatRange(min=0), default=7.0, show_default=True, metavar="DAYS",
              help="How far back.")
@click.option("--limit", "-n", type=click.IntRange(min=1, max=10_000), default=200, show_default=True,
              help="How many records at most.")
@store_options
def command(ctx: Context, *, since_days: float, limit: int) -> int:
    from cron_store.looking import Looking
    from maintenance.commands.cron.shown import (
        every,
        opened,
        slot_document,
        slot_line,
        tell_unreadable,
        unreadable_document,
    )
    from maintenance.output.documents import print_json
    from maintenance.output.text import plural, rfc3339

    since = ctx.clock.now() - since_days * 86_400
    bad: dict[str, Exception] = {}
    with opened(ctx, read_only=True) as store:
        cron = Looking(store)
        found = cron.missed(since=since, limit=limit)
        zones = {job.job_id: job.schedule.zone for job in every(cron, bad)} if found else {}
    count = sum(one.count for one in found)
    if ctx.json:
        print_json({
            "path": ctx.db, "since_at": rfc3339(since), "count": count,
            "slots": [slot_document(one) | {"zone": zones.get(one.job_id)} for one in found],
            "unreadable": unreadable_document(bad), "more": len(found) == limit,
        })
        return 3 if bad else 0
    for one in found:
        click.echo(slot_line(one, zones.get(one.job_id, "UTC")))
    tell_unreadable(bad)
    click.echo(f"{plural(count, 'slot')} missed since {(rfc3339(since) or '')[:16]}Z.")
    if len(found) == limit:
        click.echo("There may be more: give a smaller --since-days or a larger --limit.", err=True)
    return 3 if bad else 0
