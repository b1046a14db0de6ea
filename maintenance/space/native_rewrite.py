"""Rewriting a native store as a whole, alone on it.

Invariant: the file that was checked is the file that is rewritten, through SQLite's pager, and afterwards it can shrink
again while it is in use. Not for: returning free pages, which needs no rewrite (`native_optimize`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from maintenance.output.progress import progress
from maintenance.space import reclaim
from maintenance.space.disk import require_room, rooms
from maintenance.space.litestream import litestream
from maintenance.space.optimize import BYTES_A_CALL, VERB, Times, check_after, checked_and_alone
from maintenance.space.reclaim import INCREMENTAL
from maintenance.space.sizes import Sizes, pragma, sizes
from maintenance.space.verify import Verdict, require_same_counts, row_counts, row_tables

if TYPE_CHECKING:
    from maintenance.context import Context


@dataclass(frozen=True, kw_only=True)
class Rewritten:
    """What a rewrite left."""

    sizes: Sizes  # at the end
    after: Verdict  # of the checks afterwards
    seconds: float  # under the exclusive lock


def rewrite(ctx: Context) -> Rewritten:
    """VACUUM in place, with incremental vacuum from then on. Raises StoreHeld, InsufficientSpace, Corrupt."""
    times = Times()
    with checked_and_alone(ctx, VERB, times, quick=True) as (alone, _before):
        store = alone.store
        started = ctx.clock.monotonic()
        found = sizes(store)
        store.keep_wal = litestream(store).found
        require_room(
            rooms(reclaim.needs(ctx.db, found, method="vacuum", journal_mode=store.journal_mode, merge_bytes=0)),
            what="Rewriting this store",
        )
        rows = row_counts(store, row_tables(store))
        if pragma(store, "auto_vacuum") != INCREMENTAL:
            # Takes effect with the VACUUM that follows, and reads as the old value until then.
            store.statement("PRAGMA auto_vacuum = incremental", doing="preparing the rewrite of")
        with progress(found.used_bytes, "rewriting the file") as bar:
            reclaim.vacuum(store, found, lambda _step: bar.advance(BYTES_A_CALL))
        store.checkpoint("truncate")
        require_same_counts(store.path, rows, row_counts(store, tuple(rows)))
        after_sizes = sizes(store)
        seconds = ctx.clock.monotonic() - started
    after = check_after(ctx, times, quick=True, what="the rewrite")
    return Rewritten(sizes=after_sizes, after=after, seconds=seconds)
