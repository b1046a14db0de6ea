"""Ordinary indexes, built again from the rows of their table on the private copy.

Invariant: rows are only read. The index is first built anew in its own tree (REINDEX); where that tree cannot even be
emptied, a new one takes its place in the schema and the old pages are left to the rewrite that follows. A UNIQUE index
that the rows contradict is not built: that is a question for a person.

Not for: finding out which index is damaged (`doctor`). DROP INDEX was rejected as a second try: it empties
the same tree.
"""

from __future__ import annotations

from pathlib import Path

from hermes_state.engine.private import PrivateCopy, open_private
from hermes_state.errors import RepairFailed, StateError
from maintenance.doctor.findings import recover_command
from maintenance.quoting import literal, quoted
from maintenance.repair.report import Step
from maintenance.repair.schema_step import raise_cookie

SCRATCH = "hermes_state_repair_scratch"
CONSTRAINT = 19


def rebuild_index(copy: Path, store: Path, name: str) -> tuple[Step, bool]:
    """Build one index again; the second item says whether pages of the old one are left to a rewrite of the file."""
    try:
        with open_private(copy, tolerant=True) as private:
            private.rows(f"REINDEX {quoted(name)}")
        return Step(kind="index", object=name, how="rebuilt in place"), False
    except StateError as error:
        if error.sqlite_code == CONSTRAINT:
            raise _contradicted(store, name) from error
        if error.sqlite_code != 11:
            raise
    try:
        _new_tree(copy, name)
    except StateError as error:
        if error.sqlite_code == CONSTRAINT:
            raise _contradicted(store, name) from error
        raise
    return Step(kind="index", object=name, how="made anew"), True


def _new_tree(copy: Path, name: str) -> None:
    """Give an index a new tree without touching the old one."""
    with open_private(copy, search_modules=False, tolerant=True) as private:
        found = private.row("SELECT tbl_name, sql FROM sqlite_schema WHERE type = 'index' AND name = ?", (name,))
        if found is None:
            raise RepairFailed(f"{copy} has no index {name}.", hint="", path=copy, step="index")
        table, sql = str(found[0]), found[1]
        if sql is None:
            # The index of a key has no statement of its own: an equal one is made, and its tree is handed over.
            private.rows(f"CREATE UNIQUE INDEX {SCRATCH} ON {quoted(table)}({_columns(private, name)})")
            row = private.row("SELECT rootpage FROM sqlite_schema WHERE name = ?", (SCRATCH,))
            private.rows("UPDATE sqlite_schema SET rootpage = ? WHERE name = ?", (row[0] if row else 0, name))
            private.rows("DELETE FROM sqlite_schema WHERE name = ?", (SCRATCH,))
        else:
            private.rows("DELETE FROM sqlite_schema WHERE type = 'index' AND name = ?", (name,))
        raise_cookie(private)
    if sql is not None:
        with open_private(copy, tolerant=True) as private:
            private.rows(str(sql))


def _columns(private: PrivateCopy, name: str) -> str:
    """The columns of an index with collation and direction, as a CREATE INDEX names them."""
    parts = [
        f"{quoted(str(column))} COLLATE {quoted(str(collation))}{' DESC' if falling else ''}"
        for _no, _cid, column, falling, collation, key in private.rows(f"PRAGMA index_xinfo({literal(name)})")
        if key
    ]
    return ", ".join(parts)


def _contradicted(store: Path, name: str) -> RepairFailed:
    return RepairFailed(
        f"The index {name} of {store} cannot be built again: it allows each value once, and rows of its table repeat "
        "one. The store is as it was.",
        hint=f"Run `{recover_command(store)}`: it keeps the newest of equal rows and lists the others.",
        path=store, step=f"index {name}",
    )
