"""The durable record of what was asked of a gateway (T1.28, T1.29)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from hermes_state.clock import FakeClock
from hermes_state.errors import IdempotencyConflict, InvalidInput, NotFound, StatementFailed
from hermes_state.store import Store, open_store
from hermes_state.testing import temporary_store
from hermes_state.turns import operations
from hermes_state.turns.operations import DEADLINES, DURABLE, Event, State, admit

AT = 1_800_000_000.0


@pytest.fixture(name="store")
def operations_store(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Store]:
    with temporary_store(tmp_path, clock=fake_clock) as opened:
        yield opened


def ask(store: Store, name: str = "op1", kind: str = "turn.start", **fields: Any) -> operations.Admitted:
    given = {"instance_id": "mac", "thread_id": "t1", "request": {"text": "hi"}, "epoch": 1, "at": AT} | fields
    return store.core.write(lambda tx: admit(tx, name, kind, **given), durability="power")


def read(store: Store, name: str = "op1") -> operations.Operation:
    with store.core.reader() as reader:
        found = operations.read(reader, name)
    assert found is not None
    return found


def test_every_state_and_event_has_its_outcome() -> None:
    """R42."""
    admitted, completed, indeterminate = State
    outcomes = {pair: operations.to_event(*pair) for pair in product(State, Event)}
    assert outcomes == {
        (admitted, Event.ANSWER): completed, (admitted, Event.DEADLINE): indeterminate,
        (admitted, Event.LOSE): indeterminate,
        (completed, Event.ANSWER): None, (completed, Event.DEADLINE): None, (completed, Event.LOSE): None,
        (indeterminate, Event.ANSWER): completed, (indeterminate, Event.DEADLINE): indeterminate,
        (indeterminate, Event.LOSE): indeterminate,
    }


def test_only_start_approval_and_stop_have_a_durable_record(store: Store) -> None:
    assert {"turn.start", "approval.respond", "session.stop"} == DURABLE
    for kind in sorted(DURABLE):
        assert ask(store, f"op {kind}", kind).new
    for kind in sorted(DEADLINES.keys() - DURABLE):
        with pytest.raises(InvalidInput) as error:
            ask(store, f"op {kind}", kind)
        assert str(error.value) == f"{kind!r} has no durable record."


def test_operation_is_recorded_once_and_completed_by_the_first_answer(store: Store) -> None:
    """T1.29."""
    first, again = ask(store), ask(store, at=AT + 5)
    assert (first.new, again.new) == (True, False)
    assert again.operation == first.operation
    assert (first.operation.state, first.operation.deadline_at) == (State.ADMITTED, AT + 30)
    answers = [
        store.core.write(lambda tx, said=said: operations.complete(tx, "op1", said, at=AT + 6), durability="power")
        for said in ({"turn": 1}, {"turn": 2})
    ]
    assert answers == [True, False]
    assert (read(store).state, read(store).outcome, read(store).settled_at) == (State.COMPLETED, {"turn": 1}, AT + 6)
    assert not store.core.write(lambda tx: operations.lose(tx, "op1", "gone", at=AT + 7))
    assert ask(store, at=AT + 8).operation.outcome == {"turn": 1}


def test_same_id_for_something_else_is_refused(store: Store) -> None:
    ask(store)
    for other in ({"request": {"text": "ho"}}, {"thread_id": "t2"}, {"instance_id": "phone"}):
        with pytest.raises(IdempotencyConflict) as error:
            ask(store, **other)
        assert str(error.value) == f"Operation 'op1' in {store.path} was admitted before, for something else."


def test_late_answer_completes_what_nobody_knew(store: Store) -> None:
    ask(store)
    assert store.core.write(lambda tx: operations.give_up_overdue(tx, at=AT + 30)) == 0
    assert store.core.write(lambda tx: operations.give_up_overdue(tx, at=AT + 30.1)) == 1
    assert (read(store).state, read(store).why) == (State.INDETERMINATE, "no answer before its deadline")
    assert store.core.write(lambda tx: operations.complete(tx, "op1", "started", at=AT + 31), durability="power")
    assert (read(store).state, read(store).outcome, read(store).why) == (
        State.COMPLETED, "started", "no answer before its deadline",
    )


def test_restart_leaves_nothing_admitted_for_ever(tmp_path: Path, fake_clock: FakeClock) -> None:
    """What an earlier server asked is indeterminate after a restart, what the new one asked is not."""
    with open_store(tmp_path / "home", clock=fake_clock) as store:
        ask(store)
    with open_store(tmp_path / "home", clock=fake_clock) as store:
        ask(store, "op2", "session.stop", epoch=2)
        assert store.core.write(lambda tx: operations.give_up_earlier(tx, 2, at=AT + 1), durability="power") == 1
        assert (read(store).state, read(store).why) == (State.INDETERMINATE, "the server that asked was restarted")
        with store.core.reader() as reader:
            assert [one.id for one in operations.unsettled(reader)] == ["op2"]


def test_lost_connection_makes_it_indeterminate_once(store: Store) -> None:
    ask(store)
    assert store.core.write(lambda tx: operations.lose(tx, "op1", "probes were not answered", at=AT + 3))
    assert not store.core.write(lambda tx: operations.lose(tx, "op1", "again", at=AT + 4))
    assert (read(store).why, read(store).settled_at) == ("probes were not answered", AT + 3)


def test_what_was_asked_is_in_no_byte_of_the_store(tmp_path: Path, fake_clock: FakeClock) -> None:
    with temporary_store(tmp_path, clock=fake_clock) as store:
        path = store.path
        ask(store, "op-in-the-rows", request={"text": "nobody-may-read-this"})
    found = b"".join(one.read_bytes() for one in sorted(path.parent.iterdir()) if one.is_file())
    assert b"op-in-the-rows" in found
    assert b"nobody-may-read-this" not in found


def test_settled_records_are_forgotten_after_a_week_and_unsettled_never(store: Store) -> None:
    for number in range(5):
        ask(store, f"op{number}", at=AT + number)
    for number in range(4):
        store.core.write(lambda tx, n=number: operations.complete(tx, f"op{n}", 1, at=AT + n))
    week = operations.KEEP_SECONDS
    assert store.core.write(lambda tx: operations.forget_settled(tx, at=AT + week + 2.5, limit=2)) == 2
    assert store.core.write(lambda tx: operations.forget_settled(tx, at=AT + week + 2.5, limit=2)) == 1
    assert store.core.write(lambda tx: operations.forget_settled(tx, at=AT + 9 * week)) == 1
    assert read(store, "op4").state is State.ADMITTED


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE gateway_operations SET state = 'guessed'",
        "UPDATE gateway_operations SET state = 'completed'",
        "UPDATE gateway_operations SET state = 'indeterminate', settled_at = 1.0",
        "UPDATE gateway_operations SET settled_at = 1.0",
        "UPDATE gateway_operations SET outcome = '1'",
        "DELETE FROM gateway_operations",
    ],
)
def test_file_itself_refuses_what_no_transition_makes(store: Store, statement: str) -> None:
    ask(store)
    with pytest.raises(StatementFailed):
        store.core.write(lambda tx: tx.execute(statement))
    assert read(store).state is State.ADMITTED


def test_completed_never_changes_whoever_writes(store: Store) -> None:
    ask(store)
    store.core.write(lambda tx: operations.complete(tx, "op1", "done", at=AT + 1))
    with pytest.raises(StatementFailed):
        store.core.write(lambda tx: tx.execute("UPDATE gateway_operations SET outcome = '2'"))
    assert read(store).outcome == "done"


@pytest.mark.parametrize("outcome", [None, float("nan"), {1, 2}, "x" * 65_536, "\ud800"])
def test_outcome_that_cannot_be_kept_is_refused(store: Store, outcome: Any) -> None:
    ask(store)
    with pytest.raises(InvalidInput):
        store.core.write(lambda tx: operations.complete(tx, "op1", outcome, at=AT + 1))
    assert read(store).state is State.ADMITTED


def test_answer_to_what_was_never_admitted_is_refused(store: Store) -> None:
    for act in (
        lambda tx: operations.complete(tx, "op9", 1, at=AT), lambda tx: operations.lose(tx, "op9", "gone", at=AT)
    ):
        with pytest.raises(NotFound) as error:
            store.core.write(act)
        assert str(error.value) == f"There is no operation 'op9' in {store.path}."


@pytest.mark.parametrize("fields", [{"name": ""}, {"instance_id": ""}, {"thread_id": "x" * 513}, {"request": {1, 2}}])
def test_operation_that_cannot_be_recorded_is_refused(store: Store, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        ask(store, **fields)
