"""A thread that is unbound and bound again: to the same gateway, to another one, in a session of the same name."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hermes_state.engine import Transaction
from hermes_state.errors import ConnectionLost, InvalidInput, ThreadStopped, TurnActive
from hermes_state.gateway import Server
from hermes_state.outbox import Policy, append
from hermes_state.store import Store
from hermes_state.turns import FrameKind, TurnState
from tests.hermes_state.gateway.conftest import VERSIONS, Plugin, silent

THREAD = "thread of mac"


def owed(store: Store) -> list[tuple[str, str]]:
    """Kind and transport of everything that is owed, in order."""
    with store.core.reader() as reader:
        return reader.rows("SELECT kind, transport FROM outbox WHERE settled_at IS NULL ORDER BY id")


@pytest.mark.parametrize("session", ["session", "session 2"])
def test_a_thread_that_is_bound_again_is_asked_for_again(
    store: Store, server: Server, plugin: Callable[..., Plugin], session: str
) -> None:
    """A2: the id of its ensure was used before, so every connect of the instance failed, or nothing was asked."""
    mac = plugin()
    mac.connect(server)
    store.turns.ensure(THREAD)
    first = mac.connect(server)
    store.instances.unbind(THREAD)
    store.instances.bind(THREAD, "mac", session)
    server.start(THREAD, silent, turn_id="t1")
    mac.active = "t1"
    server.disconnect("mac", first.generation)
    mac.heard.clear()
    mac.connect(server)
    assert mac.heard == ["ensure"]
    assert not store.turns.ensure(THREAD).outstanding
    mac.connect(server)
    assert mac.heard == ["ensure", "ensure"]


@pytest.mark.parametrize("session", ["session", "session of pi"])
def test_what_an_instance_that_never_comes_is_owed_holds_up_no_other(
    store: Store, server: Server, plugin: Callable[..., Plugin], session: str
) -> None:
    """A3: the stop that is owed to the first gateway stays owed; questions and stops of the second one go out."""
    plugin()
    pi = plugin("pi")
    store.turns.stop(THREAD)
    store.instances.unbind(THREAD)
    store.instances.bind(THREAD, "pi", session)
    accepted = pi.connect(server)
    server.start(THREAD, silent, turn_id="t1")
    frame = pi.frame(FrameKind.APPROVAL, "t1", request_id="r1", request_type="exec_command_approval")
    frame = type(frame)(**{**vars(frame), "thread_id": THREAD, "session_id": session})
    asked = server.receive("pi", accepted.generation, frame).interaction
    assert asked is not None
    store.turns.answer(asked.id, "accept")
    pi.heard.clear()
    server.send("pi", accepted.generation, pi.take)
    stop = store.turns.stop(THREAD)
    assert stop is not None and stop.instance_id == "pi"
    server.send("pi", accepted.generation, pi.take)
    assert pi.heard == ["approval", "stop"]
    assert store.turns.thread(THREAD).status == "stopped"
    assert owed(store) == [("stop", "gateway/mac")]
    mac = Plugin(store)
    mac.connect(server)
    assert mac.heard == ["stop"]
    assert (owed(store), store.turns.thread(THREAD).status) == ([], "stopped")


def test_the_late_answer_of_the_gateway_that_served_a_thread_before_says_nothing_about_it(
    store: Store, server: Server, plugin: Callable[..., Plugin]
) -> None:
    """A3: a stop and an ensure are of a gateway, also where another one has a session of that name."""
    mac = plugin()
    plugin("pi")
    store.turns.ensure(THREAD)
    (ensure,) = store.turns.claim("mac")
    store.instances.unbind(THREAD)
    store.instances.bind(THREAD, "pi", "session")
    store.turns.open_thread(THREAD)
    store.turns.settle(ensure, mac.take(ensure))
    assert store.turns.thread(THREAD).boot_id is None
    store.instances.unbind(THREAD)
    store.instances.bind(THREAD, "mac", "session")
    store.turns.stop(THREAD)
    (stop,) = store.turns.claim("mac")
    store.instances.unbind(THREAD)
    store.instances.bind(THREAD, "pi", "session")
    store.turns.open_thread(THREAD)
    store.turns.settle(stop, mac.take(stop))
    assert store.turns.thread(THREAD).status == "ready"


def test_a_stop_of_an_earlier_binding_goes_out_before_a_turn(
    store: Store, server: Server, plugin: Callable[..., Plugin]
) -> None:
    """A6: the session has the same name, so it is being stopped; of another session the stop goes first."""
    mac = plugin()
    store.turns.stop(THREAD)
    store.instances.unbind(THREAD)
    store.instances.bind(THREAD, "mac", "session")
    first = server.accept(mac.hello())
    with pytest.raises(ThreadStopped):
        server.start(THREAD, silent)
    assert store.turns.open_thread(THREAD).status == "stop_pending"
    server.send("mac", first.generation, mac.take)
    assert (mac.heard, store.turns.thread(THREAD).status) == (["stop"], "stopped")

    store.turns.ensure(THREAD)
    server.send("mac", first.generation, mac.take)
    store.turns.stop(THREAD)
    store.instances.unbind(THREAD)
    store.instances.bind(THREAD, "mac", "session 2")
    with pytest.raises(ThreadStopped) as caught:
        server.start(THREAD, silent)
    assert str(caught.value) == (
        f"A stop of session 'session' of thread {THREAD!r} in {store.path} is owed to instance 'mac'."
    )
    server.send("mac", first.generation, mac.take)
    assert server.start(THREAD, silent).state is TurnState.RUNNING
    assert mac.heard == ["stop", "ensure", "stop"]


def test_whatever_can_be_bound_can_be_served(store: Store, server: Server, plugin: Callable[..., Plugin]) -> None:
    """A4: one thread whose id left no room for a prefix made every connect of its instance fail."""
    mac = plugin()
    threads = ["x" * 512, "x" * 506, "\u00e9" * 504, " ", "\n"]
    for thread in threads:
        store.instances.bind(thread, "mac", "session 2")
    first = mac.connect(server)
    for thread in threads:
        server.start(thread, silent)
    server.disconnect("mac", first.generation)
    mac.boot_id = "boot 2"
    mac.connect(server)
    for thread in threads:
        store.turns.stop(thread)
    mac.connect(server)
    assert {store.turns.thread(thread).status for thread in threads} == {"stopped"}
    with pytest.raises(InvalidInput, match="thread_id is a text of 1 to 512 characters"):
        store.instances.bind("a\ud800", "mac", "session")


def test_a_row_that_cannot_be_asked_for_keeps_no_other_from_it(
    store: Store, server: Server, plugin: Callable[..., Plugin]
) -> None:
    """A4: neither in a connect nor in a sweep."""
    mac = plugin()
    bad, fine = "y" * 600, "zz"

    def rows(tx: Transaction) -> None:
        for thread, boot in ((bad, "boot 0"), (fine, "boot 0")):
            tx.execute("INSERT INTO thread_bindings VALUES (?, 'mac', 'session', 1)", (thread,))
            tx.execute("INSERT INTO thread_states (thread_id, boot_id) VALUES (?, ?)", (thread, boot))
            tx.execute(
                "INSERT INTO turns (turn_id, thread_id, session_id, state, started_at)"
                " VALUES (?, ?, 's', 'starting', 1)",
                (f"turn {thread[0]}", thread),
            )
            tx.execute(
                "INSERT INTO interactions (instance_id, request_id, thread_id, session_id, turn_id, kind, request_type,"
                " args, opened_at, expires_at) VALUES ('mac', ?1, ?2, 's', ?3, 'approval', 'x', ?4, 1, 2)",
                (f"r{thread[0]}", thread, f"turn {thread[0]}", "no JSON" if thread == bad else "{}"),
            )

    store.core.write(rows)
    assert len(store.turns.sweep().expired) == 2
    server.accept(mac.hello())
    found = store.turns.get("turn y")
    assert found is not None
    assert (found.state, store.turns.thread(bad).status) == (TurnState.FAILED, "error")
    assert (found.error or "").startswith("its gateway cannot be asked for it: target of an obligation is a text of")
    assert ("ensure", "gateway/mac") in owed(store)
    with store.core.reader() as reader:
        why = reader.row("SELECT reason FROM interactions WHERE request_id = 'ry'")
    assert why is not None and why[0].startswith("nobody answered in time, and its gateway cannot be told: ")


def test_a_thread_is_not_unbound_while_a_turn_runs_in_it(
    store: Store, server: Server, plugin: Callable[..., Plugin]
) -> None:
    """B19: it went with its binding, and ran on. A stop stays owed; what else was owed is taken back."""
    mac = plugin()
    mac.connect(server)
    server.start(THREAD, silent, turn_id="t1")
    with pytest.raises(TurnActive) as caught:
        store.instances.unbind(THREAD)
    assert str(caught.value) == f"Thread {THREAD!r} in {store.path} has turn 't1'; it is running."
    assert store.instances.binding(THREAD) is not None
    store.turns.stop(THREAD)
    store.turns.ensure(THREAD)
    assert store.instances.unbind(THREAD)
    assert owed(store) == [("stop", "gateway/mac")]
    assert not store.instances.unbind(THREAD)


def test_unbinding_from_a_removed_instance_leaves_nothing_owed(store: Store, plugin: Callable[..., Plugin]) -> None:
    """B17."""
    plugin()
    store.instances.revoke("mac", actor="test", reason="old")
    store.turns.stop(THREAD)
    store.instances.remove("mac", actor="test", reason="old")
    store.instances.unbind(THREAD)
    assert owed(store) == []


def test_a_turn_that_was_stopped_while_it_was_announced_is_not_asked_for(
    store: Store, server: Server, plugin: Callable[..., Plugin]
) -> None:
    """A6: nobody knows whether it began, and it is to be stopped; an ensure behind the stop brought it back."""
    mac = plugin()
    first = mac.connect(server)
    mac.heard.clear()

    def announce(_turn: object, _connection: object) -> None:
        store.turns.stop(THREAD)
        raise ConnectionLost(
            "gone", request_id="1", owner="mac", method="turn.start", close_code=1006, reason="its socket closed"
        )

    with pytest.raises(ConnectionLost):
        server.start(THREAD, announce, turn_id="t1")
    server.disconnect("mac", first.generation)
    mac.connect(server)
    assert (mac.heard, store.turns.thread(THREAD).status) == (["stop"], "stopped")


def test_what_release_0_6_0_owes_in_its_lanes_goes_on_in_order(
    store: Store, server: Server, plugin: Callable[..., Plugin]
) -> None:
    """A3: lanes `thread/<id>`, ids `ensure/<thread>/<n>`: found again, behind no other gateway, before what is new."""
    mac, pi = plugin(), plugin("pi")

    def older(tx: Transaction) -> None:
        lane = f"thread/{THREAD}"
        append(  # to a gateway that served it before, and never comes
            tx, dedupe_id="stop/old", kind="stop", transport="gateway/gone", target=THREAD, lane=lane, priority=1000,
            policy=Policy.AT_LEAST_ONCE, at=store.core.clock.now(),
            payload={"stop_id": "old", "thread_id": THREAD, "session_id": "s", "turn_id": None},
        )
        append(
            tx, dedupe_id=f"ensure/{THREAD}/1", kind="ensure", transport="gateway/mac", target=THREAD, lane=lane,
            priority=500, policy=Policy.AT_LEAST_ONCE, at=store.core.clock.now(),
            payload={"thread_id": THREAD, "session_id": "session", "turn_id": None, "history_rows": 0},
        )
        tx.execute("UPDATE thread_states SET ensures = 1 WHERE thread_id = ?", (THREAD,))

    store.core.write(older)
    assert store.turns.plan("mac", boot_id="boot 1").ensures[0].outstanding
    assert store.turns.ensure(THREAD).outstanding
    store.gateway.serve(versions=VERSIONS)
    with store.core.reader() as reader:
        lanes = reader.rows("SELECT lane, follows FROM outbox ORDER BY id")
    assert lanes == [(f"turns/4/gone/{THREAD}", 0), (f"turns/3/mac/{THREAD}", 0)]
    (claim,) = store.turns.claim("mac")
    store.turns.settle(claim, mac.take(claim))
    assert (mac.heard, store.turns.thread(THREAD).boot_id) == (["ensure"], "boot 1")

    def in_between(tx: Transaction) -> None:  # by a process of that release, beside this one
        append(
            tx, dedupe_id="ensure/x/1", kind="ensure", transport="gateway/pi", target="thread of pi",
            lane="thread/thread of pi", priority=500, policy=Policy.AT_LEAST_ONCE, at=store.core.clock.now(),
            payload={"thread_id": "thread of pi", "session_id": "session", "turn_id": None, "history_rows": 0},
        )

    store.core.write(in_between)
    store.turns.stop("thread of pi")
    assert [kind for kind, _transport in owed(store)] == ["stop", "stop"]  # it was taken back
    store.turns.send("pi", pi.take)
    assert pi.heard == ["stop"]
