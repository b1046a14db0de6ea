"""`CronTicker`: one process ticks many homes; an application embeds it and says what a job does.

Invariant: a home is ticked only under the lease in its own store, and what goes wrong in one home stops no other. A
claim is begun in a thread of its own home, and ends there; whatever happens in between, it stays known by its fence
until its row has ended. Nothing is written for a home that has nothing due, but for a sign of life every minute or two.

Not for: what a job does, nor for platforms. A loop that sleeps a minute and then looks was rejected: with the next due
time known, a job starts when it is due, and an idle home costs two `stat`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

from cron_store.occurrences.tick import Notice
from cron_store.records import Claim
from cron_store.ticker import ticking
from cron_store.ticker.deciding import Around, Code, Part, serves
from cron_store.ticker.draining import Drained, drain
from cron_store.ticker.finding import Finder, found
from cron_store.ticker.publishing import Publishing
from cron_store.ticker.running import Work
from cron_store.ticker.seats import STILL_SECONDS, Openings, Seat, limits
from cron_store.ticker.ticking import NOTHING, Problem, Rules, Ticked
from hermes_state.changes.watch import FolderWatch
from hermes_state.clock import SYSTEM, Clock, clock_from_environment
from hermes_state.errors import InvalidInput
from hermes_state.owners import Presence

if TYPE_CHECKING:
    from hermes_state.host import Host

Caps = int | Callable[[Path], int]
# A tick of all homes at least that often (facts section 3.3).
TICK_SECONDS = 60.0
# How long the loop waits at least: one that cannot do what is due does not spin.
LEAST_NAP_SECONDS = 0.05
# How often a loop on a clock that tests move by hand looks at it, in real seconds.
FAKE_STEP_SECONDS = 0.02


@dataclass(frozen=True, kw_only=True)
class Standing:
    """One home of a ticker, as data."""

    home: str
    owns_tick: bool  # we have the lease in its store
    running: int
    threads: int
    is_open: bool
    next_due_at: float | None  # epoch seconds UTC
    said: str  # why it is not ticked here


class CronTicker:
    """Ticks homes until it is drained: `start()` in a thread, or `tick()` whenever the application likes.

    Safe for threads; a `with` block drains it at its end.
    """

    def __init__(
        self, work: Work, *, homes: Finder | Iterable[Path | str], most_parallel: Caps = 1, host: Host | None = None,
        code: Code | None = None, clock: Clock | None = None, presence: Presence | None = None,
        tick_seconds: float = TICK_SECONDS, most_open: int | None = None, most_owned: int | None = None,
        notice: Notice | None = None, on_problem: Callable[[Problem], None] | None = None, watch: Path | None = None,
    ) -> None:
        """`work(running)` does a run, in a thread, and gives how it ended. `homes`: folders, or a function that gives
        them anew at each tick, such as `installation(root)`; those without a store are passed over.

        `most_parallel`: runs at a time of one home, or a function that says it for a home at each tick. `host`: where
        other processes of this user are seen; without it nobody yields and nobody stands down. `code`: what this
        process runs. `watch`: a folder that is watched, so that a profile made there is served at once. `most_open` and
        `most_owned`: stores open at once, and homes whose owner we stay between ticks; by default what the limit of
        descriptors allows. `presence`: who writes into the host; for tests. `on_problem` hears at once of what `tick`
        gives.
        """
        self._clock = clock or clock_from_environment()
        self._wake = threading.Event()
        self._find: Finder = homes if callable(homes) else partial(_folders, [Path(one) for one in homes])
        self._caps = most_parallel
        self._tick_seconds = tick_seconds
        most = limits()
        self._openings = Openings(self._clock, most_open or most[0])
        self._rules = Rules(
            clock=self._clock, openings=self._openings, work=work, most_owned=most_owned or most[1], notice=notice,
            tick_seconds=tick_seconds, on_end=self._wake.set, tell=self._tell,
        )
        self._publishing = Publishing(host, code or Code(), self._clock, presence, self._tell)
        self._on_problem = on_problem
        self._problems: list[Problem] = []
        self._seats: dict[str, Seat] = {}
        self._known: dict[str, Path] = {}
        # One tick at a time, and no tick beside a drain.
        self._turn = threading.RLock()
        self._lock = threading.Lock()
        self._stopped = False
        self._thread: threading.Thread | None = None
        self._watched = watch

    # --- running ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Tick in a thread until `drain`. Safe to call twice."""
        with self._lock:
            if self._thread is None and not self._stopped:
                self._thread = threading.Thread(target=self._loop, name="cron ticker", daemon=True)
                self._thread.start()

    def tick(self, *, signs: bool = True) -> Ticked:
        """Look at every home once and give what is due to its threads. Raises nothing of a home: see `problems`.

        A home is opened every minute or two to say that it is ticked, which takes some milliseconds; without `signs`
        that is left to later ticks, or to `sign`. The thread of `start` does so, so that no job waits for it.
        """
        with self._turn:
            if self._stopped:
                return Ticked()
            try:
                self._rescan()
            except Exception as error:  # those that were found before are ticked
                self._tell(Problem(home="", error=error))
            around = self._publishing.around()
            done = Ticked()
            for seat in list(self._seats.values()):
                one = self._tick_seat(seat, around, signs=signs)
                if one is not NOTHING:
                    done = done.plus(one)
            while self._openings.failures:
                home, failure = self._openings.failures.pop(0)
                self._tell(Problem(home=home, error=failure))
            self._publishing.publish(self._seats.values())
            with self._lock:
                problems, self._problems = tuple(self._problems), []
            return done.plus(Ticked(problems=problems))

    def sign(self) -> bool:
        """Have the one home say that it lives that has to first, or have one looked at that said so just now, so that
        the next tick need not; False when there is none."""
        with self._turn:
            mine = [seat for seat in self._seats.values() if seat.lease is not None and not seat.leaving]
            first = min(mine, key=self._sign_in, default=None)
            if self._stopped or first is None:
                return False
            if self._sign_in(first) > 0:
                now = self._clock.monotonic()
                after = (seat for seat in mine if seat.to_confirm and now - seat.sign_since >= STILL_SECONDS)
                first = next(after, None)
            if first is None:
                return False
            first.to_confirm = False
            self._tick_seat(first, self._publishing.around(), signs=True)
            return True

    def wake(self) -> None:
        """Have the thread tick now."""
        self._wake.set()

    def wait_idle(self, seconds: float = 60.0) -> bool:
        """Until no thread of any home is left, or for `seconds` of the machine's time; whether none is."""
        return all([seat.pool.wait_idle(seconds) for seat in list(self._seats.values())])

    def drain(self, *, seconds: float = 30.0, interrupt: str | None = None) -> Drained:
        """Take nothing new, wait for what runs, and let go of every home; names what is still at it.

        `seconds` of the machine's time, for all together. `interrupt`: why runs are asked to stop; they end as
        interrupted then, whatever they say. A run that goes on is left alone and stays ours: only the end of its thread
        or of the process ends it. Said again, it waits for those.
        """
        with self._lock:
            self._stopped = True
            thread = self._thread
        self._wake.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        with self._turn:
            return drain(self._seats, self._rules, self._publishing, seconds=seconds, interrupt=interrupt)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.drain()

    # --- predicates ------------------------------------------------------------------------------------------

    def serves(self, home: str | os.PathLike[str]) -> bool:
        """Whether a home is in the ticked set of this cycle."""
        return serves(self._seats, os.path.realpath(home))

    def owns_cron_tick_for(self, home: str | os.PathLike[str]) -> bool:
        """Whether we have the tick lease of that home, by its row and clock now, and tick it. No when that cannot be
        read."""
        seat = self._seats.get(os.path.realpath(home))
        if seat is None or seat.lease is None:
            return False
        try:
            with self._openings.use(seat):
                return seat.lease is not None and seat.lease.expires_in_seconds() > 0
        except Exception as error:
            self._tell(Problem(home=seat.home, error=error))
            return False

    def live_gateway_ticking(self, home: str | os.PathLike[str]) -> bool:
        """Whether another process serves that home, lives and was heard in the last 120 s. No when that is unknown."""
        return self._publishing.around(anew=True).live_gateway_ticking(os.path.realpath(home)) is not None

    def standings(self) -> list[Standing]:
        """Every home of this cycle, as it stands here."""
        return [
            Standing(
                home=seat.home, owns_tick=seat.lease is not None, running=len(seat.runs), threads=seat.pool.threads,
                is_open=seat.store is not None, next_due_at=seat.next_due_at, said=seat.said,
            )
            for seat in list(self._seats.values())
        ]

    def in_flight(self) -> list[Claim]:
        """The claims of this process, of all homes: for a drain and for metrics, never for whether one job runs."""
        found = []
        for seat in list(self._seats.values()):
            found += seat.claims()
        return found

    # --- within ----------------------------------------------------------------------------------------------

    def _rescan(self) -> None:
        """Take in the homes that came, and let go of those that went."""
        homes = found(self._find, self._known)
        for home in [home for home in self._seats if home not in homes]:
            seat = self._seats[home]
            for running in list(seat.runs.values()):
                running.end(f"{home} is not served any more")
            try:
                if ticking.leave(seat, self._rules):
                    del self._seats[home]  # its threads are over; else once they are
            except Exception as error:  # of that home, and others go and come all the same
                self._tell(Problem(home=home, error=error))
        for home, path in homes.items():
            seat = self._seats.get(home) or self._seats.setdefault(home, Seat(path, 0))
            seat.leaving = False
            try:
                seat.pool.cap = max(0, self._cap(path))
            except Exception as error:  # of that home: it keeps the cap that it had, a new one runs nothing
                self._tell(Problem(home=home, error=error))

    def _cap(self, path: Path) -> int:
        said = self._caps(path) if callable(self._caps) else self._caps
        if isinstance(said, bool) or not isinstance(said, int):
            raise InvalidInput(
                f"most_parallel of {path} is a whole number, not {said!r:.80}.", argument="most_parallel"
            )
        return said

    def _tick_seat(self, seat: Seat, around: Around, *, signs: bool) -> Ticked:
        if seat.leaving:
            return NOTHING
        try:
            part = around.part(seat.home)
            if part is not Part.TICK:
                return ticking.stand_aside(seat, self._rules, part, around.why(seat.home, self._publishing.code))
            return ticking.tick(seat, self._rules, signs=signs)
        except Exception as error:
            ticking.fail(seat, self._rules, error)
            self._tell(Problem(home=seat.home, error=error))
            return NOTHING

    def _tell(self, problem: Problem) -> None:
        with self._lock:
            self._problems.append(problem)
            del self._problems[:-1000]
        if self._on_problem is not None:
            try:
                self._on_problem(problem)
            except Exception as error:
                with self._lock:
                    self._problems.append(Problem(home=problem.home, error=error))

    def _loop(self) -> None:
        folder = self._watched if self._watched is not None and self._watched.is_dir() else None
        watch = None if folder is None else FolderWatch(folder, stop=self._wake)
        try:
            while not self._stopped:
                self._wake.clear()
                try:
                    self.tick(signs=False)
                except Exception as error:  # the thread goes on: one that ended without a word would fire nothing
                    self._tell(Problem(home="", error=error))
                if watch is None and self._watched is not None and self._watched.is_dir():
                    watch = FolderWatch(self._watched, stop=self._wake)
                self._nap(watch)
        finally:
            if watch is not None:
                watch.close()

    def _sign_in(self, seat: Seat) -> float:
        return ticking.sign_in(seat, self._rules)

    def _nap(self, watch: FolderWatch | None) -> None:
        """Until something is due, or changed, or a tick of all is; meanwhile homes say that they live, one by one."""
        until = self._clock.now() + self._tick_seconds
        for seat in list(self._seats.values()):
            if seat.wakes_at is not None:
                until = min(until, seat.wakes_at)
        deadline = self._clock.monotonic() + max(LEAST_NAP_SECONDS, until - self._clock.now())
        self.sign()  # one at least, also where runs end all the time
        while not self._stopped and not self._wake.is_set():
            left = deadline - self._clock.monotonic()
            if left <= 0:
                return
            if self.sign():
                continue
            mine = [seat for seat in list(self._seats.values()) if seat.lease is not None]
            signs = [STILL_SECONDS if seat.to_confirm else self._sign_in(seat) for seat in mine]
            left = max(LEAST_NAP_SECONDS, min([left, *signs]))
            step = left if self._clock is SYSTEM else FAKE_STEP_SECONDS
            if watch is not None and watch.watches:
                if watch.nap(step):
                    return
            else:
                self._wake.wait(step)


def _folders(folders: list[Path]) -> list[Path]:
    return folders
