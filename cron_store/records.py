"""What callers give and get: policies, jobs, claims, runs, slots, as they stood when they were read.

Invariant: a record is frozen and complete; a change names the record that it was decided on. A claim names the home
that it was made in, by its real path and the id of its store, so that whoever ends it need not know where it came from.

Not for: reading rows (see the folders). Objects that follow their row were rejected, as everywhere in this project.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from cron_store.schedule.kinds import Interval, Once, Schedule
from cron_store.states import IncidentState, JobState, RunState, SlotState
from hermes_state.owners import OwnerIdentity
from hermes_state.routing import Home

Effect = Literal["once", "idempotent"]
Misfire = Literal["coalesce", "run_all", "skip", "notify"]
Overlap = Literal["skip", "queue", "allow"]
Source = Literal["schedule", "manual", "import"]

# Facts section 3.3: one-shot grace; bounds of the catch-up grace; the least in-flight allowance; terminal executions.
ONCE_GRACE_SECONDS = 120.0
LEAST_GRACE_SECONDS, MOST_GRACE_SECONDS = 120.0, 7200.0
LEAST_ALLOWANCE_SECONDS = 1800.0
KEEP_EXECUTIONS = 1000


@dataclass(frozen=True, kw_only=True)
class Policies:
    """What a job wants where there is a choice."""

    effect: Effect = "once"  # idempotent: it may be run again under the same key after its owner died
    misfire: Misfire | None = None  # None: skip for once, else coalesce
    grace_seconds: float | None = None  # until when a slot is on time; None: see `Job.grace_seconds`
    spacing_seconds: float = 60.0  # between two starts that catch up, for run_all
    most_late: int = 24  # how many of the newest slots run_all keeps, 1 to 500
    overlap: Overlap = "skip"
    repeat_times: int | None = None  # runs in all; None: for ever, of once one
    allowance_seconds: float | None = None  # see `Cron.force_release`; None: twice its period, at least 1800
    session_reuse: bool = False  # all runs go on in one session
    keep_executions: int = KEEP_EXECUTIONS  # runs that ended, for each source


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job: its declaration, its schedule, and how it stands."""

    job_id: str
    name: str  # for people
    fields: Mapping[str, Any]  # prompt, model, deliver, ...; whatever was given
    policies: Policies  # as declared
    version: int  # of the declaration: counts its edits
    created_at: float  # epoch seconds UTC, as all times here
    updated_at: float
    schedule: Schedule
    schedule_version: int
    active: bool  # False: paused
    state: JobState
    state_at: float
    state_reason: str  # why it is paused or in error; "" otherwise
    due_at: float | None  # when a ticker has to look at it; None: nothing to do
    settled_through: int  # every slot at or before it is accounted for
    waiting_slot: int | None  # the next slot of after_finish, which has no grid; None: of all others, or it is out
    tz_version: str  # of the zone's rules by which due_at was told
    repeat_completed: int  # runs that ended by themselves
    failure_streak: int  # failures since the last success
    last_run_at: float | None
    last_state: str | None  # of the newest run that ended
    last_error: str | None
    session_id: str | None  # in which its runs go on, with session_reuse
    revision: int  # counts the changes of the job and its open rows: the value that is compared

    @property
    def misfire(self) -> Misfire:
        """What becomes of slots whose time passed before anybody looked."""
        return self.policies.misfire or ("skip" if is_once(self.schedule) else "coalesce")

    @property
    def allowance_seconds(self) -> float:
        """How long a run that has no thread any more is left alone."""
        if self.policies.allowance_seconds is not None:
            return self.policies.allowance_seconds
        return max(2.0 * (period_of(self.schedule) or 0), LEAST_ALLOWANCE_SECONDS)

    def grace_seconds(self, slot: int, next_slot: int | None) -> float:
        """Until how long after a slot a start is on time; `next_slot` tells the period of an expression."""
        if self.policies.grace_seconds is not None:
            return self.policies.grace_seconds
        if isinstance(self.schedule, Once):
            return ONCE_GRACE_SECONDS
        period = period_of(self.schedule) or (next_slot - slot if next_slot is not None else 0)
        return min(max(period / 2, LEAST_GRACE_SECONDS), MOST_GRACE_SECONDS)


def period_of(schedule: Schedule) -> int | None:
    """Seconds between two slots where all are equal."""
    return schedule.seconds if isinstance(schedule, Interval) else None


def is_once(schedule: Schedule) -> bool:
    """Whether it has one slot at most."""
    return isinstance(schedule, Once)


