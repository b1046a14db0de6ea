"""Leases: who may do a thing now, with a fence that only rises, and nobody's but the provably dead's taken early."""

from __future__ import annotations

from hermes_state.leases.lease import Lease
from hermes_state.leases.leases import Leases
from hermes_state.leases.rows import LeaseView, fences_of, raise_fences
from hermes_state.leases.states import MARGIN_SECONDS, MARGIN_SHARE, silence_needed
from hermes_state.leases.tokens import TokenLocks

__all__ = [
    "MARGIN_SECONDS", "MARGIN_SHARE", "Lease", "LeaseView", "Leases", "TokenLocks", "fences_of", "raise_fences",
    "silence_needed",
]
