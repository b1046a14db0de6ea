"""What a generation stands for, computed again from the rows that are there now.

Invariant: the library's own digest, no second one. Not for: a verdict on a whole chain (`generations.verify`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes_state.conversation.session_rows import Reads


@dataclass(frozen=True, kw_only=True)
class Source:
    """Messages that a generation took out of the view it was made from."""

    digest: str  # SHA-256 in hexadecimal
    rows: int  # how many are there


def source_of(reader: Reads, compaction_id: int) -> Source | None:
    """The messages that row `compaction_id` stands for; None when there is no such row. Reads their checks only."""
    from hermes_state.compaction.generations import checking, rows

    one = rows.one(reader, compaction_id)
    if one is None:
        return None
    digest, count = checking.source_of(reader, one)
    return Source(digest=digest, rows=count)
