"""Who was revoked or enrolled again gets nothing more on its old connection, also before anybody looks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hermes_state.errors import InstanceRevoked, NotConnected, StaleGeneration
from hermes_state.gateway import Server
from hermes_state.instances import connections as connections_module
from hermes_state.outbox.verdicts import lost_by
from hermes_state.store import Store
from hermes_state.turns import FrameKind, TurnState
from hermes_state.turns import turns as turns_module
from tests.hermes_state.gateway.conftest import Plugin, silent

THREAD = "thread of mac"


@pytest.mark.parametrize(("how", "error"), [("revoked", InstanceRevoked), ("enrolled again", StaleGeneration)])
def test_nothing_is_started_asked_or_taken_on_a_connection_that_is_out(
    store: Store, server: Server, plugin: Callable[..., Plugin], how: str, error: type[Exception]
) -> None:
    """A1: until the next `poll` a revoked instance got turns, and permissions that nobody took back."""
    mac = plugin()
    first = mac.connect(server)
    server.start(THREAD, silent, turn_id="t1")
    if how == "revoked":
        store.instances.revoke("mac", actor="test", reason="stolen")
    else:
        mac.enroll()
    announced: list[object] = []
    with pytest.raises(error):
        server.start(THREAD, lambda turn, connection: announced.append(turn), turn_id="t2")
    with pytest.raises(error):
        server.receive("mac", first.generation, mac.frame(FrameKind.APPROVAL, "t1", request_id="r1"))
    with pytest.raises(error):
        server.send("mac", first.generation, mac.take)
    with pytest.raises(error), server.request("mac", first.generation, "turn.steer"):
        raise AssertionError
    assert (announced, store.turns.get("t2"), store.turns.questions()) == ([], None, [])
    assert [one.code for one in server.tick().ended] == [4003 if how == "revoked" else 4001]


def test_what_is_claimed_while_the_instance_is_revoked_does_not_go_out(
    store: Store, server: Server, plugin: Callable[..., Plugin], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A1: the claim waited for the lock that the revocation had; a stop stays owed."""
    mac = plugin()
    first = mac.connect(server)
    mac.heard.clear()
    store.turns.stop(THREAD)
    plain = turns_module.Turns.claim

    def claim(self: turns_module.Turns, instance_id: str) -> object:
        store.instances.revoke("mac", actor="test", reason="stolen")
        return plain(self, instance_id)

    monkeypatch.setattr(turns_module.Turns, "claim", claim)
    with pytest.raises(InstanceRevoked):
        server.send("mac", first.generation, mac.take)
    assert mac.heard == []
    stops = [one for one in store.outbox.page() if one.kind == "stop"]
    assert [(str(one.state), one.attempts) for one in stops] == [("pending", 0)]


def test_a_connect_of_an_instance_that_is_revoked_meanwhile_stores_nothing(
    store: Store, server: Server, plugin: Callable[..., Plugin], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A1: what its recovery owes would be owed to nobody."""
    mac = plugin()
    store.turns.start(THREAD, lambda turn: None, turn_id="t1", boot_id="boot 0")
    plain = connections_module.Connections._recovery

    def recovery(self: object, *given: object) -> object:
        store.instances.revoke("mac", actor="test", reason="stolen")
        return plain(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(connections_module.Connections, "_recovery", recovery)
    with pytest.raises(InstanceRevoked):
        server.accept(mac.hello())
    assert store.outbox.page() == []


def test_no_turn_is_reserved_on_an_instance_that_is_out_without_a_server_either(
    store: Store, server: Server, plugin: Callable[..., Plugin]
) -> None:
    """A1, B17: it may not connect, so nobody would end it. A stop has nobody to go to."""
    plugin(), plugin("pi")
    store.instances.revoke("mac", actor="test", reason="stolen")
    for what in (store.turns.reserve, store.turns.ensure):
        with pytest.raises(InstanceRevoked, match=r"'mac', which serves thread 'thread of mac' of .* is revoked"):
            what(THREAD)
    with pytest.raises(InstanceRevoked):
        server.start(THREAD, silent)
    with pytest.raises(NotConnected):
        server.start("thread of pi", silent)
    store.instances.bind("never used", "pi", "session 2")
    store.instances.revoke("pi", actor="test", reason="stolen")
    store.instances.remove("pi", actor="test", reason="stolen")
    assert store.turns.stop("never used") is None
    assert store.turns.thread("never used").status == "stopped"
    with pytest.raises(InstanceRevoked):
        store.turns.ensure("never used")
    assert store.outbox.page() == []


def test_an_answer_counts_only_on_the_connection_that_was_asked(
    store: Store, server: Server, plugin: Callable[..., Plugin]
) -> None:
    """B20: another plugin, or an earlier connection, that names the request answers nothing."""
    mac, pi = plugin(), plugin("pi")
    first, other = mac.connect(server), pi.connect(server)
    with server.request("mac", first.generation, "turn.steer", request_id="m1") as request:
        assert server.answer("pi", other.generation, "m1", "forged") == "unknown"
        assert server.refuse("mac", other.generation, "m1", ValueError("forged")) == "unknown"
        assert not request.answer.done()
        assert server.answer("mac", first.generation, "m1", "queued") == "delivered"
        assert request.answer.result(0) == "queued"


def test_a_turn_is_announced_to_the_instance_that_its_thread_is_bound_to_by_then(
    store: Store, server: Server, plugin: Callable[..., Plugin], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A7: bound otherwise by somebody else between the look at the binding and the reservation."""
    mac, pi = plugin(), plugin("pi")
    mac.connect(server)
    pi.connect(server)
    plain = server._starts._link

    def link(instance_id: str) -> object:
        monkeypatch.setattr(server._starts, "_link", plain)
        found = plain(instance_id)
        store.instances.unbind(THREAD)
        store.instances.bind(THREAD, "pi", "session of pi")
        return found

    monkeypatch.setattr(server._starts, "_link", link)
    told: list[str] = []
    turn = server.start(THREAD, lambda _turn, connection: told.append(connection.instance_id))
    assert (told, turn.session_id, turn.state) == (["pi"], "session of pi", TurnState.RUNNING)


def test_what_was_on_its_way_to_a_process_that_is_gone_is_not_sent_to_the_next_one(
    store: Store, server: Server, plugin: Callable[..., Plugin]
) -> None:
    """A6: a plugin that restarted counts its questions anew; the decision would permit another one."""
    mac = plugin()
    first = mac.connect(server)
    server.start(THREAD, silent, turn_id="t1")
    mac.active = "t1"
    asked = server.receive(
        "mac", first.generation,
        mac.frame(FrameKind.APPROVAL, "t1", request_id="1", request_type="exec_command_approval"),
    ).interaction
    assert asked is not None
    store.turns.answer(asked.id, "accept")
    (claim,) = store.turns.claim("mac")  # by a process that dies with it
    mac.boot_id = "boot 2"
    second = server.accept(mac.hello())
    store.turns.settle(claim, lost_by(ConnectionResetError("gone")))
    server.send("mac", second.generation, mac.take)
    assert "approval" not in mac.heard
