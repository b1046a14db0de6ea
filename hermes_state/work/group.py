"""What the groups of processes and of delegations have in common: who watches, and for which home is written.

Invariant: every write names its home and is refused in any other, and in one that was removed, before and inside its
transaction.

Not for: what only one of them does. Functions with the core as an argument were rejected: the memory of who was seen
silent has to live somewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from hermes_state.errors import InvalidInput
from hermes_state.outbox.inputs import text
from hermes_state.routing.homes import guard, refuse_other_home, valid_home
from hermes_state.work.background_rows import TABLE, Watcher, watcher
from hermes_state.work.orphans import Orphans
from hermes_state.work.states import Sort

if TYPE_CHECKING:
    from hermes_state.engine import Transaction
    from hermes_state.engine.core import Core
    from hermes_state.engine.store import Durability
    from hermes_state.owners import Presence
    from hermes_state.routing import Home

Result = TypeVar("Result")
Sorted = TypeVar("Sorted")


class Group:
    """One sort of background work of one store."""

    sort: Sort

    def __init__(self, core: Core, *, presence: Presence | None = None) -> None:
        """`presence` makes another owner than this process; for tests."""
        self._core = core
        self._orphans = Orphans(core, presence=presence)

    def renew(self, home: Home) -> int:
        """Say that this process still watches over what it registered or took over; gives how many rows.

        A gateway does it every 100 s: a row that is renewed within 300 s is nobody else's, whatever can be proven.
        """
        here = self._watcher()

        def work(tx: Transaction) -> int:
            return tx.execute(
                f"UPDATE {TABLE} SET renewals = renewals + 1, boot_id = ?, time_namespace = ?, expires_boottime = ?"
                " WHERE ended_at IS NULL AND sort = ? AND owner = ?",
                (here.boot_id, here.time_namespace, here.expires_boottime, str(self.sort), here.owner),
            )

        return self._write(home, work)

    def _watcher(self) -> Watcher:
        return watcher(self._orphans.own(), self._core.clock)

    def _write(
        self, home: Home, work: Callable[[Transaction], Result], *, durability: Durability = "process"
    ) -> Result:
        refuse_other_home(self._core, valid_home("home", home))

        def guarded(tx: Transaction) -> Result:
            guard(tx, home)
            return work(tx)

        return self._core.write(guarded, durability=durability)


def of_sort(row: Any, wanted: type[Sorted]) -> Sorted:
    """A row, which is of the sort of its group. Raises `InvalidInput` for a process where a delegation is meant."""
    if not isinstance(row, wanted):
        raise InvalidInput(
            f"{row.key!r} is a {row.key.partition('/')[0]}, not a {wanted.__name__.lower()}.",
            hint="Give store.work.processes its processes, and store.work.delegations its delegations.", argument="key",
        )
    return row


def optional(argument: str, value: str | None, *, most: int = 4_000) -> str | None:
    """A text that may be missing. Raises `InvalidInput`."""
    return None if value is None else text(argument, value, most=most, of=" of background work")
