"""Rows of slots, read and written inside the caller's transaction.

Invariant: a slot has one record for ever. New ones are written before `settled_through` is raised over them, and the
schema refuses any at or before it; a verdict like that of the newest record makes that one longer instead of a row.

Not for: deciding (see `planning`). Finding the neighbour of a range by its time was rejected: the newest record of a
job is its neighbour, since slots are accounted for in order.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cron_store.occurrences.planning import End, Verdict
from cron_store.records import Occurrence
from cron_store.states import OPEN_SLOTS, SLOT, SlotEvent, SlotState

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction

# The reason of an open slot that had begun once and is to be run again.
REPEATED = "repeated"
_COLUMNS = "job_id, slot, last_slot, count, state, reason, version, fence, settled_at"


def page(
    reader: Reader, job_id: str, *, states: Sequence[SlotState] | None, after: int | None, until: int | None, limit: int
) -> list[Occurrence]:
    """Up to `limit` records of a job, oldest first: those that begin after `after` and not after `until`."""
    wanted = None if states is None else json.dumps([str(state) for state in states])
    return [
        _occurrence(row)
        for row in reader.rows(
            f"SELECT {_COLUMNS} FROM cron_occurrences WHERE job_id = ?1 AND slot > ?2 AND slot <= ?3"
            " AND (?4 IS NULL OR state IN (SELECT value FROM json_each(?4))) ORDER BY slot LIMIT ?5",
            (job_id, -(2**62) if after is None else after, 2**62 if until is None else until, wanted, limit),
        )
    ]


def of_slot(reader: Reader, job_id: str, slot: int) -> Occurrence | None:
    """The record that a slot is in."""
    row = reader.row(
        f"SELECT {_COLUMNS} FROM cron_occurrences WHERE job_id = ? AND slot <= ? ORDER BY slot DESC LIMIT 1",
        (job_id, slot),
    )
    found = None if row is None else _occurrence(row)
    return found if found is not None and slot <= found.last_slot else None


def missed(reader: Reader, *, since: float, limit: int) -> list[Occurrence]:
    """Up to `limit` records of slots after `since` that nobody ran and that were given up, newest first.

    Reads the records of that time only: job by job, from the one that `since` is in.
    """
    found: list[Occurrence] = []
    job_id = ""
    while (row := reader.row(
        "SELECT job_id FROM cron_occurrences WHERE job_id > ? ORDER BY job_id LIMIT 1", (job_id,)
    )) is not None:
        (job_id,) = row
        found += [
            _occurrence(one)
            for one in reader.rows(
                f"SELECT {_COLUMNS} FROM cron_occurrences WHERE job_id = ?1 AND slot >= coalesce((SELECT max(slot) FROM"
                " cron_occurrences WHERE job_id = ?1 AND slot <= ?2), ?2) AND last_slot > ?2 AND state = 'missed'"
                " ORDER BY slot DESC LIMIT ?3", (job_id, since, limit),
            )
        ]
    return sorted(found, key=lambda one: (-one.last_slot, one.job_id))[:limit]


def waiting(reader: Reader, job_id: str) -> tuple[int, ...]:
    """The slots of a job that are due and that nobody has, oldest first."""
    return tuple(
        slot for slot, state in reader.rows(
            "SELECT slot, state FROM cron_occurrences INDEXED BY cron_occurrences_open WHERE job_id = ?"
            " AND settled_at IS NULL ORDER BY slot", (job_id,),
        ) if state == SlotState.DUE
    )


def newest(reader: Reader, job_id: str) -> int | None:
    """The last slot of a job that has a record."""
    row = reader.row(
        "SELECT last_slot FROM cron_occurrences WHERE job_id = ? ORDER BY slot DESC LIMIT 1", (job_id,)
    )
    return None if row is None else int(row[0])


# --- writing -----------------------------------------------------------------------------------------------------


def write_verdict(tx: Transaction, job_id: str, verdict: Verdict, *, version: int, at: float) -> None:
    """Record consecutive slots that are not run. Call it in the order of slots."""
    span, state, reason = verdict.span, str(verdict.state), verdict.reason
    newest = tx.row(
        "SELECT slot, state, reason, version, fence FROM cron_occurrences WHERE job_id = ? ORDER BY slot DESC"
        " LIMIT 1", (job_id,),
    )
    if newest is not None and newest[1:] == (state, reason, version, None):
        tx.execute(
            "UPDATE cron_occurrences SET last_slot = ?, count = count + ?, settled_at = ? WHERE job_id = ?"
            " AND slot = ?",
            (span.last, span.count, at, job_id, newest[0]),
        )
        return
    tx.execute(
        "INSERT INTO cron_occurrences (job_id, slot, last_slot, count, state, reason, version, settled_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (job_id, span.first, span.last, span.count, state, reason, version, at),
    )


def write_due(tx: Transaction, job_id: str, slot: int, *, version: int) -> None:
    """Record a slot that is to run."""
    tx.execute(
        "INSERT INTO cron_occurrences (job_id, slot, last_slot, count, state, version) VALUES (?, ?, ?, 1, 'due', ?)",
        (job_id, slot, slot, version),
    )


def end_waiting(tx: Transaction, job_id: str, end: End, *, at: float) -> bool:
    """Give up a slot that is due. False: it is not due any more."""
    event = SlotEvent.MISS if end.state is SlotState.MISSED else SlotEvent.SKIP
    return step_waiting(tx, job_id, end.slot, event, at=at, reason=end.reason)


def step_waiting(tx: Transaction, job_id: str, slot: int, event: SlotEvent, *, at: float, reason: str) -> bool:
    """Let a slot that is due end without another run. False: it is not due any more.

    One that had begun, and was to be repeated, is interrupted: it may have had its effect.
    """
    return bool(
        tx.execute(
            "UPDATE cron_occurrences SET state = CASE WHEN reason = ?1 THEN ?2 ELSE ?3 END, reason = ?4, settled_at ="
            " ?5 WHERE job_id = ?6 AND slot = ?7 AND state = 'due'",
            (
                REPEATED, str(SLOT[SlotState.DUE, SlotEvent.INTERRUPT]), str(SLOT[SlotState.DUE, event]), reason, at,
                job_id, slot,
            ),
        )
    )


def claim(tx: Transaction, job_id: str, slot: int, fence: int) -> bool:
    """Give a slot that is due to a run. False: it is not due any more."""
    return bool(
        tx.execute(
            "UPDATE cron_occurrences SET state = ?, fence = ? WHERE job_id = ? AND slot = ? AND state = 'due'",
            (str(SLOT[SlotState.DUE, SlotEvent.CLAIM]), fence, job_id, slot),
        )
    )


def step(
    tx: Transaction, job_id: str, slot: int, fence: int, state: SlotState, event: SlotEvent, *, at: float,
    reason: str = "",
) -> SlotState | None:
    """Let an event happen to the slot of a run. None: the row is not that of the run, in that state."""
    row = tx.row(
        "SELECT reason FROM cron_occurrences WHERE job_id = ? AND slot = ? AND fence = ? AND state = ?",
        (job_id, slot, fence, str(state)),
    )
    if row is None:
        return None
    had_begun = row[0] == REPEATED
    if event is SlotEvent.SKIP and had_begun:
        event = SlotEvent.INTERRUPT
    to = SLOT[state, event]
    is_open = to in OPEN_SLOTS
    if event is SlotEvent.REPEAT or (is_open and had_begun):
        reason = REPEATED
    tx.execute(
        "UPDATE cron_occurrences SET state = ?, reason = ?, settled_at = ? WHERE job_id = ? AND slot = ?",
        (str(to), reason, None if is_open else at, job_id, slot),
    )
    return to


def _occurrence(row: Sequence[Any]) -> Occurrence:
    job_id, slot, last_slot, count, state, reason, version, fence, settled_at = row
    return Occurrence(
        job_id=job_id, slot=slot, last_slot=last_slot, count=count, state=SlotState(state), reason=reason,
        version=version, fence=fence, settled_at=settled_at,
    )
