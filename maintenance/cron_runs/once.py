"""One tick of one home, for machines whose own cron starts it.

Invariant: the right to tick is had only while what is due is told and claimed, never while it is run: the next tick, a
minute later, does not wait for a job of an hour. Every claim ends here, or is released, or is taken back by the next
tick once this process is gone.

Not for: ticking for ever (see `cron_store.ticker`). One job after another was rejected: each made those behind it late.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cron_store.ticker.running import Ended, Owed, Running, run, settle
from maintenance.output.text import plural

if TYPE_CHECKING:
    from cron_store.cron import Cron
    from cron_store.records import Claim, Outcome, Reaped, Taken

LEASE_SECONDS = 60.0
LEASE_WAIT_SECONDS = 5.0  # for another tick that tells what is due, which takes milliseconds
RENEW_SECONDS = 60.0
_LOOK_SECONDS = 0.5


@dataclass(kw_only=True)
class Ticked:
    """What one tick did."""

    reaped: list[Reaped] = field(default_factory=list)
    accounted: int = 0  # slots that got their record
    missed: dict[str, int] = field(default_factory=dict)
    unreadable: dict[str, Exception] = field(default_factory=dict)
    ended: list[tuple[Claim, Ended]] = field(default_factory=list)
    stopped_by: Exception | None = None  # why it ended before all was begun that was due, with runs in flight


def tick(cron: Cron, work: Callable[[Running], Outcome] | None, *, parallel: int) -> Ticked:
    """Account for what is due, and run it by `work`; None: run nothing, and leave what is due for who does.

    Raises `LeaseHeld` (somebody else ticks this home), `LedgerUnreadable`, and what a write raises, while nothing was
    begun. Once a run was, that is `Ticked.stopped_by`: no other is begun, and all that were end and get their verdict.
    """
    done = Ticked()
    if work is None:
        _look(cron, done, room=0)
        return done
    runs = Runs(cron, work, parallel)
    with runs.stopped_by_signals():
        try:
            while True:
                taken = _look(cron, done, room=runs.room, begin=runs.begin)
                if runs.stopping or not taken.more or not runs.open:
                    break
                runs.wait(all_of_them=False)
        except Exception as error:
            done.stopped_by = error
        runs.wait(all_of_them=True)
    done.ended = runs.close()
    done.stopped_by = done.stopped_by or runs.not_renewed
    if done.stopped_by is not None and not done.ended:
        raise done.stopped_by
    return done


def run_by_hand(cron: Cron, claim: Claim, work: Callable[[Running], Outcome]) -> Ended:
    """One run that a person asked for."""
    runs = Runs(cron, work, 1)
    with runs.stopped_by_signals():
        runs.begin(claim)
        runs.wait(all_of_them=True)
    return runs.close()[0][1]


def _look(cron: Cron, done: Ticked, *, room: int, begin: Callable[[Claim], None] | None = None) -> Taken:
    lease = cron.tick_lease(term_seconds=LEASE_SECONDS, wait_seconds=LEASE_WAIT_SECONDS)
    try:
        cron.heartbeat()
        done.reaped += cron.reap(lease)
        taken = cron.take(lease, room=room)
        # At once: whatever else goes wrong here, nothing that was claimed is left lying.
        for claim in taken.claims:
            assert begin is not None
            begin(claim)
        done.accounted += taken.accounted
        for job_id, count in taken.missed.items():
            done.missed[job_id] = done.missed.get(job_id, 0) + count
        done.unreadable |= taken.unreadable
        if done.unreadable:
            names = ", ".join(sorted(done.unreadable))
            cron.heartbeat(error=f"{plural(len(done.unreadable), 'job')} cannot be read: {names}"[:500])
        else:
            cron.heartbeat(succeeded=True)
    finally:
        lease.release()
    return taken


class Runs:
    """The runs of one tick, each in a thread. For one thread."""

    def __init__(self, cron: Cron, work: Callable[[Running], Outcome], parallel: int) -> None:
        self._cron = cron
        self._work = work
        self._parallel = parallel
        self._pool = ThreadPoolExecutor(max_workers=parallel, thread_name_prefix="cron run")
        self._open: dict[Future[Ended], Running] = {}
        self._ended: list[tuple[Claim, Ended]] = []
        self.stopping = ""
        self.not_renewed: Exception | None = None  # why claims could not be renewed, the first time

    @property
    def open(self) -> int:
        """How many go on."""
        return len(self._open)

    @property
    def room(self) -> int:
        """How many more may begin."""
        return self._parallel - len(self._open)

    def begin(self, claim: Claim) -> None:
        """Run it in a thread."""
        running = Running(claim=claim)
        future = self._pool.submit(run, running, self._work, self._opened)
        self._open[future] = running
        if self.stopping:
            running.end(self.stopping)

    def wait(self, *, all_of_them: bool) -> None:
        """Until one of them ended, or all; their claims are renewed meanwhile."""
        renewed = time.monotonic()
        while self._open:
            # In short waits: a signal that comes just before one is acted on only once that is over.
            over = wait(self._open, timeout=min(_LOOK_SECONDS, RENEW_SECONDS), return_when=FIRST_COMPLETED).done
            for future in over:
                self._ended.append((self._open.pop(future).claim, future.result()))
            if over and not all_of_them:
                return
            if time.monotonic() - renewed >= RENEW_SECONDS:
                self._renew()
                renewed = time.monotonic()

    def _renew(self) -> None:
        try:
            lost = {claim.fence for claim in self._cron.renew([one.claim for one in self._open.values()])}
        except Exception as error:
            # Who has them is told by this process's lock, which it has while it lives: the runs go on.
            self.not_renewed = self.not_renewed or error
            return
        for running in self._open.values():
            if running.claim.fence in lost:
                running.end("its claim went to another process")

    def close(self) -> list[tuple[Claim, Ended]]:
        """How each ended; a verdict that could not be written is tried once more."""
        self._pool.shutdown()
        return [
            (claim, ended if ended.owed is None else settle(Owed(claim=claim, done=ended.owed.done), self._opened))
            for claim, ended in self._ended
        ]

    @contextmanager
    def stopped_by_signals(self) -> Iterator[None]:
        """SIGTERM, SIGHUP and Ctrl-C end the runs, which are interrupted then, and not the process before they are."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(number: int, _frame: Any) -> None:
            self.stopping = f"the tick was ended by {signal.Signals(number).name}"
            for running in list(self._open.values()):
                running.end(self.stopping)

        names = [name for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name)]
        before = {name: signal.signal(getattr(signal, name), stop) for name in names}
        try:
            yield
        finally:
            for name, handler in before.items():
                signal.signal(getattr(signal, name), handler)

    def _opened(self) -> nullcontext[Cron]:
        return nullcontext(self._cron)
