"""What ends with an instance: nothing is open for ever on one that may not connect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hermes_state.engine import Transaction
from hermes_state.errors import InstanceRevoked, RequestNotFound
from hermes_state.gateway import Server
from hermes_state.outbox import NotSent
from hermes_state.outbox.verdicts import not_sent
from hermes_state.store import Store
from hermes_state.turns import FrameKind, InteractionState, StopState, TurnState
from hermes_state.turns.ending import end_of_instance
from tests.hermes_state.gateway.conftest import Plugin, silent

THREAD = "thread of mac"


def owed(store: Store, instance_id: str = "mac") -> list[str]:
    with store.core.reader() as reader:
        rows = reader.rows(
            "SELECT kind FROM outbox WHERE transport = ? AND settled_at IS NULL ORDER BY id",
            (f"gateway/{instance_id}",),
        )
    return [kind for (kind,) in rows]


def revoke(store: Store) -> None:
    store.instances.revoke("mac", actor="test", reason="stolen")


@pytest.fixture(name="mac")
def running_plugin(store: Store, server: Server, plugin: Callable[..., Plugin]) -> Plugin:
    """With a turn that runs, a question that is open, and one that is answered and not sent."""
    mac = plugin()
    generation = mac.connect(server).generation
    server.start(THREAD, silent, turn_id="t1")
    for request_id in ("r1", "r2"):
        server.receive(
            "mac", generation, mac.frame(FrameKind.APPROVAL, "t1", request_id=request_id, request_type="command")
        )
    store.turns.answer(1, "accept")
    return mac


def test_a_revocation_settles_what_only_the_instance_could_have_ended(store: Store, mac: Plugin) -> None:
    assert owed(store) == ["approval"]
    other = [one.id for one in store.turns.questions()]
    revoke(store)
    turn = store.turns.get("t1")
    assert turn is not None and (turn.state, turn.error) == (TurnState.FAILED, "its instance was revoked")
    assert store.turns.questions() == []
    assert store.turns.question(other[0]).state is InteractionState.CANCELLED
    with pytest.raises(RequestNotFound):
        store.turns.answer(other[0], "accept")
    assert owed(store) == []
    assert store.turns.thread(THREAD).status == "ready"
    binding = store.instances.binding(THREAD)
    assert binding is not None and binding.instance_id == "mac"
    revoke(store)  # a second time nothing changes
    assert store.turns.get("t1") == turn


def test_a_stop_of_a_revoked_instance_is_sent_once_it_is_enrolled_again(
    store: Store, server: Server, mac: Plugin
) -> None:
    store.turns.stop(THREAD)
    revoke(store)
    turn = store.turns.get("t1")
    assert turn is not None and turn.state is TurnState.STOPPED
    assert owed(store) == ["stop"]
    mac.enroll()
    mac.heard.clear()
    mac.connect(server)
    assert mac.heard == ["stop"]
    assert store.turns.thread(THREAD).status == "stopped"


def test_a_removal_ends_stops_and_threads_as_well(store: Store, mac: Plugin) -> None:
    stop = store.turns.stop(THREAD)
    assert stop is not None
    revoke(store)
    store.instances.remove("mac", actor="test", reason="gone")
    with store.core.reader() as reader:
        row = reader.row("SELECT state, outcome FROM stops WHERE stop_id = ?", (stop.stop_id,))
    assert row == (StopState.CANCELLED, "its instance was removed")
    assert owed(store) == []
    assert store.turns.thread(THREAD).status == "stopped"
    with pytest.raises(InstanceRevoked):
        store.turns.reserve(THREAD)


def test_what_was_on_its_way_when_the_instance_was_removed_is_not_owed_again(store: Store, mac: Plugin) -> None:
    store.turns.stop(THREAD)
    (claim,) = store.turns.claim("mac")
    revoke(store)
    store.instances.remove("mac", actor="test", reason="gone")
    assert owed(store) == ["stop"]

    store.turns.settle(claim, not_sent(NotSent("its socket is gone")))
    assert owed(store) == []


def test_the_end_is_one_transaction_with_the_revocation(store: Store, mac: Plugin, monkeypatch: Any) -> None:
    """A failure in the last statement takes back all of it."""
    from hermes_state.gateway import ending

    plain = end_of_instance

    def failing(tx: Transaction, *given: Any, **options: Any) -> None:
        plain(tx, *given, **options)
        raise OSError("full")

    monkeypatch.setattr(ending, "end_of_instance", failing)
    with pytest.raises(OSError, match="full"):
        revoke(store)
    turn = store.turns.get("t1")
    assert turn is not None and turn.state is TurnState.RUNNING
    assert store.instances.get("mac").state == "enrolled"


@pytest.mark.slow
def test_a_change_of_one_of_ten_thousand_instances_is_noticed_by_looking_at_that_one(
    store: Store, server: Server, plugin: Callable[..., Plugin]
) -> None:
    """By its key in the feed: the time of a look does not grow with who else there is."""
    import time

    mac = plugin()
    mac.connect(server)

    def many(tx: Transaction) -> None:
        tx.executemany(
            "INSERT INTO gateway_instances (instance_id, nickname, nickname_key, state_at, state_actor, created_at)"
            " VALUES (?1, ?1, ?1, 0, 'test', 0)",
            [(f"n{number}",) for number in range(10_000)],
        )

    store.core.write(many)
    revoke(store)
    started = time.perf_counter()
    assert [one.connection.instance_id for one in server.poll().ended] == ["mac"]
    assert time.perf_counter() - started < 0.25
