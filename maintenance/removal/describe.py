"""A choice and its outcome in words, and as plain values for `--json`.

Invariant: the plan for people and the facts for programs are made from the same choice; every session that was chosen
and stays is in both, with its reason. Not for: printing or asking.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from maintenance.gate import hold_lines
from maintenance.lineage import KeptUnit, Unit
from maintenance.output.text import human_bytes, human_time, plural, rfc3339
from maintenance.plan import Plan
from maintenance.removal.pacing import ONLINE_ROWS
from maintenance.removal.rates import bytes_of_work
from maintenance.removal.repeat import exact_duration, options_of
from maintenance.selection.retention import OPEN
from maintenance.space.reclaim import INCREMENTAL

if TYPE_CHECKING:
    from hermes_state.clock import Clock
    from maintenance.removal.choice import Choice
    from maintenance.selection import Filters

SHOWN = 15
_TITLE_WIDTH = 48


def make_plan(choice: Choice, clock: Clock, *, online: bool, everything: bool, reclaim: str, ledger: str) -> Plan:
    """The plan to show before the question; with `everything`, every row of it."""
    lines = [*_what_goes(choice, clock, everything=everything), *_what_stays(choice, everything=everything)]
    if choice.ids:
        lines += _how(choice, online=online, reclaim=reclaim, ledger=ledger)
    title = f"Delete {plural(len(choice.ids), 'session')} from {choice.path}"
    return Plan(title=title, lines=tuple(lines), facts=plan_facts(choice, online=online, reclaim=reclaim))


def _what_goes(choice: Choice, clock: Clock, *, everything: bool) -> list[str]:
    lines = []
    if choice.filters is not None:
        lines.append(f"Chosen: {reason_words(choice)}.")
    if choice.goal is not None:
        lines.append(choice.goal.line())
    if not choice.ids:
        if choice.left_behind:
            lines.append("An earlier deletion was interrupted; its rows, which nobody sees any more, are removed.")
        return [*lines, "Nothing to delete."]
    along = f", {plural(choice.delegates, 'delegate')} of theirs among them" if choice.delegates else ""
    lines.append(
        f"{plural(len(choice.ids), 'session')} in {plural(len(choice.units.removable), 'conversation')}{along}; "
        f"{plural(choice.message_count, 'message')}, {human_bytes(choice.text_bytes)} of text."
    )
    oldest, newest = _span(choice)
    lines.append(f"Last activity from {human_time(oldest, clock)} to {human_time(newest, clock)}.")
    if choice.compactions:
        verb = "goes" if choice.compactions == 1 else "go"
        lines.append(f"{plural(choice.compactions, 'compaction')} of theirs {verb} too.")
    if choice.chats:
        verb = "goes" if choice.chats == 1 else "go"
        lines.append(f"{plural(choice.chats, 'chat')} that {verb} on in them {verb} on in a new session then.")
    if choice.jobs:
        verb = "goes" if choice.jobs == 1 else "go"
        lines.append(f"{plural(choice.jobs, 'cron job')} that {verb} on in them {verb} on in a new session then.")
    if choice.files:
        verb = "goes" if choice.files == 1 else "go"
        lines.append(f"{plural(choice.files, 'file')} of theirs beside the store {verb} too.")
    lines.append("")
    shown = choice.units.removable if everything else choice.units.removable[:SHOWN]
    lines += [line for unit in shown for line in _unit_lines(choice, unit, clock, everything=everything)]
    if len(shown) < len(choice.units.removable):
        more = len(choice.units.removable) - len(shown)
        lines.append(f"and {plural(more, 'more conversation')}; --dry-run lists all")
    lines.append("")
    return lines


def _unit_lines(choice: Choice, unit: Unit, clock: Clock, *, everything: bool) -> list[str]:
    """One line for the conversation; with `everything`, one for each session that goes along."""
    row = choice.rows[unit.tip]
    messages = sum(choice.messages.get(key, 0) for key in unit.segments)
    title = (row.title or row.display_name or "")[:_TITLE_WIDTH]
    pinned = "  (pinned)" if any(choice.rows[key].facts.pinned for key in unit.segments) else ""
    lines = [
        f"{unit.tip}  {row.facts.source}  {human_time(row.facts.last_activity_at, clock)}  "
        f"{plural(messages, 'message')}  {title}{pinned}".rstrip()
    ]
    others = [key for key in unit.ids if key != unit.tip]
    if everything:
        lines += [f"  with {key} ({_role(unit, key)})" for key in others]
    elif others:
        lines[0] += f"  (with {plural(len(others), 'more session')})"
    return lines


def _role(unit: Unit, key: str) -> str:
    return "earlier part" if key in unit.segments else "delegate"


def _what_stays(choice: Choice, *, everything: bool) -> list[str]:
    lines = []
    kept = choice.units.kept
    if everything:
        lines += [f"stays: {one.unit.tip}, because {_because(one)}" for one in kept]
    else:
        # What never ended has a line of its own below.
        for reason, count in Counter(one.reason for one in kept if one.reason != OPEN).most_common():
            lines.append(f"{plural(count, 'conversation')} that matched {'stays' if count == 1 else 'stay'}: {reason}.")
    if choice.left_out.get("archived"):
        archived = plural(choice.left_out["archived"], "archived conversation")
        lines.append(f"{archived} left out; --include-archived takes them too.")
    idle = sum(one.reason == OPEN for one in kept)
    if idle:
        said = f"{plural(idle, 'idle session')} never ended, so prune leaves {'it' if idle == 1 else 'them'}."
        options = options_of(choice.filters) if choice.filters is not None else None
        if options is not None:
            said += f" To hide instead, which can be undone: hermes-state sessions archive --open{options}"
        lines.append(said)
    return lines


def _because(kept: KeptUnit) -> str:
    if kept.session_id in kept.unit.segments:
        return kept.reason
    return f"of its delegate {kept.session_id}: {kept.reason}"


def _how(choice: Choice, *, online: bool, reclaim: str, ledger: str) -> list[str]:
    lines = ["Every page is checked first, without a lock; damage stops the run before anything is deleted."]
    if online:
        lines.append(f"Beside other programs: at most {ONLINE_ROWS} rows a transaction, with rests between them.")
        if reclaim != "never" and choice.auto_vacuum != INCREMENTAL:
            lines.append("The file keeps its size: it has no incremental vacuum, so its free pages wait for new rows.")
    else:
        rewritten = choice.sizes.used_bytes if reclaim != "never" else 0
        if rewritten:
            lines += choice.litestream.cost_lines(rewritten)
        lines += hold_lines(bytes_of_work(choice.text_bytes) + rewritten)
    inside = ", and to the store's own ledger with it" if choice.dialect.is_native else ""
    lines.append(f"Each step is written to {ledger} first{inside}. Deleted sessions cannot be brought back.")
    return lines


def words(filters: Filters) -> str:
    """The filters of a prune as a person would say them."""
    said = [] if filters.never_active else ["ended"]
    if filters.older_than is not None:
        ages = [f"{source} {exact_duration(age)}" for source, age in filters.older_than.by_source.items()]
        if filters.older_than.default is not None:
            ages.insert(0, exact_duration(filters.older_than.default))
        said.append(f"last activity longer ago than {', '.join(ages)}")
    for name, value in filters.facts().items():
        if name in ("before", "after"):
            said.append(f"last activity {'before' if name == 'before' else 'at or after'} {rfc3339(value)}")
        elif name == "newer_than":
            said.append(f"last activity within {exact_duration(value)}")
        elif name != "older_than" and not name.startswith("include_"):
            shown = ", ".join(map(str, value)) if isinstance(value, list) else value
            said.append(name.replace("_", " ") if value is True else f"{name.replace('_', ' ')} {shown}")
    said.append("archived ones too" if filters.include_archived else "not archived")
    said.append("pinned ones too" if filters.include_pinned else "not pinned")
    return "; ".join(said)


def reason_words(choice: Choice) -> str:
    """Filters and limits as a person would say them."""
    said = [] if choice.filters is None else [words(choice.filters)]
    if choice.limits.keep_last is not None:
        said.append(f"not the last {plural(choice.limits.keep_last, 'conversation')}")
    if choice.limits.max_bytes is not None:
        said.append(f"the oldest first, until the file holds at most {human_bytes(choice.limits.max_bytes)}")
    return "; ".join(said)


def plan_facts(choice: Choice, *, online: bool, reclaim: str) -> dict[str, Any]:
    """The plan for programs."""
    oldest, newest = _span(choice)
    return {
        "path": str(choice.path),
        "online": online,
        "reclaim": reclaim,
        "filters": dict(choice.named()),
        "session_count": len(choice.ids),
        "conversation_count": len(choice.units.removable),
        "delegate_count": choice.delegates,
        "message_count": choice.message_count,
        "text_bytes": choice.text_bytes,
        "compaction_count": choice.compactions,
        "chat_count": choice.chats,
        "cron_job_count": choice.jobs,
        "files": choice.files,
        "oldest_activity_at": rfc3339(oldest),
        "newest_activity_at": rfc3339(newest),
        "size_limit": choice.goal.document() if choice.goal is not None else None,
        "store_session_count": choice.total_sessions,
        "more_than_half": choice.is_large,
        "conversations": [
            {
                "id": unit.tip,
                "source": choice.rows[unit.tip].facts.source,
                "title": choice.rows[unit.tip].title,
                "last_activity_at": rfc3339(choice.rows[unit.tip].facts.last_activity_at),
                "message_count": sum(choice.messages.get(key, 0) for key in unit.ids),
                "sessions": list(unit.ids),
            }
            for unit in choice.units.removable
        ],
        "kept": kept_facts(choice.units.kept),
        "left_out": dict(choice.left_out),
    }


def kept_facts(kept: Iterable[KeptUnit]) -> list[dict[str, Any]]:
    """Units that stay, for programs."""
    return [{"id": one.unit.tip, "because_of": one.session_id, "reason": one.reason} for one in kept]


def _span(choice: Choice) -> tuple[float | None, float | None]:
    times = [
        row.facts.last_activity_at for row in choice.rows.values() if row.facts.last_activity_at is not None
    ]
    return (min(times), max(times)) if times else (None, None)
