"""Claiming what is due: one process at a time sends an obligation, and what a dead process was sending is settled.

Invariant: a claim is had only when the transaction that wrote it committed, at `power` wherever a row may be sent only
once: otherwise a power cut would give it out again. Within a lane nothing is claimed before what precedes it is
settled; a higher priority precedes. Nothing is claimed for a transport that the caller does not name as up, so an
unavailable one costs nothing. What was judged lost is what is settled: the row is compared again inside.

Not for: verdicts (see `settling`). A visibility timeout alone was rejected: it sends twice whenever a sender is slow,
and makes others wait although the sender is known to be dead.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hermes_state.clock import ClockDomain
from hermes_state.leases.judging import Judging
from hermes_state.leases.rows import LeaseRow
from hermes_state.leases.states import ACQUIRE, Outcome
from hermes_state.outbox.records import COLUMNS, Claim, Obligation, obligation, read
from hermes_state.outbox.settling import lose
from hermes_state.outbox.states import TRANSITIONS, Event, State

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction

# How many claims of others one call looks at, and how many siblings one claim takes at most.
MOST_JUDGED = 200
MOST_SIBLINGS = 50
# For how long an owner that was found alive is believed: a dead one is noticed so much later, and eight senders that
# claim as fast as they can do not open each other's lock files for every claim.
ALIVE_SECONDS = 1.0

_PRECEDED = (
    "EXISTS (SELECT 1 FROM outbox p WHERE p.settled_at IS NULL AND p.lane = o.lane"
    " AND (p.priority > o.priority OR (p.priority = o.priority AND p.id < o.id)){beside})"
)
_DUE = (
    f"SELECT {COLUMNS} FROM outbox o WHERE state = 'pending' AND transport = ? AND due_at <= ?{{kinds}}"
    f" AND (lane IS NULL OR NOT {_PRECEDED.format(beside='')}) ORDER BY priority DESC, due_at, id LIMIT ?"
)
_SIBLINGS = (
    f"SELECT {COLUMNS} FROM outbox o WHERE settled_at IS NULL AND batch = ?1 AND state = 'pending' AND transport = ?2"
    f" AND id NOT IN (SELECT value FROM json_each(?3))"
    f" AND (lane IS NULL OR NOT {_PRECEDED.format(beside=' AND p.id NOT IN (SELECT value FROM json_each(?3))')})"
    " ORDER BY priority DESC, id LIMIT 1"
)
_HELD = (
    "SELECT id, fence, renewals, owner, boot_id, time_namespace, expires_boottime, term_seconds, claimed_at FROM outbox"
    " WHERE state = 'claimed'"
)


def lost_claims(
    reader: Reader, judging: Judging, *, own: str, now: float, domain: ClockDomain, alive: dict[str, float]
) -> list[LeaseRow]:
    """Claims whose sender is gone, or let them run out, as seen. It looks into lock files: not in a transaction.

    `alive`: until when (boot time) an owner that was found alive is not looked at again; kept up here.
    """
    found = []
    dead = {own: False, **{owner: False for owner, until in alive.items() if now < until}}
    for row in reader.rows(f"{_HELD} ORDER BY owner, id LIMIT ?", (MOST_JUDGED,)):
        seen = _lease_row(row)
        owner = str(seen.owner)
        if seen.domain.comparable(domain) or owner == own:
            if now >= seen.expires_boottime:
                found.append(seen)
                continue
            if owner not in dead:  # one look at a lock file for all claims of one owner
                dead[owner] = judging.judge(seen)[1].dead
                alive[owner] = now + ALIVE_SECONDS
            if dead[owner]:
                found.append(seen)
        elif ACQUIRE[judging.judge(seen)[0]] is Outcome.TAKE:
            found.append(seen)
    return found


def settle_lost(tx: Transaction, seen: Sequence[LeaseRow], *, at: float) -> int:
    """Give back or end what lost its sender, unless its row has changed since it was judged; returns how many."""
    count = 0
    for judged in seen:
        number = int(judged.name.removeprefix("outbox "))
        row = tx.row(f"{_HELD} AND id = ?", (number,))
        if row is None or _lease_row(row) != judged:
            continue
        held = read(tx, number)
        assert held is not None
        lose(tx, held, "its sender died or went silent between claim and verdict", at=at)
        count += 1
    return count


def claim(
    tx: Transaction, *, transports: Sequence[str], kinds: Sequence[str] | None, limit: int, term_seconds: float,
    owner: str, incarnation: str, domain: ClockDomain, boottime: float, at: float,
) -> list[Claim]:
    """Claim up to `limit` obligations that are due, each with its siblings, the most urgent first."""
    due: list[Obligation] = []
    wanted = "" if kinds is None else " AND kind IN (SELECT value FROM json_each(?))"
    for transport in transports:
        values: list[Any] = [transport, at, *([] if kinds is None else [json.dumps(list(kinds))]), limit]
        due += [obligation(row) for row in tx.rows(_DUE.format(kinds=wanted), values)]
    due.sort(key=lambda one: (-one.priority, one.due_at, one.id))
    claims: list[Claim] = []
    taken: set[int] = set()
    for primary in due:
        if len(taken) >= limit:
            break
        if primary.id in taken:
            continue
        chosen = [primary, *_siblings(tx, primary)]
        state = TRANSITIONS[State.PENDING, Event.CLAIM]
        for one in chosen:
            tx.execute(
                "UPDATE outbox SET state = ?, fence = fence + 1, owner = ?, renewals = 0, boot_id = ?,"
                " time_namespace = ?, expires_boottime = ?, term_seconds = ?, claimed_at = ? WHERE id = ?",
                (
                    str(state), owner, domain.boot_id, domain.time_namespace, boottime + term_seconds, term_seconds,
                    at, one.id,
                ),
            )
            taken.add(one.id)
        ours = [replace(one, state=state, fence=one.fence + 1, owner=owner, claimed_at=at) for one in chosen]
        claims.append(Claim(obligations=tuple(ours), owner=owner, incarnation=incarnation))
    return claims


def _siblings(tx: Transaction, primary: Obligation) -> list[Obligation]:
    """What is pending of its batch and may go with it; what another process has is left out."""
    if primary.batch is None:
        return []
    chosen = [primary]
    while len(chosen) < MOST_SIBLINGS:
        row = tx.row(_SIBLINGS, (primary.batch, primary.transport, json.dumps([one.id for one in chosen])))
        if row is None:
            break
        chosen.append(obligation(row))
    return chosen[1:]


def anything_due(reader: Reader, transports: Sequence[str], *, at: float) -> bool:
    """Whether something is pending and due there; a look by the index, without regard to lanes."""
    return reader.row(
        "SELECT 1 FROM outbox WHERE state = 'pending' AND transport IN (SELECT value FROM json_each(?))"
        " AND due_at <= ? LIMIT 1",
        (json.dumps(list(transports)), at),
    ) is not None


def any_at_most_once(reader: Reader, transports: Sequence[str], *, at: float) -> bool:
    """Whether something that is due there may be sent only once."""
    return reader.row(
        "SELECT 1 FROM outbox WHERE state = 'pending' AND policy = 'at_most_once'"
        " AND transport IN (SELECT value FROM json_each(?)) AND due_at <= ? LIMIT 1",
        (json.dumps(list(transports)), at),
    ) is not None


def renew(
    tx: Transaction, claimed: Claim, *, until: float, domain: ClockDomain, lost: Callable[[Obligation], Exception]
) -> None:
    """Have it for another term. `lost(row)` is raised, and nothing renewed, when a row of it is not ours any more."""
    for one in claimed:
        changed = tx.execute(
            "UPDATE outbox SET renewals = renewals + 1, expires_boottime = ?, boot_id = ?, time_namespace = ?"
            " WHERE id = ? AND state = 'claimed' AND fence = ? AND owner = ?",
            (until, domain.boot_id, domain.time_namespace, one.id, one.fence, claimed.owner),
        )
        if not changed:
            raise lost(one)


def _lease_row(row: Sequence[Any]) -> LeaseRow:
    number, fence, renewals, owner, boot_id, time_namespace, expires, term, claimed_at = row
    return LeaseRow(
        name=f"outbox {number}", fence=fence, renewals=renewals, owner=owner,
        domain=ClockDomain(boot_id=boot_id or "", time_namespace=time_namespace or ""),
        acquired_boottime=expires - term, expires_boottime=expires, term_seconds=term, acquired_at=claimed_at,
    )
