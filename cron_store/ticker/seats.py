"""One home as its ticker has it: its store when it is open, its lease, its threads; and which stores are open.

Invariant: a home that has nothing to do costs one descriptor, the lock file by which others see that its owner lives;
its store is opened for a look and closed after it. What is due soon stays open, up to a number for all homes, the least
recently used closing first; an open store that is in use is never closed, whoever wants to open waits for it. No store
is ever made, and a home that was removed, or marked so, is not opened.

A look is left out where nothing can have changed: every commit of any process writes to the -wal, and a checkpoint does
not, so a home whose next job is not due yet needs none while its -wal stays what it was some time before the last look.
`os.stat` opens nothing, and where file times do not tell, the next sign of life looks.

Not for: what is done in a home (see `ticker`). A connection for each home was rejected: with its writer it is five
descriptors, and 200 homes are beyond a limit of 1,024.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cron_store.cron import Cron
from cron_store.ticker.pools import HomePool
from cron_store.ticker.running import Owed, Running
from hermes_state.engine.core import acquire, release
from hermes_state.errors import HomeRemoved, NotFound
from hermes_state.host.ticking import TickStanding
from hermes_state.location import STORE_NAME
from hermes_state.owners import Presence, lock_file, sweep
from hermes_state.routing import guard, home_of
from hermes_state.store import Store

if TYPE_CHECKING:
    from cron_store.records import Claim
    from hermes_state.clock import Clock
    from hermes_state.leases import Lease
    from hermes_state.owners import OwnerIdentity

# What an open store costs at most: writer and four readers with two descriptors each, and one they share.
DESCRIPTORS_OPEN = 11
# What the rest of a program may use under the limit, or half of the limit where it is small.
RESERVE = 256

# How long before a look the -wal must have been what it was then: kernels keep times of up to 10 ms, so that a commit
# just before a look and one just after it may leave the same time.
STILL_SECONDS = 0.02

Sign = tuple[int, int, int, int]  # inode of the store; time, bytes and inode of its -wal


class Seat:
    """One home. The ticker's thread changes it, but for what `Openings` and the pool guard."""

    def __init__(self, path: Path, cap: int) -> None:
        self.path = path
        self.home = str(path)
        self.store_path = path / STORE_NAME
        self._main, self._wal = os.fspath(self.store_path), f"{self.store_path}-wal"
        self.pool = HomePool(path.name, cap)
        self.store_id = ""  # of the store that was open last
        self.presence: Presence | None = None
        self.cron: Cron | None = None  # stays when the store is closed
        self.lease: Lease | None = None
        self.runs: dict[int, Running] = {}  # by fence; changed under `lock`
        self.owed: list[Owed] = []  # changed under `lock`
        self.lock = threading.Lock()
        self.leaving = False  # not served any more; it goes once its runs are over
        self.next_due_at: float | None = None  # a job has to be looked at then; epoch seconds UTC
        self.wakes_at: float | None = None  # the loop has to look then: what is due and cannot be done waits for a tick
        self.beat_boottime: float | None = None  # the last sign of life, and the last renewal of claims
        self.kept_boottime: float | None = None
        self.waits_for: OwnerIdentity | None = None  # who has the lease, and until when nothing else need be asked
        self.waits_boottime = 0.0
        self.sign: Sign | None = None  # the files at the last look
        self.sign_since = 0.0  # when a look saw them so first; monotonic seconds
        self.is_still = False  # whether a look long enough after that saw the same
        self.to_confirm = False  # its store was closed too soon after our own commit for that: one look more will tell
        self.standing = TickStanding.WAITS
        self.since = 0.0  # of that standing; epoch seconds UTC
        self.said = ""  # why it is not ticked by us
        self.told: str | None = None  # the error that its row tells
        self.wrote = False  # whether the store has frames of ours since it was opened
        # of `Openings`:
        self.store: Store | None = None
        self.users = 0

    @property
    def busy(self) -> bool:
        """Whether claims of it are ours."""
        with self.lock:
            return bool(self.runs or self.owed)

    def claims(self) -> list[Claim]:
        """What is ours of it: runs, and verdicts that are owed."""
        with self.lock:
            return [one.claim for one in self.runs.values()] + [one.claim for one in self.owed]

    def stands(self, standing: TickStanding, said: str = "", *, at: float) -> None:
        """Note how we stand to it."""
        if standing is not self.standing or not self.since:
            self.standing, self.since = standing, at
        self.said = said

    def files(self) -> Sign:
        """What the files look like now. Opens nothing."""
        try:
            main, wal = os.stat(self._main), os.stat(self._wal)
        except OSError:
            return 0, 0, 0, 0
        return main.st_ino, wal.st_mtime_ns, wal.st_size, wal.st_ino

    def looked(self, sign: Sign, *, now: float) -> None:
        """Note what the files were like before a look, and when that was (monotonic seconds)."""
        if sign != self.sign:
            self.sign, self.sign_since = sign, now
        self.is_still = now - self.sign_since >= STILL_SECONDS

    def may_rest(self) -> bool:
        """Whether a look could show nothing new: there was no commit since one that saw all."""
        return self.is_still and self.sign != (0, 0, 0, 0) and self.files() == self.sign

    def disown(self, *, clean: bool = False) -> None:
        """Be no owner at this home any more, as the end of the process would have it.

        `clean`: nothing in it is ours, so nobody will ever ask whether we live, and the lock file goes as well.
        """
        presence, self.presence, self.cron, self.lease = self.presence, None, None, None
        if presence is not None:
            presence.end()
            if clean:
                lock_file(self.path, presence.identity.nonce).unlink(missing_ok=True)

    def owner(self, clock: Clock) -> Presence:
        """What we are at this home; made when it is first needed. Raises `CannotOpen`."""
        if self.presence is None or not self.presence.is_held:
            self.presence = Presence(self.path, clock=clock)
            sweep(self.path, clock=clock)
        return self.presence


