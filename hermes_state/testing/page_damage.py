"""Damage for the main file of a closed database, each kind by name, byte-exact and the same for the same seed.

Invariant: a function changes the bytes it says and no others, and returns them as a `Damage`; it finds its pages by
the file format (see `pages`), for hermes-agent files, native stores and `search.db` alike. A file that this process
has open is refused. Damage of pages goes into the main file, and only into pages that no WAL frame stands for.

Not for: files that another process has open. Damaging by SQL was rejected: SQLite would repair, checkpoint or refuse.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hermes_state.engine import is_open
from hermes_state.errors import InvalidInput, NotFound
from hermes_state.testing import schema_edits
from hermes_state.testing.pages import HEADER_BYTES, DatabaseFile, SchemaRow, pages_in_wal

FtsDamage = Literal["blocks", "pages", "missing"]


@dataclass(frozen=True, kw_only=True)
class Damage:
    """What was done to a file."""

    # the name of the function
    kind: str
    # numbers of the pages hit, from 1, in order; for the WAL, the pages whose frames were lost
    pages: tuple[int, ...] = ()
    # tables and indexes that were aimed at
    objects: tuple[str, ...] = ()


def zero_header(path: Path | str) -> Damage:
    """Zero the first 100 bytes; the rest of page 1, which is the start of the schema, stays."""
    with _closed(path) as file:
        file.put(1, bytes(HEADER_BYTES))
    return Damage(kind="zero_header", pages=(1,))


def zero_page(path: Path | str, number: int) -> Damage:
    """Zero one page, from 1. Page 1 takes the schema with it."""
    with _closed(path) as file:
        file.page(number)
        file.put(number, bytes(file.page_size))
    return Damage(kind="zero_page", pages=(number,))


def zero_root(path: Path | str, name: str) -> Damage:
    """Zero the root page of a table or index."""
    with _closed(path) as file:
        root = file.object(name).root
        file.put(root, bytes(file.page_size))
    return Damage(kind="zero_root", pages=(root,), objects=(name,))


def zero_interior(path: Path | str, name: str, count: int = 1, seed: int = 0) -> Damage:
    """Zero interior pages below the root. Raises `NotFound` for a tree that has none (fewer than three levels)."""
    with _closed(path) as file:
        tree = file.tree(file.object(name).root)
        pages = _some(path, [page for page in tree.interiors if page != tree.root], count, seed, f"interior of {name}")
        _fill(file, pages)
    return Damage(kind="zero_interior", pages=pages, objects=(name,))


def zero_leaves(path: Path | str, table: str, count: int = 1, seed: int = 0) -> Damage:
    """Zero leaf pages of a table or index; a root that is its only leaf counts as one."""
    with _closed(path) as file:
        pages = _some(path, file.tree(file.object(table).root).leaves, count, seed, f"leaf of {table}")
        _fill(file, pages)
    return Damage(kind="zero_leaves", pages=pages, objects=(table,))


def zero_overflow(path: Path | str, table: str, count: int = 1, seed: int = 0) -> Damage:
    """Zero overflow pages of a table or index: the end of large values, and the way to what follows in the chain."""
    with _closed(path) as file:
        pages = _some(path, file.tree(file.object(table).root).overflow, count, seed, f"overflow page of {table}")
        _fill(file, pages)
    return Damage(kind="zero_overflow", pages=pages, objects=(table,))


def truncate(path: Path | str, fraction: float, extra: int = 0) -> Damage:
    """Cut the file to `fraction` of its pages, rounded down, plus `extra` bytes."""
    with _closed(path) as file:
        kept = int(file.page_count * fraction) * file.page_size + extra
        lost = tuple(range(kept // file.page_size + 1, file.page_count + 1))
    os.truncate(path, kept)
    return Damage(kind="truncate", pages=lost)


def flip_bits(path: Path | str, count: int = 1, seed: int = 0, *, table: str | None = None) -> Damage:
    """Flip single bits anywhere behind page 1, or in the leaf and overflow pages of `table`."""
    chance = random.Random(seed)
    with _closed(path) as file:
        pages = _candidates(path, file, table)
        hit = []
        for _ in range(count):
            page, at = chance.choice(pages), chance.randrange(file.page_size)
            file.put(page, bytes([file.page(page)[at] ^ 1 << chance.randrange(8)]), at=at)
            hit.append(page)
    return Damage(kind="flip_bits", pages=tuple(sorted(set(hit))), objects=(table,) if table else ())


def garbage_pages(path: Path | str, count: int = 1, seed: int = 0, *, table: str | None = None) -> Damage:
    """Fill whole pages behind page 1, or leaf and overflow pages of `table`, with random bytes."""
    with _closed(path) as file:
        pages = _some(path, _candidates(path, file, table), count, seed, "page")
        chance = random.Random(seed)
        for page in pages:
            file.put(page, chance.randbytes(file.page_size))
    return Damage(kind="garbage_pages", pages=pages, objects=(table,) if table else ())


def swap_leaves(path: Path | str, table: str, seed: int = 0) -> Damage:
    """Swap the content of two leaf pages: every row is there, none at its place."""
    with _closed(path) as file:
        first, second = _some(path, file.tree(file.object(table).root).leaves, 2, seed, f"pair of leaves of {table}")
        was = file.page(first)
        file.put(first, file.page(second))
        file.put(second, was)
    return Damage(kind="swap_leaves", pages=(first, second), objects=(table,))


def duplicate_schema_row(path: Path | str, name: str | None = None) -> Damage:
    """Put a second row for an object into sqlite_schema; without a name, for the smallest row that has a statement."""
    with _closed(path) as file:
        row = file.object(name) if name else min(
            (row for row in file.schema() if row.sql and row.root), key=lambda row: row.cell.payload_bytes
        )
        pages = schema_edits.add_copy(file, row)
    return Damage(kind="duplicate_schema_row", pages=tuple(sorted(pages)), objects=(row.name,))


def garbage_schema_sql(path: Path | str, name: str, seed: int = 0) -> Damage:
    """Write as many bytes of nonsense over the CREATE statement of an object; the row's other columns stay."""
    with _closed(path) as file:
        row = file.object(name)
        if row.sql is None:
            raise InvalidInput(f"{name} has no statement in {path}.", hint="Name a table.", path=Path(path), name=name)
        size = len(row.sql.encode(file.encoding))
        chance = random.Random(seed)
        left = bytes(chance.choice(b"#%&!?x~") for _ in range(size))
        # The statement is the last column: the last `size` bytes of the payload, from its end backwards.
        pages = []
        for page, at, length in reversed(file.spans(row.cell)):
            part = left[-length:] if len(left) >= length else left
            if not part:
                break
            file.put(page, part, at=at + length - len(part))
            left = left[: len(left) - len(part)]
            pages.append(page)
    return Damage(kind="garbage_schema_sql", pages=tuple(sorted(pages)), objects=(name,))


