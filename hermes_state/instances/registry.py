"""The rows of instances: adding, finding, naming.

Invariant: one row is all that an instance is, so it has one name for every reader, and a rename is one statement. A
nickname belongs to one living instance by a unique index; a revoked one keeps its own, a removed one frees it. An id
with a tombstone is not added again, and nothing makes a row that was not asked for.

Not for: tokens, credentials, connections. A list of names beside the rows was rejected: two places disagree one day.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn

from hermes_state import tombstones
from hermes_state.changes.records import record
from hermes_state.errors import (
    InstanceExists,
    InstanceNotEnrolled,
    InstanceNotFound,
    InstanceNotRevoked,
    InstanceRemoved,
    InstanceRevoked,
    NicknameConflict,
)
from hermes_state.instances import nicknames, remembered
from hermes_state.instances.records import COLUMNS, Changed, Instance, instance
from hermes_state.instances.states import Event, Gone, Refusal, State, to_event
from hermes_state.shell_words import shell_word

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction

TABLE = "gateway_instances"
KIND = "instance"  # of its tombstone and of its deletion
# The uniqueness check: one look into the unique index.
HOLDER = f"SELECT {COLUMNS} FROM gateway_instances AS i WHERE i.nickname_key = ? AND i.removed_at IS NULL"


def find(reader: Reader, instance_id: str) -> Instance | None:
    """One instance, a removed one included, or None."""
    row = reader.row(f"SELECT {COLUMNS} FROM gateway_instances AS i WHERE i.instance_id = ?", (instance_id,))
    return None if row is None else instance(row)


def get(reader: Reader, instance_id: str) -> Instance:
    """One instance, a removed one included. Raises `InstanceNotFound`."""
    found = find(reader, instance_id)
    if found is None:
        raise InstanceNotFound(
            f"There is no instance {instance_id!r} in {reader.path}.",
            hint=f"`hermes-state instances list --db {shell_word(reader.path)}` shows them.",
            path=reader.path, instance_id=instance_id,
        )
    return found


def holder(reader: Reader, nickname: str) -> Instance | None:
    """The living instance that has a nickname, however that is written."""
    row = reader.row(HOLDER, (nicknames.nickname_key(nickname),))
    return None if row is None else instance(row)


def page(reader: Reader, *, states: Sequence[State] | None, limit: int, after: int) -> list[Instance]:
    """Up to `limit` instances in the order in which they were added; `after` is the number that the last page ended at.

    `states`: None for all that are not removed.
    """
    wanted = json.dumps([str(state) for state in states or [one for one in State if one is not State.REMOVED]])
    return [
        instance(row)
        for row in reader.rows(
            f"SELECT {COLUMNS} FROM gateway_instances AS i WHERE i.no > ?"
            " AND i.state IN (SELECT value FROM json_each(?)) ORDER BY i.no LIMIT ?",
            (after, wanted, limit),
        )
    ]


def add(
    tx: Transaction, instance_id: str, *, nickname: str, connector_url: str | None, actor: str, at: float,
    state: State = State.CONFIGURED, reason: str = "",
) -> Instance:
    """Add an instance; nobody is enrolled yet. `state` is for what an import brings.

    Raises `InvalidInput`, `InvalidConnectorUrl`, `InstanceExists`, `InstanceRemoved`, `NicknameConflict`.
    """
    refuse_add(tx, instance_id, nickname=nickname, connector_url=connector_url, living=state is not State.REMOVED)
    shown, key = nicknames.nickname(nickname)
    url = None if connector_url is None else nicknames.connector_url(connector_url)
    if find(tx, instance_id) is not None:  # its tombstone was collected and its row was not yet
        erase(tx, instance_id, at=at)
    tx.execute(
        "INSERT INTO gateway_instances (instance_id, nickname, nickname_key, connector_url, state, state_at,"
        " state_actor, state_reason, created_at, enrolled_at, removed_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            instance_id, shown, key, url, str(state), at, actor, reason, at, at if state is State.ENROLLED else None,
            at if state is State.REMOVED else None,
        ),
    )
    record(tx, TABLE, instance_id, "insert", at)
    return get(tx, instance_id)


def refuse_add(
    reader: Reader, instance_id: str, *, nickname: str, connector_url: str | None, living: bool = True
) -> None:
    """Raise what `add` would; one that is not `living` needs no nickname of its own."""
    nicknames.instance_id(instance_id)
    shown, key = nicknames.nickname(nickname)
    if connector_url is not None:
        nicknames.connector_url(connector_url)
    refuse_entombed(reader, instance_id)
    before = find(reader, instance_id)
    if before is not None and before.state is not State.REMOVED:
        raise InstanceExists(
            f"{reader.path} has an instance {instance_id!r} already: {stands(before)}.",
            hint="Mint a token for it to enroll it again, or use another id.",
            path=reader.path, instance_id=instance_id, state=str(before.state),
        )
    if living:
        refuse_taken(reader, shown, key, instance_id)


def change(
    tx: Transaction, instance_id: str, *, nickname: str | None = None, connector_url: str | None = None, at: float
) -> Changed:
    """Give an instance another nickname, another connector, or both; what is not given stays as it is.

    Raises `InvalidInput`, `InvalidConnectorUrl`, `InstanceNotFound`, `InstanceRemoved`, `NicknameConflict`.
    """
    before = refuse_change(tx, instance_id, nickname=nickname, connector_url=connector_url)
    # A name that an earlier release let pass stays as it is until another one is given.
    shown, key = (before.nickname, None) if nickname is None else nicknames.nickname(nickname)
    url = before.connector_url if connector_url is None else connector_url
    if (shown, url) == (before.nickname, before.connector_url):
        return Changed(instance=before, changed=False)
    tx.execute(
        "UPDATE gateway_instances SET nickname = ?, nickname_key = coalesce(?, nickname_key), connector_url = ?"
        " WHERE instance_id = ?",
        (shown, key, url, instance_id),
    )
    record(tx, TABLE, instance_id, "update", at)
    return Changed(instance=get(tx, instance_id), changed=True)


def refuse_change(
    reader: Reader, instance_id: str, *, nickname: str | None = None, connector_url: str | None = None
) -> Instance:
    """The instance as it stands. Raises what `change` would."""
    before = allowed(reader, instance_id, Event.CHANGE)
    if connector_url is not None:
        nicknames.connector_url(connector_url)
    if nickname is not None:
        refuse_taken(reader, *nicknames.nickname(nickname), instance_id)
    return before


def allowed(reader: Reader, instance_id: str, event: Event) -> Instance:
    """The instance, if `event` may happen to it. Raises what refuses it, `InstanceNotFound`."""
    found = get(reader, instance_id)
    outcome = to_event(found.state, event)
    if isinstance(outcome, Refusal):
        _refuse(reader, found, outcome, event)
    return found


def enter(tx: Transaction, before: Instance, event: Event, *, actor: str, reason: str, at: float) -> Instance:
    """Write the state that follows; the caller has made sure that it is allowed."""
    outcome = to_event(before.state, event)
    assert not isinstance(outcome, (Refusal, Gone))
    tx.execute(
        "UPDATE gateway_instances SET state = ?1, state_at = ?2, state_actor = ?3, state_reason = ?4,"
        " enrolled_at = CASE WHEN ?1 = 'enrolled' THEN ?2 ELSE enrolled_at END,"
        " removed_at = CASE WHEN ?1 = 'removed' THEN ?2 END WHERE instance_id = ?5",
        (str(outcome), at, actor, reason, before.instance_id),
    )
    record(tx, TABLE, before.instance_id, "update", at)
    return get(tx, before.instance_id)


def erase(tx: Transaction, instance_id: str, *, at: float) -> None:
    """Take the row of an instance out, with its tokens and what is stored of its connections."""
    remembered.forget(tx, instance_id)
    tx.execute("DELETE FROM gateway_instances WHERE instance_id = ?", (instance_id,))
    record(tx, TABLE, instance_id, "delete", at)


def refuse_taken(reader: Reader, shown: str, key: str, instance_id: str) -> None:
    """Raise `NicknameConflict` when another living instance has the nickname."""
    row = reader.row(HOLDER, (key,))
    other = None if row is None else instance(row)
    if other is not None and other.instance_id != instance_id:
        raise NicknameConflict(
            f"The nickname {shown!r} is taken in {reader.path} by instance {other.instance_id!r} ({other.nickname!r},"
            f" {stands(other)}).",
            hint="Choose another one, rename that instance, or remove it: what is revoked keeps its nickname.",
            path=reader.path, nickname=shown, instance_id=other.instance_id, since=other.created_at,
        )


def refuse_entombed(reader: Reader, instance_id: str) -> None:
    """Raise `InstanceRemoved` when the id has a tombstone."""
    found = tombstones.find(reader, KIND, instance_id)
    if found is not None:
        told = tombstones.entombed(found, reader)
        raise InstanceRemoved(
            told.message,
            hint=f"Use another id; `hermes-state instances tombstones --db {shell_word(reader.path)}` shows what keeps"
            " this one.",
            **told.facts, instance_id=instance_id,
        )


def stands(one: Instance) -> str:
    """Its state for people: what, since when, by whom."""
    return f"{one.state} since {shown_time(one.state_at)} by {one.state_actor}"


def shown_time(at: Any) -> str:
    """UTC, to the second."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _refuse(reader: Reader, found: Instance, refusal: Refusal, event: Event) -> NoReturn:
    facts: dict[str, Any] = {"path": reader.path, "instance_id": found.instance_id}
    name = f"Instance {found.instance_id!r} of {reader.path}"
    if refusal is Refusal.REMOVED:
        refuse_entombed(reader, found.instance_id)
        raise InstanceNotFound(
            f"{name} was removed at {shown_time(found.state_at)} by {found.state_actor}.", hint="Add it anew.", **facts
        )
    if refusal is Refusal.REVOKED:
        raise InstanceRevoked(
            f"{name} is {stands(found)}.", hint="Enroll it again before it is used.", since=found.state_at, **facts
        )
    if refusal is Refusal.NOT_ENROLLED:
        raise InstanceNotEnrolled(
            f"{name} was never enrolled, which is needed to {event}.", hint="Mint a token for it and redeem it first.",
            **facts,
        )
    raise InstanceNotRevoked(
        f"{name} is {stands(found)}: only a revoked one can be removed.",
        hint=f"Run `hermes-state instances revoke {shell_word(found.instance_id)} --reason WHY --db"
        f" {shell_word(reader.path)}` first.",
        state=str(found.state), **facts,
    )
