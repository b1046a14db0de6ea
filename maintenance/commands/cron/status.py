"""`hermes-state cron status`: whether jobs will fire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from maintenance.context import Context, store_options

if TYPE_CHECKING:
    from cron_store.records import Job
    from cron_store.ticker.status import HomeStatus
    from hermes_state.host.ticking import TickerSeen

HELP = """Say whether the cron jobs of this home fire: who ticks it, when that was heard and last succeeded.

\b
green       it was heard and a tick succeeded, both within 200 s, and nothing is due for longer than its grace
stale_code  STALE CODE, fires nothing: who would tick it runs old code and yields; both revisions, and the command
failing     it was heard, and its last tick failed     no_success  heard, and no tick succeeded for too long
silent      nobody was heard for 200 s                 never       nobody ever ticked this home
clock_in_doubt  the wall clock moved and is not believed yet: jobs go by the boot clock (`hermes cron accept-clock`)
ahead       jobs are accounted for beyond now, and silent until then: the clock was wrong

A home with a job that cannot be read is not green; that job is named, and the others are looked at.

Below: which processes say anything of this home, jobs by state, what is due, what is in flight, open incidents.

What changes on disk: nothing. Lock: none; read-only beside whoever uses the store.
Left alone: everything.

\b
Example:
  hermes cron status
  hermes cron status --json

