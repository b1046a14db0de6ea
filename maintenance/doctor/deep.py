"""Comparisons that take long: ordinary indexes with their rows, and search indexes with theirs on a private copy.

Invariant: the store itself is only read, by the backup API. FTS5 compares an external-content index with its rows only
through an INSERT on the index; that runs on a copy in a private folder that is removed afterwards.

Not for: inline indexes, which a reading check covers. Running the statement on the store and rolling it back was
rejected: it takes the write lock for as long as the comparison lasts.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hermes_state.engine import NulRule, Reader, ReadStore, open_write
from hermes_state.errors import InsufficientSpace, StateError
from maintenance.doctor.disorder import disordered_indexes
from maintenance.doctor.findings import Finding, Severity, is_damage, repair_command
from maintenance.doctor.fulltext import fulltext_indexes
from maintenance.doctor.nul_rule import rule_of_store
from maintenance.output.text import human_bytes
from maintenance.quoting import literal, quoted

SPARE_BYTES = 64 << 20


def deep_findings(store: ReadStore, *, folder: Path | None = None) -> list[Finding]:
    """Compare every external-content index with its rows. `folder` is where the copy goes (default: TMPDIR)."""
    names = [index.name for index in fulltext_indexes(store) if index.layout == "external"]
    if not names:
        return []
    place = folder or Path(tempfile.gettempdir())
    needed = store.page_count * store.page_size + SPARE_BYTES
    free = shutil.disk_usage(place).free
    if free < needed:
        raise InsufficientSpace(
            f"--deep needs {human_bytes(needed)} in {place} for a private copy, and {human_bytes(free)} is free.",
            hint="Set TMPDIR to a folder with room, or run without --deep.",
            needed_bytes=needed,
            free_bytes=free,
            directory=str(place),
        )
    rule = rule_of_store(store)
    with tempfile.TemporaryDirectory(prefix="hermes-doctor-", dir=place) as private:
        copy = Path(private) / "copy.db"
        store.backup_to(copy)
        return [_compare(copy, index, rule, store.path) for index in names]


def index_content_findings(pages: Reader) -> list[Finding]:
    """Compare every ordinary index with the rows of its table: whole pages can still hold wrong entries."""
    found = []
    for (table,) in pages.rows("SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0 ORDER BY name"):
        if not _ok(pages, "quick_check", str(table)) or _ok(pages, "integrity_check", str(table)):
            continue
        named = [f"The index {name}" for name in disordered_indexes(pages, str(table))]
        found.append(
            Finding(
                code="index_content_differs",
                severity=Severity.DAMAGE,
                object=str(table),
                sentence=f"{', '.join(named) or 'An index'} of the table {table} disagrees with its rows, although all "
                "pages are whole.",
                next_command=repair_command(pages.path),
                derived=True,
            )
        )
    return found


def _ok(reader: Reader, check: str, table: str) -> bool:
    """Whether a check of one table says "ok"; one that meets damage does not, and any other failure decides nothing."""
    try:
        return reader.rows(f"PRAGMA {check}({literal(table)})") == [("ok",)]
    except StateError as error:
        if not is_damage(error):
            raise
        return False


def _compare(copy: Path, index: str, rule: NulRule, path: Path) -> Finding:
    table = quoted(index)
    try:
        with open_write(copy, foreign=True, nul_rule=rule) as store, store.transaction(durability="process") as tx:
            tx.execute(f"INSERT INTO {table}({table}, rank) VALUES ('integrity-check', 1)")
    except StateError as error:
        if not is_damage(error):
            raise
        return Finding(
            code="search_rows_differ",
            severity=Severity.DAMAGE,
            object=index,
            sentence=f"The search index {index} does not agree with the messages; no conversation is affected.",
            facts={"rule": rule.value, "sqlite_code": error.sqlite_code, "sqlite_extended": error.sqlite_extended},
            next_command=repair_command(path),
            derived=True,
        )
    return Finding(
        code="search_index_deep",
        severity=Severity.OK,
        object=index,
        sentence=f"The search index {index} agrees with the messages (compared on a private copy).",
        facts={"rule": rule.value},
    )
