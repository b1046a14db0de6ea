"""Options without a meaning are errors that change nothing; what is lowered or only estimated is said."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hermes_state import Store, open_store
from hermes_state.clock import FakeClock
from hermes_state.compaction import plan
from hermes_state.compaction.preparing import summary_room
from hermes_state.compaction.tokens import Estimator, as_counter, request_tokens
from hermes_state.errors import InvalidInput, PrefixTooLarge
from tests.hermes_state.compaction.passes.talks import talk, words
from tests.hermes_state.compaction.planning.histories import Message, asks, gives, says


@pytest.fixture
def store(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Store]:
    with open_store(path=tmp_path / "state.db") as opened:
        yield opened


class Odd:
    """A counter that gives something else from a certain text on."""

    name = "odd"

    def __init__(self, answer: Any, after: int) -> None:
        self.answer, self.left = answer, after

    def count(self, text: str) -> Any:
        self.left -= 1
        if self.left >= 0:
            return len(text.split())
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


ANSWERS = [10**30, -1, float("nan"), 1.5, True, "12", None, OverflowError("too many")]


@pytest.mark.parametrize("trigger", ["size", "manual", "overflow"])
@pytest.mark.parametrize("answer", ANSWERS, ids=str)
def test_a_counter_that_gives_no_count_is_named_and_changes_nothing(store: Store, answer: Any, trigger: Any) -> None:
    session = talk(store, 9)
    whole = store.messages.context(session)
    with pytest.raises(InvalidInput) as caught:
        store.compaction.compact(session, window=4_000, counter=Odd(answer, 0), trigger=trigger)
    assert str(caught.value).startswith("The token counter odd ")
    assert store.messages.context(session) == whole
    assert store.compaction.generations(session) == ()


@pytest.mark.parametrize("answer", ANSWERS, ids=str)
def test_a_counter_that_goes_wrong_within_a_pass_leaves_the_view_as_it_was(store: Store, answer: Any) -> None:
    session = talk(store, 9)
    whole = store.messages.context(session)
    calls = Odd(answer, 10**9)
    assert store.compaction.preview(session, window=4_000, counter=calls).changed
    looked = 10**9 - calls.left
    outcome = store.compaction.compact(session, window=4_000, counter=Odd(answer, looked))
    assert (outcome.state, outcome.why) == ("not_compacted", "invalid_input")
    assert outcome.detail.startswith("The token counter odd ")
    assert store.messages.context(session) == whole
    assert [made.state for made in store.compaction.generations(session)] == ["failed"]


@pytest.mark.parametrize(("options", "said"), [
    ({"window": 2**31}, "window is more tokens than any model has: at most 2147483647."),
    ({"window": 10**30}, "window is more tokens than any model has: at most 2147483647."),
    ({"window": -1}, "window is a number of tokens above 0, not -1."),
    ({"window": 0}, "window is a number of tokens above 0, not 0."),
    ({"window": 8192.0}, "window is a whole number of tokens or a Window, not 8192.0."),
    ({"window": True}, "window is a whole number of tokens or a Window, not True."),
    ({"fixed_tokens": -1}, "fixed_tokens is a number of tokens from 0, not -1."),
    ({"fixed_tokens": 1.5}, "fixed_tokens is a number of tokens from 0, not 1.5."),
    ({"reply_reserve": -1}, "reply_reserve is a number of tokens from 0, or None, not -1."),
    ({"policy": "newest"}, "policy is one of default, hermes, hermes-uncapped, not 'newest'."),
    ({"trigger": "now"}, "trigger is size, overflow, manual or window, not 'now'."),
    ({"deadline": "5"}, "deadline is a number of seconds above 0, not '5'."),
    ({"deadline": None}, "deadline is a number of seconds above 0, not None."),
    ({"deadline": float("nan")}, "deadline is a number of seconds above 0, not nan."),
    ({"summarizer_window": -1}, "summarizer_window is a number of tokens from 1 to 2147483647, or None, not -1."),
    ({"summarizer_window": "8K"}, "summarizer_window is a number of tokens from 1 to 2147483647, or None, not '8K'."),
    ({"summarizer": 5}, "summarizer is a function of a SummaryRequest, or None, not 5."),
    ({"model": 5}, "model is a text, not 5."),
    ({"endpoint": 7}, "endpoint is a text, not 7."),
    ({"limits": 8}, "limits is a Limits, not 8."),
])
def test_an_option_without_a_meaning_is_an_error_and_changes_nothing(
    store: Store, options: dict[str, Any], said: str
) -> None:
    session = talk(store, 9)
    for method in (store.compaction.compact, store.compaction.preview, store.compaction.plan):
        with pytest.raises(InvalidInput) as caught:
            method(session, **({"window": 4_000, "counter": words} | options))
        assert str(caught.value) == said
    assert store.compaction.generations(session) == ()


def test_windows_from_small_to_the_largest_are_planned_or_say_that_nothing_is_left(store: Store) -> None:
    session = talk(store, 9)
    for window, why in (
        (1, "prefix_too_large"), (500, "prefix_too_large"), (700, "due"), (2_048, "due"), (4_000, "due"),
        (2**31 - 1, "room"),
    ):
        assert store.compaction.preview(session, window=window, counter=words).why == why, window


def test_a_reserve_above_a_quarter_is_lowered_and_that_is_said(store: Store) -> None:
    session = talk(store, 9)
    for asked in (2_000, 4_000, 10**30):
        seen = store.compaction.preview(session, window=4_000, counter=words, reply_reserve=asked)
        assert seen.settings is not None and seen.plan is not None
        assert (seen.settings.reserve, seen.settings.reserve_asked) == (1_000, asked)
        assert f"reserve 1000 of {asked} asked" in seen.plan.reasons
    seen = store.compaction.preview(session, window=128_000, counter=words, reply_reserve=64_000)
    assert seen.plan is not None and seen.plan.reasons == ("fits", "reserve 32000 of 64000 asked")
    kept = store.compaction.preview(session, window=4_000, counter=words, reply_reserve=1_000)
    assert kept.plan is not None and not [reason for reason in kept.plan.reasons if "reserve" in reason]
    with pytest.raises(PrefixTooLarge) as caught:
        plan([says("hello")], window=4_096, fixed_tokens=3_000, reply_reserve=3_000, count=words)
    assert "1,024 are kept for the reply (of 3,000 asked for: at most a quarter of the window)." in str(caught.value)


def test_the_sums_of_a_plan_have_one_basis(store: Store) -> None:
    from maintenance.reading.compaction_output import outcome_document

    session = talk(store, 9)
    bare, fixed = (
        outcome_document(store.compaction.preview(session, window=4_000 + more, counter=words, fixed_tokens=more))
        for more in (0, 500)
    )
    for shown in (bare, fixed):
        # Messages only, as everything beside it.
        assert shown["plan"]["tokens_after_at_most"] == shown["tokens_after"] < shown["tokens_before"]
        assert shown["plan"]["tail_tokens"] + shown["plan"]["summary_budget"] <= shown["plan"]["tokens_after_at_most"]
    assert fixed["tokens_before"] == bare["tokens_before"]


def test_a_prefix_that_only_the_estimate_finds_too_large_gets_the_smallest_view(store: Store) -> None:
    session = talk(store, 9)
    options: dict[str, Any] = {"window": 4_096, "fixed_tokens": 3_500}
    outcome = store.compaction.compact(session, **options)
    assert (outcome.state, outcome.fits) == ("compacted", None)
    assert outcome.settings is not None and outcome.plan is not None
    assert (outcome.settings.estimated, outcome.settings.usable) == (True, 512)
    assert "estimated prefix 3500" in outcome.plan.reasons
    assert outcome.warnings == (
        "prefix_estimated: by the estimate the fixed part takes 3500 of 4096 tokens and leaves no room; as it may be"
        " too high, the smallest view is made. Give a tokenizer as the counter to know.",
    )
    assert request_tokens(store.messages.context(session), as_counter(None)) <= 512
    # A real count is taken at its word, and so is an estimate that would be too large by all it may be too high.
    for counter in (words, lambda text: Estimator().count(text)):
        assert store.compaction.preview(session, **options, counter=counter).why == "prefix_too_large"
    for fixed, why in ((4_300, "not_needed"), (4_301, "given_up")):
        assert store.compaction.preview(session, window=4_096, fixed_tokens=fixed).state == why
    # What was learned from usage is more than an estimate.
    store.compaction.observe("m", "http://host:8080", 10_000, {"prompt_tokens": 11_000})
    learned = store.compaction.preview(session, **options, model="m", endpoint="http://host:8080")
    assert learned.why == "prefix_too_large"


ROWS: list[Message] = [says("a"), asks("1"), gives("1", "b"), {"role": "assistant", "content": "c"}]


@pytest.mark.parametrize(("messages", "said"), [
    ("text", "messages is a list of dicts, not str."),
    (None, "messages is a list of dicts, not NoneType."),
    (iter(()), "messages is a list of dicts, not tuple_iterator."),
    (["text"], "messages[0] is a dict with a role, not str."),
    ([*ROWS, None], "messages[4] is a dict with a role, not NoneType."),
    ([{"content": "x"}], "messages[0] has no role: None."),
    ([{"role": 7}], "messages[0] has no role: 7."),
])
def test_messages_that_are_none_are_refused(messages: Any, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        plan(messages, window=4_096)
    assert str(caught.value) == said


def test_unknown_roles_lone_results_and_ids_used_twice_are_rows_like_others() -> None:
    filler = "word " * 3_000
    odd: list[Message] = [
        says(filler), {"role": "narrator", "content": filler}, gives("nobody", filler), asks("1"), gives("1", filler),
        asks("1"), gives("1", filler), gives("1", filler), {"role": "tool", "content": filler}, says("now"),
    ]
    made = plan(odd, window=4_096, count=words)
    assert made.needed and made.worth_it and made.tokens_after_at_most <= made.budget.low_water
    calls = {row for row, message in enumerate(odd) if message.get("tool_calls")}
    kept = {*made.anchors, *range(made.end, len(odd))}
    assert all({call, call + 1} <= kept or not {call, call + 1} & kept for call in calls)


def test_summary_and_tail_leave_room_for_what_a_template_writes_around_them(store: Store) -> None:
    made = store.compaction.plan(talk(store, 9), window=4_000, counter=words)
    tail, summary = made.budget.tail, made.budget.summary
    for taken, room in ((0, summary), (tail // 2, summary), (tail, made.budget.usable * 384 // 1000 - tail)):
        assert summary_room(replace(made, tail_tokens=taken, summary_budget=summary)) == room
    # A tail that an anchor made larger costs the summary nothing.
    assert summary_room(replace(made, tail_tokens=tail + 1, summary_budget=summary)) == summary