def has_no_grid(schedule: Schedule) -> bool:
    """Whether each slot is told only when the one before it is over."""
    return isinstance(schedule, Interval) and schedule.after_finish


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A run that this process has. It may begin only once `Cron.start` has returned."""

    job_id: str
    slot: int | None  # epoch seconds UTC; None: by hand
    run_id: str | None  # of a run by hand
    fence: int  # only rises in a store; every write about the run names it
    source: Source
    attempt: int  # of this slot, from 1
    lateness_seconds: float  # after the slot; 0: by hand
    claimed_at: float
    term_seconds: float  # how long it lasts unless it is renewed
    home: Home  # whose job it is
    owner: str  # JSON of the owner identity
    incarnation: str  # of the store's content: a claim of replaced content is nobody's
    job: Job  # as it was claimed
    session_id: str | None  # in which it goes on; None: in a new one

    @property
    def key(self) -> str:
        """What an idempotent effect is known by: the same for each attempt of a slot."""
        what = f"run/{self.run_id}" if self.slot is None else str(self.slot)
        return f"{self.home.store_id}/{self.job_id}/{what}"


@dataclass(frozen=True, kw_only=True)
class Succeeded:
    """The run did what it was for."""

    result: Mapping[str, Any] | None = None  # what is kept of it; small


@dataclass(frozen=True, kw_only=True)
class Failed:
    """The run ended by itself, and not well."""

    error: str
    failure_type: str = "unknown"  # rate_limit, timeout, auth, delivery, config, script, agent, unknown
    result: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Interrupted:
    """The run was stopped: nobody knows how far it came."""

    why: str


Outcome = Succeeded | Failed | Interrupted


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """What a run owes, recorded in the outbox by the transaction that settles it."""

    kind: str
    transport: str
    target: str
    payload: Any
    policy: Literal["at_most_once", "at_least_once"]
    lane: str | None = None
    priority: int = 0


@dataclass(frozen=True, kw_only=True)
class Incident:
    """A failure of a job that people are told of."""

    incident_id: str
    job_id: str
    state: IncidentState
    generation: int  # rises when it comes back after it was resolved
    failure_type: str
    error: str  # at most 500 characters
    count: int  # of this generation
    first_at: float
    last_at: float
    alerted_at: float | None
    closed_at: float | None
    fence: int | None  # of the newest run that failed so


@dataclass(frozen=True, kw_only=True)
class Settled:
    """What `settle` wrote."""

    state: RunState  # interrupted, also of a success that came after an interruption
    incident: Incident | None  # the failure's; None: it did not fail
    alerted: bool  # whether this is the time to tell people: `alert`, if one was given, was recorded


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run, in flight or ended."""

    fence: int
    job_id: str
    slot: int | None
    run_id: str | None
    source: Source
    state: RunState
    owner: OwnerIdentity | None  # None: imported, or written by something that cannot be read here
    waiter: OwnerIdentity | None  # which process waits for the owner; None: nobody does
    detached: bool  # it outlives its waiter
    handed_off: bool  # it waits for a worker of its own
    claimed_at: float
    started_at: float | None
    finished_at: float | None
    lateness_seconds: float
    attempt: int  # of its slot, from 1
    interrupted_at: float | None
    interrupted_reason: str | None
    forced: bool  # let go by the rule, not by its owner
    allowance_seconds: float | None
    error: str | None
    failure_type: str | None
    session_id: str | None
    result: Mapping[str, Any] | None
    home: Home | None = None  # of which home it is, in a union

    @property
    def is_open(self) -> bool:
        """Whether it is in flight."""
        return self.finished_at is None


@dataclass(frozen=True, kw_only=True)
class Occurrence:
    """One slot, or consecutive ones with one verdict."""

    job_id: str
    slot: int  # of a range the first
    last_slot: int
    count: int
    state: SlotState
    reason: str  # of a verdict without a run
    version: int  # of the schedule
    fence: int | None  # of its newest run
    settled_at: float | None

    @property
    def is_range(self) -> bool:
        """Whether it stands for several slots."""
        return self.count > 1


@dataclass(frozen=True, kw_only=True)
class Taken:
    """What one `take` did."""

    claims: tuple[Claim, ...] = ()
    accounted: int = 0  # slots that got their record
    missed: Mapping[str, int] = field(default_factory=dict)  # job -> slots
    unreadable: Mapping[str, Exception] = field(default_factory=dict)  # job -> why it is not run
    more: bool = False  # other jobs are due as well: call again


@dataclass(frozen=True, kw_only=True)
class Reaped:
    """A run that was taken from an owner."""

    fence: int
    job_id: str
    slot: int | None
    to: RunState  # what the run became
    again: bool  # whether its slot is due again
    because: str
    forced: bool


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened to cron itself."""

    id: int
    at: float
    kind: str
    job_id: str | None
    detail: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class TickerRow:
    """The ticker of a home as it was last heard."""

    heartbeat_at: float | None
    success_at: float | None
    error_at: float | None
    error: str | None
    owner: OwnerIdentity | None


@dataclass(frozen=True, kw_only=True)
class ClockStep:
    """The wall clock was set."""

    seconds: float  # above 0: forwards
    at: float  # the wall clock after it
    # For how long of boot time it has stood since a tick noted it; None: none did, or it is not in doubt.
    stood_seconds: float | None = field(default=None, compare=False)


@dataclass(frozen=True, kw_only=True)
class Pruned:
    """What `upkeep` let go."""

    slots: int = 0  # rows
    runs: int = 0
    events: int = 0
    more: bool = False
