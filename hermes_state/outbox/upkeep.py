"""Keeping the outbox small: payloads of settled obligations are blanked, and their rows forgotten, in bounded steps.

Invariant: what is not settled is never touched (a trigger says so too), however old or many it is. A row is forgotten
only together with the raising of the horizon to when it was made, so its id is refused afterwards and never new. It
stays until both that and its verdict are a horizon ago, so that a person can look at what waited long and then failed.
The horizon is the largest time at which something forgotten was made and nothing else; what says that it is made after
now is not forgotten, not even by the cap, so that the horizon never passes the clock that raises it.

Bounds of one step: 500 rows of each sort, and no more is begun after 20 ms, or after 8 MiB of payloads; what it looks
for it finds by an index, and counts no further than the cap.

Not for: choosing when (see `Outbox.upkeep`). A cap on the number of all rows was rejected: it is how undelivered
results were lost elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_state.changes.records import record
from hermes_state.outbox.append import HORIZON_SECONDS
from hermes_state.outbox.inputs import LATEST

if TYPE_CHECKING:
    from hermes_state.engine import Transaction

# A settled payload is readable for a day: enough to look into what failed last night.
BLANK_AFTER_SECONDS = 86_400.0
# Most settled rows that are kept, whatever their age; beyond it the oldest are forgotten before their horizon.
MOST_SETTLED = 50_000
# A cap above this is none: no file holds so many rows.
MOST_COUNTED = 1 << 40
# Most rows of one sort in one transaction; how long it may go on beginning more of them (seconds), how many at a time,
# and how many bytes of payloads they may have: of a large one each page is read to free it.
STEP = 500
STEP_SECONDS = 0.02
PORTION = 50
# Least rest between two steps, seconds: more than twice the longest nap of who waits for the write lock.
REST_SECONDS = 0.01
MOST_STEP_BYTES = 8 << 20


@dataclass(frozen=True, kw_only=True)
class Tidied:
    """What one step of upkeep did."""

    blanked: int  # payloads taken out
    forgotten: int  # rows deleted that were made and settled a horizon ago
    forgotten_early: int  # rows deleted before it, since there were too many
    more: bool  # whether another step would do more


def step(
    tx: Transaction, *, at: float, horizon_seconds: float = HORIZON_SECONDS,
    blank_after_seconds: float = BLANK_AFTER_SECONDS, most_settled: int = MOST_SETTLED, limit: int = STEP,
    elapsed: Callable[[], float] = time.monotonic,
) -> Tidied:
    """One bounded step. `at` is now, epoch seconds UTC; `elapsed` tells seconds from any start."""
    bound = _Bound(limit=limit, until=elapsed() + STEP_SECONDS, elapsed=elapsed, bytes_left=MOST_STEP_BYTES)
    blanked = _blank(tx, at - blank_after_seconds, bound)
    past = at - horizon_seconds
    forgotten = _forget(tx, made_to=past, settled_to=past, most=limit, at=at, bound=bound)
    early = 0
    if most_settled < MOST_COUNTED:
        (settled,) = tx.rows(
            "SELECT count(*) FROM (SELECT 1 FROM outbox INDEXED BY outbox_settled WHERE settled_at IS NOT NULL"
            " LIMIT ?)", (most_settled + limit,),
        )[0]
        if settled > most_settled:
            # Settled by a clock that was ahead is settled: the cap is for all.
            early = _forget(tx, made_to=at, settled_to=LATEST, most=settled - most_settled, at=at, bound=bound)
    return Tidied(
        blanked=blanked, forgotten=forgotten, forgotten_early=early,
        more=bound.cut or limit in (blanked, forgotten, early),
    )


@dataclass(kw_only=True)
class _Bound:
    """How much one step may do."""

    limit: int
    until: float
    elapsed: Callable[[], float]
    bytes_left: int
    done: bool = False  # whether anything was
    cut: bool = False  # whether something was left undone

    def portion(self, most: int) -> int:
        """How many rows may be begun now; always some until one is done, so that every step does something."""
        if most <= 0:
            return 0
        if self.done and (self.elapsed() >= self.until or self.bytes_left <= 0):
            self.cut = True
            return 0
        return min(PORTION, most)

    def fitting(self, sizes: Sequence[int]) -> int:
        """How many of rows whose payloads have so many bytes may be done, at least one; they are taken off."""
        count = 0
        for size in sizes:
            if count and size > self.bytes_left:
                self.bytes_left = 0
                break
            self.bytes_left -= size
            count += 1
        self.done = self.done or count > 0
        return count


def _blank(tx: Transaction, settled_to: float, bound: _Bound) -> int:
    done = 0
    while (many := bound.portion(bound.limit - done)) > 0:
        rows = tx.rows(
            "SELECT id, payload_bytes FROM outbox INDEXED BY outbox_readable WHERE settled_at IS NOT NULL"
            " AND payload IS NOT NULL AND settled_at <= ? ORDER BY settled_at, id LIMIT ?", (settled_to, many),
        )
        count = bound.fitting([size for _number, size in rows])
        for number, _size in rows[:count]:
            tx.execute("UPDATE outbox SET payload = NULL WHERE id = ?", (number,))
        done += count
        if len(rows) < many and count == len(rows):
            break
    return done


def _forget(
    tx: Transaction, *, made_to: float, settled_to: float, most: int, at: float, bound: _Bound
) -> int:
    """Delete the settled rows that were settled first, and remember how far back ids are known no more."""
    done, newest, most = 0, None, min(most, bound.limit)
    while (many := bound.portion(most - done)) > 0:
        rows = tx.rows(
            "SELECT id, dedupe_id, made_at, iif(payload IS NULL, 0, payload_bytes) FROM outbox"
            " INDEXED BY outbox_settled WHERE settled_at IS NOT NULL AND settled_at <= ? AND made_at <= ?"
            " ORDER BY settled_at, made_at, id LIMIT ?", (settled_to, made_to, many),
        )
        count = bound.fitting([row[3] for row in rows])
        for number, dedupe_id, made_at, _size in rows[:count]:
            newest = made_at if newest is None else max(newest, made_at)
            tx.execute("DELETE FROM outbox WHERE id = ?", (number,))
            record(tx, "outbox", dedupe_id, "delete", at)
        done += count
        if len(rows) < many and count == len(rows):
            break
    if newest is not None:
        tx.execute(
            "INSERT INTO outbox_horizon (one, forgotten_to) VALUES (1, ?)"
            " ON CONFLICT (one) DO UPDATE SET forgotten_to = max(forgotten_to, excluded.forgotten_to)",
            (newest,),
        )
    return done
