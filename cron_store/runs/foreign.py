"""Ending a run from any context: the claim says whose it is.

Invariant: the store that is written is that of the claim's own home, by its real path and the id of its store; what the
caller has open, and what its environment says, decide nothing.

Not for: many runs of a home that is open already (use its `Cron`). Looking for the home by the job's id was rejected:
three profiles had a job of the same name.
"""

from __future__ import annotations

from cron_store.cron import Cron
from cron_store.records import Claim, Outcome, Settled
from hermes_state.clock import Clock
from hermes_state.store import open_home


def settle_anywhere(claim: Claim, outcome: Outcome, *, clock: Clock | None = None) -> Settled:
    """As `Cron.settle`, in the claim's own home. Raises `HomeRemoved`, `WrongHome` as well."""
    with open_home(claim.home, clock=clock) as store:
        return Cron(store).settle(claim, outcome)


def release_anywhere(claim: Claim, *, clock: Clock | None = None) -> bool:
    """As `Cron.release`, in the claim's own home. Raises `HomeRemoved`, `WrongHome` as well."""
    with open_home(claim.home, clock=clock) as store:
        return Cron(store).release(claim)
