"""What counts: a counter, a function, nothing, and a counter with a factor."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_state.compaction.tokens import Estimator, Scaled, as_counter
from hermes_state.compaction.tokens.counters import over_of
from hermes_state.errors import InvalidInput, NotFound


def words(text: str) -> int:
    return len(text.split())


def test_nothing_given_is_the_estimator_and_a_counter_is_itself() -> None:
    assert isinstance(as_counter(None), Estimator)
    mine = Estimator()
    assert as_counter(mine) is mine


def test_a_function_counts_under_its_own_name() -> None:
    counter = as_counter(words)
    assert (counter.name, counter.count("two words")) == ("caller:words", 2)


def test_what_is_no_counter_is_refused() -> None:
    with pytest.raises(InvalidInput) as caught:
        as_counter("gpt-4")  # type: ignore[arg-type]
    assert str(caught.value) == "count is a token counter, a function from text to a number, or None, not 'gpt-4'."


@pytest.mark.parametrize("answer", [None, -1, 2.5, True, "7"])
def test_a_function_that_gives_no_count_is_an_error_and_not_a_zero(answer: Any) -> None:
    def odd(text: str) -> Any:
        return answer

    counter = as_counter(odd)
    with pytest.raises(InvalidInput) as caught:
        counter.count("text")
    assert str(caught.value) == (
        f"The token counter {counter.name} gave {answer!r} for a text of 4 characters, not a number from 0."
    )


def test_a_scaled_counter_rounds_up_and_says_its_base() -> None:
    scaled = Scaled(base=as_counter(words), factor=1.5)
    assert (scaled.name, scaled.count("a b c")) == ("caller:words*1.50", 5)
    assert Scaled(base=Estimator(), factor=1.0).name == "estimate"


class Named:
    """A caller's counter that is an object."""

    def __init__(self, answer: Any, name: Any = "mine") -> None:
        self.name, self.answer = name, answer

    def count(self, text: str) -> Any:
        return self.answer


ABSURD = [10**30, -1, -(10**5000), 10**5000, float("nan"), float("inf"), 2.0, True, "7", None]


@pytest.mark.parametrize("answer", ABSURD, ids=range(len(ABSURD)))
def test_a_counter_that_is_an_object_is_looked_at_like_a_function(answer: Any) -> None:
    for counter in (as_counter(Named(answer)), as_counter(Scaled(base=Named(answer), factor=1.5))):
        with pytest.raises(InvalidInput) as caught:
            counter.count("text")
        assert str(caught.value).startswith("The token counter mine gave ")
        assert caught.value.argument == "count"


def test_more_tokens_than_any_tokenizer_makes_of_a_text_are_no_count() -> None:
    assert as_counter(lambda text: 64 * len(text) + 1024).count("text") == 1280
    with pytest.raises(InvalidInput) as caught:
        as_counter(Named(1281)).count("text")
    assert str(caught.value) == (
        "The token counter mine gave more tokens for a text of 4 characters than any tokenizer makes of it: 1281"
        " instead of at most 1280."
    )


def test_a_counter_that_fails_is_named_and_its_error_is_the_cause() -> None:
    def broken(text: str) -> int:
        raise ZeroDivisionError("no vocabulary")

    broken.__qualname__ = "broken"
    with pytest.raises(InvalidInput) as caught:
        as_counter(broken).count("text")
    assert str(caught.value) == (
        "The token counter caller:broken failed on a text of 4 characters: ZeroDivisionError('no vocabulary')"
    )
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_what_an_adapter_says_itself_is_not_covered() -> None:
    def gone(text: str) -> int:
        raise NotFound("The vocabulary is gone.", path="v.json")

    with pytest.raises(NotFound):
        as_counter(gone).count("text")


@pytest.mark.parametrize("name", ["", None, 7, b"mine"])
def test_a_counter_without_a_name_is_refused(name: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        as_counter(Named(1, name))
    assert str(caught.value) == f"A token counter has a name, a text, not {name!r}."


@pytest.mark.parametrize("factor", [0, -1.0, float("nan"), float("inf"), 10**30, True, "2"])
def test_a_factor_that_is_none_is_refused(factor: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        Scaled(base=Estimator(), factor=factor)
    assert str(caught.value) == f"factor is a number above 0 and at most 1000, not {factor!r}."


def test_only_the_bare_estimate_may_be_too_high() -> None:
    assert over_of(Estimator()) == 1.4
    # Whoever learned a factor above 1 has seen that it was too low.
    assert over_of(Scaled(base=Estimator(), factor=1.2)) == over_of(as_counter(words)) == 1.0
