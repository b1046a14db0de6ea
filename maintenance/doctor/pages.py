"""The page verdict: are the b-trees of the file whole, and if not, which table or index is hit.

Invariant: the verdict comes from SQLite's page check without FTS5, so that a search index that disagrees with its text
cannot look like a damaged file. The object is found by asking each table and each b-tree apart (a check of one table,
dbstat of one tree, a scan of one index), never by reading SQLite's words. A check that raises is a finding.

Not for: search indexes (`search`), repair. Mapping the "Tree 9 page 11" of a message was rejected: it is text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hermes_state.engine import Reader, ReadStore
from hermes_state.errors import StateError
from maintenance.dialects.foreign.shape import SEARCH_PREFIXES
from maintenance.doctor.disorder import disordered_indexes, table_in_order
from maintenance.doctor.findings import (
    NOT_UTF8,
    Finding,
    Severity,
    is_bad_text,
    is_damage,
    recover_command,
    repair_command,
)
from maintenance.doctor.page_lists import list_finding, shared_pages
from maintenance.doctor.salvageable import Readable, readable_rows
from maintenance.output.text import plural
from maintenance.quoting import literal, quoted
from maintenance.space.sizes import SHADOWS, is_fulltext

QUOTED_LINES = 5


@dataclass(frozen=True, kw_only=True)
class Tree:
    """One b-tree of the file."""

    # Its name in the schema.
    name: str
    # The table it belongs to; itself for a table.
    table: str
    # True for an index.
    index: bool
    # The search index that it stores, "" when it is not a shadow table.
    search_index: str


def page_findings(pages: ReadStore, modules: ReadStore, *, whole_schema: bool = True) -> list[Finding]:
    """Check every page. `pages` is a reader without FTS5, `modules` one with everything.

    Without a whole schema, trees that no usable entry names look like pages that nothing uses: that is left out.
    """
    said, problem = _quick_check(pages, "PRAGMA quick_check(100)")
    if not said and problem is None:
        number = pages.row("PRAGMA page_count")
        total = int(number[0]) if number else 0
        return [
            Finding(
                code="pages",
                severity=Severity.OK,
                object=str(pages.path),
                sentence=f"All {plural(total, 'page')} are whole.",
                facts={"pages": total},
            )
        ]
    facts = {"said": said[:QUOTED_LINES], **_codes(problem)}
    try:
        trees = _trees(pages)
    except StateError as error:
        return [
            Finding(
                code="schema_damaged",
                severity=Severity.DAMAGE,
                object="sqlite_schema",
                sentence="The schema of the file cannot be read, so no table can be reached by SQL.",
                facts={**facts, **_codes(error)},
                next_command=recover_command(pages.path),
            )
        ]
    # A table whose definition SQLite cannot use is said by the look at the schema, and has no name to ask for.
    usable = {str(row[1]).lower() for row in pages.rows("PRAGMA table_list")}
    tables = dict.fromkeys(tree.table for tree in trees if whole_schema or tree.table.lower() in usable)
    located = [finding for table in tables for finding in _table_findings(pages, modules, table, trees)]
    if located:
        return located
    shared = _shared_findings(modules, trees, facts)
    if shared or not whole_schema:
        return shared
    return [list_finding(modules, facts)]


def _shared_findings(modules: ReadStore, trees: list[Tree], facts: Mapping[str, object]) -> list[Finding]:
    """Trees that have a page in common: each is whole by itself, and at least one of them shows foreign rows."""
    shared = shared_pages(modules)
    return [
        _tree_finding(modules, tree, pages, facts)
        for tree in trees
        if (pages := sorted(page for page, owners in shared.items() if tree.name in owners))
    ]


_CONTENT_ELSEWHERE = re.compile(r"\bcontent\s*=", re.IGNORECASE)


def _trees(reader: Reader) -> list[Tree]:
    # As blobs, since the text of a damaged schema need not be UTF-8.
    cells = ", ".join(f"CAST({column} AS BLOB)" for column in ("type", "name", "tbl_name", "sql"))
    found = reader.rows(f"SELECT {cells}, rootpage FROM sqlite_schema")
    rows = [(*(bytes(cell or b"").decode(errors="replace") for cell in texts), root) for *texts, root in found]
    shadow_of = {
        f"{name}_{shadow}": str(name)
        for kind, name, _table, sql, _root in rows
        if kind == "table" and is_fulltext(sql)
        for shadow in SHADOWS
        # Where another program keeps a text only in its own index, that table holds rows.
        if shadow != "content" or str(name).startswith(SEARCH_PREFIXES) or _CONTENT_ELSEWHERE.search(sql)
    }
    return [
        Tree(name=str(name), table=str(table), index=kind == "index", search_index=shadow_of.get(str(table), ""))
        for kind, name, table, _sql, root in rows
        if kind in ("table", "index") and root
    ]


def _table_findings(pages: Reader, modules: ReadStore, table: str, trees: list[Tree]) -> list[Finding]:
    """What is wrong with one table and its indexes; nothing when it is whole."""
    try:
        return _located(pages, modules, table, trees)
    except (StateError, UnicodeDecodeError) as error:
        if not is_bad_text(error):
            raise
        return [
            Finding(
                code="schema_damaged",
                severity=Severity.DAMAGE,
                object=table,
                sentence=f"The definition of {table} in the schema is damaged: {NOT_UTF8}.",
                facts={"table": table},
                next_command=recover_command(pages.path),
            )
        ]


def _located(pages: Reader, modules: ReadStore, table: str, trees: list[Tree]) -> list[Finding]:
    """Which of the b-trees of a table is hit, or what is wrong with its content."""
    said, problem = _quick_check(pages, f"PRAGMA quick_check({literal(table)})")
    if not said and problem is None:
        return []
    facts = {"said": said[:QUOTED_LINES], **_codes(problem)}
    own = [tree for tree in trees if tree.table == table]
    broken = {tree.name: bad for tree in own if (bad := _bad_pages(modules, tree.name))}
    for tree in own:
        if tree.name not in broken and not _can_be_scanned(modules, tree):
            broken[tree.name] = []
    if broken:
        return [_tree_finding(pages, tree, broken[tree.name], facts) for tree in own if tree.name in broken]
    nulls = list(_forbidden_nulls(pages, table))
    if nulls:
        return nulls
    if table_in_order(modules, table):
        wrong = disordered_indexes(modules, table)
        if wrong:
            return [_tree_finding(pages, tree, [], facts) for tree in own if tree.name in wrong]
    return [_tree_finding(pages, own[0], [], facts)]


def _tree_finding(reader: Reader, tree: Tree, bad: list[int], facts: Mapping[str, object]) -> Finding:
    where = f" ({'page' if len(bad) == 1 else 'pages'} {', '.join(map(str, bad[:8]))})" if bad else ""
    facts = {**facts, "pages": bad, "table": tree.table}
    if tree.search_index:
        return Finding(
            code="search_index_pages_damaged",
            severity=Severity.DAMAGE,
            object=tree.search_index,
            sentence=f"Pages of the search index {tree.search_index} are damaged in {tree.name}{where}; "
            "no conversation is in them.",
            facts=facts,
            next_command=repair_command(reader.path),
            derived=True,
        )
    if tree.index:
        return Finding(
            code="index_damaged",
            severity=Severity.DAMAGE,
            object=tree.name,
            sentence=f"The index {tree.name} of the table {tree.table} is damaged{where}; the rows are in the table, "
            "not in it. SQLite refuses changes that touch it.",
            facts=facts,
            next_command=repair_command(reader.path),
            derived=True,
        )
    readable = readable_rows(reader, tree.table)
    return Finding(
        code="table_damaged",
        severity=Severity.DAMAGE,
        object=tree.table,
        sentence=f"The table {tree.table} is damaged{where}{_readable_words(readable)}. "
        "A copy made now carries the same damage; stop Hermes and keep older backups.",
        facts={**facts, "rows_listed": readable.listed, "rows_readable": readable.readable, "by": readable.by},
        next_command=recover_command(reader.path),
    )


def _readable_words(readable: Readable) -> str:
    if readable.listed is None or readable.readable is None:
        return ""
    return f"; {readable.readable:,} of {plural(readable.listed, 'row')} can be read by key"


def _quick_check(reader: Reader, sql: str) -> tuple[list[str], StateError | None]:
    """The lines of a check other than "ok", and the error when it raised instead of answering."""
    try:
        said = [str(row[0]) for row in reader.rows(sql)]
    except StateError as error:
        if error.retryable:
            raise  # a lock that was not obtained says nothing about the pages
        return ([NOT_UTF8], None) if is_bad_text(error) else ([], error)
    except UnicodeDecodeError:
        return [NOT_UTF8], None  # names in a damaged schema
    return ([] if said == ["ok"] else said), None


def _bad_pages(reader: Reader, tree: str) -> list[int]:
    """Pages of one b-tree that are no b-tree pages, by SQLite's own decoder."""
    try:
        rows = reader.rows("SELECT pageno FROM dbstat WHERE name = ? AND pagetype = 'corrupted'", (tree,))
    except StateError:
        return []  # the scan of the same tree that follows says whether it can be walked
    return sorted(int(row[0]) for row in rows)


