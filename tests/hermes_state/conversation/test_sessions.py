"""Sessions as callers meet them: made, found, ended, continued, branched, archived, pinned."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.conversation.creation import Place
from hermes_state.errors import (
    Entombed,
    InvalidInput,
    NotFound,
    ReadOnlyStore,
    Refused,
    SessionDeleted,
    SessionExists,
    SessionNotFound,
    SessionReplaced,
    StateError,
)
from hermes_state.store import Store, open_store
from hermes_state.testing import temporary_store


@pytest.fixture
def store(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Store]:
    with temporary_store(tmp_path, clock=fake_clock) as opened:
        yield opened


def shared_count(store: Store) -> int:
    with store.core.reader() as reader:
        return int(reader.rows("SELECT count(*) FROM shared_texts")[0][0])


def test_a_created_session_comes_back_as_it_was_given(store: Store) -> None:
    made = store.sessions.create(
        id="one", source="telegram", model="m-1", system_prompt="Be brief.", title="  My\tplan ",
        tools=[{"name": "ls"}], model_config='{"temperature":0}',
        user_id="u", session_key="k", chat_id="c", chat_type="group", thread_id="t",
        display_name="Ann", profile="work", cwd="/w/p", git_branch="main", git_repo_root="/w", started_at=5.0,
        extra={"handoff": None},
    )
    assert store.sessions.get("one") == made
    assert (made.state, made.title, made.title_source, made.started_at) == ("open", "My plan", "user", 5.0)
    assert (made.message_count, made.tool_call_count, made.active_at) == (0, 0, 5.0)
    assert (made.extra, made.parent_id, made.relation) == ({"handoff": None}, None, None)
    assert (made.cwd, made.git_repo_root, made.profile, made.chat_type) == ("/w/p", "/w", "work", "group")
    assert store.sessions.prompt("one") == "Be brief."
    assert store.sessions.tools("one") == '[{"name":"ls"}]'
    assert store.sessions.model_config("one") == '{"temperature":0}'
    assert pickle.loads(pickle.dumps(made)) == made


def test_a_taken_id_is_refused_by_name(store: Store) -> None:
    store.sessions.create(id="one", source="cli")
    with pytest.raises(SessionExists) as refused:
        store.sessions.create(id="one", source="cron")
    assert str(refused.value) == f"There is a session 'one' in {store.path} already."
    assert refused.value.facts["session_id"] == "one"
    assert store.sessions.get("one").source == "cli"


def test_lone_surrogates_in_any_text_never_abort_a_write(store: Store) -> None:
    made = store.sessions.create(
        id="one", source="cli", title="a\ud83d b", display_name="\udc00", system_prompt="p\ud800", cwd="/\ud800",
        model_config={"k": "\ud800"}, extra={"x": "\udfff"},
    )
    assert (made.title, made.display_name, made.cwd) == ("a\ufffd b", "\ufffd", "/\ufffd")
    assert store.sessions.prompt("one") == "p\ufffd"
    assert made.extra == {"x": "\ufffd"}


def test_a_missing_session_is_a_named_error(store: Store) -> None:
    with pytest.raises(SessionNotFound) as missing:
        store.sessions.get("nope")
    assert str(missing.value) == f"There is no session 'nope' in {store.path}."
    assert isinstance(pickle.loads(pickle.dumps(missing.value)), NotFound)


# --- states ------------------------------------------------------------------------------------------------------


def test_the_first_end_reason_stays(store: Store, fake_clock: FakeClock) -> None:
    store.sessions.create(id="one", source="cli")
    assert store.sessions.end("one", "cli_close") is True
    fake_clock.advance(10)
    assert store.sessions.end("one", "idle") is False
    ended = store.sessions.get("one")
    assert (ended.state, ended.end_reason, ended.ended_at) == ("ended", "cli_close", 1_800_000_000.0)
    with pytest.raises(InvalidInput):
        store.sessions.end("one", "")


def test_reopening_clears_the_end_and_the_next_reason_counts(store: Store) -> None:
    store.sessions.create(id="one", source="cli")
    store.sessions.end("one", "cli_close")
    opened = store.sessions.reopen("one")
    assert (opened.state, opened.ended_at, opened.end_reason) == ("open", None, None)
    assert store.sessions.reopen("one") == opened
    assert store.sessions.end("one", "idle") is True


def test_only_live_sessions_and_those_a_program_closed_become_resets(store: Store) -> None:
    for id_, reason in (("live", None), ("program", "agent_close"), ("person", "cli_close"), ("reset", "daily")):
        store.sessions.create(id=id_, source="cli")
        if reason is not None:
            store.sessions.end(id_, reason)
    assert [store.sessions.promote_to_reset(id_) for id_ in ("live", "program", "person", "reset")] == [
        True, True, False, False,
    ]
    assert store.sessions.get("program").end_reason == "session_reset"
    with pytest.raises(InvalidInput, match="'cli_close' is no reset"):
        store.sessions.promote_to_reset("live", "cli_close")


def test_recovery_never_takes_up_a_reset_conversation_but_a_person_may(store: Store) -> None:
    store.sessions.create(id="one", source="cli")
    store.sessions.promote_to_reset("one")
    with pytest.raises(Refused) as refused:
        store.sessions.reopen("one", by_recovery=True)
    assert str(refused.value) == (
        f"Session 'one' of {store.path} ended with 'session_reset'; recovery does not take it up again."
    )
    assert store.sessions.reopen("one").state == "open"
    store.sessions.end("one", "ws_orphan_reap")
    assert store.sessions.reopen("one", by_recovery=True).state == "open"


def test_a_session_deleted_or_entombed_is_an_error_of_its_own(store: Store) -> None:
    store.sessions.create(id="a", source="cli")
    store.sessions.delete("a", actor="test", reason="no longer wanted")
    for use in (
        lambda: store.sessions.get("a"), lambda: store.sessions.end("a", "x"),
        lambda: store.sessions.create(source="cli", parent_id="a"), lambda: store.sessions.continue_as("a"),
        lambda: store.usage.record("a", model="m"), lambda: store.messages.append("a", role="user", content="x"),
    ):
        with pytest.raises(SessionDeleted) as deleted:
            use()
        assert str(deleted.value) == f"Session 'a' of {store.path} was deleted at 2027-01-15T08:00:00Z."
        assert deleted.value.facts["deleted_at"] == 1_800_000_000.0
    for make in (lambda: store.sessions.create(id="a", source="cli"), lambda: store.sessions.ensure("a", "cli")):
        with pytest.raises(Entombed) as entombed:
            make()
        assert str(entombed.value) == (
            f"session 'a' was deleted from {store.path} at 2027-01-15T08:00:00Z by test (no longer wanted); "
            "it may not come back before 2027-04-15T08:00:00Z."
        )


def say(store: Store, id_: str, *texts: str) -> list[int]:
    return store.messages.append_many(id_, [{"role": "user", "content": text} for text in texts])


# --- marks -------------------------------------------------------------------------------------------------------


def test_archive_and_pin_cover_the_whole_conversation(store: Store) -> None:
    store.sessions.create(id="a", source="cli")
    store.sessions.continue_as("a", new_id="b")
    store.sessions.continue_as("b", new_id="c")
    assert store.sessions.archive("b") == ["a", "b", "c"]
    assert all(one.archived_at for one in store.sessions.lineage("a"))
    assert (store.sessions.list(), store.sessions.list(archived=True)[0].id) == ([], "c")
    store.sessions.archive("c", False)
    assert not any(one.archived_at for one in store.sessions.lineage("a"))
    assert store.sessions.pin("a") == ["a", "b", "c"]
    assert all(one.pinned_at for one in store.sessions.lineage("a"))
    store.sessions.pin("b", False)
    assert not any(one.pinned_at for one in store.sessions.lineage("a"))


def test_what_a_sweep_archived_comes_back_with_a_message_and_what_a_person_archived_stays(store: Store) -> None:
    store.sessions.create(id="a", source="cli")
    store.sessions.continue_as("a", new_id="b")
    store.sessions.archive("b", automatic=True)
    say(store, "b", "hello")
    assert [(one.archived_at, one.auto_archived) for one in store.sessions.lineage("a")] == [(None, False)] * 2
    store.sessions.archive("b", automatic=True)
    store.sessions.continue_as("b", new_id="c")
    assert not any(one.archived_at for one in store.sessions.lineage("a"))
    store.sessions.archive("c")
    store.sessions.archive("c", automatic=True)
    say(store, "c", "hello")
    assert all(one.archived_at and not one.auto_archived for one in store.sessions.lineage("a"))
    assert store.sessions.continue_as("c", new_id="d").archived_at is not None


def test_changing_a_prompt_frees_the_old_text_with_its_last_use(store: Store) -> None:
    store.sessions.create(id="a", source="cli", system_prompt="P", tools=["t"], model_config={"a": 1})
    store.sessions.create(id="b", source="cli", system_prompt="P")
    assert shared_count(store) == 3
    store.sessions.set_prompt("a", "Q")
    assert (store.sessions.prompt("a"), store.sessions.prompt("b"), shared_count(store)) == ("Q", "P", 4)
    store.sessions.set_prompt("b", None)
    assert (store.sessions.prompt("b"), shared_count(store)) == (None, 3)
    store.sessions.set_tools("a", None)
    store.sessions.set_model_config("a", {"b": 2})
    assert (store.sessions.tools("a"), store.sessions.model_config("a"), shared_count(store)) == (None, '{"b":2}', 2)
    store.sessions.set_model("a", "m-9")
    store.sessions.set_place("a", Place(cwd="/new", git_branch="x"))
    changed = store.sessions.get("a")
    assert (changed.model, changed.cwd, changed.git_branch) == ("m-9", "/new", "x")


def test_every_change_is_in_the_feed_and_a_failed_one_is_not(store: Store) -> None:
    store.sessions.create(id="a", source="cli")
    store.sessions.end("a", "x")
    store.sessions.end("a", "y")
    store.sessions.reopen("a")
    store.sessions.continue_as("a", new_id="b")
    with pytest.raises(SessionReplaced):
        store.sessions.set_model("a", "m")
    with store.core.reader() as reader:
        feed = reader.rows("SELECT key, operation FROM changes WHERE table_name = 'sessions' ORDER BY id")
    assert feed == [("a", "insert"), ("a", "update"), ("a", "update"), ("b", "insert"), ("a", "update")]


# --- several at once ---------------------------------------------------------------------------------------------


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Store]:
    """A store whose clock runs: threads that wait for the lock would push a fake one forward together."""
    with temporary_store(tmp_path) as opened:
        yield opened


def together(*works: Callable[[], object]) -> list[object]:
    """What each of these gave or raised, begun at the same moment in threads of their own."""
    gate = threading.Barrier(len(works))

    def run(work: Callable[[], object]) -> object:
        gate.wait()
        try:
            return work()
        except StateError as error:
            return type(error)

    with ThreadPoolExecutor(len(works)) as threads:
        return list(threads.map(run, works))


def test_of_many_who_continue_a_session_at_once_one_wins(running: Store) -> None:
    running.sessions.create(id="a", source="cli", title="Plan")
    done = together(*[lambda: running.sessions.continue_as("a").id] * 8)
    assert done.count(SessionReplaced) == 7
    assert [one.title for one in running.sessions.lineage("a")] == [None, "Plan"]


def test_of_many_who_make_sure_of_a_session_at_once_all_get_the_same(running: Store) -> None:
    done = together(*[lambda: running.sessions.ensure("a", "cli", model="m")] * 8)
    assert done == [running.sessions.get("a")] * 8
    assert together(*[lambda: running.sessions.create(id="b", source="cli").id] * 8).count(SessionExists) == 7


def test_an_append_beside_the_deletion_of_an_empty_session_wins_or_fails_by_name(running: Store) -> None:
    for number in range(30):
        id_ = f"s{number}"
        running.sessions.create(id=id_, source="cli")
        appended, deleted = together(
            lambda id_=id_: running.messages.append(id_, role="user", content="hello"),  # type: ignore[misc]
            lambda id_=id_: running.sessions.delete_if_empty(id_, actor="test", reason="empty"),  # type: ignore[misc]
        )
        assert (appended is SessionDeleted) == (deleted is True)
        if deleted is False:
            assert running.sessions.get(id_).message_count == 1


def test_a_store_opened_for_reading_lists_and_refuses_to_change(store: Store) -> None:
    store.sessions.create(id="a", source="cli", title="Plan")
    with open_store(path=store.path, read_only=True) as reading:
        assert reading.sessions.list() == store.sessions.list()
        assert (reading.sessions.count(), reading.titles.resolve("Plan")) == (1, store.sessions.get("a"))
        assert reading.sessions.ensure("a", "cli") == store.sessions.get("a")
        with pytest.raises(ReadOnlyStore):
            reading.sessions.end("a", "x")


def test_every_group_is_there_for_asyncio(store: Store) -> None:
    async def talk() -> tuple[str, int]:
        made = await store.aio.sessions.create(source="cli")
        await store.aio.titles.set(made.id, "Plan")
        return (await store.aio.sessions.get(made.id)).title, len(await store.aio.sessions.list())

    assert asyncio.run(talk()) == ("Plan", 1)
