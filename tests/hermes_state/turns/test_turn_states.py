"""The four state machines, every state with every event; and a store under any order of events."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from hermes_state.clock import FakeClock
from hermes_state.errors import StateError, StatementFailed, UnsupportedMessage
from hermes_state.store import Store
from hermes_state.turns import (
    Admission,
    Decision,
    FrameKind,
    InteractionEvent,
    InteractionState,
    StopEvent,
    StopState,
    ThreadEvent,
    ThreadStatus,
    TurnEvent,
    TurnState,
    to_event,
)
from hermes_state.turns.frames import ENDS, ITEM_TYPES, TURN_EVENTS, judge, kind_of, thread_event, turn_event
from hermes_state.turns.records import Thread, Turn
from hermes_state.turns.states import ACTIVE_TURN, INTERACTION, STOP, THREAD, TURN, decision_of
from tests.hermes_state.turns.conftest import Plugin, frame, silent
from tests.support.bound_threads import bind

# Each row a state, each column an event in the order of its class; "." is rejected.
TABLES: dict[str, tuple[type[StrEnum], type[StrEnum], str]] = {
    "turn": (
        TurnState, TurnEvent,
        """
        starting  running withdrawn completed failed aborted stopping .       stopped failed  running  failed
        running   running .         completed failed aborted stopping .       stopped failed  running  failed
        stopping  stopping stopped  stopped   stopped stopped stopping stopped stopped stopped stopping stopped
        completed . . . . . . . . . . .
        failed    . . . . . . . . . . .
        aborted   . . . . . . . . . . .
        stopped   . . . . . . . . . . .
        withdrawn . . . . . . . . . . .
        """,
    ),
    "thread": (
        ThreadStatus, ThreadEvent,
        """
        ready        running ready        stop_pending .       .     stopped error   ready
        running      running ready        stop_pending .       .     stopped error   running
        error        running error        stop_pending .       .     stopped error   ready
        stop_pending .       stop_pending stop_pending stopped ready stopped stopped .
        stopped      .       stopped      stopped      .       .     stopped stopped ready
        """,
    ),
    "interaction": (
        InteractionState, InteractionEvent,
        """
        open      resolved open cancelled cancelled cancelled expired
        resolved  . . . . . .
        cancelled . . . . . .
        expired   . . . . . .
        """,
    ),
    "stop": (
        StopState, StopEvent,
        """
        pending   pending acked acked acked cancelled cancelled
        acked     . . . . . .
        cancelled . . . . . .
        """,
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_r42_every_state_with_every_event_is_as_written_here(name: str) -> None:
    """R42."""
    states, events, text = TABLES[name]
    rows = [line.split() for line in text.split("\n") if line.strip()]
    assert [row[0] for row in rows] == [str(state) for state in states]
    seen = {
        (str(state), str(event)): str(to_event(state, event) or ".")  # type: ignore[call-overload]
        for state, event in itertools.product(states, events)
    }
    assert seen == {
        (row[0], str(event)): became for row in rows for event, became in zip(events, row[1:], strict=True)
    }


def test_r42_the_tables_hold_nothing_else() -> None:
    """R42: and an event of one machine is nothing to another."""
    for table, states, events in (
        (TURN, TurnState, TurnEvent), (THREAD, ThreadStatus, ThreadEvent),
        (INTERACTION, InteractionState, InteractionEvent), (STOP, StopState, StopEvent),
    ):
        assert {(type(state), type(event), type(became)) for (state, event), became in table.items()} == {
            (states, events, states)
        }


def test_t1_43_nothing_ends_a_stopping_turn_or_thread_in_error() -> None:
    """T1.43, R40."""
    assert {became for (state, _), became in TURN.items() if state is TurnState.STOPPING} == {
        TurnState.STOPPING, TurnState.STOPPED,
    }
    assert ThreadStatus.ERROR not in {
        became for (state, _), became in THREAD.items() if state in (ThreadStatus.STOP_PENDING, ThreadStatus.STOPPED)
    }


def test_every_type_of_frame_has_its_meaning() -> None:
    """R42: the frame table is whole, and the two choices in it are by what is said, not by what is left out."""
    assert set(TURN_EVENTS) == set(FrameKind)
    assert turn_event(frame(FrameKind.TURN_COMPLETED, "t", state="completed")) is TurnEvent.COMPLETE
    for state in ("failed", "weird", None):
        assert turn_event(frame(FrameKind.TURN_COMPLETED, "t", state=state)) is TurnEvent.FAIL
    graceful = frame(FrameKind.SESSION_EXITED, exit_kind="graceful")
    assert (turn_event(graceful), thread_event(graceful)) == (TurnEvent.EXIT, ThreadEvent.EXIT)
    for fields in ({}, {"exit_kind": "error"}, {"recoverable": True}):
        crash = frame(FrameKind.SESSION_EXITED, **fields)
        assert (turn_event(crash), thread_event(crash)) == (TurnEvent.CRASH, ThreadEvent.CRASH)
    assert {kind for kind in FrameKind if thread_event(frame(kind)) is not None} == {FrameKind.SESSION_EXITED}


def test_a_type_that_is_none_is_named() -> None:
    assert [kind_of(str(kind)) for kind in FrameKind] == list(FrameKind)
    with pytest.raises(UnsupportedMessage) as caught:
        kind_of("provider.activity")
    assert str(caught.value) == "A gateway sent a message of type 'provider.activity', which is none."


def thread_in(status: ThreadStatus) -> Thread:
    running = status is ThreadStatus.RUNNING
    return Thread(
        thread_id="thread", instance_id="gateway-1", session_id="session", status=status, turn_ids=True,
        active_turn_id="t1" if running else None, boot_id=None, resumed=None, history_rows=0, ensures=0, rejected=0,
        error=None,
    )


def turn_in(state: TurnState) -> Turn:
    return Turn(
        no=1, turn_id="t1", thread_id="thread", session_id="session", generation=None, state=state, exit_class=None,
        started_at=0.0, settled_at=None, error=None, items=0,
    )


def test_t1_42_which_frames_count_in_which_state_fully_enumerated() -> None:
    """T1.42, R42: every status with every active turn and every type of frame of the right session."""
    for status, state, kind in itertools.product(
        ThreadStatus, (None, *sorted(ACTIVE_TURN)), FrameKind
    ):
        turn = None if state is None else turn_in(state)
        fields = {"item_type": "status_text"}
        got = judge(thread_in(status), turn, frame(kind, "t1", **fields))
        if kind in (FrameKind.SESSION_EXITED, FrameKind.WITHDRAWN):
            expected = Admission.ADMITTED
        elif status is ThreadStatus.STOPPED:
            expected = Admission.STOPPED
        elif kind not in ENDS and (status is ThreadStatus.STOP_PENDING or state is TurnState.STOPPING):
            expected = Admission.STOPPING
        else:
            expected = Admission.NO_TURN if turn is None else Admission.ADMITTED
        assert got is expected, (status, state, kind)


def test_what_is_not_known_to_be_a_permission_denies() -> None:
    """1.8: the four words of clients, those of the wire, and anything else."""
    told = {
        "accept": "once", "acceptForSession": "session", "decline": "deny", "cancel": "deny", "once": "once",
        "session": "session", "deny": "deny", "": "deny", "Accept": "deny", "yes": "deny", "always": "deny",
    }
    assert {said: decision_of(said) for said in told} == told
    assert {decision_of(said) for said in (None, 1, True, ["accept"], {"accept": 1})} == {Decision.DENY}


def test_the_item_types_of_the_code_are_those_of_the_file(store: Store) -> None:
    """R27: an unknown type cannot be stored at all."""
    store.turns.start("thread", silent, turn_id="t1")

    def put(kind: str) -> Callable[[Any], int]:
        return lambda tx: tx.execute(
            "INSERT INTO turn_items VALUES (1, (SELECT count(*) FROM turn_items), ?, '{}', 0)", (kind,)
        )

    for kind in ITEM_TYPES:
        store.core.write(put(kind))
    with pytest.raises(StatementFailed, match="CHECK"):
        store.core.write(put("unknown"))


@pytest.mark.parametrize(
    "lie",
    [
        "UPDATE thread_states SET status = 'running', active_turn_id = NULL",
        "UPDATE thread_states SET status = 'ready', active_turn_id = 't1'",
        "UPDATE thread_states SET status = 'closed', active_turn_id = NULL",
        "UPDATE turns SET state = 'completed'",
        "UPDATE turns SET state = 'running', settled_at = 1.0",
        "INSERT INTO turns (turn_id, thread_id, session_id, state, started_at)"
        " VALUES ('t2', 'thread', 's', 'starting', 0)",
    ],
)
def test_t1_36_the_file_refuses_a_persisted_lie(store: Store, lie: str) -> None:
    """T1.36, R29, T1.40."""
    store.turns.start("thread", silent, turn_id="t1")
    with pytest.raises(StatementFailed):
        store.core.write(lambda tx: tx.execute(lie))


def test_a_settled_turn_never_changes(store: Store) -> None:
    store.turns.start("thread", silent, turn_id="t1")
    store.turns.receive(frame(FrameKind.TURN_COMPLETED, "t1", state="completed"))
    with pytest.raises(StatementFailed, match="a settled turn never changes"):
        store.core.write(lambda tx: tx.execute("UPDATE turns SET state = 'failed'"))


STEPS = (
    "start", "start fails", "started", "delta", "item", "complete", "fail", "abort", "wrong end", "exit", "crash",
    "ask", "answer", "stop", "shutdown", "hear", "drop", "restart", "ensure", "ensure other", "sweep",
)
ENDS_SAID = {"complete": "completed", "fail": "failed"}


def take(store: Store, plugin: Plugin, thread: str, step: str, number: int) -> None:
    """One step of a gateway or a person, whatever state it comes in."""
    turns = store.turns
    active = turns.active(thread)
    turn_id = None if active is None else active.turn_id
    bound = turns.thread(thread)
    about = {"thread": thread, "session_id": bound.session_id}

    def fails(_turn: object) -> None:
        raise ConnectionError

    match step:
        case "start":
            plugin.active[thread] = turns.start(thread, silent, boot_id=plugin.boot_id).turn_id
        case "start fails":
            with pytest.raises(ConnectionError):
                turns.start(thread, fails)
        case "started":
            turns.receive(frame(FrameKind.TURN_STARTED, turn_id, **about))
        case "delta":
            turns.receive(frame(FrameKind.CONTENT_DELTA, turn_id, text="x", **about))
        case "item":
            turns.receive(frame(FrameKind.ITEM, turn_id, item_type="file_change", path="/p", **about))
        case "complete" | "fail":
            plugin.active.pop(thread, None)
            turns.receive(frame(FrameKind.TURN_COMPLETED, turn_id, state=ENDS_SAID[step], **about))
        case "abort":
            plugin.active.pop(thread, None)
            turns.receive(frame(FrameKind.TURN_ABORTED, turn_id, reason="no", **about))
        case "wrong end":
            turns.receive(frame(FrameKind.TURN_COMPLETED, "another", state="completed", **about))
        case "exit" | "crash":
            plugin.active.pop(thread, None)
            kind = "graceful" if step == "exit" else "error"
            turns.receive(frame(FrameKind.SESSION_EXITED, exit_kind=kind, **about))
        case "ask":
            turns.receive(
                frame(FrameKind.APPROVAL, turn_id, request_id=f"r{number}", request_type="x", **about),
                boot_id=plugin.boot_id,
            )
        case "answer":
            for one in turns.questions(thread_id=thread):
                turns.answer(one.id, "accept")
        case "stop":
            turns.stop(thread)
        case "hear":
            plugin.hear()
        case "drop":
            plugin.reconnect()
        case "restart":
            plugin.reconnect(boot_id=f"{plugin.boot_id}+")
        case "ensure":
            turns.ensure(thread)
        case "ensure other":
            turns.ensure(thread, session_id=f"session {number}")
        case "sweep":
            turns.sweep()


def invariants(store: Store, plugin: Plugin, thread: str, *, turn_ids: bool) -> None:
    now, active = store.turns.thread(thread), store.turns.active(thread)
    assert (now.status is ThreadStatus.RUNNING) == (now.active_turn_id is not None)
    if not turn_ids:
        assert now.active_turn_id is None
    if now.active_turn_id is not None:
        assert active is not None
        assert active.turn_id == now.active_turn_id
        assert active.state is TurnState.RUNNING
    if now.status is ThreadStatus.STOPPED:
        assert active is None
    with store.core.reader() as reader:
        pending = reader.rows("SELECT 1 FROM stops WHERE thread_id = ? AND state = 'pending'", (thread,))
    assert bool(pending) == (now.status is ThreadStatus.STOP_PENDING)


@pytest.fixture(name="shared", scope="module")
def one_store_for_all_examples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, Iterator[int]]]:
    from hermes_state.testing import temporary_store

    folder: Path = tmp_path_factory.mktemp("orders")
    with temporary_store(folder, clock=FakeClock(folder / "clock.json", now=1_800_000_000.0)) as opened:
        yield opened, itertools.count()


@given(steps=st.lists(st.sampled_from(STEPS), max_size=14), turn_ids=st.booleans())
@hypothesis_settings(max_examples=120)
def test_t1_36_no_order_of_events_stores_a_lie_or_leaves_anything_open(
    shared: tuple[Store, Iterator[int]], steps: list[str], turn_ids: bool
) -> None:
    """T1.36, T1.37, T1.30: after any order, a restart of the plugin and one hearing leave nothing unsettled."""
    store, numbers = shared
    thread = f"thread {next(numbers)}"
    bind(store, thread, "gateway-1", f"session of {thread}")
    store.turns.open_thread(thread, turn_ids=turn_ids)
    plugin = Plugin(store.turns, boot_id=f"boot of {thread}")
    for number, step in enumerate(steps):
        try:
            take(store, plugin, thread, step, number)
        except StateError as error:
            assert error.code in ("turn_active", "thread_stopped"), (step, error)
        invariants(store, plugin, thread, turn_ids=turn_ids)
    plugin.reconnect(boot_id=f"{plugin.boot_id}, the last")
    invariants(store, plugin, thread, turn_ids=turn_ids)
    assert store.turns.active(thread) is None
    assert store.turns.questions(thread_id=thread) == []
    with store.core.reader() as reader:
        owed = reader.rows("SELECT dedupe_id FROM outbox WHERE target = ? AND settled_at IS NULL", (thread,))
    assert owed == []
    store.core.write(lambda tx: tx.execute("DELETE FROM thread_bindings WHERE thread_id = ?", (thread,)))
