"""Cron in a WAL that was lost: what ran there does not run again, and what was stopped there is stopped."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from hermes_state.errors import Entombed
from hermes_state.store import open_store
from maintenance.dialects.native.scheduled import DOUBTED, LOST_WAL
from maintenance.recovery.captures.cron import merge_cron
from maintenance.recovery.captures.merge import merge_wal
from maintenance.recovery.captures.view import View
from tests.cron_store.conftest import HandClock
from tests.maintenance.backups.making import query, tidy
from tests.maintenance.native_stores import add_session, new_store
from tests.support.children import Children
from tests.support.cron_homes import MINUTE, NOW, cron_of, every, fail, fired, run, states, take


@pytest.fixture
def clock() -> HandClock:
    return HandClock(NOW)


@pytest.fixture
def db(tmp_path: Path, clock: HandClock) -> Path:
    path = new_store(tmp_path)
    with cron_of(path, clock) as cron:
        for name in ("budget", "edited", "flies", "gone", "off", "same"):
            every(cron, name, repeat_times=3 if name == "budget" else None)
        fired(cron, clock)
    return tidy(path)


def lost(db: Path, clock: HandClock) -> View:
    """What a process did in a WAL that the store lacks: runs, one of them in flight, a removal, a pause, an edit."""
    before, whole = (db.with_name(f"{name}.db") for name in ("before", "whole"))
    for copy in (before, whole):
        shutil.copyfile(db, copy)
    with cron_of(whole, clock) as cron:
        for claim in take(cron, clock):
            if claim.job_id == "flies":
                cron.start(claim)
            elif claim.job_id == "same":
                fail(cron, claim)
            else:
                run(cron, claim)
        cron.edit("edited", name="twice")
        cron.edit("edited", fields={"prompt": "in the WAL"})
        cron.remove("gone", actor="test", reason="not wanted")
        cron.pause("off", reason="in the WAL")
        every(cron, "new")
    tidy(whole)
    return View(capture=None, whole=whole, before=before)  # type: ignore[arg-type]


def merged(db: Path, view: View, clock: HandClock, *, write: bool = True) -> int:
    with open_store(path=db, clock=clock, durability="process") as store:
        return merge_cron(store.core, view, at=clock.now(), write=write)


def test_no_slot_that_ran_in_the_lost_wal_runs_again(db: Path, clock: HandClock) -> None:
    view = lost(db, clock)
    before = query(db, "SELECT * FROM cron_runtime")
    counted = merged(db, view, clock, write=False)
    assert query(db, "SELECT * FROM cron_runtime") == before
    assert merged(db, view, clock) == counted
    with cron_of(db, clock) as cron:
        assert cron.take(None, room=9).claims == ()
        assert {name: states(cron, name)[-1] for name in ("budget", "flies", "same")} == {
            "budget": (2 * MINUTE, "succeeded", ""), "flies": (2 * MINUTE, "interrupted", DOUBTED),
            "same": (2 * MINUTE, "failed", ""),
        }
        assert [run.state for run in cron.history(job_id="flies")] == ["interrupted", "succeeded"]
        assert cron.job("edited").fields == {"prompt": "in the WAL"}
        assert (cron.job("off").state, cron.job("off").state_reason) == ("paused", "in the WAL")
        assert (cron.job("new").state, cron.job("new").state_reason) == ("paused", LOST_WAL)
        assert [one.job_id for one in cron.incidents()] == ["same"]
        with pytest.raises(Entombed):
            every(cron, "gone")
        assert {job for job, _slot in fired(cron, clock)} == {"budget", "edited", "flies", "same"}
        assert (cron.job("budget").state, cron.job("budget").repeat_completed) == ("completed", 3)
    after = query(db, "SELECT * FROM cron_runtime")
    assert merged(db, view, clock) == 0 and query(db, "SELECT * FROM cron_runtime") == after


def test_what_the_store_did_since_stands_and_runs_of_both_are_kept(db: Path, clock: HandClock) -> None:
    view = lost(db, clock)
    with cron_of(db, clock) as cron:
        cron.edit("edited", fields={"prompt": "in the store"})
        cron.pause("off", reason="in the store")
        cron.resume("off")
        clock.advance(MINUTE)
        since = {claim.job_id: claim for claim in cron.take(None, room=9).claims}
        for name in ("same", "budget"):
            run(cron, since[name])
    merged(db, view, clock)
    with cron_of(db, clock) as cron:
        assert cron.job("edited").fields["prompt"] == "in the store"
        assert cron.job("off").state == "scheduled"
        # The store was late: it ran the newest slot, and gave up the one that had run in the lost WAL.
        assert states(cron, "same")[-2:] == [
            (2 * MINUTE, "missed", "coalesced"), (3 * MINUTE, "succeeded", ""),
        ]
        runs = cron.history(job_id="same")
        assert sorted((run.slot or 0) - NOW for run in runs) == [MINUTE, 2 * MINUTE, 3 * MINUTE]
        assert len({run.fence for run in runs}) == 3
        assert cron.job("budget").repeat_completed == 3


LOSING = """
import sys, gates
from cron_store.cron import Cron
from hermes_state.errors import GenerationLost
from hermes_state.store import open_store
from tests.support.cron_homes import run

store = open_store(path=sys.argv[1])
cron = Cron(store)
cron.remove("gone", actor="test", reason="not wanted")
gates.reach("written")
gates.wait("go")
try:
    store.sessions.create(id="never", source="cli")
except GenerationLost as error:
    gates.reach("lost", str(error.capture))
    gates.wait("end")
"""


@pytest.mark.slow
def test_a_capture_that_is_merged_brings_its_cron(tmp_path: Path, child: Children) -> None:
    db = new_store(tmp_path)
    add_session(db, "talk")
    with open_store(path=db) as store:
        from cron_store.cron import Cron

        every(Cron(store), "gone", 3600)
    gateway = child(LOSING, tidy(db))
    gateway.wait_for("written")
    for name in ("-wal", "-shm"):
        os.unlink(f"{db}{name}")
    gateway.release("go")
    capture = Path(gateway.wait_for("lost"))
    gateway.kill()
    assert merge_wal(capture, db, dry_run=True).captures[0].rows["cron"] == 2
    assert query(db, "SELECT count(*) FROM cron_jobs") == [(1,)]
    assert merge_wal(capture, db).captures[0].rows["cron"] == 2
    assert query(tidy(db), "SELECT count(*) FROM cron_jobs") == [(0,)]
    assert "cron" not in merge_wal(capture, db).captures[0].rows
