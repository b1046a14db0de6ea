"""Filling a new native store with everything of a foreign file.

Invariant: the source is only read, in one snapshot; the new store is a private file that nobody has open, written in
transactions of bounded size, and counts for nothing until `verify` has compared it. Memory grows with sessions, never
with messages.

Not for: deciding where the new store goes (`flow.py`). One transaction for all was rejected: a file of 17 GB would have
to fit in memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from maintenance.interop.adopt.kept import KeptTable, size_of
from maintenance.interop.adopt.messages import INSERT_EDIT, INSERT_MESSAGE, MessageRows
from maintenance.interop.adopt.sessions import INSERT_SESSION, INSERT_TOTALS, SessionRows
from maintenance.interop.adopt.source import Source, read_columns
from maintenance.interop.adopt.survey import Found, Survey, survey
from maintenance.interop.adopt.texts import Prompts, SharedTexts
from maintenance.interop.adopt.usage import INSERT_USAGE, Days, UsageRows
from maintenance.interop.fields import COSTS, ORIGINAL, TOTAL_COUNTS
from maintenance.interop.typed import CellReader, to_json

if TYPE_CHECKING:
    from hermes_state.clock import Clock
    from hermes_state.engine import Reader, Store, Transaction
    from maintenance.marks import Marks

BATCH_BYTES = 4_000_000  # of content in one transaction
BATCH_ROWS = 2_000
_Row = TypeVar("_Row")


@dataclass(frozen=True, kw_only=True)
class Built:
    """What was written."""

    sessions: int  # session rows, those made for messages without one included
    messages: int  # message rows
    view_edits: int  # ranges that are hidden
    usage_rows: int  # rows of usage by session
    kept: dict[str, int] = field(default_factory=dict)  # rows by table of the file that was kept as it is
    oddities: dict[str, int] = field(default_factory=dict)  # what had to be decided, by name

    def document(self) -> dict[str, Any]:
        """The fields of `--json` and of `store.adopted_from`."""
        return {
            "sessions": self.sessions, "messages": self.messages, "view_edits": self.view_edits,
            "usage_rows": self.usage_rows, "kept_rows": dict(self.kept), "oddities": dict(self.oddities),
        }


class Builder:
    """One adoption into the empty native store `store`."""

    def __init__(
        self, reader: Reader, source: Source, store: Store, marks: Marks, clock: Clock,
        advance: Callable[[int], None] = lambda _rows: None,
    ) -> None:
        self._reader = reader
        self._source = source
        self._store = store
        self._marks = marks
        self._clock = clock
        self._advance = advance
        self._kept: dict[str, int] = {}
        self._routes: dict[int, tuple[str, str, float]] = {}

    def run(self) -> Built:
        """Write everything. The caller holds the snapshot."""
        found = survey(self._reader, self._source)
        self._sessions(found)
        edits = self._messages(found)
        self._counters(found)
        usage = self._usage(found)
        for name in self._source.kept:
            columns = read_columns(self._reader, name).names
            self._keep(KeptTable(self._reader, name, columns))
        built = Built(
            sessions=len(found.sessions), messages=sum(session.seq for session in found.sessions), view_edits=edits,
            usage_rows=usage, kept=self._kept, oddities=dict(sorted(found.oddities.items())),
        )
        self._identity(built)
        return built

    # --- the parts -------------------------------------------------------------------------------------------

    def _sessions(self, found: Survey) -> None:
        texts = SharedTexts()
        prompts = Prompts(self._reader, "system_prompts" in self._source.columns)
        rows = SessionRows(self._reader, self._source, found, texts, prompts, self._marks, self._clock.now())
        later: list[tuple[int, str, int]] = []

        def first(row: tuple[Any, ...]) -> tuple[Any, ...]:
            """A parent that comes later in the file is named once it is there."""
            if row[4] is not None and row[4] > row[0]:
                later.append((row[4], row[5], row[0]))
                return (*row[:4], None, None, *row[6:])
            return row

        for batch in batches(rows.rows(), lambda item: _row_size(item[1])):
            with self._store.transaction() as tx:
                texts.flush(tx)
                tx.executemany(INSERT_SESSION, [first(row) for _found, row, _totals in batch])
                tx.executemany(INSERT_TOTALS, [totals for _found, _row, totals in batch])
            self._advance(len(batch))
        with self._store.transaction() as tx:
            tx.executemany("UPDATE sessions SET parent_no = ?, relation = ? WHERE no = ?", later)
        self._routes = rows.routes
        if prompts_kept := self._prompts_to_keep(prompts):
            self._keep(prompts_kept, lambda cells: not prompts.is_absorbed(cells[prompts_kept.columns.index("hash")]))

    def _prompts_to_keep(self, prompts: Prompts) -> KeptTable | None:
        columns = self._source.columns.get("system_prompts")
        if columns is None:
            return None
        # A third column would say something that a text and its hash do not.
        if {*columns.names} != {"hash", "prompt"}:
            prompts.absorbed.clear()
        return KeptTable(self._reader, "system_prompts", columns.names)

    def _messages(self, found: Survey) -> int:
        columns = self._source.columns["messages"]
        cells = CellReader(columns.names)
        rows = MessageRows(columns, found)
        edits = 0

        def native() -> Iterator[tuple[Any, ...]]:
            for row in self._reader.iterate(f"SELECT {cells.sql} FROM messages ORDER BY id", batch=100):
                yield rows.row(cells.named(row))

        for batch in batches(native(), _row_size):
            with self._store.transaction() as tx:
                tx.executemany(INSERT_MESSAGE, batch)
                tx.executemany(INSERT_EDIT, rows.edits)
            edits += len(rows.edits)
            rows.edits.clear()
            self._advance(len(batch))
        rows.finish(found.sessions)
        with self._store.transaction() as tx:
            tx.executemany(INSERT_EDIT, rows.edits)
        return edits + len(rows.edits)

    def _counters(self, found: Survey) -> None:
        """Counters follow from rows; where the file's own say something else, they are kept."""
        names = self._source.columns["sessions"].names
        differing = [session for session in found.sessions if _counters_differ(session, names)]
        if differing:
            found.oddities["counters_differ"] = len(differing)
        for batch in batches(iter(differing), lambda _session: 100):
            with self._store.transaction() as tx:
                for session in batch:
                    _keep_counters(tx, session, names)

    def _usage(self, found: Survey) -> int:
        days, written = Days(), 0
        columns = self._source.columns.get("session_model_usage")
        own: set[int] = set()
        if columns is not None:
            rows = UsageRows(columns, found, self._routes)
            kept = KeptTable(self._reader, "session_model_usage", columns.names)
            for batch in batches(rows.read(self._reader), lambda item: size_of(item[1])):
                leftover = []
                with self._store.transaction() as tx:
                    for row, cells in batch:
                        if row is not None and tx.execute(INSERT_USAGE, row):
                            rows.count(row, days)
                            written += 1
                        else:
                            leftover.append((None, cells))
                    if leftover:
                        kept.rowid = None
                        kept.create(tx)
                        kept.insert(tx, leftover)
                        found.oddities["usage_rows_kept"] += len(leftover)
                        self._kept[kept.name] = self._kept.get(kept.name, 0) + len(leftover)
            own = rows.own
        self._days_of_totals(days, own)
        with self._store.transaction() as tx:
            days.write(tx)
        return written

    def _days_of_totals(self, days: Days, own: set[int]) -> None:
        figures = ", ".join((*TOTAL_COUNTS.values(), *COSTS))
        used = " OR ".join(f"{name} <> 0" for name in (*TOTAL_COUNTS.values(), *COSTS))
        sql = f"SELECT session_no, {figures} FROM session_totals WHERE {used}"
        for row in self._store.iterate(sql):
            if row[0] not in own:
                model, provider, at = self._routes[row[0]]
                days.add(at, model, provider, "", row[1:])

    def _keep(self, table: KeptTable, wanted: Callable[[list[Any]], bool] = lambda _cells: True) -> None:
        count = 0
        with self._store.transaction() as tx:
            table.create(tx)
        rows = ((rowid, cells) for rowid, cells in table.rows(self._reader) if wanted(cells))
        for batch in batches(rows, lambda item: size_of(item[1])):
            with self._store.transaction() as tx:
                table.insert(tx, batch)
            count += len(batch)
        self._kept[table.name] = count

    def _identity(self, built: Built) -> None:
        document = self._source.document() | {
            "path": str(self._reader.path), "adopted_at": self._clock.now(), "counts": built.document(),
        }
        # A store that lost its newest messages must not give their ids to others.
        newest = self._reader.rows("SELECT max(id) FROM messages")[0][0]
        floor = max(self._source.sequences.get("messages", 0), newest or 0)
        with self._store.transaction(durability="power") as tx:
            tx.execute(
                "UPDATE store SET adopted_from = ?, message_floor = ?",
                (json.dumps(document, ensure_ascii=False), max(floor, 0)),
            )


