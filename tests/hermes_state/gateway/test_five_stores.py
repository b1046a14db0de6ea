"""The five stores of a gateway: each writes its own tables, uses no private name of another, and works alone."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.engine import Transaction
from hermes_state.instances import enrollment, registry
from hermes_state.store import Store
from hermes_state.testing import temporary_store
from hermes_state.turns import interactions, settling, threads
from hermes_state.turns.states import TurnEvent
from tests.hermes_state.instances.servers import Server, hello
from tests.support.bound_threads import bind
from tests.support.children import PROJECT

# Each store: its modules, and the tables that only they write.
STORES: dict[str, tuple[set[str], set[str]]] = {
    "registry": (
        {"instances/registry", "instances/nicknames", "instances/bindings", "instances/removal", "instances/importing"},
        {"gateway_instances", "thread_bindings"},
    ),
    "enrollment": (
        {"instances/enrollment", "instances/credentials"},
        {"enrollment_tokens", "gateway_credentials", "gateway_digest_key"},
    ),
    "connections": (
        {
            "instances/connections", "instances/generations", "instances/remembered", "instances/last_seen",
            "instances/protocol", "instances/failures", "instances/liveness",
        },
        {"leases", "gateway_links", "gateway_last_seen", "gateway_cursors", "gateway_attention"},
    ),
    "turns": (
        {
            "turns/turns", "turns/settling", "turns/threads", "turns/history", "turns/recovery", "turns/stops",
            "turns/sending", "turns/receiving", "turns/operations", "turns/home", "turns/ending",
        },
        {
            "thread_states", "turns", "turn_items", "stops", "gateway_operations", "home_deliveries", "home_horizon",
            "home_threads",
        },
    ),
    "interactions": ({"turns/interactions"}, {"interactions"}),
}
# The session of a binding is the gateway's: whoever hears of another one writes that column, and no other.
SHARED = {("turns/threads", "thread_bindings")}
_WRITES = re.compile(r"\b(?:INSERT INTO|UPDATE|DELETE FROM) ([a-z_]+)(?= |\b)")


def modules() -> dict[str, Path]:
    folder = PROJECT / "hermes_state"
    return {
        path.relative_to(folder).with_suffix("").as_posix(): path
        for part in ("instances", "turns", "gateway") for path in (folder / part).rglob("*.py")
    }


def test_each_table_is_written_by_one_store() -> None:
    """R21, Must show 2."""
    owner = {table: name for name, (_modules, tables) in STORES.items() for table in tables}
    of = {module: name for name, (names, _tables) in STORES.items() for module in names}
    wrong = []
    for module, path in modules().items():
        texts = [
            node.value for node in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
        for table in {found for text in texts for found in _WRITES.findall(text)} & owner.keys():
            if of.get(module) != owner[table] and (module, table) not in SHARED:
                wrong.append(f"{module} writes {table} of {owner[table]}")
    assert wrong == []


def test_no_module_uses_a_private_name_of_another() -> None:
    """R21, Must show 2."""
    wrong = []
    for module, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom):
                wrong += [f"{module} imports {one.name}" for one in node.names if one.name.startswith("_")]
            elif (
                isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__")
                and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
            ):
                wrong.append(f"{module}:{node.lineno} uses {ast.unparse(node)}")
    assert wrong == []


@pytest.mark.parametrize("name", STORES)
def test_each_store_works_on_a_database_alone(name: str, tmp_path: Path, fake_clock: FakeClock) -> None:
    """R21: with rows in the place of the other four."""
    with temporary_store(tmp_path, clock=fake_clock) as store:
        assert ALONE[name](store)


def _registry(store: Store) -> bool:
    def work(tx: Transaction) -> bool:
        registry.add(tx, "a", nickname="A", connector_url=None, actor="test", at=1.0)
        return registry.change(tx, "a", nickname="B", at=2.0).changed

    return store.core.write(work)


def _enrollment(store: Store) -> bool:
    bind(store, "thread", "a", "session")
    token, _until = store.core.write(lambda tx: enrollment.mint(tx, "a", at=1.0))
    return bool(store.core.write(lambda tx: enrollment.consume(tx, token, at=2.0, actor="plugin")).credential)


def _connections(store: Store) -> bool:
    server = Server(store)
    return server.connections.accept(hello("a")).generation.epoch == 1


def _turns(store: Store) -> bool:
    bind(store, "thread", "a", "session")

    def work(tx: Transaction) -> bool:
        turn = settling.reserve(tx, "thread", at=1.0)
        settling.step(tx, threads.open_thread(tx, "thread"), turn, TurnEvent.ANNOUNCE, at=2.0)
        return settling.end(tx, "thread", TurnEvent.COMPLETE, at=3.0) == "completed"

    return store.core.write(work)


def _interactions(store: Store) -> bool:
    bind(store, "thread", "a", "session")

    def work(tx: Transaction) -> bool:
        asked = interactions.ask(
            tx, threads.open_thread(tx, "thread"), request_id="r", boot_id=None, turn_id=None, kind="approval",
            request_type="command", args={}, at=1.0,
        )
        return interactions.answer(tx, asked.id, said="accept", at=2.0)[1]

    return store.core.write(work)


ALONE = {
    "registry": _registry, "enrollment": _enrollment, "connections": _connections, "turns": _turns,
    "interactions": _interactions,
}
