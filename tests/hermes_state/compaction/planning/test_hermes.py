"""The policy `hermes`: the published table, in every detail that was published or measured."""

from __future__ import annotations

import pytest

from hermes_state.compaction import Plan, plan
from hermes_state.compaction.planning.hermes import cut_of, head_rows, tail_budget, tokens_of
from tests.hermes_state.compaction.planning.histories import Message, asks, gives, replies, says, seed_probe

# Window: tokens, rows and start of the tail, as published with the cap; what precedes it as published without.
SEED = {8192: (2116, 7, 42), 16_384: (4246, 15, 34), 32_768: (7441, 27, 22), 131_072: (10_636, 39, 10)}
TEXTS = [
    {},
    {"asked": "look", "done": "found"},
    {"asked": "a" * 40, "done": "b" * 40},
    {"asked": "Look at file {} now", "done": "That is done now.", "name": "read_file", "arguments": '{{"n": {}}}'},
    {"asked": "What is in part {}?", "call_id": "call_{}", "name": "terminal", "arguments": '{{"command": "ls -l"}}'},
]


def boundaries(made: Plan) -> tuple[int, int, int]:
    return made.start, made.end, made.tail_rows


def test_the_probe_is_the_published_size() -> None:
    rows = seed_probe()
    assert len(rows) == 49
    assert abs(sum(map(tokens_of, rows)) - 12_766) <= 20


@pytest.mark.parametrize("window", SEED)
def test_the_seed_table_is_met(window: int) -> None:
    tokens, rows, end = SEED[window]
    made = plan(seed_probe(), window=window, policy="hermes")
    assert boundaries(made) == (4, end, rows)
    assert abs(made.tail_tokens - tokens) <= 20


@pytest.mark.parametrize("window", SEED)
@pytest.mark.parametrize("texts", TEXTS)
def test_the_rows_are_the_same_for_other_short_texts(window: int, texts: dict[str, str]) -> None:
    _tokens, rows, end = SEED[window]
    assert boundaries(plan(seed_probe(**texts), window=window, policy="hermes")) == (4, end, rows)


@pytest.mark.parametrize("window", SEED)
def test_without_the_cap_the_lean_floor_keeps_39_rows_at_every_window(window: int) -> None:
    made = plan(seed_probe(), window=window, policy="hermes-uncapped")
    assert boundaries(made) == (4, 10, 39)
    assert abs(made.tail_tokens - 10_636) <= 20


@pytest.mark.parametrize("window", [131_072, 200_000, 262_144, 1_000_000])
def test_windows_of_128k_and_more_are_the_same_with_and_without_the_cap(window: int) -> None:
    capped = plan(seed_probe(), window=window, policy="hermes")
    uncapped = plan(seed_probe(), window=window, policy="hermes-uncapped")
    assert capped == uncapped


def test_it_counts_in_its_own_unit_whatever_counter_the_caller_has() -> None:
    mine = plan(seed_probe(), window=16_384, policy="hermes", count=len, fixed_tokens=0)
    assert mine.tail_tokens == plan(seed_probe(), window=16_384, policy="hermes").tail_tokens


@pytest.mark.parametrize(
    ("window", "budget", "kept", "rows"),
    [(45_000, 9000, 9556, 35), (400_000, 10_000, 10_619, 39), (480_000, 12_000, 2126, 8)],
)
def test_the_tail_is_smaller_for_a_larger_budget_when_all_rows_fit_it(
    window: int, budget: int, kept: int, rows: int
) -> None:
    made = plan(seed_probe(), window=window, policy="hermes")
    assert tail_budget(window)[0] == budget
    assert made.tail_rows == rows
    assert abs(made.tail_tokens - kept) <= 20


@pytest.mark.parametrize(
    ("window", "budget", "ceiling"),
    [
        (8192, 1638, 1638), (32_768, 6553, 6553), (60_000, 10_000, 12_000), (75_000, 10_000, 15_000),
        (131_072, 10_000, 15_000), (480_000, 12_000, 18_000), (2_000_000, 25_000, 37_500),
    ],
)
def test_budget_and_overrun_of_a_window(window: int, budget: int, ceiling: int) -> None:
    assert tail_budget(window) == (budget, ceiling)