Exit: 0 green, or no job is to run and nothing else is wrong; 1 failed, 2 usage, 3 not green, 65 damaged, 75 busy.
"""


@click.command("status", help=HELP, short_help="Say whether the cron jobs of this home fire, and who ticks it.")
@store_options
def command(ctx: Context) -> int:
    from contextlib import nullcontext

    from cron_store.cron import TICK_LEASE
    from cron_store.looking import Looking
    from cron_store.states import IncidentState, JobState
    from cron_store.ticker.status import home_status
    from hermes_state.errors import NotFound
    from hermes_state.host import open_host
    from hermes_state.leases import Leases
    from maintenance.commands.cron.shown import (
        every,
        opened,
        run_document,
        run_line,
        tell_unreadable,
        unreadable_document,
    )
    from maintenance.output.documents import print_json
    from maintenance.output.text import human_age, plural, rfc3339, safe_text

    try:
        known: Any = open_host(read_only=True)
    except NotFound:
        known = nullcontext()  # no process of this user has said anything yet
    bad: dict[str, Exception] = {}
    with known as host, opened(ctx, read_only=True) as store:
        cron = Looking(store)
        status = home_status(cron, host)
        jobs = every(cron, bad)
        runs = cron.in_flight()
        lease = Leases(store.core).look(TICK_LEASE)
        incidents = cron.incidents(states=(IncidentState.DETECTED, IncidentState.ALERTED))
        steps = cron.events(kind="clock_step", limit=3)
    now = ctx.clock.now()
    counted = {str(state): sum(job.state is state for job in jobs) for state in JobState}
    waiting = [job for job in jobs if job.due_at is not None]
    late = [job for job in waiting if job.due_at is not None and job.due_at <= now]
    flying = {run.job_id for run in runs}
    overdue = [job for job in late if job.job_id not in flying and _is_overdue(job, now)]
    green = status.is_green and not overdue and not bad
    upcoming = min((job.due_at for job in waiting if job.due_at is not None), default=None)
    holder = None if lease is None or lease.is_free or lease.owner is None else str(lease.owner)
    # These are said where no job waits too: a job that is ahead or damaged may be the one that should.
    wrong = bool(bad) or status.clock_step is not None or bool(status.ahead)
    ok = green or (not waiting and not runs and not wrong)
    if ctx.json:
        print_json({
            "path": ctx.db, "light": str(status.light), "green": green, "text": _text(status, overdue, bad),
            "heartbeat_seconds": status.heartbeat_seconds, "success_seconds": status.success_seconds,
            "error": status.error, "owner": None if status.owner is None else str(status.owner),
            "lease_owner": holder, "tickers": [_ticker(one) for one in status.tickers], "jobs": counted,
            "due": [job.job_id for job in late], "overdue": [job.job_id for job in overdue],
            "next_due_at": rfc3339(upcoming),
            "in_flight": [run_document(run) for run in runs],
            "incidents": [one.incident_id for one in incidents],
            "clock_step_seconds": None if status.clock_step is None else status.clock_step.seconds,
            "clock_step_since_at": rfc3339(status.clock_since_at),
            "ahead": [{"job_id": job_id, "until_at": rfc3339(until)} for job_id, until in status.ahead.items()],
            "ahead_since_at": rfc3339(status.ahead_since_at), "unreadable": unreadable_document(bad),
            "clock_steps": [{"at": rfc3339(one.at), "seconds": one.detail.get("seconds")} for one in steps],
        })
        return 0 if ok else 3
    click.echo(safe_text(f"{'OK' if green else 'NOT OK'}: {_text(status, overdue, bad)}", 2000))
    tell_unreadable(bad)
    for one in status.tickers:
        pid = "?" if one.identity is None else one.identity.pid
        said = f": {one.ticking.said}" if one.ticking.said else ""
        life = "" if one.may_live else ", gone"
        heard = human_age(one.beat_at, ctx.clock)
        click.echo(safe_text(f"PID {pid} {one.ticking.standing}, heard {heard}{life}{said}"))
    click.echo(", ".join(f"{count} {state}" for state, count in counted.items() if count) or "There is no job.")
    if late:
        click.echo(safe_text(f"Due, not begun: {', '.join(job.job_id for job in late)}", 200))
    elif upcoming is not None:
        click.echo(f"Next: {human_age(upcoming, ctx.clock)}.")
    for run in runs:
        click.echo(f"In flight: {run_line(run, ctx).lstrip()}")
    if incidents:
        click.echo(f"{plural(len(incidents), 'open incident')}: {', '.join(one.incident_id for one in incidents)}")
    for step in steps:
        seconds = step.detail.get("seconds")
        if isinstance(seconds, int | float):
            click.echo(f"The clock was set by {seconds:+.0f} s {human_age(step.at, ctx.clock)}.")
    return 0 if ok else 3


def _text(status: HomeStatus, overdue: list[Job], bad: dict[str, Exception]) -> str:
    """The first line, but for its first word. What the ticking says goes first."""
    from maintenance.output.text import plural

    if not status.is_green:
        return status.text
    if bad:
        return f"It is ticked, and {plural(len(bad), 'job')} cannot be read, so not run: {', '.join(sorted(bad))}."
    if not overdue:
        return status.text
    names = ", ".join(job.job_id for job in overdue)
    return (
        f"It is ticked, and {plural(len(overdue), 'job')} that came due long ago did not begin: {names}. Either all the"
        " room is taken, or what ticks runs nothing (`cron tick` without --exec)."
    )


def _is_overdue(job: Job, now: float) -> bool:
    """Whether a job that is due should have begun: for longer than its grace, or, where each slot takes the place of
    the one before and is on time again, for a period and its grace since anything became of it."""
    from cron_store.schedule import next_slots

    assert job.due_at is not None
    coming = next_slots(job.schedule, int(job.due_at), 2)
    grace = job.grace_seconds(int(job.due_at), coming[0] if coming else None)
    if job.due_at < now - grace:
        return True
    period = coming[1] - coming[0] if len(coming) == 2 else 0.0
    since = max(one for one in (job.last_run_at, job.state_at, job.updated_at) if one is not None)
    return since < now - period - grace


def _ticker(one: TickerSeen) -> dict[str, Any]:
    from maintenance.output.text import rfc3339

    said = one.ticking
    return {
        "pid": None if one.identity is None else one.identity.pid, "standing": str(said.standing), "said": said.said,
        "may_live": one.may_live, "is_fresh": one.is_fresh, "beat_at": rfc3339(one.beat_at),
        "code_sha": said.code_sha, "disk_sha": said.disk_sha, "how": said.how,
    }
