"""What is owed to somebody, from the change that made it to its verdict: recorded, claimed, settled."""

from __future__ import annotations

from hermes_state.outbox.append import Recorded, append
from hermes_state.outbox.outbox import Outbox
from hermes_state.outbox.records import Claim, Obligation
from hermes_state.outbox.schedules import SCHEDULES, Schedule
from hermes_state.outbox.states import Policy, State
from hermes_state.outbox.verdicts import Accepted, Failed, NotAdmitted, NotSent, Refused, Suppressed, Verdict

__all__ = [
    "SCHEDULES", "Accepted", "Claim", "Failed", "NotAdmitted", "NotSent", "Obligation", "Outbox", "Policy", "Recorded",
    "Refused", "Schedule", "State", "Suppressed", "Verdict", "append",
]
