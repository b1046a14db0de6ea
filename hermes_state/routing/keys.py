"""Session keys: which messages are one conversation, as data.

Invariant: a key is made of an `Inbound`, so of a known identity; its namespace is where the conversation runs, never
who received it. The text is byte for byte that of hermes-agent 0.19 (`agent:main` for the default profile,
`agent:<profile>` else; then platform, type, chat, thread, user), so adopted conversations go on. The parts are kept
beside the text: an id may have colons, and two chats whose texts are equal are told apart by their parts.

Not for: parsing a text back into parts, which the colons in ids forbid. Escaping them was rejected: every key of a
platform with such ids (Matrix) would change, and its conversations would begin anew.
"""

from __future__ import annotations

from dataclasses import dataclass

from hermes_state.routing.homes import DEFAULT, DEFAULT_NAMESPACE
from hermes_state.routing.identity import Inbound


@dataclass(frozen=True, kw_only=True)
class KeyRules:
    """How people in one chat are kept apart; the defaults are hermes-agent's."""

    group_sessions_per_user: bool = True  # outside of direct chats and threads each person has a conversation
    thread_sessions_per_user: bool = False  # also in threads, where the first is true


@dataclass(frozen=True, kw_only=True)
class SessionKey:
    """The parts of a key in their order; "" is a part that it does not have."""

    profile: str  # where it runs
    platform: str
    chat_type: str
    chat_id: str
    thread_id: str
    user_id: str

    @property
    def text(self) -> str:
        """The key as it is stored and shown."""
        parts = (namespace(self.profile), self.platform, self.chat_type, self.chat_id, self.thread_id, self.user_id)
        return ":".join(part for part in parts if part)


def namespace(profile: str) -> str:
    """What the keys of a profile begin with."""
    return f"agent:{DEFAULT_NAMESPACE if profile == DEFAULT else profile}"


def key_of(inbound: Inbound, rules: KeyRules = KeyRules()) -> SessionKey:
    """The key of an event.

    A direct chat is one conversation; without a chat id the person's id stands for it. Elsewhere each person has one
    (see `KeyRules`), and a thread is one of its own. Ids are used as they are given: where a platform has several for
    one person (WhatsApp), give the one that stays.
    """
    source = inbound.source
    direct = source.chat_type == "dm"
    apart = rules.group_sessions_per_user and (rules.thread_sessions_per_user or not source.thread_id)
    return SessionKey(
        profile=inbound.identity.runtime_profile, platform=source.platform, chat_type=source.chat_type,
        chat_id=source.chat_id or (source.user_id if direct else ""), thread_id=source.thread_id,
        user_id=source.user_id if apart and not direct else "",
    )
