"""A secret in what cron keeps: taken out of prompts, errors, results and incidents, and what runs stays the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from cron_store.incidents import signature
from cron_store.records import Interrupted, Policies, Succeeded
from cron_store.schedule import Interval
from hermes_state.engine import open_write
from hermes_state.errors import JobMoved
from maintenance.dialects.native.scheduled import KIND
from maintenance.scrub.patterns import Redactor, rules_for
from maintenance.scrub.work import replace
from tests.cron_store.conftest import HandClock
from tests.maintenance.backups.making import tidy
from tests.maintenance.native_stores import new_store
from tests.maintenance.scrub.scrubbing import scrubbed
from tests.support.cli import RunCli
from tests.support.cron_homes import MINUTE, NOW, cron_of, every, fail, states, take

SECRET = "hunter2"


def filled(db: Path, clock: HandClock) -> None:
    """The secret in every text of cron that somebody can write."""
    with cron_of(db, clock) as cron:
        cron.add(
            "job", Interval(seconds=MINUTE, anchor=NOW), name=f"with {SECRET}",
            fields={"prompt": f"log in with {SECRET}", "headers": [{f"key {SECRET}": SECRET}], "model": "m"},
            policies=Policies(session_reuse=True),
        )
        every(cron, "same", fields={"prompt": "nothing"})
        every(cron, "off")
        cron.pause("off", reason=f"it knows {SECRET}")
        every(cron, "gone", fields={"prompt": SECRET})
        cron.edit("gone", name=SECRET)
        cron.remove("gone", actor="test", reason=f"had {SECRET}")
        for claim in take(cron, clock):
            if claim.job_id == "job":
                fail(cron, claim, f"401: bad password {SECRET}")
        (claim,) = [one for one in take(cron, clock) if one.job_id == "job"]
        cron.start(claim)
        cron.settle(claim, Succeeded(result={"said": f"it was {SECRET}"}))
        (claim,) = [one for one in take(cron, clock) if one.job_id == "job"]
        cron.start(claim)
        cron.interrupt("job", reason=f"because of {SECRET}")
        cron.settle(claim, Interrupted(why=f"because of {SECRET}"))
        cron.heartbeat(error=f"no login with {SECRET}")


def test_every_text_of_cron_is_scrubbed_and_what_runs_stays(tmp_path: Path) -> None:
    db, clock = new_store(tmp_path), HandClock(NOW)
    filled(db, clock)
    with cron_of(db, clock) as cron:
        before, incidents = cron.job("job"), cron.incidents()
        slots = states(cron, "job")
        changed = scrubbed(cron._store, clock)
        assert changed == {
            "cron_jobs": 1, "cron_runtime": 2, "cron_executions": 3, "cron_incidents": 1, "cron_home": 1,
            "tombstones": 1, "deletions": 1,
        }
        job = cron.job("job")
        assert SECRET not in repr(job) and set(job.fields) == {"prompt", "headers", "model"}
        assert (job.version, job.fields["model"]) == (before.version + 1, "m")
        with pytest.raises(JobMoved):
            cron.edit("job", fields={"prompt": SECRET}, if_version=before.version)
        assert states(cron, "job") == slots
        assert [run.state for run in cron.history(job_id="job")] == ["interrupted", "succeeded", "failed"]
        (incident,) = cron.incidents()
        assert (incident.state, incident.count) == (incidents[0].state, 1)
        # Its id was a digest of the secret: it is that of the new text now.
        assert incident.incident_id == signature("job", incident.error) != incidents[0].incident_id
        assert {claim.job_id for claim in take(cron, clock)} >= {"job"}


def test_an_incident_whose_new_id_another_one_has_gets_a_number_and_ids_of_jobs_stay(tmp_path: Path) -> None:
    db, clock = new_store(tmp_path), HandClock(NOW)
    with cron_of(db, clock) as cron:
        every(cron, "job hunter2")
        for error in ("password hunter2x", "password hunter2xx"):
            fail(cron, take(cron, clock)[0], error)
        cron.remove("job hunter2", actor="test", reason="test")
        changed = scrubbed(cron._store, clock, "hunter2x+")
        assert changed["cron_incidents"] == 2
        first, second = sorted(one.incident_id for one in cron.incidents())
        assert second.startswith(first[:6])
    with open_write(db) as writer:
        replace(writer, Redactor(rules_for(["hunter2"], None)), clock)
        assert writer.rows("SELECT key FROM tombstones WHERE kind = ?", (KIND,)) == [("job hunter2",)]
        assert writer.rows("SELECT DISTINCT job_id FROM cron_executions") == [("job hunter2",)]


@pytest.mark.slow
def test_no_byte_of_it_is_left_in_the_store(tmp_path: Path, run_cli: RunCli) -> None:
    db, clock = new_store(tmp_path), HandClock(NOW)
    filled(db, clock)
    assert SECRET.encode() in tidy(db).read_bytes()
    done = run_cli("sessions", "scrub", "--pattern", SECRET, "--db", db, "--yes")
    assert done.exit_code == 0, done.stdout + done.stderr
    assert "Proven" in done.stdout
    assert all(SECRET.encode() not in path.read_bytes() for path in db.parent.iterdir() if path.is_file())
