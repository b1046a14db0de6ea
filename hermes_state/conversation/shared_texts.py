"""Large texts that repeat (system prompts, tool schemas, model configurations), stored once by content.

Invariant: a text that some session uses is there once; equal hashes are compared in full. A text that no session uses
any more goes in the transaction that took its last use away.

Not for: message bodies (see `bodies`). Reference counts were rejected: three partial indexes of `sessions` answer
whether a text is used, and a count can be wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from hermes_state.conversation.row_check import digest
from hermes_state.conversation.session_rows import Reads, scrub
from hermes_state.engine import frames
from hermes_state.errors import Corrupt
from hermes_state.shell_words import shell_word

if TYPE_CHECKING:
    from hermes_state.engine import Transaction


def intern(tx: Transaction, text: str | None) -> int | None:
    """The number of `text`, stored now unless it is there already; None for None."""
    if text is None:
        return None
    raw = scrub(text).encode("utf-8")
    hash_ = digest(raw)
    for no, codec, body in tx.rows(
        "SELECT no, codec, body FROM shared_texts WHERE hash = ? AND text_bytes = ?", (hash_, len(raw))
    ):
        if (body if codec == "plain" else _unpack(tx, no, body, len(raw))) == raw:
            return int(no)
    tx.execute("INSERT INTO shared_texts (hash, text_bytes, body) VALUES (?, ?, ?)", (hash_, len(raw), raw))
    return tx.last_insert_rowid()


def text_of(reader: Reads, no: int | None) -> str | None:
    """The text of number `no`; None for None. Raises `Corrupt` when it cannot be read back."""
    if no is None:
        return None
    found = reader.row("SELECT codec, text_bytes, body FROM shared_texts WHERE no = ?", (no,))
    if found is None:
        raise _damaged(reader, no, "is missing")
    codec, size, body = found
    raw = _unpack(reader, no, body, size) if codec == "zstd" else bytes(body)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _damaged(reader, no, f"is not UTF-8 ({error.reason})") from error


def release(tx: Transaction, numbers: Iterable[int | None]) -> int:
    """Remove those of the texts that no session uses any more; returns how many."""
    freed = 0
    for no in {number for number in numbers if number is not None}:
        freed += tx.execute(
            "DELETE FROM shared_texts WHERE no = ?1"
            " AND NOT EXISTS (SELECT 1 FROM sessions WHERE prompt_no = ?1)"
            " AND NOT EXISTS (SELECT 1 FROM sessions WHERE tools_no = ?1)"
            " AND NOT EXISTS (SELECT 1 FROM sessions WHERE model_config_no = ?1)",
            (no,),
        )
    return freed


def _unpack(reader: Reads, no: int, body: bytes, size: int) -> bytes:
    try:
        return frames.decompress(body, size)
    except frames.FrameDamaged as error:
        raise _damaged(reader, no, f"is damaged ({error})") from error


def _damaged(reader: Reads, no: int, how: str) -> Corrupt:
    return Corrupt(
        f"Shared text {no} of {reader.path} {how}.",
        hint=f"Run `hermes-state doctor --db {shell_word(reader.path)}` to see which sessions use it.",
        path=reader.path, text_no=no,
    )
