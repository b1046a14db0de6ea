"""Going back and forth between generations, rewinds into what was summarised, and branches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_state import open_store
from hermes_state.compaction.generations import generations_of, hidden_by, rollback, verify
from hermes_state.errors import NotFound, SessionReplaced, ViewMoved
from hermes_state.store import Store
from tests.support.compacting import compact, contents, talk, view_of


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(path=tmp_path / "state.db") as opened:
        yield opened


def number_of(store: Store, session_id: str) -> int:
    with store.core.reader() as reader:
        return int(reader.rows("SELECT no FROM sessions WHERE id = ?", (session_id,))[0][0])


def test_a_session_can_be_seen_through_any_of_its_generations(store: Store) -> None:
    talk(store, 8)
    compact(store, "s", 4, summary="S1")
    compact(store, "s", 7, summary="S2")
    seen = rollback(store.core, "s", 1)
    assert (seen and seen.generation, contents(store)) == (1, ["S1", "m4", "m5", "m6", "m7", "m8"])
    assert rollback(store.core, "s", 0) is None
    assert contents(store) == [f"m{number}" for number in range(1, 9)]
    seen = rollback(store.core, "s", 2)
    assert (seen and seen.generation, contents(store)) == (2, ["S2\n\nm7", "m8"])


def test_after_going_back_the_next_generation_has_a_new_number(store: Store) -> None:
    talk(store, 8)
    compact(store, "s", 4, summary="S1")
    compact(store, "s", 7, summary="S2")
    rollback(store.core, "s", 1)
    third = compact(store, "s", 6, summary="S3")
    with store.core.reader() as reader:
        first = generations_of(reader, 1)[0]
    assert (third.generation, third.parent_id) == (3, first.id)
    assert contents(store) == ["S3", "m6", "m7", "m8"]


def test_going_back_is_in_the_feed_and_going_nowhere_is_not(store: Store) -> None:
    talk(store, 6)
    compact(store, "s", 4, summary="S")
    position = store.changes.position()
    rollback(store.core, "s", 1)
    assert store.changes.since(position).changes == ()
    rollback(store.core, "s", 0)
    assert [(one.table_name, one.key) for one in store.changes.since(position).changes] == [("compaction_heads", "s")]


def test_going_back_can_be_bound_to_what_was_looked_at(store: Store) -> None:
    talk(store, 6)
    compact(store, "s", 3, summary="S1")
    looked = view_of(store, "s").head_moves
    compact(store, "s", 5, summary="S2")
    with pytest.raises(ViewMoved) as caught:
        rollback(store.core, "s", 0, moves=looked)
    assert caught.value.message == f"Session 's' of {store.path} was moved to another generation meanwhile."
    assert contents(store) == ["S2\n\nm5", "m6"]


def test_only_what_is_done_and_the_sessions_own_can_be_gone_to(store: Store) -> None:
    talk(store, 6)
    talk(store, 6, "t")
    compact(store, "t", 4, summary="T")
    with pytest.raises(NotFound):
        rollback(store.core, "s", 1)
    store.sessions.continue_as("t", new_id="next")
    with pytest.raises(SessionReplaced):
        rollback(store.core, "t", 0)


def test_a_rewind_into_what_was_summarised_shows_what_is_left_of_an_older_view(store: Store) -> None:
    ids = talk(store, 9)
    compact(store, "s", 3, summary="S1")
    compact(store, "s", 7, summary="S2")
    store.messages.rewind("s", ids[4])
    assert contents(store) == ["S1\n\nm3", "m4"]
    store.messages.append("s", role="user", content="instead")
    assert contents(store) == ["S1\n\nm3", "m4", "instead"]
    store.messages.restore("s")
    assert contents(store) == ["S2\n\nm7", "m8", "m9", "instead"]


def test_a_rewind_before_every_cut_shows_the_whole_history_that_is_left(store: Store) -> None:
    ids = talk(store, 9)
    compact(store, "s", 4, summary="S1")
    store.messages.rewind("s", ids[2])
    assert contents(store) == ["m1", "m2"]


def test_a_rewind_to_an_anchor_keeps_the_generation_when_nothing_after_it_was_summarised(store: Store) -> None:
    ids = talk(store, 9)
    compact(store, "s", 6, anchors=(5,), summary="S")
    store.messages.rewind("s", ids[4])
    assert contents(store) == ["S"]


def test_what_was_taken_back_before_a_generation_and_comes_back_after_it_is_shown_as_it_is(store: Store) -> None:
    ids = talk(store, 6)
    store.messages.rewind("s", ids[2])
    for text in ("new 7", "new 8", "new 9"):
        store.messages.append("s", role="user", content=text)
    compact(store, "s", 9, summary="S of 1, 2, 7, 8")
    assert contents(store) == ["S of 1, 2, 7, 8\n\nnew 9"]
    store.messages.restore("s")
    assert contents(store) == ["S of 1, 2, 7, 8\n\nm3", "m4", "m5", "m6", "new 9"]
    compact(store, "s", 9, summary="S of all")
    assert contents(store) == ["S of all\n\nnew 9"]
    with store.core.reader() as reader:
        assert verify(reader, 1, 2).rows == 8
        assert verify(reader, 1, 2).ok


def test_a_branch_takes_the_head_over_and_no_rows(store: Store) -> None:
    ids = talk(store, 8)
    compact(store, "s", 4, summary="S1")
    compact(store, "s", 6, summary="S2")
    branch = store.sessions.branch("s", at_message_id=ids[6]).id
    assert contents(store, branch) == ["S2", "m6", "m7"]
    assert view_of(store, branch).positions == (None, -1, 0)
    store.messages.append(branch, role="user", content="another way")
    rollback(store.core, "s", 0)
    assert contents(store, branch) == ["S2", "m6", "m7", "another way"]
    with store.core.reader() as reader:
        assert reader.rows("SELECT count(*) FROM compactions")[0][0] == 2
        assert hidden_by(reader, number_of(store, branch), range(-6, 2)) == {-6: 1, -5: 1, -4: 1, -3: 2, -2: 2}


@pytest.mark.parametrize(("at", "shown"), [
    (6, ["S1", "m4", "m5", "m6"]),  # generation 2 covers m7
    (3, ["S1"]),
    (2, ["m1", "m2"]),
])
def test_a_branch_before_a_cut_is_seen_through_what_covers_only_what_it_shares(
    store: Store, at: int, shown: list[str]
) -> None:
    ids = talk(store, 9)
    compact(store, "s", 4, summary="S1")
    compact(store, "s", 8, summary="S2")
    assert contents(store, store.sessions.branch("s", at_message_id=ids[at - 1]).id) == shown


def test_a_branch_is_compacted_by_itself_across_what_it_shares(store: Store) -> None:
    ids = talk(store, 8)
    compact(store, "s", 4, summary="S1")
    branch = store.sessions.branch("s", at_message_id=ids[6]).id
    store.messages.append(branch, role="assistant", content="own 1")
    store.messages.append(branch, role="user", content="own 2")
    made = compact(store, branch, 2, anchors=(0,), summary="B")
    assert (made.generation, made.cut_at) == (2, 2)
    assert contents(store, branch) == ["B\n\nm7", "own 2"]
    assert contents(store) == ["S1", "m4", "m5", "m6", "m7", "m8"]
    with store.core.reader() as reader:
        no = number_of(store, branch)
        assert [(one.generation, one.cut_at) for one in generations_of(reader, no)] == [(1, -3), (2, 2)]
        assert verify(reader, no, 2).ok
    seen = rollback(store.core, branch, 1)
    assert (seen and seen.generation, contents(store, branch)) == (1, ["S1", "m4", "m5", "m6", "m7", "own 1", "own 2"])


def test_a_branch_does_not_follow_what_its_parent_rewinds_later(store: Store) -> None:
    ids = talk(store, 8)
    compact(store, "s", 6, summary="S")
    branch = store.sessions.branch("s", at_message_id=ids[6]).id
    store.messages.rewind("s", ids[2])
    assert contents(store) == ["m1", "m2"]
    assert contents(store, branch) == ["S", "m6", "m7"]


def test_a_branch_of_a_rewound_view_has_the_older_generation(store: Store) -> None:
    ids = talk(store, 9)
    compact(store, "s", 3, summary="S1")
    compact(store, "s", 7, summary="S2")
    store.messages.rewind("s", ids[4])
    branch = store.sessions.branch("s", at_message_id=ids[3]).id
    store.messages.restore("s")
    assert contents(store, branch) == ["S1\n\nm3", "m4"]
    assert contents(store) == ["S2\n\nm7", "m8", "m9"]
