"""What a message may be, and that it reads back as it was given."""

from __future__ import annotations

import enum
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_state import open_store
from hermes_state.conversation.bodies import decode
from hermes_state.conversation.fields import LATEST_TIME, encode, encode_calls, encode_content
from hermes_state.errors import InvalidInput

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=8,
)
CONTENT = (
    st.none() | st.text() | st.binary() | st.booleans() | st.integers() | st.floats(allow_nan=False)
    | st.lists(JSON, max_size=3) | st.dictionaries(st.text(), JSON, max_size=3)
)


class Word(str, enum.Enum):  # noqa: UP042 - the kind whose str() is its name
    YES = "yes"


# --- content (invariants G.5, G.6; weakness H.18) ----------------------------------------------------------------


@given(CONTENT)
def test_every_content_reads_back_as_it_was_given_with_its_type(content: Any) -> None:
    content_type, raw = encode_content(content)
    back = decode(content_type, raw)

    assert back == content
    assert type(back) is type(content)


@pytest.mark.parametrize("text", ['\0json:{"a": 1}', '\0json:not json', "\0", "a\0b", '{"a": 1}'])
def test_text_that_looks_like_a_marker_stays_text(tmp_path: Path, text: str) -> None:
    with open_store(path=tmp_path / "state.db") as store:
        store.sessions.create(id="s", source="cli")
        store.messages.append("s", role="user", content=text)

        assert store.messages.context("s") == [{"role": "user", "content": text}]


def test_structured_content_is_kept_by_type_in_the_store(tmp_path: Path) -> None:
    given_ = [[{"type": "text", "text": "語"}], {"a": [1.5, None]}, b"\0\xff", 7, 1.0, None, True, 2**70, "x"]
    with open_store(path=tmp_path / "state.db") as store:
        store.sessions.create(id="s", source="cli")
        store.messages.append_many("s", [{"role": "user", "content": content} for content in given_])
        with store.core.reader() as reader:
            types = [row[0] for row in reader.rows("SELECT content_type FROM messages ORDER BY id")]

        back = [message["content"] for message in store.messages.context("s")]
    assert types == ["json", "json", "bytes", "number", "number", None, "json", "json", "text"]
    assert back == given_
    assert [type(one) for one in back] == [type(one) for one in given_]


def test_lone_surrogates_become_replacement_characters_in_every_field(tmp_path: Path) -> None:
    bad, good = "a\ud800b", "a\ufffdb"
    with open_store(path=tmp_path / "state.db") as store:
        store.sessions.create(id="s", source="cli")
        message_id = store.messages.append(
            "s", role="assistant", content=bad, tool_calls=[{"id": bad}], tool_call_id=bad, tool_name=bad,
            finish_reason=bad, reasoning=bad, platform_message_id=bad, client_key=bad, extra={"k": bad},
        )
        found = store.messages.get(message_id)
        listed = store.messages.append("s", role="user", content=[bad])
        escaped = store.messages.append("s", role="assistant", tool_calls='[{"id": "\\ud800"}]')

        assert store.messages.get(listed).content == [good]
        assert store.messages.get(escaped).tool_calls == [{"id": "\ufffd"}]
    assert (found.content, found.tool_calls, found.tool_call_id, found.tool_name) == (good, [{"id": good}], good, good)
    assert (found.finish_reason, found.reasoning, found.platform_message_id) == (good, good, good)
    assert (found.client_key, found.extra) == (good, {"k": good})


def test_a_pair_of_surrogates_becomes_the_character_it_stands_for() -> None:
    assert encode_content("\ud83d\ude00") == ("text", "\U0001f600")


def test_a_text_enumeration_is_its_value() -> None:
    assert encode_content(Word.YES) == ("text", "yes")


