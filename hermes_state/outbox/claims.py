"""Claiming what is due: one process at a time sends an obligation.

Invariant: a claim is had only when the transaction that wrote it committed, at `power` wherever a row may be sent only
once: otherwise a power cut would give it out again. Within a lane nothing is claimed before what precedes it is
settled; a higher priority precedes. Nothing is claimed for a transport that the caller does not name as up, so an
unavailable one costs nothing.

Not for: verdicts (see `settling`), claims that lost their sender (see `losing`). A visibility timeout alone was
rejected: it sends twice whenever a sender is slow, and makes others wait although the sender is known to be dead.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from hermes_state.clock import ClockDomain
from hermes_state.outbox.records import COLUMNS, Claim, Obligation, obligation
from hermes_state.outbox.states import TRANSITIONS, Event, State

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction

# How many obligations one claim has at most.
MOST_SIBLINGS = 50

_PRECEDED = (
    "EXISTS (SELECT 1 FROM outbox p WHERE p.settled_at IS NULL AND p.lane = o.lane"
    " AND (p.priority > o.priority OR (p.priority = o.priority AND p.id < o.id)){beside})"
)
# What kinds are wanted and what is left out are JSON lists; no list of kinds: all.
_WANTED = "(?3 IS NULL OR kind IN (SELECT value FROM json_each(?3))) AND id NOT IN (SELECT value FROM json_each(?4))"
_DUE = (
    f"SELECT {COLUMNS} FROM outbox o WHERE state = 'pending' AND transport = ?1 AND due_at <= ?2 AND {_WANTED}"
    f" AND (lane IS NULL OR NOT {_PRECEDED.format(beside='')}) ORDER BY priority DESC, due_at, id LIMIT ?5"
)
# By the index of batches: the planner would read all that is due.
_SIBLINGS = (
    f"SELECT {COLUMNS} FROM outbox o INDEXED BY outbox_batch WHERE settled_at IS NULL AND batch = ?5"
    f" AND state = 'pending' AND transport = ?1 AND due_at <= ?2 AND {_WANTED}"
    " AND id NOT IN (SELECT value FROM json_each(?6))"
    f" AND (lane IS NULL OR NOT {_PRECEDED.format(beside=' AND p.id NOT IN (SELECT value FROM json_each(?6))')})"
    " ORDER BY priority DESC, id LIMIT 1"
)


def claim(
    tx: Transaction, *, transports: Sequence[str], kinds: Sequence[str] | None, limit: int, term_seconds: float,
    owner: str, incarnation: str, domain: ClockDomain, boottime: float, at: float, without: Sequence[int] = (),
) -> list[Claim]:
    """Claim up to `limit` obligations that are due, each with its siblings, the most urgent first.

    `without`: ids that are left alone. The last claim may take siblings beyond `limit`.
    """
    due: list[Obligation] = []
    wanted = (at, None if kinds is None else json.dumps(list(kinds)), json.dumps(list(without)))
    for transport in transports:
        due += [obligation(row) for row in tx.rows(_DUE, (transport, *wanted, limit))]
    due.sort(key=lambda one: (-one.priority, one.due_at, one.id))
    claims: list[Claim] = []
    taken: set[int] = set()
    for primary in due:
        if len(taken) >= limit:
            break
        if primary.id in taken:
            continue
        chosen = [primary, *_siblings(tx, primary, wanted)]
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


def _siblings(tx: Transaction, primary: Obligation, wanted: tuple[float, str | None, str]) -> list[Obligation]:
    """What is due of its batch and may go with it; left out are those that another process has, that are not due or of
    a kind that is not asked for."""
    if primary.batch is None:
        return []
    chosen = [primary]
    while len(chosen) < MOST_SIBLINGS:
        ids = json.dumps([one.id for one in chosen])
        row = tx.row(_SIBLINGS, (primary.transport, *wanted, primary.batch, ids))
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
