"""Revoking and removing instances, and freeing their ids in the end.

Invariant: what revokes is one commit: state, credential and pending token end together, so a revoked instance cannot
connect, also after a restart. Only a revoked instance, or one that was never enrolled, is removed; its tombstone is
written by the same commit and refers to each binding. Its id is free again only when the horizon has passed and no
binding refers to it, and its row goes in the commit that frees it.

Not for: closing sockets, which the server does once it hears of the commit (`Server.poll`). Dropping tombstones when a
process starts was rejected: an id used again would point old threads at another machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_state import deletions, tombstones
from hermes_state.errors import InvalidInput
from hermes_state.instances import bindings, credentials, enrollment, registry, remembered
from hermes_state.instances.records import Changed, Freed, Removed
from hermes_state.instances.states import Event, Gone, State, to_event

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction

# For how long a removed id cannot come back at least: as long as the id of a deleted session.
HORIZON_SECONDS = 90 * 86_400.0
# Rows in one transaction of a collection.
STEP = 500
_PAGE = 500


def revoke(tx: Transaction, instance_id: str, *, actor: str, reason: str, at: float) -> Changed:
    """End what lets an instance in. Of one that is revoked already only a pending token ends, if it has one.

    Raises `InstanceNotFound`, `InstanceRemoved`.
    """
    before = registry.allowed(tx, instance_id, Event.REVOKE)
    credentials.drop(tx, instance_id)
    forgotten = enrollment.forget(tx, instance_id, at=at)
    if before.state is State.REVOKED:
        return Changed(instance=registry.get(tx, instance_id), changed=forgotten)
    return Changed(
        instance=registry.enter(tx, before, Event.REVOKE, actor=actor, reason=reason, at=at), changed=True
    )


def remove(
    tx: Transaction, instance_id: str, *, actor: str, reason: str, at: float, horizon_seconds: float = HORIZON_SECONDS
) -> Removed:
    """Remove an instance: nobody sees it any more, and its nickname is free. Its bindings stay.

    Raises `InstanceNotFound`, `InstanceNotRevoked`, `InvalidInput`.
    """
    if isinstance(horizon_seconds, bool) or not isinstance(horizon_seconds, (int, float)) or not horizon_seconds >= 0:
        raise InvalidInput(
            f"horizon_seconds is a number of seconds from 0, not {horizon_seconds!r:.80}.", argument="horizon_seconds"
        )
    before = registry.allowed(tx, instance_id, Event.REMOVE)
    if before.state is State.REMOVED:
        return Removed(
            instance_id=instance_id, tombstone=tombstones.find(tx, registry.KIND, instance_id), changed=False
        )
    if to_event(before.state, Event.REMOVE) is Gone.GONE:
        registry.erase(tx, instance_id, at=at)
    else:
        # The tombstone first: there is no statement after which the id would be free.
        entomb(tx, instance_id, actor=actor, reason=reason, at=at, horizon_seconds=horizon_seconds)
        enrollment.forget(tx, instance_id, at=at)
        remembered.forget(tx, instance_id)
        registry.enter(tx, before, Event.REMOVE, actor=actor, reason=reason, at=at)
    deletions.record(
        tx, actor=actor, reason=reason, kind=registry.KIND, keys=[instance_id], rows=1, at=at,
        detail={"nickname": before.nickname},
    )
    return Removed(
        instance_id=instance_id, tombstone=tombstones.find(tx, registry.KIND, instance_id), changed=True
    )


def entomb(
    tx: Transaction, instance_id: str, *, actor: str, reason: str, at: float, horizon_seconds: float = HORIZON_SECONDS
) -> None:
    """Write the tombstone of an instance, with a reference for each thread that is bound to it."""
    tombstones.entomb(
        tx, registry.KIND, instance_id, made_at=at, horizon_seconds=horizon_seconds, actor=actor, reason=reason
    )
    after = ""
    while found := bindings.page(tx, instance_id, limit=_PAGE, after=after):
        for one in found:
            tombstones.hold(tx, registry.KIND, instance_id, "thread", one.thread_id)
        after = found[-1].thread_id


def due(reader: Reader, *, at: float, limit: int = STEP) -> tuple[str, ...]:
    """Up to `limit` ids that `collect` would free."""
    rows = reader.rows(
        "SELECT i.instance_id FROM gateway_instances AS i LEFT JOIN tombstones AS t ON t.kind = ?"
        " AND t.key = i.instance_id WHERE i.removed_at IS NOT NULL AND (t.key IS NULL OR (t.horizon_at <= ?"
        " AND NOT EXISTS (SELECT 1 FROM tombstone_references AS r WHERE r.kind = t.kind AND r.key = t.key)))"
        " ORDER BY i.removed_at LIMIT ?",
        (registry.KIND, at, limit),
    )
    return tuple(name for (name,) in rows)


def collect(tx: Transaction, *, at: float, limit: int = STEP) -> Freed:
    """Free up to `limit` removed ids whose horizon has passed and that no binding refers to; their rows go as well."""
    collected = tombstones.collect(tx, at, limit=limit, kind=registry.KIND)
    # Whoever collected tombstones before may have left the rows.
    rows = tx.rows(
        "SELECT instance_id FROM gateway_instances AS i WHERE removed_at IS NOT NULL AND NOT EXISTS (SELECT 1"
        " FROM tombstones AS t WHERE t.kind = ? AND t.key = i.instance_id) ORDER BY removed_at LIMIT ?",
        (registry.KIND, limit),
    )
    for (instance_id,) in rows:
        registry.erase(tx, instance_id, at=at)
    freed = dict.fromkeys([key for _kind, key in collected.freed] + [name for (name,) in rows])
    return Freed(instance_ids=tuple(freed), more=collected.more or len(rows) == limit)
