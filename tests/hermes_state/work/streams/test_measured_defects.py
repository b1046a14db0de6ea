"""What was measured of hermes-agent 0.19.0 (facts on gateways, section 11) about its ledger of finals and its pairing.

There, a delivered reply became `attempting` again, the same obligation recorded again after its delivery became pending
with 0 attempts, and a profile's pending code was in no list that did not name the platform.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.errors import StaleFence, StateError, StatementFailed
from hermes_state.outbox import Accepted, Failed, Recorded, State
from hermes_state.routing import Home
from hermes_state.store import Store, open_store
from hermes_state.work.targets import SendFailure

from .conftest import Platform


def test_a_final_that_was_delivered_is_never_being_attempted_again(
    store: Store, home: Home, platform: Platform
) -> None:
    """Measured there: row `attempting`. T3.28 for finals."""
    streams = store.work.streams
    streams.finish("turn", "Hello.", home, transport="slack", target="C1")
    ((claim, _verdict),) = streams.deliver(platform.deliver, ["slack"])
    with pytest.raises(StaleFence):
        streams.settle(claim, Failed(why="no"))
    with pytest.raises(StaleFence):
        streams.renew(claim)
    with pytest.raises(StatementFailed):
        store.core.write(lambda tx: tx.execute("UPDATE outbox SET state = 'pending', settled_at = NULL"))
    assert store.outbox.get("final/turn").state is State.ACCEPTED
    assert streams.deliver(platform.deliver, ["slack"]) == []
    assert platform.sends == 1


def test_a_final_that_is_recorded_again_after_its_delivery_stays_delivered(
    store: Store, home: Home, platform: Platform
) -> None:
    """Measured there: row `pending`, attempts 0: it would be sent again after a crash."""
    streams = store.work.streams
    first = streams.finish("turn", "Hello.", home, transport="slack", target="C1").owed
    assert first is not None
    streams.deliver(platform.deliver, ["slack"])
    assert streams.finish("turn", "Hello.", home, transport="slack", target="C1").owed is None
    again = store.outbox.append(
        dedupe_id=first.dedupe_id, kind=first.kind, transport=first.transport, target=first.target, lane=first.lane,
        payload=first.payload, policy=first.policy,
    )
    assert isinstance(again, Recorded)
    assert (again.new, again.obligation.state) == (False, State.ACCEPTED)
    store.core.clock.advance(86_400.0)  # type: ignore[attr-defined]
    assert streams.deliver(platform.deliver, ["slack"]) == []
    assert platform.messages == {"m1": "Hello."}


def test_a_verdict_that_comes_late_spares_a_second_sending(store: Store, home: Home, platform: Platform) -> None:
    """Its term ran out and it was taken for lost; the platform has it all the same, and the reply knows the message."""
    streams = store.work.streams
    streams.finish("turn", "Hello.", home, transport="slack", target="C1")
    (claim,) = store.outbox.claim(["slack"], term_seconds=60.0)
    store.core.clock.advance(61.0)  # type: ignore[attr-defined]
    streams.settle(claim, Accepted(result={"message_id": platform.post("Hello.")}))
    assert streams.deliver(platform.deliver, ["slack"]) == []
    reply = streams.get("turn")
    assert reply is not None
    assert (reply.message_id, platform.sends) == ("m1", 1)


def test_a_code_that_waits_in_a_profile_is_in_its_list_with_and_without_the_platform(
    tmp_path: Path, fake_clock: FakeClock
) -> None:
    """Measured there: 0 without the platform, 1 with it. R99."""
    with open_store(tmp_path / "profiles" / "x", clock=fake_clock) as store:
        pairing = store.routing.pairing
        pairing.request("telegram", "ann", store.routing.home)
        assert [one.user_id for one in pairing.pending()] == ["ann"]
        assert [one.user_id for one in pairing.pending("telegram")] == ["ann"]


def test_a_store_that_lacks_the_tables_is_read_as_empty(tmp_path: Path, fake_clock: FakeClock) -> None:
    """A store of an earlier release that is opened for reading does not get the step that makes them."""
    with open_store(tmp_path / "home", clock=fake_clock) as store:
        for table in ("reply_seals", "lane_items", "dead_targets", "login_attempts"):
            store.core.write(lambda tx, table=table: tx.execute(f"DROP TABLE {table}"))  # type: ignore[misc]
    with open_store(tmp_path / "home", read_only=True, clock=fake_clock) as store:
        work = store.work
        pages = [work.streams.page(), work.lanes.lanes(), work.lanes.waiting("lane"), work.targets.page()]
        assert [*pages, work.logins.page()] == [[]] * 5
        rows = [work.streams.get("turn"), work.lanes.get(1), work.targets.get("slack", "7")]
        assert rows == [None] * 3
        assert work.logins.live() is None
        assert work.logins.recover(store.routing.home, lambda _attempt: None) == []


def test_what_somebody_kept_of_a_closed_store_refuses(tmp_path: Path, fake_clock: FakeClock) -> None:
    path = tmp_path / "home"
    with open_store(path, clock=fake_clock) as other, open_store(path, clock=fake_clock) as store:
        home, work = store.routing.home, store.work
        streams, lanes, targets, logins = work.streams, work.lanes, work.targets, work.logins
        streams.deliver(Platform().deliver, ["slack"])
        store.close()
        for call in (
            lambda: streams.deliver(Platform().deliver, ["slack"]), lambda: streams.page(),
            lambda: streams.finish("turn", "Hello.", home, transport="slack", target="C1"),
            lambda: lanes.add("lane", "1", "First", home), lambda: lanes.lanes(),
            lambda: targets.failed("slack", "7", home, SendFailure.FORBIDDEN), lambda: logins.live(),
            lambda: logins.shutdown(home),
        ):
            with pytest.raises(StateError, match="closed"):
                call()
        assert other.work.streams.page() == []
