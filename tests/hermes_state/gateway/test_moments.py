"""What happens to a gateway server between two of its steps: an end, a caller that comes back, a write that fails."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from hermes_state.clock import FakeClock
from hermes_state.errors import ConnectionLost, DiskFull, NotConnected, StaleGeneration, StateError
from hermes_state.gateway import Server, Standing
from hermes_state.gateway import server as server_module
from hermes_state.store import Store
from hermes_state.turns import TurnState
from hermes_state.turns.operations import KEEP_SECONDS, read
from tests.hermes_state.gateway.conftest import VERSIONS, Plugin, silent

THREAD = "thread of mac"


@pytest.mark.parametrize("how", ["revoked", "not answering", "replaced"])
def test_who_waits_on_a_connection_may_call_the_server_when_it_ends(
    store: Store, server: Server, plugin: Callable[..., Plugin], how: str, fake_clock: Any
) -> None:
    """The failures of requests are told while no lock is held: a callback that looks again does not wait for itself."""
    first = plugin().connect(server)
    heard: list[object] = []

    def look_again(answer: Any) -> None:
        heard.append((type(answer.exception()), server.poll().ended, server.connected()))

    with server.request("mac", first.generation, "turn.steer", seconds=90) as request:
        request.answer.add_done_callback(look_again)
        if how == "revoked":
            store.instances.revoke("mac", actor="test", reason="old")
        elif how == "replaced":
            store.gateway.serve(versions=VERSIONS)
        codes: list[int] = []

        def look() -> None:
            for _second in range(29 if how == "not answering" else 1):
                fake_clock.advance(1)
                codes.extend(one.code for one in server.tick().ended)

        looking = threading.Thread(target=look, daemon=True)
        looking.start()
        looking.join(20)
        assert not looking.is_alive()
    assert heard == [(ConnectionLost, (), [])]
    assert codes == [{"revoked": 4003, "not answering": 4008, "replaced": 1001}[how]]


def test_a_request_that_the_end_of_its_connection_overtook_is_refused_and_nobody_waits(
    server: Server, plugin: Callable[..., Plugin]
) -> None:
    first = plugin().connect(server)
    server.refuse_request("mac", first.generation, None)
    server.disconnect("mac", first.generation)
    with pytest.raises(StaleGeneration), server.begun(
        "mac", first.generation, "turn.steer", request_id=None, seconds=None
    ):
        raise AssertionError
    assert len(server.requests) == 0


def test_an_end_is_told_once_whoever_sees_it(store: Store, server: Server, plugin: Callable[..., Plugin]) -> None:
    """Eight threads look at the same moment."""
    plugin().connect(server)
    store.instances.revoke("mac", actor="test", reason="old")
    gate, told = threading.Barrier(8), []

    def look() -> None:
        gate.wait()
        told.extend(server.poll().ended)

    threads = [threading.Thread(target=look) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert [one.code for one in told] == [4003]


def test_an_end_whose_write_failed_lets_go_at_the_next_try(
    store: Store, plugin: Callable[..., Plugin], monkeypatch: pytest.MonkeyPatch
) -> None:
    serving = store.gateway.serve(versions=VERSIONS)
    plugin().connect(serving)

    def full(*_given: object) -> None:
        raise DiskFull("The disk is full.")

    with monkeypatch.context() as patch:
        patch.setattr(server_module, "let_go", full)
        with pytest.raises(DiskFull):
            serving.close()
    found = store.gateway.holder()
    assert found is not None and found.standing is Standing.RUNNING
    assert [one.code for one in serving.close()] == [1001]  # those that the failed one did not give
    assert serving.close() == []
    found = store.gateway.holder()
    assert found is not None and found.standing is Standing.NONE


def test_a_server_whose_end_cannot_be_written_keeps_no_other_from_ending(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    serving = [store.gateway.serve(versions=VERSIONS) for _ in range(3)]

    def full(*_given: object) -> None:
        raise DiskFull(f"The disk is full, write {next(writes)}.")

    writes = iter(range(1, 9))
    with monkeypatch.context() as patch:
        patch.setattr(server_module, "let_go", full)
        with pytest.raises(DiskFull) as caught:
            store.gateway.close()
    assert str(caught.value) == "The disk is full, write 1."
    assert caught.value.__notes__ == [
        f"Another server of this store was not let go of either: The disk is full, write {number}." for number in (2, 3)
    ]
    for one in serving:
        with pytest.raises(StateError, match="was ended"):
            one.poll()


def test_the_tick_forgets_the_starts_that_were_settled_a_week_ago(
    store: Store, server: Server, plugin: Callable[..., Plugin], fake_clock: FakeClock
) -> None:
    """As long as the outbox keeps its ids; a server that runs for months keeps no row for each turn that it started."""
    plugin().connect(server)
    server.start(THREAD, silent, turn_id="t1")
    for seconds, kept in ((KEEP_SECONDS, True), (1.0, False)):
        fake_clock.advance(seconds)
        server.tick()
        with store.core.reader() as reader:
            assert (read(reader, "t1") is not None) == kept
    before = store.changes.position()
    server.tick()
    assert store.changes.position() == before


def test_an_announcement_whose_error_cannot_be_read_rolls_the_turn_back(
    store: Store, server: Server, plugin: Callable[..., Plugin]
) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("mute")

    def announce(*_given: object) -> None:
        raise Mute

    plugin().connect(server)
    with pytest.raises(Mute):
        server.start(THREAD, announce, turn_id="t1")
    turn = store.turns.get("t1")
    assert turn is not None and turn.state is TurnState.WITHDRAWN
    with pytest.raises(NotConnected):
        server.disconnect("mac", server.connected()[0].generation)
        server.start(THREAD, announce)
