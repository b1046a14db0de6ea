"""The policy `default`: a larger window never keeps less, and every limit is kept."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes_state.compaction import Plan, plan
from hermes_state.errors import PrefixTooLarge
from tests.hermes_state.compaction.planning.histories import (
    Message,
    after,
    fickle,
    histories,
    limits,
    never_less,
    orphans,
    quarter,
    shown,
)

COUNTERS = st.sampled_from([quarter, fickle, len])
WINDOWS = st.integers(700, 40_000)
NUMBERS = st.integers(0, 4000)
NO_LIMIT = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def planned(
    rows: list[Message], window: int, fixed: int, reserve: int | None, count: Callable[[str], int]
) -> Plan | None:
    try:
        return plan(rows, window=window, fixed_tokens=fixed, reply_reserve=reserve, count=count)
    except PrefixTooLarge:
        return None


def assert_never_less(rows: list[Message], small: Plan, large: Plan) -> None:
    assert large.budget.usable >= small.budget.usable
    assert large.end <= small.end
    assert large.tail_rows >= small.tail_rows
    assert large.tail_tokens >= small.tail_tokens
    for row in range(len(rows)):
        assert never_less(small, large, row), row


@NO_LIMIT
@given(histories(), st.lists(WINDOWS, min_size=2, max_size=5), NUMBERS, st.none() | NUMBERS, COUNTERS)
def test_a_larger_window_never_keeps_less(
    rows: list[Message], windows: list[int], fixed: int, reserve: int | None, count: Callable[[str], int]
) -> None:
    plans = [planned(rows, window, fixed, reserve, count) for window in sorted(windows)]
    found = [each for each in plans if each is not None]
    for small, large in pairwise(found):
        assert_never_less(rows, small, large)


@NO_LIMIT
@given(histories(), WINDOWS, st.tuples(NUMBERS, NUMBERS), st.tuples(NUMBERS, NUMBERS), COUNTERS)
def test_a_smaller_prefix_or_reserve_never_keeps_less(
    rows: list[Message], window: int, fixed: tuple[int, int], reserve: tuple[int, int], count: Callable[[str], int]
) -> None:
    small = planned(rows, window, max(fixed), max(reserve), count)
    large = planned(rows, window, min(fixed), min(reserve), count)
    if small is not None:
        assert large is not None
        assert_never_less(rows, small, large)


@NO_LIMIT
@given(histories(), st.integers(700, 5000), COUNTERS)
def test_windows_one_token_apart_never_keep_less(
    rows: list[Message], window: int, count: Callable[[str], int]
) -> None:
    plans = [planned(rows, window + more, 0, None, count) for more in range(8)]
    found = [each for each in plans if each is not None]
    for small, large in pairwise(found):
        assert_never_less(rows, small, large)


@NO_LIMIT
@given(histories(), WINDOWS, NUMBERS, COUNTERS)
def test_every_plan_keeps_its_limits_and_calls_with_their_results(
    rows: list[Message], window: int, fixed: int, count: Callable[[str], int]
) -> None:
    made = planned(rows, window, fixed, None, count)
    if made is None:
        return
    assert made.start <= made.end <= len(rows)
    assert made.tail_rows == len(rows) - made.end > 0
    assert all(made.start <= row < made.end for row in made.anchors)
    if not made.needed:
        assert (made.reasons, made.end, made.clips) == (("fits",), made.start, {})
        return
    broken = [name for name, kept in limits(made).items() if not kept]
    if broken:
        assert [reason for reason in made.reasons if reason.startswith("anchor")], (broken, made.reasons)
    system = sum(row["role"] == "system" for row in rows[: made.start])
    assert system == made.start
    assert after(rows, made, count, fixed) <= made.tokens_after_at_most
    assert set(orphans(shown(rows, made))) <= set(orphans(rows))


@pytest.mark.parametrize("window", [4096, 8192, 16_384])
def test_a_plan_depends_on_nothing_but_its_arguments(window: int) -> None:
    talk: list[Message] = [{"role": "user", "content": "word " * 900}, {"role": "assistant", "content": "word " * 9000}]
    assert plan(talk, window=window) == plan([dict(row) for row in talk], window=window)
