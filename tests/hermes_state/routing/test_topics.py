"""Direct chats whose topics are conversations: asked for, taken back, and nothing for a home that is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.errors import HomeRemoved, InvalidInput, StatementFailed
from hermes_state.store import Store, open_store


@pytest.fixture
def store(tmp_path: Path, fake_clock: FakeClock) -> Store:
    return open_store(tmp_path, clock=fake_clock)


def test_a_chat_has_topics_once_a_person_asked_for_them(store: Store, fake_clock: FakeClock) -> None:
    topics, home = store.routing.topics, store.routing.home
    assert topics.get("telegram", "7") is None
    made = topics.set("telegram", "7", home, user_id="ann", enabled=True, details={"pinned": "55"})
    assert (made.enabled, made.activated_at, made.details) == (True, fake_clock.now(), {"pinned": "55"})
    fake_clock.advance(60)
    assert topics.set("telegram", "7", home, user_id="ann", enabled=True) == made  # says the same, and writes nothing
    off = topics.set("telegram", "7", home, user_id="ann", enabled=False)
    assert (off.enabled, off.activated_at, off.updated_at) == (False, made.activated_at, fake_clock.now())
    again = topics.set("telegram", "7", home, user_id="bob", enabled=True, details={})
    assert (again.user_id, again.activated_at, again.details) == ("bob", fake_clock.now(), {})


def test_chats_are_paged_by_platform_and_id(store: Store) -> None:
    topics, home = store.routing.topics, store.routing.home
    for platform, chat_id in (("telegram", "9"), ("other", "1"), ("telegram", "10")):
        topics.set(platform, chat_id, home, user_id="", enabled=True)
    first = topics.page(limit=2)
    assert [(one.platform, one.chat_id) for one in first] == [("other", "1"), ("telegram", "10")]
    rest = topics.page(limit=2, after=("telegram", "10"))
    assert [one.chat_id for one in rest] == ["9"]


def test_what_cannot_be_kept_is_refused(store: Store) -> None:
    topics, home = store.routing.topics, store.routing.home
    with pytest.raises(InvalidInput, match="chat_id of a chat"):
        topics.set("telegram", "", home, user_id="ann", enabled=True)
    with pytest.raises(InvalidInput) as caught:
        topics.set("telegram", "7", home, user_id="ann", enabled=True, details={"text": "x" * 10_000})
    assert caught.value.message == "details of a chat is JSON of at most 10,000 characters."
    with pytest.raises(StatementFailed):
        store.core.write(lambda tx: tx.execute(
            "INSERT INTO topic_chats VALUES ('telegram', '7', 'h', '', 2, '{}', 1.0, 1.0)"
        ))
    store.routing.remove_home(home, actor="me", reason="moved")
    with pytest.raises(HomeRemoved):
        topics.set("telegram", "7", home, user_id="ann", enabled=True)


def test_a_store_from_before_topics_has_none(store: Store) -> None:
    store.core.write(lambda tx: tx.execute("DROP TABLE topic_chats"))
    assert (store.routing.topics.get("telegram", "7"), store.routing.topics.page()) == (None, [])
