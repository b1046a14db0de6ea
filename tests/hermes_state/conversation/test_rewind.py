"""Taking back, and taking that back (invariants G.14, G.15; weaknesses H.6, H.16)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hermes_state import open_store
from hermes_state.errors import Corrupt, InvalidInput, NotFound, SessionReplaced
from hermes_state.store import Store
from hermes_state.testing import temporary_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(path=tmp_path / "state.db") as opened:
        opened.sessions.create(id="s", source="cli")
        yield opened


def talk(store: Store, *texts: str) -> list[int]:
    """Messages in turn of a user and an assistant."""
    return store.messages.append_many("s", [
        {"role": "assistant" if number % 2 else "user", "content": text} for number, text in enumerate(texts)
    ])


def shown(store: Store) -> list[Any]:
    return [message.content for message in store.messages.history("s").messages]


def sent(store: Store) -> list[Any]:
    return [message["content"] for message in store.messages.context("s")]


def compact(store: Store, first: int, last: int) -> int:
    def work(tx: Any) -> int:
        tx.execute(
            "INSERT INTO view_edits (session_no, action, from_seq, to_seq, made_at) VALUES (1, 'compact', ?, ?, 0)",
            (first, last),
        )
        return int(tx.last_insert_rowid())

    return store.core.write(work)


def test_a_rewind_hides_the_message_and_all_that_follows(store: Store) -> None:
    ids = talk(store, "a", "b", "c", "d")
    rewound = store.messages.rewind("s", ids[2], reason="typo")

    assert (shown(store), sent(store)) == (["a", "b"], ["a", "b"])
    assert (rewound.hidden, rewound.target.content, rewound.head_id) == (2, "c", ids[1])
    talk(store, "e")
    assert shown(store) == ["a", "b", "e"]


def test_a_rewind_of_any_length_is_one_row_and_touches_no_message(store: Store) -> None:
    ids = talk(store, *[str(number) for number in range(200)])

    def rows() -> list[tuple[Any, ...]]:
        with store.core.reader() as reader:
            return reader.rows("SELECT * FROM messages ORDER BY id")

    before = rows()
    store.messages.rewind("s", ids[100])
    with store.core.reader() as reader:
        edits = reader.rows("SELECT action, from_seq, to_seq FROM view_edits")
    assert (edits, rows() == before, len(shown(store))) == ([("rewind", 101, 200)], True, 50)


def test_a_second_rewind_to_the_same_message_hides_nothing_twice(store: Store) -> None:
    ids = talk(store, "a", "b", "c")
    store.messages.rewind("s", ids[2])
    again = store.messages.rewind("s", ids[2])
    assert (again.edit_id, again.hidden, again.target.content) == (None, 0, "c")

    talk(store, "d")
    third = store.messages.rewind("s", ids[2])
    assert (third.hidden, shown(store)) == (1, ["a", "b"])


def test_only_a_user_message_of_the_session_can_be_rewound_to(store: Store) -> None:
    store.sessions.create(id="t", source="cli")
    other = store.messages.append("t", role="user", content="x")
    ids = talk(store, "a", "b")

    with pytest.raises(InvalidInput) as wrong:
        store.messages.rewind("s", ids[1])
    assert str(wrong.value) == f"Message {ids[1]} of session 's' in {store.path} is of role assistant."
    for message_id in (other, 10**9):
        with pytest.raises(NotFound) as missing:
            store.messages.rewind("s", message_id)
        assert str(missing.value) == f"Message {message_id} is not in session 's' of {store.path}."
    assert shown(store) == ["a", "b"]


def test_a_restore_shows_again_what_its_rewind_hid(store: Store) -> None:
    ids = talk(store, "a", "b", "c", "d")
    rewound = store.messages.rewind("s", ids[2])
    talk(store, "e")

    assert store.messages.restore("s") == 2
    assert shown(store) == ["a", "b", "c", "d", "e"]
    assert store.messages.restore("s") == 0
    assert store.messages.restore("s", rewound.edit_id) == 0


def test_what_two_rewinds_hide_is_seen_again_when_both_are_undone(store: Store) -> None:
    ids = talk(store, "a", "b", "c", "d", "e")
    inner = store.messages.rewind("s", ids[4])
    outer = store.messages.rewind("s", ids[2])

    assert store.messages.restore("s", inner.edit_id) == 0
    assert store.messages.restore("s", outer.edit_id) == 3
    assert shown(store) == ["a", "b", "c", "d", "e"]


def test_a_restore_without_an_edit_undoes_the_latest_rewind(store: Store) -> None:
    ids = talk(store, "a", "b", "c", "d", "e")
    store.messages.rewind("s", ids[4])
    store.messages.rewind("s", ids[2])

    assert (store.messages.restore("s"), shown(store)) == (2, ["a", "b", "c", "d"])
    assert (store.messages.restore("s"), shown(store)) == (1, ["a", "b", "c", "d", "e"])


def test_a_restore_does_not_revive_what_was_compacted_h_16(store: Store) -> None:
    ids = talk(store, "a", "b", "c", "d")
    store.messages.rewind("s", ids[2])
    edit_id = compact(store, 1, 3)
    assert store.messages.restore("s") == 2

    assert (shown(store), sent(store)) == (["a", "b", "c", "d"], ["d"])
    with pytest.raises(InvalidInput) as caught:
        store.messages.restore("s", edit_id)
    assert str(caught.value) == f"Edit {edit_id} of session 's' in {store.path} is a compact, not a rewind."
    with pytest.raises(NotFound) as missing:
        store.messages.restore("s", 999)
    assert str(missing.value) == f"Session 's' of {store.path} has no edit 999."


def test_a_message_appended_while_a_compaction_runs_stays_in_the_context_h_15(store: Store) -> None:
    talk(store, "a", "b", "c")
    snapshot = len(store.messages.context("s"))
    store.messages.append("s", role="user", content="meanwhile")
    compact(store, 1, snapshot)

    assert sent(store) == ["meanwhile"]


def test_a_replaced_session_is_not_rewound(store: Store) -> None:
    ids = talk(store, "a")
    store.sessions.continue_as("s")
    with pytest.raises(SessionReplaced):
        store.messages.rewind("s", ids[0])
    with pytest.raises(SessionReplaced):
        store.messages.restore("s")


@settings(max_examples=15, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck))
class Views(RuleBasedStateMachine):
    """The view of a session against a model that keeps a set for each edit."""

    def __init__(self) -> None:
        super().__init__()
        self.opened = temporary_store()
        self.store = self.opened.__enter__()
        self.store.sessions.create(id="s", source="cli")
        self.rows: dict[int, int] = {}  # id by seq
        self.seq = 0
        self.rewinds: dict[int, set[int]] = {}
        self.compacted: set[int] = set()

    def teardown(self) -> None:
        self.opened.__exit__(None, None, None)

    def live(self) -> list[int]:
        hidden = set().union(*self.rewinds.values()) if self.rewinds else set()
        return [seq for seq in sorted(self.rows) if seq not in hidden]

    @rule(count=st.integers(1, 3))
    def append(self, count: int) -> None:
        for message_id in self.store.messages.append_many("s", [{"role": "user", "content": "x"}] * count):
            self.seq += 1
            self.rows[self.seq] = message_id

    @rule(pick=st.integers(0, 50))
    def rewind(self, pick: int) -> None:
        if self.rows:
            seq = sorted(self.rows)[pick % len(self.rows)]
            gone = {one for one in self.live() if one >= seq}
            rewound = self.store.messages.rewind("s", self.rows[seq])
            assert rewound.hidden == len(gone)
            if rewound.edit_id is not None:
                self.rewinds[rewound.edit_id] = set(range(seq, max(self.rows) + 1))

    @rule(pick=st.integers(0, 50))
    def restore(self, pick: int) -> None:
        if self.rewinds:
            edit_id = sorted(self.rewinds)[pick % len(self.rewinds)]
            before = len(self.live())
            del self.rewinds[edit_id]
            assert self.store.messages.restore("s", edit_id) == len(self.live()) - before

    @rule(first=st.integers(1, 10), length=st.integers(0, 4))
    def compact(self, first: int, length: int) -> None:
        if first + length <= self.seq:
            compact(self.store, first, first + length)
            self.compacted |= set(range(first, first + length + 1))

    @rule(pick=st.integers(0, 50), newest=st.booleans())
    def delete(self, pick: int, newest: bool) -> None:
        if self.rows:
            seq = max(self.rows) if newest else sorted(self.rows)[pick % len(self.rows)]
            assert self.store.messages.delete("s", [self.rows.pop(seq)], reason="test", actor="me") == 1

    @invariant()
    def views_agree(self) -> None:
        live = [self.rows[seq] for seq in self.live()]
        page = self.store.messages.history("s", after=0, limit=1000)
        assert [message.id for message in page.messages] == live
        assert self.store.messages.count("s") == len(live)
        sent = [self.rows[seq] for seq in self.live() if seq not in self.compacted]
        assert len(self.store.messages.context("s")) == self.store.messages.count("s", live=True) == len(sent)
        assert self.store.sessions.get("s").message_count == len(self.rows) == self.store.messages.count()


TestViews = pytest.mark.slow(Views.TestCase)


def test_a_damaged_body_is_not_in_the_way_of_a_rewind(store: Store) -> None:
    ids = fill_with_damage(store)
    rewound = store.messages.rewind("s", ids[1])
    assert (rewound.hidden, rewound.head_id, rewound.target.id) == (1, ids[0], ids[1])
    assert rewound.target.content == "b" * 240
    with pytest.raises(Corrupt):
        store.messages.get(ids[1])


def fill_with_damage(store: Store) -> list[int]:
    """Two messages with large bodies, both damaged."""
    ids = [store.messages.append("s", role="user", content=one * 20_000) for one in "ab"]
    store.core.write(lambda tx: tx.execute("UPDATE bodies SET frame = x'00'"))
    return ids
