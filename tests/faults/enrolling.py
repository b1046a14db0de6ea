"""Gateway instances under every fault and power cut: enrolled, renamed, revoked, removed with all that ends, or not."""

from __future__ import annotations

from pathlib import Path

from hermes_state import open_store
from hermes_state.engine import open_read
from tests.faults.operation import STORE, Done, Operation, State, conversation
from tests.support.gateways import at_work


def registered(home: Path) -> None:
    """A store with an enrolled instance that a thread is bound to."""
    conversation(home)
    with open_store(path=home / STORE) as store:
        token = store.instances.enroll("old", nickname="Old", actor="test").token
        store.instances.redeem(token, actor="plugin")
        store.instances.bind("thread", "old", "session")


def change(home: Path, done: Done) -> None:
    """Add and enroll one, rename, enroll again, revoke and remove the other, and free its id."""
    with open_store(path=home / STORE) as store:
        instances = store.instances
        token = instances.enroll("new", nickname="New", actor="test").token
        done("minted", "power")
        instances.redeem(token, actor="plugin")
        done("redeemed", "power")
        instances.rename("new", "Newer")
        done("renamed", "power")
        instances.enroll("old", actor="test")
        done("minted again", "power")
        instances.revoke("old", actor="test", reason="old")
        done("revoked", "power")
        instances.remove("old", actor="test", reason="old", horizon_seconds=0.0)
        done("removed", "power")
        instances.unbind("thread")
        done("unbound", "power")
        instances.gc()
        done("freed", "power")


def serving(home: Path) -> None:
    """A store whose instance has something of all that ends with it."""
    conversation(home)
    with open_store(path=home / STORE) as store:
        at_work(store)


def end(home: Path, done: Done) -> None:
    """Revoke and remove an instance that is at work."""
    with open_store(path=home / STORE) as store:
        store.instances.revoke("laptop", actor="test", reason="old")
        done("revoked", "power")
        store.instances.remove("laptop", actor="test", reason="old")
        done("removed", "power")


def shows(home: Path) -> State:
    """All but the secrets, which differ from run to run."""
    from tests.faults.judging import sound

    with open_read(home / STORE) as reader:
        rows = [
            reader.rows("SELECT instance_id, nickname, state, enrolled_at IS NULL FROM gateway_instances ORDER BY no"),
            reader.rows("SELECT instance_id, state FROM enrollment_tokens ORDER BY instance_id, state"),
            reader.rows("SELECT instance_id FROM gateway_credentials"),
            reader.rows("SELECT thread_id, instance_id FROM thread_bindings"),
            reader.rows("SELECT key FROM tombstones WHERE kind = 'instance'"),
            reader.rows("SELECT key, holder_key FROM tombstone_references"),
            reader.rows("SELECT kind, keys FROM deletions"),
        ]
    return {**sound(home / STORE), "instances": repr(rows)}


def shows_work(home: Path) -> State:
    """What the instance was at as well, but for ids that are made up."""
    state = dict(shows(home))
    with open_read(home / STORE) as reader:
        rows = [
            reader.rows("SELECT thread_id, status, active_turn_id, error FROM thread_states ORDER BY 1"),
            reader.rows("SELECT turn_id, state, error FROM turns ORDER BY 1"),
            reader.rows("SELECT id, state, decision, reason FROM interactions ORDER BY 1"),
            reader.rows("SELECT thread_id, state, outcome FROM stops ORDER BY 1"),
            reader.rows("SELECT kind, target, state, verdict FROM outbox ORDER BY id"),
            reader.rows("SELECT id, state, why FROM gateway_operations ORDER BY 1"),
        ]
    return {**state, "work": repr(rows)}


ENROLLING = (
    Operation(name="instances", prepare=registered, run=change, shows=shows),
    Operation(name="instances_at_work", prepare=serving, run=end, shows=shows_work),
)
