"""What a server found or began and could not write at once: told, undone and tried again later."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from hermes_state.clock import FakeClock
from hermes_state.errors import DiskFull, GatewayRunning, IdempotencyConflict, StateError, TurnActive
from hermes_state.gateway import Accepted, Server, Standing
from hermes_state.outbox import NotSent
from hermes_state.store import Store
from hermes_state.turns import TurnState
from tests.hermes_state.gateway.conftest import VERSIONS, Plugin, silent

THREAD = "thread of mac"


@pytest.fixture(name="full_disk")
def disk_that_is_full(store: Store, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """`full_disk()` makes every write of the store fail, until `monkeypatch.undo()`."""

    def fill() -> None:
        def full(*_given: object, **_options: object) -> None:
            raise DiskFull("The disk is full.")

        monkeypatch.setattr(store.core, "write", full)

    return fill


def test_who_ended_is_told_by_the_next_tick_when_a_write_of_this_one_failed(
    store: Store, server: Server, plugin: Callable[..., Plugin], full_disk: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch, fake_clock: FakeClock,
) -> None:
    """A5: its socket stayed open for ever, and a rename was never told."""
    plugin().connect(server)
    plugin("pi").connect(server)
    store.instances.revoke("mac", actor="test", reason="stolen")
    store.instances.rename("pi", "Pie")
    fake_clock.advance(10)
    full_disk()
    with pytest.raises(DiskFull):
        server.tick()
    monkeypatch.undo()
    told = server.tick()
    assert [(one.connection.instance_id, one.code) for one in told.ended] == [("mac", 4003)]
    assert [one.nickname for one in told.renamed] == ["Pie"]
    assert [one.instance_id for one in told.probes] == ["pi"]
    again = server.tick()
    assert (again.ended, again.renamed, again.probes) == ((), (), ())


def test_who_answers_stays_connected_while_nothing_can_be_written(
    store: Store, server: Server, plugin: Callable[..., Plugin], full_disk: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch, fake_clock: FakeClock,
) -> None:
    """A5: no call gave a probe to send, so after 28 s everybody was taken for dead. Half of one fails now."""
    plugin().connect(server)
    full_disk()
    failed = 0
    for _second in range(60):
        fake_clock.advance(1)
        server._last_seen.note("mac")
        try:
            ticked = server.tick()
        except DiskFull:
            failed += 1
            continue
        assert ticked.ended == ()
        for due in ticked.probes:
            server.pong(due.instance_id, due.generation, due.probe)
    assert [one.instance_id for one in server.connected()] == ["mac"]
    assert 8 <= failed <= 20
    monkeypatch.undo()


def test_a_close_that_cannot_be_written_gives_its_connections_to_the_next(
    store: Store, server: Server, plugin: Callable[..., Plugin], full_disk: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A5."""
    plugin().connect(server)
    full_disk()
    with pytest.raises(DiskFull):
        server.close()
    monkeypatch.undo()
    assert [one.code for one in server.close()] == [1001]


def test_a_connect_that_races_the_end_of_its_server_is_refused(
    store: Store, server: Server, plugin: Callable[..., Plugin], monkeypatch: pytest.MonkeyPatch
) -> None:
    """C22."""
    plain = server._connections._register

    def register(*given: Any) -> Any:
        server.close()
        return plain(*given)

    monkeypatch.setattr(server._connections, "_register", register)
    with pytest.raises(StateError, match="was ended"):
        plugin().connect(server)
    assert server.connected() == []


@pytest.mark.parametrize("later", ["tick", "start"])
def test_a_reservation_that_could_not_be_rolled_back_is_rolled_back_later(
    store: Store, server: Server, plugin: Callable[..., Plugin], full_disk: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch, later: str,
) -> None:
    """B21: the turn stayed `starting`, and its thread took no other one. What is raised is the announcement's error."""
    plugin().connect(server)

    def announce(_turn: object, _connection: object) -> None:
        full_disk()
        raise NotSent("no socket")

    with pytest.raises(NotSent, match="no socket") as caught:
        server.start(THREAD, announce, turn_id="t1")
    assert caught.value.__notes__ == ["The reservation of turn 't1' was not rolled back yet: The disk is full."]
    monkeypatch.undo()
    if later == "tick":
        server.tick()
    assert server.start(THREAD, silent).state is TurnState.RUNNING
    found = store.turns.get("t1")
    assert found is not None and found.state is TurnState.WITHDRAWN


def test_the_error_of_an_announcement_is_raised_also_when_its_turn_is_gone(
    store: Store, server: Server, plugin: Callable[..., Plugin]
) -> None:
    """B19: `TurnNotActive` hid it."""
    plugin().connect(server)

    def announce(*_given: object) -> None:
        store.core.write(lambda tx: tx.execute("DELETE FROM thread_bindings WHERE thread_id = ?", (THREAD,)))
        raise NotSent("no socket")

    with pytest.raises(NotSent, match="no socket"):
        server.start(THREAD, announce)
    store.instances.bind(THREAD, "mac", "session")
    with pytest.raises(NotSent, match="no socket"):
        store.turns.start(THREAD, announce)


def test_a_turn_id_that_was_used_is_refused_by_name(store: Store, plugin: Callable[..., Plugin]) -> None:
    """C22."""
    plugin(), plugin("pi")
    store.turns.start(THREAD, lambda turn: None, turn_id="t1")
    with pytest.raises(IdempotencyConflict, match=r"Turn 't1' in .* was started before"):
        store.turns.start("thread of pi", lambda turn: None, turn_id="t1")
    with pytest.raises(TurnActive):
        store.turns.start(THREAD, lambda turn: None)


def test_a_start_that_is_not_to_take_over_is_refused_while_a_server_runs(store: Store) -> None:
    """B16: two that a supervisor starts again and again took turns, each ending the other's connections."""
    first = store.gateway.serve(versions=VERSIONS, take_over=False)
    with pytest.raises(GatewayRunning) as caught:
        store.gateway.serve(versions=VERSIONS, take_over=False)
    assert str(caught.value).startswith(f"A gateway server (epoch 1) runs on {store.path}: PID ")
    assert (caught.value.exit_code, caught.value.facts["epoch"]) == (75, 1)
    found = store.gateway.holder()
    assert found is not None and (found.epoch, found.standing) == (1, Standing.RUNNING)
    second = store.gateway.serve(versions=VERSIONS)  # on purpose
    first.tick()
    assert (first.replaced, second.epoch) == (True, 2)
    second.close()
    store.gateway.serve(versions=VERSIONS, take_over=False)


def test_what_a_cancelled_accept_displaced_is_told_and_nobody_is_connected_without_a_socket(
    store: Store, server: Server, plugin: Callable[..., Plugin]
) -> None:
    """A9: the half of it that needs no loop."""
    mac = plugin()
    first: Accepted[Any] = mac.connect(server)
    second = server.accept(mac.hello())
    server.take_back(second)
    assert server.connected() == []
    assert [(one.connection.generation, one.code) for one in server.poll().ended] == [(first.generation, 4001)]


def test_eight_that_start_at_once_without_taking_over_are_one_server(store: Store) -> None:
    """B16: it is decided inside the transaction of the start."""
    gate, served, refused = threading.Barrier(8), list[Server](), list[Exception]()

    def serve() -> None:
        gate.wait()
        try:
            served.append(store.gateway.serve(versions=VERSIONS, take_over=False))
        except GatewayRunning as error:
            refused.append(error)

    threads = [threading.Thread(target=serve) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert (len(served), len(refused)) == (1, 7)
