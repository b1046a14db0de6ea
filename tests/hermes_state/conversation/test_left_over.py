"""What a deletion leaves of a session: nobody's but its branches', and gone with the last of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_state.conversation.removal_steps import remove_left_behind, take_out
from hermes_state.errors import NotFound, SessionNotFound
from hermes_state.store import Store
from hermes_state.testing import temporary_store

BY = {"actor": "test", "reason": "no longer wanted"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with temporary_store(tmp_path) as opened:
        yield opened


def say(store: Store, id_: str, *texts: str) -> list[int]:
    return store.messages.append_many(id_, [{"role": "user", "content": text} for text in texts])


def heard(store: Store, id_: str) -> list[object]:
    return [message["content"] for message in store.messages.context(id_)]


def rows(store: Store, sql: str) -> list[tuple[Any, ...]]:
    with store.core.reader() as reader:
        return reader.rows(sql)


@pytest.fixture
def kept(store: Store) -> tuple[str, list[int]]:
    """Session b shares the first two messages of a, which was deleted; the id that is left of a, and the messages."""
    store.sessions.create(id="a", source="cli")
    ids = say(store, "a", "1", "2", "3")
    store.sessions.branch("a", at_message_id=ids[1], new_id="b")
    store.sessions.delete("a", **BY)
    ((left,),) = rows(store, "SELECT id FROM sessions WHERE hidden = 1")
    return str(left), ids


# --- a deletion never ends in one that cannot be finished ---------------------------------------------------------


def test_a_branch_that_shares_nothing_is_cut_off_when_the_last_that_shares_goes(store: Store) -> None:
    store.sessions.create(id="a", source="cli")
    store.sessions.branch("a", new_id="b")
    say(store, "a", "x")
    store.sessions.branch("a", new_id="c")
    before = store.changes.position()
    assert store.sessions.delete("a", **BY).detached == ()
    assert store.sessions.delete("c", **BY).detached == ("b",)
    assert (store.sessions.get("b").parent_id, store.sessions.get("b").relation) == (None, None)
    assert [(one.key, one.operation) for one in store.changes.since(before).changes] == [
        ("a", "delete"), ("c", "delete"), ("b", "update"),
    ]
    assert rows(store, "SELECT id FROM sessions") == [("b",)]


def test_a_branch_whose_shared_message_was_deleted_singly_is_cut_off_too(store: Store) -> None:
    store.sessions.create(id="a", source="cli")
    ids = say(store, "a", "1", "2", "3")
    store.sessions.branch("a", at_message_id=ids[0], new_id="b")
    store.sessions.branch("a", new_id="c")
    store.messages.delete("a", [ids[0]], **BY)
    store.sessions.delete("a", **BY)
    assert store.sessions.delete("c", **BY).detached == ("b",)
    assert (rows(store, "SELECT id FROM sessions"), rows(store, "SELECT id FROM messages")) == ([("b",)], [])


def test_what_an_earlier_version_left_above_a_branch_does_not_stop_any_deletion(store: Store) -> None:
    store.sessions.create(id="a", source="cli")
    store.sessions.branch("a", new_id="b")
    store.sessions.create(id="c", source="cli")
    store.core.write(lambda tx: tx.execute(
        "UPDATE sessions SET hidden = 1, active_at = 0, state = 'replaced', ended_at = 5, end_reason = 'being_deleted'"
        " WHERE id = 'a'"
    ))
    assert store.sessions.delete("c", **BY).sessions == ("c",)
    assert (store.sessions.get("b").parent_id, rows(store, "SELECT id FROM sessions")) == (None, [("b",)])


def test_a_session_that_is_cut_off_and_goes_in_the_same_step_is_not_called_detached(store: Store) -> None:
    store.sessions.create(id="a", source="cli")
    store.sessions.branch("a", new_id="b")
    say(store, "a", "x")
    store.sessions.branch("a", new_id="c")
    store.sessions.delete("a", **BY)
    assert store.sessions.delete(["c", "b"], **BY).detached == ()
    assert rows(store, "SELECT count(*) FROM sessions") == [(0,)]


def test_an_empty_branch_takes_what_was_kept_for_it_along(store: Store, kept: tuple[str, list[int]]) -> None:
    assert store.sessions.delete_if_empty("b", **BY) is True
    assert (rows(store, "SELECT id FROM sessions"), rows(store, "SELECT id FROM messages")) == ([], [])


# --- nobody gets hold of it ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", [
    lambda store, id_: store.sessions.get(id_), lambda store, id_: store.sessions.get(id_, resolve=True),
    lambda store, id_: store.sessions.reopen(id_), lambda store, id_: store.sessions.end(id_, "done"),
    lambda store, id_: store.sessions.continue_as(id_), lambda store, id_: store.sessions.branch(id_),
    lambda store, id_: store.sessions.create(source="cli", parent_id=id_), lambda store, id_: store.sessions.pin(id_),
    lambda store, id_: store.sessions.set_model(id_, "m"), lambda store, id_: store.sessions.delete(id_, **BY),
    lambda store, id_: store.titles.set(id_, "T"), lambda store, id_: store.usage.record(id_, model="m"),
    lambda store, id_: store.messages.append(id_, role="user", content="more"),
    lambda store, id_: store.messages.append_many(id_, [{"role": "user"}]),
    lambda store, id_: store.messages.stream(id_), lambda store, id_: store.messages.context(id_),
    lambda store, id_: store.messages.history(id_), lambda store, id_: store.messages.count(id_),
    lambda store, id_: store.messages.rewind(id_, 1), lambda store, id_: store.messages.delete(id_, [1], **BY),
    lambda store, id_: store.search("1", session_id=id_),
])
def test_the_id_of_what_is_left_is_no_sessions_id(
    store: Store, kept: tuple[str, list[int]], call: Callable[[Store, str], object]
) -> None:
    with pytest.raises(SessionNotFound) as caught:
        call(store, kept[0])
    assert str(caught.value) == f"There is no session {kept[0]!r} in {store.path}."
    assert heard(store, "b") == ["1", "2"]


def test_what_is_kept_is_shown_under_the_branch_alone(store: Store, kept: tuple[str, list[int]]) -> None:
    _left, ids = kept
    start = store.changes.position()
    (own,) = say(store, "b", "own")
    assert {message.session_id for message in store.messages.history("b").messages} == {"b"}
    assert [store.messages.get(one).session_id for one in (*ids[:2], own)] == ["b"] * 3
    assert store.messages.around("b", ids[0]).messages[0].session_id == "b"
    assert store.sessions.get("b").parent_id is None
    assert store.sessions.get("b").relation == "branch"
    (entry,) = store.sessions.list()
    assert (entry.parent_id, entry.relation, entry.message_count) == (None, "branch", 3)
    whole = store.changes.since(type(start)(
        store_id=start.store_id, incarnation=start.incarnation, message_id=0, change_id=start.change_id
    ))
    assert [(one.key, one.session_id) for one in whole.changes] == [(str(one), "b") for one in (*ids[:2], own)]
    assert store.messages.count() == 3


def test_what_a_branch_of_a_branch_shares_is_shown_under_it_when_both_above_are_gone(store: Store) -> None:
    store.sessions.create(id="a", source="cli")
    ids = say(store, "a", "1", "2", "3")
    store.sessions.branch("a", new_id="b")
    ids += say(store, "b", "4")
    store.sessions.branch("b", new_id="c")
    store.sessions.delete(["a", "b"], **BY)
    assert [store.messages.get(one).session_id for one in ids] == ["c"] * 4
    assert {message.session_id for message in store.messages.history("c").messages} == {"c"}
    assert {one.session_id for one in store.changes.since(store.changes.position()).changes} == set()


def test_what_hides_a_kept_message_is_what_its_branch_hides(store: Store, kept: tuple[str, list[int]]) -> None:
    store.messages.rewind("b", kept[1][1])
    assert [store.messages.get(one).hidden for one in kept[1][:2]] == [None, "rewind"]


def test_a_kept_message_is_deleted_singly_under_the_id_that_it_is_shown_under(
    store: Store, kept: tuple[str, list[int]]
) -> None:
    assert store.messages.delete("b", [kept[1][0]], **BY) == 1
    assert (heard(store, "b"), store.messages.count("b")) == (["2"], 1)
    with pytest.raises(NotFound) as caught:
        store.messages.delete("b", [kept[1][2]], **BY)
    assert str(caught.value) == f"Session 'b' of {store.path} has no message {kept[1][2]}; nothing was deleted."
    assert store.sessions.delete("b", **BY).messages == 1
    assert rows(store, "SELECT count(*) FROM sessions") == [(0,)]


def test_the_messages_of_a_living_parent_are_not_deleted_under_its_branch(store: Store) -> None:
    store.sessions.create(id="a", source="cli")
    ids = say(store, "a", "1")
    store.sessions.branch("a", new_id="b")
    with pytest.raises(NotFound):
        store.messages.delete("b", ids, **BY)


def test_messages_that_are_being_removed_are_nobodys(store: Store) -> None:
    start = store.changes.position()
    store.sessions.create(id="a", source="cli")
    ids = say(store, "a", *"12345")
    store.sessions.branch("a", at_message_id=ids[1], new_id="b")
    store.core.write(lambda tx: take_out(tx, [1], actor="a", reason="r", at=1_800_000_000.0, limit=0))
    assert store.messages.count() == 2
    for gone in ids[2:]:
        with pytest.raises(NotFound) as caught:
            store.messages.get(gone)
        assert str(caught.value) == f"There is no message {gone} in {store.path}."
    batch = store.changes.since(start)
    assert [(one.key, one.session_id) for one in batch.changes if one.table_name == "messages"] == [
        (str(one), "b") for one in ids[:2]
    ]
    assert batch.position.message_id == ids[-1]
    assert store.core.write(lambda tx: remove_left_behind(tx, 100)) is False
    assert (store.messages.count(), heard(store, "b")) == (2, ["1", "2"])


def test_a_feed_that_is_cut_within_messages_that_go_gets_past_them(store: Store) -> None:
    store.sessions.create(id="a", source="cli")
    start = store.changes.position()
    say(store, "a", *"12345")
    store.sessions.create(id="c", source="cli")
    (last,) = say(store, "c", "x")
    store.core.write(lambda tx: take_out(tx, [1], actor="a", reason="r", at=1_800_000_000.0, limit=0))
    seen, position = [], start
    while (batch := store.changes.since(position, limit=2)).position != position:
        seen += [one.key for one in batch.changes if one.table_name == "messages"]
        position = batch.position
    assert seen == [str(last)]
