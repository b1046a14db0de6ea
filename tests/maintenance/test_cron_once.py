"""One tick in this process: what becomes of its runs when something fails, and how many there are."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cron_store.cron import Cron
from cron_store.records import Claim, Outcome, Succeeded
from cron_store.schedule import Interval
from cron_store.ticker.running import Running
from hermes_state.errors import LeaseHeld
from hermes_state.owners import Presence
from hermes_state.store import Store, open_store
from maintenance.cron_runs import once


@pytest.fixture(name="store")
def open_home(tmp_path: Path) -> Iterator[Store]:
    """Five jobs that are due. By the real clock: on one that stands still, threads do not wait for a lock."""
    with open_store(tmp_path, durability="process") as store:
        cron = Cron(store)
        now = int(cron.now())
        for name in ("1 long", "2 short", "3", "4", "5"):
            cron.add(name, Interval(seconds=36_000, anchor=now - 36_000), after=now - 1)
        yield store


def states(cron: Cron) -> dict[str, list[str]]:
    return {job.job_id: [str(one.state) for one in cron.slots(job.job_id)] for job in cron.jobs()}


def test_everything_that_is_due_is_run_whatever_the_number_at_a_time(store: Store) -> None:
    running, most, lock = 0, 0, threading.Lock()

    def work(_running: Running) -> Outcome:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        with lock:
            running -= 1
        return Succeeded()

    done = once.tick(Cron(store), work, parallel=2)
    assert len(done.ended) == 5 and most <= 2 and done.stopped_by is None
    assert set(map(tuple, states(Cron(store)).values())) == {("succeeded",)}


def test_another_process_that_ticks_by_then_leaves_the_runs_that_were_begun_their_end(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(once, "LEASE_WAIT_SECONDS", 0.0)
    goes_on = threading.Event()
    other = Presence(store.path.parent)

    class Late(Cron):
        """Another has the right to tick when this looks again."""

        looks = 0

        def tick_lease(self, **given: Any) -> Any:
            self.looks += 1
            if self.looks == 1:
                return super().tick_lease(**given)
            lease = Cron(store, presence=other).tick_lease()
            try:
                return super().tick_lease(**given)
            finally:
                goes_on.set()
                lease.release()

    def work(running: Running) -> Outcome:
        if running.claim.job_id == "1 long":
            assert goes_on.wait(60)
        return Succeeded()

    done = once.tick(Late(store), work, parallel=2)
    other.end()
    assert isinstance(done.stopped_by, LeaseHeld)
    assert sorted((claim.job_id, ended.error) for claim, ended in done.ended) == [("1 long", None), ("2 short", None)]
    found = states(Cron(store))
    assert (found["1 long"], found["2 short"], Cron(store).in_flight()) == (["succeeded"], ["succeeded"], [])


def test_claims_that_cannot_be_renewed_for_a_while_are_run_to_their_end(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(once, "RENEW_SECONDS", 0.001)
    goes_on = threading.Event()

    class Failing(Cron):
        """Its renewals fail."""

        def renew(self, claims: Any) -> list[Claim]:
            goes_on.set()
            raise OSError("no space")

    def work(running: Running) -> Outcome:
        assert goes_on.wait(60)
        return Succeeded()

    done = once.tick(Failing(store), work, parallel=5)
    assert (len(done.ended), str(done.stopped_by)) == (5, "no space")
    assert set(map(tuple, states(Cron(store)).values())) == {("succeeded",)}


def test_an_error_before_anything_was_begun_is_raised(store: Store) -> None:
    other = Presence(store.path.parent)
    lease = Cron(store, presence=other).tick_lease()
    with pytest.MonkeyPatch.context() as patched, pytest.raises(LeaseHeld):
        patched.setattr(once, "LEASE_WAIT_SECONDS", 0.0)
        once.tick(Cron(store), lambda _running: Succeeded(), parallel=1)
    lease.release()
    other.end()
