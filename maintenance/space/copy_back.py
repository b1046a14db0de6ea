"""Keeping the WAL short while a long run writes beside others.

Invariant: passive checkpoints only, which wait for nobody and keep nobody waiting. Not for: the end of a run alone.

One checkpoint now and then was rejected: while it copies a long WAL others add to it, so it never reaches the end, and
only a WAL that was copied to its end starts over (measured beside one busy writer: 96 MB for 45 MB of work). A second
one right after has almost nothing to copy and gets there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes_state.engine import Store

# From this many frames (4 to 8 MB) on the WAL is copied back after each step until it starts over, and how often one
# look tries to reach its end.
LONG_FRAMES = 1_000
TRIES = 4


def copy_back(store: Store) -> bool:
    """Copy the WAL into the file; True when all of it was copied, so that the next write starts it over."""
    for _ in range(TRIES):
        store.checkpoint("passive")
        # Asked afterwards: what SQLite answers is about the WAL as it was when the copy began.
        state = store.wal_state()
        if state is None or state.pending_frames == 0:
            return True
    return False


def keep_short(store: Store) -> None:
    """After each transaction of a long run: copy the WAL back when it has become long."""
    state = store.wal_state()
    if state is not None and state.frames >= LONG_FRAMES:
        copy_back(store)
