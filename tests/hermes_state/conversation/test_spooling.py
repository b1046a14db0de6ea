"""A turn counts as saved when it is in the store or in the spool, and is in the store once in the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_state import open_spool, open_store
from hermes_state.clock import FakeClock
from hermes_state.conversation.fields import encode
from hermes_state.conversation.turn_payload import _from_json, _to_json
from hermes_state.engine import open_write
from hermes_state.errors import (
    InvalidInput,
    LockTimeout,
    NotSaved,
    SessionNotFound,
    StatementFailed,
)
from hermes_state.spool.lines import item_of, line_of
from hermes_state.store import Store

TURN = [
    {"role": "user", "content": "what is in the file?"},
    {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "read"}}]},
    {"role": "tool", "content": "x" * 20_000, "tool_call_id": "c1", "tool_name": "read"},
    {"role": "assistant", "content": "a lot of x"},
]


@pytest.fixture
def store(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Store]:
    with open_store(path=tmp_path / "state.db", clock=fake_clock) as opened:
        opened.sessions.create(id="s", source="cli")
        yield opened


def contents(store: Store, session_id: str = "s") -> list[Any]:
    return [message.content for message in store.messages.history(session_id, after=0, limit=1000).messages]


def break_inserts(store: Store) -> None:
    """What a schema edit by another program does: every new message is refused."""
    store.core.write(lambda tx: tx.execute(
        "CREATE TRIGGER broken BEFORE INSERT ON messages BEGIN SELECT raise(ABORT, 'broken'); END"
    ))


def mend(store: Store) -> None:
    store.core.write(lambda tx: tx.execute("DROP TRIGGER broken"))


def test_a_turn_that_the_store_takes_is_in_it_as_append_many_would_have_put_it(store: Store) -> None:
    saved = store.spool.save("s", TURN)
    store.sessions.create(id="other", source="cli")
    store.messages.append_many("other", TURN)

    assert saved.item is None and saved.cause is None
    assert saved.ids is not None and len(saved.ids) == 4
    assert contents(store) == contents(store, "other")
    assert store.messages.context("s") == store.messages.context("other")
    assert not (store.path.parent / "state.db.hermes-state.spool").exists()


def test_a_busy_store_gets_its_turns_later_in_order_and_before_newer_ones(store: Store, tmp_path: Path) -> None:
    with open_write(store.path, deadline_seconds=1.0) as other, other.transaction() as tx:
        tx.execute("UPDATE sessions SET title = title")
        first = store.spool.save("s", TURN[:2], deadline_seconds=0)
        second = store.spool.save("s", TURN[2:], deadline_seconds=0)
    assert first.ids is None and isinstance(first.cause, LockTimeout)
    assert [item.cause for item in store.spool.waiting()] == ["lock_timeout", "lock_timeout"]
    assert second.item is not None and second.item.store_id == store.store_id
    assert contents(store) == []

    store.spool.save("s", [{"role": "user", "content": "later"}])
    assert contents(store) == [row.get("content") for row in TURN] + ["later"]
    assert store.spool.waiting() == []


def test_replaying_twice_is_replaying_once(store: Store) -> None:
    break_inserts(store)
    for number in range(250):
        store.spool.save("s", [{"role": "user", "content": f"message {number}"}])
    mend(store)
    folder = store.path.parent / "state.db.hermes-state.spool"
    copy = (folder / "items.jsonl").read_bytes() if (folder / "items.jsonl").exists() else b""
    copy = b"".join(path.read_bytes() for path in sorted(folder.glob("replaying-*"))) + copy

    done = store.spool.replay()
    assert (done.messages, done.applied, done.quarantined) == (250, 250, [])
    (folder / "items.jsonl").write_bytes(copy)
    again = store.spool.replay()
    assert (again.messages, again.applied, again.quarantined) == (0, 250, [])
    assert contents(store) == [f"message {number}" for number in range(250)]


def test_an_item_that_can_never_be_written_holds_nobody_up(store: Store) -> None:
    break_inserts(store)
    store.sessions.create(id="doomed", source="cli")
    store.spool.save("s", [{"role": "user", "content": "one"}])
    store.spool.save("doomed", [{"role": "user", "content": "lost session"}])
    store.spool.save("s", [{"role": "user", "content": "two"}])
    mend(store)
    store.sessions.delete("doomed", actor="test", reason="test")

    done = store.spool.replay()
    assert (done.messages, done.applied) == (2, 2)
    (kept,) = done.quarantined
    assert kept.code == "session_deleted"
    assert kept.reason == f"Session 'doomed' of {store.path} was deleted at 2027-01-15T08:00:00Z."
    assert store.spool.quarantined() == [kept]
    assert contents(store) == ["one", "two"]


def test_when_sqlite_refuses_every_item_none_is_taken_for_poison(store: Store) -> None:
    break_inserts(store)
    store.spool.save("s", [{"role": "user", "content": "one"}])
    with pytest.raises(StatementFailed):
        store.spool.replay()
    assert store.spool.quarantined() == [] and len(store.spool.waiting()) == 1


def test_one_turn_that_sqlite_refuses_alone_holds_nobody_up(store: Store) -> None:
    store.sessions.create(id="bad", source="cli")
    store.core.write(lambda tx: tx.execute(
        "CREATE TRIGGER broken BEFORE INSERT ON messages WHEN new.session_no = "
        "(SELECT no FROM sessions WHERE id = 'bad') BEGIN SELECT raise(ABORT, 'broken'); END"
    ))
    store.spool.save("bad", [{"role": "user", "content": "refused"}])
    sessions = store.sessions.count_by_source()
    assert store.spool.save("s", [{"role": "user", "content": "one"}]).item is None
    (kept,) = store.spool.quarantined()
    assert kept.code == "statement_failed"
    assert (contents(store), store.spool.waiting()) == (["one"], [])
    assert store.sessions.count_by_source() == sessions  # what it tried with is gone


def test_a_torn_line_is_quarantined_and_the_others_are_replayed(store: Store) -> None:
    break_inserts(store)
    store.spool.save("s", [{"role": "user", "content": "one"}])
    mend(store)
    folder = store.path.parent / "state.db.hermes-state.spool"
    (file,) = [path for path in folder.iterdir() if path.suffix == ".jsonl"]
    file.write_bytes(b'{"format":1,"id":"half\n' + file.read_bytes())

    done = store.spool.replay()
    assert (done.messages, [kept.code for kept in done.quarantined]) == (1, ["torn_item"])
    assert done.quarantined[0].reason == f"A line of {folder} is no spooled item: its check does not fit."


def test_a_turn_for_a_session_that_is_not_there_makes_it_when_told_how(store: Store) -> None:
    with pytest.raises(SessionNotFound):
        store.spool.save("new", [{"role": "user", "content": "hi"}])
    store.spool.save("new", [{"role": "user", "content": "hi"}], source="telegram", model="m")

    session = store.sessions.get("new")
    assert (session.source, session.model) == ("telegram", "m")
    assert contents(store, "new") == ["hi"]


def test_a_turn_that_waited_while_its_session_was_continued_goes_to_the_end_of_the_conversation(store: Store) -> None:
    break_inserts(store)
    store.spool.save("s", [{"role": "user", "content": "late"}])
    mend(store)
    store.sessions.continue_as("s", new_id="s2")

    store.spool.replay()
    assert contents(store, "s2")[-1:] == ["late"]


def test_the_same_key_saves_a_turn_once(store: Store) -> None:
    first = store.spool.save("s", TURN, key="turn-7")
    second = store.spool.save("s", TURN, key="turn-7")

    assert first.ids == second.ids
    assert store.messages.count() == 4


def test_bad_input_is_refused_and_never_spooled(store: Store) -> None:
    with pytest.raises(InvalidInput) as raised:
        store.spool.save("s", [{"role": "user", "content": "ok"}, {"role": "robot", "content": "no"}])
    assert raised.value.message == (
        "Row 1: role is one of assistant, developer, system, tool, user, not 'robot'."
    )
    with pytest.raises(InvalidInput) as raised:
        store.spool.save("s", [])
    assert raised.value.message == "A turn has at least one message."
    assert store.spool.waiting() == [] and store.messages.count() == 0


def test_a_turn_that_is_saved_nowhere_says_why_twice(store: Store) -> None:
    break_inserts(store)
    folder = store.path.parent / "state.db.hermes-state.spool"
    folder.write_text("a file where the folder should be")

    with pytest.raises(NotSaved) as raised:
        store.spool.save("s", [{"role": "user", "content": "hi"}])
    error = raised.value
    assert error.facts["store_error"].code == "statement_failed"
    assert error.facts["spool_error"].message == f"Items of {folder} cannot be kept: Not a directory."
    assert error.message == (
        f"A turn of session s is saved nowhere: the store did not take it ({error.facts['store_error'].message}) and "
        f"neither did the spool (Items of {folder} cannot be kept: Not a directory.)"
    )
    assert error.__cause__ is error.facts["store_error"]


def test_a_store_that_cannot_be_opened_has_a_spool_that_it_takes_in_later(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with open_store(path=path) as store:
        store.sessions.create(id="s", source="cli")
    good = path.read_bytes()
    path.write_bytes(b"not a database, but not empty" * 200)
    try:
        open_store(path=path)
        raise AssertionError("a file that is no database was opened")
    except Exception as error:
        cause = error
    spool = open_spool(path=path)
    saved = spool.save("s", TURN, cause=cause)  # type: ignore[arg-type]
    assert saved.item is not None and saved.item.cause == "not_a_store"
    assert [item.id for item in spool.waiting()] == [saved.item.id] and spool.quarantined() == []

    path.write_bytes(good)
    with open_store(path=path) as store:
        assert store.spool.replay().messages == 4
        assert contents(store) == [row.get("content") for row in TURN]


def test_an_item_of_another_store_is_not_put_into_this_one(store: Store, tmp_path: Path) -> None:
    break_inserts(store)
    item = store.spool.save("s", [{"role": "user", "content": "mine"}]).item
    mend(store)
    assert item is not None
    with open_store(path=tmp_path / "other" / "state.db") as other:
        other.sessions.create(id="s", source="cli")
        folder = tmp_path / "other" / "state.db.hermes-state.spool"
        folder.mkdir()
        (folder / "items.jsonl").write_bytes(line_of(item))
        (kept,) = other.spool.replay().quarantined
        assert kept.reason == (
            f"Spooled item {item.id} is for the store {store.store_id}; {other.path} is {other.store_id}."
        )
        assert other.messages.count() == 0


async def _aio(store: Store) -> Any:
    return await store.aio.spool.save("s", TURN)


def test_the_asyncio_side_saves_too(store: Store) -> None:
    import asyncio

    saved = asyncio.run(_aio(store))
    assert len(saved.ids) == 4


rows = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool"])},
    optional={
        "content": st.none() | st.text() | st.binary() | st.integers(-(2**63), 2**63 - 1)
        | st.floats(allow_nan=False) | st.booleans() | st.lists(st.text(), max_size=2),
        "reasoning": st.text(), "token_count": st.integers(0, 10**9), "tool_name": st.text(),
        "extra": st.dictionaries(st.text(min_size=1).filter(lambda name: not name.startswith("hermes")), st.text()),
        "platform_message_id": st.text(min_size=1, max_size=20), "at": st.floats(1.0, 2e9),
    },
)


@given(rows)
def test_what_the_spool_keeps_of_a_message_is_stored_as_the_message_would_have_been(row: dict[str, Any]) -> None:
    given_ = encode(1_800_000_000.0, **{"client_key": "k"} | row)
    import json

    kept = json.loads(json.dumps(_to_json(given_, "k"), allow_nan=True))
    assert _from_json(kept) == given_


def test_a_spooled_line_holds_what_it_takes_to_store_it_by_hand(store: Store) -> None:
    break_inserts(store)
    store.spool.save("s", [{"role": "user", "content": "héllo"}], source="cli")
    folder = store.path.parent / "state.db.hermes-state.spool"
    item = item_of((folder / "items.jsonl").read_bytes())
    assert item.payload["session_id"] == "s"
    assert item.payload["session"] == {"source": "cli", "model": None}
    assert [(row["role"], row["content"]) for row in item.payload["rows"]] == [("user", "héllo")]
