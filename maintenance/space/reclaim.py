"""Returning free pages to the file system: when it pays, and the two ways to do it.

Invariant: the live file keeps its inode; every rewrite goes through SQLite's pager under the exclusive lock. A copy is
a new private file beside the store, is verified against the store before it is used, and is removed afterwards.

Not for: renaming a compact copy over the store (measured: lost rows, corruption, a replica that dies silently).
Always rewriting, as `VACUUM` after each prune does, was rejected: a store with 1 % free pages is written twice for
nothing.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hermes_state.engine import open_read
from hermes_state.errors import Corrupt
from hermes_state.shell_words import shell_word
from maintenance.output.text import human_bytes
from maintenance.quoting import quoted
from maintenance.space.copy_back import keep_short
from maintenance.space.disk import Need, fits_in_memory, temporary_directory
from maintenance.space.sizes import Sizes, directory_of, pragma
from maintenance.space.verify import foreign_key_problems, page_problems, row_counts

if TYPE_CHECKING:
    from hermes_state.clock import Clock
    from hermes_state.engine import ExclusiveStore, Reader, Store

Policy = Literal["auto", "always", "never"]
Method = Literal["vacuum", "copy"]

DEFAULT_ABOVE_PERCENT = 10.0
INCREMENTAL = 2  # value of PRAGMA auto_vacuum
STEP_PAGES = 64
_PAUSE_LEAST_SECONDS = 0.004
COPY_MARK = ".compact-copy-"
_TEMP_IN_MEMORY = 2  # values of PRAGMA temp_store
_TEMP_ON_DISK = 1

Progress = Callable[[int], None]


@dataclass(frozen=True, kw_only=True)
class Decision:
    """Whether free pages are returned, and why."""

    # True when a rewrite will run.
    runs: bool
    # Bytes that it returns.
    free_bytes: int
    # Free pages as a share of all pages, 0 to 1.
    free_share: float
    # The reason in words, with the figures.
    reason: str

    def line(self) -> str:
        """The sentence of a report."""
        if not self.free_bytes:
            return f"Free pages: none; {self.reason}."
        return f"Free pages {'returned' if self.runs else 'kept'}: {self.reason}."

    def document(self) -> dict[str, object]:
        """The fields of `--json`."""
        return {
            "runs": self.runs,
            "free_bytes": self.free_bytes,
            "free_share": round(self.free_share, 4),
            "reason": self.reason,
        }


def decide(found: Sizes, policy: Policy, above_percent: float) -> Decision:
    """Return pages when their share is above the threshold, or as the policy says."""
    share = 100 * found.free_share
    figures = f"{share:.1f} % of the file is free ({human_bytes(found.free_bytes)})"
    if policy == "never":
        runs, reason = False, f"{figures}; not returned, as asked with --reclaim never"
    elif policy == "always":
        done = "returned" if found.free_pages else "rewritten all the same"
        runs, reason = True, f"{figures}; {done}, as asked with --reclaim always"
    elif share > above_percent:
        runs, reason = True, f"{figures}, above the threshold of {above_percent:g} %"
    else:
        runs, reason = False, f"{figures}, not above the threshold of {above_percent:g} %: a rewrite does not pay"
    return Decision(runs=runs, free_bytes=found.free_bytes, free_share=found.free_share, reason=reason)


def decide_online(found: Sizes, policy: Policy, auto_vacuum: int) -> Decision:
    """The same beside other processes, where only a file that was created for it can give pages back."""
    if policy == "never":
        return decide(found, policy, DEFAULT_ABOVE_PERCENT)
    runs = auto_vacuum == INCREMENTAL
    return Decision(
        runs=runs,
        free_bytes=found.free_bytes,
        free_share=found.free_share,
        reason=("in small steps, beside other processes" if found.free_pages else "nothing to return")
        if runs
        else "the file has no incremental vacuum, so its free pages wait for new rows or for a rewrite with nobody "
        "else on it",
    )


def needs(path: Path, found: Sizes, *, method: Method, journal_mode: str, merge_bytes: int) -> list[Need]:
    """What merging and a rewrite write at their peak, and where."""
    beside = directory_of(path)
    # In WAL mode the WAL holds every rewritten page; in rollback mode the journal holds the old ones.
    log = found.used_bytes if journal_mode == "wal" else found.page_count * found.page_size
    wanted = [Need(directory=beside, bytes=merge_bytes + log, what="the store's log")]
    if method == "copy":
        wanted.append(Need(directory=beside, bytes=found.used_bytes, what="the compact copy"))
    elif not fits_in_memory(found.used_bytes):
        wanted.append(Need(directory=temporary_directory(), bytes=found.used_bytes, what="SQLite's temporary copy"))
    return wanted


def vacuum(store: ExclusiveStore, found: Sizes, progress: Progress | None = None) -> None:
    """Rewrite the store in place.

    SQLite builds the compact content in a temporary file first. Kept in memory where that fits, it saves one write and
    one read of the whole content; what makes the rewrite safe is the WAL, which is written and synced either way.
    """
    store.tune(temp_store=_TEMP_IN_MEMORY if fits_in_memory(found.used_bytes) else _TEMP_ON_DISK)
    store.vacuum(on_progress=progress)


def in_place(store: ExclusiveStore, found: Sizes, progress: Progress | None = None) -> None:
    """Return the free pages: by moving only what lies behind them where the file allows it, else by a rewrite.

    Moving is less to write, and less for a replica to fetch.
    """
    if pragma(store, "auto_vacuum") == INCREMENTAL:
        store.incremental_vacuum(found.free_pages)
    else:
        vacuum(store, found, progress)


def in_steps(store: Store, clock: Clock, progress: Progress) -> None:
    """Return the free pages beside others, who get the write lock between two steps for as long as a step took."""
    while True:
        began = clock.monotonic()
        freed = store.incremental_vacuum(STEP_PAGES)
        if not freed:
            return
        progress(freed)
        keep_short(store)
        clock.sleep(max(_PAUSE_LEAST_SECONDS, clock.monotonic() - began))


def via_copy(
    store: ExclusiveStore,
    clock: Clock,
    progress: Progress | None = None,
    *,
    phase: Callable[[str], None] = lambda _name: None,
) -> CopyReport:
    """Rewrite the store by way of a verified copy: compact copy, checks, then the copy's pages onto the store."""
    with private_copy(store.path, clock) as copy:
        store.vacuum_into(copy, on_progress=progress)
        phase("comparing the copy with the store")
        report = verify_copy(store, copy)
        phase("putting the copy's pages in place")
        store.promote(copy)
    return report


