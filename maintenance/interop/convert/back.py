"""What became since of kept rows that were owed, for the way back: nothing that was sent here is sent by hermes-agent.

Invariant: a cell differs from the kept one only where the obligation was settled after the conversion. Not for: writing
the kept rows, which are never changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from hermes_state.errors import InvalidInput
from hermes_state.outbox.states import State
from hermes_state.work.background import LAST_WORD, delegation_key
from maintenance.dialects.native.owed import has_outbox
from maintenance.interop.adopt.source import PREFIX
from maintenance.interop.convert.delegations import DELEGATIONS
from maintenance.interop.convert.deliveries import BACK, DELIVERIES, OPEN, dedupe_id
from maintenance.interop.typed import Cell
from maintenance.quoting import quoted

if TYPE_CHECKING:
    from hermes_state.engine import Reader

_KEYS = {DELIVERIES: "obligation_id", DELEGATIONS: "delegation_id"}


def settled_since(
    reader: Reader, document: Mapping[str, Any], table: str
) -> tuple[str, Mapping[Cell, Mapping[str, Cell]]]:
    """The column that names a row of a kept table, and by that the cells that it has by now, where they changed."""
    key = _KEYS.get(table)
    converted = document.get("converted")
    if key is None or converted is None or table not in converted["rows"]:
        return "", {}
    since, changed = float(converted["at"]), dict[Cell, Mapping[str, Cell]]()
    for name, own in _still_open(reader, table):
        if table == DELIVERIES:
            row = reader.row("SELECT state, settled_at FROM outbox WHERE dedupe_id = ?", (own,))
        else:
            row = reader.row(f"SELECT {LAST_WORD} FROM background_work WHERE key = ?", (own,))
        if row is None or row[0] is None or row[1] is None or row[1] <= since:
            continue
        said = BACK[State(row[0])]
        if table == DELIVERIES:
            changed[name] = {"state": said, "updated_at": row[1]}
        elif said == "delivered":
            changed[name] = {"delivery_state": said, "delivered_at": row[1]}
        else:
            changed[name] = {"delivery_state": "dropped"}
    return key, changed


def owed_in_both(reader: Reader, document: Mapping[str, Any] | None) -> int:
    """How many kept rows would be owed here and by hermes-agent, were they given back now."""
    if document is None or document.get("converted") is None or not has_outbox(reader.rows):
        return 0
    return sum(
        reader.row("SELECT 1 FROM outbox WHERE dedupe_id = ? AND settled_at IS NULL", (own,)) is not None
        for table in _KEYS for _name, own in _still_open(reader, table)
    )


def _still_open(reader: Reader, table: str) -> Iterator[tuple[str, str]]:
    """Kept rows that hermes-agent would send: what they are called there, and the dedupe id here."""
    if reader.row("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?", (PREFIX + table,)) is None:
        return
    key, state = _KEYS[table], "state" if table == DELIVERIES else "delivery_state"
    marks = ", ".join("?" * len(OPEN))
    for (raw,) in reader.rows(
        f"SELECT CAST({key} AS BLOB) FROM {quoted(PREFIX + table)} WHERE typeof({key}) = 'text'"
        f" AND {state} IN ({marks})", OPEN,
    ):
        try:
            name = raw.decode()
            yield name, dedupe_id(name) if table == DELIVERIES else delegation_key(name)
        except (UnicodeDecodeError, InvalidInput):
            continue  # such a name was never converted
