"""Writing for a home at one time: what lanes, logins, replies and dead targets have in common.

Invariant: a transaction is guarded (see `guarded`), at `power`, and everything in it has the time at which it began.

Not for: work under a lease, whose transactions the lease guards. Asking the clock at each row was rejected: rows of one
commit would differ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from hermes_state.work.guarded import Guarded

if TYPE_CHECKING:
    from hermes_state.engine import Transaction
    from hermes_state.routing import Home

Result = TypeVar("Result")


class Timed(Guarded):
    """A group of one home. Safe for threads."""

    def _write_at(self, home: Home, work: Callable[[Transaction, float], Result]) -> Result:
        """Run `work(tx, now)`, epoch seconds UTC. Raises `WrongHome`, `HomeRemoved`."""
        at = self._core.clock.now()
        return self._write(home, lambda tx: work(tx, at))
