"""The policy `default`: what is cut, what stays, what is shortened, and what it says about it."""

from __future__ import annotations

import json
import pickle

import pytest

from hermes_state.compaction import plan
from hermes_state.compaction.planning import plan_rows
from hermes_state.errors import InvalidInput, PrefixTooLarge
from tests.hermes_state.compaction.planning.histories import (
    ENCODED,
    Message,
    asks,
    gives,
    limits,
    one_task,
    quarter,
    replies,
    says,
    shown,
)

WINDOWS = (4096, 8192, 16_384, 32_768, 131_072)
LINE = "12:00:01 worker 7 read block 4471 of volume b\n"  # 46 characters


def talk(turns: int, body: str = LINE * 60) -> list[Message]:
    rows: list[Message] = []
    for turn in range(turns):
        rows += [says(f"question {turn}"), asks(f"c{turn}"), gives(f"c{turn}", body), replies(f"answer {turn}")]
    return rows


def test_below_the_trigger_nothing_is_cut() -> None:
    rows = [{"role": "system", "content": "s"}, *talk(3)]
    made = plan(rows, window=32_768, count=quarter)
    assert (made.start, made.end, made.tail_rows, made.needed, made.reasons) == (1, 1, 12, False, ("fits",))
    assert (made.anchors, made.clips, made.summary_budget) == ((), {}, 0)
    assert made.tokens_before == made.tokens_after_at_most


def test_the_trigger_is_at_85_hundredths_of_what_is_left() -> None:
    budget = plan([says("a")], window=8192, fixed_tokens=1500, reply_reserve=1024, count=quarter).budget
    assert (budget.usable, budget.trigger, budget.low_water) == (5668, 4817, 2550)
    assert (budget.summary, budget.tail, budget.anchors, budget.worth) == (850, 1417, 1700, 567)
    for size, needed in ((4817, False), (4818, True)):
        rows = [says("a" * 4 * (size - 8)), says("")]
        assert plan(rows, window=8192, fixed_tokens=1500, reply_reserve=1024, count=quarter).needed is needed


@pytest.mark.parametrize(
    ("asked", "kept"), [(None, 1024), (500, 500), (2048, 2048), (8192, 2048), (32_000, 2048), (0, 0)]
)
def test_the_reply_gets_what_was_asked_for_and_at_most_a_quarter(asked: int | None, kept: int) -> None:
    assert plan([says("a")], window=8192, reply_reserve=asked).budget.reserve == kept


def test_leading_system_rows_count_as_fixed_and_stay() -> None:
    rows = [{"role": "system", "content": "s" * 400}, {"role": "developer", "content": "d" * 400}, *talk(20)]
    made = plan(rows, window=8192, count=quarter, fixed_tokens=300)
    assert made.start == 2
    assert made.budget.fixed == 300 + 2 * 104


def test_the_smallest_window_works() -> None:
    made = plan(talk(20), window=4096, fixed_tokens=1500, reply_reserve=1024, count=quarter)
    assert made.budget.usable == 1572
    assert made.needed and made.end > made.start
    assert made.tokens_after_at_most <= 4096 - 1024


def test_a_prefix_that_does_not_fit_says_what_fills_the_window() -> None:
    rows = [{"role": "system", "content": "s" * 8000}, says("hello")]
    with pytest.raises(PrefixTooLarge) as caught:
        plan(rows, window=8192, fixed_tokens=6000, count=quarter)
    problem = caught.value
    assert problem.message == (
        "The fixed prefix does not fit: of a window of 8,192 tokens, 2,004 are system rows, 6,000 are tools and other "
        "fixed tokens, and 1,024 are kept for the reply. That leaves 0 for the conversation; at least 512 are needed."
    )
    assert problem.hint == "Compaction cannot help. Use a larger window, fewer tools or a shorter system prompt."
    assert (problem.code, problem.retryable, problem.exit_code) == ("prefix_too_large", False, 1)
    assert problem.facts == {
        "window": 8192, "fixed": 8004, "system": 2004, "tools": 6000, "reserve": 1024, "usable": -836, "smallest": 512,
    }
    again = pickle.loads(pickle.dumps(problem))
    assert (again.message, again.facts) == (problem.message, problem.facts)


@pytest.mark.parametrize("window", WINDOWS)
def test_a_single_task_is_cut_between_its_groups_and_keeps_the_task(window: int) -> None:
    rows = one_task(40, LINE * 180)
    made = plan(rows, window=window, count=quarter)
    assert made.needed is (window < 131_072)
    if made.needed:
        assert made.anchors == (1,)
        assert rows[made.end]["role"] == "assistant"
        assert all(limits(made).values())


