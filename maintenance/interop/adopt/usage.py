"""What models cost: per session as the file has it, and the days that follow from it.

Invariant: a usage row that does not fit as it is stays in `foreign_session_model_usage`, cell by cell. The days are an
account of their own: each usage row counts on the UTC day on which it was last used, or its session was last active
where it does not say; a session without a row for its own conversation counts with its totals. That seeds the history;
nothing recomputes it, because it must outlive the sessions.

Not for: costs that a file never recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from maintenance.interop.adopt import cellmap
from maintenance.interop.adopt.source import Columns
from maintenance.interop.adopt.survey import Survey, sane_time
from maintenance.interop.fields import COSTS, TOTAL_COUNTS, USAGE_MAPPED, USAGE_TEXTS, USAGE_TIMES
from maintenance.interop.typed import Cell, CellReader, key_of

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction

_COLUMNS = ("session_no", *USAGE_TEXTS.values(), *TOTAL_COUNTS.values(), *COSTS, *USAGE_TIMES.values(), "extra")
INSERT_USAGE = f"INSERT OR IGNORE INTO session_usage ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"
_DAY = ("day", "model", "provider", "task", *TOTAL_COUNTS.values(), *COSTS)
INSERT_DAY = f"INSERT INTO daily_usage ({', '.join(_DAY)}) VALUES ({', '.join('?' * len(_DAY))})"
_FIRST_COUNT = 1 + len(USAGE_TEXTS)
_FIRST_TIME = _FIRST_COUNT + len(TOTAL_COUNTS) + len(COSTS)

Row = tuple[Any, ...]


class Days:
    """Sums by day, model, provider and task."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str, str, str], list[float]] = {}

    def add(self, at: float, model: str, provider: str, task: str, figures: Row) -> None:
        """Count the figures (counts, then costs) on the day of `at`."""
        key = (datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d").rjust(10, "0"), model, provider, task)
        sums = self._sums.setdefault(key, [0] * len(figures))
        for number, figure in enumerate(figures):
            sums[number] += figure or 0

    def write(self, tx: Transaction) -> None:
        """Write them all."""
        rows = [(*key, *map(_within, sums)) for key, sums in sorted(self._sums.items())]
        tx.executemany(INSERT_DAY, rows)


def _within(figure: float) -> float:
    """A sum as far as a column can hold it: garbage in a file must not stop its adoption."""
    limit = 2**63 - 1 if isinstance(figure, int) else 1e308
    return max(-limit, min(limit, figure))


class UsageRows:
    """Rows of `session_model_usage`."""

    def __init__(self, columns: Columns, survey: Survey, routes: Mapping[int, tuple[str, str, float]]) -> None:
        self._columns = columns
        self._unmapped = tuple(name for name in columns.names if name not in USAGE_MAPPED)
        self._survey = survey
        self._routes = routes
        self.own: set[int] = set()  # sessions with a row for their own conversation

    def read(self, reader: Reader) -> Iterator[tuple[Row | None, list[Cell]]]:
        """Each row as a native row, or None when it does not fit; and as its cells."""
        cells = CellReader(self._columns.names)
        for row in reader.iterate(f"SELECT {cells.sql} FROM session_model_usage ORDER BY rowid"):
            yield self._row(cells.named(row)), cells.cells(row)

    def _row(self, cells: dict[str, Cell]) -> Row | None:
        session = self._survey.by_key.get(key_of(cells.get("session_id")))
        original: cellmap.Original = {}
        texts = [cellmap.text(cells, name, original) for name in USAGE_TEXTS]
        if "task" not in cells:
            texts[-1] = ""
        counts = [cellmap.count(cells, name, original) for name in TOTAL_COUNTS]
        costs = [cellmap.amount(cells, name, original) for name in COSTS]
        times = [cellmap.amount(cells, name, original) for name in USAGE_TIMES]
        if session is None or original or None in texts or None in costs:
            return None
        extra = cellmap.extra_of(cells, self._columns, self._unmapped, original)
        return (session.no, *texts, *counts, *costs, *times, extra)

    def count(self, row: Row, days: Days) -> None:
        """Count a native row in the days."""
        last = sane_time(row[_FIRST_TIME + 1])
        model, provider, _url, _mode, task = row[1:_FIRST_COUNT]
        days.add(last if last is not None else self._routes[row[0]][2], model, provider, task,
                 row[_FIRST_COUNT:_FIRST_TIME])
        if task == "":
            self.own.add(row[0])


def usage_cells(row: Row, session_id: Cell, columns: Columns) -> dict[str, Cell]:
    """The cells of a native usage row (in the order of `USAGE_SQL`), as the file had them."""
    import json

    from maintenance.interop.typed import from_json

    names = (*USAGE_TEXTS, *TOTAL_COUNTS, *COSTS, *USAGE_TIMES)
    said: dict[str, Cell] = {"session_id": session_id, **dict(zip(names, row[1:-1], strict=True))}
    extra = {} if row[-1] is None else json.loads(row[-1])
    for name in columns.names:
        if name not in USAGE_MAPPED:
            said[name] = from_json(extra[name]) if name in extra else columns.defaults.get(name)
    return said


USAGE_SQL = f"SELECT {', '.join(_COLUMNS)} FROM session_usage"
