"""The cases of the recovery measurements, by name: what is damaged, and how much of it others bring back.

Invariant: a case does the same to the same file and seed. The percentages are measured on a 40 MB database of 18,928
rows (index, external FTS, 367 free pages, values in 20 KB overflow chains; Linux, SQLite 3.40.1 and 3.54.1): rows
recovered byte-identical. On another file they are what to reach at least where the damage takes the same share of it;
`reference_database` builds one of that shape. In a small file the counts in the names are upper limits: at most a
quarter of the pages is hit, so that something is left to bring back.

Not for: inventing damage at random, see `flip_bits` and `garbage_pages`. A list of damaged files was rejected: nobody
could tell what is wrong with them, and a new layout would need a new list.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hermes_state.errors import NotFound
from hermes_state.testing.page_damage import (
    Damage,
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
from hermes_state.testing.pages import DatabaseFile
from hermes_state.testing.wal_damage import break_wal_checksum, cut_wal, delete_wal, mismatch_wal, zero_wal_header


@dataclass(frozen=True, kw_only=True)
class Reference:
    """Percent of rows that came back byte-identical, and how many more came back with wrong content."""

    plain: float
    bisect: float
    # `.recover` of a sqlite3 3.40.1 that was built with the dbpage table
    recover: float
    # reading pages by the format; `lenient` where frames of any salt and checksum are taken too
    carver: float
    lenient: float | None = None
    plain_wrong: int = 0
    bisect_wrong: int = 0
    recover_wrong: int = 0
    carver_wrong: int = 0


@dataclass(frozen=True, kw_only=True)
class Case:
    """One way to damage a closed store: `case.apply(path, table, seed)`."""

    name: str
    # what SQLite 3.54 says of it: an error, or ok
    sqlite: str
    # what the file must have: wal, interior (three levels), overflow, fts, freelist, index
    needs: frozenset[str]
    # None for a case without a measurement
    reference: Reference | None
    # (path, table, seed) -> what was done, None for the control
    apply: Callable[[Path, str, int], Damage | None]


def _index_of(path: Path, table: str) -> str:
    with DatabaseFile(path) as file:
        names = [row.name for row in file.schema() if row.kind == "index" and row.table == table and row.root]
    if not names:
        raise NotFound(f"{path} has no index on {table}.", hint="Name another table.", path=path, table=table)
    return names[0]


def _few(path: Path, table: str, wanted: int, *, overflow: bool = False) -> int:
    """At most a quarter of the pages that a small file has, so that something is left to bring back."""
    with DatabaseFile(path) as file:
        tree = file.tree(file.object(table).root)
    return max(1, min(wanted, len(tree.overflow if overflow else tree.leaves) // 4))


def _few_bits(path: Path, wanted: int) -> int:
    with DatabaseFile(path) as file:
        return max(1, min(wanted, file.page_count // 4))


def _leaves_beside_wal(path: Path, table: str, seed: int) -> Damage:
    return zero_leaves(path, table, _few(path, table, 5), seed)


def _case(
    name: str, sqlite: str, apply: Callable[[Path, str, int], Damage | None], reference: Reference | None = None,
    needs: str = "",
) -> Case:
    return Case(name=name, sqlite=sqlite, needs=frozenset(needs.split()), reference=reference, apply=apply)


def _same(percent: float) -> Reference:
    return Reference(plain=percent, bisect=percent, recover=percent, carver=percent)


def _all(plain: float, bisect: float, recover: float, carver: float) -> Reference:
    return Reference(plain=plain, bisect=bisect, recover=recover, carver=carver)


_LIST = [
    _case("header_zeroed", "NotADB", lambda p, t, s: zero_header(p), _all(0, 0, 100, 100)),
    _case("page_1_zeroed", "NotADB", lambda p, t, s: zero_page(p, 1), _all(0, 0, 100, 100)),
    _case("root_zeroed", "Corrupt", lambda p, t, s: zero_root(p, t), _all(0, 0, 100, 100)),
    _case(
        "interior_zeroed", "Corrupt", lambda p, t, s: zero_interior(p, t, 1, s), _all(0, 85.7, 100, 100), "interior"
    ),
    _case(
        "one_leaf_zeroed", "Corrupt", lambda p, t, s: zero_leaves(p, t, 1, s), _all(50.2, 99.96, 99.96, 99.96)
    ),
    _case(
        "twenty_leaves_zeroed", "Corrupt", lambda p, t, s: zero_leaves(p, t, _few(p, t, 20), s),
        _all(3.7, 99.38, 99.38, 99.38),
    ),
    _case(
        "twenty_overflow_zeroed", "Corrupt",
        lambda p, t, s: zero_overflow(p, t, _few(p, t, 20, overflow=True), s),
        Reference(
            plain=1.2, bisect=99.89, bisect_wrong=8, recover=99.89, recover_wrong=20, carver=99.89, carver_wrong=8
        ), "overflow",
    ),
    _case(
        "cut_to_70_percent", "Corrupt", lambda p, t, s: truncate(p, 0.7),
        Reference(plain=0, bisect=71.6, recover=74.6, recover_wrong=21, carver=74.6),
    ),
    _case(
        "cut_to_90_percent_and_777_bytes", "Corrupt", lambda p, t, s: truncate(p, 0.9, 777),
        Reference(plain=0, bisect=95.2, recover=95.2, recover_wrong=14, carver=95.2),
    ),
    _case(
        "two_hundred_bits_flipped", "Corrupt", lambda p, t, s: flip_bits(p, _few_bits(p, 200), s),
        Reference(
            plain=18.6, plain_wrong=20, bisect=99.38, bisect_wrong=114, recover=99.38, recover_wrong=116,
            carver=99.38, carver_wrong=102,
        ),
    ),
    _case(
        "twenty_garbage_pages", "Corrupt", lambda p, t, s: garbage_pages(p, _few(p, t, 20), s),
        Reference(plain=6.1, bisect=99.73, bisect_wrong=4, recover=99.73, recover_wrong=8, carver=99.73),
    ),
    _case(
        "schema_row_duplicated", "malformed schema", lambda p, t, s: duplicate_schema_row(p, t), _all(0, 100, 100, 100)
    ),
    _case(
        "schema_sql_garbage", "malformed schema", lambda p, t, s: garbage_schema_sql(p, t, s), _all(0, 0, 0, 100)
    ),
    _case("fts_blocks_overwritten", "fts corrupt", lambda p, t, s: damage_fts(p, "blocks", s), _same(100), "fts"),
    _case("fts_data_missing", "fts corrupt", lambda p, t, s: damage_fts(p, "missing", s), _same(100), "fts"),
    _case("fts_pages_zeroed", "fts corrupt", lambda p, t, s: damage_fts(p, "pages", s), None, "fts"),
    _case("freelist_trunk_bad", "Corrupt", lambda p, t, s: break_freelist(p), _same(100)),
    _case("leaves_swapped", "Corrupt", lambda p, t, s: swap_leaves(p, t, s), _same(100)),
    _case(
        "index_leaf_zeroed", "Corrupt", lambda p, t, s: zero_leaves(p, _index_of(p, t), 1, s), _same(100), "index"
    ),
    _case("wal_control", "ok", lambda p, t, s: None, _same(100), "wal"),
    _case("wal_cut_mid_frame", "ok", lambda p, t, s: cut_wal(p), _same(96.57), "wal"),
    _case(
        "wal_bad_checksum", "ok", lambda p, t, s: break_wal_checksum(p),
        Reference(plain=93.13, bisect=93.13, recover=93.13, carver=93.13, lenient=100), "wal",
    ),
    _case(
        "wal_header_zeroed", "ok", lambda p, t, s: zero_wal_header(p),
        Reference(plain=89.43, bisect=89.43, recover=89.43, recover_wrong=565, carver=89.43, lenient=100), "wal",
    ),
    _case(
        "wal_deleted", "ok", lambda p, t, s: delete_wal(p),
        Reference(plain=89.43, bisect=89.43, recover=89.43, recover_wrong=565, carver=89.43), "wal",
    ),
    _case("wal_mismatched", "ok", lambda p, t, s: mismatch_wal(p), None, "wal"),
    _case(
        "five_leaves_zeroed_beside_wal", "Corrupt", _leaves_beside_wal, _all(1.4, 99.82, 99.82, 99.82), "wal"
    ),
]
CASES: dict[str, Case] = {case.name: case for case in _LIST}
