"""Appending: one row, in order, once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_state import open_store
from hermes_state.clock import SYSTEM, FakeClock
from hermes_state.conversation.bodies import read_contents
from hermes_state.conversation.row_check import row_check
from hermes_state.errors import (
    IdempotencyConflict,
    InvalidInput,
    SessionDeleted,
    SessionNotFound,
    SessionReplaced,
    StateError,
)
from hermes_state.store import Store
from hermes_state.testing import temporary_store
from tests.support.children import Children


@pytest.fixture
def store(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Store]:
    with open_store(path=tmp_path / "state.db", clock=fake_clock) as opened:
        opened.sessions.create(id="s", source="cli")
        yield opened


def texts(store: Store, session_id: str = "s") -> list[Any]:
    return [message.content for message in store.messages.history(session_id, after=0, limit=1000).messages]


def row_count(store: Store) -> int:
    return store.messages.count()


# --- order and numbers (invariants G.1 and G.3) ------------------------------------------------------------------


def test_order_is_insertion_although_the_clock_goes_back(store: Store, fake_clock: FakeClock) -> None:
    store.messages.append("s", role="user", content="first")
    fake_clock.step_wall(-86_400)
    store.messages.append("s", role="assistant", content="second")
    store.messages.append("s", role="user", content="third", at=1.0)

    assert texts(store) == ["first", "second", "third"]
    assert [message["content"] for message in store.messages.context("s")] == ["first", "second", "third"]


def test_numbers_and_call_counts_follow_from_the_rows(store: Store) -> None:
    store.messages.append("s", role="user", content="go")
    store.messages.append("s", role="assistant", tool_calls=[{"id": "1"}, {"id": "2"}])
    store.messages.append("s", role="tool", content="ok", tool_call_id="1")

    session = store.sessions.get("s")
    assert (session.message_count, session.tool_call_count) == (3, 2)


def test_a_failed_append_leaves_every_count_as_it_was(store: Store) -> None:
    store.messages.append("s", role="user", content="one", client_key="k")
    with pytest.raises(IdempotencyConflict):
        store.messages.append("s", role="user", content="two", client_key="k")

    assert store.sessions.get("s").message_count == store.messages.count("s") == row_count(store) == 1


def test_ids_rise_over_all_sessions_and_numbers_within_one(store: Store) -> None:
    store.sessions.create(id="t", source="cli")
    ids = [store.messages.append(session, role="user", content=session) for session in ("s", "t", "s", "t")]

    assert ids == sorted(set(ids))
    assert [store.messages.get(message_id).seq for message_id in ids] == [1, 1, 2, 2]


def test_the_activity_stamp_is_written_at_most_once_a_minute(store: Store, fake_clock: FakeClock) -> None:
    def stamp() -> float:
        with store.core.reader() as reader:
            return float(reader.rows("SELECT active_at FROM sessions WHERE id = 's'")[0][0])

    began = stamp()
    fake_clock.advance(59)
    store.messages.append("s", role="user", content="early")
    assert stamp() == began
    fake_clock.advance(1)
    store.messages.append("s", role="user", content="late")
    assert stamp() == began + 60
    assert store.sessions.get("s").active_at == began + 60


def test_a_new_message_brings_back_what_a_sweep_had_archived_and_not_what_a_person_had(store: Store) -> None:
    store.sessions.create(id="kept", source="cli")
    store.sessions.archive("s", automatic=True)
    store.sessions.archive("kept")
    for session in ("s", "kept"):
        store.messages.append(session, role="user", content="hello")

    assert store.sessions.get("s").archived_at is None
    assert store.sessions.get("kept").archived_at is not None


# --- sessions that are gone (invariant G.9) ----------------------------------------------------------------------


def test_a_session_that_never_was_is_named(store: Store) -> None:
    with pytest.raises(SessionNotFound) as caught:
        store.messages.append("nope", role="user", content="x")

    assert str(caught.value) == f"There is no session 'nope' in {store.path}."


def test_a_deleted_session_fails_by_name_although_it_was_just_written_to(store: Store) -> None:
    store.messages.append("s", role="user", content="x")
    store.sessions.delete("s", actor="test", reason="over")

    with pytest.raises(SessionDeleted) as caught:
        store.messages.append("s", role="user", content="y")
    assert caught.value.facts["session_id"] == "s"
    with pytest.raises(SessionDeleted):
        store.messages.append_many("s", [{"role": "user", "content": "y"}])
    assert row_count(store) == 0


def test_a_session_in_the_middle_of_its_deletion_takes_nothing_more(store: Store) -> None:
    store.messages.append("s", role="user", content="x")
    # What the first transaction of a long deletion does: the row stays for its messages, under another id.
    store.core.write(lambda tx: tx.execute("UPDATE sessions SET id = 'leaving' WHERE id = 's'"))

    with pytest.raises(SessionNotFound):
        store.messages.append("s", role="user", content="y")
    assert row_count(store) == 1


def test_a_replaced_session_names_its_tip(store: Store) -> None:
    store.messages.append("s", role="user", content="x")
    middle = store.sessions.continue_as("s")
    tip = store.sessions.continue_as(middle.id)

    for write in (
        lambda: store.messages.append("s", role="user", content="y"),
        lambda: store.messages.append_many("s", [{"role": "user", "content": "y"}]),
        lambda: store.messages.stream("s"),
    ):
        with pytest.raises(SessionReplaced) as caught:
            write()
        assert caught.value.facts["tip_id"] == tip.id
    assert row_count(store) == 1


def test_an_append_after_close_says_so(store: Store) -> None:
    messages = store.messages
    store.close()

    with pytest.raises(StateError):
        messages.append("s", role="user", content="x")
    with pytest.raises(StateError, match="is closed here"):
        _ = store.core


# --- many (invariant G.10) ---------------------------------------------------------------------------------------


def test_many_messages_get_their_ids_in_order(store: Store) -> None:
    before = store.messages.append("s", role="user", content="0")
    ids = store.messages.append_many("s", [{"role": "user", "content": str(number)} for number in range(1, 50)])

    assert ids == list(range(before + 1, before + 50))
    assert texts(store) == [str(number) for number in range(50)]
    assert store.messages.append_many("s", []) == []


def test_many_messages_are_all_stored_or_none(store: Store) -> None:
    store.messages.append("s", role="user", content="old", client_key="k")
    with pytest.raises(IdempotencyConflict):
        store.messages.append_many("s", [
            {"role": "user", "content": "a"}, {"role": "user", "content": "new", "client_key": "k"},
        ])
    with pytest.raises(InvalidInput) as caught:
        store.messages.append_many("s", [{"role": "user", "content": "a"}, {"role": "narrator", "content": "b"}])

    assert str(caught.value) == (
        "Row 1: role is one of assistant, developer, system, tool, user, not 'narrator'."
    )
    assert texts(store) == ["old"]


def test_one_call_may_repeat_its_own_keys(store: Store) -> None:
    row = {"role": "user", "content": "a", "client_key": "k"}
    first, second, third = store.messages.append_many("s", [row, {"role": "user", "content": "b"}, row])

    assert (first, texts(store)) == (third, ["a", "b"])
    assert second == first + 1


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from(["x", "y"])), max_size=70))
@settings(max_examples=30)
def test_many_at_once_is_the_same_as_one_by_one(rows: list[tuple[str | None, str]]) -> None:
    given_ = [{"role": "user", "content": text, "client_key": key} for key, text in rows]
    with temporary_store() as store:
        store.sessions.create(id="s", source="cli")
        store.sessions.create(id="t", source="cli")
        by_one: list[int] | None = []
        for row in given_:
            try:
                by_one.append(store.messages.append("s", **row))
            except IdempotencyConflict:
                by_one = None
                break
        if by_one is None:
            with pytest.raises(IdempotencyConflict):
                store.messages.append_many("t", given_)
            assert texts(store, "t") == []
            return
        by_many = store.messages.append_many("t", given_)
        offset = len(set(by_one))

        assert [number - offset for number in by_many] == by_one
        assert texts(store, "t") == texts(store, "s")
        assert store.sessions.get("t").message_count == offset


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"content": "a"}, "Row 0 of the messages has no role."),
        ({"role": "user", "text": "a"}, "Row 0 of the messages has no field 'text'."),
    ],
)
def test_a_row_with_a_wrong_field_is_named(store: Store, row: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        store.messages.append_many("s", [row])

    assert str(caught.value) == message


# --- durability --------------------------------------------------------------------------------------------------


def wal_bytes(store: Store) -> int:
    return Path(f"{store.path}-wal").stat().st_size


def test_settling_writes_a_page_each_time_so_that_its_commit_syncs(store: Store) -> None:
    store.messages.append("s", role="user", content="x")
    for _round in range(2):
        before = wal_bytes(store)
        store.messages.settle("s")
        assert wal_bytes(store) > before


def test_a_repeat_at_power_syncs_although_it_stores_nothing(store: Store) -> None:
    store.messages.append("s", role="user", content="x", client_key="k")
    before = wal_bytes(store)
    store.messages.append("s", role="user", content="x", client_key="k", durability="power")
    middle = wal_bytes(store)
    store.messages.append_many("s", [{"role": "user", "content": "x", "client_key": "k"}], durability="power")

    assert before < middle < wal_bytes(store)
    with pytest.raises(SessionNotFound):
        store.messages.settle("nope")


# --- rows --------------------------------------------------------------------------------------------------------


def test_every_row_carries_the_check_of_what_it_says(store: Store) -> None:
    store.messages.append("s", role="user", content="hi")
    store.messages.append("s", role="assistant", content=[{"type": "text", "text": "語"}], tool_calls='[{"id": "1"}]',
                          reasoning="r", finish_reason="stop", token_count=7, client_key="k", extra={"a": [1]}, at=3)
    store.messages.append("s", role="tool", content=b"\0\xff", tool_call_id="1", tool_name="t", platform_message_id="p")
    store.messages.append("s", role="tool", content=1.5)
    store.messages.append("s", role="user", content="long " * 10_000)

    with store.core.reader() as reader:
        rows = reader.rows(
            "SELECT content_type, content, body_no, session_no, role, tool_name, tool_call_id, tool_calls,"
            " finish_reason, token_count, reasoning, platform_message_id, client_key, created_at, extra, row_check"
            " FROM messages"
        )
        raws = read_contents(reader, rows)
    assert len(rows) == 5
    for row, raw in zip(rows, raws, strict=True):
        assert row[-1] == row_check(row[3], row[4], row[0], raw, *row[5:-1])


def test_what_is_stored_does_not_change(store: Store) -> None:
    message_id = store.messages.append("s", role="user", content="x")
    with pytest.raises(StateError, match="messages are immutable"):
        store.core.write(lambda tx: tx.execute("UPDATE messages SET role = 'system' WHERE id = ?", (message_id,)))


def test_threads_that_append_at_once_lose_nothing(tmp_path: Path) -> None:
    def work(name: str) -> None:
        for number in range(20):
            store.messages.append("s", role="user", content=f"{name}{number}")

    with open_store(path=tmp_path / "state.db", clock=SYSTEM) as store:
        store.sessions.create(id="s", source="cli")
        threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        said = texts(store)
    assert sorted(said) == sorted(f"{name}{number}" for name in "abcd" for number in range(20))
    for name in "abcd":
        assert [text for text in said if text[0] == name] == [f"{name}{number}" for number in range(20)]


# --- killed writers (must show 5, in small) ----------------------------------------------------------------------

WRITER = """
import sys
import gates
from hermes_state import open_store

