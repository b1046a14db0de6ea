"""A key stands for one message (invariant G.12; reports 76, 119, 120, 121)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_state import open_store
from hermes_state.errors import IdempotencyConflict, SessionDeleted, SessionReplaced
from hermes_state.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(path=tmp_path / "state.db") as opened:
        opened.sessions.create(id="s", source="cli")
        yield opened


def texts(store: Store, session_id: str = "s") -> list[Any]:
    return [message.content for message in store.messages.history(session_id, after=0, limit=1000).messages]


@pytest.mark.parametrize("key", [{"client_key": "k"}, {"platform_message_id": "42"}])
def test_the_same_message_under_the_same_key_is_stored_once(store: Store, key: dict[str, str]) -> None:
    first = store.messages.append("s", role="user", content="hi", **key)
    again = store.messages.append("s", role="user", content="hi", at=5.0, **key)

    assert again == first
    assert texts(store) == ["hi"]


@pytest.mark.parametrize("key", [{"client_key": "k"}, {"platform_message_id": "42"}])
def test_another_message_under_the_same_key_is_a_conflict(store: Store, key: dict[str, str]) -> None:
    first = store.messages.append("s", role="user", content="hi", **key)

    with pytest.raises(IdempotencyConflict) as caught:
        store.messages.append("s", role="user", content="ho", **key)

    name, value = next(iter(key.items()))
    assert str(caught.value) == (
        f"Message {first} of session 's' in {store.path} has the {name} {value!r} and says something else."
    )
    assert caught.value.facts["existing_id"] == first
    assert texts(store) == ["hi"]


@pytest.mark.parametrize(
    "other", [{"role": "assistant"}, {"content": None}, {"reasoning": "why"}, {"extra": {"a": 1}}, {"token_count": 3}]
)
def test_every_field_counts_for_what_the_same_message_is(store: Store, other: dict[str, Any]) -> None:
    store.messages.append("s", role="user", content="hi", client_key="k")

    with pytest.raises(IdempotencyConflict):
        store.messages.append("s", **{"role": "user", "content": "hi", "client_key": "k", **other})


def test_a_bridge_and_the_agent_that_both_store_a_platform_message_store_one(store: Store) -> None:
    by_bridge = store.messages.append("s", role="user", content="hi", platform_message_id="42", client_key="bridge")
    by_agent = store.messages.append("s", role="user", content="hi", platform_message_id=42, client_key="agent")

    assert by_agent == by_bridge


def test_an_answer_may_have_the_platform_id_of_its_question(store: Store) -> None:
    store.messages.append("s", role="user", content="hi", platform_message_id="42")
    store.messages.append("s", role="assistant", content="ho", platform_message_id="42")

    assert texts(store) == ["hi", "ho"]


def test_a_platform_message_edited_after_a_rewind_is_a_new_message(store: Store) -> None:
    first = store.messages.append("s", role="user", content="hi", platform_message_id="42")
    store.messages.rewind("s", first)

    assert store.messages.append("s", role="user", content="hi!", platform_message_id="42") > first
    assert store.messages.append("s", role="user", content="hi", platform_message_id="42") == first


def test_a_message_delivered_again_after_a_compression_is_known(store: Store) -> None:
    first = store.messages.append("s", role="user", content="hi", platform_message_id="42", client_key="k")
    tip = store.sessions.continue_as("s")

    assert store.messages.append(tip.id, role="user", content="hi", platform_message_id="42") == first
    assert store.messages.append(tip.id, role="user", content="hi", client_key="k") == first
    assert store.messages.append("s", role="user", content="hi", client_key="k") == first
    assert store.messages.find_platform_id(tip.id, 42) == first
    assert store.messages.find_platform_id(tip.id, "43") is None
    assert store.messages.count() == 1


def test_two_agents_that_flush_the_same_list_store_it_once(store: Store) -> None:
    rows = [{"role": "user", "content": str(number), "client_key": f"turn-1:{number}"} for number in range(5)]
    with open_store(path=store.path) as other:
        ids = store.messages.append_many("s", rows)
        more = other.messages.append_many("s", [*rows, {"role": "user", "content": "5", "client_key": "turn-1:5"}])
        assert more[:5] == ids

    assert texts(store) == ["0", "1", "2", "3", "4", "5"]


def test_equal_messages_without_a_key_are_two_messages(store: Store) -> None:
    store.messages.append("s", role="user", content="yes")
    store.messages.append("s", role="user", content="yes")

    assert texts(store) == ["yes", "yes"]


# --- what a repeat does not do -----------------------------------------------------------------------------------


def test_repeats_after_the_last_message_was_deleted_change_no_count(store: Store) -> None:
    rows = [{"role": "user", "content": str(number), "client_key": f"k{number}"} for number in range(3)]
    ids = store.messages.append_many("s", rows)
    store.messages.delete("s", [ids[2]], reason="r", actor="a")
    for _ in range(4):
        assert store.messages.append_many("s", rows[:2]) == ids[:2]
    stream = store.messages.stream("s", role="user")
    stream.append("1")
    assert stream.settle(client_key="k1") == ids[1]

    assert (store.sessions.get("s").message_count, store.messages.count("s"), texts(store)) == (2, 2, ["0", "1"])
    new = store.messages.append("s", role="user", content="new")
    assert (store.sessions.get("s").message_count, store.messages.get(new).seq) == (3, 4)


def test_a_repeat_is_no_activity_and_brings_nothing_back_from_the_archive(store: Store) -> None:
    row = {"role": "user", "content": "hi", "client_key": "k", "at": 1_000.0}
    store.messages.append_many("s", [row])
    store.sessions.archive("s", automatic=True)
    before = store.sessions.get("s")
    store.messages.append_many("s", [{**row, "at": 200_000_000_000.0}])
    store.messages.append("s", **{**row, "at": 200_000_000_000.0})

    assert store.sessions.get("s") == before
    assert before.archived_at is not None


def test_rows_that_were_stored_are_known_also_after_the_session_went_on_elsewhere(store: Store) -> None:
    rows = [{"role": "user", "content": str(number), "client_key": f"k{number}"} for number in range(3)]
    ids = store.messages.append_many("s", rows)
    tip = store.sessions.continue_as("s").id

    assert store.messages.append_many("s", rows) == ids
    with pytest.raises(SessionReplaced) as caught:
        store.messages.append_many("s", [*rows, {"role": "user", "content": "new"}])
    assert (caught.value.facts["tip_id"], store.messages.count()) == (tip, 3)
    assert str(caught.value) == f"Session 's' of {store.path} was compressed and goes on as {tip!r}."


def test_a_stream_whose_message_was_stored_is_known_also_after_the_session_went_on_elsewhere(store: Store) -> None:
    first = store.messages.append("s", role="assistant", content="done", client_key="k")
    stream = store.messages.stream("s")
    stream.append("done")
    store.sessions.continue_as("s")

    assert stream.settle(client_key="k") == first


def test_a_key_of_a_deleted_session_is_no_message_of_it(store: Store) -> None:
    row = {"role": "user", "content": "q", "client_key": "k"}
    store.messages.append("s", **row)
    store.sessions.branch("s")
    with open_store(path=store.path) as other:
        other.sessions.delete("s", actor="a", reason="r")
    for call in (lambda: store.messages.append("s", **row), lambda: store.messages.append_many("s", [row])):
        with pytest.raises(SessionDeleted) as caught:
            call()
        assert str(caught.value).startswith(f"Session 's' of {store.path} was deleted at ")


# --- taken back --------------------------------------------------------------------------------------------------


def test_what_was_taken_back_is_said_again_under_its_platform_id(store: Store) -> None:
    first = store.messages.append("s", role="user", content="q?", platform_message_id="77")
    store.messages.rewind("s", first)
    again = store.messages.append("s", role="user", content="q?", platform_message_id="77")

    assert again > first
    assert [message["content"] for message in store.messages.context("s")] == ["q?"]
    assert store.messages.append("s", role="user", content="q?", platform_message_id="77") == again
    assert store.messages.append_many("s", [{"role": "user", "content": "q?", "platform_message_id": "77"}]) == [again]


def test_what_was_taken_back_under_a_key_of_the_caller_is_a_conflict_that_says_so(store: Store) -> None:
    first = store.messages.append("s", role="user", content="q?", client_key="k")
    edit = store.messages.rewind("s", first).edit_id
    for call in (
        lambda: store.messages.append("s", role="user", content="q?", client_key="k"),
        lambda: store.messages.append_many("s", [{"role": "user", "content": "q?", "client_key": "k"}]),
    ):
        with pytest.raises(IdempotencyConflict) as caught:
            call()
        assert str(caught.value) == (
            f"Message {first} of session 's' in {store.path} has the client_key 'k' and was taken back by a rewind."
        )
        assert (caught.value.facts["taken_back"], caught.value.facts["existing_id"]) == (True, first)
        assert caught.value.hint == "Use a new key to say it again, or restore what was taken back."
    store.messages.restore("s", edit)
    assert store.messages.append("s", role="user", content="q?", client_key="k") == first
