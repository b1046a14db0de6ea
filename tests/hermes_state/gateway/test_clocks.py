"""Clocks that are set and machines that restart change nothing that a gateway server promises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hermes_state.clock import FakeClock
from hermes_state.gateway import Server, Standing
from hermes_state.instances.generations import SERVER_LEASE
from hermes_state.store import Store
from hermes_state.turns import FrameKind, TurnState
from tests.hermes_state.gateway.conftest import VERSIONS, Plugin, silent

THREAD = "thread of mac"


def test_a_wall_clock_that_is_set_ends_no_connection_and_no_turn(
    store: Store, server: Server, plugin: Callable[..., Plugin], fake_clock: FakeClock
) -> None:
    """A day back, a year ahead, and back: requests, probes and sweeps go by the monotonic clock."""
    mac = plugin()
    first = mac.connect(server)
    for number, step in enumerate((-86_400.0, 366 * 86_400.0, -366 * 86_400.0)):
        turn_id = f"t{number}"
        server.start(THREAD, silent, turn_id=turn_id)
        with server.request("mac", first.generation, "turn.steer") as request:
            fake_clock.step_wall(step)
            ticked = server.tick()
            assert (ticked.ended, request.answer.done()) == ((), False)
        server.receive("mac", first.generation, mac.frame(FrameKind.TURN_COMPLETED, turn_id, state="completed"))
        found = store.turns.get(turn_id)
        assert found is not None and found.state is TurnState.COMPLETED
    store.instances.revoke("mac", actor="test", reason="old")
    assert [one.code for one in server.poll().ended] == [4003]


def test_a_server_of_another_boot_is_not_said_to_run_and_keeps_nobody_out(
    store: Store, server: Server, plugin: Callable[..., Plugin]
) -> None:
    """Nor to have ended: another machine may see the same file. Whoever is started next serves."""
    mac = plugin()
    generation = mac.connect(server).generation
    holder = store.gateway.holder()
    assert holder is not None and holder.owner is not None and holder.standing is Standing.RUNNING
    elsewhere = replace(holder.owner, boot_id="another boot", nonce="0" * 32).to_json()
    store.core.write(lambda tx: tx.execute("UPDATE leases SET owner = ? WHERE name = ?", (elsewhere, SERVER_LEASE)))
    seen = store.gateway.holder()
    assert seen is not None
    assert (seen.standing, seen.because) == (
        Standing.UNKNOWN, "it ran under another boot of this or another machine",
    )
    with store.gateway.serve(versions=VERSIONS) as second:
        assert mac.connect(second).generation > generation
