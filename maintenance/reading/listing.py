"""One page of the sessions list.

Invariant: filters apply before the page is cut; only the sessions of the page are read whole and get a preview. What
the list does not show is counted, so that its figures add up to those of `stats`.

Not for: choosing (`selection`). Showing every row of a compressed conversation was rejected: one conversation is one
entry.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from maintenance.dialects.base import Dialect, SessionRow
from maintenance.marks import Marks
from maintenance.selection import Conversation, Filters, LeftOut, select
from maintenance.selection.select import title_of

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
    matching: int  # entries of all pages
    matching_sessions: int  # sessions behind them, segments counted
    left_out: LeftOut  # sessions that match and are not listed

    @property
    def remaining(self) -> int:
        """Entries after this page."""
        return max(0, self.matching - self.offset - len(self.entries))


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
    entries = [
        ListEntry(
            conversation=entry,
            row=rows[entry.id],
            title=title_of([rows[key] for key in entry.segments], entry.id),
            preview=next((previews[key] for key in _preview_order(entry) if key in previews), None),
        )
        for entry in page
    ]
    return ListPage(
        entries=tuple(entries),
        offset=offset,
        matching=len(selection.conversations),
        matching_sessions=len(selection.ids),
        left_out=selection.left_out,
    )


def _preview_order(entry: Conversation) -> tuple[str, ...]:
    """Where a preview is looked for: how the conversation began, else how it goes on."""
    return (entry.segments[0],) if len(entry.segments) == 1 else (entry.segments[0], entry.id)


def _previews(store: ReadStore, dialect: Dialect, page: Sequence[Conversation], width: int) -> dict[str, str]:
    wanted = dict.fromkeys(key for entry in page for key in _preview_order(entry))
    return dialect.previews(store, list(wanted), width)
