"""One record of hermes-agent as a job here, or the reason why it cannot be one.

Invariant: nothing of a record is lost: what has a place here goes there, what a person declared is a field of the job,
and the rest, with what hermes-agent noted about its runs, stands under one field as it was. A time is an instant; where
hermes-agent wrote one without an offset it meant the machine's clock.

Not for: writing anything. Guessing at schedules that are refused here was rejected: a job that runs at other times than
its words say is found out too late.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import ceil, floor, isfinite
from typing import Any
from zoneinfo import ZoneInfo

from cron_store.jobs import checking
from cron_store.records import Policies
from cron_store.schedule import (
    FIRE_HORIZON_SECONDS,
    CronExpression,
    Interval,
    Once,
    Schedule,
    check_zone,
    parse,
    require_fire,
    slots,
)
from cron_store.states import RunState
from hermes_state.errors import InvalidInput
from maintenance.cron_import.zones import FoundZone

ORIGIN = "imported_from_hermes_agent"  # the field with what has no place here
# What hermes-agent notes about a job, and what has a column here. The rest a person declared, or a later release.
_NOTED = frozenset({
    "id", "name", "schedule", "schedule_display", "repeat", "enabled", "state", "paused_at", "paused_reason",
    "created_at", "next_run_at", "last_run_at", "last_status", "last_error", "last_delivery_error", "last_fire_error",
    "failure_streak", "run_claim", "fire_claim", "pending_slot", "last_dispatch", "manual_run_at", "manual_run_prompt",
    "preflight_alerted",
})
_ZONE_KEYS = ("timezone", "zone", "tz")
_STATES = {"ok": "succeeded", "error": "failed", "delivery_failed": "succeeded", "blocked_config": "failed"}
_RUN_STATES = {"completed": RunState.SUCCEEDED, "failed": RunState.FAILED, "unknown": RunState.UNKNOWN}
CUTOVER = "handed over to hermes-state"  # why a cutover paused it there
NO_ZONE = "no time zone is known for it"
# Longer ones are no zone, expression or count that anybody meant; a longer text is cut, and is whole under `ORIGIN`.
MOST_ZONE, MOST_EXPRESSION, MOST_COUNT = 200, 500, 1_000_000_000
MOST_NAME, MOST_LINE = 4_000, 500
UNFINISHED = "it had not ended when it was imported"


@dataclass(frozen=True, kw_only=True)
class Translated:
    """A job as it is to be brought in."""

    job_id: str
    name: str
    schedule: Schedule
    policies: Policies
    fields: Mapping[str, Any]
    active_there: bool  # hermes-agent would have run it, were it not for a cutover
    runs_there: bool  # hermes-agent runs it
    paused_there: str  # its reason, when it was paused there
    after: float  # its slots are those after this
    passed: int | None  # the slot that came due there and was not run before the import; nobody runs it now
    zone_by: str  # where its zone was found
    last_run_at: float | None
    last_state: str | None
    last_error: str | None
    repeat_completed: int
    failure_streak: int
    notes: tuple[str, ...]  # what a person would not expect of it here

    @property
    def is_over(self) -> bool:
        """Whether it has no slot any more: resumed, it is completed."""
        used_up = self.policies.repeat_times is not None and self.repeat_completed >= self.policies.repeat_times
        return used_up or (isinstance(self.schedule, Once) and not slots(self.schedule, self.after, 2**53))


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A record that cannot be brought in."""

    job_id: str
    why: str
    runs_there: bool = False  # hermes-agent runs it, or tries to


@dataclass(frozen=True, kw_only=True)
class ImportedRun:
    """A run as history."""

    foreign_id: str
    job_id: str
    state: RunState
    claimed_at: float
    started_at: float | None
    finished_at: float
    error: str | None
    detail: Mapping[str, Any] = field(default_factory=dict)


