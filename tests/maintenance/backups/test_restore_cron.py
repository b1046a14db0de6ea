"""Cron after older content was put back: no slot that ran since runs again, and people are told what to resume."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from cron_store.records import Succeeded
from cron_store.schedule import Interval
from hermes_state.engine import open_exclusive
from hermes_state.errors import Entombed, StaleFence
from maintenance.backups import backup
from maintenance.dialects.native.scheduled import DOUBTED, NOT_KNOWN, NOT_THERE, TABLES
from maintenance.replacement.cron import REPLACED
from tests.cron_store.conftest import HandClock
from tests.maintenance.backups.making import leave_wal, put_back, query, tidy
from tests.maintenance.native_stores import new_store
from tests.maintenance.replacement.replacing import overwrite
from tests.support.cli import RunCli
from tests.support.cron_homes import MINUTE, NOW, copied, cron_of, every, fail, fired, replaced, run, states, take
from tests.support.native_release import FOLDER


@pytest.fixture(name="db")
def db_with_nothing(tmp_path: Path) -> Path:
    return new_store(tmp_path)


@pytest.fixture
def clock() -> HandClock:
    return HandClock(NOW)


@pytest.mark.slow
def test_no_slot_that_ran_since_runs_again_and_the_grid_goes_on(db: Path, clock: HandClock) -> None:
    with cron_of(db, clock) as cron:
        every(cron, "job", misfire="run_all", most_late=500, spacing_seconds=0.0)
        before = fired(cron, clock, 2)
    made = backup(tidy(db), clock=clock)
    with cron_of(db, clock) as cron:
        since = fired(cron, clock, 3)
    done = put_back(made.path, tidy(db), clock=clock)
    with cron_of(db, clock) as cron:
        assert cron.take(None, room=10).claims == ()
        after = fired(cron, clock, 2)
        assert states(cron, "job") == [(slot, "succeeded", "") for _job, slot in before + since + after]
        assert [run.state for run in cron.history(job_id="job")] == ["succeeded"] * 7
        (event,) = cron.events(kind="content_replaced")
    assert [slot for _job, slot in before + since + after] == [MINUTE * number for number in range(1, 8)]
    assert done.replaced is not None and done.replaced.cron.document() == {
        "jobs": 1, "runs": 3, "removed": 0, "paused": 0, "paused_jobs": [], "doubted": 0, "ended": 0, "sessions": 0,
    }
    assert event.detail == done.replaced.cron.document()


@pytest.mark.slow
def test_where_the_store_cannot_be_read_no_slot_up_to_now_runs_and_every_job_waits_for_a_person(
    db: Path, clock: HandClock, run_cli: RunCli
) -> None:
    with cron_of(db, clock) as cron:
        every(cron, "job", misfire="run_all")
        every(cron, "idempotent", effect="idempotent")
        every(cron, "done", repeat_times=1)
        every(cron, "off")
        cron.pause("off", reason="by hand")
        fired(cron, clock)
        clock.advance(MINUTE)
        cron.take(None, room=0)  # due, and nobody has them
        (claim,) = cron.take(None, room=1).claims
        cron.start(claim)
    made = backup(tidy(db), clock=clock)
    overwrite(db, bytes(4096))
    clock.advance(10 * MINUTE)
    said = run_cli("sessions", "restore", made.path, "--db", db, "--dry-run")
    assert said.exit_code == 0, said.stderr
    assert (
        "2 cron jobs would be paused, since nobody knows what became of them since: resume those that are wanted, with "
        "`hermes-state cron resume` (idempotent, job)" in said.stdout
    )
    assert "2 slots of cron may have run since, and never run again" in said.stdout
    done = put_back(made.path, db, clock=clock)
    assert done.replaced is not None and done.replaced.cron == done.plan.cron
    assert done.replaced.cron.document() == {
        "jobs": 0, "runs": 0, "removed": 0, "paused": 2, "paused_jobs": ["idempotent", "job"], "doubted": 2, "ended": 1,
        "sessions": 0,
    }
    with cron_of(db, clock) as cron:
        with pytest.raises(StaleFence):
            cron.start(claim)
        assert cron.in_flight() == []
        assert fired(cron, clock, 3) == []
        job = cron.job("job")
        assert (job.state, job.state_reason, job.active) == ("paused", NOT_KNOWN, False)
        assert {one: states(cron, one)[-1] for one in ("job", "idempotent")} == {
            claim.job_id: (2 * MINUTE, "interrupted", DOUBTED),
            "job" if claim.job_id == "idempotent" else "idempotent": (2 * MINUTE, "unknown", DOUBTED),
        }
        assert (cron.job("off").state_reason, cron.job("done").state) == ("by hand", "completed")
        cron.resume("job")
        now = clock.now() - NOW  # no whole minute any more: whoever waits for a lock lets this clock go on
        ((name, slot),) = fired(cron, clock, 1)
        assert name == "job" and now < slot <= now + MINUTE
        # What became of slots between the backup and the restore is not known: nothing says that they were skipped.
        assert min(one.slot for one in cron.slots("job") if one.state == "skipped") > NOW + 12 * MINUTE
        assert cron.history(job_id="job", limit=1)[0].fence > 1_000_000


@pytest.mark.slow
def test_commits_that_stand_in_a_wal_that_sqlite_does_not_see_may_be_runs(db: Path, clock: HandClock) -> None:
    with cron_of(db, clock) as cron:
        every(cron, "job")
        fired(cron, clock)
    made = backup(tidy(db), clock=clock)
    with cron_of(db, clock) as cron:
        fired(cron, clock)
    leave_wal(tidy(db), "UPDATE cron_jobs SET name = 'in the WAL'")
    wal = Path(f"{db}-wal")
    wal.write_bytes(b"\x00\x00\x00\x00" + wal.read_bytes()[4:])
    done = put_back(made.path, db, clock=clock, over_wal=True)
    assert done.replaced is not None and done.replaced.cron.paused == ["job"]
    with cron_of(db, clock) as cron:
        assert [row[:2] for row in states(cron, "job")] == [(MINUTE, "succeeded"), (2 * MINUTE, "succeeded")]
        assert fired(cron, clock, 2) == []


def test_what_was_removed_stays_removed_and_what_was_added_edited_or_resumed_stands(
    db: Path, clock: HandClock
) -> None:
    with cron_of(db, clock) as cron:
        for name in ("edited", "gone", "paused", "resumed", "same"):
            every(cron, name)
        cron.pause("resumed", reason="before")
    made = copied(db, clock)
    with cron_of(db, clock) as cron:
        cron.edit("edited", fields={"prompt": "new"}, schedule=Interval(seconds=120, anchor=NOW))
        cron.remove("gone", actor="test", reason="not wanted")
        cron.pause("paused", reason="since")
        cron.resume("resumed")
        every(cron, "added")
    kept = replaced(made, db, clock)
    assert kept.document() | {"runs": 0} == {
        "jobs": 4, "runs": 0, "removed": 1, "paused": 0, "paused_jobs": [], "doubted": 0, "ended": 0, "sessions": 0,
    }
    with cron_of(db, clock) as cron:
        assert {job.job_id: str(job.state) for job in cron.jobs()} == {
            "added": "scheduled", "edited": "scheduled", "paused": "paused", "resumed": "scheduled",
            "same": "scheduled",
        }
        assert cron.job("edited").fields == {"prompt": "new"}
        with pytest.raises(Entombed):
            every(cron, "gone")
        assert {name for name, _slot in fired(cron, clock)} == {"added", "resumed", "same"}
    assert query(db, "SELECT keys FROM deletions WHERE kind = 'cron_job'") == [('["gone"]',)]


def test_a_repeat_budget_that_was_used_since_and_an_incident_that_was_closed_stay_so(
    db: Path, clock: HandClock
) -> None:
    with cron_of(db, clock) as cron:
        every(cron, "twice", repeat_times=2)
        every(cron, "bad")
        clock.advance(MINUTE)
        for claim in cron.take(None, room=5).claims:
            run(cron, claim) if claim.job_id == "twice" else fail(cron, claim)
    made = copied(db, clock)
    with cron_of(db, clock) as cron:
        for claim in take(cron, clock):
            run(cron, claim) if claim.job_id == "twice" else fail(cron, claim)
        cron.close_incident(cron.incidents()[0].incident_id)
    replaced(made, db, clock)
    with cron_of(db, clock) as cron:
        assert (cron.job("twice").state, cron.job("twice").repeat_completed) == ("completed", 2)
        assert {job for job, _slot in fired(cron, clock, 2)} == {"bad"}
        assert [(one.state, one.count) for one in cron.incidents()] == [("closed", 2)]


def test_a_run_in_flight_has_ended_and_one_that_had_not_begun_is_due_again(db: Path, clock: HandClock) -> None:
    with cron_of(db, clock) as cron:
        every(cron, "begun", effect="idempotent")
        every(cron, "claimed")
    made = copied(db, clock)
    with cron_of(db, clock) as cron:
        begun, claimed = sorted(take(cron, clock), key=lambda one: one.job_id)
        cron.start(begun)
    kept = replaced(made, db, clock)
    assert (kept.ended, kept.paused) == (2, [])
    with cron_of(db, clock) as cron:
        assert states(cron, "begun") == [(MINUTE, "interrupted", "")]
        assert states(cron, "claimed") == [(MINUTE, "due", "")]
        assert cron.run(begun.fence).error == REPLACED
        with pytest.raises(StaleFence):
            cron.start(claimed)
        (again,) = cron.take(None, room=5).claims
        assert (again.job_id, again.slot, again.attempt) == ("claimed", claimed.slot, 2)


def test_a_job_that_the_store_never_had_waits_for_a_person_and_its_runs_keep_their_records(
    db: Path, clock: HandClock
) -> None:
    early = copied(db, clock, "early")
    with cron_of(db, clock) as cron:
        every(cron, "late")
        fired(cron, clock)
    late = copied(db, clock, "late")
    tidy(db)
    early.replace(db)
    with cron_of(db, clock) as cron:
        every(cron, "other", 3600)
        clock.advance(5 * MINUTE)
    kept = replaced(late, db, clock)
    assert kept.paused == ["late"]
    with cron_of(db, clock) as cron:
        assert (cron.job("late").state_reason, cron.job("other").state) == (NOT_THERE, "scheduled")
        assert states(cron, "late") == [(MINUTE, "succeeded", "")]
        assert [one.job_id for one in cron.history()] == ["late"]
        assert fired(cron, clock, 2) == []


def test_a_job_goes_on_in_a_new_session_where_its_own_is_not_in_the_backup(db: Path, clock: HandClock) -> None:
    made = copied(db, clock)
    with cron_of(db, clock) as cron:
        every(cron, "job", session_reuse=True)
        cron._store.sessions.create(id="of the job", source="cron")
        (claim,) = take(cron, clock)
        cron.start(claim)
        cron.settle(claim, Succeeded(), session_id="of the job")
    kept = replaced(made, db, clock)
    assert (kept.jobs, kept.sessions) == (1, 1)
    with cron_of(db, clock) as cron:
        assert cron.job("job").session_id is None


@pytest.mark.slow
def test_a_backup_from_before_cron_takes_the_stores(tmp_path: Path, clock: HandClock) -> None:
    db = tmp_path / "home" / "state.db"
    db.parent.mkdir()
    db.write_bytes(gzip.decompress((FOLDER / "0.6.0-filled.db.gz").read_bytes()))
    made = backup(tidy(db), clock=clock)
    with cron_of(db, clock) as cron:
        every(cron, "job")
        fired(cron, clock)
    done = put_back(made.path, tidy(db), clock=clock)
    assert done.replaced is not None and done.plan.cron == done.replaced.cron
    assert (done.replaced.cron.jobs, done.replaced.cron.runs) == (1, 1)
    with cron_of(db, clock) as cron:
        assert fired(cron, clock) == [("job", 2 * MINUTE)]


def test_jobs_of_another_stores_backup_and_of_a_content_that_had_no_cron_run_nothing_by_themselves(
    db: Path, clock: HandClock, tmp_path: Path
) -> None:
    other = new_store(tmp_path / "other")
    with cron_of(other, clock) as cron:
        every(cron, "theirs")
    made, again = copied(other, clock), copied(other, clock, "again")
    with cron_of(db, clock) as cron:
        every(cron, "mine")
    replaced(made, db, clock)
    with cron_of(db, clock) as cron:
        assert [(job.job_id, job.state) for job in cron.jobs()] == [("theirs", "paused")]
    with open_exclusive(db) as store, store.transaction() as tx:
        for name in sorted(TABLES):
            tx.execute(f"DROP TABLE {name}")
    clock.advance(5 * MINUTE)
    replaced(again, db, clock)
    with cron_of(db, clock) as cron:
        assert (cron.job("theirs").state_reason, fired(cron, clock, 2)) == (NOT_KNOWN, [])


def test_of_a_store_that_is_not_whole_removals_edits_and_verdicts_since_are_taken_and_nothing_runs(
    db: Path, clock: HandClock
) -> None:
    with cron_of(db, clock) as cron:
        for name in ("edited", "gone", "ran"):
            every(cron, name, repeat_times=5)
        fired(cron, clock)
    made = copied(db, clock)
    with cron_of(db, clock) as cron:
        cron.edit("edited", fields={"prompt": "new"})
        cron.remove("gone", actor="test", reason="not wanted")
        every(cron, "added")
        since = [(job, slot) for job, slot in fired(cron, clock) if job == "ran"]
        begun = next(claim for claim in take(cron, clock) if claim.job_id == "ran")
        cron.start(begun)
        last = cron.history(limit=1)[0].fence
    kept = replaced(made, db, clock, hidden=True)
    assert (sorted(kept.paused), kept.removed) == (["added", "edited", "ran"], 1)
    with cron_of(db, clock) as cron:
        assert cron.job("edited").fields["prompt"] == "new"
        assert states(cron, "ran") == [
            (MINUTE, "succeeded", ""), (since[0][1], "succeeded", ""), (3 * MINUTE, "interrupted", DOUBTED)
        ]
        assert cron.run(begun.fence).state == "interrupted"
        assert cron.job("ran").repeat_completed == 2
        with pytest.raises(Entombed):
            every(cron, "gone")
        cron.resume("ran")
        (claim,) = take(cron, clock)
        assert claim.fence > last + 1_000_000 - 1


def test_of_a_damaged_store_what_can_be_read_is_taken(db: Path, clock: HandClock) -> None:
    with cron_of(db, clock) as cron:
        every(cron, "job")
        fired(cron, clock)
    made = copied(db, clock)
    with cron_of(db, clock) as cron:
        cron.edit("job", name="named since")
        fired(cron, clock)
    zero_root(tidy(db), "cron_executions")
    kept = replaced(made, db, clock)
    assert (kept.paused, kept.jobs, kept.runs) == (["job"], 1, 0)
    with cron_of(db, clock) as cron:
        assert (cron.job("job").name, cron.job("job").repeat_completed) == ("named since", 2)
        assert fired(cron, clock, 2) == []
        cron.resume("job")
        assert take(cron, clock)[0].fence > 1_000_000


def zero_root(db: Path, table: str) -> None:
    """Damage the first page of a table in a file that nobody has open."""
    ((page,),) = query(db, f"SELECT rootpage FROM sqlite_schema WHERE name = '{table}'")
    with db.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(bytes(4096))
