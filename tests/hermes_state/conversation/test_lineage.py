"""Walks between sessions: which is the tip, what a conversation is made of, and that every walk ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_state.conversation.lineage import (
    Segment,
    chain_numbers,
    conversation_segments,
    is_ancestor,
    root_no,
    segments,
    tip_no,
)
from hermes_state.store import Store
from hermes_state.testing import temporary_store

BASE = 1_800_000_000.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with temporary_store(tmp_path) as opened:
        yield opened


def plant(store: Store, *rows: tuple[int, int | None, str | None, str], started: float = BASE) -> None:
    """Rows as an import may bring them: (number, parent number, relation, state)."""

    def work(tx) -> None:  # type: ignore[no-untyped-def]
        for no, _parent, _relation, state in rows:
            ended = None if state == "open" else started + no
            tx.execute(
                "INSERT INTO sessions (no, id, source, state, started_at, active_at, ended_at)"
                " VALUES (?, ?, 'cli', ?, ?, ?, ?)", (no, f"s{no}", state, started + no, started + no, ended),
            )
        for no, parent, relation, _state in rows:
            tx.execute("UPDATE sessions SET parent_no = ?, relation = ? WHERE no = ?", (parent, relation, no))

    store.core.write(work)


def test_a_chain_of_five_hundred_compressions_leads_to_its_real_tip(store: Store) -> None:
    plant(store, (1, None, None, "replaced"), *[(n, n - 1, "continuation", "replaced") for n in range(2, 501)],
          (501, 500, "continuation", "open"))
    assert store.sessions.tip("s1").id == "s501"
    assert [one.no for one in store.sessions.lineage("s250")] == list(range(1, 502))
    (entry,) = store.sessions.list()
    assert (entry.id, entry.root_id, entry.sessions, entry.started_at) == ("s501", "s1", 501, BASE + 1)


def test_a_conversation_of_four_segments_goes_on_at_its_tip_and_is_shown_whole(store: Store) -> None:
    """Reports 113 and 114: resumed as an empty chat under its old id, or with its last segment only."""
    ids = [store.sessions.create(id="a", source="cli").id]
    for segment in range(4):
        rows = [{"role": "user", "content": f"{segment}.{number}"} for number in range(5)]
        store.messages.append_many(ids[-1], rows)
        if segment < 3:
            ids.append(store.sessions.continue_as(ids[-1]).id)
    said = [f"{segment}.{number}" for segment in range(4) for number in range(5)]
    for known in ids:
        tip = store.sessions.tip(known)
        assert (tip.id, tip.message_count) == (ids[-1], 5)
        assert [one.content for one in store.messages.history(known, chain=True).messages] == said
    assert [one.id for one in store.sessions.lineage("a")] == ids
    (entry,) = store.sessions.list()
    assert (entry.id, entry.message_count, entry.preview) == (ids[-1], 20, "0.0")


def test_every_walk_ends_in_a_circle(store: Store) -> None:
    plant(store, (1, 3, "continuation", "replaced"), (2, 1, "continuation", "replaced"),
          (3, 2, "continuation", "replaced"), (4, 6, "branch", "open"), (5, 4, "branch", "open"),
          (6, 5, "branch", "open"), (7, 9, "delegate", "open"), (8, 7, "delegate", "open"), (9, 8, "delegate", "open"),
          (10, 3, "continuation", "open"))
    assert sorted(one.no for one in store.sessions.lineage("s1")) in ([1, 2, 3], [1, 2, 3, 10])
    assert store.sessions.tip("s2").no in (1, 2, 3, 10)
    with store.core.reader() as reader:
        assert [one.session_no for one in segments(reader, 4)] == [5, 6, 4]
        assert is_ancestor(reader, 7, 8) and is_ancestor(reader, 9, 8) and not is_ancestor(reader, 1, 8)
        assert root_no(reader, 10) in (1, 2, 3)
    assert store.sessions.count(include_children=True) == len(store.sessions.list(include_children=True))
    store.sessions.delete(["s7", "s1", "s4"], actor="test", reason="test")


def test_a_live_continuation_wins_over_closed_ones_however_young(store: Store) -> None:
    plant(store, (1, None, None, "replaced"), (2, 1, "continuation", "open"), (3, 1, "continuation", "ended"))
    assert store.sessions.tip("s1").id == "s2"
    plant(store, (4, 1, "continuation", "replaced"), (5, 4, "continuation", "open"))
    assert store.sessions.tip("s1").id == "s5"
    assert [one.id for one in store.sessions.list()] == ["s5"]
    assert store.sessions.count() == 1


def test_between_equal_states_the_latest_message_decides_then_the_start_then_the_number(store: Store) -> None:
    plant(store, (1, None, None, "replaced"), (2, 1, "continuation", "open"), (3, 1, "continuation", "open"))
    assert store.sessions.tip("s1").id == "s3"
    store.messages.append("s2", role="user", content="x", at=BASE + 50)
    assert store.sessions.tip("s1").id == "s2"
    store.messages.append("s3", role="user", content="x", at=BASE + 50)
    assert store.sessions.tip("s1").id == "s3"


def test_the_tip_does_not_depend_on_when_the_child_started(store: Store) -> None:
    plant(store, (1, None, None, "replaced"))
    plant(store, (2, 1, "continuation", "open"), started=BASE - 10_000)
    assert store.sessions.tip("s1").id == "s2"


@pytest.mark.parametrize("relation", ["branch", "delegate", "reset", "other"])
def test_only_continuations_are_walked(store: Store, relation: str) -> None:
    plant(store, (1, None, None, "ended"), (2, 1, relation, "open"))
    assert store.sessions.tip("s1").id == "s1"
    with store.core.reader() as reader:
        assert (root_no(reader, 2), tip_no(reader, 1), chain_numbers(reader, 2)) == (2, 1, [2])


def test_a_stale_sibling_shows_its_own_way(store: Store) -> None:
    plant(store, (1, None, None, "replaced"), (2, 1, "continuation", "open"), (3, 1, "continuation", "ended"))
    with store.core.reader() as reader:
        assert chain_numbers(reader, 3) == [1, 3]
        assert chain_numbers(reader, 1) == [1, 2]


def test_the_segments_of_a_conversation_are_its_sessions_with_what_the_first_shares(store: Store) -> None:
    store.sessions.create(id="a", source="cli")
    store.messages.append_many("a", [{"role": "user", "content": str(n)} for n in range(3)])
    edit = store.messages.rewind("a", 3).edit_id
    store.sessions.branch("a", at_message_id=2, new_id="b")
    store.messages.append("b", role="user", content="x")
    store.sessions.continue_as("b", new_id="c")
    numbers = {one.id: one.no for one in (store.sessions.get(id_) for id_ in "abc")}
    shared = Segment(session_no=numbers["a"], upto_seq=2, upto_edit=edit)
    with store.core.reader() as reader:
        assert segments(reader, numbers["a"]) == [Segment(session_no=numbers["a"])]
        assert segments(reader, numbers["b"]) == [shared, Segment(session_no=numbers["b"])]
        assert segments(reader, numbers["c"]) == [Segment(session_no=numbers["c"])]
        assert conversation_segments(reader, numbers["c"]) == [
            shared, Segment(session_no=numbers["b"]), Segment(session_no=numbers["c"]),
        ]


def test_an_older_edge_bounds_what_a_younger_branch_sees(store: Store) -> None:
    store.sessions.create(id="a", source="cli")
    store.messages.append_many("a", [{"role": "user", "content": str(n)} for n in range(3)])
    store.sessions.branch("a", new_id="b")
    store.messages.rewind("a", 2)
    store.sessions.branch("b", new_id="c")
    with store.core.reader() as reader:
        found = segments(reader, store.sessions.get("c").no)
    assert [(one.upto_seq, one.upto_edit) for one in found] == [(3, 0), (0, 1), (None, None)]
    assert [message["content"] for message in store.messages.context("c")] == ["0", "1", "2"]
