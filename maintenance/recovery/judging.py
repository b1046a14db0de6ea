"""What can be said of one row by itself: it is right, it may be right, or it is wrong.

Invariant: "certain" is said only when nothing speaks against the row; a native message is judged by the check that was
written with it, a body and a shared text by their hash; any other row by what its table's columns can hold. A verdict
never depends on which row was seen before.

Not for: comparing two versions of a row (`filling.py`) or rows with their copies in a search index (`confirming.py`).
Guessing by content (is this English?) was rejected: conversations hold everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from hashlib import sha256
from typing import NamedTuple, Protocol

from hermes_state.conversation.row_check import digest, raw_bytes, row_check
from hermes_state.engine import frames
from maintenance.interop.typed import BadText, Cell
from maintenance.recovery.schema import Schema, Table

# So many zero bytes in a row in a text are those of a page that was zeroed, not something a person wrote.
ZEROS = "\0" * 16


class Grade(Enum):
    """How sure a row is."""

    CERTAIN = "certain"
    UNCERTAIN = "uncertain"
    WRONG = "wrong"


class Verdict(NamedTuple):
    """What the row says about itself."""

    grade: Grade
    # why it is not certain, "" when it is
    reason: str
    # True when a check that was written with the row confirms it, wherever it was found
    proven: bool = False


SOUND = Verdict(Grade.CERTAIN, "")
PROVEN = Verdict(Grade.CERTAIN, "", proven=True)
NOT_TEXT = "text is not UTF-8"
ZEROED = "zeros within text"
MISFIT = "does not fit its table"
CHECK_FAILED = "the row's own check differs"
HASH_FAILED = "the content's own hash differs"
BROKEN_FRAME = "the compressed content cannot be unpacked"


class Judge(Protocol):
    """Says what a row says about itself."""

    # every row that is right is proven by a check of its own: no second source is needed
    proves: bool

    def __call__(self, cells: Sequence[Cell]) -> Verdict:
        """The verdict on the cells of one row."""


def judge_of(schema: Schema, table: Table, *, damaged: bool) -> Judge:
    """The judge of one table's rows. `damaged`: rows may come from pages of another table."""
    if schema.native and table.has(("session_no", "row_check", "content_type")):
        return _Message(table)
    if schema.native and table.has(("hash", "codec")):
        return _Hashed(table)
    if not schema.native and table.name == "system_prompts" and table.has(("hash", "prompt")):
        return _Prompt(table, damaged)
    return _Plain(table, damaged)


class _Plain:
    """By what the columns can hold."""

    proves = False

    def __init__(self, table: Table, damaged: bool) -> None:
        alias = table.alias
        columns = table.info.columns
        self._required = [
            place for place, column in enumerate(columns) if column.required and place != alias
        ] if damaged else []
        self._texts = [
            place for place, column in enumerate(columns) if _is_text(column.declared)
        ] if damaged else []
        # What a text's column of hermes-agent never holds, if it is not the content: rows of other tables do.
        self._no_blobs = [
            place for place, column in enumerate(columns) if _is_text(column.declared) and column.name != "content"
        ] if damaged and not table.own else []
        self._keys = [
            place for place, column in enumerate(columns) if column.key and place != alias
        ] if damaged and not table.own else []
        self._numbers = [
            place for place, column in enumerate(columns) if _is_number(column.declared) and place != alias
        ] if damaged else []

    def __call__(self, cells: Sequence[Cell]) -> Verdict:
        for place in self._required:
            if cells[place] is None:
                return Verdict(Grade.WRONG, MISFIT)
        for place in self._keys:
            if cells[place] is None:
                return Verdict(Grade.WRONG, MISFIT)
        for place in self._no_blobs:
            if isinstance(cells[place], bytes):
                return Verdict(Grade.WRONG, MISFIT)
        for place in self._texts:
            # SQLite turns a number into text when it stores it in such a column.
            if type(cells[place]) in (int, float):
                return Verdict(Grade.WRONG, MISFIT)
        for cell in cells:
            if isinstance(cell, BadText):
                return Verdict(Grade.UNCERTAIN, NOT_TEXT)
            if isinstance(cell, str) and ZEROS in cell:
                return Verdict(Grade.UNCERTAIN, ZEROED)
        for place in self._numbers:
            if isinstance(cells[place], (str, bytes)):
                return Verdict(Grade.UNCERTAIN, "a number's column holds something else")
        return SOUND


