"""Merging the segments of full-text indexes.

Invariant: a merge changes no search result and no row; every transaction leaves a whole index, so after a kill the next
run goes on from there. A step that changes nothing is the end.

Not for: rebuilding a damaged index (`doctor` says so and names the repair). FTS5's single `optimize` command was
rejected: it keeps every old page until its end, so the file first grows by the index, it shows no progress, and it is
no faster than steps of 1,000 pages (measured on a 200 MB file: 0.40 s and 0.42 s).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from maintenance.quoting import quoted
from maintenance.space.segments import IndexState, index_state, structure_record

if TYPE_CHECKING:
    from hermes_state.clock import Clock
    from hermes_state.engine import Reader, Store, Transaction

# Alone, nobody waits for the write lock: a step of 1,000 pages takes 45 ms on a 2-core virtual machine.
PAGES_ALONE = 1000
# Steps are committed together up to this many pages: each commit may cost a checkpoint and its syncs.
PAGES_A_TRANSACTION = 16_000

# Beside others a transaction should hold the write lock for at most this long.
ONLINE_SECONDS = 0.010
_ONLINE_PAGES_FIRST = 16
_ONLINE_PAGES_MOST = 128
# Between two transactions others get the lock at least as long as we had it.
_PAUSE_LEAST_SECONDS = 0.002

# Receives the pages of each finished step.
Progress = Callable[[int], None]


@dataclass(frozen=True, kw_only=True)
class Merged:
    """What merging one index did."""

    # Name of the index.
    name: str
    # Segments before; None when unknown.
    segments_before: int | None
    # Segments after; None when unknown.
    segments_after: int | None
    # Transactions it took.
    transactions: int
    # Longest time that one of them took.
    longest_seconds: float
    # Why it was left alone; empty when it was merged or had nothing to merge.
    skipped: str = ""

    def document(self) -> dict[str, object]:
        """The fields of `--json`."""
        return {
            "name": self.name,
            "segments_before": self.segments_before,
            "segments_after": self.segments_after,
            "transactions": self.transactions,
            "longest_seconds": round(self.longest_seconds, 6),
            "skipped": self.skipped or None,
        }


# A way to merge one index: `merge_alone` or `merge_online`.
Merge = Callable[["Store", IndexState, "Clock", Progress], Merged]


def left_alone(state: IndexState, reason: str) -> Merged:
    """The report of an index that is not touched."""
    return Merged(
        name=state.name,
        segments_before=state.segments,
        segments_after=state.segments,
        transactions=0,
        longest_seconds=0.0,
        skipped=reason,
    )


def merge_alone(store: Store, state: IndexState, clock: Clock, progress: Progress | None = None) -> Merged:
    """Merge one index into one segment. For a store that nobody else is using."""
    merge = _Merge(state.name)
    transactions, longest = 0, 0.0
    while not merge.done:
        started = clock.monotonic()
        pages = 0
        with store.transaction(durability="process") as tx:
            while pages < PAGES_A_TRANSACTION and merge.step(tx, PAGES_ALONE):
                pages += PAGES_ALONE
                if progress is not None:
                    progress(PAGES_ALONE)
        transactions += 1
        longest = max(longest, clock.monotonic() - started)
    return _report(store, state, transactions, longest)


def merge_online(store: Store, state: IndexState, clock: Clock, progress: Progress | None = None) -> Merged:
    """Merge one index in transactions short enough to run beside writers."""
    merge = _Merge(state.name)
    transactions, longest = 0, 0.0
    pages = _ONLINE_PAGES_FIRST
    while not merge.done:
        with store.transaction(durability="process") as tx:
            # The wait for the lock is not time for which others waited for us.
            started = clock.monotonic()
            merge.step(tx, pages)
            took = clock.monotonic() - started
        transactions += 1
        longest = max(longest, took)
        if progress is not None:
            progress(pages)
        if took > ONLINE_SECONDS:
            pages = max(1, pages // 2)
        elif took < ONLINE_SECONDS / 3:
            pages = min(_ONLINE_PAGES_MOST, pages * 2)
        if not merge.done:
            clock.sleep(max(_PAUSE_LEAST_SECONDS, took))
    return _report(store, state, transactions, longest)


class _Merge:
    """One index on its way to one segment, across transactions."""

    def __init__(self, name: str) -> None:
        self.done = False
        self._table = quoted(name)
        self._name = name
        self._first = True

    def step(self, tx: Transaction, pages: int) -> bool:
        """Merge about `pages` pages; False when there was nothing left to do.

        The first step has a negative number, which tells FTS5 to bring all segments together; the next go on from it.
        """
        before = structure_record(tx, self._name)
        asked = -pages if self._first else pages
        tx.execute(f"INSERT INTO {self._table}({self._table}, rank) VALUES ('merge', ?)", (asked,))
        changed = structure_record(tx, self._name) != before
        self.done = not changed and not self._first
        self._first = False
        return not self.done


def _report(reader: Reader, state: IndexState, transactions: int, longest: float) -> Merged:
    return Merged(
        name=state.name,
        segments_before=state.segments,
        segments_after=index_state(reader, state.name).segments,
        transactions=transactions,
        longest_seconds=longest,
    )
