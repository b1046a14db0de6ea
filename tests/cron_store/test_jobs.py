"""Declaring: what an edit changes and what it leaves, versions of schedules, pauses, tombstones (reports 164, 165,
250, 256)."""

from __future__ import annotations

from pathlib import Path

import pytest

from cron_store.cron import Cron
from cron_store.records import Policies, Succeeded
from cron_store.schedule import CronExpression, Interval, Once, parse
from cron_store.states import JobState
from hermes_state.clock import FakeClock
from hermes_state.errors import (
    Entombed,
    InvalidInput,
    JobExists,
    JobMoved,
    JobNotFound,
    ScheduleRefused,
    SchemaTooOld,
    StateError,
)
from hermes_state.store import Store
from tests.cron_store.conftest import NOW, Jobs


def test_an_edit_changes_what_is_named_and_nothing_else(jobs: Jobs, cron: Cron) -> None:
    """Report 165: rapid edits of other columns null nothing."""
    jobs.every("job", 600, misfire="run_all", most_late=7, grace_seconds=5.0)
    cron.edit("job", fields={"model": "m", "provider": "p", "unknown": [1, {"a": None}]})
    cron.edit("job", name="Report")
    cron.edit("job", policies={"overlap": "queue"})
    job = cron.edit("job", fields={"prompt": "go"}, remove_fields=["provider"])
    assert (job.name, job.version) == ("Report", 5)
    assert job.fields == {"model": "m", "prompt": "go", "unknown": [1, {"a": None}]}
    assert job.policies == Policies(misfire="run_all", most_late=7, grace_seconds=5.0, overlap="queue")
    assert (job.schedule_version, job.due_at) == (1, NOW + 600)


def test_an_edit_of_what_changed_meanwhile_is_refused(jobs: Jobs, cron: Cron) -> None:
    jobs.every("job")
    cron.edit("job", name="first", if_version=1)
    with pytest.raises(JobMoved) as refused:
        cron.edit("job", name="second", if_version=1)
    assert str(refused.value) == (
        f"Cron job 'job' in {cron.home.path}/state.db was edited since it was read: it is version 2, not 1."
    )
    assert cron.job("job").name == "first"


def test_an_edit_of_a_schedule_is_a_new_version_and_earlier_slots_keep_theirs(jobs: Jobs, cron: Cron) -> None:
    jobs.every("job", 600)
    jobs.clock.advance(1900)
    job = cron.edit("job", schedule=Interval(seconds=60, anchor=NOW + 1900))
    assert (job.schedule_version, job.settled_through) == (2, NOW + 1900)
    assert jobs.records("job") == [(600, 1200, "missed", "coalesced"), (1800, 1800, "due", "")]
    [claim] = jobs.after(0)
    jobs.fire(claim)
    [claim] = jobs.after(60)
    assert [(one.slot - NOW, one.version) for one in cron.slots("job")] == [(600, 1), (1800, 1), (1960, 2)]


def test_one_off_and_its_edited_schedule_are_two_slots_at_most(jobs: Jobs, cron: Cron) -> None:
    """Report 256: an edit between claim and end runs nothing twice."""
    jobs.once("job", 60)
    [claim] = jobs.after(60)
    cron.start(claim)
    cron.edit("job", schedule=Once(at=NOW + 3600))
    cron.settle(claim, Succeeded())
    assert jobs.after(60) == []
    assert cron.job("job").state is JobState.SCHEDULED
    [later] = jobs.after(3600)
    jobs.fire(later)
    assert [one.slot - NOW for one in cron.slots("job")] == [60, 3600]
    assert cron.job("job").state is JobState.COMPLETED


def test_a_pause_is_one_skipped_range(jobs: Jobs, cron: Cron) -> None:
    jobs.every("job", 60)
    jobs.after(60, room=0)
    paused = cron.pause("job", reason="holidays")
    assert (paused.state, paused.state_reason, paused.due_at, paused.active) == ("paused", "holidays", None, False)
    assert cron.pause("job", reason="again").state_reason == "holidays"
    assert jobs.after(7 * 86_400) == []
    resumed = cron.resume("job")
    assert (resumed.state, resumed.state_reason, resumed.due_at) == ("scheduled", "", NOW + 7 * 86_400 + 120)
    assert cron.resume("job").schedule_version == resumed.schedule_version
    assert jobs.records("job") == [
        (60, 60, "skipped", "paused"), (120, 7 * 86_400 + 60, "skipped", "paused"),
    ]
    [claim] = jobs.after(60)
    assert claim.slot == NOW + 7 * 86_400 + 120


