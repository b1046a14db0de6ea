"""A program that runs scheduled jobs: `python examples/cron_ticker.py --root DIR` serves DIR and its profiles.

A job's field `command` is a list of words; its output is delivered through the outbox of its home, here to standard
output. SIGTERM and Ctrl-C drain: what runs is asked to stop, and what goes on all the same is named. `--once` does
what is due now and ends, for a system's own cron. To declare a job:

    from cron_store.cron import Cron
    from cron_store.schedule import parse
    from hermes_state.store import open_store

    with open_store("DIR") as store:
        Cron(store).add("hello", parse("every 5m", now=..., zone="UTC"), fields={"command": ["echo", "hello"]})
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

from cron_store.records import Delivery, Failed, Interrupted, Succeeded
from cron_store.ticker import Code, CronTicker, Done, Problem, Running, installation
from hermes_state.host import open_host
from hermes_state.host.code import sha_on_disk
from hermes_state.location import PROFILES
from hermes_state.outbox import Accepted, Claim
from hermes_state.store import open_store

CODE = Path(__file__).resolve().parents[1]


def work(running: Running) -> Done:
    """Run the job's command until it ends, or until this run is told to stop."""
    job = running.claim.job
    process = subprocess.Popen(
        job.fields["command"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )
    while True:
        try:
            output, _nothing = process.communicate(timeout=0.2)
            break
        except subprocess.TimeoutExpired:
            if running.stop.is_set():
                process.kill()
                process.communicate()
                return Done(outcome=Interrupted(why=running.stopped_because))
    said = Delivery(
        kind="cron", transport="console", target="you", payload=f"{job.job_id}: {output.strip()}",
        policy="at_least_once",
    )
    if process.returncode == 0:
        return Done(outcome=Succeeded(), deliveries=[said])
    failed = Failed(error=f"exit {process.returncode}: {output.strip()}"[-500:], failure_type="script")
    return Done(outcome=failed, alert=said)


def deliver(homes: Iterable[Path]) -> None:
    """Print what homes owe to this console."""

    def show(claimed: Claim) -> Accepted:
        for one in claimed:
            print(one.payload, flush=True)
        return Accepted()

    for home in homes:
        if (home / "state.db").is_file():
            with open_store(home) as store:
                store.outbox.deliver(show, ["console"], limit=100)


def tell(problem: Problem) -> None:
    """What went wrong, and where."""
    print(f"{problem.home}: {problem.job_id or 'the home'}: {problem.error}", file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--root", type=Path, required=True, help="the home, with profiles/ in it")
    parser.add_argument("--once", action="store_true", help="do what is due now, and end")
    parser.add_argument("--parallel", type=int, default=2, help="runs at a time of one home")
    asked = parser.parse_args()
    homes, stop = installation(asked.root), threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_said: stop.set())
    code = Code(sha=sha_on_disk(CODE), root=str(CODE), how=f"restart {Path(sys.argv[0]).name}")
    with open_host() as host:
        ticker = CronTicker(
            work, homes=homes, most_parallel=asked.parallel, host=host, code=code, on_problem=tell,
            watch=asked.root / PROFILES,
        )
        if asked.once:
            while ticker.tick().claims:  # what a home has no thread for waits for the next one
                ticker.wait_idle(3600.0)
        else:
            ticker.start()
            print("ticking", flush=True)
            while not stop.wait(0.5):
                deliver(homes())
        drained = ticker.drain(seconds=30.0, interrupt="the program ends")
    deliver(homes())
    for one in drained.wedged:
        print(f"still at it: {one.job_id} of {one.home}, for {one.seconds:.0f} s", file=sys.stderr)
    return 0 if drained.is_complete else 1


if __name__ == "__main__":
    sys.exit(main())
