"""Which entries of the schema table are wrong, when SQLite refuses the schema as a whole.

Invariant: read through a tolerant reader, which shows what SQLite can use; an entry that it does not show is faulty,
and what kind of entry it is says what can be lost by it. A table's definition is canonical. An index, a trigger, a
view, a duplicate, or an entry for a table that does not exist is not: the rows do not need it.

Not for: putting it right (`repair`). Asking SQLite which entry it stopped at was rejected: it says so only in words,
and only of the first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from hermes_state.engine import Reader
from hermes_state.errors import StateError
from maintenance.doctor.findings import Finding, Severity, recover_command, repair_command
from maintenance.quoting import literal
from maintenance.space.sizes import SHADOWS

Fault = Literal["duplicate", "unusable", "orphan"]
_VIRTUAL = re.compile(r"^\s*create\s+virtual\b", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One row of the schema table."""

    # Its rowid, the only thing that tells two equal entries apart.
    rowid: int
    # table, index, view, trigger, or whatever stands there.
    kind: str
    name: str
    # The table it belongs to.
    table: str
    # First page of its tree, 0 for none.
    root: int
    # Its definition, "" for none; bytes that are not UTF-8 replaced.
    sql: str


@dataclass(frozen=True, kw_only=True)
class FaultyEntry:
    """An entry that SQLite cannot use."""

    entry: Entry
    # "duplicate" of an earlier one, "unusable" definition or root, "orphan" of a table that does not exist.
    fault: Fault
    # Whether rows are reached through it: a table that is not part of a search index.
    canonical: bool


def entries(reader: Reader) -> list[Entry]:
    """Every row of the schema table, in its order."""
    cells = ", ".join(f"CAST({column} AS BLOB)" for column in ("type", "name", "tbl_name", "sql"))
    found = []
    for rowid, root, *texts in reader.rows(f"SELECT rowid, rootpage, {cells} FROM sqlite_schema ORDER BY rowid"):
        kind, name, table, sql = (bytes(text or b"").decode(errors="replace") for text in texts)
        number = root if isinstance(root, int) else -1
        found.append(Entry(rowid=rowid, kind=kind, name=name, table=table, root=number, sql=sql))
    return found


def faulty_entries(reader: Reader) -> list[FaultyEntry]:
    """The entries that SQLite cannot use, of a reader that was opened tolerant."""
    found = entries(reader)
    usable = {str(row[1]).lower() for row in reader.rows("PRAGMA table_list")}
    pages = int((reader.row("PRAGMA page_count") or (0,))[0])
    named = {entry.name.lower() for entry in found if entry.kind == "table"}
    seen: set[tuple[str, str]] = set()
    faults: list[FaultyEntry] = []
    for entry in found:
        key = (entry.kind, entry.name.lower())
        canonical = entry.kind == "table" and not _of_search_index(entry, named)
        if key in seen:
            faults.append(FaultyEntry(entry=entry, fault="duplicate", canonical=False))
            continue
        seen.add(key)
        fault = _fault(reader, entry, usable, named, pages)
        if fault is not None:
            faults.append(FaultyEntry(entry=entry, fault=fault, canonical=canonical))
    return faults


def _fault(reader: Reader, entry: Entry, usable: set[str], named: set[str], pages: int) -> Fault | None:
    known = entry.name.lower() in usable
    if entry.kind == "table":
        virtual = entry.root == 0 and bool(_VIRTUAL.match(entry.sql))
        return None if known and (virtual or 1 <= entry.root <= pages) else "unusable"
    if entry.kind == "view":
        return None if known else "unusable"
    if entry.kind == "index":
        if entry.table.lower() not in named:
            return "orphan"
        if entry.table.lower() not in usable:
            return None  # the table's own entry is the fault
        listed = {str(row[1]).lower() for row in reader.rows(f"PRAGMA index_list({literal(entry.table)})")}
        return None if entry.name.lower() in listed and 1 <= entry.root <= pages else "unusable"
    if entry.kind == "trigger":
        if entry.table.lower() not in {*named, *usable}:
            return "orphan"
        head = rf"^\s*create\s+(temp\w*\s+)?trigger\s+(if\s+not\s+exists\s+)?(\w+\.)?[\"'\[`]?{re.escape(entry.name)}\b"
        return None if re.match(head, entry.sql, re.IGNORECASE) else "unusable"
    return "orphan"


def _of_search_index(entry: Entry, named: set[str]) -> bool:
    """Whether a table is a full-text index or one of the tables behind one, by the tables that stand beside it."""
    name = entry.name.lower()
    bases = {name, *(name.removesuffix(f"_{shadow}") for shadow in SHADOWS if name.endswith(f"_{shadow}"))}
    return any({f"{base}_{shadow}" for shadow in ("data", "idx", "config")} <= named for base in bases)


_WORDS = {
    "duplicate": "stands in the schema twice",
    "unusable": "has a definition in the schema that SQLite cannot use",
    "orphan": "stands in the schema and belongs to a table that does not exist",
}


def schema_findings(reader: Reader, problem: StateError) -> Iterator[Finding]:
    """What is wrong with the schema that SQLite refused with `problem`."""
    codes = {"sqlite_code": problem.sqlite_code, "sqlite_extended": problem.sqlite_extended}
    faults = faulty_entries(reader)
    for fault in faults:
        entry = fault.entry
        what = f"{entry.kind or 'entry'} {entry.name or '(no name)'}"
        facts = {**codes, "fault": fault.fault, "kind": entry.kind, "table": entry.table, "rowid": entry.rowid}
        ending = "the rows do not depend on it." if not fault.canonical else "its rows may still be there."
        yield Finding(
            code="schema_damaged" if fault.canonical else "schema_entry_damaged",
            severity=Severity.DAMAGE,
            object=entry.name or "sqlite_schema",
            sentence=f"The {what} {_WORDS[fault.fault]}, so no program can open the store; {ending}",
            facts=facts,
            next_command=(recover_command if fault.canonical else repair_command)(reader.path),
            derived=not fault.canonical,
        )
    if not faults:
        yield Finding(
            code="schema_damaged",
            severity=Severity.DAMAGE,
            object="sqlite_schema",
            sentence="SQLite refuses the schema of the file, and no single entry of it can be named.",
            facts=codes,
            next_command=recover_command(reader.path),
        )
