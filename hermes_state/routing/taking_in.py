"""Entries of hermes-agent's session index (`sessions/sessions.json`), as rows here.

Invariant: what an entry says is kept, what it does not say is not made up: one without `transport_profile` gets none. A
key that is here already stays as it is. Secrets of a model override are left out. An entry is placed in the home that
its conversation runs in, or refused: in a gateway of one profile hermes-agent's keys name none, so those of a named
profile's home get its name here.

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
from hermes_state.routing.records import Route, has_routing, read
from hermes_state.routing.states import State

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction

# Fields of an entry's origin and what they are here; the first that is there counts.
_ORIGIN: Mapping[str, tuple[str, ...]] = {
    "chat_id": ("chat_id",), "thread_id": ("thread_id",), "user_id": ("user_id_alt", "user_id"),
    "guild_id": ("scope_id", "guild_id"), "parent_chat_id": ("parent_chat_id",), "chat_name": ("chat_name",),
    "user_name": ("user_name",),
}
# What 0.19.0 writes (`SessionEntry.to_dict`, `SessionSource.to_dict`), and what later releases add that is kept here.
_KNOWN = frozenset({
    "session_key", "session_id", "created_at", "updated_at", "display_name", "platform", "chat_type", "input_tokens",
    "output_tokens", "cache_read_tokens", "cache_write_tokens", "total_tokens", "last_prompt_tokens",
    "estimated_cost_usd", "cost_status", "expiry_finalized", "suspended", "resume_pending", "resume_reason",
    "last_resume_marked_at", "is_fresh_reset", "was_auto_reset", "auto_reset_reason", "reset_had_activity",
    "model_override", "origin", "transport_profile",
})
_KNOWN_OF_ORIGIN = frozenset({
    "platform", "chat_id", "chat_name", "chat_type", "user_id", "user_name", "thread_id", "chat_topic", "user_id_alt",
    "chat_id_alt", "scope_id", "guild_id", "parent_chat_id", "message_id", "profile", "auto_thread_created",
    "auto_thread_initial_name", "is_bot",
})


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
    given, mine = entry["origin"], valid_profile("profile", profile or DEFAULT)
    runs_in = valid_profile("profile", given.get("profile") or mine)
    if runs_in != mine:
        raise InvalidInput(
            f"The conversation runs in profile {runs_in!r}, and this is the home of {mine!r}.",
            hint="Import it into the store of that profile.", argument="profile", profile=runs_in,
        )
    found = {
        name: next((str(given[one]) for one in ones if given.get(one) not in (None, "")), "")
        for name, ones in _ORIGIN.items()
    }
    source = Source(
        platform=str(given.get("platform") or entry.get("platform") or ""),
        chat_type=str(given.get("chat_type") or entry.get("chat_type") or ""), **found,
    )
    session_key = text("session_key", entry.get("session_key"), most=4_000, of="")
    key = _key_of_text(session_key, source, runs_in, named=bool(given.get("profile")))
    state, reason = _state(entry)
    transport = entry.get("transport_profile")
    return OldEntry(
        key=key, origin=source, session_id=text("session_id", entry.get("session_id"), of=""),
        transport_profile=None if transport is None else valid_profile("transport_profile", transport), state=state,
        reason=reason, model_override=without_secrets(entry.get("model_override")),
    )


def _key_of_text(session_key: str, source: Source, profile: str, *, named: bool) -> SessionKey:
    """The parts that give this text. Which rules applied then is not said, so each is tried.

    `named`: the entry itself says the profile. Where it does not, the gateway may have served one profile only; its
    keys are then those of the default profile, whatever profile it was.
    """
    direct = source.chat_type == "dm"
    chat_id, person = source.chat_id or (source.user_id if direct else ""), source.user_id
    if source.platform == "whatsapp":
        # One of several ids of a person is in the key: hermes-agent takes the number alone.
        chat_id, person = _number(chat_id) if direct else chat_id, _number(person)
    for namespace in (profile,) if named else (profile, DEFAULT):
        for user_id in ("", person):
            parts = {
                "platform": source.platform, "chat_type": source.chat_type, "chat_id": chat_id,
                "thread_id": source.thread_id, "user_id": "" if direct else user_id,
            }
            if SessionKey(profile=namespace, **parts).text == session_key:
                return SessionKey(profile=profile, **parts)
    raise InvalidInput(
        f"The key {session_key!r} of hermes-agent's index is not that of its origin in profile {profile!r}.",
        hint="It belongs to another profile, or is from before keys were made so: bind the chat when it writes.",
        argument="session_key", session_key=session_key,
    )


def _number(identifier: str) -> str:
    """A WhatsApp id without device and server, as hermes-agent 0.19.0 has it in keys (gateway/whatsapp_identity.py)."""
    return identifier.strip().replace("+", "", 1).split(":", 1)[0].split("@", 1)[0]


def _state(entry: Mapping[str, Any]) -> tuple[State, str]:
    """What its marks mean: the one that ends a session counts more."""
    if entry.get("expiry_finalized"):
        return State.EXPIRED, "seen off by hermes-agent"
    if entry.get("suspended"):
        return State.SUSPENDED, "suspended by hermes-agent"
    if entry.get("resume_pending"):
        return State.RESUMING, str(entry.get("resume_reason") or "interrupted")
    return State.ACTIVE, ""


def unknown_fields(entry: Mapping[str, Any]) -> list[str]:
    """Fields that hermes-agent 0.19.0 does not write: what they mean is not known, so they are not kept."""
    origin = entry.get("origin")
    found = [str(name) for name in entry if name not in _KNOWN]
    return found + [
        f"origin.{name}" for name in (origin if isinstance(origin, Mapping) else ()) if name not in _KNOWN_OF_ORIGIN
    ]


def look(reader: Reader, home: Home, entry: OldEntry) -> Route | None:
    """The row that is here under its key; None: it would be written. Raises as `Routing.take_in`; changes nothing."""
    if has_routing(reader):
        guard(reader, home)
        there = read(reader, entry.key.text)
        if there is not None:
            if there.key != entry.key:
                raise collision(reader.path, there.key, entry.key)
            return there
    sessions.conversation(reader, entry.session_id)
    return None


def take_in(tx: Transaction, home: Home, entry: OldEntry, *, at: float) -> Route:
    """Write it, unless its key is here already. Raises as `Routing.take_in`."""
    there = look(tx, home, entry)
    if there is not None:
        return there
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
