"""Applying filters to a store: which conversations are meant.

Invariant: every verb gets its sessions from `select`. An entry is a conversation: one session, or all segments of a
compressed one, shown under its last segment's id with its first segment's start. Filters look at the conversation as a
whole (names of the last segment, sums of the counters), so a conversation is never chosen by half.

Not for: paging (the caller slices) and for what must stay (`retention.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from maintenance.dialects.base import Condition, Dialect, SessionFacts, SessionRow
from maintenance.lineage import Forest
from maintenance.marks import Marks
from maintenance.selection.conditions import condition_of
from maintenance.selection.filters import Filters
from maintenance.selection.predicate import matches

if TYPE_CHECKING:
    from hermes_state.engine import Reader


@dataclass(frozen=True, kw_only=True, slots=True)
class Conversation:
    """One entry: a session, or the segments of a compressed conversation taken together."""

    facts: SessionFacts  # id and names of the tip, start of the root, sums and newest of all segments
    segments: tuple[str, ...]  # root first

    @property
    def id(self) -> str:
        return self.facts.id


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """Sessions that match and are not in the choice, counted by reason, segments included."""

    archived: int = 0  # archived sessions
    delegates: int = 0  # delegates, which belong to their owner
    hidden: int = 0  # special hidden rows
    by_source: int = 0  # sources that this listing leaves out
    unnamed: int = 0  # damaged rows whose id is no text; only counted when nothing narrows the choice

    @property
    def total(self) -> int:
        """All of them."""
        return self.archived + self.delegates + self.hidden + self.by_source + self.unnamed


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What the filters choose, last activity first."""

    conversations: tuple[Conversation, ...]  # the entries
    left_out: LeftOut  # what matched and is not shown
    forest: Forest  # lineage of the whole store
    filters: Filters  # as given

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """Every chosen session, segments included."""
        return tuple(segment for entry in self.conversations for segment in entry.segments)

    @cached_property
    def facts(self) -> Mapping[str, SessionFacts]:
        """The entries by the id of their tip."""
        return {entry.id: entry.facts for entry in self.conversations}


def select(reader: Reader, dialect: Dialect, marks: Marks, filters: Filters, now: float) -> Selection:
    """The conversations that the filters mean. Call it inside a snapshot when others may write."""
    forest = Forest(dialect.lineage(reader))
    condition = condition_of(filters, dialect.fields, now)
    entries: list[Conversation] = []
    counted = {"archived": 0, "delegates": 0, "hidden": 0, "by_source": 0}
    for entry in _matching(reader, dialect, marks, filters, forest, condition, now):
        reason = _left_out(entry, filters, forest)
        if forest.owner(entry.segments[0]) is not None:
            entry = replace(entry, facts=replace(entry.facts, delegate=True))
        if reason:
            counted[reason] += len(entry.segments)
        else:
            entries.append(entry)
    entries.sort(key=_newest_first)
    unnamed = dialect.unnamed_sessions(reader) if filters.selects_everything else 0
    left_out = LeftOut(**counted, unnamed=unnamed)
    return Selection(conversations=tuple(entries), left_out=left_out, forest=forest, filters=filters)


def marked(facts: SessionFacts, marks: Marks) -> SessionFacts:
    """The facts with the marks that the file has no column for. A mark and a column add up."""
    pinned, archived = facts.id in marks.pinned, facts.id in marks.archived
    if not (pinned or archived):
        return facts
    return replace(facts, pinned=facts.pinned or pinned, archived=facts.archived or archived)


def together(rows: Sequence[SessionRow], tip: str) -> SessionRow:
    """The segments of one conversation, root first, as one row."""
    last = next(row for row in rows if row.id == tip)
    costs = [row.cost_usd for row in rows if row.cost_usd is not None]
    return replace(
        last,
        facts=_sum_facts([row.facts for row in rows], tip),
        title=title_of(rows, tip),
        tool_call_count=sum(row.tool_call_count for row in rows),
        input_tokens=sum(row.input_tokens for row in rows),
        output_tokens=sum(row.output_tokens for row in rows),
        cost_usd=sum(costs) if costs else None,
        never_active=all(row.never_active for row in rows),
    )


def title_of(rows: Sequence[SessionRow], tip: str) -> str | None:
    """The title of a conversation: the tip's, else that of its newest segment with one."""
    ordered = [*(row for row in rows if row.id == tip), *reversed(rows)]
    return next((row.title for row in ordered if row.title), None)


def _matching(
    reader: Reader,
    dialect: Dialect,
    marks: Marks,
    filters: Filters,
    forest: Forest,
    condition: Condition,
    now: float,
) -> Iterator[Conversation]:
    segments_seen: dict[str, SessionFacts] = {}
    for facts in dialect.facts(reader, condition):
        if len(forest.segments(facts.id)) > 1:
            segments_seen[facts.id] = facts
        else:
            yield Conversation(facts=marked(facts, marks), segments=(facts.id,))
    # Without a snapshot a segment may be gone by now; such a conversation is left out rather than taken by half.
    if filters.selects_everything:
        for segments in forest.conversations:
            if any(key not in segments_seen for key in segments):
                continue
            facts = _sum_facts([marked(segments_seen[key], marks) for key in segments], forest.tip(segments[0]))
            yield Conversation(facts=facts, segments=segments)
        return
    for part in _parts(forest.conversations):
        rows = dialect.sessions(reader, [key for segments in part for key in segments])
        for segments in part:
            if any(key not in rows for key in segments):
                continue
            whole = [replace(row, facts=marked(row.facts, marks)) for row in map(rows.__getitem__, segments)]
            row = together(whole, forest.tip(segments[0]))
            if matches(filters, row, now):
                yield Conversation(facts=row.facts, segments=segments)


def _parts(conversations: Iterable[tuple[str, ...]], size: int = 400) -> Iterator[list[tuple[str, ...]]]:
    part: list[tuple[str, ...]] = []
    for segments in conversations:
        part.append(segments)
        if sum(map(len, part)) >= size:
            yield part
            part = []
    if part:
        yield part


def _sum_facts(segments: Sequence[SessionFacts], tip: str) -> SessionFacts:
    last = next(facts for facts in segments if facts.id == tip)
    activity = [facts.last_activity_at for facts in segments if facts.last_activity_at is not None]
    return replace(
        last,
        started_at=segments[0].started_at,
        last_activity_at=max(activity, default=None),
        message_count=sum(facts.message_count for facts in segments),
        pinned=any(facts.pinned for facts in segments),
        delegate=segments[0].delegate,
        parent_id=segments[0].parent_id,
    )


def _left_out(entry: Conversation, filters: Filters, forest: Forest) -> str:
    facts = entry.facts
    if facts.hidden and not filters.include_hidden:
        return "hidden"
    if facts.archived and not filters.include_archived:
        return "archived"
    root = entry.segments[0]
    if forest.owner(root) is not None and not filters.include_delegates and facts.source not in filters.sources:
        return "delegates"
    if facts.source in filters.hidden_sources and facts.source not in filters.sources:
        return "by_source"
    return ""


def _newest_first(entry: Conversation) -> tuple[bool, float]:
    activity = entry.facts.last_activity_at
    return (activity is None, -(activity or 0.0))
