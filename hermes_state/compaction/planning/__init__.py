"""Planning a compaction: which rows go, which stay, and how large each part may be. Pure functions of rows."""

from __future__ import annotations

from hermes_state.compaction.planning.budget import budget_for
from hermes_state.compaction.planning.plans import plan, plan_rows
from hermes_state.compaction.planning.records import Budget, Plan

__all__ = ["Budget", "Plan", "budget_for", "plan", "plan_rows"]
