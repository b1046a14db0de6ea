"""How sessions come to be: made sure of, below a parent, continuing another, branched off another."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_state.clock import FakeClock
from hermes_state.conversation.creation import Place, as_json
from hermes_state.errors import (
    InvalidInput,
    NotFound,
    Refused,
    SessionExists,
    SessionNotFound,
    SessionReplaced,
    TitleTaken,
)
from hermes_state.store import Store
from hermes_state.testing import temporary_store


@pytest.fixture
def store(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Store]:
    with temporary_store(tmp_path, clock=fake_clock) as opened:
        yield opened


def shared_count(store: Store) -> int:
    with store.core.reader() as reader:
        return int(reader.rows("SELECT count(*) FROM shared_texts")[0][0])


@pytest.mark.parametrize("value", [object(), float("nan"), {1, 2}, [float("inf")]])
def test_what_json_cannot_say_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput, match="tools cannot be written as JSON"):
        as_json("tools", value)


# --- ensure ------------------------------------------------------------------------------------------------------


def test_ensure_makes_a_session_once_and_fills_only_what_is_unknown(store: Store, fake_clock: FakeClock) -> None:
    first = store.sessions.ensure("one", "telegram", model="m-1", chat_id="c")
    fake_clock.advance(100)
    second = store.sessions.ensure(
        "one", "cli", model="m-2", chat_id="d", cwd="/w", user_id="u", system_prompt="P", started_at=3.0
    )
    assert second == dataclasses.replace(first, cwd="/w")
    assert store.sessions.prompt("one") == "P"
    store.sessions.ensure("one", "cli", system_prompt="Q")
    assert store.sessions.prompt("one") == "P" and shared_count(store) == 1


def test_ensure_writes_nothing_when_nothing_is_to_be_filled(store: Store) -> None:
    store.sessions.ensure("one", "cli", model="m", cwd="/w")
    with store.core.reader() as reader:
        before = reader.pragma("data_version")
        store.sessions.ensure("one", "cli", model="m", cwd="/w")
        assert reader.pragma("data_version") == before


def test_ensure_gives_a_parent_to_a_session_without_one_and_never_closes_a_circle(store: Store) -> None:
    store.sessions.create(id="a", source="cli")
    store.sessions.create(id="b", source="cli", parent_id="a", relation="delegate")
    with pytest.raises(InvalidInput, match="cannot be below itself"):
        store.sessions.ensure("a", "cli", parent_id="b", relation="delegate")
    store.sessions.create(id="c", source="cli")
    assert store.sessions.ensure("c", "cli", parent_id="b", relation="reset").parent_id == "b"
    assert store.sessions.ensure("c", "cli", parent_id="a", relation="reset").parent_id == "b"


# --- parents -----------------------------------------------------------------------------------------------------


def test_a_parent_is_named_with_what_the_child_is_to_it(store: Store) -> None:
    store.sessions.create(id="a", source="cli")
    assert store.sessions.create(id="d", source="subagent", parent_id="a", relation="delegate").relation == "delegate"
    assert store.sessions.create(id="o", source="cli", parent_id="a").relation == "other"
    assert [child.id for child in store.sessions.children("a")] == ["d", "o"]
    with pytest.raises(SessionNotFound):
        store.sessions.create(source="cli", parent_id="nope")
    with pytest.raises(InvalidInput) as alone:
        store.sessions.create(source="cli", relation="delegate")
    assert str(alone.value) == "A session without a parent cannot be its delegate."
    with pytest.raises(InvalidInput) as unknown:
        store.sessions.create(source="cli", parent_id="a", relation="cousin")  # type: ignore[arg-type]
    assert str(unknown.value) == (
        "A session is a continuation, branch, delegate, reset, other of its parent, not 'cousin'."
    )
    for relation, method in (("continuation", "continue_as"), ("branch", "branch")):
        with pytest.raises(InvalidInput) as own:
            store.sessions.create(source="cli", parent_id="a", relation=relation)  # type: ignore[arg-type]
        assert own.value.hint == f"Make it with sessions.{method}()."


# --- continuations -----------------------------------------------------------------------------------------------


def test_a_continuation_takes_over_in_one_step(store: Store, fake_clock: FakeClock) -> None:
    store.sessions.create(
        id="a", source="telegram", title="Plan", system_prompt="P", chat_id="c", session_key="k", cwd="/w", model="m"
    )
    store.sessions.pin("a")
    fake_clock.advance(5)
    child = store.sessions.continue_as("a", new_id="b", model="m-2")
    old = store.sessions.get("a")
    assert (old.state, old.end_reason, old.ended_at, old.title) == ("replaced", "compression", 1_800_000_005.0, None)
    assert (child.id, child.parent_id, child.relation, child.state) == ("b", "a", "continuation", "open")
    assert (child.title, child.title_source, child.model, child.chat_id) == ("Plan", "user", "m-2", "c")
    assert (child.source, child.session_key, child.cwd) == ("telegram", "k", "/w")
    assert child.pinned_at is not None
    assert store.sessions.prompt("b") == "P" and shared_count(store) == 1


def test_a_failed_continuation_leaves_the_parent_open_and_no_child(store: Store) -> None:
    store.sessions.create(id="a", source="cli", title="Plan")
    store.sessions.create(id="taken", source="cli")
    before = store.sessions.get("a")
    with pytest.raises(SessionExists):
        store.sessions.continue_as("a", new_id="taken")
    assert store.sessions.get("a") == before
    assert store.sessions.children("a") == []


def test_of_two_continuations_one_wins_and_the_other_learns_the_tip(store: Store) -> None:
    store.sessions.create(id="a", source="cli")
    store.sessions.continue_as("a", new_id="b")
    store.sessions.continue_as("b", new_id="c")
    with pytest.raises(SessionReplaced) as late:
        store.sessions.continue_as("a", new_id="x")
    assert str(late.value) == f"Session 'a' of {store.path} was compressed and goes on as 'c'."
    assert late.value.facts["tip_id"] == "c"
    assert [one.id for one in store.sessions.lineage("b")] == ["a", "b", "c"]


def test_an_ended_session_is_reopened_before_it_is_continued(store: Store) -> None:
    store.sessions.create(id="a", source="cli")
    store.sessions.end("a", "cli_close")
    with pytest.raises(Refused) as refused:
        store.sessions.continue_as("a")
    assert str(refused.value) == (
        f"Session 'a' of {store.path} has ended (cli_close); only an open one is continued."
    )
    assert refused.value.hint == "Reopen it first."


def test_a_replaced_session_is_written_to_by_nobody_and_reopened_only_without_its_continuation(store: Store) -> None:
    """Report 115: after a compression two programs wrote to two ids."""
    store.sessions.create(id="a", source="cli")
    store.sessions.continue_as("a", new_id="b")
    for write in (
        lambda: store.sessions.set_model("a", "m"), lambda: store.sessions.set_prompt("a", "p"),
        lambda: store.sessions.set_place("a", Place(cwd="/x")), lambda: store.sessions.reopen("a"),
        lambda: store.messages.append("a", role="user", content="hello"),
    ):
        with pytest.raises(SessionReplaced) as replaced:
            write()
        assert replaced.value.facts["tip_id"] == "b"
    assert store.sessions.end("a", "late") is False
    assert store.sessions.promote_to_reset("a") is False
    store.sessions.delete("b", actor="test", reason="gone")
    with pytest.raises(SessionReplaced) as orphaned:
        store.messages.append("a", role="user", content="hello")
    assert str(orphaned.value) == (
        f"Session 'a' of {store.path} was compressed into a continuation that is no longer there."
    )
    assert store.sessions.reopen("a").state == "open"
    store.messages.append("a", role="user", content="hello")


# --- branches ----------------------------------------------------------------------------------------------------


def say(store: Store, id_: str, *texts: str) -> list[int]:
    return store.messages.append_many(id_, [{"role": "user", "content": text} for text in texts])


def heard(store: Store, id_: str) -> list[object]:
    return [message["content"] for message in store.messages.context(id_)]


def test_a_branch_shares_the_past_without_copying_and_both_go_on_apart(store: Store) -> None:
    store.sessions.create(id="a", source="cli", system_prompt="P", title="Plan")
    ids = say(store, "a", "1", "2", "3")
    branch = store.sessions.branch("a", at_message_id=ids[1], new_id="b", title="Other plan")
    say(store, "a", "4")
    say(store, "b", "x")
    assert heard(store, "a") == ["1", "2", "3", "4"]
    assert heard(store, "b") == ["1", "2", "x"]
    assert (branch.parent_id, branch.relation, branch.branched_at_seq, branch.message_count) == ("a", "branch", 2, 0)
    assert store.sessions.prompt("b") == "P"
    with store.core.reader() as reader:
        assert reader.rows("SELECT count(*) FROM messages") == [(5,)]


def test_a_branch_of_a_branch_sees_what_its_parent_saw(store: Store) -> None:
    store.sessions.create(id="a", source="cli")
    ids = say(store, "a", "1", "2", "3")
    store.sessions.branch("a", new_id="b")
    say(store, "b", "4", "5")
    store.sessions.branch("b", new_id="c")
    assert heard(store, "c") == ["1", "2", "3", "4", "5"]
    early = store.sessions.branch("c", at_message_id=ids[0], new_id="d")
    assert (early.parent_id, heard(store, "d")) == ("a", ["1"])


def test_a_later_rewind_or_compaction_of_the_parent_does_not_reach_the_branch(store: Store) -> None:
    store.sessions.create(id="a", source="cli")
    ids = say(store, "a", "1", "2", "3")
    store.messages.rewind("a", ids[2])
    store.sessions.branch("a", new_id="b")
    assert heard(store, "b") == ["1", "2"]
    store.messages.rewind("a", ids[0])
    assert (heard(store, "a"), heard(store, "b")) == ([], ["1", "2"])
    store.messages.restore("a")
    assert heard(store, "b") == ["1", "2"]


def test_a_branch_of_a_shared_message_sees_it_as_the_session_it_was_taken_from_does(store: Store) -> None:
    store.sessions.create(id="a", source="cli")
    ids = say(store, "a", "1", "2", "3")
    store.sessions.branch("a", new_id="b")
    store.messages.rewind("a", ids[1])
    store.sessions.branch("b", at_message_id=ids[2], new_id="c")
    store.sessions.branch("a", at_message_id=ids[2], new_id="d")
    assert (heard(store, "b"), heard(store, "c"), heard(store, "d")) == (["1", "2", "3"], ["1", "2", "3"], ["1"])


def test_a_branch_begins_at_a_message_from_before_the_compression(store: Store) -> None:
    store.sessions.create(id="a", source="cli")
    ids = say(store, "a", "1", "2")
    store.sessions.continue_as("a", new_id="b")
    say(store, "b", "summary")
    assert store.sessions.branch("b", at_message_id=ids[0], new_id="c").parent_id == "a"
    assert heard(store, "c") == ["1"]


def test_a_branch_at_a_message_of_another_conversation_is_refused(store: Store) -> None:
    store.sessions.create(id="a", source="cli")
    ids = say(store, "a", "1", "2")
    store.sessions.branch("a", at_message_id=ids[0], new_id="b")
    for message_id in (ids[1], 99):
        with pytest.raises(NotFound) as refused:
            store.sessions.branch("b", at_message_id=message_id)
        assert str(refused.value) == (
            f"Message {message_id} is not part of the conversation of session 'b' in {store.path}."
        )
    store.sessions.rename("a", "Plan")
    with pytest.raises(TitleTaken):
        store.sessions.branch("a", title="Plan")
    assert len(store.sessions.children("a")) == 1


def test_a_branch_at_a_message_that_its_parent_shares_sees_it_as_the_parent_does(store: Store) -> None:
    store.sessions.create(id="a", source="cli")
    ids = say(store, "a", *"12345")
    store.sessions.branch("a", new_id="b")
    store.messages.rewind("b", ids[3])
    hide(store, "b", -4, -3)  # a compaction of the first two
    say(store, "b", "own")
    branch = store.sessions.branch("b", at_message_id=ids[3], new_id="c")

    assert (branch.parent_id, branch.branched_at_seq) == ("b", -1)
    assert heard(store, "c") == ["3"]
    assert [message.content for message in store.messages.history("c").messages] == ["1", "2", "3"]
    say(store, "c", "other")
    assert heard(store, "c") == ["3", "other"]
    assert heard(store, "b") == ["3", "own"]
    (entry,) = [one for one in store.sessions.list() if one.id == "c"]
    assert (entry.message_count, entry.preview) == (5, "other")
    deeper = store.sessions.branch("c", at_message_id=ids[2], new_id="d")
    assert (deeper.parent_id, deeper.branched_at_seq, heard(store, "d")) == ("b", -2, ["3"])


def test_what_a_branch_of_a_branch_hides_survives_both_above_it(store: Store) -> None:
    store.sessions.create(id="a", source="cli")
    ids = say(store, "a", *"1234")
    store.sessions.branch("a", new_id="b")
    hide(store, "b", -3, -3)
    store.sessions.branch("b", at_message_id=ids[2], new_id="c")
    store.sessions.delete(["a", "b"], actor="x", reason="y")

    assert heard(store, "c") == ["2", "3"]
    assert [store.messages.get(one).session_id for one in ids[:3]] == ["c"] * 3
    assert store.sessions.delete("c", actor="x", reason="y").sessions == ("c",)
    assert (store.sessions.count(archived=None), store.messages.count()) == (0, 0)


@pytest.mark.parametrize(("name", "value", "message"), [
    ("extra", "text", "extra is a mapping of fields, not str."),
    ("extra", [1], "extra is a mapping of fields, not list."),
    ("tools", "{", "tools cannot be written as JSON: Expecting property name enclosed in double quotes:"
     " line 1 column 2 (char 1)."),
    ("model_config", "[NaN]", "model_config cannot be written as JSON: NaN is no JSON."),
    ("model_config", {"a": float("inf")},
     "model_config cannot be written as JSON: Out of range float values are not JSON compliant."),
    ("extra", {1: 1, "1": 2}, "extra cannot be written as JSON: two of its keys become '1'."),
    ("tools", "[" * 200, "tools cannot be written as JSON: Expecting value: line 1 column 201 (char 200)."),
    ("tools", "[" * 200 + "]" * 200, "tools cannot be written as JSON: it is more than 100 levels deep."),
])
def test_what_is_no_json_is_refused_when_it_comes(store: Store, name: str, value: Any, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        store.sessions.create(source="cli", **{name: value})
    assert str(caught.value) == message
    assert store.sessions.count() == 0


def hide(store: Store, session_id: str, first: int, last: int) -> None:
    store.core.write(lambda tx: tx.execute(
        "INSERT INTO view_edits (session_no, action, from_seq, to_seq, made_at)"
        " SELECT no, 'compact', ?, ?, 0 FROM sessions WHERE id = ?", (first, last, session_id),
    ))
