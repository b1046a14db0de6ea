"""Rows that belong together: a call, its results, and whatever stands between them.

Invariant: groups are consecutive, cover every row once, and no tool result is in another group than its call. A group
is open while a call in it waits for its result and no model has answered since; such a group is never summarised. It
is left open when the model went on (it was asked meanwhile, or told that the result takes a while), until eight user
messages followed: then the call is taken for given up, like one of an import without results. A result without a call
and a call that was given up are groups like any other. Time is linear in the rows.

Both shapes are understood: OpenAI's `tool_calls` and `tool` rows, and Anthropic's `tool_use` and `tool_result` blocks.
Ids are compared as `pairing` compares them, which decides what a model is sent. Cutting before every user row instead
was rejected: a single task of forty calls then has no cut at all.

Not for: sizes (see `sizes`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from hermes_state.compaction.late import is_late
from hermes_state.conversation.pairing import NOT_RECORDED, normal_id

_ONE_BREATH = 16
STILL_OPEN = 8  # user messages after a call, below which its result may still come
SYSTEM_ROLES = frozenset({"system", "developer"})


@dataclass(frozen=True, kw_only=True)
class Group:
    """Rows `first` to `stop` (exclusive) that stay or go together."""

    first: int
    stop: int
    open: bool
    """True when a call in it still waits for its result, and no model has answered since."""
    left_open: bool = False
    """True when a call in it still waits, the model went on, and the result may still come."""

    @property
    def rows(self) -> range:
        """The indexes of its rows."""
        return range(self.first, self.stop)


def leading_system_rows(messages: Sequence[Mapping[str, Any]]) -> int:
    """How many rows from the first on are system or developer rows."""
    return next((row for row, message in enumerate(messages) if message["role"] not in SYSTEM_ROLES), len(messages))


def _says(message: Mapping[str, Any]) -> bool:
    """True when a user says something in it; bringing results back, also late ones, is nothing said."""
    return message["role"] == "user" and not _only_results(message.get("content")) and not is_late(message)


def last_user_row(messages: Sequence[Mapping[str, Any]], start: int) -> int | None:
    """Index of the last row from `start` on in which a user says something; None without one.

    A row that only brings tool results back is no such row, though Anthropic gives it the role.
    """
    for row in range(len(messages) - 1, start - 1, -1):
        if _says(messages[row]):
            return row
    return None


def groups_of(messages: Sequence[Mapping[str, Any]], start: int) -> list[Group]:
    """All rows from `start` on as groups, in order."""
    last_of, waiting_at = _reach(messages, start)
    groups: list[Group] = []
    row, rows = start, len(messages)
    last_answer = max((at for at in range(start, rows) if messages[at]["role"] == "assistant"), default=-1)
    said = islice((at for at in range(rows - 1, start - 1, -1) if _says(messages[at])), STILL_OPEN)
    given_up = (list(said)[STILL_OPEN - 1 :] or [-1])[0]
    while row < rows:
        first, reach, waits, joined = row, row, False, 0
        while row <= reach:
            reach = max(reach, last_of.get(row, row))
            if row in waiting_at:
                waits = True
                # The next call was made in the same breath: providers of the Responses API send one row a call. Not
                # without end: a history that was imported without its results is no one breath.
                if row == reach and joined < _ONE_BREATH and row + 1 < rows and _calls(messages[row + 1]):
                    reach, joined = row + 1, joined + 1
            row += 1
        went_on = last_answer >= row
        groups.append(
            Group(first=first, stop=row, open=waits and not went_on, left_open=waits and went_on and row > given_up)
        )
    return groups


class _Waiting:
    """One call without a result."""

    __slots__ = ("answered", "id", "name", "row")

    def __init__(self, row: int, call_id: str, name: Any) -> None:
        self.row, self.id, self.name, self.answered = row, call_id, name, False


def _reach(messages: Sequence[Mapping[str, Any]], start: int) -> tuple[dict[int, int], set[int]]:
    """For each row with calls, the last row with a result of it; and the rows with calls that have none."""
    by_id: dict[str, list[_Waiting]] = {}
    by_name: dict[Any, list[_Waiting]] = {}
    everything: list[_Waiting] = []
    last_of: dict[int, int] = {}
    for row in range(start, len(messages)):
        message = messages[row]
        if _not_recorded(message):
            # It stands for the result that did not come, and stays or goes with the call.
            stack = by_id.get(normal_id(message.get("tool_call_id")), [])
            if stack and not stack[-1].answered:
                last_of[stack[-1].row] = row
            continue
        for call_id, name in _results(message):
            stack = by_id.get(call_id, []) if call_id else by_name.get(name, []) if name is not None else everything
            while stack and stack[-1].answered:
                stack.pop()
            if stack:
                call = stack.pop()
                call.answered = True
                last_of[call.row] = row
        for call_id, name in _calls(message):
            call = _Waiting(row, call_id, name)
            everything.append(call)
            if call_id:
                by_id.setdefault(call_id, []).append(call)
            if name is not None:
                by_name.setdefault(name, []).append(call)
    return last_of, {call.row for call in everything if not call.answered}


def _calls(message: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Id and name of each call of a row."""
    if message["role"] != "assistant":
        return []
    found: list[tuple[str, Any]] = []
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, (list, tuple)) else ():
        fields: Mapping[str, Any] = call if isinstance(call, Mapping) else {}
        inner = fields.get("function")
        found.append((normal_id(fields.get("id") or fields.get("call_id")), _name(inner, fields)))
    for part in _parts(message, "tool_use"):
        found.append((normal_id(part.get("id")), _name(None, part)))
    return found


def _name(inner: Any, fields: Mapping[str, Any]) -> str | None:
    name = inner.get("name") if isinstance(inner, Mapping) else fields.get("name")
    return name if isinstance(name, str) else None


def _results(message: Mapping[str, Any]) -> list[tuple[str, str | None]]:
    """Id and name of what each result of a row answers."""
    if message["role"] == "tool":
        name = message.get("name")
        return [(normal_id(message.get("tool_call_id")), name if isinstance(name, str) else None)]
    return [(normal_id(part.get("tool_use_id")), None) for part in _parts(message, "tool_result")]


def _not_recorded(message: Mapping[str, Any]) -> bool:
    """True for what pairing puts in place of a result."""
    return message["role"] == "tool" and message.get("content") == NOT_RECORDED


def _parts(message: Mapping[str, Any], kind: str) -> Iterator[Mapping[str, Any]]:
    content = message.get("content")
    if isinstance(content, (list, tuple)):
        for part in content:
            if isinstance(part, Mapping) and part.get("type") == kind:
                yield part


def _only_results(content: Any) -> bool:
    return (
        isinstance(content, (list, tuple))
        and len(content) > 0
        and all(isinstance(part, Mapping) and part.get("type") == "tool_result" for part in content)
    )