def test_a_run_in_flight_goes_on_through_a_pause(jobs: Jobs, cron: Cron) -> None:
    jobs.every("job", 60)
    [claim] = jobs.after(60)
    cron.pause("job", reason="stop")
    jobs.fire(claim)
    assert jobs.records("job") == [(60, 60, "succeeded", "")]
    assert cron.job("job").state is JobState.PAUSED
    assert jobs.after(600) == []
    jobs.fire(cron.take_manual("job", "by hand while paused"))
    assert cron.job("job").due_at is None


def test_a_claim_that_is_given_back_to_a_paused_job_is_skipped(jobs: Jobs, cron: Cron) -> None:
    jobs.every("job", 60)
    [claim] = jobs.after(60)
    cron.pause("job", reason="stop")
    cron.release(claim)
    assert jobs.records("job") == [(60, 60, "skipped", "paused")]


def test_a_job_can_start_paused(cron: Cron, fake_clock: FakeClock) -> None:
    job = cron.add("job", Interval(seconds=60, anchor=NOW), paused="imported", after=NOW + 86_400)
    assert (job.state, job.due_at, job.settled_through) == ("paused", None, NOW + 86_400)
    fake_clock.advance(3 * 86_400)
    assert cron.take(None).claims == ()
    assert cron.resume("job").due_at == NOW + 3 * 86_400 + 60


def test_an_imported_one_shot_of_the_past_is_paused_and_then_over(cron: Cron) -> None:
    job = cron.add("old", Once(at=NOW - 3600), paused="imported")
    assert (job.state, job.due_at) == ("paused", None)
    assert cron.resume("old").state == "completed"
    assert cron.slots("old") == []


def test_a_removed_job_does_not_come_back(jobs: Jobs, cron: Cron, store: Store) -> None:
    """A stale writer that still has it in memory is refused, by name."""
    jobs.every("job")
    jobs.after(60, room=0)
    cron.remove("job", actor="me", reason="not wanted")
    for again in (
        lambda: cron.add("job", Interval(seconds=60, anchor=NOW)), lambda: cron.edit("job", name="x"),
        lambda: cron.job("job"), lambda: cron.resume("job"), lambda: cron.take_manual("job", "run"),
    ):
        with pytest.raises(Entombed) as refused:
            again()
        assert str(refused.value) == (
            f"cron_job 'job' was deleted from {store.path} at 2027-01-15T08:01:00Z by me (not wanted); it may not come"
            " back before 2027-04-15T08:01:00Z."
        )
    assert jobs.records("job") == [(60, 60, "skipped", "removed")]
    assert jobs.after(600) == []


def test_an_id_that_may_come_back_does_not_get_old_slots_again(jobs: Jobs, cron: Cron, store: Store) -> None:
    from hermes_state import tombstones

    jobs.every("job")
    [claim] = jobs.after(600)
    jobs.fire(claim)
    cron.remove("job", actor="me", reason="not wanted")
    store.core.write(lambda tx: tombstones.collect(tx, NOW + 1e9))
    cron.add("job", Interval(seconds=60, anchor=NOW), after=NOW)
    job = cron.job("job")
    assert (job.settled_through, job.schedule_version) == (NOW + 600, 1)
    [claim] = jobs.after(60)
    assert claim.slot == NOW + 660


