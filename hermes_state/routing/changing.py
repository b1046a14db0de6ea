"""Changing routing entries, each in the caller's transaction, by compare-and-set.

Invariant: a change names the row as it was read; another version, or a row of replaced content, is `RouteMoved` and
nothing is written. The table of states decides; what changes nothing writes nothing. A generation rises with every
reset and with every entry made anew for a key that was forgotten. Each change is in the feed.

Not for: reading (see `records`). Last writer wins was rejected: a restart that marks a chat for resuming would undo a
reset that a person made meanwhile.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from hermes_state import deletions
from hermes_state.changes.records import record
from hermes_state.errors import InvalidInput, KeyCollision, RouteMoved, RouteNotFound, RouteStopped
from hermes_state.outbox.inputs import MOST_REASON, text
from hermes_state.routing import sessions
from hermes_state.routing.homes import Home, guard
from hermes_state.routing.identity import Inbound
from hermes_state.routing.keys import SessionKey, key_of
from hermes_state.routing.records import Route, read
from hermes_state.routing.states import TABLE, Act, Outcome, State

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction

TABLE_NAME = "routing_entries"
# All of a model override that is kept.
OVERRIDE_FIELDS = ("model", "provider", "base_url")


def bind(tx: Transaction, inbound: Inbound, session_id: str, *, key: SessionKey | None, at: float) -> Route:
    """Make the entry of an event's chat. One that is there already and names the same session goes on.

    Raises `WrongHome`, `HomeRemoved`, `SessionNotFound`, `SessionDeleted`, `SessionReplaced`, `KeyCollision`,
    `RouteStopped`, and `RouteMoved` when somebody bound the chat to another session before.
    """
    identity = inbound.identity
    guard(tx, identity.runtime_home)
    wanted = key or key_of(inbound)
    there = read(tx, wanted.text)
    if there is not None and there.key != wanted:
        raise collision(tx.path, there.key, wanted)
    if there is not None:
        if there.session_id != session_id:
            raise _moved(tx, wanted.text, there)
        return go_on(tx, there, inbound, at=at)
    sessions.refuse_unusable(tx, session_id)
    tx.execute(
        "INSERT INTO routing_entries (session_key, home, runtime_profile, transport_profile, platform, chat_type,"
        " chat_id, thread_id, user_id, origin, session_id, state_at, generation, created_at, updated_at)"
        " SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12,"
        " coalesce((SELECT generation_floor FROM routing_home), 0) + 1, ?12, ?12",
        (
            wanted.text, identity.runtime_home.store_id, wanted.profile, identity.transport_profile, wanted.platform,
            wanted.chat_type, wanted.chat_id, wanted.thread_id, wanted.user_id, inbound.source.to_json(), session_id,
            at,
        ),
    )
    record(tx, TABLE_NAME, wanted.text, "insert", at)
    return _reread(tx, wanted.text)


def go_on(tx: Transaction, route: Route, inbound: Inbound, *, at: float) -> Route:
    """A message came, or a turn ended well: the chat goes on in its session, and is answered by who received it."""
    guard(tx, inbound.identity.runtime_home)
    now = _as_read(tx, route)
    return _write(tx, now, _received(now, inbound) | _gone_on(now, _next(tx, now, Act.GO_ON), at), at)


def receive(tx: Transaction, route: Route, inbound: Inbound, *, at: float) -> Route:
    """A message came, and its turn begins: it is answered by who received it; the mark stays until a turn ended."""
    guard(tx, inbound.identity.runtime_home)
    now = _as_read(tx, route)
    _next(tx, now, Act.RECEIVE)
    return _write(tx, now, _received(now, inbound), at)


def turn_ended(tx: Transaction, home: Home, route: Route, session_id: str, *, at: float) -> Route | None:
    """A turn of the chat ended well, in a session that is this one or continues it; who received it stays.

    None, and nothing is written, when the chat has another conversation by now, or is not to go on.
    """
    guard(tx, home)
    now = read(tx, route.session_key)
    if now is None or (now.generation, now.incarnation) != (route.generation, route.incarnation) or not now.goes_on:
        return None
    changes = _gone_on(now, _next(tx, now, Act.GO_ON), at)
    return _write(tx, now, changes if session_id == now.session_id else changes | {"session_id": session_id}, at)


def _gone_on(now: Route, state: State | Outcome, at: float) -> dict[str, Any]:
    changes: dict[str, Any] = {"fresh": 0} if now.fresh else {}
    if state is not now.state:
        changes |= {"state": str(state), "state_at": at, "state_reason": ""}
    return changes


def _received(now: Route, inbound: Inbound) -> dict[str, Any]:
    """What an event says of its chat: whose bot received it, and where answers go. Raises `InvalidInput`."""
    if inbound.identity.restored:
        return {}  # a row says nothing new about itself
    refuse_other_chat(now.key, inbound)
    return {"transport_profile": inbound.identity.transport_profile, "origin": inbound.source.to_json()}


def refuse_other_chat(key: SessionKey, inbound: Inbound) -> None:
    """Raise `InvalidInput` for an event that cannot be of the chat of this key, by whichever rules it was made."""
    parts = key_of(inbound)
    given = dataclasses.replace(parts, user_id=key.user_id)
    if given != key or key.user_id not in ("", inbound.source.user_id):
        raise InvalidInput(
            f"An event of chat {parts.text!r:.200} says nothing of {key.text!r:.200}.",
            hint="Find the entry of the event's own chat: store.routing.find(event).", argument="inbound",
        )


def mark(tx: Transaction, home: Home, route: Route, act: Act, *, reason: str, at: float) -> Route:
    """Resume later, suspend or expire, with the reason. The first mark stays."""
    guard(tx, home)
    now = _as_read(tx, route)
    state = _next(tx, now, act)
    if state is Outcome.SAME:
        return now
    return _write(tx, now, {"state": str(state), "state_at": at, "state_reason": reason}, at)


def reset(
    tx: Transaction, home: Home, route: Route, session_id: str, *, reason: str, at: float,
    inbound: Inbound | None = None,
) -> Route:
    """Go on in another session: the next generation. What a model was chosen for stays with the chat.

    `inbound`: the event that it is for; who received that answers.
    """
    guard(tx, home)
    now = _as_read(tx, route)
    received = {} if inbound is None else _received(now, inbound)
    state = _next(tx, now, Act.RESET)
    sessions.refuse_unusable(tx, session_id)
    return _write(
        tx, now,
        {
            "session_id": session_id, "state": str(state), "state_at": at, "state_reason": "", "reset_reason": reason,
            "reset_had_activity": int(sessions.had_messages(tx, now.session_id)), "fresh": 1,
            "generation": now.generation + 1, **received,
        },
        at,
    )


def follow(tx: Transaction, home: Home, route: Route, session_id: str, *, at: float) -> Route:
    """Go on in the session that continues this one after a compaction: the same generation, marks stay."""
    guard(tx, home)
    now = _as_read(tx, route)
    _next(tx, now, Act.FOLLOW)
    sessions.refuse_unusable(tx, session_id)
    sessions.refuse_other_conversation(tx, session_id, now.session_id)
    return _write(tx, now, {"session_id": session_id}, at)


def choose_model(
    tx: Transaction, home: Home, route: Route, override: Mapping[str, str] | None, *, at: float
) -> Route:
    """Keep which model this chat is to have; None takes it back."""
    guard(tx, home)
    now = _as_read(tx, route)
    _next(tx, now, Act.CHOOSE_MODEL)
    kept = without_secrets(override)
    return _write(tx, now, {"model_override": None if kept is None else json.dumps(kept, sort_keys=True)}, at)


def forget(tx: Transaction, home: Home, route: Route, *, actor: str, reason: str, at: float) -> None:
    """Delete the entry, with a line in the ledger of deletions. The next one of its key has a higher generation."""
    guard(tx, home)
    now = _as_read(tx, route)
    tx.execute("DELETE FROM routing_entries WHERE session_key = ?", (now.session_key,))
    deletions.record(tx, actor=actor, reason=reason, kind="route", keys=[now.session_key], rows=1, at=at)
    record(tx, TABLE_NAME, now.session_key, "delete", at)


def without_secrets(override: Mapping[str, Any] | None) -> dict[str, str] | None:
    """What is kept of a model override: model, provider and base_url, the last without user, query and fragment.

    Raises `InvalidInput` for a value that is no text. Everything else (keys, headers) is left out, not kept anywhere.
    """
    if override is None:
        return None
    if not isinstance(override, Mapping):
        raise InvalidInput(f"A model override is a mapping, not {type(override).__name__}.", argument="override")
    kept = {
        name: text(name, override[name], of=" of a model override")
        for name in OVERRIDE_FIELDS if override.get(name) not in (None, "")
    }
    if "base_url" in kept:
        kept["base_url"] = _plain_url(kept["base_url"])
    return kept or None


def _plain_url(given: str) -> str:
    try:
        parts = urlsplit(given)
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError as error:
        raise InvalidInput(f"base_url of a model override is no URL: {error}.", argument="base_url") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidInput(
            "base_url of a model override is no http or https URL.",
            hint="Give the address of the server; credentials come from the settings of the profile.",
            argument="base_url",
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}{port}{parts.path}"


# --- what a replacement of the store's content asks ---------------------------------------------------------------


def highest_generation(reader: Reader) -> int:
    """The highest generation ever given out here."""
    return int(reader.rows(
        "SELECT max(coalesce((SELECT max(generation) FROM routing_entries), 0),"
        " coalesce((SELECT generation_floor FROM routing_home), 0))"
    )[0][0])


def raise_generations(tx: Transaction, above: int) -> None:
    """After content was replaced by older content: every conversation is of a generation above `above`.

    What was begun over the old content then finds that its conversation went on.
    """
    tx.execute(
        "UPDATE routing_entries SET generation = ?1 + 1, version = version + 1 WHERE generation <= ?1", (above,)
    )
    tx.execute(
        "INSERT INTO routing_home (one, generation_floor) VALUES (1, ?1) ON CONFLICT (one) DO UPDATE"
        " SET generation_floor = max(generation_floor, excluded.generation_floor)", (above,)
    )


# --- inside ------------------------------------------------------------------------------------------------------


def checked_reason(reason: str) -> str:
    """A reason that a mark or a reset is kept with."""
    return text("reason", reason, most=MOST_REASON, of="")


def _as_read(tx: Transaction, route: Route) -> Route:
    """The row, which must be the one that the caller read."""
    now = read(tx, route.session_key)
    if now is None:
        raise RouteNotFound(
            f"There is no routing entry {route.session_key!r} in {tx.path} any more.",
            hint="Bind the chat anew.", path=tx.path, session_key=route.session_key,
        )
    # Versions begin anew with an entry that was forgotten and bound again; its generation does not.
    if (now.generation, now.version, now.incarnation) != (route.generation, route.version, route.incarnation):
        raise _moved(tx, route.session_key, now)
    return now


def _moved(tx: Transaction, session_key: str, now: Route) -> RouteMoved:
    return RouteMoved(
        f"The routing entry {session_key!r} of {tx.path} changed since it was read: it is of version {now.version}, in"
        f" session {now.session_id!r}, generation {now.generation}.",
        hint="Read it again and decide anew.", path=tx.path, session_key=session_key, route=now,
    )


def _next(tx: Transaction, now: Route, act: Act) -> State | Outcome:
    found = TABLE[now.state, act]
    if found is Outcome.STOPPED:
        why = f" ({now.state_reason})" if now.state_reason else ""
        raise RouteStopped(
            f"The routing entry {now.session_key!r} of {tx.path} is {now.state}{why}: it cannot {act}.",
            hint="Make a new session and reset the entry to it.",
            path=tx.path, session_key=now.session_key, state=now.state, act=act,
        )
    return found


def _write(tx: Transaction, now: Route, changes: Mapping[str, Any], at: float) -> Route:
    """Write what differs, if anything does."""
    row = tx.row(
        f"SELECT {', '.join(changes)} FROM routing_entries WHERE session_key = ?", (now.session_key,)
    ) if changes else ()
    assert row is not None  # it was read in this transaction
    new = {name: value for (name, value), old in zip(changes.items(), row, strict=True) if value != old}
    if not new:
        return now
    tx.execute(
        f"UPDATE routing_entries SET {', '.join(f'{name} = ?' for name in new)}, version = version + 1,"
        " updated_at = ? WHERE session_key = ?",
        (*new.values(), at, now.session_key),
    )
    record(tx, TABLE_NAME, now.session_key, "update", at)
    return _reread(tx, now.session_key)


def _reread(tx: Transaction, session_key: str) -> Route:
    found = read(tx, session_key)
    assert found is not None
    return found


def collision(path: Path, there: SessionKey, wanted: SessionKey) -> KeyCollision:
    """The error for a chat whose key is another chat's."""
    return KeyCollision(
        f"Two chats would have the session key {wanted.text!r} in {path}: {_said(there)}, and now {_said(wanted)}.",
        hint="Ids of this platform have colons in them: give them without.", path=path, session_key=wanted.text,
    )


def _said(key: SessionKey) -> str:
    return ", ".join(f"{name} {value!r}" for name, value in dataclasses.asdict(key).items() if value)
