"""Deleting sessions: what goes, what stays, what is written down, and what a crash leaves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_state import deletions
from hermes_state.clock import FakeClock
from hermes_state.conversation import removal
from hermes_state.errors import InvalidInput, SessionDeleted, SessionGuarded, SessionNotFound
from hermes_state.store import Store, open_store
from hermes_state.testing import temporary_store
from tests.support.children import Children

BY = {"actor": "test", "reason": "no longer wanted"}


@pytest.fixture
def store(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Store]:
    with temporary_store(tmp_path, clock=fake_clock) as opened:
        yield opened


def say(store: Store, id_: str, *texts: str) -> list[int]:
    return store.messages.append_many(id_, [{"role": "user", "content": text} for text in texts])


def heard(store: Store, id_: str) -> list[object]:
    return [message["content"] for message in store.messages.context(id_)]


def rows(store: Store, sql: str) -> list[tuple[Any, ...]]:
    with store.core.reader() as reader:
        return reader.rows(sql)


def counts(store: Store) -> dict[str, int]:
    tables = (
        "sessions", "messages", "bodies", "shared_texts", "session_totals", "session_usage", "view_edits", "streams",
    )
    return {table: rows(store, f"SELECT count(*) FROM {table}")[0][0] for table in tables}


def test_a_session_goes_with_everything_of_its_own(store: Store) -> None:
    store.sessions.create(id="a", source="cli", system_prompt="P", title="Plan")
    ids = say(store, "a", "1", "x" * 20_000)
    store.messages.rewind("a", ids[1])
    store.usage.record("a", model="m", input_tokens=1)
    done = store.sessions.delete("a", **BY)
    assert (done.sessions, done.delegates, done.messages, done.detached) == (("a",), (), 2, ())
    assert set(counts(store).values()) == {0}
    with pytest.raises(SessionDeleted):
        store.sessions.delete("a", **BY)
    assert store.sessions.create(id="b", source="cli", title="Plan").title == "Plan"


def test_a_deletion_is_written_down_with_who_why_and_how_many(store: Store, fake_clock: FakeClock) -> None:
    """Report 237: transcripts vanished and nobody could tell when or why."""
    store.sessions.create(id="a", source="cli")
    store.sessions.create(id="d", source="cli", parent_id="a", relation="delegate")
    say(store, "a", "1", "2", "3")
    fake_clock.advance(5)
    store.sessions.delete("a", **BY)
    with store.core.reader() as reader:
        (entry,) = deletions.page(reader)
        assert reader.rows("SELECT kind, key, made_at, horizon_at, actor, reason FROM tombstones ORDER BY key") == [
            ("session", id_, 1_800_000_005.0, 1_800_000_005.0 + 90 * 86_400, "test", "no longer wanted")
            for id_ in ("a", "d")
        ]
        assert reader.rows("SELECT key, operation FROM changes ORDER BY id")[2:] == [("d", "delete"), ("a", "delete")]
    assert (entry.actor, entry.reason, entry.kind, entry.keys) == ("test", "no longer wanted", "session", ("d", "a"))
    assert (entry.rows, entry.made_at) == (5, 1_800_000_005.0)
    assert entry.detail == {
        "sessions": 2, "messages": 3, "delegates": ["d"], "kept_messages": 0, "detached": [],
    }


def test_a_deletion_without_a_name_or_a_reason_is_refused(store: Store) -> None:
    store.sessions.create(id="a", source="cli")
    for missing in ({"actor": "", "reason": "x"}, {"actor": "x", "reason": ""}):
        with pytest.raises(InvalidInput):
            store.sessions.delete("a", **missing)
    assert store.sessions.get("a").id == "a"


def test_delegates_go_recursively_with_what_continues_them_and_all_others_stay(store: Store) -> None:
    store.sessions.create(id="root", source="cli")
    store.sessions.create(id="d1", source="cli", parent_id="root", relation="delegate")
    store.sessions.create(id="d2", source="cli", parent_id="d1", relation="delegate")
    store.sessions.continue_as("d2", new_id="d2b")
    store.sessions.create(id="d3", source="cli", parent_id="d2b", relation="delegate")
    for relation in ("reset", "other"):
        store.sessions.create(id=relation, source="cli", parent_id="root", relation=relation)  # type: ignore[arg-type]
    store.sessions.branch("root", new_id="branch")
    store.sessions.branch("d1", new_id="branch of d1")
    store.sessions.continue_as("root", new_id="root2")
    done = store.sessions.delete("root", **BY)
    assert set(done.sessions) == {"root", "d1", "d2", "d2b", "d3"}
    assert set(done.delegates) == {"d1", "d2", "d2b", "d3"}
    assert set(done.detached) == {"reset", "other", "branch", "branch of d1", "root2"}
    left = store.sessions.list(include_children=True)
    assert {one.id for one in left} == set(done.detached)
    assert all(one.parent_id is None and one.relation is None for one in left)


def test_a_circle_never_takes_a_parent_along(store: Store) -> None:
    for id_ in ("a", "b", "c"):
        store.sessions.create(id=id_, source="cli")
    numbers = {one: store.sessions.get(one).no for one in "abc"}

    def circle(tx: Any) -> None:
        for child, parent in (("b", "a"), ("c", "b"), ("a", "c")):
            tx.execute(
                "UPDATE sessions SET parent_no = ?, relation = 'delegate' WHERE no = ?",
                (numbers[parent], numbers[child]),
            )

    store.core.write(circle)
    assert store.sessions.delete("b", **BY).sessions == ("b",)
    assert {one.id for one in store.sessions.list(include_children=True)} == {"a", "c"}


def test_a_whole_conversation_goes_with_all_its_segments(store: Store) -> None:
    store.sessions.create(id="a", source="cli")
    store.sessions.continue_as("a", new_id="b")
    store.sessions.continue_as("b", new_id="c")
    say(store, "c", "1")
    done = store.sessions.delete("b", whole_conversations=True, **BY)
    assert (done.sessions, done.detached, done.messages) == (("c", "b", "a"), (), 1)
    assert counts(store)["sessions"] == 0


def test_nothing_goes_when_one_of_the_ids_is_wrong(store: Store) -> None:
    store.sessions.create(id="a", source="cli")
    with pytest.raises(SessionNotFound):
        store.sessions.delete(["a", "nope"], **BY)
    assert store.sessions.get("a").id == "a"
    assert store.sessions.delete([], **BY).sessions == ()


def test_ids_are_deleted_once_however_often_they_are_named(store: Store) -> None:
    store.sessions.create(id="a", source="cli")
    store.sessions.create(id="d", source="cli", parent_id="a", relation="delegate")
    done = store.sessions.delete(["a", "d", "a"], **BY)
    assert (done.sessions, done.delegates) == (("d", "a"), ())


def test_a_message_id_is_never_used_again(store: Store) -> None:
    store.sessions.create(id="a", source="cli")
    store.sessions.create(id="b", source="cli")
    (last,) = say(store, "a", *"123")[-1:]
    store.sessions.delete("a", **BY)
    assert say(store, "b", "x") == [last + 1]


def test_one_of_three_runs_goes_and_the_others_load_unchanged(store: Store) -> None:
    """Report 240. A run is a session of its own, or some messages of one."""
    for run in "123":
        store.sessions.create(id=run, source="cli", session_key="thread")
        say(store, run, f"question {run}", f"answer {run}")
    store.sessions.delete("2", **BY)
    assert {run: heard(store, run) for run in "13"} == {run: [f"question {run}", f"answer {run}"] for run in "13"}
    store.sessions.create(id="thread", source="cli")
    ids = say(store, "thread", *"112233")
    store.messages.delete("thread", ids[2:4], **BY)
    assert heard(store, "thread") == ["1", "1", "3", "3"]
    assert store.sessions.get("thread").message_count == 4


def test_a_body_that_another_session_has_too_stays(store: Store) -> None:
    for id_ in ("a", "b"):
        store.sessions.create(id=id_, source="cli")
        say(store, id_, "x" * 20_000)
    assert counts(store)["bodies"] == 1
    store.sessions.delete("a", **BY)
    assert heard(store, "b") == ["x" * 20_000]
    store.sessions.delete("b", **BY)
    assert counts(store)["bodies"] == 0


def test_who_remembers_a_session_from_before_cannot_append_to_what_is_left_of_it(
    store: Store, fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    large(store, "big", removal.BATCH_MESSAGES + 2)
    store.sessions.branch("big", at_message_id=1, new_id="branch")
    tried = []

    def between(_seconds: float) -> None:
        tried.append(1)
        with pytest.raises(SessionDeleted):
            say(store, "big", "late")

    monkeypatch.setattr(fake_clock, "sleep", between)
    store.sessions.delete("big", **BY)
    with pytest.raises(SessionDeleted):
        say(store, "big", "later")
    assert (len(tried), heard(store, "branch")) == (1, ["0"])


# --- branches ----------------------------------------------------------------------------------------------------


def test_what_a_branch_shares_stays_until_the_last_branch_goes(store: Store) -> None:
    store.sessions.create(id="a", source="cli", title="Secret name", system_prompt="P", cwd="/secret")
    ids = say(store, "a", *"12345")
    store.sessions.branch("a", at_message_id=ids[2], new_id="b")
    store.sessions.branch("a", at_message_id=ids[0], new_id="c")
    store.usage.record("a", model="m", input_tokens=1)
    done = store.sessions.delete("a", **BY)
    assert (done.messages, done.kept_messages, done.detached) == (2, 3, ())
    assert (heard(store, "b"), heard(store, "c")) == (["1", "2", "3"], ["1"])
    assert rows(store, "SELECT title, cwd, hidden, end_reason, prompt_no, source FROM sessions WHERE no = 1") == [
        (None, None, 1, "kept_for_branches", None, "cli")
    ]
    assert {one.id for one in store.sessions.list(archived=None, include_children=True)} == {"b", "c"}
    done = store.sessions.delete("b", **BY)
    assert (done.messages, heard(store, "c")) == (2, ["1"])
    done = store.sessions.delete("c", **BY)
    assert (done.messages, counts(store)["messages"], counts(store)["sessions"]) == (1, 0, 0)
    with store.core.reader() as reader:
        assert sum(entry.detail["messages"] for entry in deletions.page(reader)) == 5


def test_a_branch_without_messages_of_its_own_passes_on_what_it_shares(store: Store) -> None:
    store.sessions.create(id="a", source="cli")
    say(store, "a", *"12")
    store.sessions.branch("a", new_id="b")
    store.sessions.branch("b", new_id="c")
    store.sessions.delete("b", **BY)
    assert heard(store, "c") == ["1", "2"]
    store.sessions.delete("a", **BY)
    assert heard(store, "c") == ["1", "2"]
    store.sessions.delete("c", **BY)
    assert (counts(store)["sessions"], counts(store)["messages"]) == (0, 0)


def test_a_rewind_that_reaches_into_the_shared_part_outlives_the_parent(store: Store) -> None:
    store.sessions.create(id="a", source="cli")
    ids = say(store, "a", *"123")
    store.sessions.branch("a", new_id="b")
    store.messages.rewind("b", ids[1])
    store.sessions.branch("b", new_id="c")
    store.sessions.delete(["a", "b"], **BY)
    assert heard(store, "c") == ["1"]


# --- who is at work ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["turn", "compaction", "write"])
def test_a_session_that_somebody_works_in_is_not_deleted(store: Store, fake_clock: FakeClock, kind: str) -> None:
    store.sessions.create(id="a", source="cli")
    store.sessions.create(id="d", source="cli", parent_id="a", relation="delegate")
    say(store, "d", "1")
    lease = store.leases.acquire(f"{kind}:d", term_seconds=60)
    before = counts(store)
    with pytest.raises(SessionGuarded) as guarded:
        store.sessions.delete("a", **BY)
    assert str(guarded.value) == (
        f"Session 'd' of {store.path} is in use (lease {kind}:d of {lease.owner}); it was not deleted."
    )
    assert counts(store) == before
    fake_clock.advance(61)
    assert set(store.sessions.delete("a", **BY).sessions) == {"a", "d"}


def test_a_released_lease_guards_nothing(store: Store) -> None:
    store.sessions.create(id="a", source="cli")
    store.leases.acquire("turn:a", term_seconds=60).release()
    assert store.sessions.delete("a", **BY).sessions == ("a",)


def test_a_message_that_is_being_received_keeps_its_session(store: Store) -> None:
    store.sessions.create(id="a", source="cli")
    store.core.write(lambda tx: tx.execute(
        "INSERT INTO streams (key, session_no, role, started_at, owner)"
        " SELECT id, no, 'assistant', 0, '{}' FROM sessions"
    ))
    with pytest.raises(SessionGuarded) as guarded:
        store.sessions.delete("a", **BY)
    assert str(guarded.value) == (
        f"Session 'a' of {store.path} is in use (a message that an unknown owner is still receiving); "
        "it was not deleted."
    )
    assert store.sessions.delete_if_empty("a", **BY) is False


# --- empty ones --------------------------------------------------------------------------------------------------


def test_only_an_empty_session_is_deleted_as_empty(store: Store) -> None:
    for id_ in ("empty", "titled", "spoken", "parent"):
        store.sessions.create(id=id_, source="cli")
    store.sessions.rename("titled", "x")
    say(store, "spoken", "1")
    store.sessions.create(id="child", source="cli", parent_id="parent", relation="delegate")
    assert {id_: store.sessions.delete_if_empty(id_, **BY) for id_ in ("empty", "titled", "spoken", "parent")} == {
        "empty": True, "titled": False, "spoken": False, "parent": False,
    }
    with pytest.raises(SessionDeleted):
        store.sessions.delete_if_empty("empty", **BY)
    with store.core.reader() as reader:
        assert [entry.keys for entry in deletions.page(reader)] == [("empty",)]


# --- large ones, and crashes -------------------------------------------------------------------------------------


class Crash(Exception):
    """Stands for a process that is killed in a pause."""


def large(store: Store, id_: str, messages: int) -> None:
    store.sessions.create(id=id_, source="cli", title=f"title of {id_}")
    for start in range(0, messages, 1000):
        say(store, id_, *(f"{number}" for number in range(start, min(start + 1000, messages))))


def test_a_large_session_goes_in_short_steps_and_is_out_of_sight_after_the_first(
    store: Store, fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    large(store, "big", 2 * removal.BATCH_MESSAGES + 100)
    seen: list[int] = []

    def between(_seconds: float) -> None:
        seen.append(counts(store)["messages"])
        assert store.sessions.list(archived=None, include_children=True) == []
        with pytest.raises(SessionDeleted):
            store.sessions.get("big")

    monkeypatch.setattr(fake_clock, "sleep", between)
    done = store.sessions.delete("big", **BY)
    assert done.messages == 2 * removal.BATCH_MESSAGES + 100
    assert seen == [removal.BATCH_MESSAGES + 100, 100]
    assert (counts(store)["messages"], counts(store)["sessions"]) == (0, 0)


def test_a_deletion_that_was_cut_off_is_finished_by_the_next_one(
    tmp_path: Path, fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(_seconds: float) -> None:
        raise Crash

    with temporary_store(tmp_path, clock=fake_clock) as store:
        large(store, "big", 3 * removal.BATCH_MESSAGES)
        store.sessions.create(id="small", source="cli")
        with monkeypatch.context() as patch:
            patch.setattr(fake_clock, "sleep", killed)
            with pytest.raises(Crash):
                store.sessions.delete("big", **BY)
    with open_store(path=tmp_path / "state.db", clock=fake_clock) as store:
        assert counts(store)["messages"] > 0
        assert [one.id for one in store.sessions.list()] == ["small"]
        with pytest.raises(SessionDeleted):
            store.messages.append("big", role="user", content="x")
        store.sessions.delete("small", **BY)
        assert (counts(store)["messages"], counts(store)["sessions"]) == (0, 0)


DELETING = """
import sys
import gates
from hermes_state.clock import SystemClock
from hermes_state.store import open_store

