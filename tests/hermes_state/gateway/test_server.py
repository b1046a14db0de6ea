"""One start of a gateway server: nobody is forgotten, nothing goes out of order, nothing is taken from yesterday."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hermes_state.clock import FakeClock
from hermes_state.engine import Reader
from hermes_state.errors import (
    ConnectionLost,
    IdempotencyConflict,
    InstanceRevoked,
    InvalidAuthentication,
    InvalidInput,
    NotConnected,
    RequestTimedOut,
    ServerReplaced,
    StaleGeneration,
    StateError,
    ThreadStopped,
    VersionIncompatible,
)
from hermes_state.gateway import Ended, Hello, PublicStatus, Server, Standing, VersionRange
from hermes_state.instances import credentials
from hermes_state.store import Store, open_store
from hermes_state.turns import FrameKind, StopCause, TurnState
from hermes_state.turns.operations import read, unsettled
from tests.hermes_state.gateway.conftest import VERSIONS, Plugin, silent

THREAD = "thread of mac"


def test_accepting_stores_what_is_owed_and_sending_gives_stops_first(
    store: Store, server: Server, plugin: Callable[..., Plugin]
) -> None:
    """R23, T1.41: one thread has a stop, another one a turn; the stop is the first frame."""
    mac = plugin()
    store.instances.bind("other", "mac", "session 2")
    mac.connect(server)
    turn = server.start("other", silent)
    server.start(THREAD, silent)
    store.turns.stop(THREAD)
    mac.active = turn.turn_id
    again = server.accept(mac.hello())
    plan = again.recovery_plan
    assert (len(plan.stops), [one.thread_id for one in plan.ensures]) == (1, ["other"])
    assert [one.instance_id for one in server.poll().owed] == ["mac"]
    mac.heard.clear()
    server.send("mac", again.generation, mac.take)
    assert mac.heard == ["stop", "ensure"]
    assert server.poll().owed == ()
    assert store.turns.thread(THREAD).status == "stopped"


def test_nothing_goes_out_for_a_thread_whose_stop_is_owed(
    store: Store, server: Server, plugin: Callable[..., Plugin]
) -> None:
    """T1.41: neither a turn nor a steer overtakes it."""
    mac = plugin()
    accepted = mac.connect(server)
    store.turns.stop(THREAD)
    with pytest.raises(ThreadStopped) as caught:
        server.start(THREAD, silent)
    assert str(caught.value) == f"The session of thread {THREAD!r} in {store.path} is stop_pending."
    with pytest.raises(ThreadStopped), server.request("mac", accepted.generation, "turn.steer", thread_id=THREAD):
        raise AssertionError("it went out")
    assert len(server.requests) == 0
    with server.request("mac", accepted.generation, "turn.steer", thread_id="another") as request:
        assert request.owner == "mac"


def test_a_turn_is_started_on_the_connection_of_its_gateway(
    store: Store, server: Server, plugin: Callable[..., Plugin]
) -> None:
    mac = plugin()
    with pytest.raises(NotConnected) as away:
        server.start(THREAD, silent)
    assert str(away.value) == (
        f"Instance 'mac', which serves thread '{THREAD}' of {store.path}, is not connected to this server."
    )
    accepted = mac.connect(server)
    seen: list[object] = []
    turn = server.start(THREAD, lambda reserved, connection: seen.append((reserved.state, connection)), turn_id="t1")
    assert seen == [(TurnState.STARTING, accepted.connection)]
    assert (turn.state, turn.generation) == (TurnState.RUNNING, str(accepted.generation))
    with store.core.reader() as reader:
        operation = read(reader, "t1")
    assert operation is not None and (operation.state, operation.epoch) == ("completed", server.epoch)
    server.receive("mac", accepted.generation, mac.frame(FrameKind.TURN_COMPLETED, "t1", state="completed"))
    with pytest.raises(IdempotencyConflict):
        server.start(THREAD, silent, turn_id="t1")


def test_a_start_that_failed_is_rolled_back_and_one_without_an_answer_is_asked_about(
    store: Store, server: Server, plugin: Callable[..., Plugin], fake_clock: FakeClock
) -> None:
    """T1.39, T1.28: and the answer to the question decides."""
    mac = plugin()
    accepted = mac.connect(server)

    def broken(_turn: object, _connection: object) -> None:
        raise OSError("no route")

    with pytest.raises(OSError, match="no route"):
        server.start(THREAD, broken, turn_id="t1")
    found = store.turns.get("t1")
    assert found is not None and found.state is TurnState.WITHDRAWN

    def unanswered(_turn: object, connection: object) -> None:
        with server.request("mac", accepted.generation, "turn.start") as request:
            fake_clock.advance(31)
            server.requests.end_overdue()
            request.answer.result()

    with pytest.raises(RequestTimedOut):
        server.start(THREAD, unanswered, turn_id="t2")
    found = store.turns.get("t2")
    assert found is not None and found.state is TurnState.STARTING
    mac.active = "t2"
    server.send("mac", accepted.generation, mac.take)
    found = store.turns.get("t2")
    assert found is not None and found.state is TurnState.RUNNING
    with store.core.reader() as reader:
        assert unsettled(reader) == []


def test_the_requests_of_a_displaced_connection_hear_why_and_its_frames_are_refused(
    server: Server, plugin: Callable[..., Plugin]
) -> None:
    """T1.19, R6: also its end changes nothing for the present one."""
    mac = plugin()
    first = mac.connect(server)
    with server.request("mac", first.generation, "turn.steer") as request:
        second = mac.connect(server)
        with pytest.raises(ConnectionLost) as lost:
            request.answer.result(0)
    assert lost.value.facts["close_code"] == 4001
    assert second.displaced == first.connection
    with pytest.raises(StaleGeneration):
        server.receive("mac", first.generation, mac.frame(FrameKind.TURN_STARTED, "t1"))
    with pytest.raises(StaleGeneration):
        server.send("mac", first.generation, mac.take)
    assert not server.disconnect("mac", first.generation)
    assert not server.record_session_count("mac", first.generation, 9)
    assert server.status("mac") is PublicStatus.CONNECTED
    assert server.disconnect("mac", second.generation)
    assert server.status("mac") is PublicStatus.OFFLINE


def test_a_frame_says_the_instance_of_its_connection(server: Server, plugin: Callable[..., Plugin]) -> None:
    mac, pi = plugin(), plugin("pi")
    accepted = mac.connect(server)
    with pytest.raises(InvalidInput) as caught:
        server.receive("mac", accepted.generation, pi.frame(FrameKind.TURN_STARTED, "t1"))
    assert str(caught.value) == "A frame came on the connection of 'mac' and says 'pi'."


def test_a_plugin_without_a_common_version_ends_its_own_connection_only(
    server: Server, plugin: Callable[..., Plugin]
) -> None:
    """T1.46."""
    mac, pi = plugin(), plugin("pi")
    first, other = mac.connect(server), pi.connect(server)
    with server.request("mac", first.generation, "turn.steer") as request:
        with pytest.raises(VersionIncompatible) as refused:
            server.accept(mac.hello(VersionRange(4, 5)))
        with pytest.raises(ConnectionLost):
            request.answer.result(0)
    assert refused.value.facts["displaced"] == str(first.generation)
    assert [one.generation for one in server.connected()] == [other.generation]


# --- what others did ---------------------------------------------------------------------------------------------


def test_a_revocation_elsewhere_ends_the_connection_with_4003(
    store: Store, server: Server, plugin: Callable[..., Plugin]
) -> None:
    mac, pi = plugin(), plugin("pi")
    first = mac.connect(server)
    pi.connect(server)
    with server.request("mac", first.generation, "turn.steer") as request:
        with open_store(path=store.path) as elsewhere:
            elsewhere.instances.revoke("mac", actor="test", reason="stolen")
        (ended,) = server.poll().ended
        with pytest.raises(ConnectionLost) as lost:
            request.answer.result(0)
    assert lost.value.facts["reason"] == "this instance is not admitted"
    assert (ended.connection, ended.code) == (first.connection, 4003)
    assert server.status("mac") is PublicStatus.REVOKED
    assert server.poll().ended == ()
    with pytest.raises(InstanceRevoked):
        mac.connect(server)


def test_another_enrollment_ends_the_connection_with_4001_and_a_rename_is_told(
    store: Store, server: Server, plugin: Callable[..., Plugin]
) -> None:
    mac = plugin()
    first = mac.connect(server)
    store.instances.rename("mac", "Big Mac")
    (renamed,) = server.poll().renamed
    assert renamed.nickname == "Big Mac"
    assert server.poll().renamed == ()
    mac.enroll()
    (ended,) = server.poll().ended
    assert (ended.connection, ended.code) == (first.connection, 4001)
    second = mac.connect(server)
    assert server.poll().ended == ()
    assert server.link("mac").connection == second.connection


def test_a_change_feed_that_cannot_tell_is_a_reason_to_look_at_everyone(
    store: Store, server: Server, plugin: Callable[..., Plugin]
) -> None:
    from hermes_state.changes import trim

    mac = plugin()
    mac.connect(server)
    plugin("pi").connect(server)
    store.instances.revoke("mac", actor="test", reason="stolen")
    store.core.write(lambda tx: trim(tx, keep=0))
    assert [one.connection.instance_id for one in server.poll().ended] == ["mac"]


def test_who_is_revoked_while_being_let_in_is_not_let_in(
    store: Store, server: Server, plugin: Callable[..., Plugin], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last look comes after the connection is there; the one that was displaced ends as well."""
    mac = plugin()
    first = mac.connect(server)
    plain, looks = credentials.authenticate, []

    def authenticate(reader: Reader, instance_id: str, credential: str) -> object:
        looks.append(instance_id)
        if len(looks) == 1:
            store.instances.revoke("mac", actor="test", reason="stolen")
        return plain(reader, instance_id, credential)

    monkeypatch.setattr(credentials, "authenticate", authenticate)
    with pytest.raises(InstanceRevoked):
        server.accept(mac.hello())
    assert server.connected() == []
    assert [(one.connection, one.code) for one in server.poll().ended] == [(first.connection, 4001)]


