"""Obligations of a native capture: verdicts that only a lost WAL has, and what was owed in it and nowhere else.

Invariant: what the store knows stays; a verdict of the capture ends what the store still owes; what was claimed in the
lost WAL may have been sent, and so may everything that only the capture has: at most once it is `unknown`, at least
once due and marked. One that the store had and forgot stays forgotten. Merging again changes nothing.

Not for: sessions and messages (`native`). Taking what is owed in a capture as due was rejected: its process may have
sent it after its last commit, and nothing is left that says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_state.changes.records import record
from maintenance.dialects.native import owed

if TYPE_CHECKING:
    from hermes_state.engine import Reader
    from hermes_state.engine.core import Core
    from hermes_state.engine.transaction import Transaction
    from maintenance.recovery.captures.view import View


def merge_owed(core: Core, view: View, *, at: float, write: bool) -> int:
    """Bring in what only the capture holds of obligations; returns how many it brings or ends. `at` is now."""
    with view.opened(owed.has_outbox) as both:
        if both is None:
            return 0
        whole, before = both
        if not write:
            with core.reader() as reader:
                if not owed.has_outbox(reader.rows):
                    return int(whole.rows("SELECT count(*) FROM outbox")[0][0])
                return _merge(owed.Looking(reader), whole, before, at=at)

        return core.write(
            lambda tx: _merge(tx, whole, before, at=at, feed=tx), durability="power", deadline_seconds=60.0
        )


def _merge(
    tx: owed.Writer, whole: Reader, before: Reader | None, *, at: float, feed: Transaction | None = None
) -> int:
    carrier = owed.Carrier(tx, at=at)
    (forgotten,) = tx.rows("SELECT coalesce(max(forgotten_to), 0) FROM outbox_horizon")[0]
    given = owed.last_number(tx.rows)
    carrier.raise_numbers(owed.last_number(whole.rows))
    for rows in owed.portions(whole.rows):
        taken = []
        for row in rows:
            if tx.row("SELECT 1 FROM outbox WHERE dedupe_id = ?", (row["dedupe_id"],)) is None:
                if _was_forgotten(tx, before, row, forgotten=forgotten, given=given):
                    continue
                if row["made_at"] <= forgotten:
                    # Its id is too old to be owed as new, whatever its policy: a person decides.
                    row["policy"] = "at_most_once"
            taken.append(row)
        carrier.take(taken, certain=False)
    carrier.raise_horizon(owed.horizon_of(whole.rows))
    touched = dict.fromkeys(carrier.carried.touched)
    if feed is not None:
        for dedupe_id in touched:
            record(feed, "outbox", dedupe_id, "update", at)
    return len(touched)


def _was_forgotten(
    tx: owed.Writer, before: Reader | None, row: owed.Row, *, forgotten: float, given: int
) -> bool:
    """Whether the store had this row as well, and has settled and forgotten it."""
    if before is not None:
        return before.row("SELECT 1 FROM outbox WHERE dedupe_id = ?", (row["dedupe_id"],)) is not None
    return bool(
        row["made_at"] <= forgotten and row["id"] <= given
        and tx.row("SELECT 1 FROM outbox WHERE id = ?", (row["id"],)) is None
    )
