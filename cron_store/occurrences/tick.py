"""One pass over what is due: look, decide, write, in batches.

Invariant: decisions are made with no transaction open, and nothing is written, and no lock taken, for a job about which
nothing changes. One job that cannot be read, or whose schedule cannot be kept, stops no other.

Not for: what a decision is (see `planning`). One transaction a job was rejected: ten jobs of a minute are one commit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from cron_store import events
from cron_store.jobs import rows as job_rows
from cron_store.occurrences import taking
from cron_store.occurrences.planning import Open, Plan, plan
from cron_store.occurrences.taking import Owner
from cron_store.records import Claim, Delivery, Job, Taken
from cron_store.states import SlotState
from hermes_state.errors import (
    Corrupt,
    InvalidInput,
    IOFailure,
    LedgerUnreadable,
    StateError,
    StatementFailed,
)
from hermes_state.outbox import append
from hermes_state.routing import guard

if TYPE_CHECKING:
    from hermes_state.engine import Transaction
    from hermes_state.engine.core import Core
    from hermes_state.leases import Lease

# On which transport a notice of missed slots is owed when the caller does not say.
NOTICES = "cron-notices"


@dataclass(frozen=True, kw_only=True)
class Missed:
    """Slots that were given up for being late."""

    first: int
    last: int
    count: int


Notice = Callable[[Job, Missed], "Delivery | None"]


def plain_notice(job: Job, missed: Missed) -> Delivery:
    """What is owed for missed slots: to where the job's failures, or else its results, are delivered."""
    target = job.fields.get("failure_deliver") or job.fields.get("deliver") or ""
    return Delivery(
        kind="cron-missed", transport=NOTICES, target=target if isinstance(target, str) else "",
        payload={"job_id": job.job_id, "name": job.name, "first": missed.first, "last": missed.last,
                 "count": missed.count},
        policy="at_least_once",
    )


@dataclass(kw_only=True)
class _Pass:
    """What one pass did so far."""

    room: int
    claims: list[Claim]
    accounted: int
    missed: dict[str, int]
    unreadable: dict[str, Exception]
    more: bool


def take(
    core: Core, owner: Owner, lease: Lease | None, *, room: int, most_jobs: int, notice: Notice | None,
    reported: set[str], stuck: Mapping[str, Exception] = MappingProxyType({}),
) -> Taken:
    """As `Cron.take`. `reported`: what was noted of jobs that cannot be read; added to. `stuck`: jobs that were found
    to be unreadable before."""
    done = _Pass(room=room, claims=[], accounted=0, missed={}, unreadable=dict(stuck), more=False)
    after: tuple[float, str] | None = None
    looked = 0
    while looked < most_jobs:
        most = min(taking.MOST_JOBS, most_jobs - looked)
        looks, batch = _look(core, owner.at, after, most, done)
        if not batch:
            break
        after, looked = batch[-1], looked + len(batch)
        plans, failures = _decide(looks, owner.at)
        _write(core, owner, lease, plans, failures, notice or plain_notice, done)
        if len(batch) < most:
            break
    else:
        done.more = True
    _report(core, done.unreadable, reported, at=owner.at)
    return Taken(
        claims=tuple(done.claims), accounted=done.accounted, missed=done.missed, unreadable=done.unreadable,
        more=done.more,
    )


def _look(
    core: Core, at: float, after: tuple[float, str] | None, most: int, done: _Pass
) -> tuple[list[tuple[Job, Open]], list[tuple[float, str]]]:
    looks: list[tuple[Job, Open]] = []
    with core.reader() as reader:
        try:
            batch = taking.due(reader, at=at, after=after, limit=most)
            for _due_at, job_id in batch:
                try:
                    found = taking.look(reader, job_id)
                    if found is None:
                        raise job_rows.unreadable(reader, job_id, "its declaration is missing")
                    looks.append(found)
                except LedgerUnreadable as error:
                    done.unreadable[job_id] = error
        except (Corrupt, IOFailure, StatementFailed) as error:
            raise job_rows.unreadable(reader, None, error.message) from error
    return looks, batch