@pytest.mark.parametrize("content", [{1, 2}, object(), float("nan"), [float("nan")], {"a": {1}}])
def test_what_cannot_be_kept_is_refused(content: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        encode_content(content)

    assert caught.value.facts["argument"] == "content"


def test_api_content_comes_back_byte_for_byte_g_7(tmp_path: Path) -> None:
    exact = "  <context>\n\tspaces kept \u2028 \x00 </context>  "
    with open_store(path=tmp_path / "state.db") as store:
        store.sessions.create(id="s", source="cli")
        store.messages.append("s", role="user", content="hi", extra={"api_content": exact})

        assert store.messages.context("s", extras=True) == [{"role": "user", "content": "hi", "api_content": exact}]
        assert store.messages.context("s") == [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize("role", ["user", "assistant", "tool", "system", "developer"])
def test_the_finish_reason_survives_for_every_role_g_11(tmp_path: Path, role: str) -> None:
    with open_store(path=tmp_path / "state.db") as store:
        store.sessions.create(id="s", source="cli")
        message_id = store.messages.append("s", role=role, content="x", finish_reason="length")

        assert store.messages.get(message_id).finish_reason == "length"


# --- tool calls, time, keys (weakness H.19) ----------------------------------------------------------------------


def test_tool_calls_as_text_are_not_encoded_twice() -> None:
    calls = [{"id": "1", "function": {"name": "f", "arguments": '{"a": "語"}'}}, {"id": "2"}]

    assert encode_calls(calls) == (json.dumps(calls, ensure_ascii=False, separators=(",", ":")), 2)
    assert encode_calls(json.dumps(calls)) == (json.dumps(calls), 2)
    assert encode_calls([]) == encode_calls("[]") == encode_calls("null") == encode_calls(None) == (None, 0)


@pytest.mark.parametrize(
    ("calls", "message"),
    [
        ("[{", "tool_calls is a list or the JSON of one; this is not JSON (Expecting property name enclosed in double"
               " quotes: line 1 column 3 (char 2))."),
        ('{"id": 1}', "tool_calls is a list or the JSON of one, not the JSON of a dict."),
        ({"id": 1}, "tool_calls is a list or the JSON of one, not dict."),
    ],
)
def test_what_is_no_list_of_tool_calls_is_refused(calls: Any, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        encode_calls(calls)

    assert str(caught.value) == message


@pytest.mark.parametrize("at", [float("inf"), float("nan"), -1, -0.5, LATEST_TIME, 1e30, "now", True])
def test_a_time_that_is_none_is_refused(at: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        encode(0.0, "user", "x", at=at)

    assert str(caught.value) == f"at is epoch seconds from 0 to 253402300800 (years 1970 to 9999), not {at!r}."


def test_a_broken_clock_is_refused_too() -> None:
    with pytest.raises(InvalidInput):
        encode(float("inf"), "user", "x")


@pytest.mark.parametrize("role", ["narrator", "", None, [], "User"])
def test_a_role_that_is_none_is_refused(role: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        encode(0.0, role, "x")

    assert str(caught.value) == f"role is one of assistant, developer, system, tool, user, not {role!r}."


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"client_key": ""}, "client_key is not empty."),
        ({"reasoning": 3}, "reasoning is text, not int."),
        ({"token_count": 1.5}, "token_count is a whole number, not 1.5."),
        ({"token_count": 2**63}, "token_count is a whole number, not 9223372036854775808."),
        ({"extra": {"a": {1}}}, "extra cannot be written as JSON (Object of type set is not JSON serializable)."),
    ],
)
def test_a_field_of_the_wrong_kind_is_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        encode(0.0, "user", "x", **fields)

    assert str(caught.value) == message


def nested(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = [value]
    return value


def test_what_is_too_deep_to_be_read_anywhere_is_refused_when_it_comes() -> None:
    assert encode(1.0, "user", nested(100)).content_type == "json"
    for fields in (
        {"content": nested(101)}, {"tool_calls": nested(101)}, {"tool_calls": "[" * 101 + "]" * 101},
        {"tool_calls": "[" * 200_000}, {"extra": {"a": nested(100)}}, {"content": {"a": nested(100)}},
    ):
        with pytest.raises(InvalidInput) as caught:
            encode(1.0, "user", **fields)
        assert "it is more than 100 levels deep" in str(caught.value)


@pytest.mark.parametrize(("text", "why"), [
    ('[{"id":NaN}]', "NaN is no JSON"), ("[Infinity]", "Infinity is no JSON"), ("[-Infinity]", "-Infinity is no JSON"),
    ("[1e999]", "1e999 is too large"),
])
def test_numbers_that_json_has_no_word_for_are_refused_in_the_text_of_calls_too(text: str, why: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        encode(1.0, "assistant", tool_calls=text)
    assert str(caught.value) == f"tool_calls is a list or the JSON of one; this is not JSON ({why})."


@pytest.mark.parametrize("value", [{1: "a", "1": "b"}, [{"deep": [{None: 1, "null": 2}]}], {True: 1, "true": 2}])
def test_a_dict_of_which_json_would_lose_a_key_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        encode(1.0, "user", value)
    assert str(caught.value).startswith("content cannot be written as JSON (two of its keys become ")


def test_other_keys_become_texts_as_json_says() -> None:
    assert encode(1.0, "user", {1: "a", None: "b", 1.5: "c"}).raw == '{"1":"a","null":"b","1.5":"c"}'


def test_numbers_of_thousands_of_digits_are_refused_by_name() -> None:
    for name in ("content", "client_key", "platform_message_id"):
        with pytest.raises(InvalidInput) as caught:
            encode(1.0, "user", **{name: 10**5_000})
        assert caught.value.facts["argument"] == name
