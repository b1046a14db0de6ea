"""Reports 187, 188, 193, 203, 204, 207, 231 and 232, and what was reproduced of boundaries and budgets.

The numbers of reproductions are those of the facts about compaction. Reproduction 10 (a guard that counts archived rows
again) and the verdicts of guards are not a plan's to show; a plan reads nothing but the rows it is given.
"""

from __future__ import annotations

import base64
import json
import random

import pytest

from hermes_state.compaction import Plan, plan
from hermes_state.compaction.tokens import as_counter, request_tokens
from hermes_state.errors import PrefixTooLarge
from tests.hermes_state.compaction.planning.histories import (
    Message,
    asks,
    gives,
    limits,
    one_task,
    orphans,
    quarter,
    replies,
    says,
    seed_probe,
    shown,
)

SMALL_WINDOWS = (4096, 8192, 16_384, 32_768, 65_536)
LINE = "12:00:01 worker 7 read block 4471 of volume b\n"


def carried_out(rows: list[Message], made: Plan) -> list[Message]:
    """The view after a pass whose summary takes all that it may; the summary leads the first user row."""
    kept = shown(rows, made)
    if made.end == made.start:
        return kept
    return [*kept[: made.start], says("s" * 4 * (made.summary_budget - 4)), *kept[made.start :]]


def fits(made: Plan) -> bool:
    return made.tokens_after_at_most + made.budget.reserve <= made.budget.window


# --- 187: with a window of 64K compaction never starts -------------------------------------------------------------


@pytest.mark.parametrize("window", SMALL_WINDOWS)
def test_the_trigger_is_below_what_the_reply_leaves_at_every_small_window(window: int) -> None:
    """Report 187: the threshold had a floor of 64,000, which was all of the window."""
    made = plan(one_task(200, LINE * 60), window=window, count=quarter)
    assert made.budget.trigger < window - made.budget.reserve
    assert made.needed and made.end > made.start


# --- 188: models under 64K are refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("window", SMALL_WINDOWS)
def test_a_model_with_a_small_window_is_served(window: int) -> None:
    """Report 188: 32K was refused at start. Here 4,096 works, with 1,500 tokens of prompt before it."""
    made = plan(one_task(200, LINE * 60), window=window, fixed_tokens=1500, reply_reserve=1024, count=quarter)
    assert made.worth_it and fits(made)
    assert all(limits(made).values())


# --- 193: fails at once at 6,000 tokens ----------------------------------------------------------------------------


def test_a_prompt_of_6000_tokens_leaves_8k_little_and_it_is_said_what_fills_it() -> None:
    """Report 193: system and tools took 6,000 of 8,192, and the failure named neither."""
    rows: list[Message] = [{"role": "system", "content": "s" * 7984}, *one_task(20)[1:]]
    made = plan(rows, window=8192, fixed_tokens=4000, count=quarter)
    assert (made.budget.fixed, made.budget.reserve, made.budget.usable) == (6000, 1024, 1168)
    assert made.needed and fits(made)
    with pytest.raises(PrefixTooLarge) as caught:
        plan(rows, window=8192, fixed_tokens=4000, reply_reserve=2048, count=quarter)
    assert caught.value.message == (
        "The fixed prefix does not fit: of a window of 8,192 tokens, 2,000 are system rows, 4,000 are tools and other "
        "fixed tokens, and 2,048 are kept for the reply. That leaves 144 for the conversation; at least 512 are needed."
    )


# --- 203, reproduction 13: calls without results, results without calls --------------------------------------------


@pytest.mark.parametrize("calls", [1, 2, 5])
def test_no_cut_parts_a_call_from_its_results(calls: int) -> None:
    """Report 203: the provider refused every request some turns after a compaction. Cut at every row that can be."""
    rows: list[Message] = []
    for turn in range(30):
        ids = [f"call_{turn}_{part}|fc_{part}" for part in range(calls)]
        rows += [says(f"do {turn}"), asks(*ids), *(gives(each.partition("|")[0], LINE * 4) for each in ids)]
    cuts = set()
    for window in range(700, 12_000, 97):
        made = plan(rows, window=window, reply_reserve=0, count=quarter)
        cuts.add(made.end)
        assert orphans(shown(rows, made)) == []
        assert rows[made.end]["role"] != "tool" or made.end == made.start
    assert len(cuts) > 8


