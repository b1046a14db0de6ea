"""Entries of hermes-agent's session index (`sessions/sessions.json`), as rows here.

Invariant: what an entry says is kept, what it does not say is not made up: one without `transport_profile` gets none. A
key that is here already stays as it is. Secrets of a model override are left out.

Not for: reading that file, or its sessions (see `maintenance`). Taking the namespace of the key for the bot was
rejected: it says where a conversation runs, and many run where their bot is not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_state.changes.records import record
from hermes_state.errors import InvalidInput
from hermes_state.outbox.inputs import text
from hermes_state.routing import sessions
from hermes_state.routing.changing import TABLE_NAME, collision, without_secrets
from hermes_state.routing.homes import DEFAULT, Home, guard, valid_profile
from hermes_state.routing.identity import Source
from hermes_state.routing.keys import SessionKey
from hermes_state.routing.records import Route, read
from hermes_state.routing.states import State

if TYPE_CHECKING:
    from hermes_state.engine import Transaction

# Fields of an entry's origin and what they are here; the first that is there counts.
_ORIGIN: Mapping[str, tuple[str, ...]] = {
    "chat_id": ("chat_id",), "thread_id": ("thread_id",), "user_id": ("user_id_alt", "user_id"),
    "guild_id": ("scope_id", "guild_id"), "parent_chat_id": ("parent_chat_id",), "chat_name": ("chat_name",),
    "user_name": ("user_name",),
}


@dataclass(frozen=True, kw_only=True)
class OldEntry:
    """One entry, read and checked."""

    key: SessionKey
    origin: Source
    session_id: str
    transport_profile: str | None  # None: it does not say
    state: State
    reason: str
    model_override: Mapping[str, str] | None


def old_entry(entry: Mapping[str, Any], *, profile: str) -> OldEntry:
    """An entry of the index of a profile's home. Raises `InvalidInput` when it is not one, or its key is another's."""
    if not isinstance(entry, Mapping) or not isinstance(entry.get("origin"), Mapping):
        raise InvalidInput("An entry of hermes-agent's index is an object with an origin.", argument="entry")
    given = entry["origin"]
    runs_in = valid_profile("profile", given.get("profile") or profile or DEFAULT)
    found = {
        name: next((str(given[one]) for one in ones if given.get(one) not in (None, "")), "")
        for name, ones in _ORIGIN.items()
    }
    source = Source(
        platform=str(given.get("platform") or entry.get("platform") or ""),
        chat_type=str(given.get("chat_type") or entry.get("chat_type") or ""), **found,
    )
    session_key = text("session_key", entry.get("session_key"), most=4_000, of="")
    key = _key_of_text(session_key, source, runs_in)
    state, reason = _state(entry)
    transport = entry.get("transport_profile")
    return OldEntry(
        key=key, origin=source, session_id=text("session_id", entry.get("session_id"), of=""),
        transport_profile=None if transport is None else valid_profile("transport_profile", transport), state=state,
        reason=reason, model_override=without_secrets(entry.get("model_override")),
    )


def _key_of_text(session_key: str, source: Source, profile: str) -> SessionKey:
    """The parts that give this text. Which rules applied then is not said, so each is tried."""
    direct = source.chat_type == "dm"
    for user_id in ("", source.user_id):
        key = SessionKey(
            profile=profile, platform=source.platform, chat_type=source.chat_type,
            chat_id=source.chat_id or (source.user_id if direct else ""), thread_id=source.thread_id,
            user_id="" if direct else user_id,
        )
        if key.text == session_key:
            return key
    raise InvalidInput(
        f"The key {session_key!r} of hermes-agent's index is not that of its origin in profile {profile!r}.",
        hint="It belongs to another profile, or is from before keys were made so: bind the chat when it writes.",
        argument="session_key", session_key=session_key,
    )


def _state(entry: Mapping[str, Any]) -> tuple[State, str]:
    """What its marks mean: the one that ends a session counts more."""
    if entry.get("expiry_finalized"):
        return State.EXPIRED, "seen off by hermes-agent"
    if entry.get("suspended"):
        return State.SUSPENDED, "suspended by hermes-agent"
    if entry.get("resume_pending"):
        return State.RESUMING, str(entry.get("resume_reason") or "interrupted")
    return State.ACTIVE, ""


def take_in(tx: Transaction, home: Home, entry: OldEntry, *, at: float) -> Route:
    """Write it, unless its key is here already. Raises as `Routing.take_in`."""
    guard(tx, home)
    there = read(tx, entry.key.text)
    if there is not None:
        if there.key != entry.key:
            raise collision(tx.path, there.key, entry.key)
        return there
    sessions.conversation(tx, entry.session_id)
    override = None if entry.model_override is None else json.dumps(entry.model_override, sort_keys=True)
    key = entry.key
    tx.execute(
        "INSERT INTO routing_entries (session_key, home, runtime_profile, transport_profile, platform, chat_type,"
        " chat_id, thread_id, user_id, origin, session_id, state, state_at, state_reason, model_override, generation,"
        " created_at, updated_at) SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15,"
        " coalesce((SELECT generation_floor FROM routing_home), 0) + 1, ?13, ?13",
        (
            key.text, home.store_id, key.profile, entry.transport_profile, key.platform, key.chat_type, key.chat_id,
            key.thread_id, key.user_id, entry.origin.to_json(), entry.session_id, str(entry.state), at, entry.reason,
            override,
        ),
    )
    record(tx, TABLE_NAME, key.text, "insert", at)
    found = read(tx, key.text)
    assert found is not None
    return found
