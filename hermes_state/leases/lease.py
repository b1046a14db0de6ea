"""A lease that this process acquired: renew it, guard writes by it, release it.

Invariant: a write is done under a lease only if, inside its own transaction, the row still has our fence and our owner,
and our clock is before the expiry. A holder that slept past the expiry renews first, or is told; one that was replaced
is told at its next renewal and its next guarded write.

Not for: getting a lease (see `leases`). Trusting the time of the last renewal in memory was rejected: a process that
was stopped does not know for how long.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from hermes_state.errors import InvalidInput, LeaseLost, StaleFence, StateError
from hermes_state.leases import rows
from hermes_state.leases.rows import LeaseRow
from hermes_state.leases.states import HOLD, Act, Outcome, Tenure
from hermes_state.owners import OwnerIdentity
from hermes_state.owners.presence import is_here

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction
    from hermes_state.engine.core import Core

_BECAUSE = {
    Tenure.RUN_OUT: "ran out while its holder was away",
    Tenure.SPENT: "has reached the longest life that was asked for",
    Tenure.FREED: "was released",
    Tenure.TAKEN: "went on to another owner",
    Tenure.FORKED: "belongs to the process that started this one",
}
_HINT = {
    Tenure.RUN_OUT: "Renew it before writing on; if that fails as well, stop this work.",
    Tenure.SPENT: "Stop this work; acquire the lease again for more of it.",
    Tenure.FREED: "Acquire it again.",
    Tenure.TAKEN: "Stop this work: somebody else does it now.",
    Tenure.FORKED: "Acquire a lease in each process.",
}


class Lease:
    """One acquired lease. Safe for threads; a `with` block releases it at its end."""

    def __init__(
        self, core: Core, row: LeaseRow, owner: OwnerIdentity, *, incarnation: str, max_life_seconds: float | None
    ) -> None:
        self._core = core
        self._incarnation = incarnation
        self._text = row.owner
        self._ends = None if max_life_seconds is None else row.acquired_boottime + max_life_seconds
        self.name = row.name
        # Given with every write that others check: only rises from owner to owner.
        self.fence = row.fence
        self.owner = owner
        self.term_seconds = row.term_seconds
        # How often it was renewed here.
        self.renewals = 0

    def renew(self) -> None:
        """Have it for another term from now, at most to the end of the longest life that was asked for.

        Also after the expiry, as long as nobody took it. Raises `LeaseLost`.
        """

        def work(tx: Transaction) -> None:
            tenure, row = self._tenure(tx)
            if HOLD[tenure, Act.RENEW] is not Outcome.EXTEND:
                raise self._lost(tenure, row)
            until = self._core.clock.boottime() + self.term_seconds
            rows.write_renewal(
                tx, self.name, expires_boottime=until if self._ends is None else min(until, self._ends),
                domain=self._core.clock.domain(),
            )

        self._core.write(work)
        self.renewals += 1

    def guard(self, tx: Transaction) -> None:
        """Call it in the transaction that writes under this lease, first thing.

        Raises `StaleFence` when another owner has it, `LeaseLost` when it ran out, was released or reached its longest
        life. Either way the caller's transaction must not commit; let the error leave the block.
        """
        if tx.path != self._core.path:
            raise InvalidInput(
                f"Lease {self.name!r} is of {self._core.path} and cannot guard a write to {tx.path}.",
                hint="Lease and write must be in one store.", path=tx.path, name=self.name,
            )
        tenure, row = self._tenure(tx)
        if HOLD[tenure, Act.GUARD] is not Outcome.PASS:
            raise self._lost(tenure, row, stale=HOLD[tenure, Act.GUARD] is Outcome.STALE)

    def reopened(self, core: Core) -> Lease:
        """The same lease, for its store that was closed and opened again here. Nothing is written or looked at."""
        again = copy.copy(self)
        again._core = core
        return again

    def release(self) -> bool:
        """Let it go. False, and nothing is done, when it is no longer ours to release."""

        def work(tx: Transaction) -> bool:
            if HOLD[self._tenure(tx)[0], Act.RELEASE] is not Outcome.FREE:
                return False
            rows.write_free(tx, self.name)
            return True

        return self._core.write(work)

    def expires_in_seconds(self) -> float:
        """How much of the term is left; 0 when this lease is not ours, or not any more."""
        with self._core.reader() as reader:
            tenure, row = self._tenure(reader)
        if tenure is not Tenure.OURS or row is None:
            return 0.0
        return row.expires_boottime - self._core.clock.boottime()

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *failure: object) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"<Lease {self.name} fence {self.fence} of {self.owner}>"

    def _tenure(self, reader: Reader) -> tuple[Tenure, LeaseRow | None]:
        row = rows.read(reader, self.name)
        if not is_here(self.owner.nonce):
            return Tenure.FORKED, row
        if row is None or row.fence != self.fence or rows.incarnation(reader) != self._incarnation:
            return Tenure.TAKEN, row
        if row.owner is None:
            return Tenure.FREED, row
        if row.owner != self._text:
            return Tenure.TAKEN, row
        clock = self._core.clock
        now = clock.boottime()
        if self._ends is not None and now >= self._ends:
            return Tenure.SPENT, row
        # Equal is enough: we wrote it ourselves, also where the platform does not say which boot this is.
        if row.domain != clock.domain() or now >= row.expires_boottime:
            return Tenure.RUN_OUT, row
        return Tenure.OURS, row

    def _lost(self, tenure: Tenure, row: LeaseRow | None, *, stale: bool = False) -> StateError:
        current = None if row is None else row.fence
        because = _BECAUSE[tenure]
        if tenure is Tenure.TAKEN:
            now_of = None if row is None else row.identity
            if current == self.fence or row is None:
                because = "is of content that was replaced since"
            elif now_of is not None:
                because = f"went on to {now_of}, whose fence is {current}"
        kind = StaleFence if stale else LeaseLost
        return kind(
            f"Lease {self.name!r} in {self._core.path} (fence {self.fence}) {because}.",
            hint=_HINT[tenure], path=self._core.path, name=self.name, fence=self.fence, current=current,
        )
