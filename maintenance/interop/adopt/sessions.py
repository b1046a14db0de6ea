"""One session row of a file as the rows of a native store: the session, its totals, and what has no column.

Invariant: `foreign_rows` makes the very same cells of it again. A session is `replaced` only when it ended by
compression and a continuation is in the file.

Not for: order and links (`survey.py`). Reading the row field by field was rejected: a cell nobody thought of would then
be lost, and here it is kept without being known.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from maintenance.interop.adopt import cellmap
from maintenance.interop.adopt.source import Columns, Source
from maintenance.interop.adopt.survey import Found, Survey, sane_time
from maintenance.interop.adopt.texts import Prompts, SharedTexts
from maintenance.interop.fields import (
    COSTS,
    PLACEHOLDER,
    ROUTE_TEXTS,
    SESSION_MAPPED,
    SESSION_TEXTS,
    TITLE_SOURCES,
    TOTAL_COUNTS,
)
from maintenance.interop.typed import BadText, Cell, CellReader, to_json

if TYPE_CHECKING:
    from hermes_state.engine import Reader
    from maintenance.marks import Marks

_COLUMNS = (
    "no", "id", "source", "state", "parent_no", "relation", "started_at", "ended_at", "end_reason", "active_at",
    "title", "title_source", *SESSION_TEXTS.values(), "prompt_no", "tools_no", "model_config_no", "archived_at",
    "auto_archived", "pinned_at", "hidden", "extra",
)
INSERT_SESSION = f"INSERT INTO sessions ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"
_TOTALS = ("session_no", *TOTAL_COUNTS.values(), *COSTS, *ROUTE_TEXTS.values())
INSERT_TOTALS = f"INSERT INTO session_totals ({', '.join(_TOTALS)}) VALUES ({', '.join('?' * len(_TOTALS))})"
SOURCE_UNKNOWN = "unknown"

Row = tuple[Any, ...]


class SessionRows:
    """All sessions of a file, one after the other."""

    def __init__(
        self, reader: Reader, source: Source, found: Survey, texts: SharedTexts, prompts: Prompts, marks: Marks,
        now: float,
    ) -> None:
        self._reader = reader
        self._columns: Columns = source.columns["sessions"]
        self._unmapped = tuple(name for name in self._columns.names if name not in SESSION_MAPPED)
        self._survey = found
        self._texts = texts
        self._prompts = prompts
        self._marks = marks
        self._now = now
        # session number -> (model, provider) of its totals, and when it was last active: for the usage by day
        self.routes: dict[int, tuple[str, str, float]] = {}

    def rows(self) -> Iterator[tuple[Found, Row, Row]]:
        """Each session with its native row and the row of its totals."""
        cells = CellReader(self._columns.names)
        rows = self._reader.iterate(f"SELECT {cells.sql} FROM sessions ORDER BY rowid", batch=50)
        for found, row in zip(self._survey.rows, rows, strict=True):
            yield (found, *self._row(found, cells.named(row)))
        for found in self._survey.sessions:
            if found.row is None:
                yield (found, *self._placeholder(found))

    def _row(self, found: Found, cells: Mapping[str, Cell]) -> tuple[Row, Row]:
        original: cellmap.Original = {}
        started = cellmap.moment(cells, "started_at", original, self._start_instead(found))
        active = max(started, found.newest if found.newest is not None else started)
        stamp = sane_time(cells.get("last_activity_at"))
        active = max(active, stamp if stamp is not None else active)
        found.last_at = started
        ended, end_reason = self._end(cells, original, max(active, started))
        state = "open" if ended is None else "ended"
        if found.continued and ended is not None and end_reason == "compression":
            state = "replaced"
        if found.id != found.cell:
            original["id"] = found.cell
        parent_id = cells.get("parent_session_id")
        if parent_id != (found.parent.cell if found.parent is not None else None):
            original["parent_session_id"] = parent_id
            if found.parent is None:
                self._survey.oddities["parents_dangling"] += 1
        source = cellmap.text(cells, "source", original)
        if source is None:
            source = SOURCE_UNKNOWN
            original["source"] = cells.get("source")
        if found.title != cells.get("title"):
            original["title"] = cells.get("title")
        title_source = cellmap.text(cells, "title_source", original)
        if title_source is not None and title_source not in TITLE_SOURCES:
            original["title_source"], title_source = cells["title_source"], None
        texts = [cellmap.text(cells, name, original) for name in SESSION_TEXTS]
        prompt, tools, config = self._shared(cells, original)
        archived, pinned = self._flags(found, cells, original)
        auto, hidden = cellmap.flag(cells, "auto_archived", original), cellmap.flag(cells, "hidden", original)
        totals = self._totals(found, cells, original)
        found.counters = (cells.get("message_count"), cells.get("tool_call_count"))
        self.routes[found.no] = (texts[list(SESSION_TEXTS).index("model")] or "", totals[-3] or "", active)
        extra = cellmap.extra_of(cells, self._columns, self._unmapped, original)
        row = (
            found.no, found.id, source, state, found.parent.no if found.parent else None,
            found.relation if found.parent else None, started, ended, end_reason, active,
            found.title, title_source, *texts, prompt, tools, config,
            (ended if ended is not None else active) if archived else None, auto,
            active if pinned else None, hidden, extra,
        )
        return row, totals

    def _placeholder(self, found: Found) -> tuple[Row, Row]:
        """A session for messages whose own session is not in the file, so that they are not lost."""
        at = self._start_instead(found)
        found.last_at = at
        more: dict[str, Any] = {PLACEHOLDER: True if found.id == found.cell else {"id": to_json(found.cell)}}
        empty = (None,) * (len(SESSION_TEXTS) + 3)
        row = (
            found.no, found.id, SOURCE_UNKNOWN, "open", None, None, at, None, None,
            found.newest if found.newest is not None else at, None, None, *empty, None, 0, None, 0, cellmap.dump(more),
        )
        self.routes[found.no] = ("", "", at)
        return row, (found.no, *(0,) * len(TOTAL_COUNTS), *(None,) * (len(COSTS) + len(ROUTE_TEXTS)))

    def _start_instead(self, found: Found) -> float:
        return found.newest if found.newest is not None else self._now

    def _end(
        self, cells: Mapping[str, Cell], original: cellmap.Original, instead: float
    ) -> tuple[float | None, str | None]:
        if cells.get("ended_at") is None:
            if cells.get("end_reason") is not None:
                original["end_reason"] = cells["end_reason"]
            return None, None
        return cellmap.moment(cells, "ended_at", original, instead), cellmap.text(cells, "end_reason", original)

    def _shared(
        self, cells: Mapping[str, Cell], original: cellmap.Original
    ) -> tuple[int | None, int | None, int | None]:
        """Numbers of the system prompt, the tools and the model configuration."""
        inline = cells.get("system_prompt")
        by_hash, plain = self._prompts.text(cells.get("system_prompt_hash"))
        if by_hash is None:
            prompt = cellmap.text(cells, "system_prompt", original)
            # A prompt that stands in the row although the file can keep it apart is told by its hash, which is NULL.
            if "system_prompt_hash" in cells and (prompt is not None or cells["system_prompt_hash"] is not None):
                original["system_prompt_hash"] = cells["system_prompt_hash"]
        else:
            prompt = by_hash
            if inline is not None or not plain:
                original["system_prompt"] = inline
            if not plain:
                original["system_prompt_hash"] = cells["system_prompt_hash"]
        tools, plain = self._prompts.text(cells.get("tool_names"))
        if not plain and cells.get("tool_names") is not None:
            original["tool_names"] = cells["tool_names"]
        config = cells.get("model_config")
        if config is not None and not _is_object(config):
            original["model_config"], config = config, None
            self._survey.oddities["model_configs_malformed"] += 1
        return self._number(prompt), self._number(tools), self._number(config if isinstance(config, str) else None)

    def _number(self, text: str | None) -> int | None:
        return None if text is None else self._texts.number(text)

    def _flags(self, found: Found, cells: Mapping[str, Cell], original: cellmap.Original) -> tuple[bool, bool]:
        """Archived and pinned, by column, or by the mark beside a file that has no such column."""
        archived = bool(cellmap.flag(cells, "archived", original))
        pinned = bool(cellmap.flag(cells, "pinned", original))
        if "archived" not in self._columns.names:
            archived = found.id in self._marks.archived
        if "pinned" not in self._columns.names:
            pinned = found.id in self._marks.pinned
        return archived, pinned

    def _totals(self, found: Found, cells: Mapping[str, Cell], original: cellmap.Original) -> Row:
        counts = [cellmap.count(cells, name, original) for name in TOTAL_COUNTS]
        costs = [cellmap.amount(cells, name, original) for name in COSTS]
        route = [cellmap.text(cells, name, original) for name in ROUTE_TEXTS]
        return (found.no, *counts, *costs, *route)


def _is_object(cell: Cell) -> bool:
    if not isinstance(cell, str) or isinstance(cell, BadText):
        return False
    try:
        return isinstance(json.loads(cell), dict)
    except (ValueError, RecursionError):
        return False
