"""What a model gets of a session that was compacted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_state import open_store
from hermes_state.compaction.clips import BodyClip, Clip
from hermes_state.compaction.generations import generations_of, hidden_by, live_view, recover
from hermes_state.errors import NotFound
from hermes_state.store import Store
from tests.support.children import Children
from tests.support.compacting import compact, contents, talk, view_of

SHORT = Clip(bodies=(BodyClip(path=("content",), kind="text", head=3, tail=3),))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(path=tmp_path / "state.db") as opened:
        yield opened


def number_of(store: Store, session_id: str = "s") -> int:
    with store.core.reader() as reader:
        return int(reader.rows("SELECT no FROM sessions WHERE id = ?", (session_id,))[0][0])


def test_a_session_that_was_never_compacted_is_seen_whole(store: Store) -> None:
    ids = talk(store, 3)
    view = view_of(store, "s")
    assert view.messages == store.messages.context("s")
    assert (view.positions, view.ids, view.row_ids) == ((1, 2, 3), tuple(ids), tuple(ids))
    assert (view.generation, view.summary, view.summary_at) == (None, None, None)
    assert (view.head_id, view.head_moves, view.edit_mark, view.watermark, view.turn) == (None, 0, 0, 3, 2)


def test_the_view_is_the_summary_the_anchors_and_the_tail(store: Store) -> None:
    ids = talk(store, 8)
    compact(store, "s", 6, anchors=(3,), summary="S")
    view = view_of(store, "s")
    assert contents(store) == ["S\n\nm3", "m6", "m7", "m8"]
    assert view.positions == (3, 6, 7, 8)
    assert view.ids == (ids[2], ids[5], ids[6], ids[7])
    assert (view.summary, view.summary_at, view.watermark, view.turn) == ("S", 0, 8, 4)
    store.messages.append("s", role="user", content="m9")
    assert contents(store) == ["S\n\nm3", "m6", "m7", "m8", "m9"]
    assert view_of(store, "s").turn == 5


def test_a_summary_before_an_answer_has_no_position(store: Store) -> None:
    talk(store, 4)
    compact(store, "s", 4, summary="S")
    view = view_of(store, "s")
    assert contents(store) == ["S", "m4"]
    assert (view.positions, view.summary_at) == ((None, 4), 0)


def test_between_two_passes_each_context_begins_with_the_one_before(store: Store) -> None:
    talk(store, 6)
    compact(store, "s", 5, summary="S")
    for number in range(7, 12):
        before = store.messages.context("s")
        store.messages.append("s", role="user" if number % 2 else "assistant", content=f"m{number}")
        assert store.messages.context("s")[:-1] == before


def test_a_generation_may_only_shorten_and_shows_the_summary_before_it(store: Store) -> None:
    talk(store, 6)
    compact(store, "s", 4, summary="S")
    body = store.messages.append("s", role="assistant", content="begin" + "x" * 5000 + "end")
    made = compact(store, "s", 4, summary=None, clips={7: SHORT})
    assert (made.generation, made.form, made.source_rows, made.summary) == (2, "none", 0, None)
    shown = contents(store)
    assert shown[:-1] == ["S", "m4", "m5", "m6"]
    assert shown[-1].startswith("beg") and shown[-1].endswith("end") and "recover(7)" in shown[-1]
    with store.core.reader() as reader:
        whole = recover(reader, number_of(store), 7)
    assert (whole.id, whole.content) == (body, "begin" + "x" * 5000 + "end")


def test_what_a_generation_shortens_stays_so_while_it_is_shown(store: Store) -> None:
    talk(store, 4)
    store.messages.append("s", role="assistant", content="begin" + "x" * 5000 + "end")
    compact(store, "s", 3, summary="S", clips={5: SHORT})
    shortened = contents(store)[-1]
    compact(store, "s", 5, summary="S2")
    assert contents(store) == ["S2", shortened]
    talk_on = store.messages.append("s", role="user", content="next")
    compact(store, "s", 6, summary="S3")
    assert view_of(store, "s").clips == {}
    assert view_of(store, "s").ids == (talk_on,)


def test_the_row_alone_is_shown_whole_again_after_going_to_a_generation_without_the_clip(store: Store) -> None:
    talk(store, 4)
    compact(store, "s", 3, summary="S")
    compact(store, "s", 3, summary=None, clips={4: SHORT})
    assert view_of(store, "s", as_of=1).clips == {}
    assert view_of(store, "s", as_of=0).messages == [
        {"role": "user" if number % 2 else "assistant", "content": f"m{number}"} for number in range(1, 5)
    ]


def test_rows_below_the_cut_are_not_read(store: Store) -> None:
    talk(store, 300)
    compact(store, "s", 297, anchors=(7,), summary="S")
    counted = _Counting(store)
    with store.core.reader() as reader, reader.snapshot():
        view = live_view(counted.over(reader), number_of(store))
    assert view.positions == (7, 297, 298, 299, 300)
    assert counted.rows_of_messages == 5


class _Counting:
    """A reader that counts the rows it gives of the table of messages."""

    def __init__(self, store: Store) -> None:
        self.path = store.path
        self.rows_of_messages = 0
        self._reader: Any = None

    def over(self, reader: Any) -> Any:
        self._reader = reader
        return self

    def rows(self, sql: str, params: Any = ()) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self._reader.rows(sql, params)
        if " FROM messages WHERE" in sql and "max(seq)" not in sql:
            self.rows_of_messages += len(found)
        return found

    def row(self, sql: str, params: Any = ()) -> tuple[Any, ...] | None:
        found = self.rows(sql, params)
        return found[0] if found else None


def test_history_shows_everything_and_says_what_is_no_longer_sent(store: Store) -> None:
    talk(store, 6)
    compact(store, "s", 4, anchors=(2,), summary="S")
    assert [(one.seq, one.hidden) for one in store.messages.history("s").messages] == [
        (1, "compact"), (2, None), (3, "compact"), (4, None), (5, None), (6, None),
    ]
    assert (store.messages.count("s"), store.messages.count("s", live=True)) == (6, 4)
    assert store.messages.get(store.messages.history("s").messages[0].id).hidden == "compact"


def test_the_generation_that_took_a_message_out_first_is_named(store: Store) -> None:
    ids = talk(store, 9)
    compact(store, "s", 4, anchors=(2,), summary="S")
    compact(store, "s", 8, summary="S2")
    store.messages.rewind("s", ids[8])
    with store.core.reader() as reader:
        assert hidden_by(reader, number_of(store), range(1, 12)) == {1: 1, 2: 2, 3: 1, 4: 2, 5: 2, 6: 2, 7: 2}
        assert hidden_by(reader, number_of(store), []) == {}


def test_a_message_is_recovered_whatever_hides_it_until_it_is_deleted(store: Store) -> None:
    ids = talk(store, 6)
    compact(store, "s", 4, summary="S")
    store.messages.rewind("s", ids[4])
    with store.core.reader() as reader:
        no = number_of(store)
        assert [recover(reader, no, seq).content for seq in (1, 5, 6)] == ["m1", "m5", "m6"]
    store.messages.delete("s", [ids[5]], actor="test", reason="a test")
    with store.core.reader() as reader, pytest.raises(NotFound) as caught:
        recover(reader, no, 6)
    assert caught.value.message == f"Session 's' of {store.path} has no message 6."
    assert caught.value.hint == "It was deleted, or never was here; history shows what is there."


def test_an_unknown_generation_is_named(store: Store) -> None:
    talk(store, 4)
    compact(store, "s", 3)
    with pytest.raises(NotFound) as caught:
        view_of(store, "s", as_of=2)
    assert caught.value.message == (
        f"Session 's' of {store.path} has no generation 2 that it can be seen through."
    )
    assert caught.value.facts["generation"] == 2


def test_generations_are_listed_with_what_they_were_made_with(store: Store) -> None:
    talk(store, 6)
    compact(store, "s", 3, summary="S")
    compact(store, "s", 5, summary="S2")
    with store.core.reader() as reader:
        first, second = generations_of(reader, number_of(store))
    assert (first.generation, first.state, first.cut_at, first.source_rows, first.parent_id) == (1, "done", 3, 2, None)
    assert (second.generation, second.parent_id, second.source_rows, second.watermark) == (2, first.id, 2, 6)
    assert (second.window, second.tokenizer, second.tokens_before, second.tokens_after) == (8192, "words", 900, 300)
    record = second.document()
    assert (record["summary"], record["anchors"], record["form"], record["summarizer"]) == ("S2", [], "model", "test")


def test_a_store_that_was_never_compacted_loads_nothing_of_compaction(tmp_path: Path, child: Children) -> None:
    child(
        """
        import sys
        from hermes_state import open_store

        with open_store(path=sys.argv[1]) as store:
            store.sessions.create(id="s", source="cli")
            said = [store.messages.append("s", role="user", content=f"m{number}") for number in range(3)]
            store.messages.rewind("s", said[2])
            store.sessions.branch("s", new_id="b")
            assert len(store.messages.context("s")) == len(store.messages.history("b", chain=True).messages) == 2
            store.messages.delete("s", said[:1], actor="test", reason="a test")
            store.sessions.delete("b", actor="test", reason="a test")
        assert [name for name in sys.modules if name.startswith("hermes_state.compaction")] == []
        """,
        tmp_path / "state.db",
    ).finish()
