"""Comparing the index with the store.

Invariant: reads only, but for FTS5's own check, which SQLite counts as a write; nothing is repaired here. Not for:
searches, which check what they show and no more. Reading every text was rejected: it takes as long as building the
index anew. So rows are compared all, words by a sample: bytes that changed inside a page can be noticed in no other
way, since an index page carries no checksum.
"""

from __future__ import annotations

from hermes_state.conversation.search.index import Index
from hermes_state.conversation.search.layout import Marks, read_state
from hermes_state.conversation.search.query import make_term
from hermes_state.conversation.search.reading import COLUMNS, rows_of
from hermes_state.conversation.search.records import IndexCheck
from hermes_state.conversation.search.text import fold, pieces
from hermes_state.conversation.search.upkeep import Upkeep
from hermes_state.engine import Reader
from hermes_state.engine.core import Core
from hermes_state.errors import Corrupt, SearchUnavailable, StateError

REPORTED = 100
COMPARED = 20_000  # ids at a time
SAMPLED = 400


def check(core: Core, index: Index, upkeep: Upkeep) -> IndexCheck:
    """The whole comparison, in one snapshot of each file. Raises `SearchUnavailable` when there is no usable index."""
    with core.reader() as reader, reader.snapshot():
        state = read_state(reader)
        try:
            with index.reader() as found, found.snapshot():
                marks = index.marks(found)
                upto = marks.high_water if marks.fits(state) else 0
                missing, stale, entries = _rows(reader, found, upto)
                sampled, unfound = _words(reader, found, upto)
        except StateError as error:
            if not upkeep.is_ours(error):
                raise
            reason = index.trouble(error).reason
            raise SearchUnavailable(
                f"The search index of {core.path} cannot be checked: {reason}.",
                hint="The next search builds it anew.", path=core.path, reason=reason,
            ) from error
        messages = reader.rows("SELECT count(*) FROM messages WHERE id <= ?", (upto,))[0][0]
    return IndexCheck(
        messages=messages, entries=entries, missing=tuple(missing[:REPORTED]), stale=tuple(stale[:REPORTED]),
        sampled=sampled, unfound=tuple(unfound[:REPORTED]), damage="" if core.read_only else _structure(index, marks),
    )


def _rows(reader: Reader, index: Reader, upto: int) -> tuple[list[int], list[int], int]:
    """Messages without an entry, entries without a message, and the number of entries."""
    missing: list[int] = []
    stale: list[int] = []
    entries = 0
    for low in range(0, upto, COMPARED):
        span = (low, min(low + COMPARED, upto))
        there = {row[0] for row in reader.rows("SELECT id FROM messages WHERE id > ? AND id <= ?", span)}
        here = {row[0] for row in index.rows("SELECT id FROM terms_docsize WHERE id > ? AND id <= ?", span)}
        entries += len(here)
        missing += sorted(there - here)
        stale += sorted(here - there)
    return missing, stale, entries


def _words(reader: Reader, index: Reader, upto: int) -> tuple[int, list[int]]:
    """How many messages, spread over all, had a word looked up, and those that are not found by theirs."""
    sampled = 0
    unfound: list[int] = []
    step = max(1, upto // SAMPLED)
    for start in range(1, upto + 1, step):
        for row in rows_of(
            reader, f"{COLUMNS} WHERE m.id >= ? AND m.id <= ? ORDER BY m.id LIMIT 1",
            (start, min(start + step - 1, upto)),
        ):
            words = pieces(fold(row.text))
            term = make_term(words[row.id * 7919 % len(words)][0]) if words else None
            if term is None or row.damaged:
                continue
            sampled += 1
            if not index.rows("SELECT 1 FROM terms WHERE terms MATCH ? AND rowid = ?", (term.match, row.id)):
                unfound.append(row.id)
    return sampled, unfound


def _structure(index: Index, marks: Marks) -> str:
    """What FTS5 says of its own structure; "" when it is sound, or when another process is writing."""
    try:
        with index.writer() as writer:
            if writer is not None and marks.high_water:
                with writer.transaction(deadline_seconds=0.05) as tx:
                    tx.execute("INSERT INTO terms (terms) VALUES ('integrity-check')")
    except Corrupt as error:
        return error.message
    return ""
