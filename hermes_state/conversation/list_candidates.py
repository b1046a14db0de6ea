"""Which sessions may be entries of a list, in an order in which reading can stop early.

Invariant: every session that meets the filter comes, unless it is behind the last place wanted; each with its newest
message. Usually in the order of the index on `active_at`. Two exceptions. A filter that may match little is first asked
for `_FEW` matches in the order of the table: in the order of activity, to find nothing among 100,000 sessions took 100
ms instead of 8 (both measured). Where hundreds of sessions were active within the same minute, SQLite sorts what is
behind the first ones by exact activity (all 100,000 in one minute: 70 ms instead of 500).

Not for: what an entry says (see `listing.py`). An index on the source was rejected for now: the schema is released, and
each session created would pay for it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any

from hermes_state.conversation.session_rows import optional_text, valid_time
from hermes_state.errors import InvalidInput

if TYPE_CHECKING:
    from hermes_state.engine import Reader

ACTIVITY_SECONDS = 60.0  # `active_at` is written when a message comes that much later, so it is behind by less
_CHUNK = 64
_FIRST = 4 * _CHUNK  # candidates that are read in the order of `active_at`
_FEW = 500  # matches of a filter that are sorted rather than looked for in the order of activity

NEWEST = """
LEFT JOIN messages n ON n.session_no = s.no AND n.seq = (SELECT max(seq) FROM messages WHERE session_no = s.no)
"""
_ORDERED = "FROM sessions s INDEXED BY sessions_active"
_BY_NUMBER = "FROM json_each(?) j CROSS JOIN sessions s ON s.no = j.value"
_CANDIDATES = """
SELECT s.no, s.active_at, coalesce(n.created_at, s.active_at), coalesce(n.seq, 0) - s.deleted_messages, s.relation,
    s.id, s.source, s.state, s.title, s.started_at, s.ended_at, s.end_reason, s.parent_no, s.model, s.user_id,
    s.session_key, s.chat_id, s.display_name, s.profile, s.cwd, s.git_branch, s.git_repo_root, s.archived_at,
    s.pinned_at
"""
_ACTIVITY = "SELECT s.no, max(s.active_at, coalesce(n.created_at, s.active_at)) AS exact"
Place = tuple[float, int]  # exact activity and number, by which entries are sorted, latest first
NOWHERE: Place = (float("-inf"), 0)


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Which conversations are meant, as SQL about the tip's row `s`."""

    where: str
    params: tuple[Any, ...]
    # it may match few sessions of many
    narrow: bool
    include_children: bool
    before: float | None
    after: float | None

    @classmethod
    def of(
        cls, *, source: str | None = None, exclude_sources: Iterable[str] = (), archived: bool | None = False,
        include_children: bool = False, cwd: str | None = None, title: str | None = None, search: str | None = None,
        before: float | None = None, after: float | None = None,
    ) -> Filter:
        """Made from the arguments of `sessions.list`. Raises `InvalidInput`."""
        terms, params = ["s.hidden = 0"], list[Any]()
        columns: tuple[str, ...]
        if archived is not None:
            terms.append("s.archived_at IS NOT NULL" if archived else "s.archived_at IS NULL")
        if source is not None:
            terms.append("s.source = ?")
            params.append(optional_text("source", source))
        if isinstance(exclude_sources, str):
            raise InvalidInput("exclude_sources is a list of sources, not a text.", argument="exclude_sources")
        if excluded := [optional_text("exclude_sources", one) for one in exclude_sources]:
            terms.append("s.source NOT IN (SELECT value FROM json_each(?))")
            params.append(json.dumps(excluded))
        if not include_children:
            terms.append("coalesce(s.relation, 'reset') IN ('continuation', 'branch', 'reset')")
        if cwd is not None:
            folder = (optional_text("cwd", cwd) or "").rstrip("/")
            below = f"{folder}/"
            columns = ("s.cwd", "s.git_repo_root")
            terms.append("(" + " OR ".join(f"{name} = ? OR substr({name}, 1, ?) = ?" for name in columns) + ")")
            params += [folder, len(below), below] * len(columns)
        if title is not None:
            terms.append("instr(lower(s.title), lower(?)) > 0")
            params.append(optional_text("title", title))
        if search is not None:
            columns = ("s.title", "s.id", "s.display_name", "s.cwd", "s.git_repo_root")
            terms.append("(" + " OR ".join(f"instr(lower({name}), lower(?)) > 0" for name in columns) + ")")
            params += [optional_text("search", search)] * len(columns)
        # Not a tip: something continues it.
        terms.append(
            "NOT EXISTS (SELECT 1 FROM sessions c WHERE c.parent_no = s.no AND c.relation = 'continuation')"
        )
        return cls(
            where=" AND ".join(terms), params=tuple(params), include_children=include_children,
            narrow=bool(archived) or any(value is not None for value in (source, cwd, title, search)),
            before=None if before is None else valid_time("before", before),
            after=None if after is None else valid_time("after", after),
        )

    def within(self, exact: float) -> bool:
        """Whether the exact last activity is within the bounds."""
        return (self.before is None or exact < self.before) and (self.after is None or exact > self.after)


