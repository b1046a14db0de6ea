"""`store.changes`: the feed of one open store.

Invariant: what this gives is what `feed` reads and `watch` waits for; a wait has a reader and a watch of its own and
gives both back.

Not for: writing the feed: whoever changes a row calls `record` in the same transaction. Callbacks were rejected: they
would run in a thread of ours, inside somebody else's program.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from hermes_state.changes import feed
from hermes_state.changes.feed import Batch, Position
from hermes_state.changes.watch import CommitWatch

if TYPE_CHECKING:
    from hermes_state.engine.core import Core


class Changes:
    """Ids of what changed, by table, and waiting for more. Safe for threads."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._stop = threading.Event()

    def position(self) -> Position:
        """Where the feed stands now. Keep it, look at what you need, and go on with `since`."""
        with self._core.reader() as reader:
            return feed.position_of(reader)

    def since(self, position: Position, *, limit: int = 500) -> Batch:
        """Up to `limit` changes after `position`, and the position to go on from.

        Appended messages come with their ids, everything else as it was recorded. `gap` means that the feed no longer
        reaches back to `position`, or that the store has other content: read everything anew, then go on.
        """
        with self._core.reader() as reader:
            return feed.since(reader, position, limit=limit)

    def wait(self, position: Position, *, timeout_seconds: float | None) -> bool:
        """Block until `since(position)` has something to say; False when `timeout_seconds` passed (None: no limit).

        Woken by commits of any process, within about 30 ms where the folder can be watched, else within
        `watch.LOOK_SECONDS`. Also ends, with False, when `stop` is called.
        """
        with self._core.new_reader() as reader, self._watch() as watch:
            return watch.until(reader, partial(feed.moved, reader, position), timeout_seconds=timeout_seconds)

    def follow(self, position: Position, *, limit: int = 500) -> Iterator[Batch]:
        """Batches from `position` on, as they come, until `stop` is called. For a thread of its own."""
        with self._core.new_reader() as reader, self._watch() as watch:
            while watch.until(reader, partial(feed.moved, reader, position), timeout_seconds=None):
                batch = feed.since(reader, position, limit=limit)
                position = batch.position
                yield batch

    def stop(self) -> None:
        """End every wait of this object, now and later."""
        self._stop.set()

    def _watch(self) -> CommitWatch:
        return CommitWatch(self._core.path, clock=self._core.clock, stop=self._stop)
