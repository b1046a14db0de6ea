"""What becomes of slots whose time passed before anybody looked (R74; reports 146, 151, 153, 154, 255, 257)."""

from __future__ import annotations

import pytest

from cron_store.cron import Cron
from cron_store.occurrences.tick import Missed
from cron_store.records import Delivery, Job
from cron_store.states import JobState
from hermes_state.clock import FakeClock
from hermes_state.store import Store
from tests.cron_store.conftest import NOW, Jobs


def test_a_week_of_missed_slots_is_one_late_run_and_one_range(jobs: Jobs) -> None:
    """R74, T3.17: catch-up collapses a backlog; each slot is in exactly one record."""
    jobs.every("minutely")
    week = 7 * 86_400
    [claim] = jobs.after(week)
    assert (claim.slot, claim.lateness_seconds) == (NOW + week, 0.0)
    assert jobs.records("minutely") == [
        (60, week - 60, "missed", "coalesced"), (week, week, "claimed", ""),
    ]
    [missed, _claimed] = jobs.cron.slots("minutely")
    assert missed.count == week // 60 - 1


def test_the_records_of_two_outages_are_one_range_only_when_no_run_is_between(jobs: Jobs) -> None:
    jobs.every("minutely", misfire="skip", grace_seconds=30.0)
    assert jobs.after(60 * 10 + 45) == []
    assert jobs.after(60 * 10) == []
    assert jobs.records("minutely") == [(60, 1200, "missed", "late")]
    [claim] = jobs.after(20)
    jobs.fire(claim)
    assert jobs.after(60 * 10 + 45) == []
    assert jobs.records("minutely") == [
        (60, 1200, "missed", "late"), (1260, 1260, "succeeded", ""), (1320, 1860, "missed", "late"),
    ]


@pytest.mark.parametrize(("late", "runs"), [(120, True), (121, False)])
def test_a_one_shot_is_run_within_120_seconds_and_missed_after_that(jobs: Jobs, late: int, runs: bool) -> None:
    """R74, report 146: the bound of one-shots, on both sides; what is missed says so."""
    jobs.once("once", 60)
    claims = jobs.after(60 + late)
    assert bool(claims) is runs
    job = jobs.cron.job("once")
    if runs:
        jobs.fire(claims[0])
        assert jobs.records("once") == [(60, 60, "succeeded", "")]
    else:
        assert jobs.records("once") == [(60, 60, "missed", "late")]
        assert job.due_at is None
    assert jobs.cron.job("once").state is JobState.COMPLETED


@pytest.mark.parametrize(
    ("period", "grace"), [(60, 120), (240, 120), (600, 300), (14_400, 7_200), (86_400, 7_200)]
)
def test_the_grace_of_a_skipping_job_is_half_its_period_within_its_bounds(
    jobs: Jobs, period: int, grace: int
) -> None:
    """R74: 120 s and 2 h clamps, with catch-up switched off."""
    jobs.every("job", period, misfire="skip", overlap="allow")
    on_time = min(grace, period - 1)
    [claim] = jobs.after(period + on_time)
    assert claim.slot == NOW + period
    if grace < period:
        assert jobs.after(period + 1) == []
        assert jobs.records("job")[-1] == (2 * period, 2 * period, "missed", "late")


def test_an_expression_takes_its_period_from_the_next_slot(jobs: Jobs) -> None:
    jobs.cron_expression("daily", "0 9 * * *", misfire="skip")
    [claim] = jobs.after(3600 + 7200)
    jobs.fire(claim)
    assert jobs.after(86_400 + 1) == []
    assert jobs.records("daily")[-1] == (3600 + 86_400, 3600 + 86_400, "missed", "late")


def test_run_all_runs_the_newest_ones_spaced(jobs: Jobs, fake_clock: FakeClock) -> None:
    """Report 154: a backlog is not fired in the first minute, and no more than the cap is run."""
    jobs.every("hourly", 3600, misfire="run_all", most_late=3, spacing_seconds=300.0)
    [first] = jobs.after(24 * 3600 + 10)
    assert jobs.records("hourly") == [
        (3600, 21 * 3600, "missed", "cap"), (22 * 3600, 22 * 3600, "claimed", ""), (23 * 3600, 23 * 3600, "due", ""),
        (24 * 3600, 24 * 3600, "due", ""),
    ]
    jobs.fire(first)
    assert jobs.after(0) == []
    assert jobs.cron.next_due_at() == fake_clock.now() + 300.0
    assert jobs.after(299) == []
    [second] = jobs.after(1)
    jobs.fire(second)
    [third] = jobs.after(300)
    jobs.fire(third)
    assert [claim.slot for claim in (first, second, third)] == [NOW + hour * 3600 for hour in (22, 23, 24)]
    assert jobs.cron.next_due_at() == NOW + 25 * 3600


