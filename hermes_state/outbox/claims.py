"""Claiming what is due: one process at a time sends an obligation.

Invariant: a claim is had only when the transaction that wrote it committed, at `power` wherever a row may be sent only
once: otherwise a power cut would give it out again. Within a lane nothing is claimed before what precedes it is
settled; a higher priority precedes. Nothing is claimed for a transport that the caller does not name as up, so an
unavailable one costs nothing. Nothing is written, and no lock taken, when nothing can be claimed.

Bounds of one call: what cannot be claimed is in no index that is read here, whether it is behind something in its lane,
not due, of another transport or kind; a transport costs a seek for each priority that it has, or with kinds one for
each of them and its priorities. Up to 500 rows of a clock that was ahead are made due, and up to 1,000 siblings looked
at for a claim; after 5,000 the rest is for the next call.

Not for: verdicts (see `settling`), claims that lost their sender (see `losing`). A visibility timeout alone was
rejected: it sends twice whenever a sender is slow, and makes others wait although the sender is known to be dead.
Asking of each row what precedes it was rejected: a lane of 100,000 was read through for each row in it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from hermes_state.changes.records import record
from hermes_state.clock import ClockDomain
from hermes_state.outbox.inputs import MOST_ID
from hermes_state.outbox.records import Claim, Obligation, read
from hermes_state.outbox.settling import stale
from hermes_state.outbox.states import TRANSITIONS, Event, Policy, State

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction

# How many obligations one claim has at most.
MOST_SIBLINGS = 50
# How many rows of a batch are looked at for one claim, and for all claims of a call: some 2 and 10 ms.
MOST_LOOKED, MOST_LOOKED_A_CALL = 1000, 5000
# How many rows are made due at once that a clock which was ahead put off.
MOST_BROUGHT_BACK = 500

_FIRST = "state = 'pending' AND follows = 0 AND transport = ?"
_WITHOUT = " AND id NOT IN (SELECT value FROM json_each(?))"
_AHEAD = (
    "SELECT id, dedupe_id FROM outbox INDEXED BY outbox_waiting WHERE state = 'pending'"
    " AND due_at - due_within > ? LIMIT ?"
)
_BATCH = (
    "SELECT id, lane, priority, kind, due_at, follows, policy FROM outbox INDEXED BY outbox_batch"
    " WHERE settled_at IS NULL AND batch = ? AND transport = ? AND state = 'pending'"
    " ORDER BY priority DESC, id LIMIT ?"
)
# What comes right before a row in its lane.
_BEFORE = (
    "SELECT coalesce((SELECT id FROM outbox INDEXED BY outbox_lane WHERE settled_at IS NULL AND lane = ?1"
    " AND priority = ?2 AND id < ?3 ORDER BY id DESC LIMIT 1), (SELECT id FROM outbox INDEXED BY outbox_lane"
    " WHERE settled_at IS NULL AND lane = ?1 AND priority > ?2 ORDER BY priority, id DESC LIMIT 1))"
)


@dataclass(kw_only=True)
class Wanted:
    """What a call asks for."""

    at: float  # now, epoch seconds UTC
    transports: Sequence[str]  # those that are up
    kinds: Sequence[str] | None  # None: all
    limit: int  # how many obligations, siblings beside
    without: list[int] = field(default_factory=list)  # ids that are left alone


def due(reader: Reader, wanted: Wanted) -> tuple[bool, bool]:
    """Whether something can be claimed, and whether something of it may be sent only once.

    What a clock that was ahead put off counts as due.
    """
    ahead = [number for number, _dedupe_id in reader.rows(_AHEAD, (wanted.at, 1))]
    numbers = [number for _priority, _due_at, number in _in_order(reader, wanted)]
    first = next((one for number in numbers if (one := read(reader, number)) is not None and one.sendable), None)
    if first is None and numbers:
        first = next(iter(_primaries(reader, replace(wanted, limit=1, without=[*wanted.without, *numbers]))), None)
    if first is None and not ahead:
        return False, False
    if numbers + ahead == [first and first.id]:
        return True, first is not None and first.policy is Policy.AT_MOST_ONCE
    once = reader.row(
        "SELECT 1 FROM outbox WHERE id IN (SELECT value FROM json_each(?)) AND policy = 'at_most_once' LIMIT 1",
        (json.dumps(numbers + ahead),),
    )
    return True, once is not None


def claim(
    tx: Transaction, wanted: Wanted, *, term_seconds: float, owner: str, incarnation: str, domain: ClockDomain,
    boottime: float,
) -> list[Claim]:
    """Claim what is wanted and due, each with its siblings, the most urgent first.

    The last claim may take siblings beyond the limit.
    """
    at, wanted = wanted.at, replace(wanted, without=list(wanted.without))
    _bring_back(tx, at)
    claims: list[Claim] = []
    taken: set[int] = set()
    looked = 0
    state = TRANSITIONS[State.PENDING, Event.CLAIM]
    for primary in _primaries(tx, wanted):
        if len(taken) >= wanted.limit or looked >= MOST_LOOKED_A_CALL:
            break
        if primary.id in taken:
            continue
        siblings, passed = _siblings(tx, primary, wanted)
        looked += passed
        chosen = [primary, *siblings]
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


def _bring_back(tx: Transaction, at: float) -> None:
    """Make due what a clock that was ahead put off further than its schedule can."""
    for number, dedupe_id in tx.rows(_AHEAD, (at, MOST_BROUGHT_BACK)):
        tx.execute("UPDATE outbox SET due_at = ? WHERE id = ?", (at, number))
        record(tx, "outbox", dedupe_id, "update", at)


def _primaries(reader: Reader, wanted: Wanted) -> list[Obligation]:
    """What can be claimed now, the most urgent first; adds to `wanted.without` what nobody can read: it stops nobody
    else, and is left where a person sees it."""
    while True:
        found = [one for *_order, number in _in_order(reader, wanted) if (one := read(reader, number)) is not None]
        unread = [one.id for one in found if not one.sendable]
        if not unread:
            return found
        wanted.without += unread


def _in_order(reader: Reader, wanted: Wanted) -> list[tuple[int, float, int]]:
    """Priority, time and number of up to `limit` rows that can be claimed."""
    found: list[tuple[int, float, int]] = []
    for transport in wanted.transports:
        if wanted.kinds is None:
            found += _of(reader, wanted, "outbox_due", _FIRST, (transport,))
        else:
            for kind in wanted.kinds:
                found += _of(reader, wanted, "outbox_due_kind", f"{_FIRST} AND kind = ?", (transport, kind))
    found.sort(key=lambda one: (-one[0], one[1], one[2]))
    return found[:wanted.limit]


def _of(
    reader: Reader, wanted: Wanted, index: str, where: str, values: tuple[str, ...]
) -> list[tuple[int, float, int]]:
    """Those of one transport, or of one kind on it: priority by priority, since what is not due yet lies between."""
    left_out, numbers = (_WITHOUT, (json.dumps(wanted.without),)) if wanted.without else ("", ())
    # Most often the first rows are due.
    found: list[tuple[int, float, int]] = reader.rows(
        f"SELECT priority, due_at, id FROM outbox INDEXED BY {index} WHERE {where}{left_out}"
        " ORDER BY priority DESC, due_at, id LIMIT ?", (*values, *numbers, wanted.limit),
    )
    if all(due_at <= wanted.at for _level, due_at, _number in found):
        return found
    found = []
    level = MOST_ID
    while len(found) < wanted.limit:
        next_level = reader.row(
            f"SELECT priority FROM outbox INDEXED BY {index} WHERE {where} AND priority < ?"
            " ORDER BY priority DESC LIMIT 1", (*values, level),
        )
        if next_level is None:
            break
        (level,) = next_level
        found += [
            (level, due_at, number) for due_at, number in reader.rows(
                f"SELECT due_at, id FROM outbox INDEXED BY {index} WHERE {where} AND priority = ? AND due_at <= ?"
                f"{left_out} ORDER BY due_at, id LIMIT ?",
                (*values, level, wanted.at, *numbers, wanted.limit - len(found)),
            )
        ]
    return found


def _siblings(tx: Transaction, primary: Obligation, wanted: Wanted) -> tuple[list[Obligation], int]:
    """What is due of its batch and may go with it, and how many rows were looked at.

    Left out are those that another process has, that are not due, of a kind that is not asked for, of another policy,
    or behind something of their lane that does not come along.
    """
    if primary.batch is None:
        return [], 0
    chosen: dict[int, Obligation] = {primary.id: primary}
    without = {*wanted.without}
    behind: set[str] = set()  # lanes of which something stays: what follows it in order stays too
    looked = 0
    rows = tx.iterate(_BATCH, (primary.batch, primary.transport, MOST_LOOKED), batch=100)
    with closing(rows):  # type: ignore[type-var]
        for number, lane, priority, kind, due_at, follows, policy in rows:
            if len(chosen) >= MOST_SIBLINGS:
                break
            looked += 1
            if number == primary.id:
                continue
            one = None
            if (
                due_at <= wanted.at and Policy(policy) is primary.policy and lane not in behind
                and (wanted.kinds is None or kind in wanted.kinds) and number not in without
                and (not follows or tx.rows(_BEFORE, (lane, priority, number))[0][0] in chosen)
            ):
                one = read(tx, number)
            if one is not None and one.sendable:
                chosen[number] = one
            elif lane is not None:
                behind.add(lane)
    return list(chosen.values())[1:], looked


def renew(tx: Transaction, claimed: Claim, *, until: float, domain: ClockDomain) -> None:
    """Have it for another term. Raises `StaleFence`, and renews nothing, when a row of it is not ours any more."""
    for one in claimed:
        changed = tx.execute(
            "UPDATE outbox SET renewals = renewals + 1, expires_boottime = ?, boot_id = ?, time_namespace = ?"
            " WHERE id = ? AND state = 'claimed' AND fence = ? AND owner = ?",
            (until, domain.boot_id, domain.time_namespace, one.id, one.fence, claimed.owner),
        )
        if not changed:
            raise stale(tx, one, read(tx, one.id))
