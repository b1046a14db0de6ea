"""What a search gives back.

Invariant: every hit was compared with its canonical row and text at the moment of the search, and says which store it
is from; a result says of itself whether it covers everything it should. Not for: query syntax (see `query.py`).
A plain list was rejected: "nothing found" and "not everything was looked at" must not look the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class Neighbour:
    """The visible message just before or after a hit in its session."""

    message_id: int
    # user, assistant, tool, system or developer
    role: str
    # the beginning of its text, at most 200 characters
    preview: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Hit:
    """One message that matches, or one session whose title does (then `message_id` is None)."""

    # insertion id of the message in the store
    message_id: int | None
    # the session it was written to
    session_id: str
    # the first session of that conversation, and the one in which it goes on
    root_id: str
    tip_id: str
    # number of the message within its session, from 1; 0 for a title
    seq: int
    # user, assistant, tool, system, developer; "" for a title
    role: str
    # where the session comes from: cli, telegram, cron, ...
    source: str
    # epoch seconds UTC
    created_at: float
    # about 40 words around the first match, with each match between the caller's markers
    snippet: str
    # relevance: higher is better, comparable only within one result
    score: float
    # the session's title
    title: str | None
    # "compact": the message is no longer sent to the model, by the view edit of that id; None: it is live
    hidden: Literal["compact"] | None
    hidden_by: int | None
    # number of the generation that took the message out of its session's view (see `compaction`); None: none did
    compacted_by: int | None
    # which store this is from
    store_id: str
    store_path: Path
    # context, by insertion order
    before: Neighbour | None = None
    after: Neighbour | None = None


class SearchResult(list[Hit]):
    """The hits in order, and what is to be known about how they were found."""

    def __init__(
        self, hits: Iterable[Hit] = (), *, complete: bool = True, degraded: str = "", indexed_to: int = 0,
        scanned: int = 0, damaged_messages: tuple[int, ...] = (),
    ) -> None:
        super().__init__(hits)
        # False when the time budget ended before every message that might match had been looked at
        self.complete = complete
        # why the index was not used, or not fully; "" when all is well
        self.degraded = degraded
        # messages up to this id were found through the index, 0 when it was not used
        self.indexed_to = indexed_to
        # messages whose text was read because they are not in the index
        self.scanned = scanned
        # messages whose stored body is damaged: only their previews could be searched
        self.damaged_messages = damaged_messages


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexWork:
    """What a step of indexing, sweeping or merging did."""

    # messages that were added, and entries of deleted messages that were taken out
    indexed: int = 0
    removed: int = 0
    # messages that are not in the index yet
    pending: int = 0
    # pages written by merges, and pages given back to the file system
    merged_pages: int = 0
    freed_pages: int = 0
    # why it stopped early or could not work; "" when it could
    degraded: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexCheck:
    """The index compared with the store, row by row."""

    # messages that should be found through the index, and entries in it
    messages: int
    entries: int
    # ids up to the index's mark that have no entry, and entries whose message is gone; at most 100 each
    missing: tuple[int, ...]
    stale: tuple[int, ...]
    # messages of which a word was looked for in the index, and those among them whose word was not there
    sampled: int
    unfound: tuple[int, ...]
    # FTS5's own structural verdict: "" when it is sound
    damage: str

    @property
    def sound(self) -> bool:
        """True when nothing is missing and the structure is whole; stale entries are never shown and do no harm."""
        return not (self.missing or self.unfound or self.damage)
