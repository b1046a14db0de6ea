"""Working out the identity of an event: from the bot that received it, the routes that are declared, and who is served.

Invariant: a pure function of its arguments. The receiving bot is what the receiver says; where the event runs is what
the most specific route says, else the bot. A profile that is not served, and a bot that cannot be told, give
`Unserved`: never the default profile, never the one that this process was started as.

Not for: reading settings or the environment. Falling back to the default profile was rejected: chats of one bot were
answered by another, and written to the wrong home.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hermes_state.errors import InvalidInput
from hermes_state.outbox.inputs import text
from hermes_state.routing.homes import Home, valid_profile
from hermes_state.routing.identity import RoutingIdentity, Source, Transport, Unserved

# What each declared part of a route counts; the sum decides which of several routes applies. From hermes-agent 0.19.
SPECIFICITY: Mapping[str, int] = {"guild_id": 2, "chat_id": 4, "thread_id": 8}


@dataclass(frozen=True, kw_only=True)
class ProfileRoute:
    """Messages of one platform with these ids run in `profile`. A part that is "" is not declared."""

    profile: str
    platform: str
    guild_id: str = ""
    chat_id: str = ""
    thread_id: str = ""

    def __post_init__(self) -> None:
        valid_profile("profile", self.profile)
        text("platform", self.platform, of=" of a route")
        for name in SPECIFICITY:
            text(name, getattr(self, name), empty=True, of=" of a route")

    @property
    def specificity(self) -> int:
        """Of two routes that match, the one with more applies."""
        return sum(weight for name, weight in SPECIFICITY.items() if getattr(self, name))

    def matches(self, source: Source) -> bool:
        """Whether every declared part is that of the source; the chat may also be the parent of the source's chat."""
        return (
            self.platform == source.platform
            and self.guild_id in ("", source.guild_id)
            and (self.chat_id in ("", source.chat_id) or self.chat_id == source.parent_chat_id)
            and self.thread_id in ("", source.thread_id)
        )


def route_for(routes: Iterable[ProfileRoute], source: Source) -> ProfileRoute | None:
    """The most specific route that matches; of equal ones the first that was declared."""
    found: ProfileRoute | None = None
    for route in routes:
        if route.matches(source) and (found is None or route.specificity > found.specificity):
            found = route
    return found


def resolve(
    source: Source, *, receiver: Transport | None, live: Iterable[Transport], served: Mapping[str, Home],
    routes: Iterable[ProfileRoute] = (), multiplexed: bool,
) -> RoutingIdentity | Unserved:
    """The identity of an event, or why it has none here.

    `receiver`: the connection that got it. None is for the ways in that do not know it: it is inferred where exactly
    one connection of `live` is of that platform. `served`: the homes that this process serves, by profile; one that is
    not multiplexed serves one. Raises `InvalidInput` for arguments that contradict each other.
    """
    if not multiplexed and len(served) != 1:
        raise InvalidInput(
            f"A process that is not multiplexed serves one profile, not {len(served)}.", argument="served"
        )
    if receiver is not None and receiver.platform != source.platform:
        raise InvalidInput(
            f"A connection of {receiver.platform} cannot have received a message of {source.platform}.",
            argument="receiver",
        )
    bot, inferred = receiver, receiver is None
    if bot is None:
        candidates = [one for one in live if one.platform == source.platform]
        if len(candidates) != 1:
            return Unserved(
                source=source, profile="?", home=None,
                reason=f"nothing says which bot received it, and {len(candidates)} bots of {source.platform} are up",
            )
        (bot,) = candidates
    route = route_for(routes, source)
    runtime = route.profile if route is not None else bot.runs_as or bot.profile
    for profile, what in ((bot.profile, "the bot that received it"), (runtime, "the route of its chat")):
        home = served.get(profile)
        if home is None:
            return Unserved(
                source=source, profile=profile, home=bot.home,
                reason=f"{what} is of profile {profile!r}, which this process does not serve",
            )
        if profile == bot.profile and home != bot.home:
            return Unserved(
                source=source, profile=profile, home=bot.home,
                reason=f"the bot that received it is of {bot.home}, and profile {profile!r} is {home} now",
            )
    return RoutingIdentity(
        transport_profile=bot.profile, runtime_profile=runtime, authorization_home=bot.home,
        runtime_home=served[runtime], multiplexed=multiplexed, transport=weakref.ref(bot), transport_inferred=inferred,
    )