def _can_be_scanned(reader: Reader, tree: Tree) -> bool:
    """Whether every cell of a b-tree can be read in order."""
    table = quoted(tree.table)
    try:
        columns = [str(row[1]) for row in reader.rows(f"PRAGMA table_xinfo({literal(tree.table)})")]
        if not tree.index:
            lengths = ", ".join(f"length(CAST({quoted(column)} AS BLOB))" for column in columns)
            for _row in reader.iterate(f"SELECT {lengths} FROM {table} NOT INDEXED"):
                pass
            return True
        indexes = reader.rows(f"PRAGMA index_list({literal(tree.table)})")
        whole = {str(found) for _sequence, found, _unique, _origin, partial in indexes if not partial}
        if tree.name in whole:
            for _row in reader.iterate(f"SELECT 1 FROM {table} INDEXED BY {quoted(tree.name)}"):
                pass
    except StateError as error:
        if is_bad_text(error):
            raise
        return not is_damage(error)
    return True


def _forbidden_nulls(reader: Reader, table: str) -> Iterator[Finding]:
    """NULL where the schema forbids it: wrong content in whole pages."""
    for _cid, name, _type, notnull, _default, key, _hidden in reader.rows(f"PRAGMA table_xinfo({literal(table)})"):
        if not notnull or key:
            continue
        # Not IS NULL, which SQLite answers from the schema, and not from an index, which may hold the older value.
        column = quoted(str(name))
        row = reader.row(f"SELECT count(*) FROM {quoted(table)} NOT INDEXED WHERE typeof({column}) = 'null'")
        number = int(row[0]) if row else 0
        if number:
            yield Finding(
                code="null_in_required_column",
                severity=Severity.DAMAGE,
                object=f"{table}.{name}",
                sentence=f"{plural(number, 'row')} of {table} {'has' if number == 1 else 'have'} nothing in {name}, "
                "which the schema forbids: the content of a page was overwritten, or a program skipped the check.",
                facts={"rows": number, "table": table, "column": str(name)},
                next_command=recover_command(reader.path),
            )


def _codes(error: StateError | None) -> dict[str, int | None]:
    if error is None:
        return {}
    return {"sqlite_code": error.sqlite_code, "sqlite_extended": error.sqlite_extended}