path, name, acknowledged = sys.argv[1:]
store = open_store(path=path)
with open(acknowledged, "a", buffering=1) as out:
    number = 0
    while not gates.released("stop"):
        message_id = store.messages.append(name, role="user", content=f"{name} {number}", client_key=str(number))
        print(message_id, number, file=out)
        if number == 100:
            gates.reach("busy")
        number += 1
"""


@pytest.mark.slow
def test_every_acknowledged_message_is_there_once_after_kills(tmp_path: Path, child: Children) -> None:
    """Reports 28, 76 and 117."""
    path = tmp_path / "state.db"
    names = ["s0", "s1", "s2", "s3"]
    with open_store(path=path) as store:
        for name in names:
            store.sessions.create(id=name, source="cli")
        writers = {name: child(WRITER, path, name, tmp_path / name) for name in names}
        for name, writer in writers.items():
            writer.wait_for("busy")
            if name in names[:2]:
                writer.kill()
        for name in names[2:]:
            writers[name].release("stop")
            writers[name].finish()
        for name in names:
            # A killed writer may have left half a line.
            lines = (tmp_path / name).read_text(encoding="utf-8").split("\n")[:-1]
            acknowledged = [int(line.split()[0]) for line in lines]
            stored = store.messages.history(name, after=0, limit=100_000).messages
            numbers = [str(message.content).split()[1] for message in stored]
            assert [message.id for message in stored][: len(acknowledged)] == acknowledged
            assert len(stored) - len(acknowledged) in ((0, 1) if name in names[:2] else (0,))
            assert numbers == [str(number) for number in range(len(stored))]
            # Whoever is not sure sends again: nothing twice.
            for message in stored[-3:]:
                again = store.messages.append(
                    name, role="user", content=message.content, client_key=message.client_key
                )
                assert again == message.id


@pytest.mark.parametrize("id_", [5, None, ["s"], b"s", 1.0])
def test_an_id_that_is_no_text_is_refused_by_name(store: Store, id_: Any) -> None:
    store.sessions.create(id="5", source="cli")
    for call in (
        lambda: store.messages.append(id_, role="user"), lambda: store.messages.append_many(id_, [{"role": "user"}])
    ):
        with pytest.raises(InvalidInput) as caught:
            call()
        assert str(caught.value) == f"A session id is a text, not {type(id_).__name__}."


def test_the_newest_of_many_times_is_the_last_activity(store: Store) -> None:
    start = store.sessions.get("s").active_at
    store.messages.append_many("s", [
        {"role": "user", "content": "late", "at": start + 5_000}, {"role": "user", "content": "early", "at": 5.0},
    ])
    assert store.sessions.get("s").active_at == start + 5_000


def test_calls_of_messages_that_were_deleted_singly_are_not_counted(store: Store) -> None:
    ids = store.messages.append_many("s", [
        {"role": "assistant", "tool_calls": [{"id": str(number)}] * number} for number in (1, 2, 3)
    ])
    store.messages.delete("s", [ids[1]], reason="r", actor="a")
    assert (store.sessions.get("s").message_count, store.sessions.get("s").tool_call_count) == (2, 4)
    store.messages.delete("s", [ids[2]], reason="r", actor="a")
    assert store.sessions.get("s").tool_call_count == 1
    store.messages.append("s", role="assistant", tool_calls=[{"id": "new"}])
    assert store.sessions.get("s").tool_call_count == 2


def test_only_a_compression_may_say_that_a_message_repeats_another(store: Store) -> None:
    row = {"role": "user", "content": "x", "extra": {"carried_from": 1}}
    stream = store.messages.stream("s")
    stream.append("x")
    said = "extra has carried_from, by which only a compression marks what it repeats."
    for call, message in (
        (lambda: store.messages.append("s", **row), said),
        (lambda: store.messages.append_many("s", [row]), f"Row 0: {said}"),
        (lambda: stream.settle(extra={"carried_from": None}), said),
    ):
        with pytest.raises(InvalidInput) as caught:
            call()
        assert str(caught.value) == message
    assert store.messages.count() == 0