def test_a_job_that_is_declared_at_each_start_is_there_once(jobs: Jobs, cron: Cron) -> None:
    """Report 250: a stable id, replaced."""
    schedule = CronExpression(expression="0 9 * * *", zone="Europe/Berlin")
    for _ in range(3):
        job = cron.add("report", schedule, name="Report", fields={"prompt": "go"}, replace=True)
    assert (job.version, job.schedule_version, len(cron.jobs())) == (1, 1, 1)
    job = cron.add("report", schedule, name="Report", fields={"model": "m"}, replace=True)
    assert (job.version, job.schedule_version, job.fields) == (2, 1, {"model": "m"})
    with pytest.raises(JobExists) as refused:
        cron.add("report", schedule)
    assert str(refused.value) == f"Cron job 'report' is in {cron.home.path}/state.db already."


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"effect": "maybe"}, "effect of a cron job is one of once, idempotent, not 'maybe'."),
        ({"misfire": "run"}, "misfire of a cron job is one of coalesce, run_all, skip, notify, not 'run'."),
        ({"overlap": None}, "overlap of a cron job is one of skip, queue, allow, not None."),
        ({"most_late": 501}, "most_late is a whole number from 1 to 500, not 501."),
        ({"repeat_times": 0}, "repeat_times is a whole number from 1 to 9223372036854775807, not 0."),
        ({"grace_seconds": -1}, "grace_seconds is a number of seconds from 0 to 253402300799, not -1."),
        ({"session_reuse": 1}, "session_reuse is True or False, not 1."),
        ({"colour": 1}, "'colour' is no policy of a cron job."),
    ],
)
def test_policies_that_cannot_be_kept_are_refused(
    jobs: Jobs, cron: Cron, wrong: dict[str, object], message: str
) -> None:
    jobs.every("job")
    with pytest.raises(InvalidInput) as refused:
        cron.edit("job", policies=wrong)
    assert str(refused.value) == message
    assert cron.job("job").version == 1


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda cron: cron.job("x"), JobNotFound, "There is no cron job 'x' in {path}."),
        (lambda cron: cron.edit("x", name="y"), JobNotFound, "There is no cron job 'x' in {path}."),
        (
            lambda cron: cron.add("a/b", Interval(seconds=60, anchor=0)), InvalidInput,
            "job_id is one line without '/' and without spaces at its ends, not 'a/b'.",
        ),
        (
            lambda cron: cron.add("x", Interval(seconds=60, anchor=0), fields={"a": float("nan")}), InvalidInput,
            "The fields of a cron job are JSON: Out of range float values are not JSON compliant.",
        ),
        (lambda cron: cron.pause("x", reason=" "), InvalidInput, "reason is a text that is not empty, not ' '."),
        (
            lambda cron: cron.add("x", Once(at=NOW)), ScheduleRefused,
            "The schedule '2027-01-15T08:00:00Z' is refused: it is in the past, or more than 8 years away.",
        ),
    ],
)
def test_what_cannot_be_done_is_said(cron: Cron, call, kind: type[StateError], message: str) -> None:
    with pytest.raises(kind) as refused:
        call(cron)
    assert str(refused.value) == message.format(path=cron._core.path)


def test_looking_needs_no_writer(jobs: Jobs, cron: Cron, store: Store) -> None:
    from cron_store.looking import Looking
    from hermes_state.store import open_store

    jobs.every("b", 600)
    jobs.every("a", 300)
    jobs.after(300)
    with open_store(path=store.path, read_only=True, clock=jobs.clock) as reading:
        look = Looking(reading)
        assert [job.job_id for job in look.jobs()] == ["a", "b"]
        assert [job.job_id for job in look.jobs(after="a")] == ["b"]
        assert look.jobs(states=[JobState.PAUSED]) == []
        assert look.next_slots("a", 2) == [NOW + 600, NOW + 900]
        assert look.planned("b", until=NOW + 1800) == [NOW + 600, NOW + 1200, NOW + 1800]
        assert [run.job_id for run in look.in_flight()] == ["a"]


def test_a_store_from_before_cron_that_is_only_read_says_so(tmp_path: Path, fake_clock: FakeClock) -> None:
    from cron_store.looking import Looking
    from hermes_state.store import open_store

    with open_store(tmp_path / "old", clock=fake_clock) as old:
        with old.core.reader() as reader:
            tables = [name for (name,) in reader.rows(
                "SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'cron!_%' ESCAPE '!'"
            )]
        for table in tables:
            old.core.write(lambda tx, table=table: tx.execute(f"DROP TABLE {table}"))
        old.core.write(lambda tx: tx.execute("DELETE FROM migrations WHERE name = '0011_pre_add_cron'"))
        path = old.path
    with open_store(path=path, read_only=True, clock=fake_clock) as reading, pytest.raises(SchemaTooOld) as refused:
        Looking(reading).jobs()
    assert str(refused.value) == f"{path} has no cron tables: it was last written by an older version."
    with open_store(path=path, clock=fake_clock) as again:
        assert Cron(again).jobs() == []


def test_a_zone_that_is_not_known_stops_its_job_only_and_is_tried_again(
    jobs: Jobs, cron: Cron, store: Store, fake_clock: FakeClock
) -> None:
    """A recurring job whose next slot cannot be told stays switched on (facts 3.2)."""
    jobs.every("good", 60)
    jobs.cron_expression("lost", "* * * * *", zone="Europe/Berlin")
    store.core.write(lambda tx: tx.execute("DROP TRIGGER cron_schedules_never_change"))
    store.core.write(
        lambda tx: tx.execute("UPDATE cron_schedules SET schedule = replace(schedule, 'Berlin', 'Atlantis')")
    )
    assert [claim.job_id for claim in jobs.after(60)] == ["good"]
    job = cron.job("lost")
    assert (job.state, job.due_at) == (JobState.ERROR, fake_clock.now() + 300)
    assert "Europe/Atlantis" in job.state_reason
    assert [event.kind for event in cron.events()] == ["schedule_error"]
    store.core.write(
        lambda tx: tx.execute("UPDATE cron_schedules SET schedule = replace(schedule, 'Atlantis', 'Berlin')")
    )
    assert "lost" in [claim.job_id for claim in jobs.after(300)]
    assert (cron.job("lost").state, cron.job("lost").state_reason) == (JobState.SCHEDULED, "")