# --- two servers, and the end ------------------------------------------------------------------------------------


def test_a_second_server_takes_over_and_the_first_one_does_nothing_more(
    store: Store, server: Server, plugin: Callable[..., Plugin]
) -> None:
    """T1.21: a greater generation, and what the earlier server does is refused."""
    mac = plugin()
    first = mac.connect(server)
    with store.gateway.serve(versions=VERSIONS) as second:
        for work in (
            lambda: server.start(THREAD, silent),
            lambda: server.receive("mac", first.generation, mac.frame(FrameKind.TURN_STARTED, "t1")),
            lambda: server.send("mac", first.generation, mac.take),
            lambda: server.accept(mac.hello()),
        ):
            with pytest.raises(ServerReplaced):
                work()
        (ended,) = server.tick().ended
        assert (ended.code, ended.reason, server.replaced) == (1001, "this server ends", True)
        accepted = mac.connect(second)
        assert accepted.generation > first.generation
        with pytest.raises(StaleGeneration):
            second.receive("mac", first.generation, mac.frame(FrameKind.TURN_STARTED, "t1"))
        server.close()
        holder = store.gateway.holder()
        assert holder is not None and (holder.epoch, holder.standing) == (second.epoch, Standing.RUNNING)


def test_a_server_that_ends_stops_nothing_and_lets_go(store: Store, plugin: Callable[..., Plugin]) -> None:
    """T1.44, R41."""
    assert store.gateway.holder() is None
    server = store.gateway.serve(versions=VERSIONS)
    made = [plugin(str(number)) for number in range(20)]
    for one in made:
        one.connect(server)
        server.start(f"thread of {one.instance_id}", silent)
        store.turns.stop(f"thread of {one.instance_id}", cause=StopCause.SHUTDOWN)
    assert len(server.close()) == 20
    assert store.turns.plan("0", boot_id="boot 1").stops == ()
    holder = store.gateway.holder()
    assert holder is not None and (holder.epoch, holder.standing, holder.owner) == (server.epoch, Standing.NONE, None)
    with pytest.raises(StateError) as caught:
        server.accept(made[0].hello())
    assert str(caught.value) == f"The gateway server of epoch {server.epoch} on {store.path} was ended."
    with store.core.reader() as reader:
        assert reader.row("SELECT count(*) FROM turns WHERE state = 'running'") == (20,)


