"""Whose watcher is gone: judged by the identity of its process, row by row, before any transaction.

Invariant: a watcher that is proven to run keeps its rows however late it renews them; one that is provably dead has
lost them at once. Where nothing is proven the row is a lease like any other: it runs out on our clock, and on another
one only after this process has itself seen it unchanged for the term and a margin. What was judged is compared again
inside the transaction that acts on it.

Not for: whether the work itself still runs (see `processes`). Taking rows when their term is over was rejected: the
sub-agent of a gateway that was busy for five minutes would have its result thrown away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_state.leases.judging import Judging
from hermes_state.leases.states import ACQUIRE, Outcome
from hermes_state.owners import provably_dead
from hermes_state.owners.presence import presence_of
from hermes_state.work.background import Delegation, Process, open_work
from hermes_state.work.states import Sort

if TYPE_CHECKING:
    from hermes_state.engine import Reader
    from hermes_state.engine.core import Core
    from hermes_state.owners import Presence


class Orphans:
    """What one process remembers of the watchers of one store's background work. Safe for threads."""

    def __init__(self, core: Core, *, presence: Presence | None = None) -> None:
        """`presence` makes another owner than this process; for tests."""
        self._core = core
        self._presence = presence
        self._judging = Judging(core)

    def own(self) -> str:
        """Who watches here, as JSON."""
        return (self._presence or presence_of(self._core.path.parent, clock=self._core.clock)).identity.to_json()

    def found(self) -> list[tuple[Delegation, str]]:
        """Delegations whose watcher is gone, as seen, and why it counts as gone. It looks into lock files."""
        with self._core.reader() as reader:
            rows = [row for row in open_work(reader, Sort.DELEGATION) if isinstance(row, Delegation)]
        own = self.own()
        return [(row, because) for row in rows if row.owner != own and (because := self._gone(row)) is not None]

    def looked_at(self) -> list[tuple[Process, str | None]]:
        """Processes whose watcher is gone, and why it counts as gone; and those, without a why, that this process has
        taken over: nobody here is told when such a one ends."""
        with self._core.reader() as reader:
            rows = [row for row in open_work(reader, Sort.PROCESS) if isinstance(row, Process)]
        own = self.own()
        found: list[tuple[Process, str | None]] = []
        for row in rows:
            because = None if row.owner == own else self._gone(row)
            if because is not None or (row.owner == own and row.taken_over_at is not None):
                found.append((row, because))
        return found

    def _gone(self, row: Process | Delegation) -> str | None:
        """Why the watcher of a row counts as gone; None: it does not."""
        assert row.lease is not None  # an open row has one: the file itself says so
        identity = row.lease.identity
        if identity is not None:
            verdict = provably_dead(identity, self._core.path.parent, clock=self._core.clock)
            if verdict.dead:
                return verdict.because
            if verdict.runs:
                return None
        standing, _verdict = self._judging.judge(row.lease)
        return "nothing was heard of it for its term" if ACQUIRE[standing] is Outcome.TAKE else None


def as_judged(reader: Reader, row: Process | Delegation) -> bool:
    """Whether nobody has renewed, taken or ended a row since it was judged."""
    return reader.row(
        "SELECT 1 FROM background_work WHERE key = ? AND ended_at IS NULL AND owner = ? AND renewals = ?",
        (row.key, row.owner, None if row.lease is None else row.lease.renewals),
    ) is not None
