"""A wall clock that jumps: until the step has stood, slots are accounted for by the boot clock (see T3.23)."""

from __future__ import annotations

import pytest

from cron_store.cron import Cron
from cron_store.home import FAR_STANDS_SECONDS, STANDS_SECONDS
from cron_store.schedule import Interval, parse
from hermes_state.clock import FakeClock
from hermes_state.store import Store
from tests.cron_store.conftest import NOW, Jobs

DAY = 86_400
YEAR = 366 * DAY


def tick(jobs: Jobs) -> list[tuple[str, int]]:
    """One tick as a ticker does it; gives what ran."""
    jobs.cron.heartbeat()
    claims = jobs.cron.take(None, room=100).claims
    for claim in claims:
        jobs.fire(claim)
    jobs.cron.heartbeat(succeeded=True)
    return [(claim.job_id, (claim.slot or 0) - NOW) for claim in claims]


@pytest.mark.parametrize(("misfire", "step"), [("coalesce", 120), ("run_all", YEAR), ("skip", DAY)])
def test_a_clock_that_is_ahead_for_one_tick_costs_no_slot(
    jobs: Jobs, fake_clock: FakeClock, misfire: str, step: int
) -> None:
    """The slots of the time it jumped over have not come: none is settled, and each runs when its time comes."""
    jobs.every("job", 600, misfire=misfire)
    jobs.once("once", 7200)
    fake_clock.advance(600)
    assert tick(jobs) == [("job", 600)]
    fake_clock.step_wall(step)
    assert tick(jobs) == []
    fake_clock.step_wall(-step)
    ran = []
    for _ in range(12):
        fake_clock.advance(600)
        ran += tick(jobs)
    assert sorted(slot for job_id, slot in ran if job_id == "job") == [600 * number for number in range(2, 14)]
    assert ("once", 7200) in ran
    assert jobs.cron.ahead() == {}


def test_edits_made_by_a_clock_that_is_ahead_leave_no_job_silent(jobs: Jobs, fake_clock: FakeClock) -> None:
    """Each of them accounts for what came due before it."""
    for job_id in ("edited", "paused", "finishes"):
        jobs.every(job_id, 600)
    jobs.cron.edit("finishes", schedule=Interval(seconds=600, anchor=NOW, after_finish=True))
    jobs.cron.heartbeat()
    fake_clock.advance(600)
    [*_, running] = [claim for claim in jobs.cron.take(None, room=9).claims if claim.job_id == "finishes"]
    jobs.cron.start(running)
    fake_clock.step_wall(YEAR)
    jobs.cron.edit("edited", schedule=Interval(seconds=300, anchor=NOW))
    jobs.cron.pause("paused", reason="a rest")
    jobs.cron.resume("paused")
    wall = fake_clock.now()
    for text in ("every 10m", "10m"):
        jobs.cron.add(text, parse(text, zone="UTC", now=wall))
        jobs.cron.edit(text, schedule=parse(text, zone="UTC", now=wall))
    jobs.fire(running)
    assert jobs.cron.upkeep().slots == 0
    fake_clock.step_wall(-YEAR)
    assert {job.job_id: (job.due_at or 0) - NOW for job in jobs.cron.jobs()} == {
        "edited": 900, "paused": 1200, "finishes": 1200, "every 10m": 1200, "10m": 1200,
    }


def test_a_step_that_stands_is_believed_and_caught_up_with(jobs: Jobs, cron: Cron, fake_clock: FakeClock) -> None:
    """The clock was behind, and somebody set it: a minute later what was missed is caught up with."""
    jobs.every("job", 600)
    cron.heartbeat()
    fake_clock.step_wall(3 * 3600)
    step = cron.heartbeat()
    assert step is not None and step.seconds == 3 * 3600
    assert cron.clock_step() == step
    fake_clock.advance(STANDS_SECONDS - 1)
    assert cron.heartbeat() is None
    assert tick(jobs) == []
    fake_clock.advance(1)
    assert tick(jobs) == [("job", 3 * 3600)]
    assert cron.clock_step() is None
    assert [(one.kind, one.detail["seconds"]) for one in cron.events()] == [
        ("clock_believed", 3 * 3600), ("clock_step", 3 * 3600),
    ]


def test_a_step_is_believed_by_takes_alone(jobs: Jobs, cron: Cron, fake_clock: FakeClock) -> None:
    jobs.every("job", 600)
    cron.heartbeat()
    fake_clock.step_wall(6000)
    assert jobs.after(0) == []
    [claim] = jobs.after(STANDS_SECONDS)
    assert claim.slot == NOW + 6000
    jobs.fire(claim)


