"""`store.search(...)`: the one call, and the upkeep of what makes it fast.

Invariant: a search never fails because of the index, and an append never meets it. In order: look at the marks; empty
a file that does not fit; add what is missing while a fifth of the time budget lasts; ask the index; read what is not in
it yet, newest first; compare every hit with its canonical row and text. What could not be done is said in the result.

Not for: deciding when the idle time is (whoever runs the process calls `index_idle`). A background thread was rejected:
a library that starts one in every process that searches once has to be stopped in every one as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal

from hermes_state.conversation.search.candidates import (
    Edits,
    Found,
    Look,
    Scan,
    best_through_index,
    by_reading,
    newest_through_index,
)
from hermes_state.conversation.search.filters import Filters, names, resolve
from hermes_state.conversation.search.hits import hits_of, title_hits
from hermes_state.conversation.search.index import Index, Trouble
from hermes_state.conversation.search.layout import Marks, StoreState, file_bytes, kind_of, read_state
from hermes_state.conversation.search.query import Query, moment, parse, substring
from hermes_state.conversation.search.records import IndexCheck, IndexWork, SearchResult
from hermes_state.conversation.search.upkeep import Upkeep
from hermes_state.conversation.session_rows import session_no
from hermes_state.engine.core import Core
from hermes_state.engine.derived import DerivedReader
from hermes_state.errors import InvalidInput, SearchUnavailable, StateError

BUDGET_SECONDS = 0.5
CATCH_UP_SHARE = 0.2
MOST_HITS = 1000
# Fewer missing messages than this are read at each search instead: a transaction costs more than reading them.
WORTH_INDEXING = 64


class Search:
    """Search over one store. Safe for threads; nothing is opened before the first call."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._index = Index(core.path, core.clock)
        self._upkeep = Upkeep(core, self._index)

    def __call__(
        self, query: str, *, limit: int = 20, source: str | Sequence[str] | None = None,
        role: str | Sequence[str] | None = None, session_id: str | None = None,
        since: float | datetime | None = None, until: float | datetime | None = None, include_archived: bool = False,
        order: Literal["rank", "newest"] = "rank", exclude_sources: Sequence[str] = (), include_children: bool = False,
        exact: bool = False, markers: tuple[str, str] = (">>>", "<<<"), budget_seconds: float = BUDGET_SECONDS,
        need_index: bool = False,
    ) -> SearchResult:
        """Messages that match `query` (its syntax is described in `query.py`), best first.

        Filters hold together with those inside the query. `since` (inclusive) and `until` (exclusive): epoch seconds
        or aware datetimes. `order`: "rank" puts people's talk before machines' (cron, sub-agents) and sorts by
        relevance, then recency; "newest" sorts by insertion only. Archived and hidden sessions and sub-agents' are left
        out unless asked for by flag, by `session_id`, or (sub-agents) by source. `exact`: find the text as it stands,
        inside words too, by reading, within the budget. `markers` go around each match in the snippets.
        `budget_seconds`: how long indexing and reading may take together; at its end the result says
        `complete=False`. `need_index`: raise `SearchUnavailable` rather than answer without the index.

        Raises `InvalidInput` for arguments (never for the query's text), `SessionNotFound`, `SessionDeleted`, and what
        reading the store raises.
        """
        asked, since_at, until_at = _checked(query, limit, order, since, until, exact, markers, self._core.clock.now())
        sources, roles, excluded = names("source", source), names("role", role), names("exclude", exclude_sources)
        if asked.empty:
            return SearchResult()
        clock = self._core.clock
        started = clock.monotonic()
        deadline = started + max(0.0, budget_seconds)
        with self._core.reader() as reader:
            trouble = self._upkeep.prepare(
                reader, read_state(reader), until=started + CATCH_UP_SHARE * max(0.0, budget_seconds),
                at_least=WORTH_INDEXING,
            )
            with reader.snapshot():
                state = read_state(reader)
                number = None if session_id is None else session_no(reader, session_id)
                filters = resolve(
                    reader, asked, session_no=number, sources=sources, roles=roles, exclude_sources=excluded,
                    since=since_at, until=until_at, include_archived=include_archived,
                    include_children=include_children,
                )
                look = Look(
                    reader=reader, edits=Edits(reader, filters.kept), query=asked, filters=filters, limit=limit,
                    ranked=order == "rank", late=lambda: clock.monotonic() >= deadline,
                )
                answer = self._answer(look, state, trouble, markers)
        if need_index and answer.degraded:
            raise SearchUnavailable(
                f"The search index of {self._core.path} cannot be used now: {answer.degraded}.",
                hint="Search without need_index, or try again.", path=self._core.path, reason=answer.degraded,
            )
        return answer

    def _answer(self, look: Look, state: StoreState, trouble: Trouble | None, markers: tuple[str, str]) -> SearchResult:
        query, where = look.query, {"markers": markers, "store_id": state.store_id, "store_path": self._core.path}
        if not query.clauses and not query.negatives and query.titles:
            sessions = _sessions_only(look.filters)
            return SearchResult(title_hits(
                look.reader, look.filters.titled or (), query, sessions, look.limit, **where  # type: ignore[arg-type]
            ))
        found: list[Found] = []
        marks: Marks | None = None
        scan: Scan | None = None
        in_time = True
        if trouble is None and query.indexable:
            try:
                # One snapshot: the index may be emptied at any time, also between its mark and its terms.
                with self._index.reader() as index, index.snapshot():
                    marks = self._fitting(index, state)
                    if marks is None:
                        trouble = Trouble(reason=f"{self._index.path} was made for another state of the store")
                    else:
                        scan = by_reading(look, marks.high_water) if state.newest > marks.high_water else Scan()
                        found, in_time = self._from_index(look, index, marks, scan)
            except StateError as error:
                if not self._upkeep.is_ours(error):
                    raise
                trouble = self._upkeep.after(error, state)
                found, marks, scan = [], None, None
        if scan is None:
            scan = by_reading(look, 0)
        shown = _merged(look, found, scan.found)
        hits = hits_of(look.reader, shown, query, look.edits, **where)  # type: ignore[arg-type]
        return SearchResult(
            hits, complete=scan.complete and in_time, degraded="" if trouble is None else trouble.reason,
            indexed_to=0 if marks is None else marks.high_water, scanned=scan.scanned,
            damaged_messages=tuple(scan.damaged),
        )

    def _fitting(self, index: DerivedReader, state: StoreState) -> Marks | None:
        marks = self._index.marks(index)
        return marks if marks.fits(state) else None

    def _from_index(self, look: Look, index: DerivedReader, marks: Marks, scan: Scan) -> tuple[list[Found], bool]:
        """What the index adds to what was read, and whether the time sufficed."""
        if look.ranked:
            return best_through_index(look, index, marks.high_water, look.limit)
        # Whatever was read is newer than anything in the index.
        wanted = look.limit - len(scan.found)
        return newest_through_index(look, index, marks.high_water, wanted) if wanted > 0 else ([], True)

    # --- upkeep ----------------------------------------------------------------------------------------------

    def catch_up(self, budget_seconds: float = 0.1) -> IndexWork:
        """Add missing messages to the index for about that long."""
        return self._upkeep.catch_up(budget_seconds)

    def index_idle(self, max_batches: int = 1) -> IndexWork:
        """For idle time, at most `max_batches` steps: add batches of 200 messages; when none is left, sweep and merge.

        Each step takes about 10 ms and never the store's write lock.
        """
        return self._upkeep.idle(max_batches)

    def optimize_index(self, *, max_steps: int = 1000) -> IndexWork:
        """Bring the index up to date, sweep it, merge it in steps of about 200 pages, and return free pages."""
        return self._upkeep.optimize(max_steps)

    def verify(self) -> IndexCheck:
        """Compare the index with the store: every row, a sample of words, FTS5's structure. For doctor: 0.1 s and more.

        Raises `SearchUnavailable` when there is no index that could be checked.
        """
        from hermes_state.conversation.search.checking import check

        return check(self._core, self._index, self._upkeep)

    def rebuild(self) -> IndexWork:
        """Empty the index, as after `verify` found something; the next steps and searches fill it anew."""
        return self._upkeep.rebuild()

    def size(self) -> int:
        """Bytes of the index file and its WAL; 0 when there is none."""
        return file_bytes(self._index.path)

    @property
    def path(self) -> Path:
        """The index file."""
        return self._index.path

    def close(self) -> None:
        """Let go of the index file. The next search opens it again."""
        self._index.let_go()


