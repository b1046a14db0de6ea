"""From rows to what a model is sent: one pure function."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from hermes_state.compaction.clips import BodyClip, Clip
from hermes_state.compaction.render import Live, after_summary, placed, render
from hermes_state.conversation.pairing import NOT_RECORDED


def live(*messages: dict[str, Any]) -> list[Live]:
    return [Live(message=message, position=at, id=100 + at, token_count=7) for at, message in enumerate(messages, 1)]


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def answer(content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


LS = {"id": "c1", "function": {"name": "ls", "arguments": "{}"}}
CALL = {"role": "assistant", "content": None, "tool_calls": [LS]}
RESULT = {"role": "tool", "content": "a b", "tool_call_id": "c1"}


def test_a_summary_and_the_user_message_after_it_are_one_message() -> None:
    assert render(live(user("go on"), answer("yes")), summary="S") == [user("S\n\ngo on"), answer("yes")]


def test_a_summary_before_an_answer_is_a_user_message_of_its_own() -> None:
    assert render(live(CALL, RESULT), summary="S") == [user("S"), CALL, {**RESULT, "name": "ls"}]


def test_without_rows_the_view_is_the_summary_and_so_has_a_user_message() -> None:
    assert render([], summary="S") == [user("S")]
    assert render([], summary=None) == []


def test_leading_system_messages_stay_leading() -> None:
    system = {"role": "system", "content": "be brief"}
    assert render(live(system, user("hi")), summary="S") == [system, user("S\n\nhi")]
    assert render(live(system, answer("hi")), summary="S") == [system, user("S"), answer("hi")]


@pytest.mark.parametrize(("content", "joined"), [
    ("text", "S\n\ntext"),
    ("", "S"),
    (None, "S"),
    ([], "S"),
    ([{"type": "image_url", "image_url": {"url": "x"}}], [
        {"type": "text", "text": "S"}, {"type": "image_url", "image_url": {"url": "x"}},
    ]),
    ({"type": "text", "text": "one"}, [{"type": "text", "text": "S"}, {"type": "text", "text": "one"}]),
    (b"caf\xc3\xa9", "S\n\ncaf\u00e9"),
    (7, "S\n\n7"),
])
def test_whatever_a_user_message_has_comes_after_the_summary(content: Any, joined: Any) -> None:
    assert after_summary("S", content) == joined


def test_nothing_that_was_given_is_changed() -> None:
    rows = live(user([{"type": "text", "text": "hi"}]), CALL, RESULT, answer("done"))
    before = deepcopy(rows)
    first = render(rows, summary="S")
    assert rows == before
    assert render(rows, summary="S") == first


def test_a_result_without_its_call_is_left_out_and_a_call_without_a_result_says_so() -> None:
    shown = render(live(RESULT, user("and?"), CALL, answer("done")), summary="S")
    assert [one["role"] for one in shown] == ["user", "assistant", "tool", "assistant"]
    assert shown[2]["content"] == NOT_RECORDED


def test_each_message_says_which_row_it_is() -> None:
    clip = Clip(bodies=(BodyClip(path=("content",), kind="text", head=2, tail=2),))
    rows = live(user("hi"), answer("x" * 900), answer("y"))
    rows[1] = Live(message=rows[1].message, position=2, id=102, token_count=7, clip=clip)
    one, two, three = placed(rows, summary="S")
    assert (one.is_summary, one.row, one.token_count) == (True, rows[0], None)
    assert (two.row, two.token_count) == (rows[1], None)  # shown otherwise than it was counted
    assert (three.row, three.token_count) == (rows[2], 7)
    assert "recover(2)" in two.message["content"]
    assert len(two.message["content"]) < 900


def test_what_was_sent_in_place_of_a_content_does_not_undo_the_summary() -> None:
    rows = live({**user("hi"), "api_content": "hi, as it was sent", "observed": True})
    assert render(rows, summary="S") == [{**user("S\n\nhi"), "observed": True}]
    assert render(rows, summary=None) == [rows[0].message]
