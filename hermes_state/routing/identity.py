"""Who received an event, who may admit it, and where it runs: answered once, before any key is made.

Invariant: an `Inbound` exists only with a `RoutingIdentity`, and a session key is made only of an `Inbound`; what is
copied from one keeps its identity, and nothing resolves a second time. Whose bot received an event
(`transport_profile`) and where it runs (`runtime_profile`) are two facts; both are names, "default" spelled out.

Not for: working it out (see `resolving`). A field of the source that any code may fill was rejected: whoever finds it
empty guesses, and then two places answer differently.
"""

from __future__ import annotations

import dataclasses
import json
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from hermes_state.errors import InvalidInput
from hermes_state.outbox.inputs import text
from hermes_state.routing.homes import Home, valid_home, valid_profile


@dataclass(frozen=True, kw_only=True, eq=False)
class Transport:
    """One connection of one bot. A bot that connects again is a new object."""

    platform: str  # telegram, discord, ...
    profile: str  # whose credential it is
    home: Home  # of that profile: who may write is decided there
    # the profile that its events run in where that is not its own (`bot_profile`); None: its own
    runs_as: str | None = None

    def __post_init__(self) -> None:
        text("platform", self.platform, of=" of a transport")
        valid_profile("profile", self.profile)
        valid_home("home", self.home)
        if self.runs_as is not None:
            valid_profile("runs_as", self.runs_as)


_ID_FIELDS = ("chat_id", "thread_id", "user_id", "guild_id", "parent_chat_id")
_SHOWN_FIELDS = ("chat_name", "user_name", "message_id")


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a message comes from, in the platform's ids. Texts of at most 512 characters; "" is none."""

    platform: str
    chat_type: str  # dm, group, channel, thread, ...
    chat_id: str = ""
    thread_id: str = ""
    user_id: str = ""  # the stable one where a platform has two
    guild_id: str = ""  # server or workspace
    parent_chat_id: str = ""  # the channel of a thread
    chat_name: str = ""  # for people
    user_name: str = ""  # for people
    message_id: str = ""  # of this message: not kept, since that would be a write for each

    def __post_init__(self) -> None:
        for name in ("platform", "chat_type"):
            text(name, getattr(self, name), of=" of a source")
            if ":" in getattr(self, name):
                raise InvalidInput(
                    f"{name} of a source is one word, not {getattr(self, name)!r:.80}.",
                    hint="A colon separates the parts of a session key.", argument=name,
                )
        for name in (*_ID_FIELDS, *_SHOWN_FIELDS):
            text(name, getattr(self, name), empty=True, of=" of a source")

    def to_json(self) -> str:
        """What is kept of it: where answers go and nothing of the one message, those that are empty left out."""
        kept = {name: value for name, value in dataclasses.asdict(self).items() if value and name != "message_id"}
        return json.dumps(kept, sort_keys=True)

    @classmethod
    def from_json(cls, stored: str) -> Source:
        """What `to_json` wrote; fields of later versions are left out. Raises `InvalidInput`."""
        try:
            record = json.loads(stored)
            return cls(**{one.name: record[one.name] for one in fields(cls) if one.name in record})
        except (ValueError, TypeError, AttributeError) as error:
            raise InvalidInput(f"{stored[:80]!r} is no source of a message.", argument="origin") from error


@dataclass(frozen=True, kw_only=True)
class RoutingIdentity:
    """The one answer for an event. Equal when the same profiles and homes are; the connection does not count."""

    transport_profile: str  # whose bot received it
    runtime_profile: str  # whose session it is, and whose settings and credentials its turn uses
    authorization_home: Home  # where it is decided who may write: the receiving bot's
    runtime_home: Home  # where everything that the turn writes goes
    multiplexed: bool  # whether the process serves more than one profile
    # the receiving connection; None: restored from a row, so nobody can say that it was received now
    transport: weakref.ref[Transport] | None = field(default=None, compare=False, repr=False)
    # the connection was worked out, not said by the one that received it
    transport_inferred: bool = field(default=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        valid_profile("transport_profile", self.transport_profile)
        valid_profile("runtime_profile", self.runtime_profile)
        valid_home("authorization_home", self.authorization_home)
        valid_home("runtime_home", self.runtime_home)

    @property
    def restored(self) -> bool:
        """Whether it comes from a row, so that it may be answered and not be taken in."""
        return self.transport is None


@dataclass(frozen=True, kw_only=True)
class Inbound:
    """An event whose identity is known. The identity is not shown, compared or sent anywhere; it goes with copies."""

    source: Source
    identity: RoutingIdentity = field(compare=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.identity, RoutingIdentity) or not isinstance(self.source, Source):
            raise InvalidInput(
                "An inbound event is a Source and its RoutingIdentity; one of them is missing.",
                hint="Resolve the source first: canonicalize(source, resolver).", argument="identity",
            )

    def replace_source(self, **changes: Any) -> Inbound:
        """The same event with other fields of its source, as when a topic was found out; it keeps its identity."""
        return Inbound(source=dataclasses.replace(self.source, **changes), identity=self.identity)


@dataclass(frozen=True, kw_only=True)
class Unserved:
    """An event that nobody here may take in: it is dropped, and never keyed into another profile."""

    source: Source
    profile: str  # the one that would have to be served
    reason: str  # why not, in words
    home: Home | None  # of the bot that received it; None: not known


def canonicalize(
    event: Source | Inbound, resolver: Callable[[Source], RoutingIdentity | Unserved]
) -> Inbound | Unserved:
    """The event with its identity. Call it first at every way in: only the first one resolves."""
    if isinstance(event, Inbound):
        return event
    found = resolver(event)
    return found if isinstance(found, Unserved) else Inbound(source=event, identity=found)