class _Message:
    """By the check that every message of a native store carries. A body elsewhere is checked when all are there."""

    proves = True

    def __init__(self, table: Table) -> None:
        self._plain = _Plain(table, damaged=True)
        self._at = {name: place for place, name in enumerate(table.names)}

    def __call__(self, cells: Sequence[Cell]) -> Verdict:
        plain = self._plain(cells)
        if plain.grade is Grade.WRONG:
            return plain
        if plain.reason:
            return Verdict(Grade.WRONG, plain.reason)  # the check was made of text that could be read
        at = self._at
        if cells[at["body_no"]] is not None:
            return SOUND
        try:
            found = row_check(*(cells[at[name]] for name in (  # type: ignore[arg-type]
                "session_no", "role", "content_type", "content", "tool_name", "tool_call_id", "tool_calls",
                "finish_reason", "token_count", "reasoning", "platform_message_id", "client_key", "created_at", "extra",
            )))
        except Exception as error:
            if isinstance(error, (TypeError, ValueError)) or type(error).__module__ == "struct":
                return Verdict(Grade.WRONG, MISFIT)  # a cell of a type that no message has
            raise
        return PROVEN if found == cells[at["row_check"]] else Verdict(Grade.WRONG, CHECK_FAILED)


class _Hashed:
    """By the hash beside a body or a shared text."""

    proves = True

    def __init__(self, table: Table) -> None:
        self._plain = _Plain(table, damaged=True)
        names = table.names
        self._hash, self._codec = names.index("hash"), names.index("codec")
        self._size = names.index("raw_bytes" if "raw_bytes" in names else "text_bytes")
        self._body = names.index("frame" if "frame" in names else "body")

    def __call__(self, cells: Sequence[Cell]) -> Verdict:
        plain = self._plain(cells)
        if plain.grade is not Grade.CERTAIN:
            return Verdict(Grade.WRONG, plain.reason)
        body, size = cells[self._body], cells[self._size]
        if not isinstance(body, bytes) or not isinstance(size, int):
            return Verdict(Grade.WRONG, MISFIT)
        if cells[self._codec] == "zstd":
            try:
                body = frames.decompress(body, size)
            except frames.FrameDamaged:
                return Verdict(Grade.WRONG, BROKEN_FRAME)
        return PROVEN if digest(raw_bytes(body)) == cells[self._hash] else Verdict(Grade.WRONG, HASH_FAILED)


class _Prompt:
    """By the hash under which hermes-agent keeps a system prompt."""

    proves = True

    def __init__(self, table: Table, damaged: bool) -> None:
        self._plain = _Plain(table, damaged)
        self._hash, self._prompt = table.names.index("hash"), table.names.index("prompt")

    def __call__(self, cells: Sequence[Cell]) -> Verdict:
        plain = self._plain(cells)
        prompt = cells[self._prompt]
        if plain.grade is not Grade.CERTAIN or not isinstance(prompt, str):
            return plain
        same = sha256(prompt.encode("utf-8")).hexdigest() == cells[self._hash]
        return PROVEN if same else Verdict(Grade.UNCERTAIN, HASH_FAILED)


def _is_text(declared: str) -> bool:
    upper = declared.upper()
    return "INT" not in upper and any(word in upper for word in ("CHAR", "CLOB", "TEXT"))


def _is_number(declared: str) -> bool:
    upper = declared.upper()
    return any(word in upper for word in ("INT", "REAL", "FLOA", "DOUB")) and not _is_text(declared)