def break_freelist(path: Path | str) -> Damage:
    """Make the first trunk page name more free pages than fit; without free pages, call the last page a trunk."""
    with _closed(path) as file:
        trunks, _ = file.freelist()
        trunk = trunks[0] if trunks else file.page_count
        if not trunks:
            file.put(1, trunk.to_bytes(4, "big") + (1).to_bytes(4, "big"), at=32)
            return Damage(kind="break_freelist", pages=(1,))
        file.put(trunk, (file.usable // 4 + 1000).to_bytes(4, "big"), at=4)
    return Damage(kind="break_freelist", pages=(trunk,))


def damage_fts(path: Path | str, how: FtsDamage = "blocks", seed: int = 0, *, table: str | None = None) -> Damage:
    """Damage an FTS5 index, the first one in the file unless `table` names it; messages stay whole.

    `blocks`: random bytes in the index's own blocks, all b-tree pages stay whole. `pages`: a quarter of the leaf pages
    of its data table zeroed. `missing`: the data table is no longer in the schema.
    """
    with _closed(path) as file:
        data = _fts_data(path, file, table)
        if how == "missing":
            pages = tuple(schema_edits.remove(file, data))
        elif how == "pages":
            leaves = file.tree(data.root).leaves
            pages = _some(path, leaves, max(1, len(leaves) // 4), seed, f"leaf of {data.name}")
            _fill(file, pages)
        else:
            pages = _scramble(file, data.root, random.Random(seed))
            if not pages:
                raise NotFound(
                    f"The index of {data.name} in {path} is empty.", hint="Let it be filled first.", path=Path(path)
                )
    return Damage(kind=f"damage_fts:{how}", pages=pages, objects=(data.name,))


# --- parts ------------------------------------------------------------------------------------------------------------


def _closed(path: Path | str) -> DatabaseFile:
    refuse_open(path)
    return DatabaseFile(path)


def refuse_open(path: Path | str) -> None:
    if Path(path).exists() and is_open(path):
        raise InvalidInput(f"This process has {path} open.", hint="Close it first.", path=Path(path))


def _some(path: Path | str, pages: Sequence[int], count: int, seed: int, what: str) -> tuple[int, ...]:
    """`count` of the pages that the main file answers for, in order."""
    hidden = pages_in_wal(path)
    seen = [page for page in pages if page not in hidden]
    if len(seen) < count:
        raise NotFound(
            f"{path} has {len(seen)} of the {count} pages asked for ({what}).",
            hint="Use a larger file, or copy its WAL back first.", path=Path(path), found=len(seen), wanted=count,
        )
    return tuple(sorted(random.Random(seed).sample(seen, count)))


def _candidates(path: Path | str, file: DatabaseFile, table: str | None) -> list[int]:
    hidden = pages_in_wal(path)
    if table is None:
        return [page for page in range(2, file.page_count + 1) if page not in hidden]
    tree = file.tree(file.object(table).root)
    return [page for page in (*tree.leaves, *tree.overflow) if page not in hidden]


def _fill(file: DatabaseFile, pages: Sequence[int]) -> None:
    for page in pages:
        file.put(page, bytes(file.page_size))


def _fts_data(path: Path | str, file: DatabaseFile, table: str | None) -> SchemaRow:
    rows = {row.name: row for row in file.schema()}
    for row in rows.values():
        data = rows.get(f"{row.name}_data")
        if table in (None, row.name) and data and row.sql and "fts5" in row.sql.lower():
            return data
    raise NotFound(
        f"{path} has no FTS5 index{f' {table}' if table else ''}.", hint="A native store keeps it in search.db.",
        path=Path(path), table=table,
    )


def _scramble(file: DatabaseFile, root: int, chance: random.Random) -> tuple[int, ...]:
    """Random bytes over the middle of every block behind the first ten rows' worth of bookkeeping (ids 1 and 10)."""
    pages = []
    for leaf in file.tree(root).leaves:
        for cell in file.cells(leaf):
            # The payload is a record header, then the block; its first 16 bytes stay, so that the row stays a row.
            for page, at, size in file.spans(cell):
                if cell.rowid > 10 and size > 24:
                    file.put(page, chance.randbytes(size - 16), at=at + 16)
                    pages.append(page)
    return tuple(sorted(set(pages)))
