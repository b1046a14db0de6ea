"""What an FTS5 index is made of, read from its own structure record without reading the index.

Invariant: one small row is read; a record that is not understood gives None, never a guess. The layout is that of
FTS5's structure record: a cookie, an optional format mark, then levels of segments with first and last page numbers.

Not for: checking an index (`doctor`). Counting rows of the `_data` table was rejected: on a 7 GB store it reads
gigabytes to learn what 100 bytes say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from maintenance.quoting import quoted
from maintenance.space.sizes import is_fulltext, pragma

if TYPE_CHECKING:
    from hermes_state.engine import Reader

STRUCTURE_ROW = 10
_FORMAT_2 = b"\xff\x00\x00\x01"
# FTS5 cuts its leaves at this many bytes unless a table says otherwise; a leaf then takes one page of 4096.
_LEAF_BYTES = 4050


@dataclass(frozen=True, kw_only=True)
class IndexState:
    """One full-text index, as its structure record describes it."""

    # Name of the virtual table.
    name: str
    # Segments that a search has to look into; None when the record could not be read.
    segments: int | None
    # Approximate bytes of its postings.
    bytes: int
    # Why the record could not be read; empty otherwise.
    problem: str = ""

    @property
    def merged(self) -> bool:
        """Whether a merge has nothing to do."""
        return self.segments is not None and self.segments <= 1


def fulltext_tables(reader: Reader) -> tuple[str, ...]:
    """Names of the FTS5 tables of a store, in order of name. Reads the schema only."""
    found = reader.rows("SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND sql IS NOT NULL ORDER BY name")
    return tuple(str(name) for name, sql in found if is_fulltext(sql))


def index_state(reader: Reader, name: str) -> IndexState:
    """Segments and size of one index."""
    record = structure_record(reader, name)
    if record is None:
        return IndexState(name=name, segments=None, bytes=0, problem="it has no structure record")
    parsed = parse_structure(record)
    if parsed is None:
        return IndexState(name=name, segments=None, bytes=0, problem="its structure record is not readable")
    segments, pages = parsed
    return IndexState(name=name, segments=segments, bytes=pages * max(_LEAF_BYTES, pragma(reader, "page_size")))


def structure_record(reader: Reader, name: str) -> bytes | None:
    """The raw structure record, or None when it is missing or not a blob."""
    has_data = reader.row("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?", (f"{name}_data",))
    if has_data is None:
        return None
    found = reader.row(f"SELECT block FROM {quoted(name + '_data')} WHERE id = ?", (STRUCTURE_ROW,))
    return found[0] if found is not None and isinstance(found[0], bytes) else None


def parse_structure(record: bytes) -> tuple[int, int] | None:
    """(segments, leaf pages) of a structure record, or None when it does not add up."""
    try:
        at = 8 if record[4:8] == _FORMAT_2 else 4
        with_origins = at == 8
        levels, at = _varint(record, at)
        stated, at = _varint(record, at)
        _writes, at = _varint(record, at)
        segments = pages = 0
        for _ in range(levels):
            _merging, at = _varint(record, at)
            count, at = _varint(record, at)
            for _ in range(count):
                _segment, at = _varint(record, at)
                first, at = _varint(record, at)
                last, at = _varint(record, at)
                for _ in range(5 if with_origins else 0):
                    _skipped, at = _varint(record, at)
                segments += 1
                pages += last - first + 1 if first else 0
    except IndexError:
        return None
    return (segments, pages) if segments == stated and pages >= 0 else None


def _varint(record: bytes, at: int) -> tuple[int, int]:
    """SQLite's variable-length integer at `at`, and where the next one starts."""
    value = 0
    for count in range(9):
        byte = record[at + count]
        if count == 8:
            return (value << 8) | byte, at + 9
        value = (value << 7) | (byte & 0x7F)
        if byte < 0x80:
            return value, at + count + 1
    raise IndexError("a variable-length integer has at most nine bytes")
