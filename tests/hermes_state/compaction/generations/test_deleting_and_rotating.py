"""What deletions do to generations, and going on in a child session that shares its parent's messages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_state import open_store
from hermes_state.compaction.generations import commit, rotate, verify
from hermes_state.errors import Refused, SessionReplaced
from hermes_state.store import Store
from tests.support.compacting import begun, compact, contents, made, talk, view_of


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(path=tmp_path / "state.db") as opened:
        yield opened


def rows(store: Store, sql: str) -> list[tuple[Any, ...]]:
    with store.core.reader() as reader:
        return reader.rows(sql)


STATES = "SELECT generation, state, summary FROM compactions ORDER BY id"


def delete(store: Store, *ids: int, session_id: str = "s") -> None:
    store.messages.delete(session_id, ids, actor="test", reason="a secret")


def test_deleting_a_message_blanks_every_summary_that_it_is_in(store: Store) -> None:
    ids = talk(store, 10)
    for cut, summary in ((4, "S1"), (6, "S2"), (8, "S3")):
        compact(store, "s", cut, summary=summary)
    delete(store, ids[4])
    assert rows(store, STATES) == [(1, "done", "S1"), (2, "superseded", None), (3, "superseded", None)]
    assert contents(store) == ["S1", "m4", "m6", "m7", "m8", "m9", "m10"]
    assert rows(store, "SELECT error ->> '$.message' FROM compactions WHERE generation = 3") == [
        ("A message that generation 3 covers was deleted.",)
    ]
    delete(store, ids[0])
    assert contents(store) == [f"m{number}" for number in (2, 3, 4, 6, 7, 8, 9, 10)]
    assert view_of(store, "s").head_moves == 5
    assert compact(store, "s", 7, summary="S4").generation == 4


def test_deleting_what_is_in_no_summary_leaves_the_generation(store: Store) -> None:
    ids = talk(store, 10)
    store.messages.rewind("s", ids[8])
    compact(store, "s", 8, anchors=(3,), summary="S")
    delete(store, ids[2], ids[7], ids[9])  # an anchor, one of the tail, and one that was taken back
    assert rows(store, STATES) == [(1, "done", "S")]
    assert contents(store) == ["S"]


def test_a_summary_that_came_too_late_does_not_keep_what_is_deleted_after(store: Store) -> None:
    ids = talk(store, 6)
    running = begun(store, "s", 4)
    store.sessions.set_model("s", "other")
    commit(store.core, running, made("late"))
    assert rows(store, STATES) == [(1, "superseded", "late")]
    delete(store, ids[0])
    assert rows(store, STATES) == [(1, "superseded", None)]


def test_a_branch_loses_the_summary_with_the_message_that_it_shares(store: Store) -> None:
    ids = talk(store, 8)
    compact(store, "s", 4, summary="S")
    branch = store.sessions.branch("s", at_message_id=ids[5]).id
    store.messages.append(branch, role="user", content="own")
    compact(store, branch, 1, summary="B")
    delete(store, ids[1])
    assert rows(store, STATES) == [(1, "superseded", None), (2, "superseded", None)]
    assert contents(store, branch) == ["m1", "m3", "m4", "m5", "m6", "own"]


def test_deleting_a_message_that_only_the_branch_covers_leaves_the_parents_generation(store: Store) -> None:
    ids = talk(store, 8)
    compact(store, "s", 3, summary="S")
    branch = store.sessions.branch("s", at_message_id=ids[5]).id
    compact(store, branch, 0, summary="B")
    delete(store, ids[3])
    assert rows(store, STATES) == [(1, "done", "S"), (2, "superseded", None)]
    assert contents(store, branch) == ["S\n\nm3", "m5", "m6"]


def test_deleting_a_session_removes_its_generations(store: Store) -> None:
    talk(store, 8)
    compact(store, "s", 4, summary="S")
    store.sessions.delete("s", actor="test", reason="over")
    assert rows(store, "SELECT (SELECT count(*) FROM compactions) + (SELECT count(*) FROM compaction_heads)") == [(0,)]


def test_a_deleted_parent_keeps_what_its_branches_are_seen_through_until_the_last_of_them_goes(store: Store) -> None:
    ids = talk(store, 9)
    compact(store, "s", 3, summary="S1")
    compact(store, "s", 5, summary="S2")
    compact(store, "s", 9, summary="S3")
    early = store.sessions.branch("s", at_message_id=ids[3]).id
    late = store.sessions.branch("s", at_message_id=ids[6]).id
    store.sessions.delete("s", actor="test", reason="over")
    assert rows(store, STATES) == [(1, "done", "S1"), (2, "done", "S2")]
    assert (contents(store, early), contents(store, late)) == (["S2"], ["S2\n\nm5", "m6", "m7"])
    store.sessions.delete(late, actor="test", reason="over")
    assert contents(store, early) == ["S2"]
    store.sessions.delete(early, actor="test", reason="over")
    assert rows(store, "SELECT (SELECT count(*) FROM compactions), (SELECT count(*) FROM messages)") == [(0, 0)]


# --- a child that goes on ----------------------------------------------------------------------------------------


def test_a_child_is_seen_as_its_parent_was_and_no_message_is_copied(store: Store) -> None:
    talk(store, 8)
    store.sessions.rename("s", "A talk")
    compact(store, "s", 6, summary="S")
    before = store.messages.context("s")
    child = rotate(store.core, "s", "child")
    assert child == "child"
    assert store.messages.context("child") == before
    assert (store.sessions.get("child").title, store.sessions.get("child").relation) == ("A talk", "continuation")
    assert (store.sessions.get("s").state, store.sessions.get("s").title) == ("replaced", None)
    assert store.messages.count() == 8
    with pytest.raises(SessionReplaced) as caught:
        store.messages.append("s", role="user", content="late")
    assert caught.value.facts["tip_id"] == "child"


def test_the_conversation_shows_each_message_once_across_children(store: Store) -> None:
    talk(store, 4)
    compact(store, "s", 3, summary="S1")
    rotate(store.core, "s", "two")
    store.messages.append("two", role="user", content="m5")
    compact(store, "two", 1, summary="S2")
    rotate(store.core, "two", "three")
    store.messages.append("three", role="user", content="m6")
    page = store.messages.history("three", chain=True).messages
    assert [(one.session_id, one.content) for one in page] == [
        ("s", "m1"), ("s", "m2"), ("s", "m3"), ("s", "m4"), ("two", "m5"), ("three", "m6"),
    ]
    assert contents(store, "three") == ["S2\n\nm5", "m6"]
    assert [one.session_id for one in store.search("m5")] == ["two"]
    store.messages.rewind("three", page[4].id)
    assert contents(store, "three") == ["S2"]
    assert [one.content for one in store.messages.history("three", chain=True).messages] == ["m1", "m2", "m3", "m4"]


def test_the_child_goes_on_compacting_where_its_parent_ended(store: Store) -> None:
    talk(store, 8)
    compact(store, "s", 4, summary="S1")
    rotate(store.core, "s", "child")
    store.messages.append("child", role="user", content="m9")
    made = compact(store, "child", 0, summary="S2")
    assert made.generation == 2
    assert contents(store, "child") == ["S2", "m8", "m9"]
    with store.core.reader() as reader:
        assert verify(reader, 2, 2).ok


def test_a_key_of_the_parent_adds_nothing_in_the_child(store: Store) -> None:
    store.sessions.create(id="s", source="cli")
    first = store.messages.append("s", role="user", content="once", client_key="k")
    rotate(store.core, "s", "child")
    assert store.messages.append("child", role="user", content="once", client_key="k") == first
    assert contents(store, "child") == ["once"]


def test_the_parent_can_be_deleted_and_the_child_keeps_what_it_shows(store: Store) -> None:
    talk(store, 8)
    compact(store, "s", 6, summary="S")
    rotate(store.core, "s", "child")
    store.messages.append("child", role="user", content="m9")
    before = store.messages.context("child")
    deleted = store.sessions.delete("s", actor="test", reason="over")
    assert (deleted.messages, deleted.kept_messages) == (0, 8)
    assert store.messages.context("child") == before
    child = store.sessions.get("child")
    assert (child.relation, child.parent_id, child.state) == ("branch", None, "open")
    assert store.messages.count("child") == 9
    assert [one.id for one in store.sessions.list()] == ["child"]
    store.sessions.delete("child", actor="test", reason="over")
    assert store.messages.count() == 0
    assert rows(store, "SELECT count(*) FROM sessions") == [(0,)]


def test_a_whole_conversation_of_children_goes_at_once(store: Store) -> None:
    talk(store, 4)
    compact(store, "s", 3, summary="S")
    rotate(store.core, "s", "two")
    store.messages.append("two", role="user", content="m5")
    rotate(store.core, "two", "three")
    deleted = store.sessions.delete("two", actor="test", reason="over", whole_conversations=True)
    assert sorted(deleted.sessions) == ["s", "three", "two"]
    assert rows(store, "SELECT (SELECT count(*) FROM sessions), (SELECT count(*) FROM compactions)") == [(0, 0)]


def test_the_child_can_be_deleted_and_the_parent_opened_again(store: Store) -> None:
    talk(store, 4)
    compact(store, "s", 3, summary="S")
    rotate(store.core, "s", "child")
    store.sessions.delete("child", actor="test", reason="over")
    store.sessions.reopen("s")
    assert contents(store) == ["S\n\nm3", "m4"]


def test_a_session_is_rotated_once_and_only_while_it_is_open(store: Store) -> None:
    talk(store, 2)
    rotate(store.core, "s", "child")
    with pytest.raises(SessionReplaced):
        rotate(store.core, "s")
    store.sessions.end("child", "user_exit")
    with pytest.raises(Refused):
        rotate(store.core, "child")
