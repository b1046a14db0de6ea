"""Which messages a search is about, apart from their words.

Invariant: one object says it for both ways: as a WHERE clause on canonical rows, which decides, and as facets of the
index, which only narrow. Unless asked for, archived and hidden sessions and those of sub-agents are left out; naming
one session or its source is asking. Not for: words (see `query.py`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from hermes_state.conversation.search.kept import Kept, kept_runs
from hermes_state.conversation.search.layout import (
    CHILD,
    CHILD_SOURCES,
    MACHINE,
    PEOPLE,
    any_of,
    kind_facet,
    kind_of,
    session_facet,
    source_facet,
    stored_role,
)
from hermes_state.conversation.search.query import Query
from hermes_state.conversation.search.text import fold
from hermes_state.conversation.session_rows import left_over
from hermes_state.engine import Reader
from hermes_state.errors import InvalidInput

MOST_SESSION_FACETS = 40


@dataclass(frozen=True, kw_only=True, slots=True)
class Filters:
    """What a message and its session must be."""

    session_no: int | None = None
    sources: tuple[str, ...] = ()
    without_sources: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    without_roles: tuple[str, ...] = ()
    # from this moment on, up to but not including that one; epoch seconds
    since: float | None = None
    until: float | None = None
    include_archived: bool = False
    include_children: bool = False
    # sessions with the wanted title; None: any
    titled: tuple[int, ...] | None = None
    # what the wanted sessions share of deleted ones
    kept: tuple[Kept, ...] = ()

    def where(self) -> tuple[str, list[Any]]:
        """Conditions on `messages m JOIN sessions s`, beginning with AND."""
        parts: list[str] = []
        params: list[Any] = []

        def need(sql: str, *values: Any) -> None:
            parts.append(f" AND {sql}")
            params.extend(values)

        if self.session_no is not None:
            need("m.session_no IN (SELECT value FROM json_each(?))", json.dumps((self.session_no, *self._kept_nos)))
        if self.titled is not None:
            need("m.session_no IN (SELECT value FROM json_each(?))", json.dumps((*self.titled, *self._kept_nos)))
        if self.kept:
            need(
                f"(NOT {left_over('s')} OR EXISTS (SELECT 1 FROM json_each(?) k WHERE k.value ->> 0 = m.session_no"
                " AND m.seq BETWEEN k.value ->> 1 AND k.value ->> 2))",
                json.dumps([(run.session_no, run.first, run.last) for run in self.kept]),
            )
        else:
            need(f"NOT {left_over('s')}")
        for column, names, without in (
            ("s.source", self.sources, self.without_sources), ("m.role", self.roles, self.without_roles)
        ):
            if names:
                need(f"{column} IN (SELECT value FROM json_each(?))", json.dumps(names))
            if without:
                need(f"{column} NOT IN (SELECT value FROM json_each(?))", json.dumps(without))
        if self.since is not None:
            need("m.created_at >= ?", self.since)
        if self.until is not None:
            need("m.created_at < ?", self.until)
        if not self.include_archived:
            need(f"s.archived_at IS NULL AND (s.hidden = 0 OR {left_over('s')})" if self.kept else
                 "s.archived_at IS NULL AND s.hidden = 0")
        if not self.include_children:
            need("s.relation IS NOT 'delegate' AND s.source NOT IN (SELECT value FROM json_each(?))", _CHILDREN)
        return "".join(parts), params

    def facets(self, kinds: Iterable[str] | None) -> list[str]:
        """FTS5 expressions to be joined by AND; `kinds` narrows to people, machines or children."""
        found = [] if kinds is None else [any_of(map(kind_facet, kinds))]
        if self.session_no is not None:
            found.append(any_of(map(session_facet, (self.session_no, *self._kept_nos))))
        elif self.titled is not None and 0 < len(self.titled) + len(self.kept) <= MOST_SESSION_FACETS:
            found.append(any_of(map(session_facet, (*self.titled, *self._kept_nos))))
        if self.sources:
            found.append(any_of(map(source_facet, self.sources)))
        return found

    def stored(self) -> tuple[str, list[Any]]:
        """Conditions on stored columns of the index `terms t`, beginning with AND; whole seconds, so a little wide."""
        parts: list[str] = []
        params: list[Any] = []
        if self.roles:
            parts.append(f" AND t.role IN ({', '.join('?' * len(self.roles))})")
            params += map(stored_role, self.roles)
        if self.since is not None:
            parts.append(" AND t.created_at >= ?")
            params.append(math.floor(self.since))
        if self.until is not None:
            parts.append(" AND t.created_at <= ?")
            params.append(math.floor(self.until))
        return "".join(parts), params

    @property
    def _kept_nos(self) -> list[int]:
        return sorted({run.session_no for run in self.kept})

    @property
    def people(self) -> bool:
        """Whether people's talk may be among what is wanted."""
        return not self.sources or any(kind_of(source, None) == PEOPLE for source in self.sources)

    @property
    def classes(self) -> tuple[tuple[str, ...], ...]:
        """The kinds of talk that may be found, in the order in which they rank."""
        return ((PEOPLE,), (MACHINE, CHILD) if self.include_children else (MACHINE,))


