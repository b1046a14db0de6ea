"""Which sessions something alive protects from being deleted.

Invariant: fails closed. A lease or lock whose expiry cannot be read counts as live; any row of the runtime ledger
counts, whatever its state, because only the release that wrote it may retire it. Not for: taking or breaking leases.
Leases are compared with wall time because that is the clock hermes-agent writes them with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from maintenance.dialects.base import StoreShape
from maintenance.dialects.cells import chunks, decode_key, decode_text, key_bytes, key_list, text_cell, time_sql

if TYPE_CHECKING:
    from hermes_state.engine import Reader
    from maintenance.lineage import Forest

# Runtime ledger tables and the column that names a session.
LEDGER_TABLES = {"session_admissions": "target_session_id", "worker_executions": "session_id"}


def find_guards(
    reader: Reader, shape: StoreShape, forest: Callable[[], Forest], ids: Sequence[str], now: float
) -> dict[str, str]:
    """The protected ones among `ids`, each with the reason in words. `forest` is called only when a lease is live."""
    guards: dict[str, str] = {}
    if "session_turn_leases" in shape.tables:
        leases = _live(reader, "session_turn_leases", "conversation_id", now)
        if leases:
            lineage = forest()
            for session_id in ids:
                owner = leases.get(lineage.root(session_id), leases.get(session_id))
                if owner is not None:
                    guards[session_id] = f"a turn is running (lease of {owner})"
    if "compression_locks" in shape.tables:
        locks = _live(reader, "compression_locks", "session_id", now)
        for session_id in ids:
            if session_id in locks:
                guards.setdefault(session_id, f"it is being compressed (lock of {locks[session_id]})")
    for table, column in LEDGER_TABLES.items():
        if table in shape.tables:
            for session_id in _ledger(reader, table, column, ids):
                guards.setdefault(session_id, f"the runtime ledger has rows for it ({table})")
    return guards


def _live(reader: Reader, table: str, column: str, now: float) -> dict[str, str]:
    expiry = time_sql("expires_at")
    rows = reader.rows(
        f"SELECT CAST({column} AS BLOB), substr({text_cell('holder')}, 1, 200) FROM {table}"
        f" WHERE {column} IS NOT NULL AND ({expiry} IS NULL OR {expiry} > ?)",
        (now,),
    )
    return {decode_key(key): decode_text(owner) or "an unnamed owner" for key, owner in rows}


def _ledger(reader: Reader, table: str, column: str, ids: Sequence[str]) -> set[str]:
    found: set[str] = set()
    for part in chunks(ids):
        rows = reader.rows(
            f"SELECT DISTINCT CAST({column} AS BLOB) FROM {table} WHERE {column} IN {key_list(len(part))}",
            [key_bytes(key) for key in part],
        )
        found.update(decode_key(row[0]) for row in rows)
    return found