def test_a_step_of_more_than_a_day_stands_for_an_hour_unless_a_person_says_that_it_is_right(
    jobs: Jobs, cron: Cron, fake_clock: FakeClock
) -> None:
    jobs.every("job", 600)
    cron.heartbeat()
    fake_clock.step_wall(2 * DAY)
    assert tick(jobs) == []
    fake_clock.advance(FAR_STANDS_SECONDS - 1)
    assert tick(jobs) == [("job", 3000)]
    step = cron.accept_clock()
    assert step is not None and step.seconds == 2 * DAY
    assert tick(jobs) == [("job", 2 * DAY + 3000)]
    assert cron.accept_clock() is None
    assert cron.events(limit=1)[0].detail == {"seconds": 2.0 * DAY, "by": "a person"}


def test_a_step_that_comes_and_goes_never_counts_as_standing(jobs: Jobs, cron: Cron, fake_clock: FakeClock) -> None:
    """The minute between two looks is of one step, not of two that are alike."""
    jobs.every("job", 60)
    cron.heartbeat()
    for _ in range(3):
        fake_clock.step_wall(6000)
        jobs.after(0)
        fake_clock.step_wall(-6000)
        for claim in jobs.after(60):
            jobs.fire(claim)
    assert [one[0] for one in jobs.records("job")] == [60, 120, 180]


def test_a_clock_that_is_set_back_is_believed_after_a_minute_and_what_waits_is_due(
    jobs: Jobs, cron: Cron, fake_clock: FakeClock
) -> None:
    """Also what was to be started later by the clock that was ahead."""
    fake_clock.step_wall(YEAR)
    jobs.every("job", 3600, misfire="run_all", most_late=3)
    for claim in jobs.after(3 * 3600):
        jobs.fire(claim)
    cron.heartbeat()
    fake_clock.step_wall(-YEAR)
    assert jobs.after(0) == []
    cron.heartbeat()
    assert [claim.slot for claim in jobs.after(STANDS_SECONDS)] == [NOW + YEAR + 2 * 3600]


def test_a_start_that_is_dated_in_the_future_spaces_nothing(jobs: Jobs, fake_clock: FakeClock) -> None:
    """Nobody was heard before, so nothing could be compared."""
    fake_clock.step_wall(YEAR)
    jobs.every("job", 3600, misfire="run_all", most_late=3)
    [claim] = jobs.after(3 * 3600)
    jobs.fire(claim)
    fake_clock.step_wall(-YEAR)
    jobs.cron.edit("job", name="looked at again")
    assert [claim.slot for claim in jobs.after(0)] == [NOW + YEAR + 2 * 3600]


def test_a_machine_that_slept_or_was_off_catches_up_at_once(jobs: Jobs, cron: Cron, fake_clock: FakeClock) -> None:
    """Suspend is in the boot clock; another boot says nothing of how long it was off."""
    jobs.every("job", 600)
    cron.heartbeat()
    fake_clock.advance(DAY)
    assert tick(jobs) == [("job", DAY)]
    fake_clock.reboot(boot_id="next", off_seconds=YEAR)
    assert tick(jobs) == [("job", DAY + YEAR)]
    assert cron.events() == []


def test_a_job_in_error_is_looked_at_again_once_the_clock_is_right(
    jobs: Jobs, cron: Cron, store: Store, fake_clock: FakeClock
) -> None:
    jobs.every("job", 600)
    cron.heartbeat()
    store.core.write(lambda tx: tx.execute(
        "UPDATE cron_runtime SET state = 'error', state_reason = 'its zone is gone', due_at = ?", (NOW + YEAR,)
    ))
    fake_clock.advance(7200)
    cron.heartbeat()
    fake_clock.reboot(boot_id="next", off_seconds=-3600)
    [claim] = jobs.after(0)
    assert claim.slot == NOW + 3600


def test_jobs_that_are_accounted_for_beyond_now_are_named(jobs: Jobs, cron: Cron, fake_clock: FakeClock) -> None:
    """A clock that was ahead for too long: what was settled stays, so it is said."""
    jobs.every("job", 600)
    jobs.once("once", 60)
    fake_clock.step_wall(DAY)
    for claim in jobs.after(0):
        jobs.fire(claim)
    fake_clock.step_wall(-DAY)
    assert cron.ahead() == {"job": NOW + DAY}
