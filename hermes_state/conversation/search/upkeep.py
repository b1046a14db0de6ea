"""When the index is filled, emptied, swept and merged.

Invariant: every failure of the index file ends here as a `Trouble`; failures of the store itself go on to the caller.
A store that was opened for reading only never changes the index. Not for: how the steps work (see `catch_up.py`).
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from hermes_state.conversation.search.catch_up import BATCH_ROWS, MERGE_PAGES, catch_up, merge_step, sweep_step
from hermes_state.conversation.search.index import Index, Trouble
from hermes_state.conversation.search.layout import StoreState, read_marks, read_state
from hermes_state.conversation.search.records import IndexWork
from hermes_state.engine import Reader
from hermes_state.engine.core import Core
from hermes_state.errors import StateError


class Upkeep:
    """The index of one store, kept in step with it."""

    def __init__(self, core: Core, index: Index) -> None:
        self._core = core
        self._index = index

    def is_ours(self, error: StateError) -> bool:
        """Whether a failure is the index file's, not the store's."""
        path = error.facts.get("path")
        return path is not None and Path(os.path.realpath(path)) == Path(os.path.realpath(self._index.path))

    def after(self, error: StateError, state: StoreState) -> Trouble:
        """What a failure of the index means; a damaged file is emptied at once."""
        trouble = self._index.trouble(error)
        self._index.let_go()
        if trouble.rebuild and not self._core.read_only:
            self._index.rebuild(state)
        return trouble

    def prepare(self, reader: Reader, state: StoreState, *, until: float, at_least: int) -> Trouble | None:
        """Have an index that fits and is up to date within the time; None when it can be asked."""
        for attempt in range(2):
            try:
                with self._index.reader() as index:
                    marks = self._index.marks(index)
                if marks.fits(state):
                    if state.newest - marks.high_water < at_least or self._core.read_only or self._index.resting:
                        return None
                    failed = self._add(reader, state, batches=1_000_000, until=until)
                    # What cannot be added now can still be read: only a file that is not whole cannot be asked.
                    return failed if failed is not None and failed.rebuild else None
                trouble = Trouble(reason=f"{self._index.path} was made for another state of the store", rebuild=True)
            except StateError as error:
                if not self.is_ours(error):
                    raise
                trouble = self._index.trouble(error)
            if attempt or not trouble.rebuild or self._core.read_only:
                return trouble
            failed = self._index.rebuild(state)
            if failed is not None:
                return failed
        return None

    def _add(self, reader: Reader, state: StoreState, *, batches: int, until: float) -> Trouble | None:
        try:
            catch_up(self._index, reader, state, batches=batches, until=until, now=self._core.clock.monotonic)
        except StateError as error:
            if not self.is_ours(error):
                raise
            return self.after(error, state)
        return None

    def rebuild(self) -> IndexWork:
        """Empty the index; the next steps and searches fill it anew."""
        with self._core.reader() as reader:
            state = read_state(reader)
            trouble = Trouble(reason=f"{self._core.path} was opened for reading only")
            failed = trouble if self._core.read_only else self._index.rebuild(state, force=True)
            pending = reader.rows("SELECT count(*) FROM messages")[0][0]
        return IndexWork(pending=pending, degraded="" if failed is None else failed.reason)

    # --- for idle time ---------------------------------------------------------------------------------------

    def catch_up(self, budget_seconds: float) -> IndexWork:
        until = self._core.clock.monotonic() + budget_seconds
        return self._work(batches=1_000_000, until=until)

    def idle(self, max_batches: int) -> IndexWork:
        """Index, then sweep, then merge what has become worth it: at most `max_batches` steps in all."""
        work = self._work(batches=max_batches, until=float("inf"))
        left = max_batches - (work.indexed + BATCH_ROWS - 1) // BATCH_ROWS
        return work if work.pending or work.degraded or left <= 0 else self._tidied(work, left, whole=False)

    def optimize(self, max_steps: int) -> IndexWork:
        work = self._work(batches=1_000_000, until=float("inf"))
        return work if work.degraded else self._tidied(work, max_steps, whole=True)

    def _tidied(self, work: IndexWork, steps: int, *, whole: bool) -> IndexWork:
        """Sweep and merge in up to `steps` steps each, then give free pages back."""
        removed, trouble = self._sweep(steps)
        merged = freed = 0
        try:
            for step in range(0 if trouble else steps):
                with self._index.writer() as writer:
                    if writer is None or not merge_step(writer, whole=whole and step == 0):
                        break
                merged += MERGE_PAGES
            with self._index.writer() as writer:
                if writer is not None and (removed or merged) and writer.freelist_count:
                    freed = writer.incremental_vacuum(writer.freelist_count, deadline_seconds=0.05)
                    writer.checkpoint("passive")
        except StateError as error:
            if not self.is_ours(error):
                raise
            with self._core.reader() as reader:
                trouble = self.after(error, read_state(reader)).reason
        return replace(work, removed=removed, merged_pages=merged, freed_pages=freed, degraded=trouble)

    def _work(self, *, batches: int, until: float) -> IndexWork:
        with self._core.reader() as reader:
            state = read_state(reader)
            before = self._high_water(state)
            trouble = self.prepare(reader, state, until=until, at_least=1 << 62)
            if trouble is None and self._core.read_only:
                trouble = Trouble(reason=f"{self._core.path} was opened for reading only")
            elif trouble is None:
                before = self._high_water(state)
                trouble = self._add(reader, state, batches=batches, until=until)
            after = self._high_water(state)
            counted = reader.rows(
                "SELECT (SELECT count(*) FROM messages WHERE id > ?1 AND id <= ?2),"
                " (SELECT count(*) FROM messages WHERE id > ?2)", (before, after),
            )[0]
        return IndexWork(
            indexed=counted[0], pending=counted[1], degraded="" if trouble is None else trouble.reason
        )

    def _high_water(self, state: StoreState) -> int:
        try:
            with self._index.reader() as index:
                marks = self._index.marks(index)
        except StateError as error:
            if not self.is_ours(error):
                raise
            return 0
        return marks.high_water if marks.fits(state) else 0

    def _sweep(self, steps: int) -> tuple[int, str]:
        removed = 0
        with self._core.reader() as reader:
            state = read_state(reader)
            try:
                for _ in range(steps):
                    with self._index.writer() as writer:
                        marks = None if writer is None else read_marks(writer)
                        if writer is None or marks is None or not marks.fits(state):
                            break
                        count, done = sweep_step(writer, reader, marks, state)
                    removed += count
                    if done:
                        break
            except StateError as error:
                if not self.is_ours(error):
                    raise
                return removed, self.after(error, state).reason
        return removed, ""
