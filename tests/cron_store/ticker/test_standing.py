"""Who ticks a home when several processes of one user could (T3.9 to T3.13, R61, R66, R68 to R70)."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cron_store.cron import Cron
from cron_store.ticker import Code, CronTicker, Light, home_status, survivors
from cron_store.ticker.deciding import PARTS, Part
from hermes_state.clock import CLOCK_FILE_VARIABLE, FakeClock
from hermes_state.host import Host, Run, RunState, Supervisor, open_host
from hermes_state.host.ticking import TickStanding, tickers
from hermes_state.store import open_store
from tests.cron_store.ticker.conftest import Desk
from tests.hermes_state.host.hosts import SHORT, folder_of
from tests.support.children import Child, Children

Home = Callable[..., Path]
Ticker = Callable[..., CronTicker]
OLD, NEW = "0" * 40, "1" * 40
STALE = "STALE CODE, fires nothing: it runs 000000000000, on disk is 111111111111; systemctl --user restart hermes"
MINE = Code(sha=OLD, how="systemctl --user restart hermes", by_hand=False, on_disk=lambda: NEW)

# Another process: a gateway of `home`, or one that says how it stands to it and what it runs.
OTHER = """
import sys
import gates
from hermes_state.host import Run, RunState, open_host, ticking
from hermes_state.owners.presence import presence_of

folder, home, what, sha = sys.argv[1:]
host = open_host(folder)
presence = presence_of(host.folder, clock=host.core.clock)
member = None
if what == "gateway":
    member = host.enter(Run(home=home), force=True).member
    member.settle([home], multiplex=False)
    member.move(RunState.RUNNING)
number = 0
while True:
    if member is not None:
        member.beat()
    else:
        ticking.record(host.core, presence, [ticking.Ticking(
            home=home, standing=ticking.TickStanding(what), code_sha=sha or None, how="start it", by_hand=True
        )])
    number += 1
    gates.reach(f"said {number}")
    text = gates.wait(f"say {number}")
    if text:
        what, _, sha = text.partition(" ")