def test_parallel_calls_stay_together_with_results_in_any_order() -> None:
    rows = [says("go")]
    for turn in range(12):
        ids = [f"c{turn}-{part}" for part in range(4)]
        rows += [asks(*(f"{each}|fc" for each in ids)), *(gives(each, LINE * 12) for each in reversed(ids))]
    made = plan(rows, window=8192, count=quarter)
    assert made.needed and (made.end - 1) % 5 == 0
    assert all(limits(made).values())


def test_an_open_group_stays_though_the_user_spoke_after_it() -> None:
    rows = [*talk(12), says("deploy"), asks("a", "b"), gives("a", LINE * 30), says("are you there? " * 500)]
    made = plan(rows, window=8192, count=quarter)
    assert made.end == 51
    assert made.anchors == (49, 50)
    assert "anchor open-group rows 49-50 take 365" in made.reasons


def test_a_call_that_the_model_went_on_without_stays_and_the_newest_three_of_many_do() -> None:
    def left(number: int) -> list[Message]:
        return [says(f"start {number}"), asks(f"late{number}"), says("and?"), replies("It runs. " + LINE * 20)]

    rows = [*talk(12), *left(1), *talk(3)]
    made = plan(rows, window=4096, count=quarter)
    assert made.anchors == (49,)
    assert [each for each in made.reasons if each.startswith("anchor")] == ["anchor open-group rows 49-49 take 11"]
    assert all(limits(made).values())
    many = [*talk(12), *left(1), *left(2), *left(3), *left(4), says("read it"), asks("big"), gives("big", LINE * 300)]
    made = plan(many, window=4096, count=quarter)
    kept = [*made.anchors, *range(made.end, len(many))]
    assert [row for row in kept if many[row].get("tool_calls")] == [53, 57, 61, 65]
    assert all(limits(made).values())


@pytest.mark.parametrize(("results", "window"), [(4, 2048), (8, 2048), (8, 4096), (16, 4096), (16, 8192)])
def test_results_that_have_hardly_room_for_a_mark_keep_their_beginning(results: int, window: int) -> None:
    ids = [f"c{number}" for number in range(results)]
    rows = [*talk(6), says("look at all"), asks(*ids)]
    rows += [gives(each, f"exit code {each}\n" + "log line 17\n" * 550) for each in ids]
    kept = shown(rows, plan(rows, window=window))
    for each in ids:
        text = next(row["content"] for row in kept if row.get("tool_call_id") == each)
        assert text.startswith(f"exit code {each}\n") and " characters left out" in text


def test_the_newest_group_is_shortened_when_it_alone_is_over_the_budget() -> None:
    rows = [*talk(3), says("read it"), asks("big"), gives("big", LINE * 3000)]
    made = plan(rows, window=8192, count=quarter)
    assert list(made.clips) == [14]
    last = shown(rows, made)[-1]["content"]
    assert last.startswith(LINE) and last.endswith(LINE) and "recover(14) returns all" in last
    assert all(limits(made).values())
    assert 0.8 * 0.2 * made.budget.usable < quarter(last) <= 0.2 * made.budget.usable


def test_an_older_json_result_becomes_one_line_and_the_newest_keeps_its_beginning() -> None:
    body = json.dumps({"rows": [{"id": number} for number in range(900)]})
    rows = [*talk(9), says("a"), asks("1"), gives("1", body), replies("so")]
    older = shown(rows, plan(rows, window=8192, count=quarter))
    assert older[-2]["content"] == f"[JSON object with rows, {len(body):,} bytes, left out; recover(38) returns it]"
    newest = shown(rows[:-1], plan(rows[:-1], window=8192, count=quarter))
    assert newest[-1]["content"].startswith('{"rows": [{"id": 0}')


def test_pictures_and_encoded_data_become_lines_and_other_parts_stay() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + ENCODED}}
    rows = [*talk(9), says([{"type": "text", "text": "which bird?"}, picture]), replies("a wren"),
            asks("1"), gives("1", json.dumps({"file": "w.png", "data": ENCODED})), says("and the colour?")]
    made = plan(rows, window=8192, count=quarter)
    kept = shown(rows, made)
    assert kept[-5]["content"] == [
        {"type": "text", "text": "which bird?"},
        {"type": "text", "text": "[image image/png, 4,800 bytes, left out; recover(36) returns it]"},
    ]
    assert json.loads(kept[-2]["content"]) == {
        "file": "w.png", "data": "[base64 data, 4,800 bytes, left out; recover(39) returns it]",
    }