def _decide(looks: list[tuple[Job, Open]], at: float) -> tuple[list[Plan], list[tuple[Job, InvalidInput]]]:
    plans, failures = [], []
    for job, open_of_it in looks:
        try:
            plans.append(plan(job, open_of_it, at=at))
        except InvalidInput as error:
            failures.append((job, error))
        except (ArithmeticError, ValueError) as unknown:
            # Numbers or rules that no calendar has: of this job, and no reason to stop the others.
            failures.append((job, InvalidInput(f"The next slot cannot be told: {unknown}.", argument="schedule")))
    return plans, failures


def _write(
    core: Core, owner: Owner, lease: Lease | None, plans: list[Plan], failures: list[tuple[Job, InvalidInput]],
    notice: Notice, done: _Pass,
) -> None:
    while True:
        wanted, room = [], done.room
        for one in plans:
            claims = one.may_claim and room > 0
            done.more = done.more or (one.may_claim and not claims)
            if claims or one.changes or _rests(one, owner.at):
                room -= claims
                wanted.append((one, claims))
        if not wanted and not failures:
            return
        try:
            written = core.write(
                partial(_apply, owner=owner, lease=lease, wanted=wanted, failures=failures, notice=notice),
                durability="power",
            )
        except LedgerUnreadable as error:
            # Found out while writing: all of it was rolled back, and goes on without that job.
            done.unreadable[error.facts["job_id"]] = error
            plans = [one for one in plans if one.job.job_id != error.facts["job_id"]]
            continue
        except Corrupt as error:
            raise LedgerUnreadable(
                f"What cron did in {core.path} cannot be read, so nothing is run: {error.message}", hint=error.hint,
                path=core.path, job_id=None,
            ) from error
        break
    for one, claim, was_written in written:
        if not was_written:
            done.more = True
            continue
        if claim is not None:
            done.claims.append(claim)
            done.room -= 1
            done.more = done.more or len(one.runs) > 1
        done.accounted += sum(verdict.span.count for verdict in one.verdicts) + len(one.new)
        if one.missed:
            done.missed[one.job.job_id] = one.missed


def _rests(planned: Plan, at: float) -> bool:
    """Whether there is nothing to do for it before a later time."""
    due_at = planned.due_at(at, claimed=False)
    return due_at is None or due_at > at


def _apply(
    tx: Transaction, owner: Owner, lease: Lease | None, wanted: list[tuple[Plan, bool]],
    failures: list[tuple[Job, InvalidInput]], notice: Notice,
) -> list[tuple[Plan, Claim | None, bool]]:
    guard(tx, owner.home)
    if lease is not None:
        lease.guard(tx)
    written: list[tuple[Plan, Claim | None, bool]] = []
    for one, claims in wanted:
        if not taking.is_still(tx, one.job):
            written.append((one, None, False))
            continue
        try:
            written.append((one, taking.apply(tx, one, owner, claims=claims), True))
        except StatementFailed as error:  # what its rows say does not go together: of this job only
            raise job_rows.unreadable(tx, one.job.job_id, error.message) from error
        if one.job.misfire == "notify":
            _tell(tx, one, notice, owner)
    for job, why in failures:
        if taking.is_still(tx, job):
            taking.fail(tx, job, why, at=owner.at)
    return written


def _tell(tx: Transaction, planned: Plan, notice: Notice, owner: Owner) -> None:
    late = [one.span for one in planned.verdicts if one.state is SlotState.MISSED and one.reason == "late"]
    if not late:
        return
    missed = Missed(first=late[0].first, last=late[-1].last, count=sum(one.count for one in late))
    owed = notice(planned.job, missed)
    if owed is not None:
        append(
            tx, dedupe_id=f"cron/{owner.home.store_id}/{planned.job.job_id}/missed/{missed.first}", kind=owed.kind,
            transport=owed.transport, payload=owed.payload, policy=owed.policy, target=owed.target, lane=owed.lane,
            priority=owed.priority, at=owner.at,
        )


def _report(core: Core, unreadable: dict[str, Exception], reported: set[str], *, at: float) -> None:
    """Note once, in this process, why jobs are not run."""
    new = {
        job_id: error.message for job_id, error in unreadable.items()
        if isinstance(error, StateError) and error.message not in reported
    }
    if new:
        def work(tx: Transaction) -> None:
            for job_id, why in new.items():
                events.record(tx, "ledger_unreadable", at=at, job_id=job_id, why=why)

        core.write(work)
        reported.update(new.values())
