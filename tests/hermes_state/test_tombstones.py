"""A deleted id stays away until its horizon is past and nothing refers to it, whatever is restarted meanwhile."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_state import tombstones
from hermes_state.clock import FakeClock
from hermes_state.errors import Entombed, InvalidInput, NotFound
from hermes_state.store import Store
from hermes_state.testing import temporary_store

DAY = 86_400.0
START = 1_800_000_000.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with temporary_store(tmp_path) as opened:
        yield opened


def entomb(store: Store, key: str, *, days: float = 30, at: float = START, references: tuple = ()) -> None:
    store.core.write(
        lambda tx: tombstones.entomb(
            tx, "instance", key, made_at=at, horizon_seconds=days * DAY, actor="test", reason="removed",
            references=references,
        ),
        durability="power",
    )


def refused(store: Store, key: str) -> Entombed | None:
    try:
        store.core.write(lambda tx: tombstones.refuse(tx, "instance", key))
    except Entombed as error:
        return error
    return None


def collect(store: Store, days: float, *, limit: int = 500) -> tombstones.Collected:
    return store.core.write(lambda tx: tombstones.collect(tx, START + days * DAY, limit=limit))


def test_deleted_id_is_refused_with_what_must_happen_first(store: Store) -> None:
    entomb(store, "X")
    error = refused(store, "X")
    assert error is not None
    assert error.message == (
        f"instance 'X' was deleted from {store.path} at 2027-01-15T08:00:00Z by test (removed);"
        " it may not come back before 2027-02-14T08:00:00Z."
    )
    assert (error.kind, error.key, error.horizon_at, error.references) == ("instance", "X", START + 30 * DAY, 0)
    assert refused(store, "Y") is None
    with store.core.reader() as reader:
        tombstones.refuse(reader, "session", "X")  # another kind


def test_t1_15_id_with_bindings_comes_back_only_after_the_last_of_them_and_the_horizon(tmp_path: Path) -> None:
    bindings = (("thread", "1"), ("thread", "2"), ("thread", "3"))
    with temporary_store(tmp_path) as store:
        entomb(store, "X", references=bindings)
    for number, thread in enumerate(bindings):
        with temporary_store(tmp_path) as store:  # a restart each time
            assert collect(store, days=60).freed == ()
            error = refused(store, "X")
            assert error is not None and error.references == 3 - number
            assert error.message.endswith(
                "and while 1 row refers to it." if number == 2 else f"and while {3 - number} rows refer to it."
            )
            assert store.core.write(lambda tx, held=thread: tombstones.let_go(tx, "instance", "X", *held))
            assert not store.core.write(lambda tx, held=thread: tombstones.let_go(tx, "instance", "X", *held))
    with temporary_store(tmp_path) as store:
        assert collect(store, days=29.9).freed == ()
        assert refused(store, "X") is not None
        assert collect(store, days=30).freed == (("instance", "X"),)
    with temporary_store(tmp_path) as store:
        assert refused(store, "X") is None


@pytest.mark.slow
def test_t1_16_tombstones_without_bindings_are_bounded_by_the_horizon(store: Store) -> None:
    """10,000 removals over 100 days with a horizon of 10."""
    most = 0

    def hundred(day: int) -> None:
        def work(tx) -> None:
            for number in range(100):
                tombstones.entomb(
                    tx, "instance", f"{day}-{number}", made_at=START + day * DAY, horizon_seconds=10 * DAY,
                    actor="test", reason="removed",
                )
            tombstones.collect(tx, START + day * DAY, limit=200)

        store.core.write(work)

    for day in range(100):
        hundred(day)
        with store.core.reader() as reader:
            most = max(most, reader.rows("SELECT count(*) FROM tombstones")[0][0])
    assert most == 1000


def test_collecting_is_bounded_and_says_that_there_is_more(store: Store) -> None:
    for number in range(5):
        entomb(store, str(number), days=number)
    first = collect(store, days=10, limit=2)
    assert (first.freed, first.more) == ((("instance", "0"), ("instance", "1")), True)
    assert collect(store, days=10, limit=2).more
    last = collect(store, days=10, limit=2)
    assert (last.freed, last.more) == ((("instance", "4"),), False)


def test_deleting_twice_keeps_the_first_record_and_the_later_horizon(store: Store) -> None:
    entomb(store, "X", days=30)
    entomb(store, "X", days=1, at=START + DAY)
    with store.core.reader() as reader:
        found = tombstones.find(reader, "instance", "X")
    assert found is not None
    assert (found.made_at, found.horizon_at) == (START, START + 30 * DAY)
    entomb(store, "X", days=40, at=START + DAY)
    with store.core.reader() as reader:
        found = tombstones.find(reader, "instance", "X")
    assert found is not None and found.horizon_at == START + 41 * DAY


def test_reference_to_an_id_without_tombstone_is_refused(store: Store) -> None:
    with pytest.raises(NotFound) as caught:
        store.core.write(lambda tx: tombstones.hold(tx, "instance", "X", "thread", "1"))
    assert caught.value.message == (
        f"There is no tombstone of instance 'X' in {store.path} for thread '1' to hold."
    )


def test_referring_twice_is_one_reference(store: Store) -> None:
    entomb(store, "X", references=(("thread", "1"), ("thread", "1")))
    error = refused(store, "X")
    assert error is not None and error.references == 1


@pytest.mark.parametrize("horizon", [-1.0, float("nan")])
def test_horizon_must_be_a_time_from_now_on(store: Store, horizon: float) -> None:
    with pytest.raises(InvalidInput) as caught:
        entomb(store, "X", days=horizon)
    assert caught.value.message == f"The horizon of a tombstone in {store.path} was {horizon * DAY} seconds."


def test_horizon_without_end_is_shown_as_such(store: Store) -> None:
    entomb(store, "X", days=float("inf"))
    error = refused(store, "X")
    assert error is not None and error.message.endswith("it may not come back before the end of time.")
    assert collect(store, days=1e6).freed == ()


def test_tombstone_goes_with_the_transaction_that_deletes(store: Store) -> None:
    def fails(tx) -> None:
        tombstones.entomb(tx, "instance", "X", made_at=START, horizon_seconds=DAY, actor="test", reason="removed")
        raise ValueError

    with pytest.raises(ValueError):
        store.core.write(fails)
    assert refused(store, "X") is None


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(st.sampled_from(["entomb", "hold", "let_go", "collect"]), st.sampled_from("XY"),
                  st.integers(0, 2), st.integers(0, 5)),
        max_size=20,
    )
)
@settings(max_examples=25)
def test_no_id_comes_back_early_whatever_happens(steps: list[tuple[str, str, int, int]]) -> None:
    """Played against a model: key -> (horizon in days, holders)."""
    model: dict[str, tuple[int, set[str]]] = {}
    day = 0
    with tempfile.TemporaryDirectory() as folder:
        clock = FakeClock(Path(folder) / "clock.json", now=START)
        for act, key, holder, days in steps:
            with temporary_store(folder, clock=clock) as store:
                if act == "entomb":
                    entomb(store, key, days=days, at=START + day * DAY)
                    horizon, holders = model.get(key, (0, set()))
                    model[key] = (max(horizon, day + days), holders)
                elif act == "hold" and key in model:
                    store.core.write(
                        lambda tx, k=key, h=holder: tombstones.hold(tx, "instance", k, "thread", str(h))
                    )
                    model[key][1].add(str(holder))
                elif act == "let_go":
                    had = store.core.write(
                        lambda tx, k=key, h=holder: tombstones.let_go(tx, "instance", k, "thread", str(h))
                    )
                    assert had is (key in model and str(holder) in model[key][1])
                    model.get(key, (0, set()))[1].discard(str(holder))
                elif act == "collect":
                    day += days
                    due = {name for name, (horizon, holders) in model.items() if horizon <= day and not holders}
                    assert {name for _, name in collect(store, days=day).freed} == due
                    for name in due:
                        del model[name]
                for name in "XY":
                    assert (refused(store, name) is not None) is (name in model)
