"""Guards are functions of earlier passes, of the time and of the budget."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_state.compaction.guards import Limits, Now, Past, after, asks_summarizer, before

NOW = Now(
    trigger="size", turn=20, at=10_000.0, window=8_192, edit_mark=0, usable=5_668, worth=567, tokens_before=5_000,
    tokens_after_at_most=2_500, source_key="d1", summarizer="small-model", needed=True,
)
FULL = replace(NOW, tokens_before=6_000)


def past(generation: int = 1, **changes: Any) -> Past:
    fields: dict[str, Any] = {
        "generation": generation, "state": "done", "trigger": "size", "turn": 4, "started_at": 5_000.0,
        "ended_at": 5_010.0, "window": 8_192, "edit_mark": 0, "source_key": f"other-{generation}",
        "summarizer": "small-model", "form": "model", "error": None,
    }
    return Past(**(fields | changes))


def failed(generation: int = 1, **changes: Any) -> Past:
    return past(generation, **({"state": "failed", "form": None, "error": "timeout", "ended_at": 9_990.0} | changes))


def test_a_view_with_room_is_left_alone() -> None:
    verdict = before(replace(NOW, needed=False), [])
    assert (verdict.go, verdict.why, verdict.detail) == (False, "room", "5000 tokens of 5668: there is room.")


@pytest.mark.parametrize("trigger", ["overflow", "manual"])
def test_who_asks_by_name_gets_a_pass_below_the_trigger(trigger: Any) -> None:
    assert before(replace(NOW, needed=False, trigger=trigger), []).go


@pytest.mark.parametrize("trigger", ["size", "overflow", "manual"])
def test_no_pass_is_made_that_frees_too_little_whoever_asks(trigger: Any) -> None:
    verdict = before(replace(NOW, trigger=trigger, tokens_after_at_most=4_500), [])
    assert (verdict.go, verdict.why) == (False, "not_worth_it")
    assert verdict.detail == "A pass would free about 500 tokens; it must free 567."


def test_what_does_not_fit_and_cannot_be_freed_is_final() -> None:
    assert before(replace(FULL, tokens_after_at_most=5_900), []).final
    assert not before(replace(NOW, tokens_after_at_most=4_900), []).final


@pytest.mark.parametrize(("made", "kept"), [(4_433, True), (4_434, False), (5_000, False), (7_887, False)])
def test_what_was_made_is_kept_only_when_it_is_smaller_by_the_worth(made: int, kept: bool) -> None:
    assert after(5_000, made, 567).go is kept


def test_the_inflation_verdict_has_both_numbers() -> None:
    assert after(851, 7_887, 256).detail == "The view would have 7887 tokens instead of 851; 256 must be freed."


def test_while_the_view_fits_one_pass_is_made_in_eight_turns() -> None:
    verdict = before(replace(NOW, turn=11), [past(turn=4)])
    assert (verdict.go, verdict.why, verdict.retry_turn, verdict.final) == (False, "too_soon", 12, False)
    assert before(replace(NOW, turn=12), [past(turn=4)]).go


def test_a_full_view_is_compacted_before_eight_turns_are_over() -> None:
    assert before(replace(FULL, turn=5), [past(turn=4)]).go


def test_a_refusal_counts_as_full_whatever_the_own_count_says() -> None:
    assert before(replace(NOW, turn=5, trigger="overflow"), [past(turn=4)]).go


def test_refills_wait_for_the_ladder_and_then_are_given_up() -> None:
    rows = [past(number, turn=20, ended_at=9_000.0) for number in range(1, 4)]
    assert before(FULL, rows).go
    rows.append(past(4, turn=20, ended_at=9_990.0))
    verdict = before(FULL, rows)
    assert (verdict.go, verdict.why, verdict.retry_after_seconds, verdict.final) == (False, "refilled", 50.0, False)
    assert before(replace(FULL, at=10_050.0), rows).go
    rows += [past(number, turn=20, ended_at=10_050.0) for number in (5, 6, 7)]
    verdict = before(replace(FULL, at=1e9), rows)
    assert (verdict.go, verdict.why, verdict.final, verdict.retry_turn) == (False, "refilled", True, 28)
    assert verdict.detail == (
        "The window was full again after each of 7 passes in 8 user messages, with too little work between them; it is"
        " not tried again before something changes."
    )


@pytest.mark.parametrize(
    "change",
    [{"window": 4_096}, {"edit_mark": 3}, {"trigger": "manual"}, {"turn": 28}],
    ids=["another window", "a rewind", "a manual pass", "eight turns"],
)
def test_a_verdict_is_let_go_by_a_change(change: dict[str, Any]) -> None:
    rows = [past(number, turn=20) for number in range(1, 9)]
    assert before(FULL, rows).final
    assert before(replace(FULL, **change), rows).go


def test_failures_climb_the_ladder_and_are_given_up() -> None:
    rows = []
    for number, seconds in enumerate((60.0, 300.0, 900.0), 1):
        rows.append(failed(number))
        verdict = before(FULL, rows)
        assert (verdict.why, verdict.retry_after_seconds) == ("cooldown", seconds - 10.0)
        assert before(replace(FULL, at=9_990.0 + seconds), rows).go
    verdict = before(replace(FULL, at=1e9), [*rows, failed(4)])
    assert (verdict.final, verdict.detail) == (
        True, "4 passes in a row have failed; it is not tried again before something changes.",
    )


@pytest.mark.parametrize(
    "change", [{"window": 4_096}, {"edit_mark": 3}, {"trigger": "manual"}, {"summarizer": "extractive"},
               {"tokens_before": 5_700}],
    ids=["another window", "a rewind", "a manual pass", "another summariser", "messages deleted"],
)
def test_failures_are_forgotten_when_something_changes(change: dict[str, Any]) -> None:
    rows = [failed(number, tokens_before=6_000) for number in range(1, 5)]
    assert before(FULL, rows).final
    assert before(replace(FULL, **change), rows).go


def test_a_done_pass_ends_a_row_of_failures() -> None:
    assert before(FULL, [failed(1), failed(2), failed(3), failed(4), past(5)]).go


def test_a_clock_that_was_set_back_does_not_make_the_wait_longer() -> None:
    assert before(replace(FULL, at=1.0), [failed(1)]).retry_after_seconds == 60.0


def test_the_next_process_goes_on_at_once_where_one_died_but_not_for_ever() -> None:
    rows = [failed(number, error="maker_gone") for number in (1, 2)]
    assert before(FULL, rows).go
    assert before(FULL, [*rows, failed(3, error="maker_gone")]).why == "cooldown"


def test_the_reason_of_a_pause_counts_every_pass_that_was_not_finished() -> None:
    rows = [failed(number, error="maker_gone") for number in (1, 2, 3)]
    assert before(FULL, rows).detail == (
        "3 passes in a row have failed, 2 of them by no fault of theirs; the next is tried in 50 s."
    )
    assert before(FULL, [failed(1)]).detail == "The last pass has failed; the next is tried in 50 s."


def test_passes_that_their_caller_cancelled_count_for_nothing() -> None:
    cancelled = [failed(number, error="cancelled") for number in range(1, 9)]
    assert before(FULL, cancelled).go
    # Nor do they end a row of failures, or of answers that could not be used.
    assert before(FULL, [failed(1), *cancelled]).why == "cooldown"
    assert not asks_summarizer(FULL, [past(1, fallback="timeout", ended_at=9_990.0), *cancelled]).go


def test_a_pass_after_work_is_made_however_many_there_were() -> None:
    rows = [past(number, turn=20, trigger="work" if number > 1 else "size") for number in range(1, 32)]
    assert before(replace(FULL, worked=True), rows).go
    # Without work the next few are made as well, and each that had some makes up for one that had none.
    assert before(FULL, rows).go
    idle = [past(number, turn=20) for number in range(32, 36)]
    assert before(FULL, [*rows, *idle[:3]]).go
    assert before(replace(FULL, at=5_020.0), [*rows, *idle]).why == "refilled"
    assert before(replace(FULL, at=5_020.0), [*rows, *idle, past(36, turn=20, trigger="work")]).go


def test_a_pass_that_the_session_overtook_is_no_failure_at_first() -> None:
    rows = [past(number, state="superseded", error="head_moved", made=False, ended_at=9_990.0) for number in (1, 2)]
    assert before(FULL, rows).go
    assert before(FULL, [*rows, replace(rows[0], generation=3)]).why == "cooldown"


def test_what_was_of_no_use_on_these_messages_is_not_tried_on_them_again() -> None:
    useless = failed(3, source_key="d1", error="inflation", ended_at=0.0, started_at=0.0)
    verdict = before(FULL, [useless])
    assert (verdict.go, verdict.why, verdict.final) == (False, "same_again", True)
    assert verdict.detail == "Generation 3 tried these very messages and was of no use (inflation)."
    assert before(replace(FULL, source_key="d2"), [useless]).go
    assert before(replace(FULL, summarizer="another"), [useless]).go


def test_a_summariser_that_gives_nothing_usable_is_left_out_by_the_same_ladder() -> None:
    rows = [past(1, fallback="timeout", ended_at=9_990.0)]
    assert asks_summarizer(FULL, rows).retry_after_seconds == 50.0
    assert asks_summarizer(replace(FULL, at=10_050.0), rows).go
    assert asks_summarizer(FULL, [*rows, past(2)]).go
    rows = [past(number, fallback="timeout", ended_at=1.0) for number in range(1, 5)]
    assert asks_summarizer(FULL, rows).final
    assert asks_summarizer(replace(FULL, summarizer="another"), rows).go
    assert asks_summarizer(replace(FULL, trigger="manual"), rows).go


@pytest.mark.slow
@settings(max_examples=25)
@given(
    gaps=st.lists(st.integers(0, 3), min_size=108, max_size=108),
    seconds=st.lists(st.floats(0, 400), min_size=108, max_size=108),
)
def test_however_the_window_refills_passes_in_eight_turns_stay_below_burst_and_ladder(
    gaps: list[int], seconds: list[float]
) -> None:
    limits, rows, turn, at, reports = Limits(), [], 0, 0.0, 0
    for gap, passed in zip(gaps, seconds, strict=True):
        turn, at = turn + gap, at + passed
        verdict = before(replace(FULL, turn=turn, at=at, source_key=None), rows[-32:], limits)
        if verdict.go:
            rows.append(past(len(rows) + 1, turn=turn, started_at=at, ended_at=at))
        else:
            reports += 1
            assert verdict.why == "refilled" and (verdict.final or verdict.retry_after_seconds is not None)
        recent = [row for row in rows if row.turn > turn - limits.turns_between]
        assert len(recent) <= limits.burst + len(limits.ladder)
    assert len(rows) + reports == 108
