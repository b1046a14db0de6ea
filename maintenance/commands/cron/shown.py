"""How jobs, slots and runs are shown, as documents and to people.

Times for people stand in the zone of the job; where jobs of several zones stand together, in local time. A document has
them in UTC.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from maintenance.commands.outbox.shown import opened as opened

if TYPE_CHECKING:
    from cron_store.looking import Looking
    from cron_store.records import Job, Occurrence, Run
    from cron_store.schedule import Schedule
    from hermes_state.store import Store
    from maintenance.context import Context

POLICIES = (
    "effect", "misfire", "grace_seconds", "spacing_seconds", "most_late", "overlap", "repeat_times",
    "allowance_seconds", "session_reuse", "keep_executions",
)


def actor(verb: str) -> str:
    """Who does it, as the rows keep it."""
    return f"hermes-state cron {verb}, PID {os.getpid()}"


@contextmanager
def opened_or_made(ctx: Context, *, new: bool, read_only: bool) -> Iterator[Store | None]:
    """The native store of a verb; with `new`, one that is not there is made, or is None when it is only to be read.

    Raises `NotFound`, and `Refused` for the home of a living gateway of hermes-agent, which makes a store of its own.
    """
    from hermes_state.errors import NotFound, Refused
    from maintenance.cron_import.gateways import living_gateways

    if not ctx.db.exists():
        if not new:
            raise NotFound(
                f"There is no store at {ctx.db}.", path=ctx.db,
                hint="Add --new to make it, or name another with --home, --profile or --db.",
            )
        found = living_gateways(ctx.home, os.environ)
        if found:
            raise Refused(
                f"A gateway of hermes-agent lives ({found[0].because}): it makes {ctx.db} by itself. Nothing was"
                " changed.",
                hint="Stop it with `hermes gateway stop`, then make the store.", path=ctx.db, pid=found[0].pid,
            )
        if read_only:
            yield None
            return
    with opened(ctx, read_only=read_only) as store:
        yield store


def find(cron: Looking, word: str) -> Job:
    """The job of that id, else the only one of that name. Raises `JobNotFound`, `Entombed`, `InvalidInput`."""
    from hermes_state.errors import InvalidInput, JobNotFound

    try:
        return cron.job(word)
    except JobNotFound:
        named = [job for job in every(cron) if job.name == word]
        if not named:
            raise
        if len(named) > 1:
            ids = ", ".join(job.job_id for job in named)
            raise InvalidInput(
                f"{len(named)} cron jobs are called {word!r}.", hint=f"Give the id: {ids}.", argument="ID"
            ) from None
        return named[0]


def every(cron: Looking, unreadable: dict[str, Exception] | None = None) -> list[Job]:
    """All jobs, by id. One that cannot be read goes into `unreadable`; without that, raises `LedgerUnreadable`."""
    found: list[Job] = []
    while page := cron.jobs(limit=1000, after=found[-1].job_id if found else None, unreadable=unreadable):
        found += page
    return found


def unreadable_document(unreadable: Mapping[str, Exception]) -> list[dict[str, str]]:
    """The field `unreadable` of `--json`: the jobs that a listing went past."""
    return [{"job_id": job_id, "error": str(error)} for job_id, error in sorted(unreadable.items())]


def tell_unreadable(unreadable: Mapping[str, Exception], *, err: bool = False) -> None:
    """Name the jobs that a listing went past, and what to do. `err`: on stderr, where stdout is a page."""
    import click

    from hermes_state.errors import StateError
    from maintenance.output.text import safe_text

    for _job_id, error in sorted(unreadable.items()):
        said = f"{error.message} {error.hint or ''}" if isinstance(error, StateError) else str(error)
        click.echo(safe_text(said.strip(), 1000), err=err)


def document(job: Job) -> dict[str, Any]:
    """The fields of `--json` for one job; times are RFC 3339, UTC."""
    from cron_store.schedule import describe
    from maintenance.output.text import rfc3339

    return {
        "job_id": job.job_id, "name": job.name, "state": str(job.state), "state_at": rfc3339(job.state_at),
        "state_reason": job.state_reason, "schedule": schedule_document(job.schedule),
        "schedule_text": describe(job.schedule), "schedule_version": job.schedule_version,
        "zone": job.schedule.zone, "due_at": rfc3339(job.due_at), "settled_through_at": rfc3339(job.settled_through),
        "last_run_at": rfc3339(job.last_run_at), "last_state": job.last_state, "last_error": job.last_error,
        "failure_streak": job.failure_streak, "repeat_completed": job.repeat_completed,
        "policies": {name: getattr(job.policies, name) for name in POLICIES}, "misfire": job.misfire,
        "session_id": job.session_id, "version": job.version, "created_at": rfc3339(job.created_at),
        "updated_at": rfc3339(job.updated_at),
    }


def schedule_document(schedule: Schedule) -> dict[str, Any]:
    """A schedule as it is stored."""
    import json

    from cron_store.schedule import to_json

    found: dict[str, Any] = json.loads(to_json(schedule))
    return found


def line(job: Job, ctx: Context) -> str:
    """One job in one line: what it is called, when it runs, how it stands, what its last run did."""
    from cron_store.schedule import describe
    from maintenance.output.text import human_age, safe_text

    last = "never ran" if job.last_run_at is None else f"{job.last_state} {human_age(job.last_run_at, ctx.clock)}"
    if job.last_state == "failed" and job.last_error:
        last += f" ({job.last_error})"
    name = f"{job.name!r}  " if job.name else ""
    return safe_text(f"{job.job_id}  {name}{describe(job.schedule)}  {standing(job, ctx)}, {last}", 400)


def standing(job: Job, ctx: Context) -> str:
    """How a job stands, in words."""
    from cron_store.schedule import next_slot
    from cron_store.states import JobState

    if job.state is JobState.PAUSED:
        return f"paused ({job.state_reason})"
    if job.state is JobState.ERROR:
        return f"in error ({job.state_reason}), tried again {moment_of(job.due_at, job.schedule.zone)}"
    if job.state is JobState.COMPLETED:
        return "completed"
    if job.due_at is None:
        return "scheduled, waits for its run"
    if job.due_at > ctx.clock.now():
        return f"next {moment_of(job.due_at, job.schedule.zone)}"
    # `due_at` is when the job is looked at again: a slot that waits, also one of an earlier schedule.
    following = next_slot(job.schedule, int(ctx.clock.now()))
    after = "" if following is None else f", then {moment_of(following, job.schedule.zone)}"
    return f"due since {moment_of(job.due_at, job.schedule.zone)}{after}"


def moment_of(epoch: float | None, zone: str) -> str:
    """An instant on the wall clock of a zone: `Fri 2027-01-15 09:00 +0100`."""
    from datetime import datetime
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    from maintenance.output.text import NO_VALUE, NOT_A_TIME

    if epoch is None:
        return NO_VALUE
    try:
        wall = datetime.fromtimestamp(epoch, ZoneInfo(zone))
    except (ZoneInfoNotFoundError, ValueError, OverflowError, OSError):
        return NOT_A_TIME
    return f"{wall:%a %Y-%m-%d %H:%M}{f':{wall:%S}' if wall.second else ''} {wall:%z}"


def tell_moved(schedule: Schedule, slot: int | None) -> None:
    """Say it when a time of a wall clock that a person wrote is not what the clock will show then."""
    from datetime import datetime
    from zoneinfo import ZoneInfo

    import click

    from cron_store.schedule import Once

    if not isinstance(schedule, Once) or schedule.wall is None or slot is None:
        return
    wall = datetime.fromtimestamp(slot, ZoneInfo(schedule.zone)).replace(tzinfo=None)
    if wall != datetime.fromisoformat(schedule.wall):
        click.echo(
            f"{schedule.wall} does not come in {schedule.zone}: the clock leaves it out. It runs"
            f" {moment_of(slot, schedule.zone)}; --gap skip would refuse it.", err=True,
        )


def run_document(run: Run) -> dict[str, Any]:
    """The fields of `--json` for one run."""
    from maintenance.output.text import rfc3339

    return {
        "fence": run.fence, "job_id": run.job_id, "slot_at": rfc3339(run.slot), "run_id": run.run_id,
        "source": run.source, "state": str(run.state), "attempt": run.attempt,
        "owner": None if run.owner is None else str(run.owner),
        "waiter": None if run.waiter is None else str(run.waiter), "handed_off": run.handed_off,
        "detached": run.detached, "claimed_at": rfc3339(run.claimed_at), "started_at": rfc3339(run.started_at),
        "finished_at": rfc3339(run.finished_at), "lateness_seconds": run.lateness_seconds,
        "interrupted_at": rfc3339(run.interrupted_at), "interrupted_reason": run.interrupted_reason,
        "forced": run.forced, "allowance_seconds": run.allowance_seconds, "error": run.error,
        "failure_type": run.failure_type, "session_id": run.session_id, "result": run.result,
    }


def run_line(run: Run, ctx: Context) -> str:
    """One run in one line."""
    from maintenance.output.text import human_age, human_duration, human_time, safe_text

    what = "by hand" if run.source == "manual" else "imported" if run.source == "import" else (
        f"slot {human_time(run.slot, ctx.clock)}"
    )
    if run.attempt > 1:
        what += f", attempt {run.attempt}"
    if run.finished_at is None:
        began = run.claimed_at if run.started_at is None else run.started_at
        when = f"since {human_age(began, ctx.clock)} by {run.owner or 'a process that this version cannot read'}"
        if run.interrupted_at is not None:
            when += f", interrupted ({run.interrupted_reason})"
    else:
        when = f"ended {human_time(run.finished_at, ctx.clock)}"
        if run.started_at is not None:
            when += f" after {human_duration(max(0.0, run.finished_at - run.started_at))}"
        if run.forced:
            when += ", let go by the rule for lost runs"
    why = f"  {run.error}" if run.error else ""
    return safe_text(f"{run.fence:>6}  {run.state:<11} {run.job_id}  {what}  {when}{why}", 400)


def slot_document(one: Occurrence) -> dict[str, Any]:
    """The fields of `--json` for one record of slots."""
    from maintenance.output.text import rfc3339

    return {
        "job_id": one.job_id, "slot_at": rfc3339(one.slot), "last_slot_at": rfc3339(one.last_slot), "count": one.count,
        "state": str(one.state), "reason": one.reason, "schedule_version": one.version, "fence": one.fence,
        "settled_at": rfc3339(one.settled_at),
    }


def slot_line(one: Occurrence, zone: str) -> str:
    """One record of slots in one line."""
    from maintenance.output.text import plural, safe_text

    when = moment_of(one.slot, zone)
    if one.is_range:
        when += f" to {moment_of(one.last_slot, zone)}, {plural(one.count, 'slot')}"
    reason = f" ({one.reason})" if one.reason else ""
    return safe_text(f"{one.job_id}  {one.state}{reason}  {when}")
