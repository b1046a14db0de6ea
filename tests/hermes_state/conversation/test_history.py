"""Paging through what was said."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes_state import open_store
from hermes_state.conversation.append import insert_many, prepare
from hermes_state.conversation.fields import encode
from hermes_state.conversation.records import CARRIED_FROM, Page
from hermes_state.conversation.session_rows import session_no
from hermes_state.engine.transaction import Transaction
from hermes_state.errors import InvalidInput, NotFound, SessionNotFound
from hermes_state.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(path=tmp_path / "state.db") as opened:
        opened.sessions.create(id="s", source="cli")
        yield opened


def fill(store: Store, count: int, session_id: str = "s", start: int = 1) -> list[int]:
    return store.messages.append_many(
        session_id, [{"role": "user", "content": number} for number in range(start, start + count)]
    )


def said(page: Page) -> list[Any]:
    return [message.content for message in page.messages]


def edit(store: Store, action: str, first: int, last: int) -> None:
    store.core.write(lambda tx: tx.execute(
        "INSERT INTO view_edits (session_no, action, from_seq, to_seq, made_at) SELECT no, ?, ?, ?, 0 FROM sessions"
        " WHERE id = 's'", (action, first, last),
    ))


def test_pages_go_back_from_the_newest(store: Store) -> None:
    ids = fill(store, 10)
    first = store.messages.history("s", limit=4)
    second = store.messages.history("s", limit=4, before=first.next)
    third = store.messages.history("s", limit=4, before=second.next)

    assert (said(first), said(second), said(third)) == ([7, 8, 9, 10], [3, 4, 5, 6], [1, 2])
    assert (first.next, second.next, third.next) == (ids[6], ids[2], None)


def test_pages_go_forward_from_a_message(store: Store) -> None:
    ids = fill(store, 10)
    first = store.messages.history("s", limit=4, after=0)
    second = store.messages.history("s", limit=4, after=first.next)
    third = store.messages.history("s", limit=4, after=second.next)

    assert (said(first), said(second), said(third)) == ([1, 2, 3, 4], [5, 6, 7, 8], [9, 10])
    assert (first.next, third.next) == (ids[3], None)
    assert said(store.messages.history("s", after=ids[2], before=ids[6])) == [4, 5, 6]
    assert said(store.messages.history("s", after=ids[9])) == []


def test_a_message_says_everything_it_was_given(store: Store) -> None:
    message_id = store.messages.append(
        "s", role="assistant", content="hi", tool_calls=[{"id": "1"}], finish_reason="stop", token_count=3,
        reasoning="r", platform_message_id="p", client_key="k", at=12.5, extra={"a": None}, tool_name="t",
        tool_call_id="c",
    )
    found = store.messages.get(message_id)

    assert found == store.messages.history("s").messages[0] == store.messages.around("s", message_id).messages[0]
    assert {name: getattr(found, name) for name in found.__dataclass_fields__} == {
        "id": message_id, "session_id": "s", "seq": 1, "role": "assistant", "content": "hi",
        "tool_calls": [{"id": "1"}], "tool_call_id": "c", "tool_name": "t", "finish_reason": "stop",
        "token_count": 3, "reasoning": "r",
        "platform_message_id": "p", "client_key": "k", "created_at": 12.5, "extra": {"a": None}, "hidden": None,
    }


def test_compacted_messages_are_shown_and_rewound_ones_only_when_asked_for(store: Store) -> None:
    ids = fill(store, 6)
    edit(store, "compact", 1, 2)
    edit(store, "rewind", 4, 5)

    assert said(store.messages.history("s")) == [1, 2, 3, 6]
    page = store.messages.history("s", include_rewound=True)
    assert [(message.content, message.hidden) for message in page.messages] == [
        (1, "compact"), (2, "compact"), (3, None), (4, "rewind"), (5, "rewind"), (6, None)
    ]
    assert store.messages.get(ids[3]).hidden == "rewind"
    assert (store.messages.count("s"), store.messages.count("s", live=True), store.messages.count()) == (4, 2, 6)


def test_a_cursor_that_was_deleted_or_rewound_still_marks_its_place(store: Store) -> None:
    ids = fill(store, 9)
    store.messages.delete("s", [ids[4]], reason="test", actor="me")
    edit(store, "rewind", 7, 7)

    assert said(store.messages.history("s", after=ids[4])) == [6, 8, 9]
    assert said(store.messages.history("s", before=ids[4])) == [1, 2, 3, 4]
    assert said(store.messages.history("s", after=ids[6])) == [8, 9]
    assert said(store.messages.history("s", before=ids[6])) == [1, 2, 3, 4, 6]
    assert said(store.messages.history("s", before=10**9)) == [1, 2, 3, 4, 6, 8, 9]


# --- the whole conversation (reports 113, 114) -------------------------------------------------------------------


def test_a_chain_is_shown_from_its_root_to_its_tip_in_order(store: Store) -> None:
    current, last = "s", 0
    for segment in range(5):
        fill(store, 11, current, last + 1)
        last += 11
        if segment < 4:
            current = store.sessions.continue_as(current).id

    for asked in ("s", current):
        pages: list[Any] = []
        cursor = 0
        while True:
            page = store.messages.history(asked, after=cursor, limit=7, chain=True)
            pages += said(page)
            if page.next is None:
                break
            cursor = page.next
        assert pages == list(range(1, 56))
        assert said(store.messages.history(asked, limit=3, chain=True)) == [53, 54, 55]
    assert said(store.messages.history(current)) == list(range(45, 56))


def test_a_message_that_was_carried_over_is_shown_once(store: Store) -> None:
    first = store.messages.append("s", role="user", content="kept")
    tip = store.sessions.continue_as("s")
    store.messages.append(tip.id, role="assistant", content="summary")
    (again,) = carry(store, tip.id, "kept", first)

    assert said(store.messages.history(tip.id, chain=True)) == ["kept", "summary"]
    assert [message["content"] for message in store.messages.context(tip.id)] == ["summary", "kept"]
    assert (said(store.messages.history(tip.id)), store.messages.count(tip.id)) == (["summary"], 1)
    assert store.messages.count(tip.id, live=True) == 2
    with pytest.raises(NotFound) as caught:
        store.messages.around(tip.id, again)
    assert str(caught.value) == f"Message {again} is not to be seen in session {tip.id!r} of {store.path}."


def test_a_message_that_was_carried_over_is_shown_when_the_one_it_repeats_is_gone(store: Store) -> None:
    first = store.messages.append("s", role="user", content="kept")
    tip = store.sessions.continue_as("s")
    carry(store, tip.id, "kept", first)
    store.sessions.delete("s", actor="a", reason="r")

    assert (said(store.messages.history(tip.id)), store.messages.count(tip.id)) == (["kept"], 1)


def carry(store: Store, session_id: str, text: str, repeated: int) -> list[int]:
    """What a compression does; nobody else may."""
    extra = {CARRIED_FROM: repeated}

    def work(tx: Transaction) -> list[int]:
        no = session_no(tx, session_id)
        return insert_many(tx, session_id, no, [prepare(no, encode(1.0, "user", text, extra=extra), None)])

    return store.core.write(work)


def test_the_history_of_a_branch_has_what_it_shares(store: Store) -> None:
    ids = fill(store, 5)
    branch = store.sessions.branch("s", at_message_id=ids[2])
    fill(store, 2, branch.id, 100)

    page = store.messages.history(branch.id, limit=4)
    assert (said(page), page.next) == ([2, 3, 100, 101], ids[1])
    assert said(store.messages.history(branch.id, before=page.next)) == [1]
    assert [message.session_id for message in page.messages] == ["s", "s", branch.id, branch.id]


# --- around ------------------------------------------------------------------------------------------------------


def test_a_message_is_shown_with_its_neighbours_by_order_not_by_time(store: Store) -> None:
    ids = [store.messages.append("s", role="user", content=n, at=float(1000 - n)) for n in range(20)]
    window = store.messages.around("s", ids[10], window=2)

    assert [message.content for message in window.messages] == [8, 9, 10, 11, 12]
    assert (window.anchor, window.more_before, window.more_after) == (2, True, True)


def test_a_window_ends_where_the_session_does(store: Store) -> None:
    ids = fill(store, 3)
    window = store.messages.around("s", ids[0], window=5)

    assert [message.content for message in window.messages] == [1, 2, 3]
    assert (window.anchor, window.more_before, window.more_after) == (0, False, False)
    assert [message.content for message in store.messages.around("s", ids[1], window=0).messages] == [2]


def test_a_message_that_is_not_to_be_seen_has_no_window(store: Store) -> None:
    store.sessions.create(id="t", source="cli")
    other = store.messages.append("t", role="user", content="x")
    ids = fill(store, 3)
    edit(store, "rewind", 3, 3)

    for message_id in (other, ids[2], 10**9):
        with pytest.raises(NotFound) as caught:
            store.messages.around("s", message_id)
        assert str(caught.value) == f"Message {message_id} is not to be seen in session 's' of {store.path}."
    assert [m.content for m in store.messages.around("s", ids[2], include_rewound=True).messages] == [1, 2, 3]


# --- one, many, errors -------------------------------------------------------------------------------------------


def test_what_is_not_there_is_named(store: Store) -> None:
    with pytest.raises(NotFound) as caught:
        store.messages.get(7)
    assert str(caught.value) == f"There is no message 7 in {store.path}."
    for read in (store.messages.history, store.messages.count, lambda s: store.messages.find_platform_id(s, "1")):
        with pytest.raises(SessionNotFound):
            read("nope")
    for wrong in (0, -1, True, "5"):
        with pytest.raises(InvalidInput):
            store.messages.history("s", limit=wrong)  # type: ignore[arg-type]


@pytest.mark.slow
@given(
    sizes=st.lists(st.integers(0, 6), min_size=1, max_size=4), limit=st.integers(1, 7),
    edits=st.lists(st.tuples(st.integers(1, 6), st.integers(0, 3)), max_size=3),
)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_pages_of_any_size_show_every_message_once_both_ways(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], limit: int, edits: list[tuple[int, int]]
) -> None:
    with open_store(path=tmp_path_factory.mktemp("pages") / "state.db") as store:
        store.sessions.create(id="s", source="cli")
        current, total = "s", 0
        for number, size in enumerate(sizes):
            if number:
                current = store.sessions.continue_as(current).id
            fill(store, size, current, total)
            total += size
        for first, length in edits:
            edit(store, "rewind", first, first + length)
        hidden = {p - 1 for first, length in edits for p in range(first, first + length + 1) if p <= sizes[0]}
        expected = [number for number in range(total) if number not in hidden]

        forward: list[Any] = []
        cursor: int | None = 0
        while cursor is not None:
            page = store.messages.history("s", after=cursor, limit=limit, chain=True)
            forward, cursor = forward + said(page), page.next
        back: list[Any] = []
        page = store.messages.history("s", limit=limit, chain=True)
        while True:
            back = said(page) + back
            if page.next is None:
                break
            page = store.messages.history("s", limit=limit, before=page.next, chain=True)
    assert forward == back == expected
