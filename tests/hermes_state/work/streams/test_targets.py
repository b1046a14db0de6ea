"""R101: dead targets, and one success that makes them alive."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.errors import HomeRemoved, InvalidInput
from hermes_state.outbox import Accepted, Refused
from hermes_state.routing import Home
from hermes_state.store import Store, open_store
from hermes_state.work.targets import DEADLY, SendFailure, failed, succeeded


def test_forbidden_makes_a_chat_dead_and_one_success_makes_it_alive(store: Store, home: Home) -> None:
    targets = store.work.targets
    for number in range(1, 4):
        dead = targets.failed("Telegram", " 7 ", home, SendFailure.FORBIDDEN, reason="bot was kicked")
        assert dead is not None
        assert (dead.platform, dead.chat_id, dead.failures, dead.reason) == ("telegram", "7", number, "bot was kicked")
    assert targets.get("telegram", "7") == dead
    assert targets.succeeded("telegram", "7", home)
    assert targets.get("telegram", "7") is None
    assert targets.page() == []


@pytest.mark.parametrize("failure", list(SendFailure))
def test_nothing_but_the_whole_chats_loss_makes_it_dead(store: Store, home: Home, failure: SendFailure) -> None:
    assert (store.work.targets.failed("telegram", "7", home, failure) is not None) is DEADLY[failure]


def test_a_dead_chat_stays_dead_through_other_failures_and_a_restart(tmp_path: Path, fake_clock: FakeClock) -> None:
    with open_store(tmp_path / "home", clock=fake_clock) as store:
        home, targets = store.routing.home, store.work.targets
        targets.failed("telegram", "7", home, SendFailure.CHAT_NOT_FOUND)
        assert targets.failed("telegram", "7", home, SendFailure.TRANSIENT) is not None
    with open_store(tmp_path / "home", clock=fake_clock) as store:
        (dead,) = store.work.targets.page(platform="telegram")
        assert (dead.failure, dead.failures) == (SendFailure.CHAT_NOT_FOUND, 1)


def test_what_one_bot_cannot_reach_another_may(store: Store, home: Home) -> None:
    targets = store.work.targets
    targets.failed("telegram", "7", home, SendFailure.FORBIDDEN, transport_profile="work")
    assert targets.get("telegram", "7") is None
    assert targets.get("telegram", "7", transport_profile="work") is not None
    assert not targets.succeeded("telegram", "7", home)
    assert len(targets.page()) == 1


def test_a_success_in_a_living_chat_writes_nothing(store: Store, home: Home) -> None:
    before = store.changes.position()
    assert not store.work.targets.succeeded("telegram", "7", home)
    assert store.changes.position() == before


def test_it_is_kept_in_the_transaction_that_settles_what_was_sent(store: Store, home: Home) -> None:
    """The way of a gateway: a dead chat gets no broadcast, and an answer that arrives heals it."""
    store.work.targets.failed("telegram", "7", home, SendFailure.FORBIDDEN)

    def handler(claim: object) -> Refused | Accepted:
        if store.work.targets.get("telegram", "7") is not None:
            return Refused(why="the chat cannot be reached")
        return Accepted()

    for name in ("cron/1", "cron/2"):
        store.outbox.append(
            dedupe_id=name, kind="cron", transport="telegram", target="7", payload="x", policy="at_most_once"
        )
    assert [type(verdict) for _claim, verdict in store.outbox.deliver(handler, ["telegram"])] == [Refused]

    def answered(tx: object) -> bool:
        return succeeded(tx, "telegram", "7", home, transport_profile="default", at=1.0)  # type: ignore[arg-type]

    assert store.core.write(answered)
    assert [type(verdict) for _claim, verdict in store.outbox.deliver(handler, ["telegram"])] == [Accepted]
    assert store.core.write(lambda tx: failed(
        tx, "telegram", "7", home, SendFailure.TRANSIENT, transport_profile="default", reason="", at=1.0
    )) is None


def test_a_failure_is_one_of_the_words(store: Store, home: Home) -> None:
    with pytest.raises(InvalidInput) as caught:
        store.work.targets.failed("telegram", "7", home, "gone")  # type: ignore[arg-type]
    assert str(caught.value) == "'gone' is no failure of a send."
    store.routing.remove_home(home, actor="test", reason="test")
    with pytest.raises(HomeRemoved):
        store.work.targets.failed("telegram", "7", home, SendFailure.FORBIDDEN)
