"""A slot that comes due while the job runs (reports 147, 148, 149, 249, 252), and intervals after the end of a run."""

from __future__ import annotations

import itertools

from cron_store.cron import Cron
from cron_store.records import Policies, Succeeded
from cron_store.schedule import Interval
from hermes_state.clock import FakeClock
from tests.cron_store.conftest import NOW, Jobs


def test_skip_skips_while_a_run_is_in_flight(jobs: Jobs) -> None:
    """Report 249: a 45-minute job every 15 minutes never runs beside itself."""
    jobs.every("job", 900)
    [claim] = jobs.after(900)
    jobs.cron.start(claim)
    for _ in range(3):
        assert jobs.after(900) == []
    jobs.cron.settle(claim, Succeeded())
    assert jobs.records("job") == [(900, 900, "succeeded", ""), (1800, 3600, "skipped", "overlap")]
    [again] = jobs.after(900)
    assert again.slot == NOW + 4500


def test_a_job_that_is_longer_than_its_interval_runs_in_each_cycle(jobs: Jobs) -> None:
    """Report 147: 5-minute job, 12-minute run, 10 cycles."""
    jobs.every("job", 300)
    ran = 0
    running, until = None, 0.0
    for _ in range(10 * 15):
        claims = jobs.after(60)
        if running is not None and jobs.clock.now() >= until:
            jobs.cron.settle(running, Succeeded())
            running, ran = None, ran + 1
        for claim in claims:
            jobs.cron.start(claim)
            running, until = claim, jobs.clock.now() + 720
    assert ran >= 9


def test_a_long_job_delays_no_other(jobs: Jobs) -> None:
    """Report 149: while one runs, the largest gap of a 5-minute job is 5 minutes."""
    jobs.every("long", 3600)
    jobs.every("short", 300)
    starts = []
    for _ in range(90):
        for claim in jobs.after(60):
            jobs.cron.start(claim)
            if claim.job_id == "short":
                starts.append(jobs.clock.now())
                jobs.cron.settle(claim, Succeeded())
    assert jobs.cron.is_running("long")
    assert {later - earlier for earlier, later in itertools.pairwise(starts)} == {300.0}


def test_queue_keeps_one(jobs: Jobs) -> None:
    jobs.every("job", 60, overlap="queue")
    [claim] = jobs.after(60)
    jobs.cron.start(claim)
    for _ in range(3):
        assert jobs.after(60) == []
    assert jobs.records("job") == [
        (60, 60, "running", ""), (120, 120, "due", ""), (180, 240, "skipped", "overlap"),
    ]
    jobs.cron.settle(claim, Succeeded())
    [queued] = jobs.after(0)
    assert queued.slot == NOW + 120


def test_allow_runs_beside_itself(jobs: Jobs) -> None:
    jobs.every("job", 60, overlap="allow")
    claims = [*jobs.after(60), *jobs.after(60), *jobs.after(60)]
    for claim in claims:
        jobs.cron.start(claim)
    assert len(jobs.cron.in_flight("job")) == 3
    for claim in reversed(claims):
        jobs.cron.settle(claim, Succeeded())
    assert [record[2] for record in jobs.records("job")] == ["succeeded"] * 3
    assert jobs.cron.in_flight() == []


def test_runs_beside_each_other_do_not_go_beyond_the_repeats(jobs: Jobs) -> None:
    """What is in flight counts until it is known how it ended."""
    jobs.every("job", 60, overlap="allow", repeat_times=2)
    first, second = jobs.after(60)[0], jobs.after(60)[0]
    assert jobs.after(60) == []
    assert jobs.records("job")[-1] == (180, 180, "due", "")
    jobs.cron.release(first)
    assert [claim.slot for claim in jobs.after(0)] != []
    jobs.fire(second)
    [last] = jobs.cron.in_flight("job")
    jobs.cron.interrupt("job", reason="stop")
    assert jobs.after(60) == []
    assert jobs.cron.job("job").repeat_completed == 1
    assert last.slot is not None


def test_a_run_by_hand_overlaps_too_and_takes_no_slot(jobs: Jobs) -> None:
    """Report 169: the grid is where it was after a run by hand."""
    jobs.every("job", 600)
    claim = jobs.cron.take_manual("job", "run-1")
    jobs.cron.start(claim)
    assert jobs.after(600) == []
    jobs.cron.settle(claim, Succeeded())
    assert jobs.records("job") == [(600, 600, "skipped", "overlap")]
    jobs.fire(jobs.cron.take_manual("job", "run-2"))
    assert jobs.cron.next_due_at() == NOW + 1200
    assert jobs.cron.job("job").repeat_completed == 0


def test_after_finish_counts_from_the_end_of_each_run(jobs: Jobs, cron: Cron, fake_clock: FakeClock) -> None:
    cron.add("job", Interval(seconds=600, anchor=NOW, after_finish=True), policies=Policies())
    assert cron.next_due_at() == NOW + 600
    [claim] = jobs.after(700)
    assert claim.slot == NOW + 600
    assert cron.next_due_at() is None
    cron.start(claim)
    fake_clock.advance(50)
    cron.settle(claim, Succeeded())
    assert cron.next_due_at() == NOW + 750 + 600
    cron.pause("job", reason="a rest")
    fake_clock.advance(10_000)
    job = cron.resume("job")
    assert job.due_at == fake_clock.now() + 600
    [claim] = jobs.after(5000)
    assert claim.lateness_seconds == 4400.0
    assert cron.release(claim)
    [again] = jobs.after(0)
    assert (again.slot, again.attempt) == (claim.slot, 2)
