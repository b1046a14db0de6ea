"""Keeping the outbox small: payloads of settled obligations are blanked, and their rows forgotten, in bounded steps.

Invariant: what is not settled is never touched (a trigger says so too), however old or many it is. A row is forgotten
only together with the raising of the horizon to when it was made, so its id is refused afterwards and never new. The
horizon is the largest such time and nothing else; what says that it is made after now is not forgotten, not even by
the cap, so that the horizon never passes the clock that raises it.

Not for: choosing when (see `Outbox.upkeep`). A cap on the number of all rows was rejected: it is how undelivered
results were lost elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_state.changes.records import record
from hermes_state.outbox.append import HORIZON_SECONDS

if TYPE_CHECKING:
    from hermes_state.engine import Transaction

# A settled payload is readable for a day: enough to look into what failed last night.
BLANK_AFTER_SECONDS = 86_400.0
# Most settled rows that are kept, whatever their age; beyond it the oldest are forgotten before their horizon.
MOST_SETTLED = 50_000
# Rows in one transaction: 500 deletions take some milliseconds.
STEP = 500


@dataclass(frozen=True, kw_only=True)
class Tidied:
    """What one step of upkeep did."""

    blanked: int  # payloads taken out
    forgotten: int  # rows deleted that were past their horizon
    forgotten_early: int  # rows deleted before it, since there were too many
    more: bool  # whether another step would do more


def step(
    tx: Transaction, *, at: float, horizon_seconds: float = HORIZON_SECONDS,
    blank_after_seconds: float = BLANK_AFTER_SECONDS, most_settled: int = MOST_SETTLED, limit: int = STEP,
) -> Tidied:
    """One bounded step. `at` is now, epoch seconds UTC."""
    blanked = tx.execute(
        "UPDATE outbox SET payload = NULL WHERE id IN (SELECT id FROM outbox WHERE settled_at IS NOT NULL"
        " AND settled_at <= ? AND payload IS NOT NULL ORDER BY settled_at LIMIT ?)",
        (at - blank_after_seconds, limit),
    )
    forgotten = _forget(tx, made_to=at - horizon_seconds, limit=limit, at=at)
    settled = tx.rows("SELECT count(*) FROM outbox WHERE settled_at IS NOT NULL")[0][0]
    early = 0
    if settled > most_settled:
        early = _forget(tx, made_to=at, limit=min(limit, settled - most_settled), at=at)
    return Tidied(
        blanked=blanked, forgotten=forgotten, forgotten_early=early, more=limit in (blanked, forgotten, early)
    )


def _forget(tx: Transaction, *, made_to: float, limit: int, at: float) -> int:
    """Delete the settled rows that were settled first, and remember how far back ids are known no more."""
    rows = tx.rows(
        "SELECT id, dedupe_id, made_at FROM outbox WHERE settled_at IS NOT NULL AND made_at <= ?"
        " ORDER BY settled_at, id LIMIT ?",
        (made_to, limit),
    )
    if not rows:
        return 0
    newest = max(made_at for _number, _dedupe_id, made_at in rows)
    tx.execute(
        "INSERT INTO outbox_horizon (one, forgotten_to) VALUES (1, ?)"
        " ON CONFLICT (one) DO UPDATE SET forgotten_to = max(forgotten_to, excluded.forgotten_to)",
        (newest,),
    )
    for number, dedupe_id, _made_at in rows:
        tx.execute("DELETE FROM outbox WHERE id = ?", (number,))
        record(tx, "outbox", dedupe_id, "delete", at)
    return len(rows)