def job_of(record: Any, zone: FoundZone | None, *, source: str, at: float) -> Translated | Problem:
    """Translate one record. `zone` is that of the home, `at` the time of the import."""
    if not isinstance(record, dict):
        return Problem(job_id="", why=f"it is no object: {record!r:.80}")
    job_id = record.get("id")
    try:
        checking.job_id(job_id)
        return _translate(record, str(job_id), zone, source=source, at=at)
    except InvalidInput as error:
        return Problem(job_id=str(job_id), why=error.message, runs_there=_runs(record))


def _translate(record: dict[str, Any], job_id: str, zone: FoundZone | None, *, source: str, at: float) -> Translated:
    said = record.get("schedule")
    if not isinstance(said, dict):
        raise InvalidInput(f"its schedule is no object: {said!r:.80}")
    named = next((str(one[key]) for one in (said, record) for key in _ZONE_KEYS if one.get(key)), None)
    if named is not None and len(named) > MOST_ZONE:
        raise InvalidInput(f"its zone is none: {named!r:.80}")
    used = FoundZone(name=check_zone(named), said_by="the job") if named is not None else zone
    if used is None:
        raise InvalidInput(NO_ZONE)
    last_run = instant(record.get("last_run_at"), used.name)
    next_run = instant(record.get("next_run_at"), used.name)
    schedule = _schedule(said, record, used.name, next_run, last_run)
    after = max(at, last_run or at)
    if not isinstance(schedule, Once):
        require_fire(schedule, after)
    repeat = record.get("repeat") if isinstance(record.get("repeat"), dict) else {}
    assert isinstance(repeat, dict)
    times = _whole("repeat.times", repeat.get("times"))
    completed = max(0, _whole("repeat.completed", repeat.get("completed")) or 0)
    if isinstance(schedule, Once) and last_run is not None:
        completed = max(completed, 1)  # hermes-agent never runs one again that ran
    finite = times if times is not None and times > 0 else 1 if isinstance(schedule, Once) else None
    state = str(record.get("state") or "")
    runs = _runs(record)
    # A cutover that was broken off has paused it there and not resumed it here.
    active = runs or (state == "paused" and record.get("paused_reason") == CUTOVER)
    passed = None
    used_up = finite is not None and completed >= finite
    if active and not used_up and next_run is not None and floor(next_run) <= floor(after):
        passed = floor(next_run)
    elif active and not used_up and isinstance(schedule, Once) and (schedule.at or 0) <= after:
        passed = schedule.at
    checking.fields(fields := _fields(record, source, at))
    return Translated(
        job_id=job_id, name=_line(record.get("name") or "", MOST_NAME), schedule=schedule,
        policies=Policies(repeat_times=finite), fields=fields, active_there=active, runs_there=runs,
        paused_there=_line(record.get("paused_reason") or "") if state == "paused" else "", after=after, passed=passed,
        zone_by=used.said_by, last_run_at=last_run, last_state=_STATES.get(str(record.get("last_status"))),
        last_error=None if record.get("last_error") is None else _line(record["last_error"]),
        repeat_completed=completed, failure_streak=max(0, _whole("failure_streak", record.get("failure_streak")) or 0),
        notes=tuple(_notes(record, schedule, after, at)),
    )


def _runs(record: Mapping[str, Any]) -> bool:
    """Whether hermes-agent runs it: what is true for Python is enabled there."""
    return bool(record.get("enabled", True)) and str(record.get("state") or "") not in ("paused", "completed")


