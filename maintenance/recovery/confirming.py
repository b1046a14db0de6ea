"""A second source for messages of hermes-agent: the copies of their text that an inline search index keeps.

Invariant: a message whose text equals a copy is confirmed; one that no copy equals is uncertain, whatever it looks
like. Only a text that is broken by itself (not UTF-8, zeroed) is replaced, by the copy, and only when the rest of the
copy equals the rest of the row. A copy whose message is lost is kept apart: it is a text without author, time and
session.

Not for: layouts without a copy (external content). Deciding by one copy against the row was rejected: the copy lies in
the same damaged file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hermes_state.engine.salvage import Salvage
from hermes_state.errors import StateError
from maintenance.interop.typed import BadText, Cell
from maintenance.quoting import quoted
from maintenance.recovery.filling import Filler, TableFiller
from maintenance.recovery.judging import NOT_TEXT, ZEROED, ZEROS
from maintenance.recovery.schema import Schema

COPIES = ("messages_fts_content", "messages_fts_trigram_content")
DISAGREES = "its copies in the search index say something else"
TEXT_ONLY = "only its text is left, in the search index"
REPLACED = "its text was broken and is that of its copies in the search index"
TEXT = (
    "coalesce(CAST(content AS TEXT), '') || ' ' || coalesce(CAST(tool_name AS TEXT), '') || ' ' || "
    "coalesce(CAST(tool_calls AS TEXT), '')"
)
AT_ONCE = 200
_NEEDED = ("id", "content", "tool_name", "tool_calls")
# What the copies of a message say: their texts, None where one cannot be read.
_Copies = dict[int, dict[str, bytes]]


def confirm_messages(
    salvage: Salvage, filler: Filler, messages: TableFiller, schema: Schema, *,
    advance: Callable[[int], None] = lambda _rows: None,
) -> int:
    """Compare every message with its copies; how many were confirmed. Nothing happens without an inline index."""
    names = [name for name in COPIES if _is_inline(salvage, schema, name)]
    if not names or not messages.table.has(_NEEDED):
        return 0
    confirmed = 0
    last: int | None = None
    with filler.batches():
        while True:
            where, params = ("WHERE id > ?", (last,)) if last is not None else ("", ())
            rows = filler.db.rows(
                f"SELECT id, CAST({TEXT} AS BLOB) FROM messages {where} ORDER BY id LIMIT {AT_ONCE}", params
            )
            if not rows:
                break
            copies = _read(salvage, names, rows[0][0], rows[-1][0])
            for number, text in rows:
                confirmed += _compare(filler, messages, int(number), bytes(text), copies.get(int(number), {}))
            last = int(rows[-1][0])
            advance(len(rows))
        _texts_alone(salvage, filler, messages, names)
    return confirmed


def _is_inline(salvage: Salvage, schema: Schema, name: str) -> bool:
    """Whether a table holds copies of whole texts: one column beside the id."""
    if name.removesuffix("_content") not in schema.search and not any(e.name == name for e in schema.entries):
        return False
    try:
        columns = [str(row[1]) for row in salvage.rows(f"PRAGMA table_info({quoted(name)})")]
    except StateError as error:
        if error.retryable:
            raise
        return False
    return columns == ["id", "c0"]


def _read(salvage: Salvage, names: list[str], first: int, last: int) -> _Copies:
    found: _Copies = {}
    for name in names:
        for number, text in _range(salvage, name, first, last):
            found.setdefault(number, {})[name] = text
    return found


def _range(salvage: Salvage, name: str, first: int, last: int) -> Iterator[tuple[int, bytes]]:
    """Copies of a range of ids, around what cannot be read."""
    sql = f"SELECT id, CAST(c0 AS BLOB) FROM {quoted(name)} WHERE id BETWEEN ? AND ?"
    try:
        rows = salvage.rows(sql, (first, last))
    except StateError as error:
        if error.retryable:
            raise
        if first < last:
            middle = (first + last) // 2
            yield from _range(salvage, name, first, middle)
            yield from _range(salvage, name, middle + 1, last)
        return
    for number, text in rows:
        if isinstance(number, int) and isinstance(text, bytes):
            yield number, text


def _compare(filler: Filler, messages: TableFiller, key: int, text: bytes, copies: dict[str, bytes]) -> bool:
    if not copies:
        return False
    if text in copies.values():
        return True
    others = set(copies.values())
    doubt = filler.notes.doubt(messages.number, key)
    broken = doubt is not None and doubt[0] in (NOT_TEXT, ZEROED)
    # Copies that disagree with each other confirm nothing, and replace nothing.
    if doubt is not None and broken and len(others) == 1 and _replace(filler, messages, key, *others):
        filler.notes.uncertain(messages.number, key, REPLACED, doubt[1])
        return True
    filler.notes.uncertain(messages.number, key, DISAGREES, doubt[1] if doubt else 0)
    filler.tick(len(text))
    return False


def _replace(filler: Filler, messages: TableFiller, key: int, copy: bytes) -> bool:
    """Put the copy's text in the place of a broken one, when nothing else of the row is broken."""
    cells = messages.current(key)
    if cells is None:
        return False
    names = messages.table.names
    broken = [name for name, cell in zip(names, cells, strict=True) if _broken(cell)]
    if broken != ["content"]:
        return False
    at = dict(zip(names, cells, strict=True))
    rest = f" {_plain(at['tool_name'])} {_plain(at['tool_calls'])}".encode()
    try:
        text = copy.decode("utf-8")
    except UnicodeDecodeError:
        return False
    if not copy.endswith(rest):
        return False
    was = at["content"]
    messages.keep_apart(key, cells, REPLACED, "search index")
    filler.db.execute("UPDATE messages SET content = ? WHERE id = ?", (text[: len(text) - len(rest.decode())], key))
    return was is not None


def _texts_alone(salvage: Salvage, filler: Filler, messages: TableFiller, names: list[str]) -> None:
    """Keep the texts of messages that are not there."""
    for name in names:
        try:
            for number, text in salvage.iterate(f"SELECT id, CAST(c0 AS BLOB) FROM {quoted(name)}"):
                if filler.db.row("SELECT 1 FROM messages WHERE id = ?", (number,)) is None:
                    filler.notes.listed(messages.number, number, {"listed_by": name})
                    filler.notes.apart(messages.number, number, TEXT_ONLY, {
                        "table": "messages", "key": number, "reason": TEXT_ONLY, "rung": "search index",
                        "values": {"text": bytes(text or b"").decode("utf-8", errors="replace")},
                    })
                    filler.tick(len(text or b""))
        except StateError as error:
            if error.retryable:
                raise


def _broken(cell: Cell) -> bool:
    return isinstance(cell, BadText) or (isinstance(cell, str) and ZEROS in cell)


def _plain(cell: Cell) -> str:
    return "" if cell is None else str(cell)
