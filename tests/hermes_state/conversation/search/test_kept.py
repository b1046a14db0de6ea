"""What is kept of deleted sessions is found as the branch's that shows it, and nothing else of them ever."""

from __future__ import annotations

import pytest

from hermes_state.conversation.removal_steps import take_out
from hermes_state.store import Store
from tests.hermes_state.conversation.search.support import found, prepared

BY = {"actor": "test", "reason": "no longer wanted"}


def say(store: Store, id_: str, *texts: str) -> list[int]:
    return store.messages.append_many(id_, [{"role": "user", "content": text} for text in texts])


@pytest.fixture
def shared(store: Store) -> list[int]:
    """Messages of session a: the first two are shared by b, the first three by c; a was deleted."""
    store.sessions.create(id="a", source="telegram", title="Old plan")
    numbers = say(store, "a", "apple one", "apple two", "apple three", "apple four")
    store.sessions.branch("a", at_message_id=numbers[1], new_id="b", title="New plan")
    store.sessions.branch("a", at_message_id=numbers[2], new_id="c")
    store.sessions.delete("a", **BY)
    return numbers


def owners(store: Store, query: str, **options: object) -> dict[int | None, str]:
    return {hit.message_id: hit.session_id for hit in store.search(query, **options)}  # type: ignore[arg-type]


def test_kept_messages_are_found_as_the_nearest_branches(store: Store, shared: list[int], ways: str) -> None:
    prepared(store, ways)
    expected = {shared[0]: "b", shared[1]: "b", shared[2]: "c"}
    assert owners(store, "apple") == expected
    assert {number: store.messages.get(number).session_id for number in expected} == expected
    assert owners(store, "apple source:telegram") == expected
    assert owners(store, "apple", include_archived=True) == expected
    assert owners(store, "apple", source="cli") == {}


def test_a_branch_that_is_asked_for_has_all_that_it_shares(store: Store, shared: list[int], ways: str) -> None:
    prepared(store, ways)
    assert owners(store, "apple", session_id="c") == dict.fromkeys(shared[:3], "c")
    assert owners(store, "apple", session_id="b") == dict.fromkeys(shared[:2], "b")
    assert owners(store, 'apple title:"new plan"') == dict.fromkeys(shared[:2], "b")
    assert owners(store, 'apple title:"old plan"') == {}


def test_what_an_archived_branch_alone_shares_is_archived(store: Store, shared: list[int], ways: str) -> None:
    store.sessions.archive("c")
    prepared(store, ways)
    assert owners(store, "apple") == dict.fromkeys(shared[:2], "b")
    store.sessions.archive("b")
    assert owners(store, "apple") == {}
    assert owners(store, "apple", include_archived=True) == {shared[0]: "b", shared[1]: "b", shared[2]: "c"}


def test_what_a_branch_has_taken_back_of_it_is_not_found_as_its_own(store: Store, shared: list[int], ways: str) -> None:
    store.messages.rewind("b", shared[1])
    prepared(store, ways)
    assert owners(store, "apple") == {shared[0]: "b", shared[2]: "c"}
    assert owners(store, "apple", session_id="c") == dict.fromkeys(shared[:3], "c")


def test_what_the_parent_took_back_later_is_found_in_the_branch(store: Store, ways: str) -> None:
    store.sessions.create(id="a", source="cli")
    numbers = say(store, "a", "pear one", "pear two")
    store.sessions.branch("a", new_id="b")
    store.messages.rewind("a", numbers[0])
    store.sessions.delete("a", **BY)
    prepared(store, ways)
    assert owners(store, "pear") == dict.fromkeys(numbers, "b")


def test_messages_that_are_being_removed_are_never_found(store: Store, ways: str) -> None:
    store.sessions.create(id="a", source="cli")
    numbers = say(store, "a", "plum one", "plum two")
    store.sessions.branch("a", at_message_id=numbers[0], new_id="b")
    no = store.sessions.get("a").no
    prepared(store, ways)
    store.core.write(lambda tx: take_out(tx, [no], actor="a", reason="r", at=1_800_000_000.0, limit=0))
    assert found(store, "plum") == {numbers[0]}
    assert {hit.message_id for hit in store.search("plum", include_archived=True)} == {numbers[0]}
