"""The checks around a rewrite, and proof that nothing changed between a check and the lock.

Invariant: the page verdict and the verdicts on search indexes are kept apart, because SQLite 3.54 mixes them and they
mean different things: damaged pages stop a rewrite, a damaged index only keeps itself from being merged. An exception
while checking is a finding, never a pass; one that a retry may cure, such as a lock, says nothing and goes on up.

Not for: naming repairs (`doctor`). Checking under the exclusive lock was rejected: on a large file it is most of the
time, and programs that start meanwhile would fail to open the store.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_state.engine import NulRule
from hermes_state.errors import Corrupt, StateError
from hermes_state.shell_words import shell_word
from maintenance.gate import reading
from maintenance.output.progress import Progress, progress
from maintenance.output.text import plural
from maintenance.quoting import quoted
from maintenance.space.segments import fulltext_tables
from maintenance.space.sizes import SHADOWS, TRASH_PREFIX, is_fulltext, pragma, wal_of

if TYPE_CHECKING:
    from hermes_state.engine import Reader
    from maintenance.context import Context

MOST_PROBLEMS = 20


@dataclass(frozen=True, kw_only=True)
class Stamp:
    """What a store looked like at one moment, without reading its content."""

    # (device, inode, size, mtime in ns) of the main file.
    main: tuple[int, int, int, int] | None
    # The same of its -wal file, None when there is none or it is empty.
    wal: tuple[int, int, int, int] | None
    # Pages, free pages and schema cookie as SQLite counts them.
    counters: tuple[int, int, int]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What the checks of one moment say."""

    # Findings of the page check; empty means sound.
    pages: tuple[str, ...]
    # Finding for each damaged search index, by its name.
    indexes: dict[str, str]
    # Whether the search indexes were checked at all.
    indexes_checked: bool
    # Seconds that the checks took.
    seconds: float

    def document(self) -> dict[str, object]:
        """The fields of `--json`."""
        return {
            "pages": "ok" if not self.pages else list(self.pages),
            "search_indexes": dict(self.indexes) if self.indexes_checked else None,
            "seconds": round(self.seconds, 3),
        }


def check(ctx: Context, *, quick: bool) -> tuple[Verdict, Stamp]:
    """Check pages, and unless `quick` the search indexes; the stamp belongs to the state that was checked."""
    started = ctx.clock.monotonic()
    indexes: dict[str, str] = {}
    with progress(None, "checking pages") as bar:
        with reading(ctx, search_modules=False) as reader:
            before = stamp(reader)
            pages = page_problems(reader)
        # On damaged pages an index check says nothing new, and may read the damage as its own.
        if not quick and not pages:
            indexes = index_problems(ctx, bar)
    seconds = ctx.clock.monotonic() - started
    return Verdict(pages=pages, indexes=indexes, indexes_checked=not quick and not pages, seconds=seconds), before


def page_problems(reader: Reader) -> tuple[str, ...]:
    """What SQLite's page check says of a store that was opened without search modules; empty means sound."""
    try:
        found = reader.rows(f"PRAGMA quick_check({MOST_PROBLEMS})")
    except StateError as error:
        if error.retryable:
            raise
        return (str(error),)
    return tuple(str(text) for (text,) in found if text != "ok")


def first_line(problems: Iterable[str]) -> str:
    """The first line of findings that says something: SQLite puts `*** in database main ***` before those of pages."""
    lines = [line.strip() for text in problems for line in text.splitlines()]
    return next((line for line in lines if line and not line.startswith("***")), "")


def index_problems(ctx: Context, bar: Progress | None = None) -> dict[str, str]:
    """The search indexes that are damaged whichever way their tokenizer treats NUL, with the finding."""
    suspects = {}
    with reading(ctx) as reader:
        for name in fulltext_tables(reader):
            if bar is not None:
                bar.restart(None, f"checking {name}")
            if text := index_problem(reader, name):
                suspects[name] = text
    if not suspects:
        return {}
    # A mismatch that vanishes when trigrams stop at NUL, as in SQLite 3.40, is not damage.
    with reading(ctx, nul_rule=NulRule.CUT) as reader:
        return {name: text for name in suspects if (text := index_problem(reader, name))}


def index_problem(reader: Reader, name: str) -> str:
    """What the check of one index says; empty means sound."""
    # Imported here: the checks of pages need none of it.
    from maintenance.doctor.search import check_index

    return check_index(reader, name).said


def foreign_key_problems(reader: Reader) -> int:
    """Rows that point to a row that does not exist."""
    return len(reader.rows("PRAGMA foreign_key_check"))


def stamp(reader: Reader) -> Stamp:
    """The moment's stamp, taken through an open store."""
    return Stamp(
        main=_identity(reader.path),
        wal=_identity(wal_of(reader.path)),
        counters=(pragma(reader, "page_count"), pragma(reader, "freelist_count"), pragma(reader, "schema_version")),
    )


def _identity(path: Path) -> tuple[int, int, int, int] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    if found.st_size == 0:
        return None
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def row_tables(reader: Reader) -> tuple[str, ...]:
    """Ordinary tables whose rows a rewrite must keep; the tables behind search indexes are theirs to change."""
    found = reader.rows("SELECT name, sql FROM sqlite_schema WHERE type = 'table' ORDER BY name")
    indexes = [str(name) for name, sql in found if is_fulltext(sql)]
    shadows = {f"{index}_{shadow}" for index in indexes for shadow in SHADOWS}
    return tuple(
        str(name)
        for name, _sql in found
        if name not in shadows and name not in indexes and not str(name).startswith(("sqlite_stat", TRASH_PREFIX))
    )


def row_counts(reader: Reader, tables: Iterable[str]) -> dict[str, int]:
    """Rows of each table."""
    counts: dict[str, int] = {}
    for table in tables:
        found = reader.row(f"SELECT count(*) FROM {quoted(table)}")
        counts[table] = int(found[0]) if found else 0
    return counts


def require_same_counts(path: Path, before: dict[str, int], after: dict[str, int]) -> None:
    """Raise when a rewrite changed how many rows a table has."""
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    if changed:
        listed = ", ".join(f"{name} {before.get(name)} -> {after.get(name)}" for name in changed)
        raise Corrupt(
            f"The rewrite of {path} changed the number of rows: {listed}.",
            hint=f"Stop all Hermes processes of this home and run `hermes-state doctor --db {shell_word(path)}`.",
            path=path,
            search_index=False,
        )


def require_sound(path: Path, verdict: Verdict, *, when: str) -> None:
    """Raise when the page check found damage."""
    if verdict.pages:
        more = f" ({plural(len(verdict.pages), 'finding')})" if len(verdict.pages) > 1 else ""
        raise Corrupt(
            f"{path} is damaged, found {when}: {first_line(verdict.pages)}{more}.",
            hint=f"Rewriting a damaged file can lose rows. Run `hermes-state doctor --db {shell_word(path)}` first.",
            path=path,
            findings=verdict.pages,
            search_index=False,
        )
