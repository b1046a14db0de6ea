"""Who makes a generation, and whether somebody else who does is still there.

Invariant: a running row is judged by the same rules as a lease: its maker is gone when it is provably dead, when the
row ran out on a clock that both share, or, without one, when it was seen unchanged here for its term and a margin.

Not for: taking a row over: nobody goes on with another's pass, it is failed and made anew. The table of leases was
rejected as the lock: the row itself says what is being made, and one row cannot disagree with itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_state.compaction.generations.records import Generation
from hermes_state.compaction.generations.rows import running_of
from hermes_state.conversation.session_rows import Reads
from hermes_state.leases.judging import Judging
from hermes_state.leases.rows import LeaseRow
from hermes_state.leases.states import ACQUIRE, Outcome, Standing
from hermes_state.owners import Presence
from hermes_state.owners.presence import presence_of

if TYPE_CHECKING:
    from hermes_state.clock import Clock
    from hermes_state.engine.core import Core
    from hermes_state.owners import OwnerIdentity


class Watch:
    """What one store's user knows of the passes of others. Safe for threads; keep one for each open store."""

    def __init__(self, core: Core, *, presence: Presence | None = None) -> None:
        """`presence` makes another maker than this process; for tests."""
        self._core = core
        self._presence = presence
        self._judging = Judging(core)

    @property
    def clock(self) -> Clock:
        """The store's clock."""
        return self._core.clock

    @property
    def identity(self) -> OwnerIdentity:
        """Who begins passes here. Raises `CannotOpen` when the lock file of this process cannot be made."""
        return (self._presence or presence_of(self._core.path.parent, clock=self.clock)).identity

    def gone(self, generation: Generation) -> str | None:
        """How it is known that the maker of a running row is gone, in words; None when it may be at work."""
        view, verdict = self._judging.judge(as_lease(generation))
        if ACQUIRE[view] is not Outcome.TAKE:
            return None
        return {
            Standing.DEAD: f"its maker is dead: {verdict.because}",
            Standing.RUN_OUT: "its lease ran out",
            Standing.SILENT: "it was not renewed for its term and a margin",
        }.get(view, view.value)


def as_lease(generation: Generation) -> LeaseRow:
    """A running row as a lease of its own: the fence is the row's number."""
    return LeaseRow(
        name=f"compaction {generation.id}", fence=generation.id, renewals=generation.renewals,
        owner=generation.owner_text, domain=generation.domain, acquired_boottime=0.0,
        expires_boottime=generation.expires_boottime or 0.0, term_seconds=generation.term_seconds or 0.0,
        acquired_at=generation.started_at,
    )


def maker_at_work(core: Core, reader: Reads, no: int) -> str | None:
    """Who is compacting a session, in words, on one look; None when nobody is, or only somebody who is gone."""
    one = running_of(reader, no)
    if one is None or Watch(core).gone(one) is not None:
        return None
    return "an unknown owner" if one.owner is None else str(one.owner)
