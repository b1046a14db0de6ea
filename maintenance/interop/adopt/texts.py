"""Large values that repeat, written once each.

Invariant: a text has one row in `shared_texts`, whatever asks for it and however often. Not for: message bodies; those
stay in their rows, and `optimize` compresses what is cold.
"""

from __future__ import annotations

from hashlib import blake2b, sha256
from typing import TYPE_CHECKING

from hermes_state.conversation.row_check import digest
from maintenance.interop.typed import BadText, Cell, CellReader

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction


class SharedTexts:
    """The numbers of texts by content; memory is a few dozen bytes a text."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._waiting: list[tuple[int, int, int, bytes]] = []

    def number(self, text: str) -> int:
        """The number of a text; it is written with the next `flush`."""
        body = text.encode("utf-8")
        key = blake2b(body, digest_size=20).digest()
        known = self._numbers.get(key)
        if known is None:
            known = self._numbers[key] = len(self._numbers) + 1
            self._waiting.append((known, digest(body), len(body), body))
        return known

    def flush(self, tx: Transaction) -> None:
        """Write what is new."""
        tx.executemany("INSERT INTO shared_texts (no, hash, text_bytes, body) VALUES (?, ?, ?, ?)", self._waiting)
        self._waiting.clear()


class Prompts:
    """The table `system_prompts` of newer files: texts by the hash that sessions name."""

    def __init__(self, reader: Reader, present: bool) -> None:
        self._reader = reader
        self._present = present
        self._cells = CellReader(["prompt"])
        # hash -> whether its row says nothing that the text does not say
        self.absorbed: dict[str, bool] = {}

    def text(self, key: Cell) -> tuple[str | None, bool]:
        """The text that `key` names, and whether `key` is no more than its sha256."""
        if not self._present or not isinstance(key, str):
            return None, False
        row = self._reader.row(f"SELECT {self._cells.sql} FROM system_prompts WHERE hash = ?", (key,))
        if row is None:
            return None, False
        (cell,) = self._cells.cells(row)
        if not isinstance(cell, str):
            self.absorbed[key] = False
            return (str(cell) if isinstance(cell, BadText) else None), False
        plain = sha256(cell.encode("utf-8")).hexdigest() == key
        self.absorbed[key] = plain
        return cell, plain

    def is_absorbed(self, key: Cell) -> bool:
        """Whether the row of `key` need not be kept apart."""
        return isinstance(key, str) and self.absorbed.get(key, False)


