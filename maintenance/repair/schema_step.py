"""Entries of the schema that SQLite cannot use, taken out or written anew on the private copy.

Invariant: only entries are touched, never a tree; of two entries for one name the first stays, and only when both name
the same tree; the schema cookie rises with every change, so no connection goes on with what it had read before. What is
taken out and can be made again from a known definition is made again.

Not for: definitions of tables that hold rows; without them the rows can only be salvaged.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from hermes_state.engine import NulRule
from hermes_state.engine.private import PrivateCopy, open_private
from hermes_state.errors import Corrupt, IOFailure, StateError
from maintenance.doctor.findings import recover_command
from maintenance.doctor.schema_entries import Entry, FaultyEntry, entries, faulty_entries
from maintenance.repair.report import Step

_INLINE = re.compile(r"\busing\s+fts5\b", re.IGNORECASE)
_CONTENT = re.compile(r"\bcontent\s*=", re.IGNORECASE)


def mend_schema(
    copy: Path, known: Mapping[tuple[str, str], str], rule: NulRule, diagnosed: Collection[object]
) -> list[Step]:
    """Take out what SQLite cannot use, then make again what is known. Raises `Corrupt` for a definition of a table.

    `diagnosed`: rowids of the entries that the diagnosis found. Raises `IOFailure` when others are found now.
    """
    steps: list[Step] = []
    removed: list[FaultyEntry] = []
    with open_private(copy, search_modules=False, tolerant=True) as private:
        found = {entry.rowid: entry for entry in entries(private)}
        faults = faulty_entries(private)
        _require_same(copy, {fault.entry.rowid for fault in faults}, set(diagnosed))
        for fault in faults:
            if fault.canonical or not _may_go(fault, found.values()):
                raise Corrupt(
                    f"The definition of the table {fault.entry.name} in {copy} is damaged, and its rows cannot be "
                    "reached without it.",
                    hint=f"Run `{recover_command(copy)}`.", path=copy, search_index=False,
                )
            private.rows("DELETE FROM sqlite_schema WHERE rowid = ?", (fault.entry.rowid,))
            removed.append(fault)
        raise_cookie(private)
    for fault in removed:
        entry = fault.entry
        sql = ""
        if fault.fault == "unusable":
            sql = known.get((entry.kind, entry.name), "") or trigger_like_its_sibling(list(found.values()), entry.name)
        made = bool(sql) and _made(copy, sql, rule)
        how = "made anew" if made else "entry removed"
        steps.append(Step(kind="schema", object=entry.name, how=how))
    return steps


def _require_same(copy: Path, now: set[int], diagnosed: set[object]) -> None:
    """Two looks must agree: a failed read leaves SQLite with a part of the schema, silently, when it is opened so."""
    if now != diagnosed:
        raise IOFailure(
            f"Two looks at the schema of {copy} found {len(diagnosed)} and {len(now)} entries that cannot be used.",
            hint="Check the disk, then run the same command again; nothing was changed.", path=copy, errno=0,
        )


def make_missing(copy: Path, name: str, kind: str, known: Mapping[tuple[str, str], str], rule: NulRule) -> list[Step]:
    """Make an index or a trigger that the schema of this release has and the file lacks."""
    sql = known.get((kind, name), "")
    if not sql:
        return []
    with open_private(copy, nul_rule=rule) as private:
        private.rows(sql)
    return [Step(kind="schema", object=name, how="made anew")]


def raise_cookie(private: PrivateCopy) -> None:
    """Tell every connection that the schema is another one, as each ordinary change of it does."""
    row = private.row("PRAGMA schema_version")
    private.rows(f"PRAGMA schema_version = {int(row[0]) + 1 if row else 1}")


def _may_go(fault: FaultyEntry, found: Iterable[Entry]) -> bool:
    """A duplicate goes only when the entry that stays names the same tree: else both may hold rows."""
    if fault.fault != "duplicate" or fault.entry.kind != "table":
        return True
    twins = [
        entry
        for entry in found
        if entry.kind == "table" and entry.name.lower() == fault.entry.name.lower()
    ]
    return len({entry.root for entry in twins}) == 1


def _made(copy: Path, sql: str, rule: NulRule) -> bool:
    """Whether the statement could be run; one that does not fit this file is left out, and the report says so."""
    try:
        with open_private(copy, nul_rule=rule, tolerant=True) as private:
            private.rows(sql)
    except StateError as error:
        if error.sqlite_code in (11, 26):
            raise
        return False
    return True


def trigger_like_its_sibling(found: list[Entry], name: str) -> str:
    """The statement of a search index's trigger, from that of the file's other index of the same form; "" without one.

    The two inline indexes of a hermes-agent file have the same three triggers but for the name of the index.
    """
    inline = [
        entry.name for entry in found
        if entry.kind == "table" and _INLINE.search(entry.sql) and not _CONTENT.search(entry.sql)
    ]
    for event in ("insert", "delete", "update"):
        for index in inline:
            if name != f"{index}_{event}":
                continue
            for other in inline:
                twin = [one.sql for one in found if one.kind == "trigger" and one.name == f"{other}_{event}"]
                if other != index and twin:
                    return re.sub(rf"\b{re.escape(other)}(?=\b|_{event}\b)", index, twin[0])
    return ""
