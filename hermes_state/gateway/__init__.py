"""A gateway server on a store: one start of it, who is connected to it, and which process has the store."""

from __future__ import annotations

from hermes_state.gateway.gateway import Gateway
from hermes_state.gateway.records import Ended, Holder, Noticed, Standing, Ticked
from hermes_state.gateway.server import Server
from hermes_state.instances.close_codes import CloseCode
from hermes_state.instances.connection_records import Accepted, Connection, DeliveryAccepted, Hello
from hermes_state.instances.connection_states import PublicStatus
from hermes_state.instances.generations import Generation
from hermes_state.instances.protocol import VersionRange
from hermes_state.turns.sending import answer_of, refusal_of

__all__ = [
    "Accepted", "CloseCode", "Connection", "DeliveryAccepted", "Ended", "Gateway", "Generation", "Hello", "Holder",
    "Noticed", "PublicStatus", "Server", "Standing", "Ticked", "VersionRange", "answer_of", "refusal_of",
]
