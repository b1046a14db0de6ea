"""Reports 146 to 154: jobs whose time passed while the machine was off, asleep, or busy."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cron_store.cron import Cron
from cron_store.records import Claim, Policies, Succeeded
from cron_store.schedule import CronExpression, Interval, Once
from cron_store.states import JobState
from hermes_state.store import Store, open_store
from tests.cron_store.conftest import NOW, HandClock

HOUR, DAY = 3600, 86_400


@pytest.fixture(name="clock")
def hand_clock() -> HandClock:
    return HandClock(NOW)  # a Friday, 08:00 UTC


@pytest.fixture(name="store")
def home(tmp_path: Path, clock: HandClock) -> Iterator[Store]:
    with open_store(tmp_path / "home", clock=clock, durability="process") as store:
        yield store


@pytest.fixture(name="cron")
def cron_of_home(store: Store) -> Cron:
    return Cron(store)


def at(hour: str, zone: str = "UTC") -> CronExpression:
    return CronExpression(expression=f"0 {hour} * * 5", zone=zone)


def fire(cron: Cron, claim: Claim) -> None:
    cron.start(claim)
    cron.settle(claim, Succeeded())


def test_a_one_shot_of_three_days_ago_is_missed_with_a_reason(cron: Cron, clock: HandClock) -> None:
    """Report 146: next time null, state still "scheduled", and no trace."""
    cron.add("call", Once(at=NOW + HOUR))
    clock.advance(3 * DAY)
    assert cron.take(None, room=5).claims == ()
    job, (slot,) = cron.job("call"), cron.slots("call")
    assert (job.state, job.due_at) == (JobState.COMPLETED, None)
    assert (slot.slot, str(slot.state), slot.reason) == (NOW + HOUR, "missed", "late")
    assert cron.missed() == [slot]


def test_after_42_hours_of_sleep_each_job_does_what_it_says_and_how_late_is_kept(
    cron: Cron, clock: HandClock
) -> None:
    """Report 151: a Friday job ran on Sunday, without a policy or a trace."""
    cron.add("late is fine", at("9"))
    cron.add("friday or never", at("9"), policies=Policies(misfire="skip", grace_seconds=2 * HOUR))
    cron.add("a day is fine", at("9"), policies=Policies(misfire="skip", grace_seconds=2 * DAY))
    clock.advance(HOUR + 42 * HOUR)
    assert datetime.fromtimestamp(clock.now(), UTC).strftime("%A") == "Sunday"
    ran = {claim.job_id: claim.lateness_seconds for claim in cron.take(None, room=5).claims}
    assert ran == {"late is fine": 42 * HOUR, "a day is fine": 42 * HOUR}
    assert [(one.job_id, one.reason) for one in cron.missed()] == [("friday or never", "late")]
    assert {run.job_id: run.lateness_seconds for run in cron.history()} == ran


def test_a_laptop_that_was_off_runs_skips_or_says_so_as_each_job_chose(
    cron: Cron, store: Store, clock: HandClock
) -> None:
    """Report 153: off at 9:00, on after 11:00; the run was lost and nobody was told."""
    cron.add("run", at("9"))
    cron.add("skip", at("9"), policies=Policies(misfire="skip"))
    cron.add("notify", at("9"), fields={"deliver": "telegram:42"}, policies=Policies(misfire="notify"))
    clock.advance(3 * HOUR + 300)
    assert [claim.job_id for claim in cron.take(None, room=5).claims] == ["run"]
    assert sorted(one.job_id for one in cron.missed()) == ["notify", "skip"]
    (notice,) = store.outbox.page()
    assert (notice.transport, notice.target) == ("cron-notices", "telegram:42")


def test_24_overdue_jobs_start_as_there_is_room_and_catch_up_is_spaced(cron: Cron, clock: HandClock) -> None:
    """Report 154: after an outage of 12 h all missed jobs fired in the first minute."""
    for number in range(24):
        cron.add(f"job {number:02}", Interval(seconds=HOUR, anchor=NOW))
    clock.advance(12 * HOUR + 2700)  # too late for the newest slot as well
    begun: list[str] = []
    while claims := cron.take(None, room=4).claims:
        assert len(claims) <= 4
        begun += [claim.job_id for claim in claims]
        for claim in claims:
            fire(cron, claim)
    assert sorted(begun) == [f"job {number:02}" for number in range(24)], "one late run each, of twelve slots"
    cron.add("all of them", Interval(seconds=HOUR, anchor=NOW), after=NOW, policies=Policies(
        misfire="run_all", most_late=3, spacing_seconds=600,
    ))
    starts = []
    for _minute in range(21):
        for claim in cron.take(None, room=10).claims:
            if claim.job_id == "all of them":
                starts.append(round(clock.now()) - NOW - 12 * HOUR - 2700)
            fire(cron, claim)
        clock.advance(60)
    assert starts == [0, 600, 1200]
    assert cron.job("all of them").repeat_completed == 3