def test_a_second_compaction_parts_none_either() -> None:
    """Reproduction 13, chained: the view of the first pass is planned again, with more rows behind it."""
    rows = one_task(6, LINE * 60)
    for number in range(6, 90):
        rows += [asks(f"call_{number}"), gives(f"call_{number}", LINE * 60)]
        made = plan(rows, window=8192, count=quarter)
        if made.needed:
            rows = carried_out(rows, made)
        assert orphans(rows) == []


# --- 204: a call in flight is dropped and done again ----------------------------------------------------------------


def test_a_call_in_flight_is_kept_and_its_result_finds_it() -> None:
    """Report 204: the user wrote while a deployment ran; the call was summarised, and the agent deployed again."""
    rows = one_task(20, LINE * 60)
    rows += [asks("deploy", "watch"), gives("watch", LINE * 40), says("how far is it? " * 500)]
    made = plan(rows, window=8192, count=quarter)
    assert made.end == len(rows) - 1
    assert made.anchors == (42, 43)
    view = [*carried_out(rows, made), gives("deploy", "deployed 4471")]
    assert orphans(view) == []
    assert [reason for reason in made.reasons if reason.startswith("anchor open-group rows 42-43")]


# --- 207: pictures as base64 in the tail -----------------------------------------------------------------------------


def test_three_rows_of_200_kilobytes_of_base64_do_not_hold_the_window() -> None:
    """Report 207: tool results with pictures in them stayed in the protected tail, over the limit for ever."""
    data = base64.b64encode(random.Random(7).randbytes(150_000)).decode()
    rows = one_task(4, LINE * 20)
    for number in range(3):
        body = json.dumps({"page": number, "image": f"data:image/png;base64,{data}"})
        rows += [asks(f"shot_{number}"), gives(f"shot_{number}", body)]
    made = plan(rows, window=8192, count=quarter)
    kept = shown(rows, made)
    assert made.worth_it and fits(made)
    assert [json.loads(row["content"])["image"] for row in kept if "image/png" in str(row["content"])] == [
        f"[image/png data, 150,000 bytes, left out; recover({place}) returns it]" for place in (11, 13, 15)
    ]


# --- 231, 232, reproductions 1 and 22: what the reply may take ------------------------------------------------------


@pytest.mark.parametrize("reserve", [None, 32_000])
def test_an_unset_or_huge_output_limit_leaves_a_small_window_something(reserve: int | None) -> None:
    """Report 231, reproduction 1: 16,384 less an assumed output of 32,000 was nothing, and each step compacted."""
    rows, passes = one_task(4, LINE * 25), 0
    for number in range(4, 124):
        rows += [asks(f"call_{number}"), gives(f"call_{number}", LINE * 25)]
        made = plan(rows, window=16_384, reply_reserve=reserve, count=quarter)
        assert made.budget.usable >= 12_280
        if made.needed:
            rows, passes = carried_out(rows, made), passes + 1
    assert 1 <= passes <= 8


def test_an_output_limit_as_large_as_the_window_does_not_compact_at_a_fifth_of_it() -> None:
    """Report 232: of 32,768 with an output limit of 32,768, 768 were usable; 6,478 were in use."""
    rows = [says("a" * 4 * 3231), replies("b" * 4 * 3239)]
    made = plan(rows, window=32_768, reply_reserve=32_768, count=quarter)
    assert (made.tokens_before, made.needed, made.budget.usable) == (6478, False, 24_576)


