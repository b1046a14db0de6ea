"""What a run owes goes out through the outbox, as often as its policy says (T3.26 to T3.28, R76)."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cron_store.cron import Cron
from cron_store.records import Delivery, Failed, Succeeded
from cron_store.ticker import CronTicker, Done
from hermes_state.clock import CLOCK_FILE_VARIABLE, FakeClock
from hermes_state.errors import Refused, StaleFence
from hermes_state.outbox import Accepted, State, Suppressed
from hermes_state.outbox import Failed as SendFailed
from hermes_state.owners import Presence
from hermes_state.store import Store, open_store
from tests.cron_store.ticker.conftest import Desk
from tests.support.children import Children

Home = Callable[..., Path]
Ticker = Callable[..., CronTicker]

# A sender that is killed before its claim, after it, or after it has sent.
SENDER = """
import os
import sys
import gates
from hermes_state.outbox import Accepted
from hermes_state.store import open_store

home, receiver, point = sys.argv[1:]

def stop(here):
    if here == point:
        gates.reach("there")
        gates.wait("never")

with open_store(home) as store:
    stop("before the claim")
    [claimed] = store.outbox.claim(["telegram"])
    stop("before it is sent")
    with open(receiver, "a") as out:
        out.write(f"{claimed.obligations[0].payload}\\n")
    stop("after it is sent")
    store.outbox.settle(claimed, Accepted())
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


def owed(policy: str, text: str = "the report", transport: str = "telegram") -> Delivery:
    return Delivery(
        kind="cron", transport=transport, target="chat 1", payload=text, policy=policy,  # type: ignore[arg-type]
    )


def fired(home: Path, make_ticker: Ticker, desk: Desk, clock: FakeClock, *deliveries: Delivery) -> None:
    """One run of one job that succeeds and owes these."""
    desk.outcome = Done(outcome=Succeeded(), deliveries=deliveries)
    clock.advance(60)
    with make_ticker(homes=[home]) as ticker:
        assert len(ticker.tick().claims) == 1
        ticker.wait_idle()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "point", "sent", "state", "recovered"),
    [
        ("at_most_once", "before the claim", 1, State.ACCEPTED, 0),
        ("at_most_once", "before it is sent", 0, State.UNKNOWN, 1),
        ("at_most_once", "after it is sent", 1, State.UNKNOWN, 1),
        ("at_least_once", "after it is sent", 2, State.ACCEPTED, 1),
    ],
)
def test_a_delivery_whose_sender_is_killed(
    make_home: Home, make_ticker: Ticker, desk: Desk, fake_clock: FakeClock, child: Children, tmp_path: Path,
    policy: str, point: str, sent: int, state: State, recovered: int,
) -> None:
    """T3.26, R76: during: unknown and 0 resends; before the claim: 1 send. T3.27: at least once: sent again, marked."""
    home, receiver = make_home(), tmp_path / "receiver"
    receiver.touch()
    fired(home, make_ticker, desk, fake_clock, owed(policy))
    sender = child(SENDER, home, receiver, point)
    sender.wait_for("there")
    sender.kill()
    with open_store(home, clock=fake_clock) as store:

        def send(claimed: object) -> Accepted:
            with receiver.open("a") as out:
                out.write("again\n")
            return Accepted()

        store.outbox.deliver(send, ["telegram"], limit=5)
        [one] = store.outbox.page()
        assert (one.state, one.recoveries) == (state, recovered)
        store.outbox.deliver(send, ["telegram"], limit=5)
    assert len(receiver.read_text().splitlines()) == sent


def lose_sender(store: Store, clock: FakeClock) -> None:
    """Somebody claims everything and is gone."""
    from hermes_state.outbox import Outbox

    presence = Presence(store.path.parent, clock=clock)
    assert len(Outbox(store.core, presence=presence).claim(["telegram"], limit=10)) == 2
    presence.end()


def test_both_policies_are_kept_on_one_table(
    make_home: Home, make_ticker: Ticker, desk: Desk, fake_clock: FakeClock
) -> None:
    """T3.27: of one run's two deliveries that were lost in sending, one is unknown and one goes out again, marked."""
    home = make_home()
    fired(home, make_ticker, desk, fake_clock, owed("at_most_once", "once"), owed("at_least_once", "again"))
    with open_store(home, clock=fake_clock) as store:
        lose_sender(store, fake_clock)
        seen = store.outbox.deliver(lambda claimed: Accepted(), ["telegram"], limit=5)
        assert [(claimed.obligations[0].payload, claimed.obligations[0].recoveries) for claimed, _said in seen] == [
            ("again", 1)
        ]
        assert {one.payload: one.state for one in store.outbox.page()} == {
            "once": State.UNKNOWN, "again": State.ACCEPTED,
        }


def test_what_was_delivered_stays_so(make_home: Home, make_ticker: Ticker, desk: Desk, fake_clock: FakeClock) -> None:
    """T3.28: every later transition is refused, and the next run of the job makes one of its own."""
    home = make_home()
    fired(home, make_ticker, desk, fake_clock, owed("at_least_once"))
    with open_store(home, clock=fake_clock) as store:
        [claimed] = store.outbox.claim(["telegram"])
        store.outbox.settle(claimed, Accepted())
        [one] = store.outbox.page()
        for verdict in (Accepted(), SendFailed(why="no"), Suppressed(why="no")):
            with pytest.raises(StaleFence):
                store.outbox.settle(claimed, verdict)
        for end in (store.outbox.drop, store.outbox.suppress):
            with pytest.raises(Refused):
                end(one.id, reason="late")
        assert store.outbox.claim(["telegram"]) == []
        assert store.outbox.get(one.id) == one
    fired(home, make_ticker, desk, fake_clock, owed("at_least_once"))
    with open_store(home, clock=fake_clock) as store:
        states = [(obligation.state, obligation.dedupe_id) for obligation in store.outbox.page()]
    assert [state for state, _id in states] == [State.PENDING, State.ACCEPTED]
    assert len({dedupe_id for _state, dedupe_id in states}) == 2


def test_a_failure_that_is_delivered_raises_no_streak_by_its_delivery(
    make_home: Home, make_ticker: Ticker, desk: Desk, fake_clock: FakeClock
) -> None:
    """R76: a failed delivery is the outbox's matter; the run that made it succeeded. An alert goes out once."""
    home = make_home()
    fired(home, make_ticker, desk, fake_clock, owed("at_most_once"))
    with open_store(home, clock=fake_clock) as store:
        [claimed] = store.outbox.claim(["telegram"])
        store.outbox.settle(claimed, SendFailed(why="the chat is gone"))
        assert Cron(store).job("job 0").failure_streak == 0
    desk.outcome = Done(outcome=Failed(error="no model"), alert=owed("at_least_once", "it failed", "alerts"))
    with make_ticker(homes=[home]) as ticker:
        for _run in range(3):
            fake_clock.advance(60)
            ticker.tick()
            ticker.wait_idle()
    with open_store(home, clock=fake_clock) as store:
        assert Cron(store).job("job 0").failure_streak == 3
        assert len(store.outbox.page(transport="alerts")) == 1
