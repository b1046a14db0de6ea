"""The steps of a deletion, taken by a caller that plans and paces them itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_state import deletions
from hermes_state.conversation.removal_steps import Deleted, is_left_over, left_behind, remove_left_behind, take_out
from hermes_state.errors import SessionDeleted
from hermes_state.store import Store
from hermes_state.testing import temporary_store

AT = 1_800_000_000.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with temporary_store(tmp_path) as opened:
        for id_ in "ab":
            opened.sessions.create(id=id_, source="cli")
            opened.messages.append_many(id_, [{"role": "user", "content": f"{id_}{n}"} for n in range(5)])
        yield opened


def take(store: Store, *numbers: int, limit: int) -> Deleted:
    return store.core.write(
        lambda tx: take_out(tx, numbers, actor="test", reason="why", at=AT, limit=limit)
    )


def count(store: Store, table: str) -> int:
    with store.core.reader() as reader:
        return int(reader.rows(f"SELECT count(*) FROM {table}")[0][0])


def test_a_step_takes_all_ids_out_and_as_many_messages_as_it_may(store: Store) -> None:
    done = take(store, 1, 2, limit=7)
    assert (done.sessions, done.messages, count(store, "messages"), count(store, "sessions")) == (("a", "b"), 10, 3, 1)
    for id_ in "ab":
        with pytest.raises(SessionDeleted):
            store.sessions.get(id_)
    with store.core.reader() as reader:
        assert (left_behind(reader), is_left_over(reader, 2), is_left_over(reader, 1)) == (1, True, True)
        (entry,) = deletions.page(reader)
        assert (entry.keys, entry.rows) == (("a", "b"), 12)


def test_what_is_left_goes_in_steps_of_the_callers_size(store: Store) -> None:
    take(store, 1, 2, limit=0)
    steps = []
    while store.core.write(lambda tx: remove_left_behind(tx, 4)):
        steps.append(count(store, "messages"))
    assert (steps, count(store, "messages"), count(store, "sessions")) == ([6, 2], 0, 0)
    assert store.core.write(lambda tx: remove_left_behind(tx, 4)) is False


def test_a_step_that_fails_leaves_everything(store: Store) -> None:
    with pytest.raises(IndexError):
        take(store, 1, 99, limit=100)
    assert store.sessions.get("a").message_count == 5
    assert (count(store, "deletions"), count(store, "tombstones")) == (0, 0)


def test_the_order_of_parents_and_children_does_not_matter(store: Store) -> None:
    store.sessions.continue_as("a", new_id="a2")
    store.sessions.branch("a", new_id="branch")
    store.sessions.create(id="d", source="cli", parent_id="a", relation="delegate")
    numbers = {id_: store.sessions.get(id_).no for id_ in ("a", "a2", "branch", "d")}
    done = take(store, *numbers.values(), limit=100)
    assert (set(done.sessions), done.detached) == (set(numbers), ())
    while store.core.write(lambda tx: remove_left_behind(tx, 100)):
        pass
    assert (count(store, "sessions"), count(store, "messages")) == (1, 5)
