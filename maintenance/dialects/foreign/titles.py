"""The title rules of a foreign file.

Invariant: titles are unique among sessions that have one; a compression ancestor gives its title up to the descendant
that asks for it, anybody else keeps it. Not for: inventing titles.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hermes_state.errors import InvalidInput, NotFound
from maintenance.dialects.cells import decode_key, key_bytes
from maintenance.lineage import Forest

if TYPE_CHECKING:
    from hermes_state.engine import Transaction

LONGEST_TITLE = 100
# Invisible characters: controls but tab and line ends, zero-width, direction and annotation marks, lone surrogates.
_STRIPPED = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffc\ud800-\udfff]"
)


def sanitize_title(title: str | None) -> str | None:
    """The title as it may be stored; None when nothing is left of it."""
    cleaned = " ".join(_STRIPPED.sub("", title or "").split())
    if len(cleaned) > LONGEST_TITLE:
        raise InvalidInput(
            f"The title has {len(cleaned)} characters; the longest allowed is {LONGEST_TITLE}.", title=cleaned
        )
    return cleaned or None


def set_title(
    tx: Transaction, forest: Forest, columns: frozenset[str], session_id: str, title: str | None
) -> str | None:
    """Title a session; the caller's transaction makes the move from an ancestor and the new title one change."""
    wanted = sanitize_title(title)
    key = key_bytes(session_id)
    if tx.row("SELECT 1 FROM sessions WHERE id = CAST(? AS TEXT)", (key,)) is None:
        raise NotFound(f"No session {session_id!r} in {tx.path}.", session_id=session_id)
    if wanted is not None:
        for row in tx.rows("SELECT CAST(id AS BLOB) FROM sessions WHERE title = ?", (wanted,)):
            other = decode_key(row[0])
            if other == session_id:
                continue
            if other not in forest.compression_ancestors(session_id):
                raise InvalidInput(
                    f"The title {wanted!r} already belongs to session {other}.",
                    hint="Choose another title, or rename that session first.",
                    session_id=other,
                )
            tx.execute("UPDATE sessions SET title = NULL WHERE id = CAST(? AS TEXT)", (key_bytes(other),))
    source = ", title_source = 'user'" if "title_source" in columns else ""
    tx.execute(f"UPDATE sessions SET title = ?{source} WHERE id = CAST(? AS TEXT)", (wanted, key))
    return wanted
