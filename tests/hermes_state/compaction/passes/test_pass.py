"""One pass over real stores: what it makes, what it leaves, and what it answers when it makes nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from hermes_state import Store, open_store
from hermes_state.clock import FakeClock
from hermes_state.compaction.tokens import as_counter, request_tokens
from hermes_state.errors import InvalidInput, NotFound, ReadOnlyStore, SessionNotFound
from tests.hermes_state.compaction.passes.talks import call, lines, rows, talk, turn, words

OPTIONS = {"window": 4_000, "counter": words, "fixed_tokens": 200}


@pytest.fixture
def store(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Store]:
    with open_store(path=tmp_path / "state.db") as opened:
        yield opened


def counted(store: Store, session: str = "one") -> int:
    return request_tokens(store.messages.context(session), as_counter(words))


def unnumbered(store: Store, session: str) -> list[str]:
    """The context without the places that `recover` names: a branch counts from elsewhere."""
    return [re.sub(r"recover\(-?\d+\)", "recover()", str(message)) for message in store.messages.context(session)]


def test_a_view_with_room_is_not_compacted(store: Store) -> None:
    session = talk(store, 2)
    outcome = store.compaction.compact(session, **OPTIONS)
    assert (outcome.state, outcome.why, outcome.fits, outcome.next) == ("not_needed", "room", True, "await_user")
    assert store.compaction.generations(session) == ()


def test_a_pass_makes_a_view_that_fits_and_changes_no_message(store: Store) -> None:
    session = talk(store, 9)
    before, said = counted(store), rows(store)
    outcome = store.compaction.compact(session, **OPTIONS)
    assert (outcome.state, outcome.why, outcome.form, outcome.generation) == ("compacted", "due", "extractive", 1)
    assert (outcome.tokens_before, outcome.tokens_after) == (before, counted(store))
    assert outcome.tokens_after is not None and outcome.fits
    assert outcome.tokens_after <= 0.45 * (4_000 - 200 - 500)
    assert rows(store) == said
    roles = [message["role"] for message in store.messages.context(session)]
    assert roles[0] == "user" and ("user", "user") not in pairwise(roles)


def test_before_and_after_are_counted_by_the_same_counter_over_whole_views(store: Store) -> None:
    session = talk(store, 9)
    for message in store.messages.history(session, limit=100).messages:
        assert message.token_count is None
    # Counts of another counter in the rows do not come into it.
    store.messages.append(session, role="user", content="one two three", token_count=1_000_000)
    before = counted(store)
    assert store.compaction.compact(session, **OPTIONS).tokens_before == before


def test_the_row_says_what_was_counted_and_why_it_was_made(store: Store) -> None:
    session = talk(store, 9)
    outcome = store.compaction.compact(session, **OPTIONS, trigger="manual")
    made = store.compaction.generations(session)[-1]
    assert (made.window, made.tokens_fixed, made.tokens_reserved) == (4_000, 200, 500)
    assert (made.tokens_before, made.tokens_after) == (outcome.tokens_before, outcome.tokens_after)
    assert (made.tokenizer, made.reason, made.summarizer, made.turn) == ("caller:words", "manual", "extractive", 9)


def test_the_effective_settings_are_told(store: Store) -> None:
    settings = store.compaction.preview(talk(store, 9), **OPTIONS).settings
    assert settings is not None
    assert (settings.usable, settings.trigger, settings.summary, settings.tail) == (3_300, 2_805, 495, 825)
    assert (settings.window_kind, settings.counter, settings.worth) == ("given", "caller:words", 330)


def test_a_preview_changes_nothing_and_says_what_would_be(store: Store) -> None:
    session = talk(store, 9)
    before = store.messages.context(session)
    seen = store.compaction.preview(session, **OPTIONS)
    assert seen.changed and seen.plan is not None and seen.tokens_after is not None
    assert store.messages.context(session) == before
    assert store.compaction.generations(session) == ()
    done = store.compaction.compact(session, **OPTIONS)
    assert done.tokens_after is not None and done.tokens_after <= seen.tokens_after
    assert store.compaction.plan(session, **OPTIONS).needed is False


def test_the_second_pass_folds_the_first_summary_in(store: Store) -> None:
    session = talk(store, 9)
    store.compaction.compact(session, **OPTIONS)
    for number in range(9, 18):
        turn(store, session, number)
    outcome = store.compaction.compact(session, **OPTIONS)
    assert (outcome.state, outcome.generation, outcome.fits) == ("compacted", 2, True)
    view = store.compaction.view(session)
    assert sum(str(message.get("content")).count(view.summary or "-") for message in view.messages) == 1
    assert store.compaction.verify(session, 2).ok
    assert len(rows(store)) == 18 * 4


def test_the_request_between_two_passes_is_an_extension_of_the_one_before(store: Store) -> None:
    session = talk(store, 9)
    store.compaction.compact(session, **OPTIONS)
    for number in range(9, 12):
        before = store.messages.context(session)
        turn(store, session, number)
        assert store.messages.context(session)[: len(before)] == before


def test_a_switch_to_a_small_window_is_planned_anew_whatever_the_rate_says(store: Store) -> None:
    session = talk(store, 60)
    large = store.compaction.compact(session, counter=words, window=24_000)
    assert large.changed and store.compaction.compact(session, counter=words, window=24_000).why == "room"
    outcome, passes = store.compaction.compact(session, **OPTIONS), 1
    while outcome.changed and not outcome.fits:
        outcome, passes = store.compaction.compact(session, **OPTIONS), passes + 1
    assert outcome.fits and passes <= 2
    assert store.compaction.generations(session)[1].reason == "window"


def test_a_long_single_turn_is_cut_inside_and_the_task_stays(store: Store) -> None:
    store.sessions.create(id="one", source="cli")
    store.messages.append("one", role="user", content="Port the whole service to the new API.")
    for number in range(20):
        store.messages.append("one", role="assistant", content=None, tool_calls=[call(f"c{number}")])
        store.messages.append("one", role="tool", tool_call_id=f"c{number}", content=lines(f"r{number}", 40))
    outcome = store.compaction.compact("one", **OPTIONS)
    assert outcome.changed and outcome.fits and outcome.next == "resend"
    context = store.messages.context("one")
    assert any("Port the whole service" in str(message["content"]) for message in context if message["role"] == "user")
    calls = [one["id"] for message in context for one in message.get("tool_calls", ())]
    assert calls == [message["tool_call_id"] for message in context if message["role"] == "tool"]
    # The anchor stays when the view is compacted again.
    for number in range(20, 40):
        store.messages.append("one", role="assistant", content=None, tool_calls=[call(f"c{number}")])
        store.messages.append("one", role="tool", tool_call_id=f"c{number}", content=lines(f"r{number}", 40))
    assert store.compaction.compact("one", **OPTIONS).changed
    text = "\n".join(str(message["content"]) for message in store.messages.context("one") if message["role"] == "user")
    assert "Port the whole service" in text and counted(store) <= 3_300


def test_what_fills_the_window_is_told_when_the_prefix_does_not_fit(store: Store) -> None:
    session = talk(store, 3)
    outcome = store.compaction.compact(session, window=4_096, fixed_tokens=3_500, counter=words)
    assert (outcome.state, outcome.why, outcome.next, outcome.fits) == (
        "given_up", "prefix_too_large", "await_user", False,
    )
    assert outcome.detail == (
        "The fixed prefix does not fit: of a window of 4,096 tokens, 0 are system rows, 3,500 are tools and other fixed"
        " tokens, and 512 are kept for the reply. That leaves 84 for the conversation; at least 512 are needed."
    )
    total = counted(store)
    assert [(one.what, one.tokens) for one in outcome.fills] == [("fixed", 3_500), ("reserve", 512), ("rest", total)]
    assert (outcome.tokens_before, outcome.tokens_fixed, outcome.tokens_reserved) == (total, 3_500, 512)
    settings = outcome.settings
    assert settings is not None
    assert (settings.fixed, settings.reserve, settings.usable, settings.counter) == (3_500, 512, 84, "caller:words")
    assert (settings.trigger, settings.window_kind, settings.summarizer) == (71, "given", "extractive")
    assert store.compaction.preview(session, window=4_096, fixed_tokens=3_500, counter=words).document() == (
        outcome.document()
    )
    assert outcome.advice == [
        "The system prompt and the tool schemas take 3500 of 4096 tokens: use fewer tools, or a shorter system prompt.",
        "Serve the model with a larger window, or choose a model that has one.",
    ]
    assert store.compaction.generations(session) == ()


def test_manual_passes_ignore_the_rate_but_not_what_is_worth_it(store: Store) -> None:
    session = talk(store, 9)
    assert store.compaction.compact(session, **OPTIONS).changed
    outcome = store.compaction.compact(session, **OPTIONS, trigger="manual")
    assert (outcome.state, outcome.why) == ("not_compacted", "not_worth_it")
    for number in range(9, 12):
        turn(store, session, number)
    assert store.compaction.compact(session, **OPTIONS).why == "room"
    assert store.compaction.compact(session, **OPTIONS, trigger="manual").changed


def test_nothing_is_owed_after_an_answer_and_the_turn_goes_on_after_a_result(store: Store) -> None:
    session = talk(store, 9)
    assert store.compaction.preview(session, **OPTIONS).next == "await_user"
    assert store.compaction.preview(session, **OPTIONS, trigger="overflow").next == "resend"
    store.messages.append(session, role="user", content="And now?")
    assert store.compaction.preview(session, **OPTIONS).next == "resend"


def test_a_branch_is_compacted_on_its_own(store: Store) -> None:
    session = talk(store, 9)
    store.compaction.compact(session, **OPTIONS)
    newest = store.messages.history(session, limit=1).messages[0].id
    branch = store.sessions.branch(session, at_message_id=newest).id
    assert unnumbered(store, branch) == unnumbered(store, session)
    before = store.messages.context(session)
    for number in range(20, 29):
        turn(store, branch, number)
    outcome = store.compaction.compact(branch, **OPTIONS)
    assert (outcome.state, outcome.generation) == ("compacted", 2)
    assert store.messages.context(session) == before


def test_rolling_back_brings_the_whole_history_and_the_generation_again(store: Store) -> None:
    session = talk(store, 9)
    whole = store.messages.context(session)
    store.compaction.compact(session, **OPTIONS)
    compacted = store.messages.context(session)
    assert store.compaction.rollback(session, 0) is None
    assert store.messages.context(session) == whole
    again = store.compaction.rollback(session, 1)
    assert again is not None and again.generation == 1
    assert store.messages.context(session) == compacted
    assert store.compaction.view(session, as_of=0).messages == whole


def test_the_status_is_that_of_the_job(store: Store) -> None:
    session = talk(store, 9)
    empty = store.compaction.status(session)
    assert (empty.generation, empty.running, empty.newest, empty.passes) == (None, None, None, 0)
    store.compaction.compact(session, **OPTIONS)
    status = store.compaction.status(session)
    assert status.generation == status.newest and status.generation is not None
    assert (status.generation.generation, status.running, status.passes) == (1, None, 1)


def test_a_store_that_can_only_be_read_is_not_compacted(store: Store, tmp_path: Path) -> None:
    session = talk(store, 9)
    with open_store(path=tmp_path / "state.db", read_only=True) as reading:
        outcome = reading.compaction.compact(session, **OPTIONS)
        assert (outcome.state, outcome.why) == ("not_compacted", "read_only_store")
        assert isinstance(outcome.error, ReadOnlyStore)
        with pytest.raises(ReadOnlyStore):
            reading.compaction.compact(session, **OPTIONS, trigger="manual")


def test_arguments_that_mean_nothing_are_refused(store: Store) -> None:
    session = talk(store, 1)
    with pytest.raises(SessionNotFound):
        store.compaction.compact("nobody", **OPTIONS)
    with pytest.raises(InvalidInput) as caught:
        store.compaction.compact(session, window=4_000, trigger="sometimes")  # type: ignore[arg-type]
    assert str(caught.value) == "trigger is size, overflow, manual or window, not 'sometimes'."
    with pytest.raises(InvalidInput) as caught:
        store.compaction.compact(session, window=4_000, deadline=0.0)
    assert str(caught.value) == "deadline is a number of seconds above 0, not 0.0."
    with pytest.raises(NotFound) as unknown:
        store.compaction.compact(session)
    assert str(unknown.value) == (
        f"Session 'one' of {store.path} has no model, so its window is not known."
    )


def test_the_group_of_a_closed_store_is_closed(tmp_path: Path) -> None:
    with open_store(path=tmp_path / "state.db") as opened:
        group = opened.compaction
    with pytest.raises(Exception, match="is closed here"):
        group.compact("one", window=4_000)
