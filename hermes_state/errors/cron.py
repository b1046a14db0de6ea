"""What cron refuses by name: jobs, runs and ledgers that cannot be read.

Invariant: see the package. Not for: claims that went to somebody else, which are `StaleFence` as everywhere, nor for
schedules that nobody can keep.
"""

from __future__ import annotations

from hermes_state.errors.base import NotFound, Refused, StateError, StorageError


class JobNotFound(NotFound):
    """No cron job of that id. Facts: `path`, `job_id`."""

    code = "job_not_found"


class JobExists(Refused):
    """The id is taken by another job. Facts: `path`, `job_id`."""

    code = "job_exists"


class JobMoved(StateError):
    """A job was edited since the caller read it: nothing was written. Facts: `path`, `job_id`, `version`, `now`."""

    code = "job_moved"


class JobBusy(Refused):
    """The job is in flight, and one run at a time is what it allows. Facts: `path`, `job_id`, `fence`, `owner`."""

    code = "job_busy"
    exit_code = 75


class JobRemoved(Refused):
    """The job was removed between the claim of a run and its start: it is not run. Facts: `path`, `job_id`, `fence`."""

    code = "job_removed"


class SlotSettled(Refused):
    """The slot was accounted for, whether or not its row is still there. Facts: `path`, `job_id`, `slot`,
    `settled_through`."""

    code = "slot_settled"


class LedgerUnreadable(StorageError):
    """What cron did before cannot be read, so it runs nothing. Facts: `path`, `job_id` (None: of the whole home)."""

    code = "ledger_unreadable"
    exit_code = 65
