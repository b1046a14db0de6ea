"""Damage that a repair puts right, by name, for the tests of repair; and what must be the same before and after."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hermes_state.clock import SYSTEM
from hermes_state.engine.private import open_private
from hermes_state.testing import corruption
from maintenance.doctor.examine import Options, examine
from maintenance.doctor.findings import Severity
from maintenance.repair.report import TablePrint
from maintenance.repair.rows import row_prints
from tests.maintenance.damage import change
from tests.maintenance.external_layout import convert

NEWEST = "(SELECT max(id) FROM messages)"


def schema(path: Path, statement: str) -> None:
    """Change the schema table of a closed file by hand."""
    with open_private(path, search_modules=False, tolerant=True) as private:
        private.rows(statement)


def with_free_pages(path: Path) -> None:
    change(path, "CREATE TABLE filler(x)", "INSERT INTO filler VALUES (zeroblob(40000))", "DROP TABLE filler")
    corruption.break_freelist(path)


def external(path: Path, how: str) -> None:
    convert(path)
    corruption.damage_fts(path, how, 1)  # type: ignore[arg-type]


GARBAGE = "UPDATE sqlite_schema SET sql = {} WHERE name = '{}'"
# Name -> (damage, objects that the steps are about).
FOREIGN: dict[str, tuple[Callable[[Path], object], set[str]]] = {
    "leaf of an index": (lambda p: corruption.zero_leaves(p, "idx_messages_session", 1, 1), {"idx_messages_session"}),
    "root of an index": (lambda p: corruption.zero_root(p, "idx_sessions_source"), {"idx_sessions_source"}),
    "root of a key": (
        lambda p: corruption.zero_root(p, "sqlite_autoindex_sessions_1"), {"sqlite_autoindex_sessions_1"}
    ),
    "freelist": (with_free_pages, {"freelist"}),
    "table twice in the schema": (lambda p: corruption.duplicate_schema_row(p, "messages"), {"messages"}),
    "index twice in the schema": (
        lambda p: corruption.duplicate_schema_row(p, "idx_sessions_source"), {"idx_sessions_source"}
    ),
    "definition of an index": (
        lambda p: schema(p, GARBAGE.format("'CREATE INDEX @@'", "idx_sessions_source")), {"idx_sessions_source"}
    ),
    "definition of a trigger": (
        lambda p: schema(p, GARBAGE.format("'CREATE TRIGGER (('", "messages_fts_insert")), {"messages_fts_insert"}
    ),
    "root number of an index": (
        lambda p: schema(p, "UPDATE sqlite_schema SET rootpage = 99999 WHERE name = 'idx_sessions_source'"),
        {"idx_sessions_source"},
    ),
    "index of no table": (
        lambda p: schema(p, "INSERT INTO sqlite_schema VALUES('index','lost','gone',5,'CREATE INDEX lost ON gone(a)')"),
        {"lost"},
    ),
    "blocks of a search index": (lambda p: corruption.damage_fts(p, "blocks", 1), {"messages_fts"}),
    "data of a search index gone": (lambda p: corruption.damage_fts(p, "missing", 1), {"messages_fts"}),
    "pages of a search index": (lambda p: corruption.damage_fts(p, "pages", 1), {"messages_fts"}),
    "text of the trigram index": (
        lambda p: corruption.zero_leaves(p, "messages_fts_trigram_content", 1, 1), {"messages_fts_trigram"}
    ),
    "row missing in a search index": (
        lambda p: change(p, f"DELETE FROM messages_fts WHERE rowid = {NEWEST}"), {"messages_fts"}
    ),
    "row stale in a search index": (
        lambda p: change(p, f"UPDATE messages_fts SET content = 'old' WHERE rowid = {NEWEST}"), {"messages_fts"}
    ),
    "blocks of an external index": (lambda p: external(p, "blocks"), {"messages_fts"}),
    "pages of an external index": (lambda p: external(p, "pages"), {"messages_fts"}),
}


def prints(path: Path) -> dict[str, TablePrint]:
    """The rows of every ordinary table of a closed file."""
    with open_private(path, search_modules=False, tolerant=True) as private:
        return row_prints(private)


def problems(path: Path) -> list[tuple[str, str]]:
    """What the doctor, its slow checks included, finds wrong."""
    found = examine(path, path.parent, Options(deep=True), clock=SYSTEM).findings
    return [(one.code, one.object) for one in found if one.severity >= Severity.WARNING]


def damaged_folders(path: Path) -> list[str]:
    """Names of what is kept of damaged states beside a store."""
    return sorted(item.name for item in path.parent.glob(f"{path.name}.replaced-damage-*"))
