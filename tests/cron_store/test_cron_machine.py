"""Any order of ticks, runs, deaths, edits and pauses, against a model that lists every slot.

The model knows which slots there are (version by version) and which effects began. What is compared after each step:
each slot up to the mark is in exactly one record, no record is of anything else, what is settled stays as it was, no
slot has two effects unless its job is idempotent, and what is due is looked at.
"""

from __future__ import annotations

import collections
import os
import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from cron_store.cron import Cron
from cron_store.records import Claim, Failed, Interrupted, Occurrence, Policies, Succeeded
from cron_store.schedule import Interval
from hermes_state.errors import JobBusy, Refused, StaleFence
from hermes_state.owners import Presence
from hermes_state.store import open_store
from tests.cron_store.conftest import NOW, HandClock

ROUNDS = int(os.environ.get("HERMES_STATE_ROUNDS", "12"))


class CronMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(dir=os.environ.get("PYTEST_TMPDIR"))
        self.clock = HandClock(NOW)
        self.store = open_store(Path(self.folder.name) / "home", clock=self.clock, durability="process")
        self.owners: list[tuple[Cron, Presence]] = []
        self.claims: list[tuple[Cron, Claim]] = []
        self.begun: collections.Counter[int] = collections.Counter()
        self.settled: dict[int, Occurrence] = {}
        # from which slot on, whether it is active, seconds, anchor
        self.versions: list[tuple[int, bool, int, int]] = []
        self.runs_by_hand = 0
        self.latest = 0.0  # what time it ever was taken to be

    @initialize(
        misfire=st.sampled_from(["coalesce", "run_all", "skip", "notify"]),
        overlap=st.sampled_from(["skip", "queue", "allow"]), effect=st.sampled_from(["once", "idempotent"]),
        repeat_times=st.sampled_from([None, None, 1, 2]), most_late=st.integers(1, 4),
    )
    def begin(self, misfire: str, overlap: str, effect: str, repeat_times: int | None, most_late: int) -> None:
        self.policies = Policies(
            misfire=misfire, overlap=overlap, effect=effect, repeat_times=repeat_times, most_late=most_late,  # type: ignore[arg-type]
            spacing_seconds=30.0, grace_seconds=90.0, allowance_seconds=400.0,
        )
        self.owner()
        self.cron.add("job", Interval(seconds=60, anchor=NOW), policies=self.policies)
        self.versions.append((NOW, True, 60, NOW))

    @property
    def cron(self) -> Cron:
        return self.owners[-1][0]

    def taken_to_be(self) -> float:
        step = self.cron.clock_step()
        return self.clock.now() - (0.0 if step is None else step.seconds)

    def owner(self) -> None:
        presence = Presence(self.store.path.parent, clock=self.clock)
        self.owners.append((Cron(self.store, presence=presence), presence))

    # --- time and ticks ----------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([1, 30, 60, 61, 200, 3600, 86_400]))
    def passes(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @rule(seconds=st.sampled_from([-600, -61, 61]))
    def clock_is_set(self, seconds: int) -> None:
        self.clock.step_wall(seconds)
        self.cron.heartbeat()

    @rule(seconds=st.sampled_from([700, 86_400, 366 * 86_400]))
    def clock_is_ahead_for_a_tick(self, seconds: int) -> None:
        self.cron.heartbeat()
        latest = max(self.latest, self.taken_to_be())
        self.clock.step_wall(seconds)
        self.cron.heartbeat()
        self.claims += [(self.cron, claim) for claim in self.cron.take(None, room=2).claims]
        self.clock.step_wall(-seconds)
        assert self.cron.job("job").settled_through <= latest

    @rule(room=st.integers(0, 3))
    def tick(self, room: int) -> None:
        self.cron.reap()
        taken = self.cron.take(None, room=room)
        assert not taken.unreadable
        assert len(taken.claims) <= room
        self.claims += [(self.cron, claim) for claim in taken.claims]

    @rule()
    def by_hand(self) -> None:
        self.runs_by_hand += 1
        try:
            self.claims.append((self.cron, self.cron.take_manual("job", f"run {self.runs_by_hand}")))
        except JobBusy:
            assert self.policies.overlap != "allow"

    # --- runs --------------------------------------------------------------------------------------------------

    def one(self, number: int) -> tuple[Cron, Claim]:
        return self.claims[number % len(self.claims)]

    @precondition(lambda self: self.claims)
    @rule(number=st.integers(0, 5))
    def start(self, number: int) -> None:
        cron, claim = self.one(number)
        before = cron.run(claim.fence).state
        try:
            cron.start(claim)
        except (StaleFence, Refused):
            return
        if before == "claimed" and claim.slot is not None:
            self.begun[claim.slot] += 1

    @precondition(lambda self: self.claims)
    @rule(
        number=st.integers(0, 5),
        outcome=st.sampled_from([Succeeded(), Succeeded(), Failed(error="no"), Interrupted(why="stopped")]),
    )
    def settle(self, number: int, outcome: Succeeded | Failed | Interrupted) -> None:
        cron, claim = self.one(number)
        try:
            cron.settle(claim, outcome)
        except (StaleFence, Refused):
            return

    @precondition(lambda self: self.claims)
    @rule(number=st.integers(0, 5))
    def release(self, number: int) -> None:
        cron, claim = self.one(number)
        cron.release(claim)

    @rule()
    def owner_dies(self) -> None:
        _cron, presence = self.owners[-1]
        presence.end()
        self.owner()

    @rule()
    def no_thread_lives(self) -> None:
        self.cron.force_release(living=())

    @rule()
    def interrupt(self) -> None:
        self.cron.interrupt("job", reason="shutdown")

    # --- declarations ------------------------------------------------------------------------------------------

    def version(self, active: bool, seconds: int, anchor: int) -> None:
        self.versions.append((self.cron.job("job").settled_through, active, seconds, anchor))

    @rule(seconds=st.sampled_from([60, 90, 3600]))
    def edit(self, seconds: int) -> None:
        anchor, active = int(self.taken_to_be()), self.versions[-1][1]
        self.cron.edit("job", schedule=Interval(seconds=seconds, anchor=anchor), name=f"every {seconds}")
        self.version(active, seconds, anchor)

    @rule(more=st.integers(1, 2))
    def repeat_more(self, more: int) -> None:
        if self.policies.repeat_times is not None:
            times = self.policies.repeat_times + more
            self.cron.edit("job", policies={"repeat_times": times})
            self.policies = replace(self.policies, repeat_times=times)

    @rule()
    def rename(self) -> None:
        self.cron.edit("job", name="another")

    @rule()
    def pause(self) -> None:
        if self.versions[-1][1]:
            self.cron.pause("job", reason="a rest")
            self.version(False, *self.versions[-1][2:])

    @rule()
    def resume(self) -> None:
        if not self.versions[-1][1]:
            self.cron.resume("job")
            self.version(True, *self.versions[-1][2:])

    # --- what holds --------------------------------------------------------------------------------------------

    def all_slots(self, through: int) -> list[int]:
        found: list[int] = []
        ends = [version[0] for version in self.versions[1:]] + [through]
        for (after, _active, seconds, anchor), until in zip(self.versions, ends, strict=True):
            first = anchor + max(0, (after - anchor) // seconds + 1) * seconds
            found += range(first, until + 1, seconds)
        return found

    @invariant()
    def every_slot_is_in_one_record(self) -> None:
        if not self.versions:
            return
        job = self.cron.job("job")
        slots = self.all_slots(job.settled_through)
        records = self.cron.slots("job", limit=10_000)
        place = 0
        for record in records:
            covered = slots[place:place + record.count]
            assert (covered[0], covered[-1]) == (record.slot, record.last_slot), (record, covered[:3])
            place += record.count
        assert place == len(slots), f"{len(slots) - place} slots up to the mark have no record"

    @invariant()
    def what_is_settled_stays(self) -> None:
        records = {one.slot: one for one in (self.cron.slots("job", limit=10_000) if self.versions else [])}
        for slot, before in self.settled.items():
            now = records[slot]
            assert (now.state, now.reason, now.version, now.fence) == (
                before.state, before.reason, before.version, before.fence,
            )
            assert now.count >= before.count
        self.settled = {slot: one for slot, one in records.items() if one.settled_at is not None}
        for slot, one in records.items():
            begun = self.begun[slot]
            if one.state in ("missed", "skipped"):
                assert not [began for began in self.begun if one.slot <= began <= one.last_slot], one
            if one.state == "due" and self.policies.effect == "once":
                assert begun == 0, one
            if one.state == "succeeded":
                assert begun >= 1
            assert begun <= 1 or self.policies.effect == "idempotent", f"slot {slot} had {begun} effects"

    @invariant()
    def what_is_in_flight_fits(self) -> None:
        if not self.versions:
            return
        flying = self.cron.in_flight("job")
        assert len(flying) <= 1 or self.policies.overlap == "allow"
        slots = {run.slot: str(run.state) for run in flying if run.slot is not None}
        opened = {one.slot: str(one.state) for one in self.cron.slots("job", states=["claimed", "running"])}  # type: ignore[list-item]
        assert slots == opened

    @invariant()
    def what_is_due_is_looked_at(self) -> None:
        if not self.versions:
            return
        job = self.cron.job("job")
        self.latest = now = max(self.latest, self.taken_to_be())
        times = self.policies.repeat_times
        assert times is None or job.repeat_completed <= times or self.policies.overlap == "allow"
        if job.state != "scheduled":
            assert job.due_at is None
            assert not self.cron.slots("job", states=["due"])  # type: ignore[list-item]
            return
        flying = self.cron.is_running("job") and self.policies.overlap != "allow"
        if self.cron.slots("job", states=["due"]) and not flying:  # type: ignore[list-item]
            assert job.due_at is not None and job.due_at <= now + 30.0
        _after, _active, seconds, _anchor = self.versions[-1]
        assert job.due_at is not None
        assert job.due_at <= max(now, job.settled_through) + seconds

    def teardown(self) -> None:
        for _cron, presence in self.owners:
            presence.end()
        self.store.close()
        self.folder.cleanup()


CronMachine.TestCase.settings = settings(
    max_examples=ROUNDS, stateful_step_count=30, deadline=None,
    phases=(Phase.explicit, Phase.generate),  # a step costs milliseconds: shrinking takes longer than reading
)
TestCronMachine = CronMachine.TestCase
