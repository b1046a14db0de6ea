"""A page of the sessions list as a table and as a document.

Invariant: what a list leaves out is said below it, with the option that shows it. Not for: reading.
"""

from __future__ import annotations

from typing import Any

import click

from hermes_state.clock import Clock
from maintenance.output.tables import Column, print_table
from maintenance.output.text import human_age, human_time, rfc3339
from maintenance.reading.listing import ListEntry, ListPage

NO_TITLE = "(untitled)"


def print_list(page: ListPage, clock: Clock) -> None:
    """The table to stdout, the footer to stdout as well: it is part of the answer."""
    if page.entries:
        flagged = any(_flags(entry) for entry in page.entries)
        columns = [
            Column("title", shrinks=True, widest=40),
            Column("preview", shrinks=True, widest=60),
            Column("last active"),
            Column("source", widest=24),
            Column("messages", right=True),
            *([Column("marks")] if flagged else []),
            Column("id", widest=120),
        ]
        print_table(columns, [_cells(entry, clock, flagged=flagged) for entry in page.entries])
        click.echo()
    for line in footer(page):
        click.echo(line)


def footer(page: ListPage) -> list[str]:
    """What the page shows of the store, and what it does not show."""
    lines = []
    if not page.entries:
        if page.matching:
            lines.append(f"No sessions after --offset {page.offset}; {page.matching} match.")
        else:
            past = page.matching is None and page.offset
            lines.append(f"No sessions after --offset {page.offset}." if past else "No sessions found.")
    elif page.matching is None or page.matching_sessions is None:
        first, last = page.offset + 1, page.offset + len(page.entries)
        lines.append(f"Shown: {first} to {last}, not counted further: `hermes-state sessions stats` counts.")
        if page.more:
            lines.append(f"More: with --offset {last}.")
    else:
        first, last = page.offset + 1, page.offset + len(page.entries)
        shown = f"{first} to {last} of {page.matching}" if len(page.entries) < page.matching else f"{page.matching}"
        segments = page.matching_sessions - page.matching
        folded = f" ({page.matching_sessions} sessions with their earlier segments)" if segments else ""
        lines.append(f"Shown: {shown} {'entry' if page.matching == 1 else 'entries'}{folded}.")
        if page.remaining:
            lines.append(f"More: {page.remaining}, with --limit {page.matching} or --offset {last}.")
    left_out = [f"{count} {what}" for count, what in _left_out(page) if count]
    if left_out:
        lines.append(f"Not listed: {', '.join(left_out)}.")
    return lines


def list_document(page: ListPage) -> dict[str, Any]:
    """The fields of `--json`; figures that were not counted are null."""
    left_out = page.left_out
    return {
        "sessions": [_document(entry) for entry in page.entries],
        "offset": page.offset,
        "shown": len(page.entries),
        "matching": page.matching,
        "matching_sessions": page.matching_sessions,
        "remaining": page.remaining,
        "more": page.more,
        "left_out": None
        if left_out is None
        else {
            "archived": left_out.archived,
            "delegates": left_out.delegates,
            "tool": left_out.by_source,
            "hidden": left_out.hidden,
            "unnamed": left_out.unnamed,
        },
    }


def _left_out(page: ListPage) -> list[tuple[int, str]]:
    if page.left_out is None:
        return []
    delegates = "delegate" if page.left_out.delegates == 1 else "delegates"
    return [
        (page.left_out.archived, "archived (--include-archived)"),
        (page.left_out.delegates, f"{delegates} (--include-delegates)"),
        (page.left_out.by_source, "of tools (--source tool)"),
        (page.left_out.hidden, "special hidden"),
        (page.left_out.unnamed, "damaged, without a readable id"),
    ]


def _flags(entry: ListEntry) -> str:
    facts = entry.conversation.facts
    return " ".join(word for word, on in (("pinned", facts.pinned), ("archived", facts.archived)) if on)


def _cells(entry: ListEntry, clock: Clock, *, flagged: bool) -> list[Any]:
    facts = entry.conversation.facts
    active = facts.last_activity_at
    recent = active is not None and 0 <= clock.now() - active < 7 * 86_400
    return [
        entry.title or NO_TITLE,
        entry.preview,
        human_age(active, clock) if recent else human_time(active, clock) if active is not None else "?",
        facts.source,
        facts.message_count,
        *([_flags(entry)] if flagged else []),
        facts.id,
    ]


def _document(entry: ListEntry) -> dict[str, Any]:
    facts, row = entry.conversation.facts, entry.row
    return {
        "id": facts.id,
        "root_id": entry.conversation.segments[0],
        "segments": len(entry.conversation.segments),
        "title": entry.title,
        "preview": entry.preview,
        "source": facts.source,
        "model": row.model,
        "started_at": rfc3339(facts.started_at),
        "ended_at": rfc3339(facts.ended_at),
        "ended": facts.ended,
        "end_reason": row.end_reason,
        "last_activity_at": rfc3339(facts.last_activity_at),
        "message_count": facts.message_count,
        "workspace": row.workspace,
        "parent_id": facts.parent_id,
        "archived": facts.archived,
        "pinned": facts.pinned,
        "delegate": facts.delegate,
    }
