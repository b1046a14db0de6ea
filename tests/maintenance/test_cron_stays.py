"""Jobs are of their home: nothing that moves, deletes or copies sessions takes them along or takes them away."""

from __future__ import annotations

from pathlib import Path

import pytest

from cron_store.records import Succeeded
from hermes_state.engine import open_read
from hermes_state.store import open_store
from maintenance.dialects.detect import dialect_of
from maintenance.dialects.native.scheduled import jobs_lacking
from maintenance.interop.give_back import make_plan
from maintenance.marks import Marks
from maintenance.reading.store_stats import store_stats
from tests.cron_store.conftest import HandClock
from tests.maintenance.backups.making import query, tidy
from tests.maintenance.native_stores import add_session, new_store
from tests.support.cli import RunCli
from tests.support.cron_homes import MINUTE, NOW, cron_of, every, fired, run, take
from tests.support.space import context


@pytest.fixture
def clock() -> HandClock:
    return HandClock(NOW)


@pytest.fixture(name="db")
def cron_store(tmp_path: Path, clock: HandClock) -> Path:
    """A job whose runs go on in a session, and one that is paused."""
    path = new_store(tmp_path)
    add_session(path, "of the job", source="cron")
    with cron_of(path, clock) as cron:
        every(cron, "job", session_reuse=True)
        every(cron, "off")
        cron.pause("off", reason="by hand")
        (claim,) = take(cron, clock)
        cron.start(claim)
        cron.settle(claim, Succeeded(), session_id="of the job")
    return tidy(path)


def cron_rows(db: Path) -> list[object]:
    tables = ("cron_jobs", "cron_schedules", "cron_runtime", "cron_occurrences", "cron_executions")
    return [query(db, f"SELECT * FROM {table}") for table in tables]


def test_deleting_a_session_says_which_jobs_begin_a_new_one_and_changes_nothing_of_them(
    db: Path, run_cli: RunCli
) -> None:
    before = cron_rows(db)
    said = run_cli("sessions", "delete", "of the job", "--db", db, "--dry-run")
    assert "1 cron job that goes on in them goes on in a new session then." in said.stdout
    assert run_cli("sessions", "delete", "of the job", "--db", db, "--dry-run", "--json").json["cron_job_count"] == 1
    with open_store(path=db) as store:
        store.sessions.delete(["of the job"], actor="test", reason="test")
    assert cron_rows(db) == before


def test_the_way_back_to_hermes_agent_says_which_jobs_go_on_here(db: Path) -> None:
    plan = make_plan(context(db), db.with_name("a.db"))
    assert plan.facts["cron_jobs"] == 1
    assert plan.lines[-1] == (
        "1 cron job stays in the store, and a ticker goes on to run it there: hermes-agent keeps its jobs in files of"
        " its own, so pause here what it is to run."
    )


def test_an_export_has_no_job_and_the_tables_are_known(db: Path, run_cli: RunCli, tmp_path: Path) -> None:
    lines = tmp_path / "lines.jsonl"
    assert run_cli("sessions", "export", lines, "--all-messages", "--db", db).exit_code == 0
    assert "of the job" in lines.read_text() and "do job" not in lines.read_text()
    with open_read(db) as store:
        stats = store_stats(store, dialect_of(store), Marks(path=db), by_size=True)
    assert stats.unknown_tables == () and stats.objects is not None
    assert {one.name for one in stats.objects} >= {"cron_jobs", "cron_executions"}


def test_optimizing_forgets_what_gc_would_and_what_is_open_stays(
    db: Path, run_cli: RunCli, clock: HandClock
) -> None:
    with cron_of(db, clock) as cron:
        cron.edit("job", policies={"keep_executions": 1, "overlap": "queue"})
        fired(cron, clock, 2)
        open_slot = take(cron, clock)[0].slot
        marked = cron.job("job").settled_through
    # Long ago: the store is optimized by the clock of the machine.
    with open_store(path=db) as store, store.core.writer.transaction() as tx:
        kept = tx.rows("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' AND tbl_name LIKE 'cron%'")
        for name, _sql in kept:
            tx.execute(f"DROP TRIGGER {name}")
        tx.execute("UPDATE cron_occurrences SET slot = slot - ?1, last_slot = last_slot - ?1", (NOW - 1000,))
        for _name, sql in kept:
            tx.execute(sql)
    document = run_cli("sessions", "optimize", "--db", db, "--json").json
    assert document["cron_rows_forgotten"] == 3 + 2
    assert open_slot is not None
    assert query(db, "SELECT slot, state FROM cron_occurrences") == [(open_slot - NOW + 1000, "claimed")]
    assert query(db, "SELECT settled_through FROM cron_runtime WHERE job_id = 'job'") == [(marked,)]
    assert query(db, "SELECT count(*) FROM cron_executions") == [(2,)]


def test_a_copy_that_knows_jobs_or_runs_later_is_told_from_one_that_does_not(db: Path, clock: HandClock) -> None:
    copy = db.with_name("copy.db")
    copy.write_bytes(db.read_bytes())

    def lacking() -> int:
        with open_read(copy) as one, open_read(db) as live:
            return jobs_lacking(one, live)

    assert lacking() == 0
    with cron_of(db, clock) as cron:
        run(cron, take(cron, clock)[0])
    tidy(db)
    assert lacking() == 0
    with cron_of(copy, clock) as cron:
        for claim in take(cron, clock, 2 * MINUTE):
            run(cron, claim)
        every(cron, "only there")
        cron.edit("off", name="edited")
    tidy(copy)
    assert lacking() == 3  # one that ran, one that is new, one that was edited
