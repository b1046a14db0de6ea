"""Every result beside its call, and no call in the middle without one."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_state.conversation.pairing import NOT_RECORDED, normal_id, pair

Chat = dict[str, Any]


def calls(*ids: str | None, name: str = "f") -> Chat:
    return {"role": "assistant", "content": None, "tool_calls": [
        {"type": "function", "function": {"name": name, "arguments": "{}"}, **({} if one is None else {"id": one})}
        for one in ids
    ]}


def result(call_id: str | None, content: str = "ok", name: str | None = None) -> Chat:
    return {"role": "tool", "content": content} | ({} if call_id is None else {"tool_call_id": call_id}) | (
        {} if name is None else {"name": name}
    )


def said(text: str, role: str = "user") -> Chat:
    return {"role": role, "content": text}


def shape(messages: list[Chat]) -> list[Any]:
    return [
        (message["role"], message.get("tool_call_id"), message["content"]) if message["role"] == "tool"
        else message["role"] for message in messages
    ]


@pytest.mark.parametrize(
    ("raw", "normal"),
    [
        ("call_x|fc_y", "call_x"), (" call_x ", "call_x"), ("call_x", "call_x"), (None, ""), ("", ""), ("|fc_y", ""),
        (7, "7"),
    ],
)
def test_what_of_an_id_tells_calls_apart(raw: Any, normal: str) -> None:
    assert normal_id(raw) == normal


def test_results_are_paired_by_normal_id_and_get_the_calls_own_id() -> None:
    found = pair([calls("call_1|fc_1", "call_2"), result(" call_2|fc_2"), result("call_1"), said("next")])

    assert shape(found) == [
        "assistant", ("tool", "call_1|fc_1", "ok"), ("tool", "call_2", "ok"), "user",
    ]


def test_a_result_without_its_call_is_left_out() -> None:
    assert shape(pair([result("gone"), said("a"), result("gone"), said("b")])) == ["user", "user"]


def test_a_call_in_the_middle_without_result_gets_one_that_says_so() -> None:
    found = pair([said("a"), calls("1", "2"), result("1"), said("b")])

    assert shape(found) == ["user", "assistant", ("tool", "1", "ok"), ("tool", "2", NOT_RECORDED), "user"]
    assert found[3]["name"] == "f"


def test_an_unanswered_call_at_the_very_end_stays() -> None:
    assert shape(pair([said("a"), calls("1", "2"), result("2")])) == ["user", "assistant", ("tool", "2", "ok")]


def test_a_late_result_moves_up_to_its_call() -> None:
    found = pair([calls("1"), said("meanwhile"), result("1", "late"), said("b")])

    assert shape(found) == ["assistant", ("tool", "1", "late"), "user", "user"]


def test_ids_that_come_again_in_every_turn_mean_the_nearest_call() -> None:
    found = pair([
        calls("call_0"), result("call_0", "first"), said("b"), calls("call_0"), result("call_0", "second"), said("c"),
        calls("call_0"), said("d"), calls("call_0"), result("call_0", "fourth"),
    ])

    assert [message["content"] for message in found if message["role"] == "tool"] == [
        "first", "second", NOT_RECORDED, "fourth"
    ]


def test_a_second_result_of_the_same_call_is_left_out() -> None:
    assert shape(pair([calls("1"), result("1", "a"), result("1", "b")])) == ["assistant", ("tool", "1", "a")]


def test_a_result_without_id_goes_to_the_first_open_call_of_its_name() -> None:
    found = pair([
        {"role": "assistant", "content": "", "tool_calls": [*calls(None, name="f")["tool_calls"],
                                                            *calls("2", name="g")["tool_calls"]]},
        result(None, "of g", name="g"), result(None, "of f", name="f"), said("b"),
    ])

    assert shape(found) == ["assistant", ("tool", None, "of f"), ("tool", "2", "of g"), "user"]


IDS = st.sampled_from(["a", "b", " a", "a|x", "c"])
CHATS = st.lists(
    st.one_of(
        st.lists(IDS, min_size=1, max_size=3).map(lambda ids: calls(*ids)), IDS.map(result),
        st.sampled_from(["user", "assistant", "system"]).map(lambda role: said("x", role)),
    ),
    max_size=14,
)


@given(CHATS)
def test_whatever_is_stored_a_provider_would_take_it(messages: list[Chat]) -> None:
    found = pair(copy.deepcopy(messages))

    others = [message for message in found if message["role"] != "tool"]
    assert others == [message for message in messages if message["role"] != "tool"]  # nothing else lost or moved
    open_calls: list[str] = []
    for number, message in enumerate(found):
        if message["role"] == "tool":
            assert message["tool_call_id"] in open_calls  # right after its call, under its very id
            open_calls.remove(message["tool_call_id"])
            continue
        assert not open_calls or number == len(found)
        open_calls = [call["id"] for call in message.get("tool_calls", ())]
    assert pair(copy.deepcopy(found)) == found  # doing it again changes nothing


def test_a_result_without_an_id_answers_the_nearest_call_of_its_name() -> None:
    paired = pair([
        {"role": "user", "content": "1"}, {"role": "assistant", "tool_calls": [{"function": {"name": "ls"}}]},
        {"role": "user", "content": "2"}, {"role": "assistant", "tool_calls": [{"function": {"name": "ls"}}]},
        {"role": "tool", "name": "ls", "content": "found"}, {"role": "assistant", "content": "3"},
    ])

    assert [message["content"] for message in paired if message["role"] == "tool"] == [NOT_RECORDED, "found"]
    assert [message["role"] for message in paired] == [
        "user", "assistant", "tool", "user", "assistant", "tool", "assistant",
    ]


def test_results_without_an_id_answer_the_calls_of_one_message_in_their_order() -> None:
    paired = pair([
        {"role": "assistant", "tool_calls": [{"function": {"name": "ls"}}, {"function": {"name": "ls"}}]},
        {"role": "tool", "name": "ls", "content": "first"}, {"role": "tool", "content": "second"},
    ])

    assert [message["content"] for message in paired[1:]] == ["first", "second"]


class Calls(list[dict[str, str]]):
    """Calls that `pair` does not take for a plain list, so that it takes the long way."""


@given(st.lists(
    st.one_of(
        st.builds(lambda id, name: ("tool", id, name), st.sampled_from(["a", "a|x", " a", "b", None, "|"]),
                  st.sampled_from([None, "ls"])),
        st.builds(
            lambda ids: ("assistant", ids, None), st.lists(st.sampled_from(["a", "a|y", "b", "|", ""]), max_size=2)
        ),
        st.just(("user", None, None)),
    ),
    max_size=10,
))
def test_result_right_after_its_only_call_is_paired_as_by_the_long_way(said: list[tuple[Any, ...]]) -> None:
    def chat(kind: type[list[Any]]) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = []
        for number, (role, ids, name) in enumerate(said):
            message: dict[str, Any] = {"role": role, "content": str(number)}
            if role == "tool":
                message |= {"tool_call_id": ids} if ids is not None else {}
                message |= {"name": name} if name is not None else {}
            elif role == "assistant" and ids:
                message["tool_calls"] = kind({"id": id, "function": {"name": "f" + id}} for id in ids)
            messages.append(message)
        return messages

    assert pair(chat(list)) == pair(chat(Calls))
