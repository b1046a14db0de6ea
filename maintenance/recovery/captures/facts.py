"""What a copy says about its sessions and the store says differently: titles, models, ends, marks.

Invariant: a fact that the copy has and the store does not have is found whichever column it is in. What a session goes
through by being used is none: counters that grew, an activity that came later, an end that came to an open one, a value
where the copy has none. Numbers that each file gives for itself are compared by what they stand for.

Not for: messages. Bringing such facts back is left to a person: which of two titles is right nobody knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from maintenance.quoting import quoted
from maintenance.recovery.captures.foreign import columns_of

# Counted from the messages, or of this file alone.
_FOLLOW = frozenset({"no", "message_count", "tool_call_count", "deleted_messages", "seq_floor", "branched_at_edit"})
_GROW = frozenset({"active_at", "updated_at", "last_active", "last_active_at", "last_activity_at"})
_GROW_ENDINGS = ("_tokens", "_cost_usd", "_calls", "_count")
# Numbers of a native store, and what they stand for.
_STAND_FOR = {
    "parent_no": "SELECT p.id FROM sessions p WHERE p.no = s.parent_no",
    **{
        name: f"SELECT t.hash || ':' || t.text_bytes FROM shared_texts t WHERE t.no = s.{name}"
        for name in ("prompt_no", "tools_no", "model_config_no")
    },
}


def differing(copy: Any, live: Any, *, native: bool) -> dict[str, list[str]]:
    """Sessions of which the copy has facts that the store has differently: id -> columns. Both are readers."""
    here = set(columns_of(live, "sessions"))
    columns = [name for name in columns_of(copy, "sessions") if name not in _FOLLOW and name != "id"]
    there = [name for name in columns if name in here]
    found: dict[str, list[str]] = {}
    for key, *row in copy.iterate(f"SELECT s.id, {_words(columns, native)} FROM sessions AS s"):
        kept = live.row(f"SELECT s.id, {_words(there, native)} FROM sessions AS s WHERE s.id = ?", (key,))
        if kept is None:
            continue  # a whole session is counted as a row
        differ = _differ(dict(zip(columns, row, strict=True)), dict(zip(there, kept[1:], strict=True)))
        if differ:
            found[str(key)] = differ
    return found


def only_in(whole: Any, before: Any, live: Any, *, native: bool) -> dict[str, list[str]]:
    """The same for a capture, without what was so before its WAL too: that others changed since. `before` may be None.
    """
    found = differing(whole, live, native=native)
    if before is None or not found:
        return found
    old = {str(key) for (key,) in before.rows("SELECT id FROM sessions")}
    changed = differing(whole, before, native=native)
    kept = {
        key: names if key not in old else [name for name in names if name in changed.get(key, ())]
        for key, names in found.items()
    }
    return {key: names for key, names in kept.items() if names}


def told(found: Mapping[str, Iterable[str]]) -> str:
    """The columns, each once: "title, model"."""
    return ", ".join(dict.fromkeys(name.removesuffix("_no") for names in found.values() for name in names))


def _words(columns: Iterable[str], native: bool) -> str:
    said = [f"({_STAND_FOR[name]})" if native and name in _STAND_FOR else f"s.{quoted(name)}" for name in columns]
    return ", ".join(said) or "NULL"


def _differ(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> list[str]:
    return [
        name for name, value in theirs.items()
        # A column that the store does not have: what is in it by default is no fact.
        if value not in (None, "") and (value != ours[name] if name in ours else value != 0)
        and not _went_on(name, value, ours.get(name))
    ]


def _went_on(name: str, before: Any, after: Any) -> bool:
    """Whether a session that was only used further would have come from one value to the other."""
    if name == "state":
        return bool(before == "open")
    if name in _GROW or name.endswith(_GROW_ENDINGS):
        return isinstance(before, (int, float)) and isinstance(after, (int, float)) and before <= after
    return False
