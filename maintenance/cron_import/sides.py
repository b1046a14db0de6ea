"""On which side each imported job runs once it was handed over, and why on none.

Invariant: what is said is what stands in jobs.json and in the store, not what was meant to be done. A job that a person
paused, here or there, stays as that person left it, and is named.

Not for: changing anything (see `bringing`). Counting alone was rejected: a job that ran nowhere was one of a number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from cron_store.looking import Looking
from cron_store.states import JobState
from hermes_state.errors import Entombed, JobNotFound

if TYPE_CHECKING:
    from hermes_state.store import Store
    from maintenance.cron_import.bringing import Brought, Intake
    from maintenance.cron_import.translating import Translated

Place = Literal["here", "there", "both", "nowhere"]


@dataclass(frozen=True, kw_only=True)
class Side:
    """Where a job runs."""

    job_id: str
    name: str  # there
    runs: Place  # "both": it was resumed here before, and a person resumed it there
    why: str  # why not here; empty when it runs here


def sides(store: Store, intake: Intake, done: Brought) -> list[Side]:
    """Each record of the home, in its order there: those that came in, then those that could not."""
    cron = Looking(store)
    paused_there = set(done.paused_there)
    found = []
    for job in intake.jobs:
        there = job.runs_there and job.job_id not in paused_there
        why = _why_not_here(cron, job)
        runs: Place = ("both" if there else "here") if not why else "there" if there else "nowhere"
        found.append(Side(job_id=job.job_id, name=job.name, runs=runs, why=why))
    return found + [
        Side(
            job_id=one.job_id, name="", runs="there" if one.runs_there else "nowhere",
            why=f"not brought in: {one.why}",
        )
        for one in intake.problems
    ]


def _why_not_here(cron: Looking, job: Translated) -> str:
    """Why a job does not run here; empty when it does."""
    try:
        here = cron.job(job.job_id)
    except (JobNotFound, Entombed):
        return "it was removed here"
    if here.state is JobState.PAUSED:
        return "no slot is left for it" if job.is_over else f"paused here: {here.state_reason}"
    return "it is completed here" if here.state is JobState.COMPLETED else ""
