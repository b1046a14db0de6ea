"""What `tick` and `run` say of a run, and the command that they run."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from cron_store.looking import Looking
    from cron_store.records import Claim
    from cron_store.ticker.running import Ended
    from hermes_state.clock import Clock
    from maintenance.cron_runs.program import Program


def program_of(words: str | None, timeout: float, clock: Clock) -> Program | None:
    """The command of --exec; None: none was given."""
    from maintenance.cron_runs.program import Program

    if words is None:
        return None
    try:
        split = shlex.split(words)
    except ValueError as error:
        raise click.UsageError(f"--exec cannot be split into words: {error}.") from None
    if not split:
        raise click.UsageError("--exec needs a command.")
    return Program(words=tuple(split), timeout_seconds=timeout, clock=clock)


def run_result(cron: Looking, claim: Claim, ended: Ended) -> dict[str, Any]:
    """The fields of `--json` for a run that was tried here. `not recorded`: nothing could be written of it."""
    from maintenance.output.text import rfc3339

    settled = ended.settled
    error = None if ended.error is None else str(ended.error)
    if settled is not None:
        row = cron.run(claim.fence)
        error = row.error or row.interrupted_reason or error
    return {
        "job_id": claim.job_id, "fence": claim.fence, "slot_at": rfc3339(claim.slot), "run_id": claim.run_id,
        "key": claim.key, "attempt": claim.attempt,
        "state": "not recorded" if settled is None else str(settled.state), "error": error,
    }
