"""Does an index find the text that it holds: some words of some rows, searched the way a person would.

Invariant: bounded: a few rows spread over all ids, two words each. Only words whose tokens are the same for every
release are used: ASCII, before the first NUL, between spaces or plain punctuation.

Not for: completeness (the check of the whole index and the comparison of rows). It exists because both say "ok" for an
index whose list of terms by page is gone, while every search misses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from hermes_state.engine import Reader
from maintenance.dialects.base import SearchIndex
from maintenance.doctor.fulltext import text_source
from maintenance.quoting import quoted

SAMPLE_ROWS = 16
LARGEST_CELL = 1 << 20
_BOUNDARY = rb"[\s.,;:!?()\[\]{}\"'/<>=+*#-]"
_WORD = re.compile(rb"(?:(?<=" + _BOUNDARY + rb")|^)[a-z0-9]{3,24}(?=" + _BOUNDARY + rb"|$)", re.IGNORECASE)
# Tokenizers that give a plain ASCII word, or a piece of three of its letters, as it stands.
_PLAIN = {"unicode61": False, "trigram": True}


def missed_words(reader: Reader, index: SearchIndex) -> tuple[int, list[int]]:
    """How many words were looked up, and the rows that were not found by a word of theirs."""
    words = index.tokenizer.split()
    if len(words) != 1 or words[0] not in _PLAIN:
        return 0, []
    table = quoted(index.name)
    looked_up = 0
    missed: list[int] = []
    for key, text in _sample(reader, index):
        found = sorted({match.group().lower() for match in _WORD.finditer(text)})
        for word in dict.fromkeys(found[:1] + found[-1:]):
            asked = word[:3] if _PLAIN[words[0]] else word
            looked_up += 1
            phrase = f'"{asked.decode()}"'
            hits = reader.rows(f"SELECT count(*) FROM {table} WHERE {table} MATCH ? AND rowid = ?", (phrase, key))
            if not hits[0][0] and key not in missed:
                missed.append(key)
    return looked_up, missed


def _sample(reader: Reader, index: SearchIndex) -> Iterator[tuple[int, bytes]]:
    """Rows that the index lists, spread over all ids, with the text that was indexed up to a NUL."""
    source = text_source(reader, index)
    docsize = quoted(f"{index.name}_docsize")
    if source is None or not reader.row("SELECT 1 FROM sqlite_schema WHERE name = ?", (f"{index.name}_docsize",)):
        return
    edge = reader.row(f"SELECT min(id), max(id) FROM {docsize}")
    if edge is None or edge[0] is None:
        return
    first, last = int(edge[0]), int(edge[1])
    wanted = {first + (last - first) * step // (SAMPLE_ROWS - 1) for step in range(SAMPLE_ROWS)}
    cells = ", ".join(
        f"CASE WHEN length(CAST({column} AS BLOB)) <= {LARGEST_CELL} THEN CAST({column} AS BLOB) END"
        for column in map(quoted, source.columns)
    )
    seen: set[int] = set()
    for start in sorted(wanted):
        row = reader.row(f"SELECT id FROM {docsize} WHERE id >= ? ORDER BY id LIMIT 1", (start,))
        if row is None or row[0] in seen:
            continue
        seen.add(int(row[0]))
        texts = reader.row(f"SELECT {cells} FROM {quoted(source.table)} WHERE {quoted(source.key)} = ?", (row[0],))
        if texts is not None:
            yield int(row[0]), b" ".join(bytes(text or b"").partition(b"\0")[0] for text in texts)