"""


class PatientFile(FakeClock):
    """The shared clock, of which no time passes for those who wait."""

    def sleep(self, seconds: float) -> None:
        time.sleep(min(seconds, 0.001))


@pytest.fixture
def fake_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    path = tmp_path / "clock.json"
    monkeypatch.setenv(CLOCK_FILE_VARIABLE, str(path))
    return PatientFile(path, now=1_800_000_000.0)


@pytest.fixture
def host(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Host]:
    with open_host(folder_of(tmp_path), clock=fake_clock, waits=SHORT) as opened:
        yield opened


def other(child: Children, host: Host, home: Path, what: str, sha: str = "") -> Child:
    process = child(OTHER, host.folder, home, what, sha)
    process.wait_for("said 1")
    return process


def test_the_table_says_what_is_done_in_every_case() -> None:
    assert set(PARTS) == set(itertools.product((False, True), repeat=3))
    assert [key for key, part in PARTS.items() if part is Part.YIELD] == [(False, True, True)]
    assert {key for key, part in PARTS.items() if part is Part.STAND_DOWN} == {key for key in PARTS if key[0]}


@pytest.mark.slow
def test_a_stale_process_yields_the_homes_that_a_newer_one_serves_and_ticks_the_rest(
    make_home: Home, make_ticker: Ticker, desk: Desk, fake_clock: FakeClock, host: Host, child: Children
) -> None:
    """T3.9, T3.11, R66, R68, R69: its leases decide nothing; each home is asked about by itself."""
    homes = {name: make_home(name) for name in "abc"}
    ticker = make_ticker(homes=homes.values(), host=host, code=MINE)
    fake_clock.advance(61)
    ticker.tick()
    ticker.wait_idle()
    assert sorted(profile for profile, _job, _slot in desk.ran) == ["a", "b", "c"]
    assert all(ticker.owns_cron_tick_for(home) for home in homes.values())
    newer = other(child, host, homes["b"], "waits", NEW)
    assert ticker.live_gateway_ticking(homes["b"]) and not ticker.live_gateway_ticking(homes["a"])
    fake_clock.advance(60)
    ticker.tick()
    ticker.wait_idle()
    assert sorted(profile for profile, _job, _slot in desk.ran[3:]) == ["a", "c"]
    assert {name: ticker.owns_cron_tick_for(home) for name, home in homes.items()} == {
        "a": True, "b": False, "c": True,
    }
    with open_store(homes["b"], clock=fake_clock) as store:
        cron = Cron(store)
        Cron(store).tick_lease().release()  # it is free for the newer one
        status = home_status(cron, host)
        assert (status.light, status.text, status.is_green) == (Light.STALE_CODE, STALE, False)
        assert status.heartbeat_seconds == 0.0, "it is fresh, and not green"
        without = home_status(cron)
        assert (without.light, without.text) == (Light.STALE_CODE, STALE), "the home itself says it as well"
        newer.kill()
        fake_clock.advance(16)
        ticker.tick()
        ticker.wait_idle()
        assert ticker.owns_cron_tick_for(homes["b"])
        assert sorted(profile for profile, _job, _slot in desk.ran[5:]) == ["b"], "its slot was not lost"
        assert home_status(cron, host).light is Light.GREEN


IN_DOUBT = (
    ("ticks " + OLD, 0.0, MINE),  # T3.10: as stale as we are
    ("ticks ", 0.0, MINE),  # it does not say what it runs
    ("yields " + NEW, 0.0, MINE),
    ("ticks " + NEW, 121.0, MINE),  # not heard for more than 120 s
    ("ticks " + NEW, 0.0, Code(sha=NEW, on_disk=lambda: NEW)),  # we are not stale
    ("ticks " + NEW, 0.0, Code(sha=OLD, on_disk=lambda: None)),  # a probe that fails is no
    ("ticks " + NEW, 0.0, Code(on_disk=lambda: NEW)),
)


@pytest.mark.slow
def test_in_doubt_nobody_yields(
    make_home: Home, make_ticker: Ticker, desk: Desk, fake_clock: FakeClock, host: Host, child: Children
) -> None:
    """T3.10, R68: only a live, fresh process that runs what lies on disk is yielded to."""
    home = make_home()
    process = other(child, host, home, "ticks", OLD)
    for number, (says, quiet, code) in enumerate(IN_DOUBT, 1):
        process.release(f"say {number}", says)
        process.wait_for(f"said {number + 1}")
        fake_clock.advance(max(quiet, 60.0))
        with make_ticker(homes=[home], host=host, code=code) as ticker:
            ticker.tick()
            ticker.wait_idle()
            assert next(one.said for one in ticker.standings()) == "", (says, quiet)
        assert len(desk.jobs()) == number, (says, quiet)
    process.release(f"say {len(IN_DOUBT) + 1}", "ticks " + NEW)
    process.wait_for(f"said {len(IN_DOUBT) + 2}")
    fake_clock.advance(60.0)
    ticker = make_ticker(homes=[home], host=host, code=MINE)
    ticker.tick()
    assert next(one.said for one in ticker.standings()) == STALE, "and without a doubt it does"


@pytest.mark.slow
def test_a_home_with_a_gateway_of_its_own_is_left_to_it_until_it_dies(
    make_home: Home, make_ticker: Ticker, desk: Desk, fake_clock: FakeClock, host: Host, child: Children
) -> None:
    """T3.12, R61: 0 dispatches while it lives; taken over within 2 ticks of its death; other homes go on."""
    own, served = make_home("own"), make_home("served")
    gateway = other(child, host, own, "gateway")
    ticker = make_ticker(homes=[own, served], host=host)
    for number in range(1, 4):
        fake_clock.advance(60)
        gateway.release(f"say {number}")
        gateway.wait_for(f"said {number + 1}")
        ticker.tick()
        ticker.wait_idle()
    assert desk.jobs("own") == [] and len(desk.jobs("served")) == 3
    said = {one.home: one.said for one in ticker.standings()}
    assert said == {
        str(own): f"{own} has a gateway of its own (PID {gateway.pid}), which ticks it", str(served): "",
    }
    assert {one.ticking.standing for one in tickers(host.core, str(own))} == {TickStanding.STANDS_DOWN}
    gateway.kill()
    for _tick in range(2):
        fake_clock.advance(60)
        ticker.tick()
        ticker.wait_idle()
    assert len(desk.jobs("own")) >= 1


def test_a_process_never_stands_down_for_itself(
    make_home: Home, make_ticker: Ticker, desk: Desk, fake_clock: FakeClock, host: Host
) -> None:
    """T3.13: this process is the gateway of the home, and says so."""
    home = make_home()
    member = host.enter(Run(home=str(home))).member
    assert member is not None
    member.settle([str(home)], multiplex=False)
    member.move(RunState.RUNNING)
    ticker = make_ticker(homes=[home], host=host)
    again = make_ticker(homes=[home], host=host)
    fake_clock.advance(61)
    ticker.tick()
    again.tick()
    assert ticker.wait_idle() and desk.jobs() == ["job 0"]
    assert not ticker.live_gateway_ticking(home)
    assert not again.owns_cron_tick_for(home), "two tickers of one process: the lease says which"
    member.leave(reason="test")


@pytest.mark.slow
def test_what_survived_an_update_is_listed_with_how_to_start_it_again(
    make_home: Home, make_ticker: Ticker, fake_clock: FakeClock, host: Host, child: Children, tmp_path: Path
) -> None:
    """R70: gateways and tickers, each with whether something starts it again."""
    code = tmp_path / "code" / ".git"
    code.mkdir(parents=True)
    (code / "HEAD").write_text(NEW)
    home = make_home()
    member = host.enter(Run(
        home=str(home), code_root=str(code.parent), code_sha=OLD, supervisor=Supervisor.SYSTEMD, label="hermes"
    )).member
    assert member is not None
    ticker = make_ticker(homes=[home], host=host, code=Code(sha=OLD, root=str(code.parent)))
    ticker.tick()
    [one] = survivors(host)
    assert (one.running_sha, one.disk_sha, one.how, one.supervised) == (
        OLD, NEW, "systemctl --user restart hermes", True
    )
    member.leave(reason="test")
    [alone] = survivors(host)
    assert (alone.homes, alone.supervised) == ((str(home),), False)
    assert alone.how == f"restart manually: kill -TERM {alone.identity.pid}, then start it as before"
    ticker.drain()
    assert survivors(host) == []


def test_green_takes_a_fresh_heartbeat_and_a_fresh_success(
    make_home: Home, make_ticker: Ticker, fake_clock: FakeClock, host: Host
) -> None:
    """T3.11, R79: fresh and failed, fresh and never successful, and silent are not green; the sentence says which."""
    home = make_home(seconds=3600)
    with open_store(home, clock=fake_clock) as store:
        cron = Cron(store)

        def seen() -> tuple[Light, str]:
            status = home_status(cron, host)
            assert status.is_green is (status.light is Light.GREEN)
            return status.light, status.text

        never = "Nobody has ever ticked this home: start a gateway or run `hermes-state cron tick --once`."
        assert seen() == (Light.NEVER, never)
        cron.heartbeat()
        assert seen() == (Light.NO_SUCCESS, "It is ticked, and no tick has succeeded ever.")
        ticker = make_ticker(homes=[home], host=host)
        ticker.tick()
        fake_clock.advance(30)
        assert seen() == (Light.GREEN, "Ticked 30 s ago.")
        fake_clock.advance(171)
        assert seen()[0] is Light.SILENT
        cron.heartbeat()
        assert seen() == (Light.NO_SUCCESS, "It is ticked, and no tick has succeeded for 201 s.")
        cron.heartbeat(succeeded=True)
        cron.heartbeat(error="the disk is full")
        assert seen() == (Light.FAILING, "The last tick failed: the disk is full")
        fake_clock.step_wall(-500)
        assert seen()[0] is Light.SILENT, "an age in the future is not fresh"
