"""The doctor on cron: each thing that it says, and that nothing is said of a home where all is well."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cron_store.cron import Cron
from cron_store.records import Succeeded
from cron_store.schedule import CronExpression
from hermes_state.engine import open_read
from hermes_state.owners import Presence
from hermes_state.store import Store, open_store
from maintenance.dialects.native.scheduled import NOT_KNOWN
from maintenance.doctor.findings import Finding, Severity
from maintenance.doctor.native_cron import cron_findings
from tests.cron_store.conftest import HandClock
from tests.support.cron_homes import MINUTE, NOW, every, fail, run, take


@pytest.fixture
def clock() -> HandClock:
    return HandClock(NOW)


@pytest.fixture
def store(tmp_path: Path, clock: HandClock) -> Iterator[Store]:
    with open_store(path=tmp_path / "home" / "state.db", clock=clock, durability="process") as opened:
        yield opened


@pytest.fixture
def cron(store: Store) -> Cron:
    return Cron(store)


def findings(cron: Cron, *, deep: bool = False) -> dict[str, Finding]:
    store = cron._store
    with open_read(store.core.path) as reader:
        return {one.code: one for one in cron_findings(reader, store.core.clock, deep=deep)}


def force(cron: Cron, *statements: str) -> None:
    """Change what the library never does, as another program can; triggers away."""
    with cron._store.core.writer.transaction() as tx:
        kept = tx.rows("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' AND tbl_name LIKE 'cron%'")
        for name, _sql in kept:
            tx.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            tx.execute(statement)
        for _name, sql in kept:
            tx.execute(sql)


def test_of_a_home_that_is_ticked_nothing_but_the_counts_is_said(cron: Cron, clock: HandClock) -> None:
    assert findings(cron)["cron"].sentence == "There is no cron job."
    every(cron, "job")
    every(cron, "off")
    cron.pause("off", reason="by hand")
    lease = cron.tick_lease()
    run(cron, take(cron, clock)[0])
    cron.heartbeat(succeeded=True)
    told = findings(cron, deep=True)
    assert {code: one.severity for code, one in told.items()} == {"cron": Severity.OK}
    assert told["cron"].sentence == "2 cron jobs (1 paused, 1 scheduled), 0 in flight."
    lease.release()


def test_a_home_that_nobody_ticks_and_jobs_that_wait(cron: Cron, clock: HandClock) -> None:
    every(cron, "job")
    told = findings(cron)
    assert told["cron_ticker_silent"].sentence == "Nobody ever ticked this home, so 1 cron job fires nothing."
    assert told["cron_ticker_silent"].next_command == f"hermes-state cron status --db {cron._store.core.path}"
    cron.heartbeat(error="no network")
    assert findings(cron)["cron_tick_failing"].sentence == (
        "The last tick of this home failed at 2027-01-15T08:00:00.000Z: no network"
    )
    clock.advance(201)
    assert findings(cron)["cron_ticker_silent"].sentence == (
        "Nobody has ticked this home since 2027-01-15T08:00:00.000Z, so 1 cron job fires nothing."
    )
    assert "cron_overdue" not in findings(cron)
    clock.advance(MINUTE + 3600)
    assert findings(cron)["cron_overdue"].facts == {"jobs": ["job"], "due_at": float(NOW + MINUTE)}


def test_what_a_dead_ticker_left(cron: Cron, store: Store, clock: HandClock) -> None:
    every(cron, "job")
    presence = Presence(store.path.parent, clock=clock)
    other = Cron(store, presence=presence)
    other.tick_lease()
    (claim,) = take(other, clock)
    assert {"cron_tick_lease_left", "cron_runs_left"} & {*findings(cron)} == set()
    presence.end()
    told = findings(cron)
    assert told["cron_tick_lease_left"].severity is Severity.INFO
    assert told["cron_runs_left"].facts == {"runs": [claim.fence]}
    cron.reap()
    assert "cron_runs_left" not in findings(cron)


def test_zones_that_are_gone_or_have_other_rules(cron: Cron) -> None:
    for name in ("gone", "changed"):
        cron.add(name, CronExpression(expression="0 9 * * *", zone="Europe/Berlin"))
    force(
        cron, "UPDATE cron_runtime SET tz_version = '2019a' WHERE job_id = 'changed'",
        "UPDATE cron_schedules SET schedule = replace(schedule, 'Berlin', 'Atlantis') WHERE job_id = 'gone'",
    )
    told = findings(cron)
    assert told["cron_zone_gone"].severity is Severity.WARNING
    assert told["cron_zone_gone"].facts == {"jobs": {"gone": "Europe/Atlantis"}}
    assert told["cron_zone_changed"].facts == {"jobs": ["changed"]}
    force(cron, "UPDATE cron_schedules SET schedule = replace(schedule, 'Atlantis', 'Berlin') WHERE job_id = 'gone'")
    assert cron.recompute() == 1
    assert "cron_zone_changed" not in findings(cron)


def test_jobs_that_cannot_be_read_and_rows_that_disagree(cron: Cron, clock: HandClock) -> None:
    for name in ("fields", "schedule", "state", "mark", "declaration", "slot", "run"):
        every(cron, name)
    claims = {claim.job_id: claim for claim in take(cron, clock)}
    force(
        cron, "UPDATE cron_jobs SET fields = '[]' WHERE job_id = 'fields'",
        "DELETE FROM cron_schedules WHERE job_id = 'schedule'", "DELETE FROM cron_runtime WHERE job_id = 'state'",
        f"UPDATE cron_runtime SET settled_through = {NOW} WHERE job_id = 'mark'",
        "DELETE FROM cron_jobs WHERE job_id = 'declaration'",
        "DELETE FROM cron_occurrences WHERE job_id = 'slot'",
        f"UPDATE cron_executions SET state = 'unknown', finished_at = 1 WHERE fence = {claims['run'].fence}",
    )
    told = findings(cron)
    assert told["cron_job_unreadable"].facts["jobs"] == {
        "declaration": "what it is is not there", "fields": "its fields are no object",
        "mark": f"slot {NOW + MINUTE} has a record beyond what is accounted for", "schedule": "it has no schedule",
        "state": "how it stands is not there",
    }
    assert told["cron_rows_disagree"].facts == {
        "runs": [claims["slot"].fence], "slots": [["run", NOW + MINUTE]],
    }
    assert {told[code].severity for code in ("cron_job_unreadable", "cron_rows_disagree")} == {Severity.WARNING}
    assert told["cron_job_unreadable"].next_command.startswith("hermes-state sessions recover --source ")


def test_what_a_person_may_see_to(cron: Cron, store: Store, clock: HandClock) -> None:
    every(cron, "fails")
    fail(cron, take(cron, clock)[0])
    every(cron, "error")
    every(cron, "held")
    cron.pause("held", reason=NOT_KNOWN)
    store.sessions.create(id="of the job", source="cron")
    every(cron, "goes on", 60, session_reuse=True)
    (claim,) = [one for one in take(cron, clock) if one.job_id == "goes on"]
    cron.start(claim)
    cron.settle(claim, Succeeded(), session_id="of the job")
    cron.heartbeat()
    force(cron, "UPDATE cron_runtime SET state = 'error', state_reason = 'its zone is gone' WHERE job_id = 'error'")
    clock.step_wall(-3600)
    cron.heartbeat()
    store.sessions.delete(["of the job"], actor="test", reason="test")
    told = findings(cron)
    assert told["cron_incidents_open"].facts == {"incidents": 1, "jobs": ["fails"]}
    assert told["cron_jobs_in_error"].sentence == (
        "Of 1 cron job it cannot be told when the next slot is (error: its zone is gone); it is tried again every 5 "
        "minutes."
    )
    assert told["cron_jobs_held"].facts == {"jobs": ["held"]}
    assert told["cron_session_gone"].facts == {"jobs": ["goes on"]}
    assert told["cron_clock_step"].facts["seconds"] == pytest.approx(-3600.0)
    assert {one.severity for one in told.values()} == {Severity.OK, Severity.INFO}
