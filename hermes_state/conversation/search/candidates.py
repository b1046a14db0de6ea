"""The two ways to come to messages that may match: through the index, and by reading.

Invariant: whatever way, a message is found only after its canonical row met the filters, its canonical text met the
query, and no effective rewind hides it. Reading goes from the newest message back and ends at the deadline, which the
caller is told. Not for: what is shown of them (see `hits.py`).
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from hermes_state.conversation.search.filters import Filters
from hermes_state.conversation.search.kept import Kept, edits_of
from hermes_state.conversation.search.layout import CHILD_SOURCES, MACHINE_SOURCES, PEOPLE, kind_of
from hermes_state.conversation.search.query import Query
from hermes_state.conversation.search.ranking import (
    FIRST,
    MOST_CANDIDATES,
    expression,
    relevance,
    scanned_score,
    weights,
)
from hermes_state.conversation.search.reading import COLUMNS, Row, rows_of
from hermes_state.conversation.search.text import fold
from hermes_state.engine import Reader
from hermes_state.errors import Corrupt

_NOT_PEOPLE = MACHINE_SOURCES | CHILD_SOURCES
SCAN_ROWS = 64
LARGEST_WINDOW = 4000
ENOUGH_READ = 400  # matches of people's that are read before ranking; older ones would hardly come before them


@dataclass(frozen=True, slots=True)
class Found:
    """A message that matches."""

    row: Row
    score: float

    @property
    def order(self) -> tuple[float, int]:
        """Best first; equally good ones newest first."""
        return (-self.score, -self.row.id)


@dataclass(slots=True)
class Edits:
    """The view edits in effect, loaded for a session when it is first met."""

    reader: Reader
    # what is kept of deleted sessions, and found as a branch's
    kept: Sequence[Kept] = ()
    # session number -> (first seq, last seq, action, edit id)
    known: dict[int, list[tuple[int, int, str, int]]] = field(default_factory=dict)

    def load(self, session_nos: Iterable[int]) -> None:
        """Read the edits of these sessions, in one statement."""
        missing = sorted(set(session_nos) - self.known.keys())
        if not missing:
            return
        self.known.update((number, []) for number in missing)
        rows = self.reader.rows(
            "SELECT e.session_no, e.from_seq, e.to_seq, e.action, e.id FROM view_edits e"
            " WHERE e.session_no IN (SELECT value FROM json_each(?)) AND e.action <> 'restore'"
            " AND NOT EXISTS (SELECT 1 FROM view_edits r WHERE r.undoes = e.id)",
            (json.dumps(sorted(set(missing) - {run.session_no for run in self.kept})),),
        )
        for number, first, last, action, edit in rows:
            self.known[number].append((first, last, action, edit))
        for run in self.kept:
            if run.session_no in missing:
                self.known[run.session_no] += edits_of(self.reader, run)

    def owner(self, session_no: int, seq: int) -> int:
        """The number of the session under which a message is found."""
        return next(
            (run.branch_no for run in self.kept if run.session_no == session_no and run.first <= seq <= run.last),
            session_no,
        )

    def hiding(self, session_no: int, seq: int, action: str) -> int | None:
        """The newest edit of that kind that hides a message; None when none does."""
        return max(
            (edit for first, last, kind, edit in self.known[session_no] if kind == action and first <= seq <= last),
            default=None,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """One search: what is wanted, where, and until when."""

    reader: Reader
    edits: Edits
    query: Query
    filters: Filters
    limit: int
    # by relevance, people first; else newest first
    ranked: bool
    # True once the time is up
    late: Callable[[], bool]

    def visible(self, rows: Sequence[Row]) -> list[Row]:
        """Those that no effective rewind hides."""
        self.edits.load(row.session_no for row in rows)
        return [row for row in rows if self.edits.hiding(row.session_no, row.seq, "rewind") is None]


# --- through the index -------------------------------------------------------------------------------------------


def newest_through_index(look: Look, index: Reader, high_water: int, wanted: int) -> tuple[list[Found], bool]:
    """The newest `wanted` matching messages in the index, and whether the time sufficed."""
    return _walk(look, index, None, [], high_water, wanted, size=wanted + 8)


def best_through_index(look: Look, index: Reader, high_water: int, wanted: int) -> tuple[list[Found], bool]:
    """The best `wanted` matching messages in the index, people's first, and whether the time sufficed."""
    first, second = look.filters.classes
    parts = weights(index, look.query.terms, max(1, high_water))
    size = max(MOST_CANDIDATES, 2 * wanted)
    window = _window(look, index, None, parts, high_water + 1, size)
    whole = len(window) < size
    if not whole and look.filters.people and sum(score >= FIRST for _, score in window) < wanted:
        # Machines filled the window: look for people's talk among older messages too.
        people = [(number, score % FIRST + FIRST) for number, score in _window(
            look, index, first, parts, high_water + 1, size
        )]
        window = people + [item for item in window if item[1] < FIRST]
    found: list[Found] = []
    for part in _portions(_best(window), wanted):
        found += _verified(look, part)
        if len(found) >= wanted:
            return found[:wanted], True
        if look.late():
            return found, False
    if whole:
        return found, True
    # Few of the newest candidates may be shown (archived, deleted, rewound ones): go on among older ones, by kind.
    found = []
    for kinds in (first, second):
        more, enough = _walk(look, index, kinds, parts, high_water, wanted - len(found), size=size)
        found += more
        if len(found) >= wanted or not enough:
            return found, enough
    return found, True


