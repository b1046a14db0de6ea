"""How sessions come from one another, and what that means for removing them.

Invariant: compression segments of one conversation stay or go together; a delegate goes with the session that handed
the work out; a branch is a conversation of its own. Every walk ends, whatever the parent links say: cycles and chains
of any length are followed once, without recursion.

Not for: reading rows (a dialect gives them) or deciding what a sweep selects. Walking the links in SQL was rejected:
the bound that keeps a recursive query from running away (100 in old releases) cut real chains of 180 segments.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property

from maintenance.dialects.base import LineageRow

# End reasons that mean "the next session of this chat is a fresh start".
RESET_REASONS = frozenset(
    {"session_reset", "session_switch", "idle", "daily", "suspended", "resume_pending_expired", "new_session"}
)


class Kind(Enum):
    """What a session is to its parent."""

    ROOT = "root"  # no parent in the file
    CONTINUATION = "continuation"  # the next segment after a compression
    BRANCH = "branch"  # a conversation of its own that began as a copy
    DELEGATE = "delegate"  # work that the parent handed out
    RESET = "reset"  # a fresh start of the same chat
    OTHER = "other"  # parented for another reason


# What a native row says; a word of a later release is a parent for a reason that is not known here.
_RELATIONS = {kind.value: kind for kind in Kind if kind is not Kind.ROOT}


@dataclass(frozen=True, kw_only=True)
class Unit:
    """Sessions that are removed together or not at all."""

    ids: tuple[str, ...]  # the conversation's segments, then its delegates, each once
    segments: tuple[str, ...]  # only the conversation's segments
    tip: str  # the segment that is shown and resumed


@dataclass(frozen=True, kw_only=True)
class KeptUnit:
    """A unit that was chosen and stays."""

    unit: Unit  # what stays
    session_id: str  # the member that keeps it
    reason: str  # why, in words


@dataclass(frozen=True, kw_only=True)
class Units:
    """Chosen sessions, sorted into what may go and what stays."""

    removable: tuple[Unit, ...]  # in the order of the choice
    kept: tuple[KeptUnit, ...]  # in the order of the choice

    @property
    def ids(self) -> tuple[str, ...]:
        """Every session that may go, each once."""
        return tuple(dict.fromkeys(key for unit in self.removable for key in unit.ids))


class Forest:
    """Lineage of a whole store. A session that is not in the rows is a conversation of its own."""

    def __init__(self, rows: Iterable[LineageRow]) -> None:
        self._rows: Mapping[str, LineageRow] = {row.id: row for row in rows}

    def __contains__(self, session_id: str) -> bool:
        return session_id in self._rows

    def kind(self, session_id: str) -> Kind:
        """What this session is to its parent."""
        row = self._rows.get(session_id)
        return Kind.ROOT if row is None else self._kinds[row.id]

    def owner(self, session_id: str) -> str | None:
        """The session that handed this work out, when it is still in the file."""
        row = self._rows.get(session_id)
        if row is None or row.delegate_from is None or self._kinds[session_id] is not Kind.DELEGATE:
            return None
        return row.delegate_from

    def parent(self, session_id: str) -> str | None:
        """The parent, when it is in the file."""
        row = self._rows.get(session_id)
        return row.parent_id if row is not None and row.parent_id in self._rows else None

    def children(self, session_id: str) -> tuple[str, ...]:
        """Sessions whose parent link names this one, oldest first."""
        return self._children.get(session_id, ())

    def segments(self, session_id: str) -> tuple[str, ...]:
        """All segments of the conversation that this session belongs to, root first."""
        return self._conversations.get(session_id, (session_id,))

    @property
    def conversations(self) -> tuple[tuple[str, ...], ...]:
        """Every conversation of more than one segment, root first, each once."""
        return tuple(dict.fromkeys(self._conversations.values()))

    def root(self, session_id: str) -> str:
        """The first segment of the conversation."""
        return self.segments(session_id)[0]

    def tip(self, session_id: str) -> str:
        """The segment that goes on: the one a list shows and a resume opens."""
        tip, seen = self.root(session_id), set()
        while tip not in seen:
            seen.add(tip)
            following = [key for key in self.children(tip) if self._kinds[key] is Kind.CONTINUATION and key not in seen]
            if not following:
                break
            tip = max(following, key=self._tip_order)
        return tip

    def compression_ancestors(self, session_id: str) -> frozenset[str]:
        """Earlier segments on the way from this one to the root."""
        found: set[str] = set()
        key = session_id
        while self.kind(key) is Kind.CONTINUATION:
            above = self.parent(key)
            if above is None or above in found or above == session_id:
                break
            found.add(above)
            key = above
        return frozenset(found)

    def delegates(self, session_ids: Iterable[str]) -> tuple[str, ...]:
        """Everything these sessions handed out, with what that handed out in turn; none of the given ones."""
        given = dict.fromkeys(session_ids)
        found: dict[str, None] = {}
        waiting = list(given)
        while waiting:
            for delegate in self._handed_out.get(waiting.pop(), ()):
                for segment in self.segments(delegate):
                    if segment not in found and segment not in given:
                        found[segment] = None
                        waiting.append(segment)
        return tuple(found)

    def unit(self, session_id: str) -> Unit:
        """What would be removed with this session."""
        segments = self.segments(session_id)
        return Unit(ids=(*segments, *self.delegates(segments)), segments=segments, tip=self.tip(session_id))

    def units(self, chosen: Iterable[str], must_stay: Mapping[str, str], *, whole: bool = True) -> Units:
        """Sort the chosen sessions into units that go and units that stay.

        `must_stay` gives a reason for each session that may not go. With `whole`, a conversation of which only some
        segments were chosen stays; without it, choosing any segment chooses the conversation.
        """
        wanted = dict.fromkeys(chosen)
        removable: list[Unit] = []
        kept: list[KeptUnit] = []
        done: set[str] = set()
        for key in wanted:
            if key in done:
                continue
            unit = self.unit(key)
            done.update(unit.segments)
            stopper = next((member for member in unit.ids if member in must_stay), None)
            if stopper is not None:
                kept.append(KeptUnit(unit=unit, session_id=stopper, reason=must_stay[stopper]))
                continue
            left_out = next((member for member in unit.segments if whole and member not in wanted), None)
            if left_out is not None:
                reason = "another part of the same conversation was not selected"
                kept.append(KeptUnit(unit=unit, session_id=left_out, reason=reason))
                continue
            removable.append(unit)
        return Units(removable=_without_repeats(removable), kept=tuple(kept))

    def _tip_order(self, key: str) -> tuple[int, float, float, str]:
        row = self._rows[key]
        preference = 2 if row.end_reason == "compression" else 1 if not row.ended else 0
        started = row.started_at if row.started_at is not None else float("-inf")
        return (preference, row.last_activity_at if row.last_activity_at is not None else started, started, key)

    @cached_property
    def _kinds(self) -> Mapping[str, Kind]:
        return {row.id: self._classify(row) for row in self._rows.values()}

    def _classify(self, row: LineageRow) -> Kind:
        parent = self._rows.get(row.parent_id) if row.parent_id is not None else None
        if (
            row.delegate_from in self._rows
            and row.delegate_from != row.id
            and (parent is None or parent.id == row.delegate_from)
        ):
            return Kind.DELEGATE
        if parent is None or parent.id == row.id:
            return Kind.ROOT
        if row.relation is not None:
            return _RELATIONS.get(row.relation, Kind.OTHER)
        if row.branched_from == parent.id:
            return Kind.BRANCH
        if row.reset_from == parent.id:
            return Kind.RESET
        if parent.end_reason == "compression" and row.source != "tool":
            return Kind.CONTINUATION
        if parent.end_reason == "branched" and _not_before(row.started_at, parent.ended_at):
            return Kind.BRANCH
        if row.session_key and row.session_key == parent.session_key and parent.end_reason in RESET_REASONS:
            return Kind.RESET
        return Kind.OTHER

    @cached_property
    def _children(self) -> Mapping[str, tuple[str, ...]]:
        children: dict[str, list[LineageRow]] = {}
        for row in self._rows.values():
            if row.parent_id is not None and row.parent_id in self._rows:
                children.setdefault(row.parent_id, []).append(row)
        return {key: tuple(row.id for row in sorted(rows, key=_age)) for key, rows in children.items()}

    @cached_property
    def _handed_out(self) -> Mapping[str, tuple[str, ...]]:
        found: dict[str, list[str]] = {}
        for key in self._rows:
            owner = self.owner(key)
            if owner is not None:
                found.setdefault(owner, []).append(key)
        return {key: tuple(delegates) for key, delegates in found.items()}

    @cached_property
    def _conversations(self) -> Mapping[str, tuple[str, ...]]:
        """Segments of each conversation that has more than one, by each of its members."""
        conversations: dict[str, tuple[str, ...]] = {}
        for row in self._rows.values():
            if row.id in conversations or self._kinds[row.id] is not Kind.CONTINUATION:
                continue
            root = self._first_segment(row.id)
            members: dict[str, None] = {root: None}
            waiting = deque([root])
            while waiting:
                for child in self.children(waiting.popleft()):
                    if self._kinds[child] is Kind.CONTINUATION and child not in members:
                        members[child] = None
                        waiting.append(child)
            conversations.update(dict.fromkeys(members, tuple(members)))
        return conversations

    def _first_segment(self, key: str) -> str:
        """The root by continuation links; in a cycle, the member that started first."""
        seen: dict[str, None] = {}
        while self._kinds[key] is Kind.CONTINUATION:
            if key in seen:
                cycle = list(seen)[list(seen).index(key) :]
                return min(cycle, key=lambda member: _age(self._rows[member]))
            seen[key] = None
            parent = self._rows[key].parent_id
            if parent is None:
                break
            key = parent
        return key


def with_delegate_markers(rows: Sequence[LineageRow]) -> list[LineageRow]:
    """Rows of a file older than delegate markers: a child that nothing else explains is its parent's delegate."""
    forest = Forest(rows)
    return [replace(row, delegate_from=row.parent_id) if forest.kind(row.id) is Kind.OTHER else row for row in rows]


def _without_repeats(units: Sequence[Unit]) -> tuple[Unit, ...]:
    """Leave out the units whose conversation already goes as a delegate of another one."""
    taken_along: dict[str, list[int]] = {}
    for number, unit in enumerate(units):
        for member in unit.ids[len(unit.segments) :]:
            taken_along.setdefault(member, []).append(number)
    kept = []
    for number, unit in enumerate(units):
        takers = (other for other in taken_along.get(unit.segments[0], ()) if other != number)
        # Two that name each other as owner: the first one stands for both.
        if not any(other < number or units[other].segments[0] not in unit.ids for other in takers):
            kept.append(unit)
    return tuple(kept)


def _age(row: LineageRow) -> tuple[float, str]:
    return (row.started_at if row.started_at is not None else float("-inf"), row.id)


def _not_before(moment: float | None, earlier: float | None) -> bool:
    return moment is not None and earlier is not None and moment >= earlier
