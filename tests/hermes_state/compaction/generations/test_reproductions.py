"""Reproductions of facts/compaction.md under their numbers: P1 to P5 (2a) and 24 to 29 (5), as far as rows decide them.

25 (an interrupted summary) ends in the same rows as 26: nothing but a running row is there before the commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_state import open_store
from hermes_state.clock import FakeClock
from hermes_state.compaction.generations import Watch, commit, fail, generations_of, rollback, rotate
from hermes_state.owners import Presence
from hermes_state.store import Store
from tests.support.compacting import begun, compact, contents, made, talk, view_of


@pytest.fixture
def store(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Store]:
    with open_store(path=tmp_path / "state.db") as opened:
        yield opened


def test_P1_and_24_what_is_appended_during_a_summary_is_in_the_live_view(store: Store) -> None:
    talk(store, 10)
    running = begun(store, "s", 11)  # the plan takes up everything there was
    store.messages.append("s", role="user", content="URGENT: stop the deploy")
    appended = [f"row {number}" for number in range(229)]
    store.messages.append_many("s", [{"role": "tool", "content": text} for text in appended])
    assert commit(store.core, running, made("S")).state == "done"
    late = [f"[Late result of a tool call that is in the summary:]\n\n{text}" for text in appended]
    assert contents(store) == ["\n\n".join(["S", "URGENT: stop the deploy", *late])]
    assert [one.content for one in store.messages.history("s", limit=300).messages][11:] == appended
    assert view_of(store, "s").row_positions == tuple(range(11, 241))


def test_P2_and_28_messages_stay_one_row_and_one_hit_through_fifty_generations(store: Store) -> None:
    talk(store, 200)
    store.messages.append("s", role="user", content="the needle is 4471")
    for number in range(50):
        assert compact(store, "s", 4 + number * 4, anchors=(1,), summary=f"S{number}").state == "done"
    assert store.messages.count() == 201
    assert [hit.seq for hit in store.search("needle")] == [201]
    assert len(store.search('"m7"')) == 1
    with store.core.reader() as reader:
        assert len(generations_of(reader, 1)) == 50
        assert reader.rows("SELECT count(*) FROM compaction_heads")[0][0] == 1


def test_P3_and_P4_a_rotation_is_there_whole_or_not_at_all(store: Store) -> None:
    talk(store, 8)
    compact(store, "s", 6, summary="S")
    before = store.messages.context("s")
    store.core.write(lambda tx: tx.execute(
        "CREATE TRIGGER broken BEFORE INSERT ON compaction_heads BEGIN SELECT RAISE(ABORT, 'killed here'); END"
    ))
    with pytest.raises(Exception, match="killed here"):
        rotate(store.core, "s", "child")
    assert (store.sessions.get("s").state, store.messages.context("s")) == ("open", before)
    assert [one.id for one in store.sessions.list()] == ["s"]
    store.core.write(lambda tx: tx.execute("DROP TRIGGER broken"))
    rotate(store.core, "s", "child")
    assert store.messages.context("child") == before


def test_P5_and_26_a_dead_maker_is_not_waited_for(store: Store) -> None:
    talk(store, 8)
    maker = Presence(store.path.parent, clock=store.core.clock)
    begun(store, "s", 6, watch=Watch(store.core, presence=maker))
    maker.end()
    assert compact(store, "s", 6, summary="S").state == "done"
    with store.core.reader() as reader:
        assert [one.state for one in generations_of(reader, 1)] == ["failed", "done"]


def test_25_an_interrupted_summary_takes_nothing_out(store: Store) -> None:
    talk(store, 8)
    running = begun(store, "s", 6)
    store.messages.append("s", role="user", content="wait, one more thing")
    fail(store.core, running, KeyboardInterrupt())
    assert contents(store) == [*(f"m{number}" for number in range(1, 9)), "wait, one more thing"]


def test_27_the_list_in_memory_adds_nothing_when_it_is_flushed_after_the_commit(store: Store) -> None:
    store.sessions.create(id="s", source="cli")
    roles = ("assistant", "user")
    memory = [
        {"role": roles[number % 2], "content": f"m{number} " + "x" * 2000, "client_key": f"k{number}"}
        for number in range(1, 30)
    ]
    ids = store.messages.append_many("s", memory)
    compact(store, "s", 25, anchors=(1,), summary="S")
    view = view_of(store, "s")
    # What a flush layer needs to mark its list: which of the messages that it now sends are stored, and as what.
    assert view.ids == (ids[0], *ids[24:])
    assert view.positions == (1, 25, 26, 27, 28, 29)
    memory.append({"role": "assistant", "content": "the next answer", "client_key": "k30"})
    stored = store.messages.append_many("s", memory)
    assert stored[:-1] == ids
    assert store.messages.append_many("s", memory) == stored
    assert store.messages.count() == 30
    rollback(store.core, "s", 0)
    assert store.messages.append_many("s", memory) == stored


def test_29_there_is_one_summary_in_a_view_and_none_in_the_rows(store: Store) -> None:
    talk(store, 12)
    for cut, summary in ((4, "first"), (6, "first and second"), (9, "all three")):
        compact(store, "s", cut, summary=summary)
    shown = contents(store)
    assert shown == ["all three\n\nm9", "m10", "m11", "m12"]
    assert [one.content for one in store.messages.history("s").messages] == [f"m{n}" for n in range(1, 13)]
    assert [one.role for one in store.messages.history("s").messages] == ["user", "assistant"] * 6
