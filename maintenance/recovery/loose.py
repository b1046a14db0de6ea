"""Tables so narrow that the rows of nearly any table fit them, and what a row of such a table is known by.

Invariant: a row that only its types give to such a table is not put into it. The names of keys are those that
hermes-agent 0.13 to 0.19 writes to `state_meta`; a key that is not among them proves nothing either way.

Not for: rows on pages that the table's own root reaches, or keys that an index of the table lists. Scoring narrow
tables lower was rejected: two texts are two texts, however they are scored.
"""

from __future__ import annotations

from collections.abc import Sequence

from maintenance.interop.typed import Cell
from maintenance.recovery.schema import Table

# Columns beside the rowid's up to which types alone say nothing.
NARROW = 2
_META_KEYS = frozenset({
    "last_auto_prune", "last_vacuum", "ghost_session_prune_v1", "orphaned_compression_finalize_v1",
    "telegram_dm_topic_schema_version", "db_file_generation",
})
_META_BEGINNINGS = ("fts_", "loop:", "goal:", "gateway.mutation.v1.")
_NEWEST_VERSION = 999


def is_narrow(table: Table) -> bool:
    """Whether a table has so few columns that types do not tell its rows from those of others."""
    return len(table.names) - (table.alias is not None) <= NARROW


def is_known_by(table: Table, key: int | str, cells: Sequence[Cell]) -> bool:
    """Whether the values themselves say that a row is of this table."""
    if table.name == "state_meta" and table.names[:2] == ("key", "value"):
        name = cells[0]
        return isinstance(name, str) and (name in _META_KEYS or name.startswith(_META_BEGINNINGS))
    if table.name == "schema_version":
        version = cells[0]
        return key == 1 and isinstance(version, int) and 0 < version <= _NEWEST_VERSION
    return False
