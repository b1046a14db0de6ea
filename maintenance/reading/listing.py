"""One page of the sessions list.

Invariant: filters apply before the page is cut; only the sessions of the page are read whole and get a preview. What
the list does not show is counted, so that its figures add up to those of `stats`; only on a native store with many
sessions nothing is counted, because a page of it costs the same however many there are.

Not for: choosing (`selection`). Showing every row of a compressed conversation was rejected: one conversation is one
entry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from maintenance.dialects.base import Dialect, SessionRow
from maintenance.marks import Marks
from maintenance.selection import Conversation, Filters, LeftOut, select
from maintenance.selection.select import title_of, together

if TYPE_CHECKING:
    from hermes_state.engine import ReadStore

# The source of sessions that tools open for themselves.
TOOL_SOURCE = "tool"
# How many previews are read between two words about progress.
PREVIEWS_AT_ONCE = 200


@dataclass(frozen=True, kw_only=True)
class ListEntry:
    """One line of the list."""

    conversation: Conversation  # what it stands for
    row: SessionRow  # the segment that goes on
    title: str | None  # its title, else that of the newest titled segment
    preview: str | None  # first words of the conversation


@dataclass(frozen=True, kw_only=True)
class ListPage:
    """A page of the list and how it relates to the whole store."""

    entries: tuple[ListEntry, ...]  # the page
    offset: int  # entries before it
    matching: int | None  # entries of all pages; None when they were not counted
    matching_sessions: int | None  # sessions behind them, segments counted
    left_out: LeftOut | None  # sessions that match and are not listed
    more: bool  # whether another page follows

    @property
    def remaining(self) -> int | None:
        """Entries after this page."""
        return None if self.matching is None else max(0, self.matching - self.offset - len(self.entries))


def list_filters(filters: Filters, *, everything: bool) -> Filters:
    """The filters of a list: tools' sessions are left out unless their source or everything is asked for."""
    if everything:
        return replace(filters, include_archived=True, include_delegates=True, include_hidden=True)
    return replace(filters, hidden_sources=(TOOL_SOURCE,))


def list_sessions(
    store: ReadStore,
    dialect: Dialect,
    marks: Marks,
    filters: Filters,
    now: float,
    *,
    limit: int | None = None,
    offset: int = 0,
    preview_width: int = 60,
    advance: Callable[[int], None] | None = None,
) -> ListPage:
    """The page of entries from `offset` on. `advance` hears how many entries are ready."""
    if limit is not None and dialect.is_native:
        bounded = _bounded(store, dialect, marks, filters, limit=limit, offset=offset, preview_width=preview_width)
        if bounded is not None:
            return bounded
    with store.snapshot():
        selection = select(store, dialect, marks, filters, now)
        page = selection.conversations[offset : None if limit is None else offset + limit]
        rows = dialect.sessions(store, [key for entry in page for key in entry.segments])
        previews: dict[str, str] = {}
        for start in range(0, len(page), PREVIEWS_AT_ONCE):
            part = page[start : start + PREVIEWS_AT_ONCE]
            previews |= _previews(store, dialect, part, preview_width)
            if advance is not None:
                advance(len(part))
    matching = len(selection.conversations)
    return ListPage(
        entries=_entries(page, rows, previews),
        offset=offset,
        matching=matching,
        matching_sessions=len(selection.ids),
        left_out=selection.left_out,
        more=matching > offset + len(page),
    )


def _bounded(
    store: ReadStore,
    dialect: Dialect,
    marks: Marks,
    filters: Filters,
    *,
    limit: int,
    offset: int,
    preview_width: int,
) -> ListPage | None:
    """The page of a large native store, or None when all of it has to be looked at."""
    from maintenance.dialects.native import listing

    if marks.archived or marks.pinned or not listing.fits(filters):
        return None
    with store.snapshot():
        if not listing.is_large(store):
            return None
        found = listing.page(store, filters, limit=limit, offset=offset)
        chains = found[:limit]
        rows = dialect.sessions(store, [key for segments in chains for key in segments])
        page = [
            Conversation(
                facts=together([rows[key] for key in segments], segments[-1]).facts
                if len(segments) > 1
                else rows[segments[0]].facts,
                segments=segments,
            )
            for segments in chains
        ]
        previews = _previews(store, dialect, page, preview_width)
    return ListPage(
        entries=_entries(page, rows, previews),
        offset=offset,
        matching=None,
        matching_sessions=None,
        left_out=None,
        more=len(found) > limit,
    )


def _entries(
    page: Sequence[Conversation], rows: Mapping[str, SessionRow], previews: Mapping[str, str]
) -> tuple[ListEntry, ...]:
    return tuple(
        ListEntry(
            conversation=entry,
            row=rows[entry.id],
            title=title_of([rows[key] for key in entry.segments], entry.id),
            preview=next((previews[key] for key in _preview_order(entry) if key in previews), None),
        )
        for entry in page
    )


def _preview_order(entry: Conversation) -> tuple[str, ...]:
    """Where a preview is looked for: how the conversation began, else how it goes on."""
    return (entry.segments[0],) if len(entry.segments) == 1 else (entry.segments[0], entry.id)


def _previews(store: ReadStore, dialect: Dialect, page: Sequence[Conversation], width: int) -> dict[str, str]:
    wanted = dict.fromkeys(key for entry in page for key in _preview_order(entry))
    return dialect.previews(store, list(wanted), width)
