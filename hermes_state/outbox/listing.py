"""Looking at the outbox: pages, newest first, and counts.

Invariant: nothing here writes, and a page is asked for by ids, so that what is recorded meanwhile moves nothing.

Not for: claiming, which has an order of its own (see `claims`). Pages by offset were rejected: a row that comes in
between would be shown twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_state.errors import InvalidInput
from hermes_state.outbox.append import forgotten_to
from hermes_state.outbox.inputs import MOST_ID, text, whole
from hermes_state.outbox.records import COLUMNS, Obligation, obligation
from hermes_state.outbox.states import State

if TYPE_CHECKING:
    from hermes_state.engine import Reader


# Rows of one page: payloads of 1 MiB each would be 1 GB.
MOST_PAGE = 1000


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What the outbox holds."""

    by_state: Mapping[str, int]  # every state, 0 included
    by_kind: Mapping[str, Mapping[str, int]]  # kind -> state -> how many
    overdue: int  # pending and due by now, behind nothing in their lane
    blocked: int  # pending and due by now, behind something of their lane that is not settled
    left: int  # claimed by a sender that is gone or past its term: the next claim settles them
    # pending ones that a clock which was ahead put off further than their schedule can: the next claim makes them due
    due_ahead: int
    oldest_due_at: float | None  # epoch seconds UTC of the pending one that was due first
    remembered_from: float  # ids made before this (epoch seconds UTC) may be forgotten; 0: none was


def page(
    reader: Reader, *, states: Sequence[State] | None, kind: str | None, transport: str | None, lane: str | None,
    limit: int, before: int | None,
) -> list[Obligation]:
    """Up to `limit` obligations with an id below `before`, newest first. Raises `InvalidInput`."""
    wanted = None if states is None else json.dumps([str(known(state)) for state in listed(states)])
    whole("limit", limit, 1, MOST_PAGE)
    if before is not None:
        whole("before", before, 1, MOST_ID)
    for name, value in (("kind", kind), ("transport", transport)):
        if value is not None:
            text(name, value)
    if lane is not None:
        text("lane", lane, empty=True)
    return [
        obligation(row)
        for row in reader.rows(
            f"SELECT {COLUMNS} FROM outbox WHERE (?1 IS NULL OR id < ?1)"
            " AND (?2 IS NULL OR state IN (SELECT value FROM json_each(?2))) AND (?3 IS NULL OR kind = ?3)"
            " AND (?4 IS NULL OR transport = ?4) AND (?6 IS NULL OR lane = ?6) ORDER BY id DESC LIMIT ?5",
            (before, wanted, kind, transport, limit, lane),
        )
    ]


def listed(states: Any) -> Iterable[Any]:
    """A list of states, which a single one is not."""
    if isinstance(states, str) or not isinstance(states, Iterable):
        raise InvalidInput(f"states is a list of states, not {states!r:.80}.", argument="states")
    return states


def known(state: Any) -> State:
    """One of the states, also by its name."""
    try:
        return State(state)
    except ValueError:
        raise InvalidInput(
            f"{state!r:.80} is no state of an obligation.", hint=f"The states are {', '.join(State)}.",
            argument="states",
        ) from None


def counts(reader: Reader, *, at: float, is_left: Callable[[int], bool]) -> Counts:
    """Counts of every state and kind; reads the whole table, which `upkeep` keeps small.

    `is_left` tells of a claimed row, by its number, whether its sender is gone.
    """
    by_state = {str(state): 0 for state in State}
    by_kind: dict[str, dict[str, int]] = {}
    for kind, state, many in reader.rows("SELECT kind, state, count(*) FROM outbox GROUP BY kind, state"):
        by_state[state] += many
        by_kind.setdefault(kind, {})[state] = many
    overdue, oldest, blocked = reader.rows(
        "SELECT count(*) FILTER (WHERE follows = 0), min(due_at) FILTER (WHERE follows = 0),"
        " count(*) FILTER (WHERE follows = 1) FROM outbox WHERE state = 'pending' AND due_at <= ?", (at,)
    )[0]
    claimed = reader.rows("SELECT id FROM outbox INDEXED BY outbox_claimed WHERE state = 'claimed'")
    (ahead,) = reader.rows("SELECT count(*) FROM outbox WHERE state = 'pending' AND due_at - due_within > ?", (at,))[0]
    return Counts(
        by_state=by_state, by_kind=by_kind, overdue=overdue, blocked=blocked,
        left=sum(is_left(number) for (number,) in claimed), due_ahead=ahead, oldest_due_at=oldest,
        remembered_from=forgotten_to(reader),
    )
