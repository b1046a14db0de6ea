"""Tokens and money: added once, in all places, and there after the session is gone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes_state.clock import FakeClock
from hermes_state.errors import InvalidInput, SessionNotFound
from hermes_state.store import Store
from hermes_state.testing import temporary_store

DAY = 86_400.0
NOON = 1_800_000_000.0  # 2027-01-15T08:00:00Z


@pytest.fixture
def store(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Store]:
    with temporary_store(tmp_path, clock=fake_clock) as opened:
        opened.sessions.create(id="a", source="cli")
        yield opened


def test_one_call_is_in_the_total_in_the_parts_and_in_the_day(store: Store) -> None:
    store.usage.record(
        "a", model="m", provider="p", base_url="https://x", billing_mode="api", input_tokens=10, output_tokens=5,
        cache_read_tokens=3, cache_write_tokens=2, reasoning_tokens=1, estimated_cost_usd=0.25, actual_cost_usd=0.5,
    )
    used = store.usage.of_session("a")
    assert (used.provider, used.base_url, used.billing_mode) == ("p", "https://x", "api")
    for sums in (used.total, used.parts[0], store.usage.total(), store.usage.by_day()[0], store.usage.by_model()[0]):
        assert (sums.api_calls, sums.input_tokens, sums.output_tokens, sums.cache_read_tokens) == (1, 10, 5, 3)
        assert (sums.cache_write_tokens, sums.reasoning_tokens) == (2, 1)
        assert (sums.estimated_cost_usd, sums.actual_cost_usd) == (0.25, 0.5)
    assert used.parts[0].model == "m" and store.usage.by_day()[0].day == "2027-01-15"


def test_work_beside_the_conversation_never_changes_its_total(store: Store) -> None:
    store.usage.record("a", model="m", provider="p", input_tokens=10)
    before = store.usage.of_session("a").total
    store.usage.record("a", model="v", provider="q", task="vision", input_tokens=1000, estimated_cost_usd=1.0)
    used = store.usage.of_session("a")
    assert used.total == before
    assert [(part.task, part.input_tokens) for part in used.parts] == [("vision", 1000), ("", 10)]
    assert [(one.task, one.input_tokens) for one in store.usage.by_task()] == [("vision", 1000), ("", 10)]


def test_the_first_call_that_used_anything_fixes_the_route_and_an_unknown_model(store: Store) -> None:
    store.usage.record("a", model="zero", provider="nothing")
    assert (store.usage.of_session("a").provider, store.sessions.get("a").model) == (None, None)
    store.usage.record("a", model="vision", provider="aux", task="vision", input_tokens=1)
    assert store.usage.of_session("a").provider is None
    store.usage.record("a", model="m-1", provider="p", base_url="https://1", input_tokens=1)
    store.usage.record("a", model="m-2", provider="q", base_url="https://2", input_tokens=1)
    used = store.usage.of_session("a")
    assert (used.provider, used.base_url, used.total.api_calls) == ("p", "https://1", 3)
    assert store.sessions.get("a").model == "m-1"
    store.sessions.create(id="b", source="cli", model="mine")
    store.usage.record("b", model="m-1", provider="p", input_tokens=1)
    assert store.sessions.get("b").model == "mine"


def test_money_that_nobody_named_stays_unknown(store: Store) -> None:
    store.usage.record("a", model="m", input_tokens=1)
    assert store.usage.of_session("a").total.estimated_cost_usd is None
    store.usage.record("a", model="m", input_tokens=1, estimated_cost_usd=0.5)
    store.usage.record("a", model="m", input_tokens=1)
    total = store.usage.of_session("a").total
    assert (total.estimated_cost_usd, total.actual_cost_usd) == (0.5, None)


def test_spending_survives_the_deletion_of_its_session(store: Store) -> None:
    store.usage.record("a", model="m", provider="p", input_tokens=7, actual_cost_usd=2.0)
    store.usage.record("a", model="m", provider="p", task="compression", input_tokens=3)
    before = (store.usage.total(), store.usage.by_model(), store.usage.by_task(), store.usage.by_day())
    store.sessions.delete("a", actor="test", reason="prune")
    assert (store.usage.total(), store.usage.by_model(), store.usage.by_task(), store.usage.by_day()) == before
    with store.core.reader() as reader:
        assert reader.rows("SELECT (SELECT count(*) FROM session_totals) + (SELECT count(*) FROM session_usage)") == [
            (0,)
        ]


def test_bounds_count_whole_days_of_utc(store: Store) -> None:
    for day in range(4):
        store.usage.record("a", model="m", input_tokens=10**day, at=NOON + day * DAY)
    assert [(one.day, one.input_tokens) for one in store.usage.by_day(since=NOON + DAY, until=NOON + 2 * DAY)] == [
        ("2027-01-17", 100), ("2027-01-16", 10),
    ]
    midnight = NOON - 8 * 3600 + DAY
    assert store.usage.total(until=midnight - 1).input_tokens == 1
    assert store.usage.total(until=midnight).input_tokens == 11
    assert store.usage.total(since=NOON + 9 * DAY).api_calls == 0


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("input_tokens", -1), ("api_calls", 1.5), ("output_tokens", True), ("reasoning_tokens", 2**53),
        ("estimated_cost_usd", float("nan")), ("actual_cost_usd", -0.1), ("at", float("inf")), ("model", 7),
    ],
)
def test_what_cannot_be_counted_is_refused_and_nothing_is_added(store: Store, argument: str, value: object) -> None:
    fields: dict[str, Any] = {"model": "m", argument: value}
    with pytest.raises(InvalidInput) as refused:
        store.usage.record("a", **fields)
    assert refused.value.facts["argument"] == argument
    assert store.usage.total().api_calls == 0


def test_usage_of_an_unknown_session_is_an_error_and_makes_no_session(store: Store) -> None:
    with pytest.raises(SessionNotFound):
        store.usage.record("nope", model="m", input_tokens=1)
    assert store.usage.total().api_calls == 0 and store.sessions.count() == 1


_CALL = st.fixed_dictionaries({
    "model": st.sampled_from(["m", "n"]), "provider": st.sampled_from(["", "p"]),
    "task": st.sampled_from(["", "vision"]),
    "api_calls": st.integers(0, 3), "input_tokens": st.integers(0, 1000), "output_tokens": st.integers(0, 1000),
    "at": st.sampled_from([NOON, NOON + DAY]),
})


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from("xy"), _CALL), max_size=8))
def test_parts_sum_up_to_what_was_recorded_in_every_view(store: Store, calls: list[tuple[str, dict[str, Any]]]) -> None:
    before = store.usage.total().input_tokens
    known = {one.id: store.usage.of_session(one.id).total.input_tokens for one in store.sessions.list(limit=9)}
    for id_, call in calls:
        store.sessions.ensure(id_, "cli")
        store.usage.record(id_, **call)
    recorded = sum(call["input_tokens"] for _id, call in calls)
    assert store.usage.total().input_tokens - before == recorded
    for view in (store.usage.by_model(), store.usage.by_day(), store.usage.by_task()):
        assert sum(one.input_tokens for one in view) - before == recorded
    for id_ in {id_ for id_, _call in calls}:
        used = store.usage.of_session(id_)
        own = sum(call["input_tokens"] for one, call in calls if one == id_ and not call["task"])
        assert used.total.input_tokens == known.get(id_, 0) + own
        assert sum(part.input_tokens for part in used.parts if not part.task) == used.total.input_tokens


def test_a_call_has_a_model_and_amounts_that_can_be_added_up(store: Store) -> None:
    for fields, message in (
        ({"model": None}, "model may not be empty."), ({"model": ""}, "model may not be empty."),
        ({"model": "m", "actual_cost_usd": 1e300},
         "actual_cost_usd is an amount in US dollars from 0 to 1000000000, or None, not 1e+300."),
        ({"model": "m", "estimated_cost_usd": float("nan")},
         "estimated_cost_usd is an amount in US dollars from 0 to 1000000000, or None, not nan."),
        ({"model": "m", "input_tokens": 2**43}, f"input_tokens is a whole number from 0, not {2**43}."),
    ):
        with pytest.raises(InvalidInput) as caught:
            store.usage.record("a", **fields)  # type: ignore[arg-type]
        assert str(caught.value) == message
