"""Answers made from less than was sent, and replies that ran into the end of the window."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_state.compaction.windows import completion_tokens, prompt_tokens, stopped_at_window, truncated


@pytest.mark.parametrize(("counted", "reported", "window"), [
    (7_900, 2_050, None),  # ollama #17889: a window of 4,096, nothing said before
    (20_000, 2_048, None),  # ollama #10980: 20K of instructions
    (45_000, 16_384, None),  # leviath #469: 45K on 32,768
    (5_400, 2_050, None),
    (4_600, 2_048, 4_096),  # closer to the window: told by the window
    (9_000, 4_090, 8_192),
    (9_000, 4_096, 4_096),  # the whole of it kept
    (7_900, 2_050, 131_072),  # declared far too large
])
def test_a_front_that_was_cut_is_seen(counted: int, reported: int, window: int | None) -> None:
    found = truncated(counted, reported, window=window)
    assert found is not None
    assert (found.counted, found.reported, found.fits) == (counted, reported, reported)
    assert found.why == (
        f"{counted} tokens were sent and the server read {reported}: it left out the beginning of the request."
    )


@pytest.mark.parametrize(("counted", "reported", "window"), [
    (7_900, None, None), (7_900, 0, None), (7_900, -1, None),  # not reported
    (7_900, 7_500, None), (7_900, 9_800, None),  # the usual difference, either way
    (7_900, 3_950, None),  # twice too high a count: columns of numbers
    (700, 250, None),  # too small to tell
    (7_000, 3_900, 8_192),  # it fits the window, so nothing had to be cut
    (9_000, 3_000, 32_768),  # long digits, three in a token, in a window that has room
    (9_000, 7_900, 8_192),  # counted a little beyond the window, and read whole
])
def test_a_difference_of_counting_is_no_cut(counted: int, reported: int | None, window: int | None) -> None:
    assert truncated(counted, reported, window=window) is None


@pytest.mark.parametrize(("usage", "finish", "max_tokens", "window"), [
    ({"prompt_tokens": 3_900, "completion_tokens": 196}, "length", None, 4_096),
    ({"prompt_tokens": 3_900, "completion_tokens": 196}, "length", 1_024, 4_096),
    ({"prompt_eval_count": 61, "eval_count": 451}, "length", None, 512),
    ({"prompt_tokens": 3_900, "completion_tokens": 196}, "length", 196, None),  # the caller's own limit
    ({"prompt_tokens": 3_900, "completion_tokens": 196}, "stop", None, None),
    ({"prompt_tokens": 0, "completion_tokens": 196}, "length", None, None),
    ({"total_tokens": 4_096}, "length", None, None),
    (None, "length", None, None),
])
def test_a_reply_that_ran_into_the_window_tells_it(
    usage: Any, finish: str, max_tokens: int | None, window: int | None
) -> None:
    assert stopped_at_window(usage, finish, max_tokens=max_tokens) == window


@settings(max_examples=100)
@given(st.one_of(st.none(), st.dictionaries(
    st.sampled_from(["prompt_tokens", "completion_tokens", "total_tokens", "input_tokens", "prompt_eval_count"]),
    st.one_of(st.none(), st.booleans(), st.integers(-5, 10**6), st.text(max_size=3), st.floats()),
)))
def test_a_usage_of_any_form_is_a_number_above_zero_or_nothing(usage: Any) -> None:
    for found in (prompt_tokens(usage), completion_tokens(usage)):
        assert found is None or (type(found) is int and found > 0)


@settings(max_examples=100)
@given(st.integers(0, 200_000), st.integers(0, 200_000), st.one_of(st.none(), st.integers(128, 200_000)))
def test_what_was_read_to_a_large_part_is_never_called_cut(counted: int, reported: int, window: int | None) -> None:
    if truncated(counted, reported, window=window) is not None:
        assert 0 < reported < counted * 0.75
