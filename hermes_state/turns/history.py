"""The last turns of a thread and the last items of a turn: bounded when they are written.

Invariant: a thread keeps at most 8 settled turns and a turn its last 32 items (the numbers of the facts, 1.9); what
goes beyond goes in the transaction that adds. Questions that were settled go with their turn. The counts of what there
ever was stay in the rows.

Not for: transcripts, which are messages of a session. Keeping all and pruning at night was rejected: a session that
never ends grew without bound, and nobody read it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hermes_state.turns import interactions
from hermes_state.turns.records import TURN_COLUMNS, Item, Turn, turn_of

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction

MOST_TURNS = 8
MOST_ITEMS = 32
MOST_STOPS = 8


def add_item(tx: Transaction, turn: Turn, item_type: str, fields: Mapping[str, Any], *, at: float) -> Item:
    """One more item of a turn; the oldest goes when there are too many. `fields` are what the sanitiser left."""
    number = turn.items + 1
    tx.execute("UPDATE turns SET items = ? WHERE no = ?", (number, turn.no))
    tx.execute(
        "INSERT INTO turn_items (turn_no, number, item_type, fields, at) VALUES (?, ?, ?, ?, ?)",
        (turn.no, number, item_type, json.dumps(fields, ensure_ascii=False, sort_keys=True), at),
    )
    tx.execute("DELETE FROM turn_items WHERE turn_no = ? AND number <= ?", (turn.no, number - MOST_ITEMS))
    return Item(number=number, item_type=item_type, fields=dict(fields), at=at)  # type: ignore[arg-type]


def trim(tx: Transaction, thread_id: str) -> int:
    """Forget the settled turns beyond the last 8 of a thread, with all that belongs to them; gives how many."""
    tx.execute(
        "DELETE FROM stops WHERE thread_id = ?1 AND state <> 'pending' AND no <= (SELECT no FROM stops"
        " WHERE thread_id = ?1 AND state <> 'pending' ORDER BY no DESC LIMIT 1 OFFSET ?2)",
        (thread_id, MOST_STOPS),
    )
    row = tx.row(
        "SELECT no FROM turns WHERE thread_id = ? AND settled_at IS NOT NULL ORDER BY no DESC LIMIT 1 OFFSET ?",
        (thread_id, MOST_TURNS),
    )
    if row is None:
        return 0
    interactions.forget_turns(tx, thread_id, row[0])
    return tx.execute(
        "DELETE FROM turns WHERE thread_id = ? AND settled_at IS NOT NULL AND no <= ?", (thread_id, row[0])
    )


def page(reader: Reader, thread_id: str) -> list[Turn]:
    """The turns of a thread that are kept, newest first."""
    return [
        turn_of(row)
        for row in reader.rows(f"SELECT {TURN_COLUMNS} FROM turns WHERE thread_id = ? ORDER BY no DESC", (thread_id,))
    ]


def items(reader: Reader, turn_no: int) -> list[Item]:
    """The items of a turn that are kept, in order."""
    return [
        Item(number=number, item_type=item_type, fields=json.loads(fields), at=at)
        for number, item_type, fields, at in reader.rows(
            "SELECT number, item_type, fields, at FROM turn_items WHERE turn_no = ? ORDER BY number", (turn_no,)
        )
    ]