def test_closing_the_store_ends_its_server(store: Store) -> None:
    with open_store(path=store.path) as other:
        server = other.gateway.serve(versions=VERSIONS)
    holder = store.gateway.holder()
    assert holder is not None and holder.standing is Standing.NONE
    with pytest.raises(StateError):
        server.poll()


def test_a_second_start_gives_up_what_the_first_one_asked(store: Store, plugin: Callable[..., Plugin]) -> None:
    mac = plugin()
    first = store.gateway.serve(versions=VERSIONS)
    mac.connect(first)
    first.reserve(THREAD, turn_id="t1")
    with store.core.reader() as reader:
        assert [one.id for one in unsettled(reader)] == ["t1"]
    store.gateway.serve(versions=VERSIONS)
    with store.core.reader() as reader:
        assert unsettled(reader) == []
        found = read(reader, "t1")
    assert found is not None and found.why == "the server that asked was restarted"


def test_the_tick_retires_who_does_not_answer_and_writes_when_an_instance_was_heard_of(
    store: Store, server: Server, plugin: Callable[..., Plugin], fake_clock: FakeClock
) -> None:
    """T1.22: and those who wait hear that, not that time ran out."""
    from hermes_state.instances import last_seen

    mac, pi = plugin(), plugin("pi")
    first, other = mac.connect(server), pi.connect(server)
    with server.request("mac", first.generation, "turn.start") as request:
        ended: list[Ended] = []
        for _second in range(29):
            fake_clock.advance(1)
            ticked = server.tick()
            ended += ticked.ended
            for due in ticked.probes:
                if due.instance_id == "pi":
                    assert server.pong("pi", other.generation, due.probe)
        with pytest.raises(ConnectionLost) as lost:
            request.answer.result(0)
    assert lost.value.facts["close_code"] == 4008
    assert [(one.connection.instance_id, one.code) for one in ended] == [("mac", 4008)]
    assert [one.instance_id for one in server.connected()] == ["pi"]
    with store.core.reader() as reader:
        assert last_seen.read(reader, "mac") is not None


def test_a_socket_that_delivers_home_displaces_nobody(server: Server, plugin: Callable[..., Plugin]) -> None:
    mac = plugin()
    first = mac.connect(server)
    assert server.admit_delivery(mac.hello()).protocol_version == 3
    assert server.link("mac").connection == first.connection


def test_a_wrong_credential_changes_nothing(server: Server, plugin: Callable[..., Plugin]) -> None:
    """T1.8."""
    mac = plugin()
    first = mac.connect(server)
    wrong = Hello(
        instance_id="mac", credential="wrong", boot_id="x", versions=VersionRange(9, 9), plugin_version="",
        hermes_version="",
    )
    with pytest.raises(InvalidAuthentication):
        server.accept(wrong)
    assert server.link("mac").connection == first.connection
