"""Choosing sessions: one set of filters, one way to apply it, the same rows for every verb.

Invariant: a verb never adds a condition of its own to the choice; what may not be removed is set aside afterwards, with
a reason. Not for: reading or removing.
"""

from __future__ import annotations

from maintenance.selection.ages import AgeLimit, parse_age_limit, parse_moment
from maintenance.selection.filters import Filters
from maintenance.selection.limits import Limits, limit_options
from maintenance.selection.options import filter_options
from maintenance.selection.retention import prune_filters, removal_units
from maintenance.selection.select import Conversation, LeftOut, Selection, select

__all__ = [
    "AgeLimit",
    "Conversation",
    "Filters",
    "LeftOut",
    "Limits",
    "Selection",
    "filter_options",
    "limit_options",
    "parse_age_limit",
    "parse_moment",
    "prune_filters",
    "removal_units",
    "select",
]
