"""What a bulk removal leaves alone, and the ages it uses when none is given.

Invariant: pinned sessions, sessions that something alive guards, and (for prune) sessions that nothing ended are never
in a removable unit; each is reported with its reason. If one member of a unit must stay, the whole unit stays.

Not for: deleting. Filtering these out in `select` was rejected: the plan could not say what it left alone and why.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from maintenance.dialects.base import Dialect, SessionFacts
from maintenance.lineage import Units
from maintenance.marks import Marks
from maintenance.selection.ages import AgeLimit
from maintenance.selection.filters import Filters
from maintenance.selection.select import Selection, marked

if TYPE_CHECKING:
    from hermes_state.engine import Reader

DAY = 86_400.0
PRUNE_DAYS = 90
NEVER_ACTIVE_DAYS = 30
# A delegate that nothing ended and that did something this recently may still be running.
DELEGATE_RECENT_SECONDS = DAY


def prune_filters(filters: Filters) -> Filters:
    """The filters of a prune: bare, it means ended and older than 90 days; never-active sessions, older than 30.

    Any real filter or any given time removes the 90 days, as hermes-agent does. A filter that is zero or empty is none.
    """
    if filters.has_age:
        return filters
    if filters.never_active:
        return replace(filters, older_than=AgeLimit(default=NEVER_ACTIVE_DAYS * DAY))
    if filters.narrows:
        return filters
    return replace(filters, older_than=AgeLimit(default=PRUNE_DAYS * DAY))


def removal_units(
    reader: Reader, dialect: Dialect, marks: Marks, selection: Selection, now: float, *, deletes: bool
) -> Units:
    """The chosen conversations with what goes along, sorted into removable and kept.

    `deletes` is True for prune, which also needs sessions to be ended and unguarded, and False for archive, which can
    be undone and flags only `Unit.segments`. Call it inside the snapshot or transaction that `select` ran in.
    """
    forest, filters = selection.forest, selection.filters
    members = dict.fromkeys(key for entry in selection.conversations for key in forest.unit(entry.id).ids)
    chosen = set(selection.ids)
    facts = _facts(reader, dialect, marks, selection, list(members))
    reasons: dict[str, str] = {}
    for key in members:
        reason = _reason(facts[key], chosen=key in chosen, filters=filters, now=now, deletes=deletes)
        if reason and not (deletes and reason == OPEN and forest.tip(key) != key):
            reasons[key] = reason
    if deletes:
        for key, guard in dialect.guards(reader, list(members), now).items():
            reasons[key] = guard
    return forest.units(selection.ids, reasons)


OPEN = "it has not ended"


def _reason(facts: SessionFacts, *, chosen: bool, filters: Filters, now: float, deletes: bool) -> str:
    if facts.pinned and not filters.include_pinned:
        return "it is pinned"
    if facts.hidden:
        return "it is a special hidden session"
    if not deletes:
        return ""
    if chosen and facts.archived and not filters.include_archived:
        return "it is archived"
    if chosen and not facts.ended and not filters.never_active:
        return OPEN
    if not chosen and not facts.ended and _recent(facts, now):
        return "a delegate of it was active within the last day"
    return ""


def _recent(facts: SessionFacts, now: float) -> bool:
    return facts.last_activity_at is None or facts.last_activity_at > now - DELEGATE_RECENT_SECONDS


def _facts(
    reader: Reader, dialect: Dialect, marks: Marks, selection: Selection, members: list[str]
) -> dict[str, SessionFacts]:
    """Facts of every member by its own id: entries of one segment are known, all others are read."""
    known = {entry.id: entry.facts for entry in selection.conversations if len(entry.segments) == 1}
    missing = [key for key in members if key not in known]
    read = {key: marked(row.facts, marks) for key, row in dialect.sessions(reader, missing).items()}
    return {key: known[key] if key in known else read[key] for key in members}