def _schedule(
    said: dict[str, Any], record: dict[str, Any], zone: str, next_run: float | None, last_run: float | None
) -> Schedule:
    kind = said.get("kind")
    if kind == "cron":
        if len(str(said.get("expr"))) > MOST_EXPRESSION:
            raise InvalidInput(f"its cron expression has more than {MOST_EXPRESSION} characters")
        read = parse(str(said.get("expr")), zone=zone, now=0)
        if not isinstance(read, CronExpression):
            raise InvalidInput(f"its schedule {said.get('expr')!r:.80} is no cron expression")
        return read
    if kind == "interval":
        minutes = said.get("minutes")
        if isinstance(minutes, bool) or not isinstance(minutes, int | float) or not 1 <= minutes <= 52_704_000:
            raise InvalidInput(f"its interval of {minutes!r:.80} minutes is none")
        created = instant(record.get("created_at"), zone)
        # The grid goes on through the slot that hermes-agent told next.
        start = next_run if next_run is not None else last_run if last_run is not None else created
        return Interval(seconds=round(minutes * 60), anchor=floor(start or 0), zone=zone)
    if kind == "once":
        moment = instant(said.get("run_at"), zone)
        if moment is None:
            raise InvalidInput(f"its time {said.get('run_at')!r:.80} is none")
        return Once(at=floor(moment), zone=zone)
    raise InvalidInput(f"its schedule is of an unknown kind: {kind!r:.80}")


def _fields(record: dict[str, Any], source: str, at: float) -> dict[str, Any]:
    fields = {str(key): value for key, value in record.items() if key not in _NOTED}
    noted = {key: value for key, value in record.items() if key in _NOTED}
    stamp = datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")
    return {**fields, ORIGIN: {"from": source, "imported_at": stamp, "record": noted, "before": fields.get(ORIGIN)}}


def run_of(row: Mapping[str, Any], zone: str, *, at: float) -> ImportedRun:
    """A row of executions.db as history; what had not ended is unknown."""
    status = str(row["status"])
    state = _RUN_STATES.get(status, RunState.UNKNOWN)
    claimed = instant(row["claimed_at"], zone)
    finished = instant(row["finished_at"], zone)
    error = None if row["error"] is None else str(row["error"])[:4000]
    if status not in _RUN_STATES:
        error = error or UNFINISHED
    return ImportedRun(
        foreign_id=str(row["id"]), job_id=str(row["job_id"]), state=state,
        claimed_at=at if claimed is None else claimed,
        started_at=instant(row["started_at"], zone), finished_at=at if finished is None else finished, error=error,
        detail={"status": status, "source": row["source"], "pid": row["pid"]},
    )


def instant(value: Any, zone: str) -> float | None:
    """An ISO time as epoch seconds; None for what is none. Without an offset it is wall time of `zone`."""
    if not isinstance(value, str) or not value:
        return None
    try:
        moment = datetime.fromisoformat(value.replace("Z", "+00:00"))
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=ZoneInfo(zone))).timestamp()
    except (ValueError, OverflowError):
        return None


def _whole(name: str, value: Any) -> int | None:
    """A count: hermes-agent compares it with one, so a part of a run is a run. Raises `InvalidInput`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if abs(value) > MOST_COUNT or (isinstance(value, float) and not isfinite(value)):
        raise InvalidInput(f"its {name} is no count")
    return ceil(value)


def _line(value: Any, most: int = MOST_LINE) -> str:
    """A text of a record as a column keeps it."""
    return str(value)[:most].replace("\0", " ").encode("utf-8", "replace").decode().strip()


def _notes(record: Mapping[str, Any], schedule: Schedule, after: float, at: float) -> Iterator[str]:
    """What of a record means something else here, or keeps it from running for longer than anybody would think."""
    if after > at:
        stamp = datetime.fromtimestamp(floor(after), UTC).isoformat().replace("+00:00", "Z")
        yield f"its last run lies ahead of the clock, so it has no slot before {stamp}"
    if isinstance(schedule, Once) and (schedule.at or 0) > at + FIRE_HORIZON_SECONDS:
        yield "it is due in more than 8 years"
    if isinstance(schedule, CronExpression):
        _minute, _hour, day, _month, weekday = schedule.expression.split()
        if day != "*" and weekday != "*" and "*" in (day[0], weekday[0]):
            yield "its day of month and its day of week must both hold here, in hermes-agent one of them"
    if not isinstance(record.get("enabled", True), bool):
        yield f"enabled is {record['enabled']!r:.40}, which hermes-agent takes for {bool(record['enabled'])}"
