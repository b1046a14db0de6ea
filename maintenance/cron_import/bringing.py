"""Bringing the jobs of a home of hermes-agent into a native store, and handing their runs over.

Invariant: every job comes in paused, all in one transaction whose counts are compared before it commits. Handing over
pauses a job there before it is resumed here, both under hermes-agent's own locks: whenever this process dies, a job
runs on one side or on none, never on both, and the same command again finishes it.

Not for: where the files are or what they mean (`reading`, `translating`). Resuming first was rejected: a kill between
the two ran every job twice.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cron_store import importing
from cron_store.cron import Cron
from cron_store.jobs.rows import KIND, read
from cron_store.states import JobState
from hermes_state import tombstones
from hermes_state.errors import Entombed, InvalidInput, Refused
from maintenance.cron_import import reading, translating
from maintenance.cron_import.gateways import living_gateways
from maintenance.cron_import.locks import Locks
from maintenance.cron_import.translating import CUTOVER, NO_ZONE, ORIGIN, ImportedRun, Problem, Translated
from maintenance.cron_import.zones import FoundZone

if TYPE_CHECKING:
    from hermes_state.clock import Clock
    from hermes_state.engine import Transaction
    from hermes_state.store import Store

REASON = "imported from hermes-agent"


@dataclass(frozen=True, kw_only=True)
class Intake:
    """What there is to bring in."""

    home: Path  # whose cron it is
    kept: reading.Kept
    jobs: list[Translated]
    problems: list[Problem]
    runs: list[ImportedRun]


@dataclass(kw_only=True)
class Brought:
    """What was done."""

    new: list[str] = field(default_factory=list)
    renewed: list[str] = field(default_factory=list)  # brought in before, untouched here, brought in anew
    present: list[str] = field(default_factory=list)  # here already, and changed here: left as they are
    removed: list[str] = field(default_factory=list)  # were removed here: their ids may not come back yet
    runs: int = 0
    paused_there: list[str] = field(default_factory=list)
    resumed: list[str] = field(default_factory=list)


def take_in(home: Path, zone: FoundZone | None, clock: Clock) -> Intake:
    """Read and translate. Raises what `reading.read` does."""
    kept = reading.read(home, clock)
    at = clock.now()
    jobs: list[Translated] = []
    problems: list[Problem] = []
    for record in kept.records:
        done = translating.job_of(record, zone, source=str(home), at=at)
        if isinstance(done, Translated) and any(job.job_id == done.job_id for job in jobs):
            done = Problem(job_id=done.job_id, why="another job before it has that id")
        if isinstance(done, Problem):
            problems.append(done)
            continue
        jobs.append(done)
    if any(one.why == NO_ZONE for one in problems):
        raise InvalidInput(
            f"In which time zone are the cron jobs of {home}? Neither they, nor HERMES_TIMEZONE, nor its config.yaml,"
            " nor this machine names one.",
            hint="Add --zone with an IANA name, such as --zone Europe/Berlin.", option="--zone",
        )
    used = "UTC" if zone is None else zone.name
    return Intake(
        home=home, kept=kept, jobs=jobs, problems=problems,
        runs=[translating.run_of(row, used, at=at) for row in kept.executions],
    )


def refuse_living_gateway(home: Path, environ: Mapping[str, str]) -> None:
    """Raise `Refused` while a gateway of hermes-agent lives that would tick the home."""
    found = living_gateways(home, environ)
    if found:
        who = "a gateway" if found[0].pid is None else f"PID {found[0].pid}"
        raise Refused(
            f"A gateway of hermes-agent lives ({found[0].because}): {who} would go on with runs that it has begun."
            " Nothing was changed.",
            hint="Stop it with `hermes gateway stop`, then hand over again; without --cutover the jobs come in paused.",
            path=found[0].home, pid=found[0].pid,
        )


def bring_in(store: Store, intake: Intake) -> Brought:
    """Bring everything in, paused. One transaction; raises `Refused` when its counts are not as they must be."""
    at = store.core.clock.now()
    return store.core.write(lambda tx: _write(tx, intake, at), durability="power")


def _write(tx: Transaction, intake: Intake, at: float) -> Brought:
    done = Brought()
    jobs_before, runs_before = importing.count(tx)
    for job in intake.jobs:
        found = read(tx, job.job_id)
        if found is not None and not (ORIGIN in found.fields and importing.take_back_untouched(tx, found)):
            done.present.append(job.job_id)
            continue
        try:
            tombstones.refuse(tx, KIND, job.job_id)
        except Entombed:
            done.removed.append(job.job_id)
            continue
        importing.bring_in_job(
            tx, job.job_id, job.schedule, name=job.name, fields=job.fields, policies=job.policies,
            paused=_reason(job), after=job.after, at=at, last_run_at=job.last_run_at, last_state=job.last_state,
            last_error=job.last_error, repeat_completed=job.repeat_completed, failure_streak=job.failure_streak,
        )
        (done.new if found is None else done.renewed).append(job.job_id)
    known = importing.brought_in(tx)
    for run in intake.runs:
        if run.foreign_id not in known:
            importing.bring_in_run(
                tx, run.job_id, run.foreign_id, state=run.state, claimed_at=run.claimed_at, started_at=run.started_at,
                finished_at=run.finished_at, error=run.error, detail=run.detail,
            )
            done.runs += 1
    _verify(tx, intake, done, jobs_before, runs_before)
    return done


def _verify(tx: Transaction, intake: Intake, done: Brought, jobs_before: int, runs_before: int) -> None:
    jobs, runs = importing.count(tx)
    records = len(done.new) + len(done.renewed) + len(done.present) + len(done.removed) + len(intake.problems)
    known = importing.brought_in(tx)
    if (
        jobs - jobs_before != len(done.new) or runs - runs_before != done.runs or records != len(intake.kept.records)
        or not all(run.foreign_id in known for run in intake.runs)
    ):
        raise Refused(
            f"The counts differ: {len(intake.kept.records)} jobs and {len(intake.runs)} runs of {intake.home} would"
            f" have become {jobs - jobs_before} and {runs - runs_before} in {tx.path}. Nothing was changed.",
            hint=f"Report it, with {intake.kept.folder / reading.JOBS}.", path=tx.path,
        )


def _reason(job: Translated) -> str:
    if job.active_there:
        return REASON
    return f"{REASON}, paused there{f': {job.paused_there}' if job.paused_there else ''}"


def hand_over(store: Store, intake: Intake, done: Brought, locks: Locks) -> None:
    """Pause there what is here now, then resume here what ran there. Raises `Refused` when it took too long.

    What a person changed here or ran by hand since it came in is resumed too, as long as it is paused by the import
    alone. Everything is in already, paused: after an error, the same command again goes on.
    """
    cron = Cron(store)
    to_resume, to_pause = [], set()
    for job in intake.jobs:
        if not job.active_there or job.job_id in done.removed:
            continue
        here = cron.job(job.job_id)
        by_import = here.state_reason == REASON or here.state_reason.startswith(f"{REASON}, paused there")
        if here.state is JobState.PAUSED and not by_import:
            continue  # a person paused it here: taken from there too, it would run nowhere
        to_pause.add(job.job_id)
        if here.state is JobState.PAUSED and not job.is_over:
            to_resume.append(job.job_id)
    done.paused_there = _pause_there(intake, to_pause, locks, store.core.clock.now())
    for job_id in to_resume:
        cron.resume(job_id)
        done.resumed.append(job_id)


def _pause_there(intake: Intake, wanted: set[str], locks: Locks, at: float) -> list[str]:
    path = intake.kept.folder / reading.JOBS
    stamp = datetime.fromtimestamp(at, UTC).isoformat()
    changed: list[str] = []
    for record in intake.kept.records:
        if isinstance(record, dict) and record.get("id") in wanted and not is_ours(record):
            record.update(enabled=False, state="paused", paused_at=stamp, paused_reason=CUTOVER)
            changed.append(str(record["id"]))
    if not changed:
        return changed
    if isinstance(intake.kept.document, dict):
        intake.kept.document["updated_at"] = stamp
    _replace(path, json.dumps(intake.kept.document, indent=2).encode(), intake.kept.content, locks)
    return changed


def is_ours(record: Mapping[str, Any]) -> bool:
    """Whether it was a cutover that paused a job there."""
    return record.get("state") == "paused" and record.get("paused_reason") == CUTOVER


def _replace(path: Path, content: bytes, before: bytes, locks: Locks) -> None:
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".jobs_", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        os.chmod(name, path.stat().st_mode & 0o777)
        if path.read_bytes() != before or locks.left <= 0:
            raise Refused(
                f"{path} changed, or it took so long that hermes-agent writes without its lock. Every job is here,"
                " paused; none was handed over.",
                hint="Run the same command again.", path=path,
            )
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
