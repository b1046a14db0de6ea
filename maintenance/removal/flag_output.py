"""What the verbs that flag sessions say: plan, outcome and documents.

Invariant: a repeat says that it is done already and changes nothing. Not for: asking or setting.
"""

from __future__ import annotations

from typing import Any

import click

from maintenance.context import Context
from maintenance.lineage import KeptUnit
from maintenance.output.documents import print_json
from maintenance.output.text import human_time, plural, rfc3339, safe_text
from maintenance.plan import Plan
from maintenance.removal.describe import SHOWN, kept_facts
from maintenance.removal.marking import Flagging

# Flag and value: what a plan says, what an outcome says, what is already so.
WORDS = {
    ("archived", True): ("Archive", "Archived", "archived"),
    ("archived", False): ("Unarchive", "Unarchived", "not archived"),
    ("pinned", True): ("Pin", "Pinned", "pinned"),
    ("pinned", False): ("Unpin", "Unpinned", "not pinned"),
}


def flag_plan(ctx: Context, flagging: Flagging, *, everything: bool) -> Plan:
    """What would be set."""
    changing = changing_conversations(flagging)
    verb, _done, _state = WORDS[(flagging.flag, flagging.value)]
    lines = []
    for tip in changing if everything else changing[:SHOWN]:
        row = flagging.rows[tip]
        when = human_time(row.facts.last_activity_at, ctx.clock)
        lines.append(f"{tip}  {row.facts.source}  {when}  {row.title or row.display_name or ''}".rstrip())
    if not everything and len(changing) > SHOWN:
        lines.append(f"and {plural(len(changing) - SHOWN, 'more conversation')}; --dry-run lists all")
    lines += [_kept_line(one) for one in flagging.kept] if everything else _kept_counts(flagging)
    lines.append(f"Changes {plural(len(flagging.ids), 'session')} {where(ctx, flagging)}; it can be taken back.")
    return Plan(
        title=f"{verb} {plural(len(changing), 'conversation')} in {ctx.db}",
        lines=tuple(lines),
        facts={"path": str(ctx.db)} | plan_document(flagging),
    )


def where(ctx: Context, flagging: Flagging) -> str:
    """Where the flag is kept."""
    if flagging.place == "column":
        return "in the store"
    return f"in {ctx.db.name}.hermes-state.json, because this file has no column for it"


def changing_conversations(flagging: Flagging) -> list[str]:
    """The conversations of which at least one session changes."""
    changing = set(flagging.ids)
    return [tip for tip, segments in flagging.conversations.items() if not changing.isdisjoint(segments)]


def plan_document(flagging: Flagging) -> dict[str, Any]:
    """The plan for programs."""
    return {
        "flag": flagging.flag,
        "value": flagging.value,
        "stored_in": flagging.place,
        "already_done": not flagging.ids,
        "session_count": len(flagging.ids),
        "sessions": list(flagging.ids),
        "conversations": [
            {
                "id": tip,
                "title": flagging.rows[tip].title,
                "source": flagging.rows[tip].facts.source,
                "last_activity_at": rfc3339(flagging.rows[tip].facts.last_activity_at),
            }
            for tip in flagging.conversations
        ],
        "kept": kept_facts(flagging.kept),
    }


def print_flagged(ctx: Context, flagging: Flagging, changed: int) -> None:
    """The outcome."""
    if ctx.json:
        document = {"dry_run": False, "path": str(ctx.db)} | plan_document(flagging)
        print_json(document | {"already_done": not changed, "session_count": changed})
        return
    _verb, done, state = WORDS[(flagging.flag, flagging.value)]
    if changed:
        click.echo(safe_text(f"{done} {plural(changed, 'session')} {where(ctx, flagging)}."))
    else:
        count = len(flagging.conversations)
        click.echo(f"Already done: {plural(count, 'conversation')} {'is' if count == 1 else 'are'} {state}.")


def _kept_line(kept: KeptUnit) -> str:
    return f"stays: {kept.unit.tip}, because {kept.reason}"


def _kept_counts(flagging: Flagging) -> list[str]:
    if not flagging.kept:
        return []
    return [f"{plural(len(flagging.kept), 'conversation')} that matched left as it is; --dry-run says why."]
