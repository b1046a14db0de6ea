"""A connection and what it recovers, together: the plan is stored before a connect is accepted (H5, T1.34, R23)."""

from __future__ import annotations

from hermes_state.engine import Reader, Transaction, open_read
from hermes_state.instances.connection_records import Hello
from hermes_state.instances.connections import Connections
from hermes_state.instances.protocol import VersionRange
from hermes_state.store import Store
from hermes_state.turns import RecoveryPlan, TurnState, apply_recovery, plan_recovery
from hermes_state.turns.turns import Turns
from tests.hermes_state.turns.conftest import GATEWAY, Plugin, silent


def server(store: Store) -> Connections[RecoveryPlan]:
    def authenticate(reader: Reader, instance_id: str, credential: str) -> None:
        assert (instance_id, credential) == (GATEWAY, "right")

    def apply(tx: Transaction, plan: RecoveryPlan) -> None:
        apply_recovery(tx, plan, at=store.core.clock.now())

    return Connections(
        store.core, versions=VersionRange(2, 3), authenticate=authenticate, plan=plan_recovery, apply=apply,
        changes_nothing=lambda plan: plan.changes_nothing,
    )


def hello(boot_id: str) -> Hello:
    return Hello(
        instance_id=GATEWAY, credential="right", boot_id=boot_id, versions=VersionRange(2, 3), plugin_version="1",
        hermes_version="1",
    )


def owed(store: Store) -> list[str]:
    with store.core.reader() as reader:
        return [name for (name,) in reader.rows("SELECT kind FROM outbox WHERE settled_at IS NULL ORDER BY id")]


def test_dropped_socket_during_a_turn_owes_one_ensure_when_it_is_back(store: Store, turns: Turns) -> None:
    """T1.34: the caller does nothing but accept."""
    connections = server(store)
    first = connections.accept(hello("boot-1"))
    turns.start("thread", silent, turn_id="turn-1", generation=str(first.generation), boot_id="boot-1")
    assert owed(store) == []
    connections.disconnect(GATEWAY, first.generation)
    second = connections.accept(hello("boot-1"))
    assert owed(store) == ["ensure"]
    assert (second.boot_id_changed, [one.turn_id for one in second.recovery_plan.ensures]) == (False, ["turn-1"])
    connections.accept(hello("boot-1"))  # again before it was answered: asked once
    assert owed(store) == ["ensure"]


def test_restarted_plugin_settles_the_turn_within_one_answer(store: Store, turns: Turns) -> None:
    """T1.34: the new process does not know the turn."""
    connections = server(store)
    first = connections.accept(hello("boot-1"))
    turns.start("thread", silent, turn_id="turn-1", generation=str(first.generation), boot_id="boot-1")
    connections.accept(hello("boot-2"))
    turns.send(GATEWAY, Plugin(turns, boot_id="boot-2"))
    found = turns.get("turn-1")
    assert found is not None
    assert found.state is TurnState.FAILED
    assert owed(store) == []


def test_connects_with_nothing_to_recover_commit_nothing(store: Store, turns: Turns) -> None:
    """T1.24, with the real recovery behind it."""
    connections = server(store)
    connections.accept(hello("boot-1"))
    turns.open_thread("thread")
    other = open_read(store.path)
    before = other.rows("PRAGMA data_version")
    for _ in range(100):
        connections.disconnect(GATEWAY, connections.accept(hello("boot-1")).generation)
    assert other.rows("PRAGMA data_version") == before
    other.close()


def test_a_turn_that_began_after_an_ensure_was_owed_is_asked_about_by_another(store: Store, turns: Turns) -> None:
    """T1.34: the answer to the earlier ensure says nothing about that turn, which stayed `starting` for ever."""
    connections = server(store)
    first = connections.accept(hello("boot-1"))
    turns.ensure("thread")
    turns.reserve("thread", turn_id="turn-1", generation=str(first.generation), boot_id="boot-1")
    connections.accept(hello("boot-2"))
    assert owed(store) == ["ensure", "ensure"]
    connections.accept(hello("boot-2"))
    assert turns.ensure("thread").outstanding
    assert owed(store) == ["ensure", "ensure"]
    turns.send(GATEWAY, Plugin(turns, boot_id="boot-2"))
    turn = turns.get("turn-1")
    assert turn is not None
    assert (turn.state, owed(store)) == (TurnState.FAILED, [])