def test_due_times_told_by_other_rules_are_told_anew(jobs: Jobs, cron: Cron, store: Store) -> None:
    jobs.cron_expression("daily", "0 9 * * *", zone="Europe/Berlin")
    due = cron.job("daily").due_at
    assert due is not None
    assert cron.recompute() == 0
    store.core.write(lambda tx: tx.execute("UPDATE cron_runtime SET tz_version = 'old', due_at = due_at + 3600"))
    assert cron.recompute() == 1
    assert cron.job("daily").due_at == due
    assert [event.kind for event in cron.events()] == ["zone_changed"]


@pytest.mark.parametrize("after_finish", [False, True])
def test_an_interval_that_is_declared_anew_at_each_start_keeps_its_grid(
    jobs: Jobs, cron: Cron, after_finish: bool
) -> None:
    """A program that starts more often than the period: the job still fires."""
    ran = []
    for _start in range(20):
        schedule = parse("every 1h", zone="UTC", now=jobs.clock.now(), after_finish=after_finish)
        cron.add("hourly", schedule, replace=True)
        for claim in jobs.after(3000):
            ran.append(claim.slot)
            jobs.fire(claim)
    assert len(ran) >= 10
    assert cron.job("hourly").schedule_version == 1
    cron.add("hourly", parse("every 2h", zone="UTC", now=jobs.clock.now()), replace=True)
    assert cron.job("hourly").schedule_version == 2


def test_a_duration_that_is_declared_anew_keeps_its_slot(jobs: Jobs, cron: Cron) -> None:
    for _start in range(4):
        cron.add("once", parse("30m", zone="UTC", now=jobs.clock.now()), replace=True)
        for claim in jobs.after(600):
            jobs.fire(claim)
    assert jobs.records("once") == [(1800, 1800, "succeeded", "")]
    assert cron.job("once").state is JobState.COMPLETED
    cron.add("once", parse("40m", zone="UTC", now=jobs.clock.now()), replace=True)
    assert cron.job("once").due_at == NOW + 2400 + 2400


def test_declaring_anew_as_paused_pauses(jobs: Jobs, cron: Cron) -> None:
    schedule = jobs.every("job").schedule
    assert cron.add("job", schedule, paused="stop", replace=True).state is JobState.PAUSED
    job = cron.add("job", schedule, name="Another", paused="another reason", replace=True)
    assert (job.state, job.state_reason, job.name) == (JobState.PAUSED, "stop", "Another")
    assert cron.add("job", schedule, name="Another", replace=True).state is JobState.PAUSED


def test_what_came_due_before_a_removal_has_its_record(jobs: Jobs, cron: Cron) -> None:
    jobs.every("job")
    jobs.every("held")
    cron.pause("held", reason="a rest")
    jobs.clock.advance(605)
    for job_id in ("job", "held"):
        cron.remove(job_id, actor="me", reason="done")
    assert jobs.records("job") == [(60, 600, "skipped", "removed")]
    assert jobs.records("held") == [(60, 600, "skipped", "paused")]


@pytest.mark.parametrize("name", [None, 5, b"x", "a\0b", "\ud800", "x" * 4001])
def test_a_name_is_a_text_that_can_be_stored(jobs: Jobs, cron: Cron, name: object) -> None:
    jobs.every("job")
    for call in (
        lambda: cron.add("other", Interval(seconds=60, anchor=NOW), name=name),  # type: ignore[arg-type]
        *([lambda: cron.edit("job", name=name)] if name is not None else []),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidInput) as refused:
            call()
        assert str(refused.value) == (
            "name of a cron job is a text of at most 4,000 characters without NUL and lone surrogates, not"
            f" {name!r:.80}."
        )


@pytest.mark.parametrize("text", ["9999-12-31T09:00", "9999-12-31T23:59-14:00", "0001-01-01T00:00+14:00"])
def test_a_time_that_no_calendar_reaches_is_refused(cron: Cron, text: str) -> None:
    with pytest.raises(ScheduleRefused):
        cron.add("far", parse(text, zone="Europe/Berlin", now=NOW))
    assert cron.add("far", parse(text, zone="Europe/Berlin", now=NOW), paused="imported").state is JobState.PAUSED
    cron.resume("far")
