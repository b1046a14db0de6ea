"""The state machine of the outbox, played by senders that die, sleep and answer late.

What must hold whatever happens: what may be sent once is given out again only after a verdict that says that it did not
go out; what is sent at least once ends only by a verdict; a verdict counts exactly as long as nobody has claimed its
rows since and none is settled; attempts and refunds are exactly those that were said; a lane is given out in order; and
nothing that is settled changes.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hermes_state.clock import FakeClock
from hermes_state.errors import StaleFence
from hermes_state.outbox import Accepted, Claim, Failed, NotAdmitted, Outbox, Refused, Schedule, State, Suppressed
from hermes_state.outbox.states import TERMINAL, TRANSITIONS, Event, Policy
from hermes_state.outbox.verdicts import Lost
from hermes_state.owners import Presence
from hermes_state.store import open_store
from tests.hermes_state.outbox.test_guards import wrong_order

TERM = 60.0
VERDICTS: dict[str, Any] = {
    "accepted": Accepted(), "not admitted": NotAdmitted(why="busy"), "refused": Refused(why="gone"),
    "failed": Failed(why="no"), "failed for good": Failed(why="never", for_good=True),
    "suppressed": Suppressed(why="old"), "lost": Lost(why="reset"),
}


class OutboxMachine(RuleBasedStateMachine):
    """The model keeps how often each row was given out, and why it might be given out again."""

    @initialize()
    def start(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        home = Path(self.folder.name)
        self.clock = FakeClock(home / "clock.json", now=1.8e9)
        self.store = open_store(home, clock=self.clock)
        self.presences: list[Presence] = []
        self.senders: list[Outbox] = []
        for _ in range(3):
            self._new_sender()
        self.count = 0
        self.out: list[tuple[Outbox, Claim]] = []
        self.open_once: set[str] = set()  # sent at most once, given out, with no verdict that allows another
        self.said: dict[str, list[int]] = {}  # attempts, refunds
        self.ended: dict[str, Any] = {}

    def _new_sender(self) -> None:
        presence = Presence(self.store.path.parent, clock=self.clock)
        self.presences.append(presence)
        self.senders.append(Outbox(self.store.core, presence=presence))

    @rule(
        policy=st.sampled_from(list(Policy)), lane=st.sampled_from([None, "a", "b"]),
        priority=st.sampled_from([0, 0, 5]), batch=st.sampled_from([None, None, "run"]),
    )
    def owe(self, policy: Policy, lane: str | None, priority: int, batch: str | None) -> None:
        self.count += 1
        name = f"row {self.count}"
        self.store.outbox.append(
            dedupe_id=name, kind="final", transport="telegram", payload=self.count, policy=policy, lane=lane,
            priority=priority, batch=batch and f"{batch} {policy}", schedule=Schedule(delays=(5.0, 50.0)),
        )
        self.said[name] = [0, 0]

    @rule(who=st.integers(0, 2), limit=st.integers(1, 4))
    def claim(self, who: int, limit: int) -> None:
        box = self.senders[who]
        claims = box.claim(["telegram"], limit=limit, term_seconds=TERM)
        if sum(len(claim) for claim in claims) < limit:
            fell = {claim.primary.lane for claim in claims} | {one.lane for claim in claims for one in claim}
            rows = [row for row in self.store.outbox.page(limit=500) if row.state not in TERMINAL]
            left = [
                row for row in rows if row.state is State.PENDING and row.due_at <= self.clock.now()
                and (row.lane is None or row.lane not in fell) and not any(
                    other.lane == row.lane is not None and (-other.priority, other.id) < (-row.priority, row.id)
                    for other in rows
                )
            ]
            assert left == [], "something that could be claimed was left"
        for claim in claims:
            given = [one.dedupe_id for one in claim]
            for one in claim:
                if one.policy is Policy.AT_MOST_ONCE:
                    assert one.dedupe_id not in self.open_once, f"{one.dedupe_id} is given out twice"
                    self.open_once.add(one.dedupe_id)
                if one.lane is not None:
                    before = [
                        row for row in self.store.outbox.page(limit=500)
                        if row.lane == one.lane and row.state not in TERMINAL
                        and (-row.priority, row.id) < (-one.priority, one.id) and row.dedupe_id not in given
                    ]
                    assert before == [], f"{one.dedupe_id} overtook {before}"
            self.out.append((box, claim))

    @precondition(lambda self: self.out)
    @rule(which=st.integers(0, 1000), verdict=st.sampled_from(list(VERDICTS)))
    def settle(self, which: int, verdict: str) -> None:
        box, claim = self.out.pop(which % len(self.out))
        rows = [self.store.outbox.get(one.id) for one in claim]
        ours = all(row.fence == one.fence and row.state not in TERMINAL for row, one in zip(rows, claim, strict=True))
        try:
            states = box.settle(claim, VERDICTS[verdict])
        except StaleFence:
            assert not ours, f"a verdict of {claim} was refused, of {rows}"
            assert rows == [self.store.outbox.get(one.id) for one in claim]
            return
        assert ours, f"a verdict of {claim} counted, of {rows}"
        self._count(claim, verdict)
        for one in claim:
            if verdict == "lost":
                assert states[one.id] is (State.UNKNOWN if one.policy is Policy.AT_MOST_ONCE else State.PENDING)

    def _count(self, claim: Claim, verdict: str) -> None:
        """Keep the books of a verdict that counts."""
        for one in claim:
            attempts, refunds = self.said[one.dedupe_id]
            self.said[one.dedupe_id] = [
                attempts + verdict.startswith("failed"), refunds + (verdict == "not admitted")
            ]
            if verdict in ("not admitted", "failed"):
                self.open_once.discard(one.dedupe_id)

    @rule(who=st.integers(0, 2), verdict=st.sampled_from(list(VERDICTS)), limit=st.integers(1, 3), slow=st.booleans(),
          meanwhile=st.integers(0, 2))
    def deliver(self, who: int, verdict: str, limit: int, slow: bool, meanwhile: int) -> None:
        """A handler during which somebody else may claim, after its own term or before."""
        given: list[str] = []

        def handler(claim: Claim) -> Any:
            for one in claim:
                row = self.store.outbox.get(one.id)
                assert (row.state, row.fence) == (State.CLAIMED, one.fence), "it was given out after its claim was lost"
                if one.policy is Policy.AT_MOST_ONCE:
                    assert one.dedupe_id not in self.open_once, f"{one.dedupe_id} is given out twice"
                    self.open_once.add(one.dedupe_id)
                assert one.dedupe_id not in given
                given.append(one.dedupe_id)
            if slow:
                self.clock.advance(TERM + 1)
                self.claim(meanwhile, 3)
            rows = [self.store.outbox.get(one.id) for one in claim]
            if all(row.fence == one.fence and row.state not in TERMINAL for row, one in zip(rows, claim, strict=True)):
                self._count(claim, verdict)
            return VERDICTS[verdict]

        try:
            self.senders[who].deliver(handler, ["telegram"], limit=limit, term_seconds=TERM)
        except StaleFence as stale:
            assert slow
            assert stale.facts["verdict"] == VERDICTS[verdict]

    @rule(seconds=st.sampled_from([1.0, 5.0, 59.0, 61.0]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(who=st.integers(0, 2))
    def die(self, who: int) -> None:
        self.presences[who].end()
        self.out = [(box, claim) for box, claim in self.out if box is not self.senders[who]]
        self.presences[who] = Presence(self.store.path.parent, clock=self.clock)
        self.senders[who] = Outbox(self.store.core, presence=self.presences[who])

    @rule()
    def drop_newest(self) -> None:
        for row in self.store.outbox.page(states=[State.PENDING], limit=1):
            self.store.outbox.drop(row.id, reason="a person")

    @invariant()
    def every_lane_has_one_first_row(self) -> None:
        assert wrong_order(self.store) == []

    @invariant()
    def books_are_right(self) -> None:
        for row in self.store.outbox.page(limit=500):
            assert [row.attempts, row.refunds] == self.said[row.dedupe_id]
            if row.state in TERMINAL:
                assert self.ended.setdefault(row.dedupe_id, row) == row
            if row.policy is Policy.AT_LEAST_ONCE:
                assert row.state is not State.UNKNOWN
                if row.state is State.DROPPED and row.attempts < row.schedule.attempts:
                    assert row.verdict is not None
                    assert row.verdict["verdict"] == "drop"

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            for presence in self.presences:
                presence.end()
            self.folder.cleanup()


TestOutboxMachine = OutboxMachine.TestCase
TestOutboxMachine.settings = settings(max_examples=15, stateful_step_count=30, deadline=None)


def test_every_state_and_event_has_its_outcome_and_terminal_states_have_none() -> None:
    assert {state for state, _event in TRANSITIONS} == {State.PENDING, State.CLAIMED}
    assert {after for after in TRANSITIONS.values()} == set(State)
    assert {event for _state, event in TRANSITIONS} == set(Event)


@pytest.mark.campaign
def test_the_machine_for_a_long_time() -> None:
    class Long(OutboxMachine):
        pass

    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(Long, settings=settings(max_examples=500, stateful_step_count=60, deadline=None))