def _checked(
    query: object, limit: object, order: object, since: object, until: object, exact: bool, markers: object, now: float
) -> tuple[Query, float | None, float | None]:
    if not isinstance(query, str):
        raise InvalidInput(f"A query is a text, not {type(query).__name__}.", argument="query")
    if isinstance(limit, bool) or not isinstance(limit, int) or not 0 < limit <= MOST_HITS:
        raise InvalidInput(f"limit is a number from 1 to {MOST_HITS}, not {limit!r}.", argument="limit")
    if order not in ("rank", "newest"):
        raise InvalidInput(f"order is 'rank' or 'newest', not {order!r}.", argument="order")
    if not isinstance(markers, tuple) or len(markers) != 2 or not all(isinstance(mark, str) for mark in markers):
        raise InvalidInput(f"markers are two texts, not {markers!r}.", argument="markers")
    since_at, until_at = moment("since", since), moment("until", until)
    if since_at is not None and until_at is not None and since_at > until_at:
        raise InvalidInput(f"since ({since_at}) is after until ({until_at}).", argument="since")
    return substring(query) if exact else parse(query, now=now), since_at, until_at


def _merged(look: Look, indexed: list[Found], read: list[Found]) -> list[Found]:
    """Both kinds of finds in the order asked for."""
    both = [*read, *indexed]
    if look.ranked:
        both.sort(key=lambda item: (_class_of(look.filters, item), *item.order))
    else:
        both.sort(key=lambda item: -item.row.id)
    return both[: look.limit]


def _class_of(filters: Filters, item: Found) -> int:
    kind = kind_of(item.row.source, item.row.relation)
    return 0 if kind in filters.classes[0] else 1


def _sessions_only(filters: Filters) -> tuple[str, list[object]]:
    """The conditions of these filters that speak of sessions alone; times are those of the last activity."""
    where, params = Filters(
        sources=filters.sources, without_sources=filters.without_sources, include_archived=filters.include_archived,
        include_children=filters.include_children, since=filters.since, until=filters.until,
    ).where()
    return where.replace("m.created_at", "s.active_at"), params