class Clock(SystemClock):
    naps = 0

    def sleep(self, seconds):
        Clock.naps += 1
        if Clock.naps == int(sys.argv[2]):
            gates.reach("paused")
            gates.wait("never")

with open_store(path=sys.argv[1], clock=Clock()) as store:
    store.sessions.delete("big", actor="test", reason="killed on the way")
"""


@pytest.mark.slow
@pytest.mark.parametrize("nap", [1, 2, 3])
def test_after_kill_9_in_any_pause_a_deletion_is_seen_as_done_and_is_finished_later(
    tmp_path: Path, child: Children, nap: int
) -> None:
    with temporary_store(tmp_path) as store:
        large(store, "big", 4 * removal.BATCH_MESSAGES)
        store.sessions.branch("big", at_message_id=2, new_id="branch")
        store.sessions.create(id="small", source="cli")
    killed = child(DELETING, tmp_path / "state.db", nap)
    killed.wait_for("paused")
    killed.kill()
    with open_store(path=tmp_path / "state.db") as store:
        assert counts(store)["messages"] == (4 - nap) * removal.BATCH_MESSAGES
        assert {one.id for one in store.sessions.list(include_children=True)} == {"branch", "small"}
        with pytest.raises(SessionDeleted):
            store.sessions.get("big")
        store.sessions.delete("small", **BY)
        assert (heard(store, "branch"), counts(store)["messages"]) == (["0", "1"], 2)
        with store.core.reader() as reader:
            assert [(entry.keys, entry.detail["messages"]) for entry in deletions.page(reader)] == [
                (("small",), 0), (("big",), 4 * removal.BATCH_MESSAGES - 2),
            ]
            assert reader.rows("PRAGMA integrity_check") == [("ok",)]


@pytest.mark.slow
def test_twelve_hundred_sessions_go_in_one_call(store: Store) -> None:
    ids = [f"s{number}" for number in range(1200)]
    for id_ in ids:
        store.sessions.create(id=id_, source="cli")
    done = store.sessions.delete(ids, **BY)
    assert done.sessions == tuple(ids)
    with store.core.reader() as reader:
        entries = deletions.page(reader)
        assert sum(entry.rows for entry in entries) == 1200 and len(entries) == 1200 / removal.BATCH_SESSIONS


def test_who_begins_to_work_while_a_long_list_goes_stops_it_and_the_error_says_what_is_gone(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [store.sessions.create(source="cli").id for _ in range(removal.BATCH_SESSIONS + 1)]
    streams = []
    monkeypatch.setattr(store.core.clock, "sleep", lambda _seconds: streams or streams.append(begun(store, ids[-1])))
    with pytest.raises(SessionGuarded) as caught:
        store.sessions.delete(ids, **BY)
    assert str(caught.value).startswith(f"Session {ids[-1]!r} of {store.path} is in use (a message that ")
    assert str(caught.value).endswith("; it was not deleted. 50 sessions before it were.")
    assert caught.value.facts["removed"] == tuple(ids[:-1])
    assert [entry.id for entry in store.sessions.list()] == [ids[-1]]


def begun(store: Store, id_: str) -> object:
    stream = store.messages.stream(id_)
    stream.append("text")
    stream.flush()
    return stream


@pytest.mark.parametrize("wrong", ["1", -1, None, float("nan"), True])
def test_a_horizon_that_is_no_span_of_time_is_refused_by_name(store: Store, wrong: Any) -> None:
    store.sessions.create(id="a", source="cli")
    with pytest.raises(InvalidInput) as caught:
        store.sessions.delete("a", **BY, horizon_seconds=wrong)
    assert str(caught.value) == f"horizon_seconds is a number of seconds from 0, not {wrong!r}."
