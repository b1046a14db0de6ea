"""Lock owners over time: ages, several holders, order."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from lockowners import NoSuchStore, Watcher, lock_owners
from tests.lockowners.holding import holding, needs_linux

pytestmark = needs_linux


class Clock:
    """Time that moves when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_single_look_has_no_ages(store: Path) -> None:
    with holding("reading", store):
        assert [owner.age_seconds for owner in lock_owners(store).owners] == [None]


def test_watcher_says_how_long_a_lock_was_seen_held(store: Path) -> None:
    clock = Clock()
    watcher = Watcher(store, now=clock)
    with holding("reading", store) as first:
        assert [owner.age_seconds for owner in watcher.look().owners] == [0.0]
        clock.now += 7.5
        with holding("writing", store) as second:
            ages = {(o.lock, o.process.pid): o.age_seconds for o in watcher.look().owners if o.process}
            assert ages[("reader", first.pid)] == 7.5
            assert ages[("wal-writer", second.pid)] == 0.0
    assert watcher.look().owners == ()


def test_lock_that_was_let_go_and_taken_again_starts_at_zero(store: Path) -> None:
    clock = Clock()
    watcher = Watcher(store, now=clock)
    with holding("writing", store):
        watcher.look()
    clock.now += 5
    watcher.look()
    with holding("writing", store):
        assert {owner.age_seconds for owner in watcher.look().owners} == {0.0}


def test_owners_are_listed_with_those_first_who_block_writers(store: Path) -> None:
    with ExitStack() as stack:
        pids = {state: stack.enter_context(holding(state, store)).pid for state in ("idle", "reading", "writing")}
        owners = [(o.lock, o.process.pid) for o in lock_owners(store).owners if o.process]
    assert owners[0] == ("wal-writer", pids["writing"])
    assert owners[-1] == ("open", pids["idle"])
    assert ("reader", pids["reading"]) in owners


def test_reader_has_the_slot_of_its_read_mark(store: Path) -> None:
    with holding("reading", store):
        assert [owner.slot for owner in lock_owners(store).owners] in ([0], [1])


def test_path_that_names_nothing_is_an_error_and_not_an_empty_report(tmp_path: Path) -> None:
    with pytest.raises(NoSuchStore) as caught:
        lock_owners(tmp_path / "typo.db")
    assert str(caught.value) == f"{tmp_path}/typo.db does not exist"
