"""Cron of a damaged store: what is doubtful does not run by itself, and no slot that may have run runs again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from maintenance.dialects.native.scheduled import DOUBTED, FENCE_LEAP, NOT_SURE, STATE_LOST, TABLES, later_of
from maintenance.recovery.cron import NO_JOB
from maintenance.recovery.records import Report
from maintenance.recovery.run import recover
from tests.cron_store.conftest import HandClock
from tests.maintenance.backups.making import leave_wal, query, tidy
from tests.maintenance.native_stores import new_store
from tests.maintenance.recovery.recovering import little_space
from tests.maintenance.recovery.test_recover_serving import decisions, unguarded, zero
from tests.support.cron_homes import MINUTE, NOW, cron_of, every, fail, fired, run, states, take

__all__ = ["little_space"]
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("little_space")]


@pytest.fixture
def clock() -> HandClock:
    return HandClock(NOW)


@pytest.fixture(name="db")
def cron_store(tmp_path: Path, clock: HandClock) -> Path:
    """Jobs of which one waits, one runs, one is paused, one failed, and one was removed."""
    path = new_store(tmp_path)
    with cron_of(path, clock) as cron:
        for name in ("bad", "gone", "off", "runs", "waits"):
            every(cron, name)
        cron.pause("off", reason="by hand")
        for claim in take(cron, clock):
            fail(cron, claim) if claim.job_id == "bad" else run(cron, claim)
        cron.remove("gone", actor="test", reason="not wanted")
        clock.advance(MINUTE)
        claims = {claim.job_id: claim for claim in cron.take(None, room=10).claims}
        run(cron, claims["bad"])
        cron.start(claims["runs"])
        cron.release(claims["waits"])
        cron.heartbeat(succeeded=True)
    return tidy(path)


def recovered(db: Path, clock: HandClock) -> Report:
    return recover(db, db.with_name("out.db"), allow_partial=True, clock=clock)


def stand(db: Path, clock: HandClock) -> dict[str, str]:
    with cron_of(db, clock) as cron:
        return {job.job_id: str(job.state) for job in cron.jobs()}


def test_a_sound_store_comes_back_with_all_its_cron(db: Path, clock: HandClock) -> None:
    report = recovered(db, clock)
    assert not report.lost
    assert [one["what"] for one in report.decisions if one["what"].startswith("cron")] == []
    for table in sorted(TABLES):
        assert query(report.output, f"SELECT * FROM {table}") == query(db, f"SELECT * FROM {table}")
        assert report.table(table).uncertain == 0 and (report.table(table).rows > 0 or table == "cron_events")
    with cron_of(report.output, clock) as cron:
        assert [one.job_id for one in cron.in_flight()] == ["runs"]
        assert [claim.job_id for claim in cron.take(None, room=9).claims] == ["waits"]


def test_a_job_whose_state_is_lost_is_paused_and_nothing_up_to_now_runs(db: Path, clock: HandClock) -> None:
    zero(db, "cron_runtime")
    clock.advance(5 * MINUTE)
    report = recovered(db, clock)
    assert decisions(report, "cron_job_held") == [("cron_job_held", name) for name in ("bad", "off", "runs", "waits")]
    with cron_of(report.output, clock) as cron:
        assert {(job.state, job.state_reason) for job in cron.jobs()} == {("paused", STATE_LOST)}
        assert fired(cron, clock, 3) == []
        assert (states(cron, "waits")[-1], states(cron, "runs")[-1]) == (
            (2 * MINUTE, "unknown", DOUBTED), (2 * MINUTE, "interrupted", DOUBTED),
        )
        cron.resume("waits")
        assert [job for job, _slot in fired(cron, clock, 1)] == ["waits"]


def test_commits_that_are_gone_may_have_been_runs(db: Path, clock: HandClock) -> None:
    leave_wal(db, "UPDATE cron_jobs SET name = 'x' WHERE job_id = 'bad'", "UPDATE store SET change_floor = 9")
    wal = db.with_name("state.db-wal")
    data = bytearray(wal.read_bytes())
    data[32 + 24 + 100] ^= 0xFF  # the first frame does not have its checksum any more
    wal.write_bytes(data)
    report = recovered(db, clock)
    assert stand(report.output, clock) == dict.fromkeys(("bad", "off", "runs", "waits"), "paused")
    with cron_of(report.output, clock) as cron:
        assert (cron.job("bad").state_reason, cron.job("off").state_reason) == (NOT_SURE, "by hand")
        cron.resume("bad")
        assert take(cron, clock)[0].fence > FENCE_LEAP


def test_where_a_schedule_may_be_lost_nothing_runs_and_a_job_without_one_is_kept_apart(
    db: Path, clock: HandClock
) -> None:
    zero(db, "cron_schedules")
    report = recovered(db, clock)
    assert stand(report.output, clock) == {} and query(report.output, "SELECT * FROM cron_runtime") == []
    assert decisions(report, "cron_job_kept_apart") == [
        ("cron_job_kept_apart", name) for name in ("bad", "off", "runs", "waits")
    ]
    assert report.apart_path is not None
    apart = [json.loads(line) for line in report.apart_path.read_text().splitlines()]
    assert {one["table"] for one in apart} >= {"cron_jobs", "cron_runtime"}
    assert "do runs" in report.apart_path.read_text()
    assert query(report.output, "SELECT count(*) FROM cron_executions WHERE finished_at IS NULL") == [(0,)]


def test_where_declarations_are_lost_their_states_are_kept_apart_and_where_runs_are_their_slots_end(
    db: Path, clock: HandClock
) -> None:
    zero(db, "cron_executions")
    unguarded(
        db, "DELETE FROM cron_jobs WHERE job_id = 'off'", "UPDATE cron_jobs SET fields = '[]' WHERE job_id = 'bad'"
    )
    report = recovered(db, clock)
    assert [(said["key"], said["why"]) for said in report.decisions if said["what"] == "cron_job_kept_apart"] == [
        ("bad", "its fields are no object"), ("off", NO_JOB),
    ]
    assert decisions(report, "cron_slot_doubted") == [("cron_slot_doubted", ["runs", NOW + 2 * MINUTE])]
    with cron_of(report.output, clock) as cron:
        assert states(cron, "runs")[-1] == (2 * MINUTE, "interrupted", DOUBTED)
        assert {job for job, _slot in fired(cron, clock, 2)} == {"runs", "waits"}
        assert cron.history(limit=1)[0].fence > FENCE_LEAP


def test_a_run_whose_slot_is_lost_has_ended_and_of_one_lane_the_newest_is_in_flight(
    db: Path, clock: HandClock
) -> None:
    zero(db, "cron_occurrences")
    report = recovered(db, clock)
    assert [what for what, _key in decisions(report, "cron_run_ended", "cron_slot_doubted")] == ["cron_run_ended"]
    with cron_of(report.output, clock) as cron:
        assert cron.in_flight() == []
        assert [run.state for run in cron.history(job_id="runs")] == ["interrupted", "succeeded"]
        assert fired(cron, clock)[0][1] == 3 * MINUTE


def test_of_two_runs_in_flight_of_one_lane_the_later_goes_on(db: Path, clock: HandClock) -> None:
    ((fence,),) = query(db, "SELECT fence FROM cron_executions WHERE finished_at IS NULL")
    names = ", ".join(name for (name,) in query(db, "SELECT name FROM pragma_table_info('cron_executions')")[1:])
    unguarded(
        db, "DROP INDEX cron_executions_open",  # as it is while a later run is read after a stale one
        f"INSERT INTO cron_executions SELECT 0, {names} FROM cron_executions WHERE fence = {fence}",
    )
    report = recovered(db, clock)
    assert decisions(report, "cron_run_ended") == [("cron_run_ended", 0)]
    with cron_of(report.output, clock) as cron:
        assert [run.fence for run in cron.in_flight()] == [fence]
    assert query(report.output, "SELECT 1 FROM sqlite_schema WHERE name = 'cron_executions_open'") == [(1,)]


def test_a_job_of_a_page_that_is_read_only_outside_of_sqlite_is_not_certain(tmp_path: Path, clock: HandClock) -> None:
    db = new_store(tmp_path)
    with cron_of(db, clock) as cron:
        for number in range(40):
            every(cron, f"job {number:02}", fields={"prompt": "word " * 60})
    tidy(db)
    zero(db, "cron_jobs")  # the interior page: its leaves are found by what they say
    report = recovered(db, clock)
    held = {key for _what, key in decisions(report, "cron_job_held")}
    found = stand(report.output, clock)
    assert len(found) > 30 and held == {*found} and set(found.values()) == {"paused"}


def test_of_two_versions_the_later_stands() -> None:
    job = {"job_id": "a", "version": 2, "updated_at": 5.0}
    assert later_of("cron_jobs", job, job | {"version": 3}) is True
    slot = {"job_id": "a", "slot": 1, "settled_at": None, "fence": 7, "state": "running", "last_slot": 1}
    assert later_of("cron_occurrences", slot, slot | {"state": "due"}) is True  # it was given back
    assert later_of("cron_occurrences", slot, slot | {"fence": 6, "state": "due"}) is False
    assert later_of("cron_occurrences", slot, slot | {"settled_at": 9.0, "state": "succeeded"}) is True
    incident = {"incident_id": "i", "state": "closed", "generation": 1, "last_at": 1.0, "count": 1}
    assert later_of("cron_incidents", incident, incident | {"state": "alerted", "generation": 9}) is False
    runtime = {"job_id": "a", "settled_through": 60, "revision": 4}
    assert later_of("cron_runtime", runtime, runtime | {"revision": 3}) is False
    assert later_of("cron_runtime", runtime, runtime | {"job_id": "b"}) is None
