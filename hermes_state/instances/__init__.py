"""Gateway instances: who they are, what lets them in, which threads they serve, and how they stand with a server."""

from __future__ import annotations

from hermes_state.instances.instances import Instances
from hermes_state.instances.records import Binding, Changed, Enrollment, Freed, Instance, Issued, Minted, Removed, Swept
from hermes_state.instances.states import Event, State

__all__ = [
    "Binding", "Changed", "Enrollment", "Event", "Freed", "Instance", "Instances", "Issued", "Minted", "Removed",
    "State", "Swept",
]
