"""One session as text and as a document.

Invariant: an answer of a page's size is a page's size: message text is cut to a line unless whole messages were asked
for. Not for: reading.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from hermes_state.clock import Clock
from maintenance.dialects.base import MessageRow
from maintenance.dialects.readable import preview_of, readable_text
from maintenance.output.tables import Column, print_facts, print_table
from maintenance.output.text import human_bytes, human_time, plural, rfc3339, safe_text
from maintenance.reading.session_page import SessionPage

LINE_WIDTH = 100


def print_session(page: SessionPage, clock: Clock) -> None:
    """Facts, lineage and usage."""
    print_facts((name, safe_text(value, 400)) for name, value in _facts(page, clock))
    if page.usage:
        click.echo()
        print_table(
            [
                Column("model", widest=60),
                Column("task", widest=40),
                Column("calls", right=True),
                Column("input", right=True),
                Column("output", right=True),
                Column("usd", right=True),
            ],
            [
                [
                    use.model,
                    use.task or "conversation",
                    use.api_calls,
                    use.input_tokens,
                    use.output_tokens,
                    "-" if use.cost_usd is None else f"{use.cost_usd:.4f}",
                ]
                for use in page.usage
            ],
        )


def print_messages(page: SessionPage, rows: Iterable[MessageRow], clock: Clock, *, whole: bool) -> None:
    """The messages, with a line where some are left out."""
    if not page.message_ids:
        return
    click.echo()
    hidden = page.message_rows - len(page.message_ids)
    for number, row in enumerate(rows):
        if hidden > 0 and number == (len(page.message_ids) + 1) // 2:
            click.echo(f"  … {hidden} more (--all) …")
        state = "" if row.live else " (compacted)" if row.compacted else " (rewound)"
        name = f"{row.role} {row.tool_name}" if row.tool_name else row.role
        head = f"{row.id}  {human_time(row.timestamp, clock)}  {safe_text(name, 40)}{state}"
        if whole:
            click.echo(f"--- {head}")
            for line in _whole_text(row).splitlines() or [""]:
                click.echo(safe_text(line))
        else:
            click.echo(f"  {head}: {safe_text(preview_of(_content(row), LINE_WIDTH), LINE_WIDTH)}")


def session_document(page: SessionPage, rows: Iterable[MessageRow], *, whole: bool) -> dict[str, Any]:
    """The fields of `--json`."""
    row, facts, lineage = page.row, page.row.facts, page.lineage
    return {
        "session": {
            "id": facts.id,
            "title": row.title,
            "source": facts.source,
            "model": row.model,
            "started_at": rfc3339(facts.started_at),
            "ended_at": rfc3339(facts.ended_at),
            "ended": facts.ended,
            "end_reason": row.end_reason,
            "last_activity_at": rfc3339(facts.last_activity_at),
            "archived": facts.archived,
            "auto_archived": row.auto_archived,
            "pinned": facts.pinned,
            "hidden": facts.hidden,
            "message_count": facts.message_count,
            "tool_call_count": row.tool_call_count,
            "input_tokens": row.input_tokens,
            "output_tokens": row.output_tokens,
            "cost_usd": row.cost_usd,
            "provider": row.provider,
            "cwd": row.cwd,
            "repo_root": row.repo_root,
            "branch": row.branch,
            "user_id": row.user_id,
            "chat_id": row.chat_id,
            "chat_type": row.chat_type,
            "thread_id": row.thread_id,
            "session_key": row.session_key,
            "display_name": row.display_name,
            "profile": row.profile,
        },
        "lineage": {
            "kind": lineage.kind.value,
            "parent_id": lineage.parent_id,
            "parent_exists": lineage.parent_exists,
            "root_id": lineage.root,
            "tip_id": lineage.tip,
            "segments": list(lineage.segments),
            "branches": list(lineage.branches),
            "delegates": list(lineage.delegates),
        },
        "guard": page.guard,
        "message_rows": page.message_rows,
        "message_rows_by_role": dict(page.roles),
        "message_bytes": page.message_bytes,
        "usage": [
            {
                "model": use.model,
                "provider": use.provider,
                "task": use.task,
                "api_calls": use.api_calls,
                "input_tokens": use.input_tokens,
                "output_tokens": use.output_tokens,
                "cost_usd": use.cost_usd,
            }
            for use in page.usage
        ],
        "messages": [_message(message, whole=whole) for message in rows],
    }


def _message(row: MessageRow, *, whole: bool) -> dict[str, Any]:
    return {
        "id": row.id,
        "role": row.role,
        "at": rfc3339(row.timestamp),
        "tool_name": row.tool_name,
        "live": row.live,
        "compacted": row.compacted,
        "content_bytes": row.content_bytes,
        "text": _whole_text(row) if whole else preview_of(_content(row), LINE_WIDTH),
    }


def _content(row: MessageRow) -> Any:
    return row.content if row.content not in (None, "") or not row.tool_calls else "[tool calls]"


def _whole_text(row: MessageRow) -> str:
    text = readable_text(row.content)
    return f"{text}\n[tool calls] {row.tool_calls}".lstrip("\n") if row.tool_calls else text


def _facts(page: SessionPage, clock: Clock) -> list[tuple[str, Any]]:
    row, facts, lineage = page.row, page.row.facts, page.lineage
    flags = [
        word for word, on in (("archived", facts.archived), ("pinned", facts.pinned), ("hidden", facts.hidden)) if on
    ]
    ended = "still open"
    if facts.ended:
        ended = human_time(facts.ended_at, clock) if facts.ended_at is not None else "?"
        ended += f" ({row.end_reason})" if row.end_reason else ""
    parent = lineage.parent_id or "-"
    if lineage.parent_id and not lineage.parent_exists:
        parent += " (not in this store)"
    cost = "" if row.cost_usd is None else f", {row.cost_usd:.4f} USD"
    roles = ", ".join(f"{count} {role}" for role, count in page.roles.items())
    found: list[tuple[str, Any]] = [
        ("id", facts.id),
        ("title", row.title),
        ("source", facts.source),
        ("model", row.model),
        ("started", human_time(facts.started_at, clock) if facts.started_at is not None else "?"),
        ("ended", ended),
        ("last active", human_time(facts.last_activity_at, clock) if facts.last_activity_at is not None else "?"),
        ("messages", f"{plural(page.message_rows, 'row')} ({roles or 'none'}), counter {facts.message_count}"),
        ("text", human_bytes(page.message_bytes)),
        ("tokens", f"{row.input_tokens} in, {row.output_tokens} out, {row.tool_call_count} tool calls{cost}"),
        ("workspace", row.workspace),
        ("branch", row.branch),
        ("chat", " / ".join(part for part in (row.chat_type, row.chat_id, row.user_id) if part) or None),
        ("kind", lineage.kind.value),
        ("parent", parent),
        ("marks", ", ".join(flags) or None),
        ("protected", page.guard),
    ]
    if len(lineage.segments) > 1:
        found.append(("segments", f"{' > '.join(lineage.segments)}; goes on in {lineage.tip}"))
    for name, ids in (("branches", lineage.branches), ("delegates", lineage.delegates)):
        if ids:
            found.append((name, ", ".join(ids)))
    return [(name, value) for name, value in found if value not in (None, "")]