class Openings:
    """The open stores of all seats. Safe for threads."""

    def __init__(self, clock: Clock, most_open: int) -> None:
        self._clock = clock
        self.most_open = most_open
        self._changed = threading.Condition()
        self._open: OrderedDict[Seat, None] = OrderedDict()  # the least recently used first
        # Seats whose owner we are, the longest first.
        self.owners: dict[Seat, None] = {}
        # What closing a store raised, with its home; taken by the ticker.
        self.failures: list[tuple[str, Exception]] = []

    def __len__(self) -> int:
        with self._changed:
            return len(self._open)

    @contextmanager
    def use(self, seat: Seat) -> Iterator[Cron]:
        """The cron of a home, open for the block. Raises `HomeRemoved` and what opening raises."""
        with self._changed:
            while seat.store is None and len(self._open) >= self.most_open and not self._close_oldest():
                self._changed.wait()  # each user has one block at a time, and ends it
            if seat.store is None:
                self._open_store(seat)
            seat.users += 1
            self._open.move_to_end(seat)
            cron = seat.cron
        assert cron is not None
        try:
            yield cron
        finally:
            with self._changed:
                seat.users -= 1
                self._changed.notify_all()

    def close(self, seat: Seat) -> bool:
        """Close its store unless it is in use; whether it is closed."""
        with self._changed:
            if seat.users == 0 and seat.store is not None:
                self._close(seat)
            return seat.store is None

    def _close_oldest(self) -> bool:
        for seat in self._open:
            if seat.users == 0:
                self._close(seat)
                return True
        return False

    def _close(self, seat: Seat) -> None:
        store, seat.store = seat.store, None
        del self._open[seat]
        self._changed.notify_all()
        try:
            if store is not None:
                store.close()
        except Exception as error:  # the home's trouble, not that of whoever needed a place
            self.failures.append((seat.home, error))

    def _open_store(self, seat: Seat) -> None:
        try:
            core = acquire(seat.store_path, read_only=False, create=False, clock=self._clock)
        except NotFound as error:
            raise HomeRemoved(
                f"There is no store at {seat.store_path} any more.", hint="Its jobs are not run.",
                path=seat.store_path, home=seat.path, since=None,
            ) from error
        try:
            with core.reader() as reader:
                guard(reader, home_of(core))
            store = Store(core)
            if seat.store_id not in ("", store.store_id):
                # Deleted and made anew: our lock file went with the old one, and so did all that was ours there.
                seat.disown()
            seat.store_id = store.store_id
            if seat.cron is None:
                seat.cron = Cron(store, presence=seat.owner(self._clock))
                self.owners[seat] = None
            else:
                seat.cron.reopened(store)
            if seat.lease is not None:
                seat.lease = seat.lease.reopened(core)
        except BaseException:
            release(core)
            raise
        seat.store, seat.wrote = store, False
        self._open[seat] = None


def limits(soft: int | None = None) -> tuple[int, int]:
    """How many stores may be open at once, and how many homes may have an owner, under a limit of descriptors.

    `soft`: the limit; by default this process's own now. Half of what is left after the reserve is for each.
    """
    if soft is None:
        soft = _soft_limit()
    budget = soft - min(RESERVE, soft // 2)
    return max(2, min(256, budget // 2 // DESCRIPTORS_OPEN)), max(8, budget // 2)


def _soft_limit() -> int:
    if sys.platform == "win32":
        return 2048
    import resource

    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 65_536 if soft == resource.RLIM_INFINITY else soft
