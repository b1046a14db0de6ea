"""Handing a claimed run to a worker process of its own, and flags for runs that are being stopped.

Invariant: adopting is the one gate from claimed to running for a worker, and one worker gets through it; from then on
the worker is the owner, and only its own death ends the run for it. Who handed it off is kept as the one that waits.

Not for: starting processes. A worker that writes under its parent's identity was rejected: when the parent restarts,
its run looks dead and is run again beside it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cron_store.jobs import rows as job_rows
from cron_store.occurrences.taking import Owner
from cron_store.records import Claim
from cron_store.runs import rows
from cron_store.runs.ending import begin
from cron_store.states import RunState
from hermes_state.errors import InvalidInput, Refused
from hermes_state.routing import Home

if TYPE_CHECKING:
    from hermes_state.engine import Transaction


@dataclass(frozen=True, kw_only=True)
class HandOff:
    """What a worker is given: a text for its command line or its standard input."""

    job_id: str
    fence: int
    home: Home
    owner: str  # who handed it off
    incarnation: str

    def to_json(self) -> str:
        """For the worker."""
        return json.dumps({
            "job_id": self.job_id, "fence": self.fence, "home": str(self.home.path), "store_id": self.home.store_id,
            "owner": self.owner, "incarnation": self.incarnation,
        })

    @classmethod
    def from_json(cls, text: str) -> HandOff:
        """What `to_json` wrote. Raises `InvalidInput`."""
        try:
            said = json.loads(text)
            return cls(
                job_id=str(said["job_id"]), fence=int(said["fence"]), owner=str(said["owner"]),
                home=Home(path=Path(said["home"]), store_id=said["store_id"]), incarnation=str(said["incarnation"]),
            )
        except (ValueError, TypeError, KeyError) as error:
            raise InvalidInput(f"{text[:80]!r} hands nothing off.", hint="Give what to_json wrote.") from error


def hand_off(tx: Transaction, claim: Claim, *, boottime: float, detached: bool) -> HandOff:
    """Let a worker adopt a claim that was not started. Raises `StaleFence`, `Refused` (it was started)."""
    run = rows.held(tx, claim)
    if run.state is not RunState.CLAIMED:
        raise Refused(
            f"The run of cron job {claim.job_id!r} in {tx.path} (fence {claim.fence}) has begun here: it cannot be"
            " handed to another process.",
            hint="Hand a claim off instead of starting it.", path=tx.path, job_id=claim.job_id, fence=claim.fence,
        )
    tx.execute(
        "UPDATE cron_executions SET handed_off_boottime = ?, detached = ? WHERE fence = ?",
        (boottime, int(detached), claim.fence),
    )
    return HandOff(
        job_id=claim.job_id, fence=claim.fence, home=claim.home, owner=claim.owner, incarnation=claim.incarnation
    )


def adopt(tx: Transaction, given: HandOff, owner: Owner) -> Claim:
    """Become the owner of a run that was handed off, and start it. Raises `StaleFence`: do not run anything."""
    job = job_rows.find(tx, given.job_id)
    claim = Claim(
        job_id=given.job_id, slot=None, run_id=None, fence=given.fence, source="schedule", attempt=1,
        lateness_seconds=0.0, claimed_at=owner.at, term_seconds=owner.term_seconds, home=owner.home, owner=given.owner,
        incarnation=given.incarnation, job=job, session_id=None,
    )
    run = rows.held(tx, claim)
    if run.state is not RunState.CLAIMED or not run.handed_off or run.interrupted_at is not None:
        raise rows.stale(tx, claim)
    tx.execute(
        "UPDATE cron_executions SET owner = ?, waiter = ?, handed_off_boottime = NULL, boot_id = ?, time_namespace = ?,"
        " claimed_boottime = ?, expires_boottime = ?, term_seconds = ?, renewals = 0 WHERE fence = ?",
        (
            owner.text, given.owner, owner.domain.boot_id, owner.domain.time_namespace, owner.boottime,
            owner.boottime + owner.term_seconds, owner.term_seconds, given.fence,
        ),
    )
    begin(tx, run, at=owner.at)
    return Claim(
        job_id=job.job_id, slot=run.slot, run_id=run.run_id, fence=run.fence, source=run.source, attempt=run.attempt,
        lateness_seconds=run.lateness_seconds, claimed_at=run.claimed_at, term_seconds=owner.term_seconds,
        home=owner.home, owner=owner.text, incarnation=owner.incarnation, job=job, session_id=run.session_id,
    )


def interrupt(tx: Transaction, job_id: str | None, *, reason: str, at: float) -> list[int]:
    """Flag the open runs of a job, or of all, before they end; the first flag stays. Gives their fences."""
    flagged = [run.fence for run in rows.in_flight(tx, job_id)]
    for fence in flagged:
        tx.execute(
            "UPDATE cron_executions SET interrupted_at = coalesce(interrupted_at, ?), interrupted_reason ="
            " coalesce(interrupted_reason, ?) WHERE fence = ?",
            (at, reason, fence),
        )
    return flagged


def renew(tx: Transaction, claims: list[Claim], owner: Owner) -> list[Claim]:
    """Have claims for another term; gives those that are not ours any more."""
    lost = []
    for claim in claims:
        changed = claim.incarnation == owner.incarnation and tx.execute(
            "UPDATE cron_executions SET renewals = renewals + 1, expires_boottime = ?, boot_id = ?, time_namespace = ?"
            " WHERE fence = ? AND owner = ? AND finished_at IS NULL",
            (
                owner.boottime + claim.term_seconds, owner.domain.boot_id, owner.domain.time_namespace, claim.fence,
                claim.owner,
            ),
        )
        if not changed:
            lost.append(claim)
    return lost