def test_a_system_row_and_three_more_are_the_head() -> None:
    assert head_rows([{"role": "system", "content": "s"}]) == 4
    assert head_rows([says("a")]) == 3
    assert head_rows([]) == 3


@pytest.mark.parametrize(
    ("message", "tokens"),
    [
        (says("abc"), 10), (says("abcd"), 11), (says(None), 10), (says("日本語だ"), 11),
        (says([{"type": "text", "text": "a" * 40}, "b" * 40]), 30),
        (says([{"type": "image_url", "image_url": {"url": "data:," + "a" * 9000}}]), 1610),
        (asks("call_0"), 31), (asks("call_0", arguments="a" * 40), 40),
        ({"role": "assistant", "content": "a" * 40, "reasoning": "a" * 400}, 120),
        (gives("c" * 400, "a" * 40), 20),
    ],
)
def test_a_message_costs_what_the_peer_said_it_costs(message: Message, tokens: int) -> None:
    assert tokens_of(message) == tokens


def cut(rows: list[Message], budget: int) -> int:
    """Where the peer cuts, with its overrun of half and its floor of eight rows."""
    return cut_of(rows, [tokens_of(row) for row in rows], head_rows(rows), budget, budget * 3 // 2, floor=8)[0]


def plain(roles: str, tokens: int = 100) -> list[Message]:
    names = {"u": "user", "a": "assistant", "s": "system"}
    return [{"role": names[role], "content": "a" * 4 * (tokens - 10)} for role in roles]


@pytest.mark.parametrize(
    ("budget", "found"),
    [(50, 33), (333, 33), (600, 32), (667, 31), (800, 29), (1000, 26), (2400, 5), (2600, 14), (3000, 10), (4000, 33)],
)
def test_the_walk_on_rows_of_100_tokens_ends_where_the_peers_ended(budget: int, found: int) -> None:
    assert cut(plain("s" + "ua" * 20), budget) == found


@pytest.mark.parametrize(
    ("roles", "found"),
    [
        ("su" + "a" * 18 + "u" + "a" * 20, 20),
        ("su" + "u" * 18 + "a" + "u" * 20, 20),
        ("su" + "a" * 8 + "u" + "a" * 10 + "ua" + "u" * 18, 22),
        ("s" + "a" * 40, 32),
        ("s" + "u" * 40, 32),
    ],
)
def test_the_last_user_and_the_last_assistant_row_are_in_the_tail(roles: str, found: int) -> None:
    assert cut(plain(roles), 600) == found


def test_an_assistant_row_without_words_is_not_the_one_that_is_kept() -> None:
    rows = [*plain("suuu" + "u" * 10), replies("I looked."), *plain("u" * 20), asks("c1"), gives("c1"), *plain("u")]
    assert cut(rows, 600) == 14


def test_a_group_is_never_split_and_a_lone_result_goes() -> None:
    rows = [*plain("suau" + "a" * 10), asks("a", "b"), gives("a"), gives("b"), *plain("au" * 4)]
    assert cut(rows, 50) == 14
    short = [*plain("suua"), gives("x"), gives("y"), gives("z"), *plain("a")]
    assert cut(short, 50) == 7


def test_a_last_user_row_that_cannot_stay_goes_with_its_answer() -> None:
    assert cut(plain("suau" + "uaaa"), 300) == 6


def test_a_start_inside_parallel_calls_goes_past_their_results() -> None:
    """hermes-agent 0.19.0 aligns the start so; rows 3 to 6 are the results of the calls of row 2."""
    messages: list[Message] = [{"role": "system", "content": "s"}]
    for turn in range(12):
        ids = [f"c{turn}_{number}" for number in range(4)]
        calls = [{"id": one, "type": "function", "function": {"name": "t", "arguments": "{}"}} for one in ids]
        messages.append({"role": "user", "content": f"turn {turn}"})
        messages.append({"role": "assistant", "content": "", "tool_calls": calls})
        messages += [{"role": "tool", "content": "x" * 1000, "tool_call_id": one} for one in ids]
        messages.append({"role": "assistant", "content": "ok"})
    assert plan(messages, window=8192, policy="hermes").start == 7