def _walk(
    look: Look, index: Reader, kinds: Sequence[str] | None, parts: Sequence[float], high_water: int, wanted: int, *,
    size: int,
) -> tuple[list[Found], bool]:
    """Window after window from the newest entry back, until enough of them are real; whether the time sufficed."""
    found: list[Found] = []
    below = high_water + 1
    while len(found) < wanted:
        window = _window(look, index, kinds, parts, below, size)
        for part in _portions(_best(window) if parts else window, wanted):
            found += _verified(look, part)
            if len(found) >= wanted:
                break
            if look.late():
                return found, False
        if len(window) < size:
            break
        below = window[-1][0]
        size = min(4 * size, LARGEST_WINDOW)
        # Worth its price once it is known that many are not to be shown.
        kinds = kinds or [kind for some in look.filters.classes for kind in some]
    return found[:wanted], True


def _best(window: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """By score; equal ones stay in the order of the window, newest first."""
    return sorted(window, key=itemgetter(1), reverse=True)


def _window(
    look: Look, index: Reader, kinds: Sequence[str] | None, parts: Sequence[float], below: int, size: int
) -> list[tuple[int, float]]:
    """The next newest entries that match, newest first, with their scores: people's are above `FIRST`."""
    conditions, stored = look.filters.stored()
    tail = f"WHERE t.terms MATCH ? AND t.rowid < ?{conditions} ORDER BY t.rowid DESC LIMIT ?"
    facets = look.filters.facets(kinds)
    params = [expression(look.query, facets), below, *stored, size]
    if not parts:
        return [(number, 0.0) for (number,) in index.rows(f"SELECT t.rowid FROM terms t {tail}", params)]
    # Lengths and sources from FTS5's own tables: through its interface each is a statement of its own a row.
    one_phrase = len(parts) == 1 and not facets and not look.query.negatives
    how_often = "instances(t.terms)" if one_phrase else "counts(t.terms, ?)"
    rows = index.rows(
        f"SELECT t.rowid, {how_often}, d.sz, c.c3 FROM terms t LEFT JOIN terms_docsize d ON d.id = t.rowid"
        f" LEFT JOIN terms_content c ON c.id = t.rowid {tail}",
        params if one_phrase else [len(parts), *params],
    )
    found: list[tuple[int, float]] = []
    for number, counted, length, source in rows:
        if not length or source is None:
            raise Corrupt(
                f"{index.path} has no length or no source of entry {number}.", hint="It is built anew.",
                path=index.path, search_index=True,
            )
        score = relevance(counted, length, parts)
        found.append((number, score if source in _NOT_PEOPLE else score + FIRST))
    return found


def _portions(ordered: Sequence[tuple[int, float]], size: int) -> Iterator[Sequence[tuple[int, float]]]:
    """Portions to verify: as many as are wanted, since texts are only read for what is probably shown."""
    for at in range(0, len(ordered), max(1, size)):
        yield ordered[at : at + max(1, size)]


def _verified(look: Look, part: Sequence[tuple[int, float]]) -> list[Found]:
    where, params = look.filters.where()
    rows = {
        row.id: row for row in rows_of(
            look.reader, f"{COLUMNS} WHERE m.id IN (SELECT value FROM json_each(?)){where}",
            [json.dumps([number for number, _ in part]), *params],
        )
    }
    shown = {row.id for row in look.visible(list(rows.values()))}
    return [
        Found(rows[number], score % FIRST) for number, score in part
        if number in shown and (rows[number].damaged or look.query.matches(fold(rows[number].text)))
    ]


# --- by reading --------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Scan:
    """What was found by reading."""

    found: list[Found] = field(default_factory=list)
    # messages whose text was read
    scanned: int = 0
    # False when the time was up first
    complete: bool = True
    damaged: list[int] = field(default_factory=list)


def by_reading(look: Look, above: int) -> Scan:
    """Read the messages with ids above `above`, newest first, and keep what matches."""
    scan = Scan()
    people = 0
    kept: dict[bool, list[tuple[float, int, Found]]] = {True: [], False: []}
    where, params = look.filters.where()
    below: int | None = None
    while True:
        rows = rows_of(
            look.reader,
            f"{COLUMNS} WHERE m.id > ?{'' if below is None else ' AND m.id < ?'}{where} ORDER BY m.id DESC LIMIT ?",
            [above, *([] if below is None else [below]), *params, SCAN_ROWS],
        )
        scan.scanned += len(rows)
        scan.damaged += [row.id for row in rows if row.damaged]
        matching = [(row, folded) for row in rows if look.query.matches(folded := fold(row.text))]
        visible = {row.id for row in look.visible([row for row, _ in matching])}
        for row, folded in matching:
            if row.id in visible:
                by_people = kind_of(row.source, row.relation) == PEOPLE
                people += by_people
                score = scanned_score(look.query, folded) if look.ranked else 0.0
                _keep(kept[by_people], Found(row, score), look.limit)
        if look.ranked:
            enough = people >= max(ENOUGH_READ, look.limit)
        else:
            enough = len(kept[True]) + len(kept[False]) >= look.limit  # what is read later cannot come before
        if len(rows) < SCAN_ROWS or enough:
            break
        below = rows[-1].id
        if look.late():
            scan.complete = False
            break
    scan.found = [found for kind in kept.values() for _, _, found in kind]
    return scan


def _keep(kind: list[tuple[float, int, Found]], found: Found, most: int) -> None:
    """Keep the `most` best: texts may be large, and no more are ever shown."""
    item = (found.score, found.row.id, found)
    if len(kind) < most:
        heapq.heappush(kind, item)
    else:
        heapq.heappushpop(kind, item)
