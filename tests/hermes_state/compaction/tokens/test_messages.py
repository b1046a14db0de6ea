"""Messages of every shape cost what is sent of them."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_state.compaction.tokens import Estimator, as_counter, message_tokens, request_tokens
from hermes_state.compaction.tokens.messages import CALL_TOKENS, IMAGE_TOKENS, LOW_DETAIL_TOKENS, MESSAGE_TOKENS

# One token a character: what is counted can be read off.
EACH = as_counter(len)


@pytest.mark.parametrize(("message", "tokens"), [
    ({"role": "user", "content": "hello"}, 5),
    ({"role": "user", "content": None}, 0),
    ({"role": "user"}, 0),
    ({"role": "user", "content": [{"type": "text", "text": "hello"}, "abc"]}, 8),
    ({"role": "assistant", "content": "", "tool_calls": [
        {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": '{"a":1}'}}]},
     6 + 4 + 7 + CALL_TOKENS),
    ({"role": "assistant", "content": "", "tool_calls": [
        {"id": "call_1", "function": {"name": "read", "arguments": {"a": 1}}}]}, 6 + 4 + 8 + CALL_TOKENS),
    ({"role": "tool", "tool_call_id": "call_1", "name": "read", "content": "ok"}, 6 + 4 + 2),
    ({"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "read", "input": {"a": 1}}]},
     2 + 4 + 8 + CALL_TOKENS),
    ({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "ok"}]}, 2 + 2 + CALL_TOKENS),
    ({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [
        {"type": "text", "text": "ok"}, {"type": "image", "source": {"type": "base64", "data": "A" * 9000}}]}]},
     2 + 2 + CALL_TOKENS + IMAGE_TOKENS),
    ({"role": "user", "content": {"odd": 1}}, len('{"odd": 1}')),
    ({"role": "user", "content": [{"type": "new_kind", "x": 1}]}, len('{"type": "new_kind", "x": 1}')),
    ({"role": "user", "content": [{"type": "document", "source": {"type": "text", "data": "abc"}}]}, 3),
])
def test_what_is_sent_is_counted(message: dict[str, Any], tokens: int) -> None:
    assert message_tokens(message, EACH) == tokens + MESSAGE_TOKENS


def test_reasoning_is_not_sent_again_and_costs_nothing() -> None:
    plain = {"role": "assistant", "content": "answer"}
    assert message_tokens({**plain, "reasoning": "a" * 5000, "reasoning_content": "b"}, EACH) == 6 + MESSAGE_TOKENS
    parts = {"role": "assistant", "content": [{"type": "thinking", "thinking": "a" * 5000, "signature": "s"}]}
    assert message_tokens(parts, EACH) == MESSAGE_TOKENS


@pytest.mark.parametrize(("part", "tokens"), [
    ({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{'A' * 200_000}"}}, IMAGE_TOKENS),
    ({"type": "image_url", "image_url": {"url": "https://x/y.png", "detail": "low"}}, LOW_DETAIL_TOKENS),
    ({"type": "input_image", "image_url": "data:...", "detail": "low"}, LOW_DETAIL_TOKENS),
    ({"type": "image", "source": {"type": "base64", "data": "A" * 200_000}}, IMAGE_TOKENS),
    ({"type": "input_audio", "input_audio": {"data": "A" * 200_000}}, IMAGE_TOKENS),
])
def test_a_picture_has_one_price_whatever_its_bytes(part: dict[str, Any], tokens: int) -> None:
    assert message_tokens({"role": "user", "content": [part]}, EACH) == tokens + MESSAGE_TOKENS


def test_base64_that_is_text_is_counted_as_the_text_it_is() -> None:
    """Report 207: a tool that puts a picture into its text fills the window with it."""
    text = b64encode(bytes(range(256)) * 80).decode()
    tokens = message_tokens({"role": "tool", "tool_call_id": "c", "content": text}, Estimator())
    assert tokens > len(text) / 2


@settings(max_examples=50)
@given(st.lists(st.fixed_dictionaries({
    "role": st.sampled_from(["user", "assistant", "tool"]),
    "content": st.one_of(st.none(), st.text(max_size=30), st.lists(st.dictionaries(
        st.sampled_from(["type", "text", "content", "input", "image_url"]),
        st.one_of(st.text(max_size=8), st.none(), st.integers()),
    ), max_size=3)),
    "tool_calls": st.one_of(st.none(), st.lists(st.one_of(st.none(), st.text(max_size=5), st.dictionaries(
        st.sampled_from(["id", "function", "name", "arguments"]), st.text(max_size=8),
    )), max_size=3)),
}), max_size=5))
def test_a_request_is_the_sum_of_its_messages_whatever_they_are(messages: list[dict[str, Any]]) -> None:
    counter = Estimator()
    each = [message_tokens(message, counter) for message in messages]
    assert request_tokens(messages, counter) == sum(each)
    assert all(tokens >= MESSAGE_TOKENS for tokens in each)
