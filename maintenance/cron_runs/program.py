"""A command that does one run: the claim as JSON on its stdin, its exit status as the verdict.

Invariant: the command is started without a shell, in a process group of its own, after the start of the run was
committed; exit status 0 is success and everything else is not. When the run is to stop, or its time is over, the whole
group is told to end and then made to; when the tick itself is killed, its guard kills the group (see `guard`). Its
output is kept up to a bound, whatever it writes.

Not for: what is due (see `once`). A command that each job names was rejected: whoever may edit a job could then run
anything as the user of the system's cron.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from cron_store.records import Failed, Interrupted, Outcome, Succeeded
from hermes_state.clock import Clock
from maintenance.cron_runs.guard import Guard

if TYPE_CHECKING:
    from cron_store.records import Claim
    from cron_store.ticker.running import Running

MOST_OUTPUT = 4_000  # characters of each stream that are kept: the last ones
GRACE_SECONDS = 10.0  # between SIGTERM and SIGKILL


def document(claim: Claim) -> dict[str, Any]:
    """What the command is told of its run; times are RFC 3339, UTC."""
    from cron_store.schedule import describe
    from maintenance.output.documents import plain
    from maintenance.output.text import rfc3339

    job = claim.job
    told = {
        "job_id": claim.job_id, "name": job.name, "fields": job.fields, "slot_at": rfc3339(claim.slot),
        "run_id": claim.run_id, "source": claim.source, "attempt": claim.attempt, "key": claim.key,
        "fence": claim.fence, "lateness_seconds": claim.lateness_seconds, "effect": job.policies.effect,
        "schedule_text": describe(job.schedule), "zone": job.schedule.zone, "home": claim.home.path,
        "session_id": claim.session_id,
    }
    found: dict[str, Any] = plain(told)
    return found


@dataclass(frozen=True, kw_only=True)
class Program:
    """The command, and how long it may take."""

    words: Sequence[str]  # program and arguments
    timeout_seconds: float  # of one run
    clock: Clock

    def __call__(self, running: Running) -> Outcome:
        """Run it once; the work of a `Running`."""
        with tempfile.TemporaryFile() as told, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            told.write(json.dumps(document(running.claim)).encode() + b"\n")
            told.seek(0)
            with Guard() as guard:
                try:
                    process = subprocess.Popen(self.words, stdin=told, stdout=out, stderr=err, start_new_session=True)
                except OSError as error:
                    why = f"{self.words[0]} cannot be started: {error.strerror or error}"
                    return Failed(error=why, failure_type="config")
                guard.watch(process.pid)
                ended = self._wait(process, running)
            said, complained = _tail(out), _tail(err)
        if ended is not None:
            return ended
        result = {"exit_status": process.returncode, "output": said}
        if process.returncode == 0:
            return Succeeded(result=result)
        last = next((line for line in reversed(complained.splitlines()) if line.strip()), "")
        how = (
            f"exit status {process.returncode}" if process.returncode >= 0
            else f"killed by signal {-process.returncode}"
        )
        return Failed(
            error=f"{how}: {last.strip()}" if last else how, failure_type="script",
            result=result | {"errors": complained},
        )

    def _wait(self, process: subprocess.Popen[bytes], running: Running) -> Outcome | None:
        """Until it ended by itself (None), or was made to: then what that is."""
        ended = threading.Event()

        def watch() -> None:
            process.wait()
            ended.set()
            running.stop.set()

        # One wait for both: the end of the process also wakes whoever waits to be told to stop.
        threading.Thread(target=watch, name=f"cron wait {process.pid}", daemon=True).start()
        running.stop.wait(self.timeout_seconds)
        if ended.is_set():
            return None
        _end(process, ended)
        if running.stopped_because:
            return Interrupted(why=running.stopped_because)
        return Failed(
            error=f"it took longer than {self.timeout_seconds:g} s and was ended", failure_type="timeout"
        )


def _end(process: subprocess.Popen[bytes], ended: threading.Event) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except (ProcessLookupError, PermissionError):
            process.kill()
        if ended.wait(GRACE_SECONDS):
            return


def _tail(stream: IO[bytes]) -> str:
    size = stream.seek(0, os.SEEK_END)
    stream.seek(max(0, size - 4 * MOST_OUTPUT))
    return stream.read().decode(errors="replace")[-MOST_OUTPUT:]