_CHILDREN = json.dumps(sorted(CHILD_SOURCES))


def resolve(
    reader: Reader, query: Query, *, session_no: int | None, sources: tuple[str, ...], roles: tuple[str, ...],
    exclude_sources: tuple[str, ...], since: float | None, until: float | None, include_archived: bool,
    include_children: bool,
) -> Filters:
    """The filters of a call and of its query together: both must hold."""
    asked = session_no is not None
    both_sources = _both(sources, query.sources)
    titles = tuple(titled(reader, query.titles)) if query.titles else None
    return Filters(
        session_no=session_no, sources=both_sources, without_sources=exclude_sources + query.without_sources,
        roles=_both(roles, query.roles), without_roles=query.without_roles,
        since=_latest(since, query.after), until=_earliest(until, query.before),
        include_archived=include_archived or asked, include_children=include_children or asked or bool(both_sources),
        titled=titles,
        kept=kept_runs(reader, include_archived=include_archived or asked, branch_no=session_no, branches=titles),
    )


def _both(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    if not first or not second:
        return first or second
    # Nothing is both: a name that no row has keeps the condition.
    return tuple(name for name in first if name in second) or ("\ufffd",)


def _latest(first: float | None, second: float | None) -> float | None:
    return max((at for at in (first, second) if at is not None), default=None)


def _earliest(first: float | None, second: float | None) -> float | None:
    return min((at for at in (first, second) if at is not None), default=None)


def titled(reader: Reader, wanted: tuple[str, ...]) -> list[int]:
    """Numbers of the sessions whose title has every one of the texts in it, newest first; case does not matter."""
    if all(text.isascii() for text in wanted):
        conditions = " AND ".join("instr(lower(title), ?) > 0" for _ in wanted)
        rows = reader.rows(
            f"SELECT no, title FROM sessions WHERE title IS NOT NULL AND {conditions} ORDER BY no DESC",
            [text.lower() for text in wanted],
        )
        return [row[0] for row in rows]
    folded = [fold(text) for text in wanted]
    rows = reader.rows("SELECT no, title FROM sessions WHERE title IS NOT NULL ORDER BY no DESC")
    return [no for no, title in rows if all(text in fold(title) for text in folded)]


def names(argument: str, value: object) -> tuple[str, ...]:
    """A text, several, or None, as a tuple. Raises `InvalidInput`."""
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    if isinstance(value, (list, tuple, set, frozenset)) and all(isinstance(item, str) for item in value):
        return tuple(value)
    raise InvalidInput(f"{argument} is a text or a list of texts, not {value!r}.", argument=argument)
