"""Looking at the outbox: pages, newest first, and counts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_state.outbox.append import forgotten_to
from hermes_state.outbox.records import COLUMNS, Obligation, obligation
from hermes_state.outbox.states import State

if TYPE_CHECKING:
    from hermes_state.engine import Reader


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What the outbox holds."""

    by_state: Mapping[str, int]  # every state, 0 included
    by_kind: Mapping[str, Mapping[str, int]]  # kind -> state -> how many
    overdue: int  # pending and due by now
    oldest_due_at: float | None  # epoch seconds UTC of the pending one that was due first
    remembered_from: float  # ids made before this (epoch seconds UTC) may be forgotten; 0: none was


def page(
    reader: Reader, *, states: Sequence[State] | None, kind: str | None, transport: str | None, limit: int,
    before: int | None,
) -> list[Obligation]:
    """Up to `limit` obligations with an id below `before`, newest first."""
    wanted = None if states is None else json.dumps([str(state) for state in states])
    return [
        obligation(row)
        for row in reader.rows(
            f"SELECT {COLUMNS} FROM outbox WHERE (?1 IS NULL OR id < ?1)"
            " AND (?2 IS NULL OR state IN (SELECT value FROM json_each(?2))) AND (?3 IS NULL OR kind = ?3)"
            " AND (?4 IS NULL OR transport = ?4) ORDER BY id DESC LIMIT ?5",
            (before, wanted, kind, transport, limit),
        )
    ]


def counts(reader: Reader, *, at: float) -> Counts:
    """Counts of every state and kind; reads the whole table, which `upkeep` keeps small."""
    by_state = {str(state): 0 for state in State}
    by_kind: dict[str, dict[str, int]] = {}
    for kind, state, many in reader.rows("SELECT kind, state, count(*) FROM outbox GROUP BY kind, state"):
        by_state[state] += many
        by_kind.setdefault(kind, {})[state] = many
    overdue, oldest = reader.rows(
        "SELECT count(*), min(due_at) FROM outbox WHERE state = 'pending' AND due_at <= ?", (at,)
    )[0]
    return Counts(
        by_state=by_state, by_kind=by_kind, overdue=overdue, oldest_due_at=oldest, remembered_from=forgotten_to(reader)
    )
