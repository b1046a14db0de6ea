"""Writing for a home: what the groups of credentials, models and account usage have in common.

Invariant: a write names its home and is refused in any other, and in one that was removed, before and inside its
transaction.

Not for: groups that watch (see `group`). A home taken from the store itself was rejected: a caller that has the wrong
store open would never be told.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from hermes_state.routing.homes import guard, refuse_other_home, valid_home

if TYPE_CHECKING:
    from hermes_state.engine import Transaction
    from hermes_state.engine.core import Core
    from hermes_state.routing import Home

Result = TypeVar("Result")


class Guarded:
    """A group of one home. Safe for threads."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def refuse(self, home: Home) -> None:
        """Raise `WrongHome` or `HomeRemoved` when this store is not that home's; `InvalidInput` without one."""
        refuse_other_home(self._core, valid_home("home", home))

    def _write(self, home: Home, work: Callable[[Transaction], Result], *, power: bool = True) -> Result:
        self.refuse(home)

        def guarded(tx: Transaction) -> Result:
            guard(tx, home)
            return work(tx)

        return self._core.write(guarded, durability="power" if power else "process")
