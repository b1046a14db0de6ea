"""Options that cannot be used are refused before the pass, by name; what is only estimated is not said to fit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_state import Store, open_store
from hermes_state.clock import FakeClock
from hermes_state.compaction.summary import SummaryRequest
from hermes_state.errors import InvalidInput
from tests.hermes_state.compaction.passes.talks import talk, words

OPTIONS: dict[str, Any] = {"window": 4_000, "counter": words, "fixed_tokens": 200}
GOOD = "Parts 0 to 6 were looked at. Part 2 listens on port 4002, part 5 on port 4005."


@pytest.fixture
def store(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Store]:
    with open_store(path=tmp_path / "state.db") as opened:
        talk(opened, 9)
        yield opened


class Named:
    """A summariser and a counter of any name."""

    def __init__(self, name: Any) -> None:
        self._name = name

    @property
    def name(self) -> Any:
        if isinstance(self._name, Exception):
            raise self._name
        return self._name

    def __call__(self, request: SummaryRequest) -> str:
        return GOOD

    def count(self, text: str) -> int:
        return words(text)


@pytest.mark.parametrize(("options", "said"), [
    ({"model": "\ud800"}, "model is a text without half characters, not '\\ud800'."),
    ({"model": "m", "endpoint": "\ud800"}, "endpoint is a text without half characters, not '\\ud800'."),
    ({"summarizer": Named("\ud800")}, "The summariser's name is a text without half characters, not '\\ud800'."),
    ({"summarizer": Named(RuntimeError("no"))}, "The summariser's name cannot be read: RuntimeError('no')."),
    ({"counter": Named("\ud800")}, "The counter's name is a text without half characters, not '\\ud800'."),
    ({"counter": Named(RuntimeError("no"))}, "The counter's name cannot be read: RuntimeError('no')."),
    ({"sumarizer": 5}, "There is no option 'sumarizer'. There are counter, deadline, endpoint, fixed_tokens, limits,"
                       " model, policy, reply_reserve, summarizer, summarizer_window, trigger, window."),
])
def test_what_cannot_be_used_is_refused_by_name_and_changes_nothing(
    store: Store, options: dict[str, Any], said: str
) -> None:
    for method in (store.compaction.compact, store.compaction.preview, store.compaction.plan):
        with pytest.raises(InvalidInput) as caught:
            method("one", **(OPTIONS | options))
        assert str(caught.value) == said
    assert store.compaction.generations("one") == ()


@pytest.mark.parametrize("as_of", [False, True, 1.0, "1", 10**30])
def test_a_view_as_of_what_is_no_number_is_refused_as_a_rollback_is(store: Store, as_of: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        store.compaction.view("one", as_of=as_of)
    assert str(caught.value).startswith("as_of is a whole number, not ")


def halves(text: str) -> int:
    """A token for two characters: the instruction alone fills a small window."""
    return len(text) // 2


class Twisted(str):
    """A text whose methods are its maker's."""

    def strip(self, *_what: Any) -> str:
        raise RuntimeError("no")

    def __str__(self) -> str:
        raise RuntimeError("no")


class Unreadable(Exception):
    """An error that cannot be written down."""

    def __str__(self) -> str:
        raise RuntimeError("no")


def test_an_answer_that_is_a_text_of_its_own_kind_is_taken_as_the_text_it_holds(store: Store) -> None:
    outcome = store.compaction.compact("one", **OPTIONS, summarizer=lambda _request: Twisted(GOOD))
    assert (outcome.state, outcome.form) == ("compacted", "model")


def test_an_error_that_cannot_be_written_down_is_an_answer_like_any_error(store: Store) -> None:
    def raises(request: SummaryRequest) -> str:
        raise Unreadable

    outcome = store.compaction.compact("one", **OPTIONS, summarizer=raises)
    assert (outcome.state, outcome.form) == ("compacted", "extractive")
    assert list(outcome.warnings) == ["summarizer_failed: RuntimeError: Unreadable, whose text cannot be read"]


def test_a_summariser_whose_window_is_small_is_asked_for_a_smaller_summary(store: Store) -> None:
    asked: list[SummaryRequest] = []

    def small(request: SummaryRequest) -> str:
        asked.append(request)
        return GOOD

    outcome = store.compaction.compact("one", **OPTIONS, summarizer=small, summarizer_window=1_000)
    assert (outcome.state, outcome.form, list(outcome.warnings)) == ("compacted", "model", [])
    assert 96 <= asked[0].max_tokens < outcome.settings.summary if outcome.settings else False


def test_a_summariser_whose_window_is_too_small_is_refused_before_the_pass_with_the_least_that_works(
    store: Store,
) -> None:
    with pytest.raises(InvalidInput) as caught:
        store.compaction.compact("one", **OPTIONS, summarizer=lambda _request: GOOD, summarizer_window=300)
    least = caught.value.facts["needed"]
    assert str(caught.value) == (
        f"A summariser with a window of 300 tokens has no room for a summary of this conversation: it takes at least"
        f" {least}."
    )
    assert store.compaction.generations("one") == ()
    options = {**OPTIONS, "summarizer": lambda _request: GOOD}
    with pytest.raises(InvalidInput):
        store.compaction.preview("one", **options, summarizer_window=least - 1)
    assert store.compaction.compact("one", **options, summarizer_window=least).form == "model"


def test_a_summariser_for_which_the_window_itself_is_too_small_is_left_out_and_that_is_no_failure(
    store: Store,
) -> None:
    outcome = store.compaction.compact("one", window=1_000, counter=halves, summarizer=lambda _request: GOOD)
    assert (outcome.state, outcome.form) == ("compacted", "extractive")
    assert outcome.warnings[0].startswith("summarizer_left_out: A summariser with a window of 1000 tokens has no room")
    made = store.compaction.generations("one")[-1]
    assert made.summarizer == "extractive"


@pytest.mark.parametrize("fixed", [3_500, 4_096])
def test_what_the_estimate_says_does_not_fit_is_not_said_to_fit(store: Store, fixed: int) -> None:
    options: dict[str, Any] = {"window": 4_096, "fixed_tokens": fixed}
    seen = store.compaction.preview("one", **options)
    made = store.compaction.compact("one", **options)
    after = store.compaction.compact("one", **options)
    assert (seen.changed, made.state, after.state, after.why) == (True, "compacted", "not_needed", "room")
    assert (made.fits, after.fits) == (None, None)
    assert made.document()["fits"] is None
    for outcome in (seen, made, after):
        assert outcome.settings is not None and outcome.settings.estimated and outcome.warnings
