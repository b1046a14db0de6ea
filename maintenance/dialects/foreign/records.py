"""Whole rows for export: every column, unknown ones included.

Invariant: nothing of a row is left out, and a record is plain JSON: text is text (bad UTF-8 replaced), bytes become
`{"base64": ...}`, a number that JSON cannot say becomes its name as text. Not for: showing (`messages.py`).
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from maintenance.dialects.base import StoreShape, UsageRow
from maintenance.dialects.cells import Blob, cell, decode_cell, decode_text, key_bytes, number_sql, text_cell
from maintenance.dialects.foreign.content import decode_content
from maintenance.dialects.foreign.messages import ROWS_AT_ONCE
from maintenance.quoting import quoted

if TYPE_CHECKING:
    from hermes_state.engine import Reader


class RecordReading:
    """Export statements for one shape of file."""

    def __init__(self, shape: StoreShape) -> None:
        self._session_columns = shape.session_columns
        self._message_columns = shape.message_columns
        self._has_usage = "session_model_usage" in shape.tables
        self._has_prompts = "system_prompts" in shape.tables and "system_prompt_hash" in shape.session_columns
        self._session = ", ".join(cell(quoted(name)) for name in shape.session_columns)
        self._message = ", ".join(cell(quoted(name)) for name in shape.message_columns)

    def session(self, reader: Reader, session_id: str) -> dict[str, Any] | None:
        """Every column of one session; a system prompt that is stored apart is put back in its place."""
        key = (key_bytes(session_id),)
        values = reader.row(f"SELECT {self._session} FROM sessions WHERE id = CAST(? AS TEXT)", key)
        if values is None:
            return None
        record = {name: _json_value(value) for name, value in _pairs(self._session_columns, values)}
        if self._has_prompts and record.get("system_prompt") is None:
            prompt = reader.row(
                f"SELECT {text_cell('p.prompt')} FROM system_prompts AS p JOIN sessions AS s"
                " ON s.system_prompt_hash = p.hash WHERE s.id = CAST(? AS TEXT)",
                key,
            )
            if prompt is not None:
                record["system_prompt"] = decode_text(prompt[0])
        return record

    def messages(self, reader: Reader, message_ids: list[int]) -> Iterator[dict[str, Any]]:
        """Every column of these messages, content decoded, in order."""
        for start in range(0, len(message_ids), ROWS_AT_ONCE):
            part = message_ids[start : start + ROWS_AT_ONCE]
            marks = ", ".join("?" * len(part))
            sql = f"SELECT {self._message} FROM messages WHERE id IN ({marks}) ORDER BY id"
            for values in reader.iterate(sql, part, batch=8):
                record = {name: _json_value(value) for name, value in _pairs(self._message_columns, values)}
                at = self._message_columns.index("content") * 2
                record["content"] = _json_value(decode_content(values[at], values[at + 1]))
                yield record

    def usage_rows(self, reader: Reader, session_id: str) -> list[dict[str, Any]]:
        """Every column of one session's usage rows."""
        if not self._has_usage:
            return []
        columns = tuple(str(row[1]) for row in reader.rows("PRAGMA table_info(session_model_usage)"))
        cells = ", ".join(cell(quoted(name)) for name in columns)
        rows = reader.rows(
            f"SELECT {cells} FROM session_model_usage WHERE session_id = CAST(? AS TEXT) ORDER BY rowid",
            (key_bytes(session_id),),
        )
        return [{name: _json_value(value) for name, value in _pairs(columns, values)} for values in rows]

    def usage(self, reader: Reader, session_id: str) -> list[UsageRow]:
        """Per-model usage of one session."""
        if not self._has_usage:
            return []
        columns = {str(row[1]) for row in reader.rows("PRAGMA table_info(session_model_usage)")}
        task = text_cell("task") if "task" in columns else "''"
        counters = ", ".join(
            f"coalesce(CAST({number_sql(name)} AS INTEGER), 0)" if name in columns else "0"
            for name in ("api_call_count", "input_tokens", "output_tokens")
        )
        rows = reader.rows(
            f"SELECT {text_cell('model')}, {text_cell('billing_provider')}, {task}, {counters},"
            f" nullif({number_sql('actual_cost_usd')}, 0), {number_sql('estimated_cost_usd')}"
            " FROM session_model_usage WHERE session_id = CAST(? AS TEXT) ORDER BY rowid",
            (key_bytes(session_id),),
        )
        return [
            UsageRow(
                model=decode_text(row[0]) or "",
                provider=decode_text(row[1]) or "",
                task=decode_text(row[2]) or "",
                api_calls=row[3],
                input_tokens=row[4],
                output_tokens=row[5],
                cost_usd=row[6] if row[6] is not None else row[7],
            )
            for row in rows
        ]


def _pairs(columns: tuple[str, ...], values: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
    for number, name in enumerate(columns):
        yield name, decode_cell(values[number * 2], values[number * 2 + 1])


def _json_value(value: Any) -> Any:
    if isinstance(value, Blob):
        return {"base64": base64.b64encode(value.data).decode("ascii")}
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, list):
        return [_json_value(item) for item in value]
    if isinstance(value, dict):
        return {key: _json_value(item) for key, item in value.items()}
    return value