def test_long_arguments_are_shortened_and_stay_json() -> None:
    arguments = json.dumps({"path": "a.py", "text": LINE * 900})
    rows = [*talk(9), says("write"), asks("1", arguments=arguments), gives("1", "written")]
    made = plan(rows, window=8192, count=quarter)
    call = shown(rows, made)[-2]["tool_calls"][0]["function"]
    assert json.loads(call["arguments"])["path"] == "a.py"
    assert all(limits(made).values())


def test_when_shortening_is_enough_nothing_is_summarised() -> None:
    rows = [says("read it"), asks("big"), gives("big", LINE * 3000)]
    made = plan(rows, window=8192, count=quarter)
    assert (made.start, made.end, made.summary_budget, made.needed) == (0, 0, 0, True)
    assert list(made.clips) == [2] and made.worth_it
    assert "nothing to summarise before row 0" in made.reasons


def test_an_asked_for_plan_cuts_below_the_trigger() -> None:
    rows = talk(6)
    assert not plan(rows, window=8192, count=quarter).needed
    made = plan_rows(rows, window=8192, count=quarter, force=True)
    assert made.needed and made.end > 0
    assert made.reasons[0] == "asked 4296 of 6092"


def test_an_earlier_summary_goes_and_the_words_after_it_stay() -> None:
    summary = "Summary: " + "fact, " * 300
    task = "Find the fault in the build."
    for content, own in ((f"{summary}\n\n{task}", task), (summary, None)):
        rows = [says(content), *one_task(40, LINE * 60)[2:]]
        made = plan_rows(rows, window=8192, count=quarter, summary_at=0, summary=summary)
        assert made.anchors == ((0,) if own else ())
        assert made.clips == {} and made.end > 1
        assert made.tokens_after_at_most - made.budget.fixed <= made.budget.tail + made.budget.summary + 12
    assert plan_rows(rows, window=8192, count=quarter, summary_at=0) == made


def test_a_summary_before_nothing_new_is_left_as_it_is() -> None:
    summary = "Summary: " + "fact, " * 300
    rows = [says(summary), says("go on")]
    made = plan_rows(rows, window=8192, count=quarter, summary_at=0, summary=summary, force=True)
    assert (made.start, made.end, made.clips, made.summary_budget) == (0, 0, {}, 0)
    assert made.tail_tokens == quarter(summary) + quarter("go on") + 8


def test_known_counts_are_not_counted_again() -> None:
    seen: list[str] = []

    def counted(text: str) -> int:
        seen.append(text)
        return quarter(text)

    rows = talk(3)
    known = [quarter(str(row["content"])) + 4 for row in rows]
    assert plan_rows(rows, window=8192, count=counted, row_tokens=known).tokens_before == sum(known)
    assert seen == []


def test_a_conversation_of_nothing_fits() -> None:
    for rows in ([], [{"role": "system", "content": "s"}]):
        made = plan(rows, window=8192)
        assert (made.start, made.end, made.tail_rows, made.reasons) == (len(rows), len(rows), 0, ("fits",))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"messages": "hello"}, "messages is a list of dicts, not str."),
        ({"messages": ["hello"]}, "messages[0] is a dict with a role, not str."),
        ({"messages": [says("a"), {"content": "x"}]}, "messages[1] has no role: None."),
        ({"window": 0}, "window is a number of tokens above 0, not 0."),
        ({"window": 8192.0}, "window is a number of tokens above 0, not 8192.0."),
        ({"window": True}, "window is a number of tokens above 0, not True."),
        ({"fixed_tokens": -1}, "fixed_tokens is a number of tokens from 0, not -1."),
        ({"reply_reserve": -5}, "reply_reserve is a number of tokens from 0, or None, not -5."),
        ({"policy": "best"}, "policy is one of default, hermes, hermes-uncapped, not 'best'."),
    ],
)
def test_arguments_that_cannot_be_used_are_refused_by_name(arguments: dict[str, object], message: str) -> None:
    given: dict[str, object] = {"messages": [says("a")], "window": 8192, **arguments}
    messages = given.pop("messages")
    with pytest.raises(InvalidInput) as caught:
        plan(messages, **given)  # type: ignore[arg-type]
    assert caught.value.message == message
    assert caught.value.facts == {"argument": next(iter(arguments))}
