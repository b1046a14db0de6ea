"""Claiming and settling: attempts, refunds, crashes, order. Numbers are those of the facts on gateways and cron."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hermes_state.clock import FakeClock
from hermes_state.errors import InvalidInput, StaleFence
from hermes_state.outbox import (
    Accepted,
    Claim,
    Failed,
    NotAdmitted,
    NotSent,
    Outbox,
    Recorded,
    Refused,
    State,
    Suppressed,
    Verdict,
)
from hermes_state.outbox.verdicts import Lost
from hermes_state.store import Store
from tests.hermes_state.outbox.conftest import Sender, told

Owe = Callable[..., Recorded]
TELEGRAM = ["telegram"]


def claim_one(box: Outbox) -> Claim:
    (claim,) = box.claim(TELEGRAM)
    return claim


def test_t5_1_refused_admission_costs_no_attempt(box: Outbox, owe: Owe, fake_clock: FakeClock) -> None:
    owe("one")
    for _ in range(50):
        box.settle(claim_one(box), NotAdmitted(why="busy"))
        fake_clock.advance(5.0)
    row = box.get("one")
    assert (row.state, row.attempts, row.refunds) == (State.PENDING, 0, 50)
    box.settle(claim_one(box), Accepted())
    assert box.get("one").state is State.ACCEPTED
    assert box.claim(TELEGRAM) == []


def test_t5_2_all_siblings_of_a_batch_are_refunded_in_one_transaction(store: Store, box: Outbox, owe: Owe) -> None:
    for number in range(5):
        owe(f"part {number}", batch="run 1")
    claim = claim_one(box)
    assert [one.dedupe_id for one in claim] == [f"part {number}" for number in range(5)]
    before = store.changes.position().change_id
    box.settle(claim, NotAdmitted(why="busy"))
    assert [(one.refunds, one.attempts, one.state) for one in box.page()] == [(1, 0, State.PENDING)] * 5
    assert store.changes.position().change_id == before + 5


def test_t5_3_an_unavailable_transport_spends_and_claims_nothing(
    store: Store, box: Outbox, owe: Owe, fake_clock: FakeClock
) -> None:
    owe("one")
    version = store.changes.position()
    for _ in range(100):
        assert box.claim(["discord"]) == []
        fake_clock.advance(60.0)
    assert (box.get("one").attempts, box.get("one").fence) == (0, 0)
    assert store.changes.position() == version


def test_t5_4_real_errors_end_and_the_result_stays_readable(box: Outbox, owe: Owe, fake_clock: FakeClock) -> None:
    owe("one", kind="completion", payload={"result": "42"})
    states = []
    for _ in range(8):
        box.settle(claim_one(box), Failed(why="connection refused"))
        states.append(box.get("one").state)
        fake_clock.advance(1800.0)
    assert states == [State.PENDING] * 7 + [State.DROPPED]
    row = box.get("one")
    assert (row.attempts, row.payload) == (8, {"result": "42"})
    assert row.verdict is not None
    assert row.verdict["why"] == "connection refused"
    assert box.claim(TELEGRAM) == []


def test_t5_5_a_handler_that_returns_nothing_has_not_accepted(box: Outbox, owe: Owe) -> None:
    owe("one")
    ((_claim, verdict),) = box.deliver(lambda claim: None, TELEGRAM)
    assert verdict == Failed(why="the handler gave no verdict: None")
    assert (box.get("one").state, box.get("one").attempts) == (State.PENDING, 1)


def test_t5_6_after_a_crash_between_sending_and_settling_the_receiver_sees_the_id_twice_and_acts_once(
    box: Outbox, owe: Owe, sender: Callable[[], Sender]
) -> None:
    owe("one")
    seen: list[tuple[str, bool]] = []
    acted: set[str] = set()

    def receive(claim: Claim) -> Verdict:
        seen.append((claim.primary.dedupe_id, claim.primary.recovered))
        acted.add(claim.primary.dedupe_id)
        return Accepted()

    dying = sender()
    receive(claim_one(dying.box))
    dying.die()
    box.deliver(receive, TELEGRAM)
    assert seen == [("one", False), ("one", True)]
    assert acted == {"one"}
    assert box.get("one").state is State.ACCEPTED


def test_t3_26_t3_27_one_table_holds_both_policies(box: Outbox, owe: Owe, sender: Callable[[], Sender]) -> None:
    owe("once", "at_most_once")
    owe("again", "at_least_once")
    owe("before the claim", "at_most_once", transport="later")
    dying = sender()
    assert len(dying.box.claim(TELEGRAM, limit=2)) == 2
    dying.die()
    (claim,) = box.claim(TELEGRAM, limit=10)
    assert [(one.dedupe_id, one.recovered) for one in claim] == [("again", True)]
    assert box.get("once").state is State.UNKNOWN
    assert box.get("once").attempts == 0
    (untouched,) = box.claim(["later"])
    assert untouched.primary.dedupe_id == "before the claim"


@pytest.mark.parametrize("verdict", [Accepted(), Refused(why="gone"), Failed(why="no", for_good=True),
                                     Failed(why="no"), Suppressed(why="old"), NotAdmitted(why="busy"),
                                     Lost(why="reset")])
def test_t3_28_delivered_is_terminal(box: Outbox, owe: Owe, store: Store, verdict: Verdict) -> None:
    """Measured in hermes-agent 0.19: a delivered row can become `attempting` again."""
    owe("one")
    claim = claim_one(box)
    box.settle(claim, Accepted())
    before = box.get("one")
    with pytest.raises(StaleFence) as caught:
        box.settle(claim, verdict)
    assert told(caught.value) == (
        f"Obligation 'one' in {store.path} was claimed with fence 1 and is accepted (fence 1) now. Somebody else"
        " decided about it: do nothing more for it."
    )
    with pytest.raises(StaleFence):
        box.renew(claim)
    assert box.get("one") == before


def test_a_living_sender_keeps_its_claim_until_its_term_ends(
    box: Outbox, owe: Owe, sender: Callable[[], Sender], fake_clock: FakeClock
) -> None:
    owe("one")
    other = sender()
    (claim,) = other.box.claim(TELEGRAM, term_seconds=30.0)
    fake_clock.advance(29.0)
    assert box.claim(TELEGRAM) == []
    other.box.renew(claim, term_seconds=30.0)
    fake_clock.advance(29.0)
    assert box.claim(TELEGRAM) == []
    fake_clock.advance(2.0)
    mine = claim_one(box)
    assert mine.primary.recovered
    with pytest.raises(StaleFence):
        other.box.settle(claim, Accepted())
    box.settle(mine, Accepted())


def test_an_at_most_once_row_whose_sender_ran_out_is_unknown_and_its_late_verdict_is_refused(
    box: Outbox, owe: Owe, sender: Callable[[], Sender], fake_clock: FakeClock
) -> None:
    owe("one", "at_most_once")
    other = sender()
    claim = claim_one(other.box)
    fake_clock.advance(61.0)
    assert box.claim(TELEGRAM) == []
    assert box.get("one").state is State.UNKNOWN
    with pytest.raises(StaleFence):
        other.box.settle(claim, Accepted())


def test_a_claim_past_its_term_that_nobody_took_can_still_be_settled(
    box: Outbox, owe: Owe, fake_clock: FakeClock
) -> None:
    owe("one", "at_most_once")
    claim = claim_one(box)
    fake_clock.advance(3600.0)
    assert box.settle(claim, Accepted()) == {claim.primary.id: State.ACCEPTED}


def test_a_lane_keeps_its_order_and_a_stop_goes_before_everything_of_its_thread(box: Outbox, owe: Owe) -> None:
    owe("first", lane="thread 1")
    owe("second", lane="thread 1")
    owe("other thread", lane="thread 2")
    owe("no lane")
    first, other, free = box.claim(TELEGRAM, limit=10)
    assert [one.primary.dedupe_id for one in (first, other, free)] == ["first", "other thread", "no lane"]
    owe("stop", kind="stop", lane="thread 1", priority=10)
    assert claim_one(box).primary.dedupe_id == "stop"
    box.settle(first, Accepted())
    assert box.claim(TELEGRAM) == []  # the stop is not settled
    box.settle(box_claimed(box, "stop"), Accepted())
    assert claim_one(box).primary.dedupe_id == "second"


def box_claimed(box: Outbox, dedupe_id: str) -> Claim:
    """The claim of a row that this process has, made from the row as a process finds it again."""
    row = box.get(dedupe_id)
    assert row.owner is not None
    return Claim(obligations=(row,), owner=row.owner, incarnation=box._core.incarnation)


def test_a_failure_holds_back_its_lane_until_it_is_settled(box: Outbox, owe: Owe, fake_clock: FakeClock) -> None:
    owe("first", lane="a")
    owe("second", lane="a")
    box.settle(claim_one(box), Failed(why="no"))
    assert box.claim(TELEGRAM, limit=5) == []
    fake_clock.advance(10.0)
    box.settle(claim_one(box), Refused(why="the chat is gone"))
    assert claim_one(box).primary.dedupe_id == "second"


def test_a_sibling_that_another_process_has_is_left_out(box: Outbox, owe: Owe, sender: Callable[[], Sender]) -> None:
    owe("part 0", batch="run", kind="interim")
    other = sender()
    (theirs,) = other.box.claim(TELEGRAM)
    owe("part 1", batch="run")
    owe("part 2", batch="run")
    assert [one.dedupe_id for one in claim_one(box)] == ["part 1", "part 2"]
    other.box.settle(theirs, Accepted())


def test_a_handler_that_knows_that_nothing_went_out_spends_an_attempt(box: Outbox, owe: Owe) -> None:
    owe("one", "at_most_once")

    def handler(claim: Claim) -> Verdict:
        raise NotSent("no route to host")

    ((_claim, verdict),) = box.deliver(handler, TELEGRAM)
    assert verdict == Failed(why="no route to host")
    assert (box.get("one").state, box.get("one").attempts) == (State.PENDING, 1)


@pytest.mark.parametrize(("policy", "state"), [("at_most_once", State.UNKNOWN), ("at_least_once", State.PENDING)])
def test_any_other_error_leaves_open_whether_it_went_out(
    box: Outbox, owe: Owe, policy: str, state: State
) -> None:
    owe("one", policy)
    owe("not reached", policy)

    def handler(claim: Claim) -> Verdict:
        raise ConnectionResetError("in the middle")

    with pytest.raises(ConnectionResetError):
        box.deliver(handler, TELEGRAM, limit=2)
    assert box.get("one").state is state
    rest = box.get("not reached")
    assert (rest.state, rest.attempts, rest.refunds, rest.fence) == (State.PENDING, 0, 0, 0)  # nobody claimed it


def test_what_is_no_verdict_is_refused(box: Outbox, owe: Owe) -> None:
    owe("one")
    claim = claim_one(box)
    with pytest.raises(InvalidInput) as caught:
        box.settle(claim, True)  # type: ignore[arg-type]
    assert told(caught.value) == (
        "A verdict is one of Accepted, NotAdmitted, Refused, Failed, Lost, Suppressed, not True. Nothing returned is no"
        " acceptance."
    )


def test_what_is_not_due_waits_and_the_most_urgent_goes_first(box: Outbox, owe: Owe, fake_clock: FakeClock) -> None:
    owe("later", due_at=fake_clock.now() + 100)
    owe("low", priority=-1)
    owe("high", priority=1)
    urgent = box.claim(TELEGRAM, limit=10)
    assert [one.primary.dedupe_id for one in urgent] == ["high", "low"]
    for claim in urgent:
        box.settle(claim, Accepted())
    fake_clock.advance(100.0)
    assert claim_one(box).primary.dedupe_id == "later"


def test_a_sender_on_another_clock_is_waited_for_until_it_was_seen_silent(
    store: Store, box: Outbox, owe: Owe, fake_clock: FakeClock
) -> None:
    owe("one")
    claim = claim_one(box)
    store.core.write(lambda tx: tx.execute("UPDATE outbox SET boot_id = 'another boot', owner = replace(owner, "
                                           "(SELECT owner ->> '$.boot_id' FROM outbox), 'another boot')"))
    fake_clock.advance(1000.0)
    assert box.claim(TELEGRAM) == []
    fake_clock.advance(65.0)
    assert box.claim(TELEGRAM) == []
    fake_clock.advance(2.0)
    again = claim_one(box)
    assert (again.primary.fence, claim.primary.fence) == (2, 1)
