"""Which sessions must be deleted with the tokenizer that stops at a NUL.

Invariant: a session that is not named here has no NUL in any indexed text (then every trigram tokenizer gives the same
tokens for it), or its rows were indexed past their NULs, as this SQLite does. hermes-agent marks structured content
with a leading NUL, and the SQLite of its time stops a trigram index there; deleting a row with the other rule leaves
postings behind that its own check then reports, or is refused by FTS5 as damage.

Not for: telling which rule an index follows as a whole (`doctor.nul_rule`). Using the tokenizer in Python for
everything was rejected: it is slower where most rows are, in scripts without spaces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from hermes_state.engine import NulRule
from maintenance.dialects.cells import chunks, decode_key, key_bytes, key_list
from maintenance.doctor.nul_rule import Evidence, evidence_of, is_trigram
from maintenance.quoting import quoted

if TYPE_CHECKING:
    from hermes_state.engine import Reader
    from maintenance.dialects.base import Dialect

INDEXED_COLUMNS = ("content", "tool_name", "tool_calls")
_PIECE = re.compile(r"[a-z0-9]{3}")


def sessions_to_cut(reader: Reader, dialect: Dialect, ids: Sequence[str]) -> frozenset[str]:
    """Those of `ids` that a delete must tokenize up to the first NUL only."""
    if dialect.is_native:
        return frozenset()  # its search index is a file of its own
    with_nul = sessions_with_nul(reader, dialect, ids)
    if not with_nul:
        return frozenset()
    indexes = [index for index in dialect.search_indexes(reader) if is_trigram(index)]
    found = [evidence_of(reader, index) for index in indexes]
    total = Evidence(past_nul=sum(one.past_nul for one in found), cut=sum(one.cut for one in found))
    if not total.mixed:
        return with_nul if total.rule is NulRule.CUT else frozenset()
    names = [index.name for index in indexes]
    return frozenset(key for key in with_nul if not _indexed_past_nul(reader, dialect, key, names))


def sessions_with_nul(reader: Reader, dialect: Dialect, ids: Sequence[str]) -> frozenset[str]:
    """Those of `ids` that have at least one message with a NUL in an indexed column."""
    holds = _has_nul(dialect)
    found: set[str] = set()
    for some in chunks(ids) if holds else ():
        rows = reader.rows(
            f"SELECT CAST(s.id AS BLOB) FROM sessions s WHERE s.id IN {key_list(len(some))}"
            f" AND EXISTS (SELECT 1 FROM messages m WHERE m.session_id = s.id AND ({holds}))",
            [key_bytes(one) for one in some],
        )
        found.update(decode_key(row[0]) for row in rows)
    return frozenset(found)


def _indexed_past_nul(reader: Reader, dialect: Dialect, session_id: str, names: Sequence[str]) -> bool:
    """Whether text from behind a NUL of this session can be found, in an index that two SQLite versions wrote."""
    for message_id, piece in _pieces_behind_nul(reader, dialect, session_id):
        for name in names:
            index = quoted(name)
            sql = f"SELECT count(*) FROM {index} WHERE {index} MATCH ? AND rowid = ?"
            if reader.rows(sql, (f'"{piece}"', message_id))[0][0]:
                return True
    return False


def _pieces_behind_nul(reader: Reader, dialect: Dialect, session_id: str) -> Iterator[tuple[int, str]]:
    """For each message with a NUL: three characters that stand behind the NUL and nowhere before it."""
    columns = ", ".join(f"CAST(m.{column} AS BLOB)" for column in _columns(dialect))
    rows = reader.iterate(
        f"SELECT m.id, {columns} FROM messages m WHERE m.session_id = CAST(? AS TEXT) AND ({_has_nul(dialect)})",
        (key_bytes(session_id),),
        batch=20,
    )
    for message_id, *cells in rows:
        text = b" ".join(cell or b"" for cell in cells).lower()
        before, _, behind = text.partition(b"\0")
        known = before.decode(errors="replace")
        matches = (match.group() for match in _PIECE.finditer(behind.decode(errors="replace")))
        piece = next((one for one in matches if one not in known), None)
        if piece is not None:
            yield int(message_id), piece


def _columns(dialect: Dialect) -> list[str]:
    return [column for column in INDEXED_COLUMNS if column in dialect.shape.message_columns]


def _has_nul(dialect: Dialect) -> str:
    return " OR ".join(f"instr(CAST(m.{column} AS BLOB), X'00') > 0" for column in _columns(dialect))
