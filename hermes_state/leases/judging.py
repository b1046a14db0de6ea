"""How a contender sees a row that somebody holds, remembering what it saw before.

Invariant: where the holder's clock is another one, nothing is taken before this process has itself seen the row
unchanged for the term and a margin; what it saw of a row is forgotten when the row is free or its clock is ours.

Not for: taking what is seen (see `leases`, and every table whose rows are leases themselves). Asking for the death of
the owner first was rejected: a look into its lock file costs more than reading a clock.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from hermes_state.clock import ClockDomain
from hermes_state.leases.rows import LeaseRow
from hermes_state.leases.states import Sighting, Standing, standing
from hermes_state.owners import Verdict, provably_dead

if TYPE_CHECKING:
    from hermes_state.engine.core import Core


class Judging:
    """The eyes of one process on the leases of one store. Safe for threads."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._lock = threading.Lock()
        self._sightings: dict[str, Sighting] = {}

    def judge(self, row: LeaseRow | None) -> tuple[Standing, Verdict]:
        """How the row stands, and why its owner counts as dead or alive where that was asked."""
        clock = self._core.clock
        verdict = Verdict(dead=False, because="")

        def judge() -> Verdict:
            nonlocal verdict
            owner = None if row is None else row.identity
            if owner is None:
                verdict = Verdict(dead=False, because="it was written by something that this version cannot read")
            else:
                verdict = provably_dead(owner, self._core.path.parent, clock=clock)
            return verdict

        now, domain = clock.boottime(), clock.domain()
        sighting = None if row is None else self._sight(row, now, domain)
        return standing(row, now=now, domain=domain, sighting=sighting, judge=judge), verdict

    def _sight(self, row: LeaseRow, now: float, domain: ClockDomain) -> Sighting | None:
        """Remember since when the row shows what it shows, where that is what counts."""
        with self._lock:
            known = self._sightings.get(row.name)
            if row.owner is None or row.domain.comparable(domain):
                self._sightings.pop(row.name, None)
                return None
            if known is None or not known.still(row, domain):
                known = Sighting(fence=row.fence, renewals=row.renewals, since=now, domain=domain)
                self._sightings[row.name] = known
            return known