def test_run_all_of_an_expression_keeps_the_newest_ones(jobs: Jobs) -> None:
    jobs.cron_expression("often", "*/7 * * * *", zone="Europe/Berlin", misfire="run_all", most_late=5)
    jobs.after(30 * 86_400)
    records = jobs.cron.slots("often")
    assert [one.count for one in records[1:]] == [1] * 5
    assert records[0].reason == "cap"
    everything = jobs.cron.slots("often")[0].count + 5
    from cron_store.schedule import CronExpression, slots

    wanted = slots(CronExpression(expression="*/7 * * * *", zone="Europe/Berlin"), NOW, NOW + 30 * 86_400, limit=10**6)
    assert everything == len(wanted)
    assert [one.slot for one in records[1:]] == wanted[-5:]
    assert (records[0].slot, records[0].last_slot) == (wanted[0], wanted[-6])


def test_notify_owes_one_notice_for_all_that_it_gives_up(jobs: Jobs, store: Store) -> None:
    """Report 153: the choice between run, skip and notify."""
    jobs.every("job", 3600, misfire="notify", grace_seconds=60.0)
    jobs.cron.edit("job", fields={"deliver": "telegram:1"}, name="Report")
    assert jobs.after(5 * 3600 + 61) == []
    [owed] = store.outbox.page()
    assert (owed.kind, owed.transport, owed.target) == ("cron-missed", "cron-notices", "telegram:1")
    assert owed.payload == {
        "job_id": "job", "name": "Report", "first": NOW + 3600, "last": NOW + 5 * 3600, "count": 5,
    }
    assert jobs.after(0) == []
    assert len(store.outbox.page()) == 1


def test_a_notice_can_be_the_callers(jobs: Jobs, cron: Cron, store: Store, fake_clock: FakeClock) -> None:
    jobs.every("job", 3600, misfire="notify", grace_seconds=60.0)
    seen: list[tuple[str, int]] = []

    def notice(job: Job, missed: Missed) -> Delivery:
        seen.append((job.job_id, missed.count))
        return Delivery(kind="note", transport="mail", target="me", payload="late", policy="at_most_once")

    fake_clock.advance(2 * 3600 + 61)
    cron.take(None, room=1, notice=notice)
    assert seen == [("job", 2)]
    assert [one.transport for one in store.outbox.page()] == ["mail"]


def test_a_slot_that_waits_for_room_is_not_late_for_it(jobs: Jobs, cron: Cron, fake_clock: FakeClock) -> None:
    """Report 148: what is chosen does not depend on what is still being run."""
    jobs.every("waits", 3600, misfire="skip", grace_seconds=60.0)
    fake_clock.advance(3600)
    assert cron.take(None, room=0).accounted == 1
    fake_clock.advance(600)
    [claim] = cron.take(None, room=1).claims
    assert (claim.slot, claim.lateness_seconds) == (NOW + 3600, 600.0)


def test_what_waited_for_a_day_is_given_up_by_a_job_that_skips(jobs: Jobs, cron: Cron, fake_clock: FakeClock) -> None:
    jobs.once("waits", 60)
    fake_clock.advance(60)
    cron.take(None, room=0)
    fake_clock.advance(86_400)
    assert cron.take(None, room=1).claims == ()
    assert jobs.records("waits") == [(60, 60, "missed", "late")]


def test_what_waits_for_room_costs_no_write(jobs: Jobs, store: Store, fake_clock: FakeClock) -> None:
    jobs.every("job")
    jobs.after(60, room=0)
    with store.core.reader() as reader:
        before = reader.row("SELECT revision FROM cron_runtime")
        jobs.cron.take(None, room=0)
        assert reader.row("SELECT revision FROM cron_runtime") == before


def test_nothing_runs_at_once_after_a_restart(jobs: Jobs, store: Store, fake_clock: FakeClock) -> None:
    """Report 255: a restart is no slot."""
    jobs.every("job", 3600)
    [claim] = jobs.after(3600)
    jobs.fire(claim)
    fake_clock.advance(10)
    assert Cron(store).take(None, room=5).claims == ()


def test_a_late_run_does_not_move_the_grid(jobs: Jobs) -> None:
    jobs.every("job", 600)
    [claim] = jobs.after(600 + 400)
    jobs.fire(claim)
    assert jobs.cron.next_due_at() == NOW + 1200
