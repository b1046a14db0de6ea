"""What a person wants to know of an obligation before deciding: who has it, what it waits for, what repeats it.

Invariant: nothing here writes, and a sender is judged as the next claim would judge it, so what is said to be lost is
what that claim settles as lost.

Not for: settling it (see `losing`). Showing only the state was rejected: "claimed" looked the same for an hour whether
its sender was at work or killed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_state.leases.states import ACQUIRE, Outcome, Standing
from hermes_state.outbox.records import COLUMNS, Obligation, obligation
from hermes_state.outbox.states import TERMINAL, State

if TYPE_CHECKING:
    from hermes_state.clock import Clock
    from hermes_state.engine import Reader
    from hermes_state.leases.rows import LeaseRow
    from hermes_state.outbox.losing import Watch


@dataclass(frozen=True, kw_only=True)
class Sender:
    """Who has a claim, as seen now."""

    gone: str  # why its process is provably dead; empty: it is not known to be
    lost: bool  # whether the next claim, `retry` or `drop` settles it as lost: gone, or past its term
    until: float | None  # epoch seconds UTC at which its term ends or ended; None: counted on a clock that is not ours


@dataclass(frozen=True, kw_only=True)
class Looked:
    """An obligation and what is around it."""

    obligation: Obligation
    sender: Sender | None  # None: nobody is sending it
    behind: Obligation | None  # the first of its lane, which it waits for; None: it waits for nothing
    repeated_by: Obligation | None  # of a settled one: the one that repeats it and is not settled


def look(reader: Reader, one: Obligation, watch: Watch, clock: Clock) -> Looked:
    """Look around one. It may open a lock file: not in a transaction."""
    repeated_by = None
    if one.state in TERMINAL:
        repeated_by = _first(reader, "retry_of = ? AND settled_at IS NULL ORDER BY id", one.id)
    behind = None
    if one.state is State.PENDING and one.lane is not None:
        behind = _first(reader, "settled_at IS NULL AND lane = ? ORDER BY priority DESC, id", one.lane)
        if behind is not None and behind.id == one.id:
            behind = None
    return Looked(obligation=one, sender=_sender(reader, one, watch, clock), behind=behind, repeated_by=repeated_by)


def lost(reader: Reader, number: int, watch: Watch) -> list[LeaseRow]:
    """The claim of a row, when its sender is gone or let it run out, for `losing.settle_lost`."""
    found = watch.claim_of(reader, number)
    return [found[0]] if found is not None and ACQUIRE[found[1]] is Outcome.TAKE else []


def _first(reader: Reader, where: str, value: int | str) -> Obligation | None:
    row = reader.row(f"SELECT {COLUMNS} FROM outbox WHERE {where} LIMIT 1", (value,))
    return None if row is None else obligation(row)


def _sender(reader: Reader, one: Obligation, watch: Watch, clock: Clock) -> Sender | None:
    found = watch.claim_of(reader, one.id) if one.state is State.CLAIMED else None
    if found is None:
        return None
    claim, standing, verdict = found
    shared = claim.domain.comparable(clock.domain())
    return Sender(
        gone=verdict.because if standing is Standing.DEAD else "", lost=ACQUIRE[standing] is Outcome.TAKE,
        until=clock.now() + claim.expires_boottime - clock.boottime() if shared else None,
    )
