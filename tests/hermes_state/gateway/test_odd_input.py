"""What a plugin or a caller may send by mistake or on purpose is refused by name, and wedges nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from hermes_state.errors import InvalidInput, StateError
from hermes_state.gateway import Server, answer_of, refusal_of
from hermes_state.outbox import Failed, Verdict
from hermes_state.store import Store
from hermes_state.turns.operations import read
from tests.hermes_state.gateway.conftest import Plugin

THREAD = "thread of mac"
ODD: dict[str, Any] = {"surrogate": "\ud800", "NUL": "a\0b", "huge": "x" * 2_000_000, "number": 7, "list": ["x"]}


@pytest.mark.parametrize("value", ODD.values(), ids=ODD)
@pytest.mark.parametrize("name", ["instance_id", "boot_id", "plugin_version", "hermes_version", "model"])
def test_an_odd_hello_is_refused_and_the_connection_stays(
    server: Server, plugin: Callable[..., Plugin], name: str, value: Any
) -> None:
    mac = plugin()
    first = mac.connect(server)
    with pytest.raises(InvalidInput, match=f"^{name} of a hello is a text of at most 512 characters"):
        server.accept(replace(mac.hello(), **{name: value}))
    assert server.link("mac").connection == first.connection


def test_capabilities_and_counts_are_bounded(server: Server, plugin: Callable[..., Plugin]) -> None:
    mac = plugin()
    first = mac.connect(server)
    for capabilities in (("x",) * 65, ("\ud800",), (7,)):
        with pytest.raises(InvalidInput, match="capabilities of a hello are at most 64 texts"):
            server.accept(replace(mac.hello(), capabilities=capabilities))  # type: ignore[arg-type]
    for count in (-1, True, "7", 2**40):
        with pytest.raises(InvalidInput, match="A connection has 0 or more sessions"):
            server.record_session_count("mac", first.generation, count)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ODD.values(), ids=ODD)
@pytest.mark.parametrize("name", ["session_id", "active_turn_id", "boot_id", "history_rows"])
def test_an_answer_that_is_none_refuses_the_ensure_and_the_turn_fails(
    store: Store, server: Server, plugin: Callable[..., Plugin], name: str, value: Any
) -> None:
    """Not raised: the claim would stay, and the thread would wait for it to run out."""
    if name == "history_rows" and value == 7:
        return
    mac = plugin()
    first = mac.connect(server)
    turn, _connection = server.reserve(THREAD)
    store.turns.ensure(THREAD)
    answer = {"session_id": "session", "active_turn_id": turn.turn_id, "boot_id": "boot 1", "history_rows": 0}
    server.send("mac", first.generation, lambda claim: answer_of(claim, answer | {name: value}))
    found = store.turns.get(turn.turn_id)
    assert found is not None
    assert (found.state, found.error) == ("failed", f"its gateway answered what no {name} can be")
    assert store.turns.thread(THREAD).session_id == "session"
    assert server.poll().owed == ()


@pytest.mark.parametrize("value", ODD.values(), ids=ODD)
def test_what_a_gateway_says_of_a_stop_or_a_refusal_is_kept_short(
    store: Store, server: Server, plugin: Callable[..., Plugin], value: Any
) -> None:
    mac = plugin()
    first = mac.connect(server)
    stop = store.turns.stop(THREAD)
    assert stop is not None
    server.send(
        "mac", first.generation, lambda claim: answer_of(claim, {"outcome": value, "more": ["x"] * 100_000})
    )
    with store.core.reader() as reader:
        row = reader.row("SELECT state, length(outcome) FROM stops WHERE stop_id = ?", (stop.stop_id,))
    assert row is not None and row[0] == "acked" and row[1] <= 4000
    store.turns.ensure(THREAD)
    server.send("mac", first.generation, lambda _claim: refusal_of(value))
    with store.core.reader() as reader:
        kept = reader.row("SELECT max(length(verdict)) FROM outbox")
    assert kept is not None and kept[0] < 10_000
    assert server.poll().owed == ()


@pytest.mark.parametrize("value", [None, "x", ["x"], 7])
def test_a_result_that_is_no_object_refuses_an_ensure_and_acknowledges_a_stop(
    store: Store, server: Server, plugin: Callable[..., Plugin], value: Any
) -> None:
    first = plugin().connect(server)
    turn, _connection = server.reserve(THREAD)
    store.turns.ensure(THREAD)
    server.send("mac", first.generation, lambda claim: answer_of(claim, value))
    found = store.turns.get(turn.turn_id)
    assert found is not None
    assert (found.state, found.error) == ("failed", "its gateway answered what no result can be")
    store.turns.stop(THREAD)
    server.send("mac", first.generation, lambda claim: answer_of(claim, value))
    assert store.turns.thread(THREAD).status == "stopped"


class Mute(Exception):
    """It cannot say what it is."""

    def __repr__(self) -> str:
        raise RuntimeError("mute")

    __str__ = __repr__


def test_a_handler_whose_words_and_errors_cannot_be_read_leaves_no_claim(
    store: Store, server: Server, plugin: Callable[..., Plugin]
) -> None:
    """What it said is a failure, what it raised leaves open whether it was sent; the row is pending either way."""
    first = plugin().connect(server)
    store.turns.ensure(THREAD)

    def breaks(_claim: object) -> Verdict:
        raise Mute

    with pytest.raises(Mute):
        server.send("mac", first.generation, breaks)
    lost, _at_connect = store.outbox.page()
    ((_claim, failed),) = server.send("mac", first.generation, lambda _claim: Mute())  # type: ignore[arg-type,return-value]
    assert lost.verdict is not None and lost.verdict["why"] == "Mute: "
    assert failed == Failed(why="the handler gave no verdict: an object of Mute")


def test_a_refusal_that_utf8_cannot_say_rolls_the_turn_back(
    store: Store, server: Server, plugin: Callable[..., Plugin]
) -> None:
    """JSON can: a plugin that refuses a start in such words left a turn behind that nobody ran."""
    plugin().connect(server)

    def refused(*_given: object) -> None:
        raise RuntimeError("no \ud800")

    with pytest.raises(RuntimeError):
        server.start(THREAD, refused, turn_id="t1")
    turn = store.turns.get("t1")
    assert turn is not None and turn.state == "withdrawn"
    with store.core.reader() as reader:
        operation = read(reader, "t1")
    assert operation is not None and (operation.state, operation.why) == ("indeterminate", "RuntimeError: no \ufffd")


def test_a_text_that_utf8_cannot_say_is_refused_by_name_everywhere(store: Store, server: Server) -> None:
    bad = "\ud800"
    instances, turns = store.instances, store.turns
    calls: list[Callable[[], object]] = [
        lambda: instances.get(bad), lambda: instances.by_nickname(bad), lambda: instances.rename("a", bad),
        lambda: instances.authenticate(bad, "x"), lambda: instances.revoke(bad, actor="t", reason="r"),
        lambda: instances.bind(bad, "a", "s"), lambda: instances.binding(bad), lambda: instances.unbind(bad),
        lambda: instances.bound(bad), lambda: instances.tombstones(after=bad), lambda: turns.thread(bad),
        lambda: turns.get(bad), lambda: turns.stop(bad), lambda: turns.history(bad),
        lambda: turns.plan(bad, boot_id="b"), lambda: turns.questions(thread_id=bad), lambda: server.status(bad),
        lambda: server.start(bad, lambda *_: None),
    ]
    for call in calls:
        with pytest.raises(StateError):
            call()
    with pytest.raises(InvalidInput) as caught:
        instances.get(bad)
    assert str(caught.value) == (
        f"A text with half a character (a lone surrogate) cannot be in {store.path}: reading failed."
    )


@pytest.mark.parametrize("value", ["", "\ud800", "a\0b", "x" * 513, 7])
def test_ids_of_turns_and_sessions_are_texts(
    store: Store, server: Server, plugin: Callable[..., Plugin], value: Any
) -> None:
    plugin().connect(server)
    with pytest.raises(InvalidInput, match="session_id is a text of 1 to 512 characters"):
        store.turns.ensure(THREAD, session_id=value)
    with pytest.raises(InvalidInput, match="turn_id is a text of 1 to 512 characters"):
        store.turns.reserve(THREAD, turn_id=value)
