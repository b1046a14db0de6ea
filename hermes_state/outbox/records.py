"""An obligation as it stands, and a claim of some.

Invariant: every column of a row is here, read by one list of columns; what was recorded comes back as JSON gives it.

Not for: changing rows (see `append`, `claims`, `settling`, `upkeep`). A payload of None for both a recorded null and a
blanked one was rejected: a retry would refuse, or send, the wrong one.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_state.errors import InvalidInput
from hermes_state.outbox.schedules import Schedule
from hermes_state.outbox.states import Policy, State

if TYPE_CHECKING:
    from hermes_state.engine import Reader

COLUMNS = (
    "id, dedupe_id, kind, transport, target, lane, batch, priority, policy, state, payload, payload_bytes, schedule,"
    " attempts, recoveries, refunds, made_at, due_at, retry_of, fence, owner, claimed_at, settled_at, verdict"
)


@dataclass(frozen=True, kw_only=True)
class Obligation:
    """One row of the outbox."""

    id: int  # the order of recording
    dedupe_id: str  # idempotency key, the receiver's too
    kind: str  # stop, approval, final, ...
    transport: str  # what has to be up for it
    target: str  # whom it is for, in the transport's words
    lane: str | None  # what must arrive in order with it
    batch: str | None  # siblings that are claimed and settled together
    priority: int  # the higher goes first
    policy: Policy
    state: State
    payload: Any  # what was recorded; None once it was blanked
    blanked: bool  # whether the payload was taken out after it was settled
    unreadable: tuple[str, ...]  # which of payload, schedule and verdict cannot be read here: damaged, or too deep
    payload_bytes: int  # its size when it was recorded
    schedule_text: str  # JSON of its schedule
    attempts: int  # spent ones
    recoveries: int  # how often its sender was lost
    refunds: int  # how often it was not admitted
    made_at: float  # epoch seconds UTC; the horizon is counted from here
    due_at: float  # epoch seconds UTC; not sent before
    retry_of: int | None  # the settled one that this repeats
    fence: int  # rises with every claim
    owner: str | None  # JSON, who is sending it
    claimed_at: float | None  # epoch seconds UTC
    settled_at: float | None  # epoch seconds UTC; None until terminal
    verdict: dict[str, Any] | None  # how the last claim ended

    @property
    def schedule(self) -> Schedule:
        """When it is tried again, as stored with it."""
        return Schedule.from_json(self.schedule_text)

    @property
    def sendable(self) -> bool:
        """Whether what is needed to send it can be read; what is not is given to nobody."""
        return not {"payload", "schedule"} & {*self.unreadable}

    @property
    def recovered(self) -> bool:
        """Whether it may have been sent before: to be shown to the receiver."""
        return self.recoveries > 0


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What one process is to send now: one obligation, or siblings of a batch. One verdict settles them all."""

    obligations: tuple[Obligation, ...]
    # JSON of the owner identity in the rows
    owner: str
    # epoch of the store's content: a replaced store ends every claim
    incarnation: str

    @property
    def primary(self) -> Obligation:
        """The one that the others came with."""
        return self.obligations[0]

    def __iter__(self) -> Iterator[Obligation]:
        return iter(self.obligations)

    def __len__(self) -> int:
        return len(self.obligations)


def obligation(row: Sequence[Any]) -> Obligation:
    """A row of `COLUMNS`."""
    (
        number, dedupe_id, kind, transport, target, lane, batch, priority, policy, state, payload, payload_bytes,
        schedule, attempts, recoveries, refunds, made_at, due_at, retry_of, fence, owner, claimed_at, settled_at,
        verdict,
    ) = row
    unread: list[str] = []
    said = {name: _said(name, text, unread) for name, text in (("payload", payload), ("verdict", verdict))}
    if not _is_schedule(schedule):
        unread.append("schedule")
    return Obligation(
        id=number, dedupe_id=dedupe_id, kind=kind, transport=transport, target=target, lane=lane, batch=batch,
        priority=priority, policy=Policy(policy), state=State(state),
        payload=said["payload"], blanked=payload is None, unreadable=tuple(unread),
        payload_bytes=payload_bytes, schedule_text=schedule, attempts=attempts, recoveries=recoveries, refunds=refunds,
        made_at=made_at, due_at=due_at, retry_of=retry_of, fence=fence, owner=owner, claimed_at=claimed_at,
        settled_at=settled_at, verdict=said["verdict"] if isinstance(said["verdict"], dict) else None,
    )


@functools.lru_cache(maxsize=256)  # few texts, in many rows
def _is_schedule(text: str) -> bool:
    try:
        Schedule.from_json(text)
    except (InvalidInput, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return False
    return True


def _said(name: str, text: Any, unread: list[str]) -> Any:
    """What a stored text says; None, and its name in `unread`, when that cannot be told."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError):
        unread.append(name)
        return None


def read(reader: Reader, number: int) -> Obligation | None:
    """One obligation by its id."""
    row = reader.row(f"SELECT {COLUMNS} FROM outbox WHERE id = ?", (number,))
    return None if row is None else obligation(row)


def read_by_dedupe_id(reader: Reader, dedupe_id: str) -> Obligation | None:
    """One obligation by its idempotency key."""
    row = reader.row(f"SELECT {COLUMNS} FROM outbox WHERE dedupe_id = ?", (dedupe_id,))
    return None if row is None else obligation(row)
