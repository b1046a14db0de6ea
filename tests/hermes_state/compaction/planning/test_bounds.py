"""Rows of any shape are planned, and what is counted follows what there is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes_state.compaction import plan
from hermes_state.compaction.clips import Clip, clipped
from hermes_state.errors import PrefixTooLarge
from tests.hermes_state.compaction.planning.histories import Message, asks, gives, one_task, says

_TEXTS = st.sampled_from([
    "", "x" * 900, "{" + "[1," * 300, "data:image/png;base64," + "aB3/" * 300, "\ud800" * 300, "\0",
])
_KEYS = st.sampled_from([
    "type", "text", "id", "name", "input", "function", "arguments", "content", "tool_use_id", "image_url", "source",
    "data",
])
_TYPES = st.sampled_from(["text", "tool_use", "tool_result", "image", "image_url", "document", "input_audio"])
_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _TEXTS | _TYPES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=5),
    max_leaves=12,
)
_ROLES = st.sampled_from(["system", "developer", "user", "assistant", "tool", "function"])
_MESSAGES = st.fixed_dictionaries(
    {"role": _ROLES},
    optional={name: _VALUES for name in ("content", "tool_calls", "tool_call_id", "name", "reasoning")},
)


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(_MESSAGES, max_size=10), st.integers(600, 3000), st.sampled_from(["default", "hermes"]))
def test_rows_of_any_shape_are_planned_and_their_clips_can_be_kept(
    rows: list[Message], window: int, policy: str
) -> None:
    try:
        made = plan(rows, window=window, policy=policy, count=len)
    except PrefixTooLarge:
        return
    for row, clip in made.clips.items():
        assert Clip.from_json(clip.to_json()) == clip
        clipped(rows[row], clip, seq=row)


class Counted:
    """A counter that adds up the characters it was shown."""

    name = "counted"

    def __init__(self) -> None:
        self.characters = 0

    def count(self, text: str) -> int:
        self.characters += len(text)
        return len(text) // 4


@pytest.mark.parametrize("groups", [100, 1000])
def test_each_row_is_counted_once_and_only_rows_near_the_end_again(groups: int) -> None:
    counter = Counted()
    rows = one_task(groups, "a line of the log\n" * 20)
    plan(rows, window=8192, count=counter)
    assert counter.characters <= 400 * groups + 40_000


@pytest.mark.parametrize(
    "text", ["x" * 1_000_000, "aB3/" * 250_000, "[" * 1_000_000, "word " * 200_000, "漢" * 1_000_000]
)
def test_a_giant_text_is_counted_a_bounded_number_of_times(text: str) -> None:
    counter = Counted()
    plan([says("read"), asks("1"), gives("1", text)], window=8192, count=counter)
    assert counter.characters <= 3 * len(text) + 100_000