def candidates(reader: Reader, wanted: Filter, last: Callable[[], Place]) -> Iterator[list[tuple[Any, ...]]]:
    """Rows of `_CANDIDATES`, some at a time; none that is known to be behind `last()`, which may rise meanwhile."""
    where, params = wanted.where, wanted.params
    if wanted.before is not None:
        where, params = f"{where} AND s.active_at < ?", (*params, wanted.before)
    if wanted.after is not None:
        where, params = f"{where} AND s.active_at > ?", (*params, wanted.after - ACTIVITY_SECONDS)
    if wanted.narrow:
        few = reader.rows(
            f"SELECT s.active_at, s.no FROM sessions s NOT INDEXED WHERE {where} LIMIT {_FEW + 1}", params
        )
        if len(few) <= _FEW:
            for some in _chunks(sorted(few, reverse=True)):
                yield _in_full(reader, [no for _active_at, no in some])
            return
    seen: set[int] = set()
    rows = reader.iterate(
        f"{_CANDIDATES} {_ORDERED} {NEWEST} WHERE {where} ORDER BY s.active_at DESC", params, batch=_CHUNK
    )
    with _closing(rows):
        for chunk in _chunks(rows):
            yield chunk
            seen.update(row[0] for row in chunk)
            if len(seen) >= _FIRST and last() != NOWHERE:
                break
        else:
            return
    yield from _behind(reader, (where, params), (last()[0] - ACTIVITY_SECONDS, chunk[-1][1]), seen, last)


def _behind(
    reader: Reader, wanted: tuple[str, Sequence[Any]], span: tuple[float, float], seen: set[int],
    last: Callable[[], Place],
) -> Iterator[list[tuple[Any, ...]]]:
    """The candidates with an `active_at` above the one and up to the other, but those seen, by exact activity.

    A page needs them only where very many sessions were active within a minute of each other. When they are a good part
    of all, the table is read in its own order.
    """
    within = "s.active_at > ? AND s.active_at <= ?"
    found, sessions = reader.rows(
        f"SELECT count(*), (SELECT max(no) FROM sessions) {_ORDERED} WHERE {within}", span
    )[0]
    start = "FROM sessions s NOT INDEXED" if 8 * found > sessions else _ORDERED
    rows = reader.iterate(
        f"{_ACTIVITY} {start} {NEWEST} WHERE {within} AND {wanted[0]} ORDER BY exact DESC, s.no DESC",
        (*span, *wanted[1]), batch=_CHUNK,
    )
    with _closing(rows):
        numbers = (no for no, exact in takewhile(lambda one: (one[1], one[0]) > last(), rows) if no not in seen)
        while some := list(islice(numbers, _CHUNK)):
            yield _in_full(reader, some)


def _closing(rows: Iterator[tuple[Any, ...]]) -> ExitStack:
    """Lets go of the statement, when there is one to let go of."""
    stack = ExitStack()
    close = getattr(rows, "close", None)
    if close is not None:
        stack.callback(close)
    return stack


def _chunks(rows: Iterable[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    left = iter(rows)
    while chunk := list(islice(left, _CHUNK)):
        yield chunk


def _in_full(reader: Reader, numbers: Sequence[int]) -> list[tuple[Any, ...]]:
    """The candidates of these numbers, latest first by `active_at`."""
    return reader.rows(
        f"{_CANDIDATES} {_BY_NUMBER} {NEWEST} ORDER BY s.active_at DESC", (json.dumps(numbers),)
    )