@pytest.mark.parametrize("reserve", [None, 0, 777, 50_000])
def test_prompt_and_reply_are_never_one_token_over_the_window(reserve: int | None) -> None:
    """Reproduction 22."""
    rows = one_task(30, LINE * 31)
    for window in range(4000, 4100):
        made = plan(rows, window=window, reply_reserve=reserve, fixed_tokens=333, count=quarter)
        assert made.needed and fits(made)
    for size in range(3000, 3600, 7):
        rows = [says("a" * 4 * (size - 4))]
        made = plan(rows, window=4096, reply_reserve=reserve, count=quarter)
        assert fits(made)


# --- Reproductions 2 to 4: floors that are larger than the window ---------------------------------------------------


@pytest.mark.parametrize("window", SMALL_WINDOWS[:3])
def test_no_floor_of_tokens_is_larger_than_a_share_of_the_window(window: int) -> None:
    """Reproduction 2: at 8K a floor of 10,000 protected 37 of 48 rows, 117 % of the window."""
    made = plan(seed_probe(), window=window, count=quarter)
    assert made.tail_tokens <= window // 4
    assert plan(seed_probe(), window=window, policy="hermes").tail_tokens < window * 27 // 100


def test_no_floor_of_rows_is_larger_than_the_budget() -> None:
    """Reproduction 3: eight fat rows were a tail of 63,081 for a budget of 10,000."""
    rows = [*one_task(3), *(row for number in range(8) for row in (says(f"{number}"), replies("word " * 6300)))]
    made = plan(rows, window=40_000, count=quarter)
    assert made.tail_tokens <= 10_000
    assert all(limits(made).values())


def test_a_single_task_of_forty_groups_is_cut_and_goes_on() -> None:
    """Reproduction 4: one user row and 40 groups were a tail of 5.2 windows."""
    rows = one_task(40)
    made = plan(rows, window=8192, count=quarter)
    assert made.anchors == (1,) and rows[made.end]["role"] == "assistant"
    assert made.tail_tokens <= 8192 // 4 and made.worth_it
    assert not plan(carried_out(rows, made), window=8192, count=quarter).needed


# --- Reproductions 17, 18, 20, 23 -----------------------------------------------------------------------------------


def test_only_the_given_window_counts_not_what_a_name_suggests() -> None:
    """Reproduction 17: a lookup gave 32K for a model of 262K."""
    rows = one_task(40, LINE * 87)
    assert plan(rows, window=32_768, count=quarter).needed
    assert not plan(rows, window=262_144, count=quarter).needed


def test_instructions_that_a_server_would_cut_in_silence_are_an_error() -> None:
    """Reproduction 18: 20,000 tokens of instructions for a server that stays at 4,096."""
    with pytest.raises(PrefixTooLarge) as caught:
        plan([{"role": "system", "content": "s" * 80_000}, says("hello")], window=4096, count=quarter)
    assert (caught.value.facts["system"], caught.value.facts["window"]) == (20_004, 4096)


def test_a_turn_of_many_calls_is_planned_after_each_and_never_hits_the_window() -> None:
    """Reproduction 20: checked between user turns only, one turn went from 17K to 49,152 and stopped."""
    rows, seen = one_task(8, LINE * 180), 0
    for number in range(8, 60):
        rows += [asks(f"call_{number}"), gives(f"call_{number}", LINE * 87)]
        made = plan(rows, window=49_152, count=quarter)
        rows, seen = (carried_out(rows, made), seen + 1) if made.needed else (rows, seen)
        assert request_tokens(rows, as_counter(quarter)) + made.budget.reserve <= 49_152
    assert seen >= 1


@pytest.mark.parametrize(
    ("body", "real"), [("漢字文書処理" * 700, 1.0), (json.dumps([{"id": f"{n:08x}"} for n in range(400)]), 0.5)]
)
def test_a_tail_of_chinese_or_json_is_a_tail_in_real_tokens_too(body: str, real: float) -> None:
    """Reproduction 23: a budget of 20,000 kept 65,000 to 90,000 real tokens. `real`: tokens a character, measured."""
    rows = one_task(40, body)
    made = plan(rows, window=32_768)
    kept = sum(len(str(rows[row]["content"])) for row in range(made.end, len(rows))) * real
    assert made.needed and made.tail_rows >= 2
    assert kept <= made.budget.usable * 0.3
