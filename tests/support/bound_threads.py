"""Threads that a gateway instance serves, for tests of turns."""

from __future__ import annotations

from hermes_state.engine import Transaction
from hermes_state.store import Store


def bind(store: Store, thread_id: str, instance_id: str, session_id: str) -> None:
    """Bind a thread to an instance, which is made when there is none: rows alone, without the registry."""

    def work(tx: Transaction) -> None:
        at = store.core.clock.now()
        tx.execute(
            "INSERT INTO gateway_instances (instance_id, nickname, nickname_key, state_at, state_actor, created_at)"
            " VALUES (?1, ?1, ?1, ?2, 'test', ?2) ON CONFLICT (instance_id) DO NOTHING",
            (instance_id, at),
        )
        tx.execute(
            "INSERT INTO thread_bindings (thread_id, instance_id, session_id, created_at) VALUES (?, ?, ?, ?)",
            (thread_id, instance_id, session_id, at),
        )

    store.core.write(work)
