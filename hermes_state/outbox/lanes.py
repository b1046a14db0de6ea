"""Moving what is not settled into another lane.

Invariant: what is moved is the same obligation: only its lane, and with it its check, is another; the triggers of the
file put it into its place there. What is settled stays as it is.

Not for: choosing lanes, which whoever records an obligation does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_state.changes.records import record
from hermes_state.outbox.append import check_of
from hermes_state.outbox.inputs import text

if TYPE_CHECKING:
    from hermes_state.engine import Transaction


def move(tx: Transaction, number: int, lane: str, *, at: float) -> bool:
    """Put an obligation into another lane; False when it is settled, gone, or there already. Raises `InvalidInput`."""
    text("lane", lane)
    row = tx.row(
        "SELECT dedupe_id, kind, transport, target, batch, priority, policy, payload FROM outbox WHERE id = ?"
        " AND settled_at IS NULL AND lane IS NOT ?",
        (number, lane),
    )
    if row is None:
        return False
    dedupe_id, kind, transport, target, batch, priority, policy, content = row
    tx.execute(
        "UPDATE outbox SET lane = ?, payload_check = ? WHERE id = ?",
        (lane, check_of(kind, transport, target, lane, batch, priority, policy, content), number),
    )
    record(tx, "outbox", dedupe_id, "update", at)
    return True
