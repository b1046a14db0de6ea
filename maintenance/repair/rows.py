"""The rows of a private copy in numbers, to prove that a repair lost and changed none.

Invariant: every ordinary table is read in full, by its own tree and never by an index, with the type of each value; the
tables behind search indexes are left out, because a repair makes those anew. A table that cannot be read in full has no
print: then nothing is repaired.

Not for: reading what is damaged (`sessions recover`). Comparing counts alone was rejected: two swapped rows have the
right count.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from hashlib import blake2b

from hermes_state.engine import Reader
from hermes_state.errors import RepairFailed
from maintenance.doctor.findings import recover_command
from maintenance.output.text import plural
from maintenance.quoting import literal, quoted
from maintenance.repair.report import TablePrint
from maintenance.space.verify import row_tables


def row_prints(reader: Reader) -> dict[str, TablePrint]:
    """The print of every ordinary table. Raises `Corrupt` where one cannot be read."""
    return {table: _print_of(reader, table) for table in (*row_tables(reader), *_sequence(reader))}


def foreign_key_breaches(reader: Reader) -> int:
    """Rows that refer to a row that does not exist."""
    return sum(1 for _row in reader.iterate("PRAGMA foreign_key_check"))


def require_same_rows(
    path: object, step: str, before: dict[str, TablePrint], after: dict[str, TablePrint]
) -> None:
    """Raise `RepairFailed` when a table has other rows than before."""
    differing = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    if not differing:
        return
    counts = ", ".join(f"{name} {_count(before, name)} -> {_count(after, name)}" for name in differing[:5])
    raise RepairFailed(
        f"The repair of {path} was thrown away: after the step {step} {plural(len(differing), 'table')} had other rows "
        f"than before ({counts}). The store is as it was.",
        hint=f"Run `{recover_command(path)}`: it reads the rows into a new file.",  # type: ignore[arg-type]
        path=path, step=step, tables=differing,
    )


def _count(prints: dict[str, TablePrint], name: str) -> str:
    found = prints.get(name)
    return "gone" if found is None else f"{found.rows:,}"


def _sequence(reader: Reader) -> Iterable[str]:
    """The table of AUTOINCREMENT: what it holds decides the ids that come next."""
    row = reader.row("SELECT 1 FROM sqlite_schema WHERE name = 'sqlite_sequence'")
    return () if row is None or "sqlite_sequence" in row_tables(reader) else ("sqlite_sequence",)


def _print_of(reader: Reader, table: str) -> TablePrint:
    columns = [
        quoted(str(name))
        for _cid, name, _type, _notnull, _default, _key, hidden in reader.rows(f"PRAGMA table_xinfo({literal(table)})")
        if hidden in (0, 1)
    ]
    # Text as its bytes: it need not be UTF-8, and equal text is equal bytes.
    cells = ", ".join(
        f"substr(typeof({column}), 1, 1), "
        f"CASE typeof({column}) WHEN 'text' THEN CAST({column} AS BLOB) ELSE {column} END"
        for column in columns
    )
    digest = blake2b(digest_size=20)
    rows = 0
    for row in reader.iterate(f"SELECT {cells} FROM {quoted(table)} NOT INDEXED"):
        rows += 1
        for kind, value in zip(row[::2], row[1::2], strict=True):
            content = _bytes(value)
            digest.update(f"{kind}{len(content)}:".encode())
            digest.update(content)
    return TablePrint(rows=rows, digest=digest.hexdigest())


def _bytes(value: object) -> bytes:
    if isinstance(value, float):
        return struct.pack(">d", value)
    if isinstance(value, int):
        return str(value).encode()
    return b"" if value is None else bytes(value)  # type: ignore[call-overload]
