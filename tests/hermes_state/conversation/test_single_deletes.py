"""Deleting single messages leaves a record, and nothing is ever used twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_state import deletions, open_store
from hermes_state.clock import FakeClock
from hermes_state.errors import InvalidInput, NotFound
from hermes_state.store import Store


@pytest.fixture
def store(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Store]:
    with open_store(path=tmp_path / "state.db", clock=fake_clock) as opened:
        opened.sessions.create(id="s", source="cli")
        yield opened


def fill(store: Store, count: int) -> list[int]:
    return store.messages.append_many("s", [{"role": "user", "content": number} for number in range(count)])


def shown(store: Store) -> list[Any]:
    return [message.content for message in store.messages.history("s").messages]


def test_a_deletion_says_who_when_why_and_which(store: Store, fake_clock: FakeClock) -> None:
    ids = fill(store, 4)
    assert store.messages.delete("s", [ids[1], ids[2], ids[1]], reason="a key was pasted", actor="cli of ann") == 2

    with store.core.reader() as reader:
        entry = deletions.page(reader)[0]
        changed = reader.rows("SELECT table_name, key, operation FROM changes WHERE table_name = 'messages'")
    assert (entry.actor, entry.reason, entry.kind, entry.rows) == ("cli of ann", "a key was pasted", "message", 2)
    assert (entry.keys, entry.made_at) == ((str(ids[1]), str(ids[2])), fake_clock.now())
    assert entry.detail == {"session_id": "s", "messages": 2, "bodies": 0}
    assert changed == [("messages", str(ids[1]), "delete"), ("messages", str(ids[2]), "delete")]
    assert shown(store) == [0, 3]


def test_all_are_deleted_or_none(store: Store) -> None:
    store.sessions.create(id="t", source="cli")
    other = store.messages.append("t", role="user", content="x")
    ids = fill(store, 2)

    with pytest.raises(NotFound) as caught:
        store.messages.delete("s", [ids[0], other], reason="r", actor="a")
    assert str(caught.value) == f"Session 's' of {store.path} has no message {other}; nothing was deleted."
    with pytest.raises(InvalidInput):
        store.messages.delete("s", ids, reason=" ", actor="a")
    assert shown(store) == [0, 1]
    assert store.messages.delete("s", [], reason="r", actor="a") == 0


def test_ids_and_numbers_are_never_used_twice(store: Store) -> None:
    ids = fill(store, 5)
    store.messages.delete("s", ids[3:], reason="r", actor="a")
    assert (store.sessions.get("s").message_count, store.messages.count("s")) == (3, 3)

    new = store.messages.append("s", role="user", content="new")
    assert new > ids[4]
    assert store.messages.get(new).seq == 6
    assert (store.sessions.get("s").message_count, store.messages.count("s")) == (4, 4)
    store.messages.delete("s", [ids[0]], reason="r", actor="a")
    assert (store.sessions.get("s").message_count, shown(store)) == (3, [1, 2, "new"])


def test_counts_hold_when_every_message_was_deleted(store: Store) -> None:
    store.messages.delete("s", fill(store, 3), reason="r", actor="a")
    assert (store.sessions.get("s").message_count, store.messages.count("s")) == (0, 0)
    fill(store, 2)
    assert (store.sessions.get("s").message_count, store.messages.count("s")) == (2, 2)


def test_a_new_message_is_not_hidden_by_the_rewind_of_one_that_was_deleted(store: Store) -> None:
    ids = fill(store, 3)
    store.messages.rewind("s", ids[2])
    store.messages.delete("s", [ids[2]], reason="r", actor="a")
    store.messages.append("s", role="user", content="new")

    assert shown(store) == [0, 1, "new"]


def test_what_a_branch_shares_is_gone_from_it_too(store: Store) -> None:
    ids = fill(store, 3)
    branch = store.sessions.branch("s")
    store.messages.delete("s", [ids[2]], reason="r", actor="a")
    store.messages.append("s", role="user", content="new")

    assert [message["content"] for message in store.messages.context(branch.id)] == [0, 1]


def test_more_messages_than_a_statement_has_variables(store: Store) -> None:
    ids = fill(store, 700)
    assert store.messages.delete("s", ids[:600], reason="r", actor="a") == 600
    assert store.messages.count("s") == 100


def test_one_run_of_three_is_deleted_and_the_others_load_unchanged(store: Store) -> None:
    """Report 240."""
    runs = [
        store.messages.append_many("s", [
            {"role": "user", "content": f"go {run}"}, {"role": "assistant", "tool_calls": [{"id": f"c{run}"}]},
            {"role": "tool", "content": "x" * 20_000 + str(run), "tool_call_id": f"c{run}"},
            {"role": "assistant", "content": f"done {run}"},
        ]) for run in range(3)
    ]
    before = store.messages.context("s")
    store.messages.delete("s", runs[1], reason="run 2 went wrong", actor="me")

    assert store.messages.context("s") == before[:4] + before[8:]
    with store.core.reader() as reader:
        assert reader.rows("SELECT count(*) FROM bodies") == [(2,)]


def test_one_call_deletes_no_more_than_others_can_wait_for(store: Store) -> None:
    with pytest.raises(InvalidInput) as caught:
        store.messages.delete("s", range(1, 1002), reason="r", actor="a")
    assert str(caught.value) == "At most 1000 messages are deleted in one call, not 1001."
    assert caught.value.hint == "Delete them in several calls, with a pause in between."
    with pytest.raises(NotFound):
        store.messages.delete("s", [*range(1, 1001), *range(1, 1001)], reason="r", actor="a")


@pytest.mark.parametrize("wrong", ["7", 1.0, True, None, 2**63])
def test_what_is_no_message_id_is_refused_by_name(store: Store, wrong: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        store.messages.delete("s", [wrong], reason="r", actor="a")
    shown = "one of more than 64 bits" if wrong == 2**63 else repr(wrong)
    assert str(caught.value) == f"message_ids is a whole number, not {shown}."
