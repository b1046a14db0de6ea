"""Figures of a store as text and as a document.

Invariant: raw numbers for programs, human sizes for people. Not for: reading.
"""

from __future__ import annotations

from typing import Any

import click

from hermes_state.clock import Clock
from maintenance.output.tables import Column, print_facts, print_table
from maintenance.output.text import human_bytes, human_time, plural, rfc3339
from maintenance.reading.store_stats import StoreStats


def print_stats(stats: StoreStats, clock: Clock) -> None:
    """Tables by source and by object, then the figures of the file."""
    counts, sizes = stats.counts, stats.sizes
    print_table(
        [Column("source", widest=60), Column("sessions", right=True), Column("messages", right=True)],
        [[source, sessions, messages] for source, sessions, messages in counts.by_source],
    )
    click.echo()
    archived, pinned = stats.archived, stats.pinned
    conversations = plural(stats.conversations, "conversation")
    lines = [
        ("sessions", f"{counts.sessions:,} in {conversations}, {stats.delegates:,} of them started as delegates"),
        ("messages", plural(counts.messages, "row")),
        ("state", f"{counts.ended} ended, {counts.sessions - counts.ended} open, {archived} archived, {pinned} pinned"),
        ("oldest", human_time(counts.oldest_started_at, clock)),
        ("newest", human_time(counts.newest_activity_at, clock)),
        ("file", f"{human_bytes(sizes.file_bytes)}, WAL {human_bytes(sizes.wal_bytes)}"),
        ("free", f"{human_bytes(sizes.free_bytes)} in {plural(sizes.free_pages, 'page')} ({sizes.free_share:.1%})"),
        ("schema", "not stated" if stats.schema_version is None else str(stats.schema_version)),
    ]
    if stats.unknown_tables:
        lines.append(("unknown tables", ", ".join(stats.unknown_tables)))
    if stats.channels:
        about = "" if all(channel.exact for channel in stats.channels) else "about "
        shares = ", ".join(f"{channel.name} {channel.share:.0%}" for channel in stats.channels)
        lines.append(("content", f"{about}{human_bytes(sum(channel.bytes for channel in stats.channels))}: {shares}"))
    if stats.index_bytes is not None:
        lines.append(("search", f"{human_bytes(stats.index_bytes)} in a file of its own"))
    elif stats.search_bytes is not None:
        share = stats.search_bytes / max(1, sizes.used_bytes)
        lines.append(("search", f"{human_bytes(stats.search_bytes)} ({share:.0%} of the pages in use)"))
    if stats.content is not None and stats.content.structured_messages:
        size, again = stats.content.structured_bytes, stats.content.structured_repeated_bytes
        count = plural(stats.content.structured_messages, "message")
        lines.append(("structured", f"{count}, {human_bytes(size)}, of which {human_bytes(again)} are repeats"))
    print_facts(lines)
    if stats.objects is None:
        click.echo("\nSizes by table and index: hermes-state sessions stats --sizes")
        return
    click.echo()
    print_table(
        [Column("object", widest=60), "kind", Column("size", right=True), Column("share", right=True)],
        [[item.name, item.kind, human_bytes(item.bytes), f"{item.share:.1%}"] for item in stats.objects],
    )


def stats_document(stats: StoreStats) -> dict[str, Any]:
    """The fields of `--json`."""
    counts = stats.counts
    return {
        "sessions": counts.sessions,
        "conversations": stats.conversations,
        "delegates": stats.delegates,
        "messages": counts.messages,
        "ended": counts.ended,
        "open": counts.sessions - counts.ended,
        "archived": stats.archived,
        "pinned": stats.pinned,
        "oldest_started_at": rfc3339(counts.oldest_started_at),
        "newest_activity_at": rfc3339(counts.newest_activity_at),
        "schema_version": stats.schema_version,
        "unknown_tables": list(stats.unknown_tables),
        "by_source": [
            {"source": source, "sessions": sessions, "message_count": messages}
            for source, sessions, messages in counts.by_source
        ],
        "size": stats.sizes.document(),
        "search_bytes": stats.search_bytes,
        "channels": [
            {"name": item.name, "bytes": item.bytes, "share": round(item.share, 6), "exact": item.exact}
            for item in stats.channels
        ],
        "content": None
        if stats.content is None
        else {
            "structured_messages": stats.content.structured_messages,
            "structured_bytes": stats.content.structured_bytes,
            "structured_repeated_bytes": stats.content.structured_repeated_bytes,
        },
        "objects": None
        if stats.objects is None
        else [
            {"name": item.name, "kind": item.kind, "bytes": item.bytes, "share": round(item.share, 6)}
            for item in stats.objects
        ],
    }
