"""Telling the acknowledgement of a steer from what the agent says on the same chat.

Invariant: a message is an acknowledgement only when it names the steer: as a reply to the message that steered, or as
an edit under the id made of it. Everything else on the chat is output and is given back whole, also while a steer
waits; so is a reply to the steer whose text is none that acknowledges.

Not for: sending a steer or waiting for it (see `correlation`). Matching by chat was rejected: it swallowed what the
agent said meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

EDIT_ID_PREFIX = "t3-steer-control-"  # as the plugin of hermes-agent makes it


class SteerVerdict(StrEnum):
    """What became of a steer, in the protocol's codes."""

    QUEUED = "queued"
    TURN_NOT_ACTIVE = "turn_not_active"
    INTERNAL_ERROR = "internal_error"
    INVALID_MESSAGE = "invalid_message"  # named the steer, and said nothing that we know


# What the text of an acknowledgement begins with, once emoji, dashes and space before its first letter are taken off.
PREFIXES: Mapping[str, SteerVerdict] = {
    "Steer queued": SteerVerdict.QUEUED,
    "Agent still starting": SteerVerdict.TURN_NOT_ACTIVE,
    "No active agent": SteerVerdict.TURN_NOT_ACTIVE,
    "Steer failed": SteerVerdict.INTERNAL_ERROR,
}


def verdict_of(text: str) -> SteerVerdict:
    """What an acknowledgement says."""
    first = next((place for place, one in enumerate(text) if one.isalnum()), len(text))
    plain = text[first:]
    return next((said for prefix, said in PREFIXES.items() if plain.startswith(prefix)), SteerVerdict.INVALID_MESSAGE)


@dataclass(frozen=True, kw_only=True)
class Message:
    """One message, or one edit of a message, that a plugin sends on a chat."""

    chat_id: str  # where it is shown
    text: str
    message_id: str | None = None  # of an edit: what is edited
    reply_to: str | None = None  # the message that it answers


@dataclass(frozen=True, kw_only=True)
class Routed:
    """Where a message goes. At least one of `verdict` and `output` is there; both for a reply that only looks like an
    acknowledgement."""

    message_id: str | None = None  # of the steer that it is about
    verdict: SteerVerdict | None = None  # what it says of that steer
    output: Message | None = None  # to be stored and shown


class Steers:
    """The steers that wait for their acknowledgement. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: set[str] = set()

    def expect(self, message_id: str) -> None:
        """A steer goes out with this message id. Call it before it is sent."""
        with self._lock:
            self._waiting.add(message_id)

    def leave(self, message_id: str) -> None:
        """Nobody waits for this one any more; what comes for it later is output."""
        with self._lock:
            self._waiting.discard(message_id)

    def route(self, message: Message) -> Routed:
        """Decide about one message. A steer is acknowledged once; what names it after that is output."""
        edited = message.message_id or ""
        by_edit = edited.removeprefix(EDIT_ID_PREFIX) if edited.startswith(EDIT_ID_PREFIX) else None
        with self._lock:
            named = next((one for one in (message.reply_to, by_edit) if one in self._waiting), None)
            if named is None:
                return Routed(output=message)
            self._waiting.discard(named)
        verdict = verdict_of(message.text)
        # Under the id made of the steer nothing but its acknowledgement is sent; a reply may be what the agent says.
        is_output = verdict is SteerVerdict.INVALID_MESSAGE and named != by_edit
        return Routed(message_id=named, verdict=verdict, output=message if is_output else None)

    def __len__(self) -> int:
        return len(self._waiting)
