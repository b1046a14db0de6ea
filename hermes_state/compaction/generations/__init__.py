"""Generations: the rows of a compaction, from the first to the last word about them."""

from __future__ import annotations

from hermes_state.compaction.generations.checking import verify
from hermes_state.compaction.generations.committing import commit
from hermes_state.compaction.generations.heads import generations_of, hidden_by, recover, rollback
from hermes_state.compaction.generations.live import live_view
from hermes_state.compaction.generations.makers import Watch
from hermes_state.compaction.generations.records import (
    Draft,
    Form,
    Generation,
    LiveView,
    Made,
    Running,
    State,
    Verified,
)
from hermes_state.compaction.generations.rotating import rotate
from hermes_state.compaction.generations.rows import newest_of, running_of
from hermes_state.compaction.generations.running import TERM_SECONDS, begin, fail, renew, settle_stale

__all__ = [
    "TERM_SECONDS", "Draft", "Form", "Generation", "LiveView", "Made", "Running", "State", "Verified", "Watch", "begin",
    "commit", "fail", "generations_of", "hidden_by", "live_view", "newest_of", "recover", "renew", "rollback", "rotate",
    "running_of", "settle_stale", "verify",
]
