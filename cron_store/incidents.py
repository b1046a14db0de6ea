"""Incidents: one for each job and kind of error, however often it fails; who is told when.

Invariant: a failure and its incident are one transaction. People are told when an incident is new or came back, and
then every `ALERT_AGAIN_SECONDS` while it lasts; of one that a person closed never again. A success of the job resolves
its incidents; the same error after that is the next generation.

Not for: sending (the caller's `alert` goes through the outbox). An alert for each failure was rejected: a job that
fails each minute told people 1,440 times a day.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cron_store.records import Incident
from cron_store.states import INCIDENT, IncidentEvent, IncidentState
from hermes_state.errors import NotFound, Refused

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction

# Facts sections 3.3 and 3.8: a repeated alert after 6 h; 200 characters make the signature; 500 are kept.
ALERT_AGAIN_SECONDS = 6 * 3600.0
SIGNATURE_CHARACTERS = 200
MOST_CHARACTERS = 500

_COLUMNS = (
    "incident_id, job_id, state, generation, failure_type, error, count, first_at, last_at, alerted_at, closed_at,"
    " fence"
)


def signature(job_id: str, error: str) -> str:
    """The id of an incident: of the job, and of the error with its numbers left out."""
    said = re.sub(r"\s+", " ", re.sub(r"0x[0-9a-f]+|\d+", "#", error.strip().lower()))[:SIGNATURE_CHARACTERS]
    digest = hashlib.sha256(f"{job_id}\0{said}".encode("utf-8", "surrogatepass")).hexdigest()
    return f"{job_id[:6]}-{digest[:12]}"


def find(reader: Reader, incident_id: str) -> Incident | None:
    """One incident."""
    row = reader.row(f"SELECT {_COLUMNS} FROM cron_incidents WHERE incident_id = ?", (incident_id,))
    return None if row is None else _incident(row)


def of(reader: Reader, *, job_id: str | None, states: Sequence[IncidentState] | None) -> list[Incident]:
    """Incidents, the newest first."""
    found = [
        _incident(row) for row in reader.rows(
            f"SELECT {_COLUMNS} FROM cron_incidents WHERE ?1 IS NULL OR job_id = ?1 ORDER BY last_at DESC, incident_id",
            (job_id,),
        )
    ]
    return [one for one in found if states is None or one.state in states]


def failed(
    tx: Transaction, job_id: str, error: str, failure_type: str, *, fence: int | None, at: float
) -> tuple[Incident, bool]:
    """Note one failure; gives its incident, and whether people are to be told now."""
    incident_id = signature(job_id, error)
    before = find(tx, incident_id)
    if before is None:
        state, tell = INCIDENT[IncidentState.DETECTED, IncidentEvent.ALERT], True
        tx.execute(
            f"INSERT INTO cron_incidents ({_COLUMNS}) VALUES (?, ?, ?, 1, ?, ?, 1, ?, ?, ?, NULL, ?)",
            (incident_id, job_id, str(state), failure_type, error[:MOST_CHARACTERS], at, at, at, fence),
        )
    elif before.state is IncidentState.CLOSED:
        tell = False
        tx.execute(
            "UPDATE cron_incidents SET count = count + 1, last_at = ?, fence = ? WHERE incident_id = ?",
            (at, fence, incident_id),
        )
    else:
        state = INCIDENT[before.state, IncidentEvent.REPEAT]
        again = before.state is IncidentState.RESOLVED
        # A clock that was ahead must not keep people from being told.
        told = before.alerted_at
        tell = again or told is None or not told <= at < told + ALERT_AGAIN_SECONDS
        if tell:
            state = INCIDENT[state, IncidentEvent.ALERT]
        tx.execute(
            "UPDATE cron_incidents SET state = ?, generation = generation + ?, count = CASE WHEN ? THEN 1 ELSE count +"
            " 1 END, failure_type = ?, error = ?, first_at = CASE WHEN ? THEN ? ELSE first_at END, last_at = ?,"
            " alerted_at = CASE WHEN ? THEN ? ELSE alerted_at END, fence = ? WHERE incident_id = ?",
            (
                str(state), int(again), int(again), failure_type, error[:MOST_CHARACTERS], int(again), at, at,
                int(tell), at, fence, incident_id,
            ),
        )
    found = find(tx, incident_id)
    assert found is not None
    return found, tell


def succeeded(tx: Transaction, job_id: str) -> None:
    """The job succeeded: what was wrong is over."""
    for state in (IncidentState.DETECTED, IncidentState.ALERTED):
        tx.execute(
            "UPDATE cron_incidents SET state = ? WHERE job_id = ? AND state = ?",
            (str(INCIDENT[state, IncidentEvent.SUCCEED]), job_id, str(state)),
        )


def close(tx: Transaction, incident_id: str, *, at: float) -> Incident:
    """A person wants to hear no more of it. Raises `NotFound`, `Refused` (it was closed)."""
    before = find(tx, incident_id)
    if before is None:
        raise NotFound(
            f"There is no cron incident {incident_id!r} in {tx.path}.", path=tx.path, incident_id=incident_id
        )
    if before.state is IncidentState.CLOSED:
        raise Refused(
            f"Cron incident {incident_id!r} in {tx.path} was closed before.", path=tx.path, incident_id=incident_id
        )
    tx.execute(
        "UPDATE cron_incidents SET state = ?, closed_at = ? WHERE incident_id = ?",
        (str(INCIDENT[before.state, IncidentEvent.CLOSE]), at, incident_id),
    )
    found = find(tx, incident_id)
    assert found is not None
    return found


def _incident(row: Sequence[Any]) -> Incident:
    number, job_id, state, generation, failure_type, error, count, first_at, last_at, alerted_at, closed_at, fence = row
    return Incident(
        incident_id=number, job_id=job_id, state=IncidentState(state), generation=generation, failure_type=failure_type,
        error=error, count=count, first_at=first_at, last_at=last_at, alerted_at=alerted_at, closed_at=closed_at,
        fence=fence,
    )