def _keep_counters(tx: Transaction, session: Found, names: tuple[str, ...]) -> None:
    row = tx.row("SELECT extra FROM sessions WHERE no = ?", (session.no,))
    extra = {} if row is None or row[0] is None else json.loads(row[0])
    original = extra.setdefault(ORIGINAL, {})
    for name, cell, own in _counters_of(session):
        if name in names and (type(cell) is not int or cell != own):
            original[name] = to_json(cell)
    text = json.dumps(extra, ensure_ascii=False, separators=(",", ":"))
    tx.execute("UPDATE sessions SET extra = ? WHERE no = ?", (text, session.no))


def _counters_differ(session: Found, names: tuple[str, ...]) -> bool:
    return session.counters is not None and any(
        name in names and (type(cell) is not int or cell != own) for name, cell, own in _counters_of(session)
    )


def _counters_of(session: Found) -> tuple[tuple[str, Any, int], tuple[str, Any, int]]:
    messages, calls = session.counters or (None, None)
    return ("message_count", messages, session.live), ("tool_call_count", calls, session.live_calls)


def _row_size(row: Iterable[Any]) -> int:
    return 100 + sum(len(value) for value in row if isinstance(value, (str, bytes)))


def batches(rows: Iterator[_Row], size: Callable[[_Row], int]) -> Iterator[list[_Row]]:
    """Rows in lists that one transaction takes; `size` tells about how many bytes a row is."""
    batch: list[_Row] = []
    total = 0
    for row in rows:
        batch.append(row)
        total += size(row)
        if total >= BATCH_BYTES or len(batch) >= BATCH_ROWS:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch
