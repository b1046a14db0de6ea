"""Descriptors, leases that cannot be judged at once, and the loop in its thread."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from cron_store.cron import Cron
from cron_store.records import Policies
from cron_store.schedule import Interval
from cron_store.ticker import CronTicker, installation
from cron_store.ticker.seats import limits
from hermes_state.clock import SYSTEM, FakeClock
from hermes_state.owners import Presence
from hermes_state.store import open_store
from tests.cron_store.ticker.conftest import Desk
from tests.support.children import Children

Home = Callable[..., Path]
Ticker = Callable[..., CronTicker]

# Ticks homes under a small limit of descriptors, and says how many it had at most and how many runs there were.
UNDER_A_LIMIT = """
import json
import os
import resource
import sys
import threading
from pathlib import Path
from cron_store.ticker import CronTicker, installation
from hermes_state.clock import clock_from_environment

root, limit = Path(sys.argv[1]), int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
clock, ran, most, lock = clock_from_environment(), [], 0, threading.Lock()
clock.sleep = lambda seconds: threading.Event().wait(0.001)

def count():
    global most
    with lock:
        most = max(most, len(os.listdir("/proc/self/fd")))

def work(running):
    count()
    with lock:
        ran.append(running.claim.home.profile)

ticker = CronTicker(work, homes=installation(root), clock=clock, most_parallel=2)
problems = []
for _tick in range(2):
    clock.advance(60)
    problems += ticker.tick().problems
    ticker.wait_idle()
    count()
problems += ticker.tick().problems
idle = len(os.listdir("/proc/self/fd"))
owned = sum(one.owns_tick for one in ticker.standings())
ticker.drain()
left = len(os.listdir("/proc/self/fd"))
print(json.dumps([len(ran), most, idle, owned, [repr(one.error) for one in problems], left]))
"""


@pytest.mark.parametrize(
    ("many", "limit"), [(12, 48), pytest.param(1100, 1024, marks=pytest.mark.campaign)]
)
@pytest.mark.slow
def test_no_number_of_homes_is_too_much_for_a_limit_of_descriptors(
    make_home: Home, fake_clock: FakeClock, tmp_path: Path, child: Children, many: int, limit: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """12 homes with 48 descriptors by default, 1,100 with 1,024 as a campaign: all are ticked, none is left open."""
    clock = FakeClock(tmp_path / "shared.json", now=fake_clock.now())
    monkeypatch.setenv("HERMES_STATE_CLOCK", str(clock.path))
    for number in range(many):
        make_home(f"home {number}")
    process = child(UNDER_A_LIMIT, tmp_path / "root", limit)
    ran, most, _idle, owned, problems, left = json.loads(process.finish(600))
    print(f"\n{many} homes, limit {limit}: {ran} runs, at most {most} descriptors, {owned} owned, {left} at the end")
    assert problems == [] and ran == 2 * many
    assert most < limit and left < 20


def test_what_is_open_at_once_follows_from_the_limit_of_descriptors() -> None:
    assert limits(1024) == (34, 384)
    assert limits(48) == (2, 12)
    assert limits(65_536)[0] == 256


def test_an_idle_home_has_one_descriptor_and_no_look_that_shows_nothing(
    make_home: Home, make_ticker: Ticker, fake_clock: FakeClock, desk: Desk, tmp_path: Path
) -> None:
    """At most 3 descriptors an idle home: it is one, its lock file. A commit of anybody has it looked at again."""
    homes = [make_home(f"p{number}", seconds=86_400) for number in range(5)]
    ticker = make_ticker(homes=homes)
    before = len(os.listdir("/proc/self/fd"))
    ticker.tick()
    assert len(os.listdir("/proc/self/fd")) == before + 5
    for _look in range(3):
        fake_clock.advance(10)
        ticker.tick()
    with open_store(homes[0], clock=fake_clock) as store:
        cron = Cron(store)
        heard = cron.ticker()
        cron.add("new", Interval(seconds=60, anchor=int(fake_clock.now())))
    fake_clock.advance(10)
    ticker.tick()
    assert next(one.next_due_at for one in ticker.standings()) == fake_clock.now() + 50
    fake_clock.advance(51)
    ticker.tick()
    ticker.wait_idle()
    assert desk.jobs("p0") == ["new"]
    fake_clock.advance(30)
    ticker.tick()
    with open_store(homes[1], clock=fake_clock) as store:
        assert Cron(store).ticker() != heard, "and it says that it lives, long before 200 s"


def test_the_lease_of_another_boot_is_taken_once_it_was_silent_for_its_term(
    make_home: Home, make_ticker: Ticker, desk: Desk, fake_clock: FakeClock
) -> None:
    """A machine that was switched off: looks at a store that is closed in between add up."""
    home = make_home()
    presence = Presence(home, clock=fake_clock)
    with open_store(home, clock=fake_clock) as store:
        Cron(store, presence=presence).tick_lease(term_seconds=300.0)
    presence.end()
    fake_clock.reboot(boot_id="another boot")
    ticker = make_ticker(homes=[home])
    for _tick in range(5):
        ticker.tick()
        assert not ticker.owns_cron_tick_for(home)
        fake_clock.advance(60)
    fake_clock.advance(31)  # the term, and a tenth of it
    ticker.tick()
    ticker.wait_idle()
    assert ticker.owns_cron_tick_for(home) and desk.jobs() == ["job 0"]


@pytest.mark.slow
def test_the_loop_fires_when_it_is_due_and_serves_a_profile_that_is_made(tmp_path: Path, desk: Desk) -> None:
    """On the machine's own clock: no tick is waited for, the folder of profiles is watched, a drain ends the thread."""
    root = tmp_path / "root"
    with open_store(root, durability="process"):
        pass
    (root / "profiles").mkdir()
    with CronTicker(desk, homes=installation(root), watch=root / "profiles", tick_seconds=3600.0) as ticker:
        ticker.start()
        ticker.start()
        while not ticker.serves(root):
            threading.Event().wait(0.01)
        with open_store(root / "profiles" / "new", durability="process") as store:
            cron = Cron(store)
            cron.add(
                "soon", Interval(seconds=60, anchor=int(SYSTEM.now()) - 59), policies=Policies(misfire="skip"),
            )
        (root / "profiles" / "touched").mkdir()  # whatever changes in the folder has it looked at
        desk.wait_for(1)
    assert desk.ran[0][:2] == ("new", "soon")
    assert not any(thread.name.startswith("cron ") for thread in threading.enumerate())


def test_an_owner_that_leaves_leaves_no_lock_file(
    make_home: Home, make_ticker: Ticker, fake_clock: FakeClock, desk: Desk
) -> None:
    """Also where homes beyond the number of owners are owned anew at each tick."""
    homes = [make_home(f"p{number}") for number in range(3)]
    ticker = make_ticker(homes=homes, most_owned=2)
    for _tick in range(3):
        fake_clock.advance(60)
        ticker.tick()
        ticker.wait_idle()
        ticker.tick()
    assert len(desk.ran) == 9
    assert sum(len(list((home / "owners").glob("*.lock"))) for home in homes) <= 3
    assert ticker.drain().is_complete
    assert [path for home in homes for path in (home / "owners").iterdir()] == []


def test_homes_whose_runs_hold_all_descriptors_keep_others_waiting_and_nothing_fails(
    make_home: Home, make_ticker: Ticker, fake_clock: FakeClock, desk: Desk
) -> None:
    """What was owned longest and runs nothing is given up; where all run, the next home waits, and loses no slot."""
    homes = [make_home(f"p{number}") for number in range(4)]
    desk.holds = {"job 0": threading.Event()}
    ticker = make_ticker(homes=homes, most_owned=2)
    fake_clock.advance(60)
    assert len(ticker.tick().claims) == 2
    desk.wait_for(2)
    said = [one.said for one in ticker.standings()]
    assert said == ["", "", *["as many homes as descriptors allow have runs in flight"] * 2]
    desk.holds["job 0"].set()
    for _turn in range(2):
        ticker.wait_idle()
        assert ticker.tick().problems == ()
    ticker.wait_idle()
    assert sorted(profile for profile, _job, _slot in desk.ran) == ["p0", "p1", "p2", "p3"]
