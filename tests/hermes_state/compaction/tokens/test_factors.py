"""The learned factor: bounded, steady, deaf to what says nothing."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_state.clock import FakeClock
from hermes_state.compaction.tokens import Estimator, Factors, Scaled
from hermes_state.compaction.tokens.factors import factors_of, stepped
from hermes_state.errors import InvalidInput
from hermes_state.store import Store
from hermes_state.testing import temporary_store

SERVER = "http://localhost:8080"


@pytest.fixture
def store(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Store]:
    with temporary_store(tmp_path, clock=fake_clock) as opened:
        yield opened


@settings(max_examples=100)
@given(st.floats(1.0, 3.0), st.integers(0, 10_000), st.floats(0.0001, 1000.0))
def test_a_factor_stays_in_its_bounds_and_moves_towards_what_is_reported(
    factor: float, samples: int, ratio: float
) -> None:
    after = stepped(factor, samples, ratio)
    assert 1.0 <= after <= 3.0
    target = min(max(ratio, 1.0), 3.0)
    assert min(factor, target) - 1e-9 <= after <= max(factor, target) + 1e-9
    assert factor / 1.5001 <= after <= factor * 1.5001


@pytest.mark.parametrize("true", [1.0, 1.3, 2.0, 2.6])
def test_a_factor_comes_to_the_truth_in_some_replies_and_outliers_do_not_take_it_away(true: float) -> None:
    chance, factor = random.Random(3), 1.0
    for sample in range(12):
        factor = stepped(factor, sample, true * chance.uniform(0.95, 1.05))
    assert factor == pytest.approx(true, rel=0.1)
    for sample in range(12, 112):
        absurd = sample % 10 == 0
        factor = stepped(factor, sample, 50.0 if absurd else true * chance.uniform(0.95, 1.05))
    assert factor == pytest.approx(true, rel=0.12)


def test_what_is_learned_is_kept_by_model_server_and_tokenizer(store: Store, fake_clock: FakeClock) -> None:
    factors, estimate = Factors(store.core), Estimator()
    assert factors.counter(estimate, "m", SERVER) is estimate
    for _ in range(6):
        lesson = factors.learn("m", f"{SERVER}/v1", estimate, 1000, {"prompt_tokens": 1400, "total_tokens": 9000})
    assert lesson.verdict == "learned" and lesson.factor.samples == 6
    assert lesson.factor.factor == pytest.approx(1.4)
    scaled = factors.counter(estimate, "m", "http://LOCALHOST:8080/")
    assert isinstance(scaled, Scaled) and scaled.name == "estimate*1.40"
    assert factors.of("m", SERVER).updated_at == fake_clock.now()
    # Others know nothing of it.
    assert factors.of("m", SERVER, tokenizer="tekken").samples == 0
    assert factors.of("m2", SERVER).factor == factors.of("m", "http://other:8080").factor == 1.0
    with store.core.reader() as reader:
        assert [name for name, _ in factors_of(reader, "m", SERVER)] == ["estimate"]


def test_a_factor_is_never_learned_from_counts_that_have_it_already(store: Store) -> None:
    factors = Factors(store.core)
    for _ in range(4):
        factors.learn("m", SERVER, Scaled(base=Estimator(), factor=1.5), 1000, {"prompt_tokens": 1500})
    assert factors.counter(Scaled(base=Estimator(), factor=9.0), "m", SERVER).name == "estimate*1.50"


def test_a_server_that_reports_nothing_teaches_nothing(store: Store) -> None:
    usages: list[Any] = [
        None, {}, 0, -5, {"prompt_tokens": 0}, {"prompt_tokens": None}, {"prompt_tokens": "1400"},
        {"prompt_tokens": True}, {"total_tokens": 2000},
        {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    ]
    for usage in usages:
        lesson = Factors(store.core).learn("m", SERVER, Estimator(), 1000, usage)
        assert (lesson.verdict, lesson.reported, lesson.factor.samples) == ("not_reported", None, 0), usage


def test_the_prompt_is_read_from_every_shape_of_usage(store: Store) -> None:
    usages: list[Any] = [
        {"prompt_tokens": 1200, "prompt_tokens_details": {"cached_tokens": 1100}},
        {"prompt_eval_count": 1200, "eval_count": 7},
        {"input_tokens": 100, "cache_read_input_tokens": 1000, "cache_creation_input_tokens": 100},
        1200,
    ]
    for usage in usages:
        lesson = Factors(store.core).learn("m", SERVER, Estimator(), 1000, usage)
        assert (lesson.verdict, lesson.reported) == ("learned", 1200), usage


def test_a_small_request_says_nothing_about_text(store: Store) -> None:
    lesson = Factors(store.core).learn("m", SERVER, Estimator(), 40, {"prompt_tokens": 110})
    assert (lesson.verdict, lesson.factor.samples) == ("too_small", 0)


def test_a_request_that_was_cut_is_not_learned_from(store: Store) -> None:
    factors = Factors(store.core)
    lesson = factors.learn("m", SERVER, Estimator(), 20_000, {"prompt_eval_count": 2050})
    assert lesson.verdict == "truncated" and lesson.truncation is not None
    assert lesson.truncation.fits == 2050
    assert factors.of("m", SERVER).samples == 0


def test_a_count_that_is_none_is_refused(store: Store) -> None:
    with pytest.raises(InvalidInput) as caught:
        Factors(store.core).learn("m", SERVER, Estimator(), -1, {"prompt_tokens": 5})
    assert str(caught.value) == "counted is a whole number from 0, not -1."
    with pytest.raises(InvalidInput) as caught:
        Factors(store.core).learn("", SERVER, Estimator(), 1000, {"prompt_tokens": 500})
    assert str(caught.value) == "A factor belongs to a model and a tokenizer; one of them has no name."


def test_numbers_that_no_request_has_are_not_learned(store: Store) -> None:
    absurd: list[Any] = [10**30, {"prompt_tokens": 10**30}, {"prompt_eval_count": 2**31}, 2**31, -(10**30)]
    for usage in absurd:
        lesson = Factors(store.core).learn("m", SERVER, Estimator(), 1000, usage)
        assert (lesson.verdict, lesson.reported, lesson.factor.samples) == ("not_reported", None, 0), usage
    for usage in (16_001, {"prompt_tokens": 10**9}):
        lesson = Factors(store.core).learn("m", SERVER, Estimator(), 1000, usage)
        assert (lesson.verdict, lesson.factor.samples) == ("implausible", 0), usage
    assert Factors(store.core).learn("m", SERVER, Estimator(), 1000, 16_000).verdict == "learned"


@pytest.mark.parametrize(("counted", "said"), [
    (10**30, "counted is more tokens than a request can have: at most 2147483647."),
    (-5, "counted is a whole number from 0, not -5."),
    (True, "counted is a whole number from 0, not True."),
    (1000.5, "counted is a whole number from 0, not 1000.5."),
    (float("nan"), "counted is a whole number from 0, not nan."),
])
def test_a_count_that_is_none_is_refused_and_nothing_is_learned(store: Store, counted: Any, said: str) -> None:
    store.sessions.create(id="one", source="cli", model="m")
    body = {"error": {"code": 400, "type": "exceed_context_size_error", "n_prompt_tokens": 9000, "n_ctx": 8192}}
    for learn in (
        lambda: store.compaction.observe("m", SERVER, counted, {"prompt_tokens": 1200}),
        lambda: store.compaction.refused("one", 400, body, endpoint=SERVER, counted=counted),
    ):
        with pytest.raises(InvalidInput) as caught:
            learn()
        assert str(caught.value) == said
    assert Factors(store.core).of("m", SERVER).samples == 0
    with store.core.reader() as reader:
        assert reader.row("SELECT count(*) FROM model_windows") == (0,)


def test_zero_counted_and_a_handful_read_teach_nothing(store: Store) -> None:
    assert Factors(store.core).learn("m", SERVER, Estimator(), 0, 1200).verdict == "too_small"
    seen = store.compaction.observe("m", SERVER, 100_000, {"prompt_tokens": 1})
    assert (seen.lesson.verdict, seen.window) == ("truncated", None)
    assert Factors(store.core).of("m", SERVER).samples == 0
