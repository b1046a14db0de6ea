"""The corruption library: every kind of damage by name, and the cases of the recovery table.

Invariant: each function works on a closed file, changes the bytes it says and no others, does the same for the same
seed, and returns them as a `Damage`. `CASES` are the rows of the recovery measurements, each with its reference.

Not for: programs other than tests. One module for all of it was rejected: pages, WAL and cases are read apart.
"""

from __future__ import annotations

from hermes_state.testing.damage_cases import CASES, Case
from hermes_state.testing.page_damage import (
    Damage,
    FtsDamage,
    break_freelist,
    damage_fts,
    duplicate_schema_row,
    flip_bits,
    garbage_pages,
    garbage_schema_sql,
    swap_leaves,
    truncate,
    zero_header,
    zero_interior,
    zero_leaves,
    zero_overflow,
    zero_page,
    zero_root,
)
from hermes_state.testing.wal_damage import (
    break_wal_checksum,
    cut_wal,
    delete_wal,
    mismatch_wal,
    wal_checksum,
    zero_wal_header,
)

__all__ = [
    "CASES", "Case", "Damage", "FtsDamage", "break_freelist", "break_wal_checksum", "cut_wal", "damage_fts",
    "delete_wal", "duplicate_schema_row", "flip_bits", "garbage_pages", "garbage_schema_sql", "mismatch_wal",
    "swap_leaves", "truncate", "wal_checksum", "zero_header", "zero_interior", "zero_leaves", "zero_overflow",
    "zero_page", "zero_root", "zero_wal_header",
]
