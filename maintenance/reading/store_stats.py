"""Figures of a whole store.

Invariant: every source is counted, none is special; sizes by object are read only when asked for, because they walk
every page. Not for: judging (`doctor`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from maintenance.dialects.base import ChannelSize, ContentSizes, Dialect, StoreCounts
from maintenance.lineage import Forest
from maintenance.marks import Marks
from maintenance.space.sizes import ObjectSize, Sizes, by_object, sizes

if TYPE_CHECKING:
    from hermes_state.engine import ReadStore


@dataclass(frozen=True, kw_only=True)
class StoreStats:
    """What `stats` reports."""

    counts: StoreCounts  # rows, with archived and pinned by column only
    conversations: int  # entries of a list that shows everything
    delegates: int  # sessions that another one handed out
    archived: int  # by column or mark
    pinned: int  # by column or mark
    schema_version: int | None  # as the file states it
    unknown_tables: tuple[str, ...]  # tables that we do not know, which are always kept
    sizes: Sizes  # file, WAL, pages
    channels: tuple[ChannelSize, ...]  # what each kind of content takes; empty for files of hermes-agent
    index_bytes: int | None  # of the search index beside a native store; None for files that hold theirs
    objects: tuple[ObjectSize, ...] | None  # sizes by object, largest first; None when not asked for
    content: ContentSizes | None  # what structured content takes; None when not asked for

    @property
    def search_bytes(self) -> int | None:
        """Bytes of the search indexes: of the file beside a native store, else when sizes by object were read."""
        if self.index_bytes is not None:
            return self.index_bytes
        if self.objects is None:
            return None
        return sum(item.bytes for item in self.objects if item.kind == "search index")


def store_stats(store: ReadStore, dialect: Dialect, marks: Marks, *, by_size: bool) -> StoreStats:
    """Count the store behind `store`."""
    with store.snapshot():
        counts = dialect.counts(store)
        lineage = dialect.lineage(store)
        archived = counts.archived + _only_marked(store, dialect, marks.archived, "archived")
        pinned = counts.pinned + _only_marked(store, dialect, marks.pinned, "pinned")
        objects = by_object(store) if by_size else None
        content = dialect.content_sizes(store) if by_size else None
        channels = dialect.channels(store)
    forest = Forest(lineage)
    merged = sum(len(segments) - 1 for segments in forest.conversations)
    return StoreStats(
        counts=counts,
        conversations=counts.sessions - merged,
        delegates=sum(forest.owner(forest.root(row.id)) is not None for row in lineage),
        archived=archived,
        pinned=pinned,
        schema_version=dialect.shape.schema_version,
        unknown_tables=dialect.shape.unknown_tables,
        sizes=sizes(store),
        channels=channels,
        index_bytes=_index_bytes(store) if dialect.is_native else None,
        objects=objects,
        content=content,
    )


def _index_bytes(store: ReadStore) -> int:
    from maintenance.space.native_plan import search_size

    return search_size(store.path)


def _only_marked(store: ReadStore, dialect: Dialect, ids: frozenset[str], flag: str) -> int:
    """How many marked sessions the file still has and does not flag by itself."""
    return sum(not getattr(row.facts, flag) for row in dialect.sessions(store, sorted(ids)).values())
