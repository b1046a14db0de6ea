"""Which NUL rule a trigram index was built under, found from the index itself.

Invariant: the answer is evidence, not a guess: for rows whose text holds a NUL, a piece of what stands behind it is
looked up in the index for that row. Found: the builder read past the NUL. Not found: it stopped there. Without such
rows both rules give the same index and the answer is NATIVE.

Not for: checking the index (`search`). Running the whole check under both rules was rejected as the way to decide: it
reads all text through a tokenizer in Python, and a damaged index fails under both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hermes_state.engine import NulRule, Reader
from hermes_state.errors import StateError
from maintenance.dialects.base import SearchIndex
from maintenance.doctor.findings import is_damage
from maintenance.doctor.fulltext import fulltext_indexes, text_source
from maintenance.quoting import quoted

# Rows looked at from each end of the table; evidence of both rules in one index means two programs wrote it.
SAMPLE_ROWS = 8
LARGEST_CELL = 4 << 20
_PIECES_A_ROW = 3
# Three characters that every release folds alike, none of them able to end up inside a query's syntax.
_PIECE = re.compile(r"[a-z0-9]{3}")


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What the rows with a NUL say about one index."""

    # Rows whose text behind a NUL is in the index.
    past_nul: int
    # Rows whose text behind a NUL is not in the index.
    cut: int

    @property
    def rule(self) -> NulRule:
        """The rule of most rows; NATIVE when there is nothing to tell them apart, CUT when they are even."""
        return NulRule.CUT if self.cut and self.cut >= self.past_nul else NulRule.NATIVE

    @property
    def mixed(self) -> bool:
        """Both rules were used on rows of this index: it was written by programs with different SQLite versions."""
        return bool(self.cut and self.past_nul)

    @property
    def any(self) -> bool:
        """Whether any row could tell."""
        return bool(self.cut or self.past_nul)


NO_EVIDENCE = Evidence(past_nul=0, cut=0)


def rule_of_store(reader: Reader) -> NulRule:
    """The rule to open a store with, so that its trigram indexes are read as they were written."""
    found = [evidence_of(reader, index) for index in fulltext_indexes(reader) if is_trigram(index)]
    total = Evidence(past_nul=sum(one.past_nul for one in found), cut=sum(one.cut for one in found))
    return total.rule


def is_trigram(index: SearchIndex) -> bool:
    """Only the trigram tokenizer changed what it does with a NUL."""
    return index.tokenizer.split()[:1] == ["trigram"]


def evidence_of(reader: Reader, index: SearchIndex) -> Evidence:
    """Look up what stands behind the NULs of some rows. Reads the text of the table when no row has one."""
    past = cut = 0
    try:
        for key, texts in _rows_with_nul(reader, index):
            answer = _indexed_past_nul(reader, index, key, texts)
            past += answer is True
            cut += answer is False
    except StateError as error:
        if not is_damage(error):
            raise
        # A damaged index answers nothing; the check that follows says so.
    return Evidence(past_nul=past, cut=cut)


def _rows_with_nul(reader: Reader, index: SearchIndex) -> Iterator[tuple[int, Sequence[bytes]]]:
    """Some rows that the index holds and whose text has a NUL, from the newest and from the oldest end."""
    source = text_source(reader, index)
    if source is None:
        return
    cells = [f"CAST({quoted(column)} AS BLOB)" for column in source.columns]
    has_nul = " OR ".join(f"instr({cell}, x'00')" for cell in cells)
    small = " AND ".join(f"ifnull(length({cell}), 0) <= {LARGEST_CELL}" for cell in cells)
    key = quoted(source.key)
    seen: set[int] = set()
    for order in ("DESC", "ASC"):
        rows = reader.rows(
            f"SELECT {key}, {', '.join(cells)} FROM {quoted(source.table)} AS source WHERE ({has_nul}) AND {small} "
            f"AND EXISTS (SELECT 1 FROM {quoted(index.name + '_docsize')} AS held WHERE held.id = source.{key}) "
            f"ORDER BY {key} {order} LIMIT {SAMPLE_ROWS}"
        )
        for row_key, *texts in rows:
            if row_key not in seen:
                seen.add(row_key)
                yield int(row_key), [bytes(text or b"") for text in texts]
        if len(rows) < SAMPLE_ROWS:
            return


def has_nul(reader: Reader, index: SearchIndex) -> bool:
    """Whether any text of the index holds a NUL, also one that tells nothing: where none does, both rules are one."""
    source = text_source(reader, index)
    if source is None:
        return False
    cells = " OR ".join(f"instr(CAST({quoted(column)} AS BLOB), x'00')" for column in source.columns)
    try:
        return bool(reader.rows(f"SELECT 1 FROM {quoted(source.table)} WHERE {cells} LIMIT 1"))
    except StateError as error:
        if not is_damage(error):
            raise
        return False


def _indexed_past_nul(reader: Reader, index: SearchIndex, key: int, texts: Sequence[bytes]) -> bool | None:
    """Whether the index holds text from behind a NUL of this row; None when nothing there tells it apart."""
    before = " ".join(text.partition(b"\0")[0].decode(errors="replace") for text in texts).lower()
    behind = " ".join(text.partition(b"\0")[2].decode(errors="replace") for text in texts)
    pieces: dict[str, None] = {}
    for match in _PIECE.finditer(behind):
        if match.group() not in before:
            pieces.setdefault(match.group())
        if len(pieces) == _PIECES_A_ROW:
            break
    if not pieces:
        return None
    table = quoted(index.name)
    sql = f"SELECT count(*) FROM {table} WHERE {table} MATCH ? AND rowid = ?"
    found = [reader.rows(sql, (f'"{piece}"', key))[0][0] for piece in pieces]
    return any(found)
