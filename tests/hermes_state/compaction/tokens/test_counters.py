"""What counts: a counter, a function, nothing, and a counter with a factor."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_state.compaction.tokens import Estimator, Scaled, as_counter
from hermes_state.errors import InvalidInput


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
