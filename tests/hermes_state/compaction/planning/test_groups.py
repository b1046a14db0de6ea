"""Rows that belong together, in every shape they come in."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_state.compaction.late import as_text
from hermes_state.compaction.planning.groups import STILL_OPEN, groups_of, last_user_row, leading_system_rows
from hermes_state.conversation.pairing import NOT_RECORDED
from tests.hermes_state.compaction.planning.histories import Message, asks, gives, replies, says

Shape = list[tuple[int, int, bool]]


def shape(rows: list[Message], start: int = 0) -> Shape:
    return [(group.first, group.stop, group.open) for group in groups_of(rows, start)]


def use(call_id: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "run", "input": {}}


def result(call_id: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": "done"}


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ([says("a"), asks("1"), gives("1"), replies("b")], [(0, 1, False), (1, 3, False), (3, 4, False)]),
        # parallel, out of order
        ([asks("1", "2"), gives("2"), gives("1"), says("a")], [(0, 3, False), (3, 4, False)]),
        # one row a call, results afterwards in another order
        ([asks("1"), asks("2"), gives("2"), gives("1")], [(0, 4, False)]),
        # composite ids on either side, white space
        ([asks("call_1|fc_2"), gives("call_1")], [(0, 2, False)]),
        ([asks("call_1"), gives(" call_1|fc_9 ")], [(0, 2, False)]),
        # a word of the user between a call and its result
        ([asks("1"), says("wait"), gives("1"), says("a")], [(0, 3, False), (3, 4, False)]),
        # the same id in every turn
        ([asks("1"), gives("1"), asks("1"), gives("1")], [(0, 2, False), (2, 4, False)]),
        # without ids, by name
        ([asks("", ""), gives(""), gives("")], [(0, 3, False)]),
    ],
)
def test_a_call_and_its_results_are_one_unit(rows: list[Message], found: Shape) -> None:
    assert shape(rows) == found


def test_blocks_of_the_other_shape_are_one_unit_too() -> None:
    rows = [
        says("a"),
        {"role": "assistant", "content": [{"type": "text", "text": "so"}, use("1"), use("2")]},
        says([result("2"), result("1"), {"type": "text", "text": "and now"}]),
        replies("b"),
    ]
    assert shape(rows) == [(0, 1, False), (1, 3, False), (3, 4, False)]


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ([asks("1", "2"), gives("1")], [(0, 2, True)]),
        ([asks("1", "2"), gives("1"), says("and?")], [(0, 2, True), (2, 3, False)]),
        ([asks("1", "2"), gives("1"), says("and?"), replies("on")], [(0, 2, False), (2, 3, False), (3, 4, False)]),
        ([asks("1"), asks("2"), gives("2")], [(0, 3, True)]),
        # what pairing puts in place of a result stays with the call
        ([asks("1"), gives("1", NOT_RECORDED)], [(0, 2, True)]),
        ([asks("1", "2"), gives("1", NOT_RECORDED), gives("2")], [(0, 3, True)]),
    ],
)
def test_a_group_is_open_until_its_results_came_or_the_model_went_on(rows: list[Message], found: Shape) -> None:
    assert shape(rows) == found


def test_a_call_is_left_open_until_its_result_came_or_eight_user_messages_followed() -> None:
    def left(rows: list[Message]) -> bool:
        return groups_of(rows, 0)[0].left_open

    def later(times: int) -> list[Message]:
        return [row for number in range(times) for row in (says(f"and {number}?"), replies("on"))]

    brought = as_text(gives("9"))
    assert not left([asks("1")]) and left([asks("1"), *later(1)]) and left([asks("1"), *later(STILL_OPEN - 1)])
    assert left([asks("1"), *later(STILL_OPEN - 1), says([result("9")]), brought])
    assert not left([asks("1"), *later(STILL_OPEN)])
    assert not left([asks("1"), gives("1"), *later(1)]) and not left([asks("1"), *later(1), gives("1")])


def test_a_result_without_a_call_stands_alone() -> None:
    assert shape([says("a"), gives("x"), {"role": "tool", "content": "?"}]) == [
        (0, 1, False), (1, 2, False), (2, 3, False),
    ]


def test_calls_that_were_imported_without_their_results_are_not_one_unit() -> None:
    groups = groups_of([asks(str(number)) for number in range(200)], 0)
    assert max(group.stop - group.first for group in groups) == 17
    assert [group.open for group in groups].count(True) == 1


def test_leading_system_rows_end_at_the_first_other_row() -> None:
    rows = [{"role": "system", "content": "a"}, {"role": "developer", "content": "b"}, says("c"),
            {"role": "system", "content": "d"}]
    assert leading_system_rows(rows) == 2
    assert leading_system_rows(rows[:2]) == 2


def test_a_row_of_results_is_not_the_last_word_of_a_user() -> None:
    rows = [says("a"), replies("b"), says([result("1")])]
    assert last_user_row(rows, 0) == 0
    assert last_user_row(rows, 1) is None
    assert last_user_row([says([result("1"), {"type": "text", "text": "x"}])], 0) == 0
