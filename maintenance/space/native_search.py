"""The search index of a native store: brought up to date, swept of deleted messages, merged, its free pages returned.

Invariant: only the index file is written, in steps that never take the store's write lock; whatever is wrong with it is
said and fails nothing, because every search works without it. A store without an index file keeps none.

Not for: building one (the next search does). Merging it inside a transaction of the store was rejected: others would
wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_state.store import open_store

if TYPE_CHECKING:
    from maintenance.context import Context

# Each step merges about 200 pages; this many are 8 GB of index.
MOST_STEPS = 10_000


@dataclass(frozen=True, kw_only=True)
class SearchWork:
    """What was done to the index."""

    indexed: int  # messages added
    removed: int  # entries of deleted messages taken out
    merged_pages: int  # pages written by merges
    freed_pages: int  # pages given back to the file system
    problem: str = ""  # why it could not be worked on; "" when it could

    @property
    def changed(self) -> bool:
        """Whether anything was written."""
        return bool(self.indexed or self.removed or self.merged_pages or self.freed_pages)

    def document(self) -> dict[str, object]:
        """The fields of `--json`."""
        return {
            "indexed": self.indexed,
            "removed": self.removed,
            "merged_pages": self.merged_pages,
            "freed_pages": self.freed_pages,
            "problem": self.problem or None,
        }


def tidy_search(ctx: Context) -> SearchWork | None:
    """Work on the index of a store that a door has handed out; None when there is no index file."""
    with open_store(path=ctx.db, clock=ctx.clock) as store:
        search = store.search
        if not search.path.exists():
            return None
        try:
            work = search.optimize_index(max_steps=MOST_STEPS)
        finally:
            search.close()
    return SearchWork(
        indexed=work.indexed,
        removed=work.removed,
        merged_pages=work.merged_pages,
        freed_pages=work.freed_pages,
        problem=work.degraded,
    )
