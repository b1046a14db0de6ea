"""Routing: which session a chat goes on in, where it runs, which bot may answer it, and who may talk to it."""

from __future__ import annotations

from hermes_state.routing.attention import Attention, Noted
from hermes_state.routing.changing import highest_generation, raise_generations, without_secrets
from hermes_state.routing.chats import ChatTurn
from hermes_state.routing.delivery import Because, Choice, delivery, intake
from hermes_state.routing.homes import DEFAULT, Home, canonical_home, guard, home_of, removed_home, served_homes
from hermes_state.routing.identity import Inbound, RoutingIdentity, Source, Transport, Unserved, canonicalize
from hermes_state.routing.keys import KeyRules, SessionKey, key_of, namespace
from hermes_state.routing.pairing import Paired, Pairing, Pending
from hermes_state.routing.records import Route
from hermes_state.routing.resolving import ProfileRoute, resolve, route_for
from hermes_state.routing.restoring import restore
from hermes_state.routing.routing import Routing
from hermes_state.routing.states import Act, State
from hermes_state.routing.turns import Turn, begin

__all__ = [
    "DEFAULT", "Act", "Attention", "Because", "ChatTurn", "Choice", "Home", "Inbound", "KeyRules", "Noted", "Paired",
    "Pairing", "Pending", "ProfileRoute", "Route", "Routing", "RoutingIdentity", "SessionKey", "Source", "State",
    "Transport", "Turn", "Unserved", "begin", "canonical_home", "canonicalize", "delivery", "guard",
    "highest_generation", "home_of", "intake", "key_of", "namespace", "raise_generations", "removed_home", "resolve",
    "restore", "route_for", "served_homes", "without_secrets",
]
