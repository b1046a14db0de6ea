"""The quick way of a plain message gives the very row of the long way."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_state import open_store
from hermes_state.conversation import bodies
from hermes_state.conversation.append import tail_of, widened
from hermes_state.conversation.fields import LATEST_TIME, encode, encode_calls
from hermes_state.conversation.plain_rows import PLAIN_SIZE, Plain, plain_row
from hermes_state.conversation.row_check import row_check, stamp
from hermes_state.errors import InvalidInput

NOW = 1_700_000_000.25
ANY_TEXT = st.text(st.characters(), max_size=8)  # lone surrogates too
CONTENT = (
    ANY_TEXT
    | st.builds(lambda text, times: text * times, st.sampled_from(["x", "é", "語", "\ud800"]), st.integers(0, 20_000))
    | st.sampled_from([None, 1, b"x", ["x"], {"a": 1}])
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT | st.integers(0, 1), inner, max_size=3),
    max_leaves=8,
)
OPTIONAL = st.none() | ANY_TEXT | st.sampled_from(["stop", 7, []])
FIELDS = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool", "system", "developer", "narrator", None, []]),
     "content": CONTENT},
    optional={
        "tool_calls": st.none() | st.lists(JSON, max_size=3) | st.sampled_from(["[]", '[{"id": 1}]', {}, [object()]]),
        "tool_call_id": OPTIONAL, "tool_name": OPTIONAL, "finish_reason": OPTIONAL, "reasoning": OPTIONAL,
        "token_count": st.sampled_from([None, 0, 5, -1, 2**63 - 1, 2**63, True, 1.5]),
        "platform_message_id": st.sampled_from([None, None, "", "p", 7]),
        "client_key": st.sampled_from([None, None, "", "k"]),
        "at": st.sampled_from([None, 0, 0.0, -0.0, 1, 1.5, LATEST_TIME, math.inf, math.nan, "now"]),
        "extra": st.sampled_from([None, None, {}, {"a": 1}]),
    },
)


def quick(fields: dict[str, Any], no: int = 3) -> Plain | None:
    return plain_row(no, NOW, stamp(no, NOW), **fields)


@given(FIELDS, st.integers(1, 2**62))
def test_a_plain_row_is_the_row_of_the_long_way(fields: dict[str, Any], no: int) -> None:
    found = quick(fields, no)
    try:
        new = encode(NOW, **fields)
    except InvalidInput:
        assert found is None
        return
    if found is None:
        return
    frame = None
    if len(new.content) >= bodies.COMPRESS_BYTES:
        frame = bodies.prepare(new.content_type, new.raw, new.content, compress=False)

    assert new.client_key is None is new.platform_message_id
    assert len(found[1]) == PLAIN_SIZE
    assert found == (new.calls, found[1], frame, None)
    assert widened(found[1]) == tail_of(no, new, frame)
    assert found[1][3] == row_check(
        no, new.role, new.content_type, new.raw, new.tool_name, new.tool_call_id, new.tool_calls, new.finish_reason,
        new.token_count, new.reasoning, None, None, new.at, None,
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"content": ""}, {"content": "語" * 1500}, {"content": "x" * 20_000, "tool_name": "t", "tool_call_id": "c"},
        {"content": "x", "tool_calls": [{"id": "語"}], "finish_reason": "stop", "token_count": 7, "reasoning": "why"},
        {"content": "x", "at": 1.5},
    ],
)
def test_what_a_conversation_consists_of_is_plain(fields: dict[str, Any]) -> None:
    assert quick({"role": "assistant", **fields}) is not None


@given(st.lists(JSON, min_size=1, max_size=3))
def test_tool_calls_are_written_as_the_long_way_writes_them(calls: list[Any]) -> None:
    found = quick({"role": "assistant", "content": "x", "tool_calls": calls})
    if found is None:
        return
    assert (found[1][6], found[0]) == encode_calls(calls)
    assert json.loads(found[1][6]) == json.loads(json.dumps(calls))


def nested(levels: int) -> list[Any]:
    made: list[Any] = []
    for _level in range(levels - 1):
        made = [made]
    return made


@pytest.mark.parametrize("calls", [nested(101), nested(5_000), [{1: "a", "1": "b"}], [{("a",): 1}], [math.nan]])
def test_tool_calls_that_cannot_be_given_back_are_left_to_the_long_way_which_refuses_them(calls: list[Any]) -> None:
    assert quick({"role": "assistant", "content": "x", "tool_calls": calls}) is None
    with pytest.raises(InvalidInput):
        encode(NOW, "assistant", "x", tool_calls=calls)


def test_a_list_that_contains_itself_is_refused() -> None:
    calls: list[Any] = []
    calls.append(calls)

    assert quick({"role": "assistant", "content": "x", "tool_calls": calls}) is None
    with pytest.raises(InvalidInput) as caught:
        encode(NOW, "assistant", "x", tool_calls=calls)
    assert str(caught.value) == "tool_calls cannot be written as JSON (it is more than 100 levels deep)."


def test_plain_rows_and_others_in_one_call_are_stored_with_all_their_columns(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"role": "user", "content": "hi", "at": 1.5},
        {"role": "assistant", "content": "語", "tool_calls": [{"id": "c"}], "token_count": 7, "reasoning": "why"},
        {"role": "tool", "content": "x" * 5_000, "tool_name": "t", "tool_call_id": "c"},
        {"role": "tool", "content": "y" * 20_000, "tool_name": "t", "tool_call_id": "c"},
        {"role": "user", "content": ["part"], "client_key": "k", "extra": {"a": 1}},
        {"role": "assistant", "content": "ho", "finish_reason": "stop", "platform_message_id": "p"},
        {"role": "assistant", "content": None},
    ]
    columns = (
        "content_type, content, body_no, seq, calls, role, tool_name, tool_call_id, tool_calls, finish_reason,"
        " token_count, reasoning, platform_message_id, client_key, extra"
    )
    with open_store(path=tmp_path / "state.db") as store:
        for name in ("many", "each"):
            store.sessions.create(id=name, source="cli")
        store.messages.append_many("many", rows)
        for row in rows:
            store.messages.append("each", **row)
        with store.core.reader() as reader:
            many, each = (
                reader.rows(
                    f"SELECT {columns} FROM messages WHERE session_no = (SELECT no FROM sessions WHERE id = ?)"
                    " ORDER BY seq", (name,),
                )
                for name in ("many", "each")
            )
    assert many == each
    assert [row[0] for row in many] == ["text", "text", "text", "text", "json", "text", None]
    assert [row[2] is None for row in many] == [True, True, True, False, True, True, True]
    assert [row[4] for row in many] == [0, 1, 1, 1, 1, 1, 1]
    assert many[5][5:] == ("assistant", None, None, None, "stop", None, None, "p", None, None)
    assert many[1][8:12] == ('[{"id":"c"}]', None, 7, "why")
