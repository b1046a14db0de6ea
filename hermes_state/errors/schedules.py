"""What schedules refuse: a text that is no schedule, a name that is no time zone.

Invariant: see the package. Not for: jobs and occurrences.
"""

from __future__ import annotations

from hermes_state.errors.base import InvalidInput


class ScheduleRefused(InvalidInput):
    """The caller's fault: a text is no schedule, or one that never fires. Facts: `text`, `reason`."""

    code = "schedule_refused"


class UnknownZone(InvalidInput):
    """The caller's fault, or a machine whose time zones are missing or damaged: no rules by that IANA name. Facts:
    `zone`."""

    code = "unknown_zone"
