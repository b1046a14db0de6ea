"""The identity of a conversation that comes from a row: who may answer it, and nobody who received it.

Invariant: pure. A row that names its bot gives an identity without a connection; a row that does not pins nothing,
and `delivery` then looks for the one bot of the profile it runs in. A row of a home that is not served here, or was
made anew, gives `Unserved`. The row is not changed: nothing is guessed into it.

Not for: events that arrive (see `resolving`). Filling in the bot of the profile was rejected: it is the guess that made
the wrong bot answer after a restart.
"""

from __future__ import annotations

from collections.abc import Mapping

from hermes_state.routing.homes import Home
from hermes_state.routing.identity import Inbound, RoutingIdentity, Unserved
from hermes_state.routing.records import Route


def restore(route: Route, served: Mapping[str, Home], *, multiplexed: bool) -> Inbound | Unserved | None:
    """The conversation of a row as an event that nobody received now; None when the row pins nothing.

    `served`: the homes that this process serves, by profile. A process that is not multiplexed restores nothing: it has
    one profile, and `delivery` of the row says which bot answers.
    """
    profile = route.runtime_profile
    home = served.get(profile)
    if home is None or home.store_id != route.home:
        why = "which this process does not serve" if home is None else "whose home is another one now"
        return Unserved(
            source=route.origin, profile=profile, home=home, reason=f"the conversation runs in {profile!r}, {why}"
        )
    if route.transport_profile is None or not multiplexed:
        return None
    authorization_home = served.get(route.transport_profile)
    if authorization_home is None:
        return Unserved(
            source=route.origin, profile=route.transport_profile, home=home,
            reason=f"the conversation is answered by {route.transport_profile!r}, which this process does not serve",
        )
    return Inbound(
        source=route.origin,
        identity=RoutingIdentity(
            transport_profile=route.transport_profile, runtime_profile=profile,
            authorization_home=authorization_home, runtime_home=home, multiplexed=multiplexed,
        ),
    )
