"""Who owns a lease: an identity that no other process ever has, a lock file held for life, and the proof of a death."""

from __future__ import annotations

from hermes_state.owners.death import Verdict, provably_dead, sweep
from hermes_state.owners.identity import OwnerIdentity
from hermes_state.owners.presence import FOLDER, Presence, lock_file, this_process

__all__ = ["FOLDER", "OwnerIdentity", "Presence", "Verdict", "lock_file", "provably_dead", "sweep", "this_process"]