@contextmanager
def private_copy(path: Path, clock: Clock) -> Iterator[Path]:
    """A new empty file beside the store that only its owner may read; it is gone when the block ends."""
    moment = datetime.fromtimestamp(clock.now(), UTC).strftime("%Y%m%dT%H%M%SZ")
    copy = path.with_name(f"{path.name}{COPY_MARK}{moment}-{os.getpid()}")
    os.close(os.open(copy, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        yield copy
    finally:
        for suffix in ("", "-wal", "-shm", "-journal"):
            copy.with_name(copy.name + suffix).unlink(missing_ok=True)


def leftover_copies(path: Path) -> tuple[Path, ...]:
    """Compact copies that a killed run left beside the store; they are never used again."""
    found = path.parent.glob(f"{path.name}{COPY_MARK}*")
    return tuple(sorted(copy for copy in found if not copy.name.endswith(("-wal", "-shm", "-journal"))))


@dataclass(frozen=True, kw_only=True)
class CopyReport:
    """What was compared before a copy was used."""

    # Tables whose rows were compared one by one.
    tables: int
    # Rows compared.
    rows: int

    def document(self) -> dict[str, int]:
        """The fields of `--json`."""
        return {"tables": self.tables, "rows": self.rows}


def verify_copy(store: Reader, copy: Path) -> CopyReport:
    """Compare a compact copy with the store it was made from; raises Corrupt when it must not be used."""
    with open_read(copy, search_modules=False) as pages:
        problems = page_problems(pages)
    if problems:
        raise _unusable(store.path, f"the page check says: {problems[0]}")
    with open_read(copy) as other:
        if foreign_key_problems(other) != foreign_key_problems(store):
            raise _unusable(store.path, "its foreign keys differ")
        tables = every_table(store)
        if every_table(other) != tables:
            raise _unusable(store.path, "its tables differ")
        counts = row_counts(store, tables)
        if row_counts(other, tables) != counts:
            raise _unusable(store.path, "it has another number of rows")
        for table in tables:
            if content_hash(other, table) != content_hash(store, table):
                raise _unusable(store.path, f"the content of {table} differs")
    return CopyReport(tables=len(tables), rows=sum(counts.values()))


def every_table(reader: Reader) -> tuple[str, ...]:
    """All tables that hold rows themselves, those behind search indexes included."""
    found = reader.rows(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0 ORDER BY name",
    )
    return tuple(str(name) for (name,) in found)


def content_hash(reader: Reader, table: str) -> str:
    """A hash over every cell of a table, in key order; the type of a cell counts, bad UTF-8 is hashed as it is."""
    columns = [str(row[1]) for row in reader.rows(f"PRAGMA table_info({quoted(table)})")]
    cells = ", ".join(
        # Text goes through as bytes: it may not be UTF-8, and a NUL must not end it.
        f"typeof({quoted(name)}), iif(typeof({quoted(name)}) = 'text', CAST({quoted(name)} AS BLOB), {quoted(name)})"
        for name in columns
    )
    digest = hashlib.sha256()
    for row in reader.iterate(f"SELECT {cells} FROM {quoted(table)} NOT INDEXED ORDER BY {_key(reader, table)}"):
        digest.update(repr(row).encode("ascii", "backslashreplace"))
    return digest.hexdigest()


def _key(reader: Reader, table: str) -> str:
    """The order in which a table is stored, so that sorting costs nothing."""
    found = reader.row("SELECT wr FROM pragma_table_list WHERE schema = 'main' AND name = ?", (table,))
    if found is None or not found[0]:
        return "rowid"
    keys = sorted((row[5], str(row[1])) for row in reader.rows(f"PRAGMA table_info({quoted(table)})") if row[5])
    return ", ".join(quoted(name) for _position, name in keys)


def _unusable(path: Path, what: str) -> Corrupt:
    return Corrupt(
        f"The compact copy of {path} is not the same as the store: {what}. The store was not changed.",
        hint=f"Run `hermes-state doctor --db {shell_word(path)}`, and check the disk.",
        path=path,
        search_index=False,
    )
