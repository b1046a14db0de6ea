"""What ends with an instance, or with a binding: `ended` and `unbinding` of `store.instances`.

Invariant: it reads how the instance stands in the transaction that changed it, and settles in that one.

Not for: closing sockets (see `server`). A listener that each program adds by itself was rejected: the command line
revokes instances as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_state.instances import registry
from hermes_state.instances.states import State
from hermes_state.turns.ending import end_of_binding, end_of_instance

if TYPE_CHECKING:
    from hermes_state.engine import Transaction


def ended(tx: Transaction, instance_id: str, at: float) -> None:
    """Settle the turns, questions and obligations of an instance that was just revoked or removed."""
    found = registry.find(tx, instance_id)
    for_good = found is None or found.state is State.REMOVED
    why = "its instance was removed" if for_good else "its instance was revoked"
    end_of_instance(tx, instance_id, why, for_good=for_good, at=at)


def unbinding(tx: Transaction, thread_id: str, at: float) -> None:
    """Settle what of a thread ends with its binding. Raises `TurnActive`: a turn would run on unseen."""
    end_of_binding(tx, thread_id, at=at)
