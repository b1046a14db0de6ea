"""The doctor and `work list` on what goes on beside conversations."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.engine import open_read
from hermes_state.routing import home_of
from hermes_state.store import Store, open_store
from hermes_state.work.background import Tell
from hermes_state.work.credentials import SecretFile, Secrets
from hermes_state.work.states import Mode
from hermes_state.work.targets import SendFailure
from maintenance.doctor.findings import Finding, Severity
from maintenance.doctor.native_working import working_findings
from tests.support.children import Children
from tests.support.cli import RunCli

TURN = Tell(mode=Mode.TURN, transport="telegram", target="7")


@pytest.fixture
def store(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Store]:
    with open_store(path=tmp_path / "home" / "state.db", clock=fake_clock) as opened:
        yield opened


def findings(path: Path, clock: FakeClock) -> dict[str, Finding]:
    with open_read(path) as reader:
        return {one.code: one for one in working_findings(reader, clock)}


def test_nothing_goes_on_in_a_new_store(store: Store, fake_clock: FakeClock) -> None:
    found = findings(store.core.path, fake_clock)
    assert list(found) == ["background_work"]
    assert found["background_work"].sentence == "Nothing goes on beside conversations."


def test_what_waits_too_long_or_may_be_lost_is_told_and_is_no_problem(store: Store, fake_clock: FakeClock) -> None:
    home, work = store.routing.home, store.work
    work.streams.begin("t", home, transport="slack", target="C1")
    work.lanes.add("lane", "1", "One", home)
    work.processes.register("p", home, command="make", epoch="e", tell=TURN)
    work.credentials.log_in(
        "nous", "a", home_of(store.core), secrets=SecretFile(store.core.path.parent / "s.json"), auth_type="oauth",
        new=Secrets(access_token="a", refresh_token="b"),
    )
    store.core.write(lambda tx: tx.execute(
        "UPDATE credentials SET rotation = 'rotating', rotation_at = 1.0, rotation_digest = zeroblob(32)"
    ))
    fake_clock.advance(90_000)
    found = findings(store.core.path, fake_clock)
    assert {one.severity for one in found.values()} <= {Severity.OK, Severity.INFO}
    assert found["background_work"].sentence == (
        "1 piece of background work under way, 0 ended and not told of yet, 1 message waiting in lanes."
    )
    assert found["replies_interrupted"].sentence == (
        "1 reply began more than a day ago and have no final (t): their gateway finishes or abandons them when it"
        " starts."
    )
    assert found["lanes_waiting"].facts == {"lanes": ["lane"]}
    assert found["grants_may_be_lost"].sentence == (
        "Of 1 credential a token that works once was sent and its answer was lost (nous a): it is not sent again; log"
        " in again."
    )
    assert "background_work_orphaned" not in found


@pytest.mark.slow
def test_work_whose_watcher_died_is_told(tmp_path: Path, child: Children, fake_clock: FakeClock) -> None:
    child("""
        import sys
        from hermes_state import open_store
        from hermes_state.work.background import Tell
        store = open_store(path=sys.argv[1])
        tell = Tell(mode="turn", transport="telegram", target="7")
        store.work.processes.register("p", store.routing.home, command="make", epoch="e", tell=tell)
        """, tmp_path / "state.db").finish()
    assert findings(tmp_path / "state.db", fake_clock)["background_work_orphaned"].facts == {"keys": ["process/p/e"]}


@pytest.mark.slow
def test_work_list_has_all_of_it_and_show_what_it_came_to(store: Store, run_cli: RunCli) -> None:
    home, work = store.routing.home, store.work
    given = work.delegations.dispatch("d", home, task={"goal": "look"}, tell=TURN)
    work.delegations.completed(given, home, "found it")
    taken = work.delegations.dispatch("taken", home, task={"goal": "look"}, tell=TURN)
    work.delegations.completed(taken, home, "told")
    work.processes.register("p", home, command="make", epoch="e", tell=TURN)
    work.lanes.add("agent:main:telegram:dm:7", "1", "One", home)
    work.streams.begin("t", home, transport="slack", target="C1")
    work.targets.failed("telegram", "8", home, SendFailure.FORBIDDEN, reason="blocked")
    db = store.core.path
    listed = json.loads(run_cli("work", "list", "--db", db, "--json").stdout)
    assert [one["key"] for one in listed["background"]] == ["process/p/e", "delegation/taken", "delegation/d"]
    assert [one["lane"] for one in listed["lanes"]] == ["agent:main:telegram:dm:7"]
    assert [one["turn_id"] for one in listed["replies"]] == ["t"]
    assert [one["reason"] for one in listed["dead_targets"]] == ["blocked"]
    shown = json.loads(run_cli("work", "show", "delegation/d", "--db", db, "--json").stdout)
    assert shown["details"] == {"task": {"goal": "look"}, "result": "found it"}
    lane = run_cli("work", "show", "lane/agent:main:telegram:dm:7", "--db", db)
    assert '"content": "One"' in lane.stdout
    missing = run_cli("work", "show", "nothing", "--db", db)
    assert missing.exit_code == 1
    assert f"There is no 'nothing' in {db}." in missing.stderr
