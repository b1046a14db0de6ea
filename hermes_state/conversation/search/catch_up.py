"""Filling the index, taking deleted messages out, and merging: always in small steps.

Invariant: the mark rises only in the transaction that adds the messages below it, and a batch is added only when the
mark is still the one that it was read for; so two processes index at once and one of them is simply too late. Texts
are read and prepared before the index's write lock is taken, and the store is only read.

Not for: searching. Triggers were rejected: they make every append pay (measured: 0.15 to 0.2 ms a row against 4 ms)
and tie canonical rows to derived ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from hermes_state.conversation.search.index import Index
from hermes_state.conversation.search.layout import Marks, StoreState, facets, read_marks, stored_role
from hermes_state.conversation.search.reading import COLUMNS, Row, rows_of
from hermes_state.conversation.search.text import segment
from hermes_state.engine import Reader, Transaction
from hermes_state.engine.derived import DerivedStore

BATCH_ROWS = 200  # measured: transactions of about 9 ms
BATCH_BYTES = 1_000_000
SWEEP_ROWS = 5000
MERGE_PAGES = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """Messages ready to be added."""

    # what the mark must still be, and what it becomes
    after: int
    upto: int
    rows: list[tuple[Any, ...]]
    damaged: tuple[int, ...]


def read_batch(reader: Reader, after: int) -> Batch | None:
    """The next messages above `after`, prepared; None when there is none."""
    prepared: list[tuple[Any, ...]] = []
    damaged: list[int] = []
    size, upto = 0, after
    while len(prepared) < BATCH_ROWS and size < BATCH_BYTES:
        # A few at a time, so that large bodies are not all in memory before their sizes are known.
        page = rows_of(
            reader, f"{COLUMNS} WHERE m.id > ? ORDER BY m.id LIMIT ?", (upto, min(50, BATCH_ROWS - len(prepared)))
        )
        for row in page:
            prepared.append(_entry(row))
            size += len(row.text)
            upto = row.id
            if row.damaged:
                damaged.append(row.id)
        if not page:
            break
    if not prepared:
        return None
    return Batch(after=after, upto=upto, rows=prepared, damaged=tuple(damaged))


def _entry(row: Row) -> tuple[Any, ...]:
    found = facets(session_no=row.session_no, source=row.source, relation=row.relation)
    text = f"{found} {segment(row.text)}"
    return (row.id, text, row.session_no, stored_role(row.role), row.source, math.floor(row.created_at))


def add_batch(writer: DerivedStore, batch: Batch, state: StoreState) -> bool:
    """Add it in one transaction; False when somebody else was faster."""
    with writer.transaction(durability="process", deadline_seconds=0.05) as tx:
        marks = read_marks(tx)
        if marks is None or marks.high_water != batch.after or not marks.fits(state):
            return False
        tx.executemany(
            "INSERT INTO terms (rowid, text, session_no, role, source, created_at) VALUES (?, ?, ?, ?, ?, ?)",
            batch.rows,
        )
        tx.execute("UPDATE marks SET high_water = ?", (batch.upto,))
    return True


def sweep_step(writer: DerivedStore, reader: Reader, marks: Marks, state: StoreState) -> tuple[int, bool]:
    """Take out entries of deleted messages in one range of ids; gives how many, and whether the sweep is at its end."""
    if marks.sweep_for == marks.deletions_seen == state.deletions:
        return 0, True
    start = marks.sweep_at if marks.sweep_for > marks.deletions_seen else 0
    target = marks.sweep_for if marks.sweep_for > marks.deletions_seen else state.deletions
    with writer.transaction(durability="process", deadline_seconds=0.05) as tx:
        now = read_marks(tx)
        if now != marks:
            return 0, False
        entries = [row[0] for row in tx.rows(
            "SELECT id FROM terms_docsize WHERE id > ? ORDER BY id LIMIT ?", (start, SWEEP_ROWS)
        )]
        last = entries[-1] if entries else marks.high_water
        alive = {row[0] for row in reader.rows("SELECT id FROM messages WHERE id > ? AND id <= ?", (start, last))}
        gone = [(entry,) for entry in entries if entry not in alive]
        tx.executemany("DELETE FROM terms WHERE rowid = ?", gone)
        done = len(entries) < SWEEP_ROWS
        if done:
            tx.execute("UPDATE marks SET sweep_at = 0, sweep_for = ?1, deletions_seen = ?1", (target,))
        else:
            tx.execute("UPDATE marks SET sweep_at = ?, sweep_for = ?", (last, target))
    return len(gone), done and target == state.deletions


def merge_step(writer: DerivedStore, *, whole: bool) -> bool:
    """Merge about `MERGE_PAGES` pages of the index; False when there is nothing left to merge.

    `whole`: into one segment, which writes everything anew; else only what has become worth it.
    """
    with writer.transaction(durability="process", deadline_seconds=0.05) as tx:
        before = _changes(tx)
        # A negative number makes all segments one level's; steps with a positive one go on with a merge.
        tx.execute("INSERT INTO terms (terms, rank) VALUES ('merge', ?)", (-MERGE_PAGES if whole else MERGE_PAGES,))
        return _changes(tx) - before >= 2


def _changes(tx: Transaction) -> int:
    return int(tx.rows("SELECT total_changes()")[0][0])


def catch_up(index: Index, reader: Reader, state: StoreState, *, batches: int, until: float, now: Any) -> int:
    """Add up to `batches` batches while `now()` is below `until`; gives how many messages. Raises what fails."""
    added = 0
    with index.writer() as writer:
        if writer is None:
            return 0
        marks = read_marks(writer)
        while marks is not None and marks.fits(state) and batches > 0:
            batch = read_batch(reader, marks.high_water)
            if batch is None:
                break
            if add_batch(writer, batch, state):
                added += len(batch.rows)
            batches -= 1
            if now() >= until:
                break
            marks = read_marks(writer)
        free = writer.freelist_count if added else 0
        if free > 64:
            writer.incremental_vacuum(free - 32, deadline_seconds=0.05)
    return added


