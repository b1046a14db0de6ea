"""Gateways belong to one store: nothing that moves, deletes or copies sessions takes them along or takes them away."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hermes_state import open_store
from hermes_state.engine import open_read
from maintenance.dialects.native.serving import instances_lacking
from maintenance.interop.give_back import give_back, make_plan
from tests.maintenance.adopting import adopt_in_place
from tests.maintenance.serving import let_in, serving_store, stands, statuses, turns
from tests.maintenance.staying import pruned, repaired, sent_across
from tests.support.cli import RunCli
from tests.support.gateways import complete, enrolled, serve
from tests.support.space import context
from tests.support.stores import StoreCopy

pytestmark = pytest.mark.slow


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return serving_store(tmp_path)


def test_an_export_and_an_import_leave_them_where_they_are(db: Path, tmp_path: Path, run_cli: RunCli) -> None:
    other = sent_across(db, tmp_path, run_cli, never="laptop")
    assert stands(other) == {} and let_in(db, "laptop") == "yes"


def test_deleting_and_pruning_sessions_leaves_threads_bound_and_their_turns(db: Path, run_cli: RunCli) -> None:
    with open_store(path=db) as store:
        store.sessions.create(id="session of runs", source="gateway")  # a thread's session of the gateway, by its id
        before = stands(db), turns(db), statuses(db)
        store.sessions.delete(["session of runs"], actor="test", reason="test")
    pruned(db, run_cli)
    assert (stands(db), turns(db), statuses(db)) == before
    with open_store(path=db) as store:
        assert store.instances.bound_count("laptop") == 6


def test_the_way_back_to_hermes_agent_says_what_stays_behind(store_copy: StoreCopy, run_cli: RunCli) -> None:
    db = store_copy("0.19.0")
    adopt_in_place(db)
    assert make_plan(context(db), db.with_name("a.db")).facts["instances"] == 0
    with open_store(path=db) as store:
        serve(store)
    said = (
        "4 gateway instances stay in the store, with the threads that are bound: hermes-agent knows none of it, so "
        "enroll the gateways with whatever serves them next."
    )
    assert make_plan(context(db), db.with_name("a.db")).lines[-1] == said
    report = give_back(context(db), db.with_name("back.db"))
    assert report.document()["instances"] == 4 and report.line().endswith(said)
    assert let_in(db, "laptop") == "yes"
    ran = run_cli("sessions", "adopt", "--back", "--to", db.with_name("c.db"), "--db", db, "--yes", "--json")
    assert json.loads(ran.stdout)["instances"] == 4


def test_a_repair_of_an_index_puts_nobody_out(db: Path, run_cli: RunCli) -> None:
    before = turns(db)
    repaired(db, "turns_active", run_cli)
    assert let_in(db, "laptop") == "yes" and turns(db) == before


def test_a_copy_that_knows_more_of_gateways_is_not_dropped_as_known(db: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    copy.write_bytes(db.read_bytes())

    def lacking() -> int:
        with open_read(copy) as there, open_read(db) as here:
            return instances_lacking(there, here)

    assert lacking() == 0
    with open_store(path=copy) as store:
        store.instances.revoke("laptop", actor="test", reason="stolen")
    assert lacking() == 7  # the instance, four turns, a question and an operation
    with open_store(path=db) as store:
        store.instances.revoke("laptop", actor="test", reason="stolen")
        enrolled(store, "later")
    assert lacking() == 0
    with open_store(path=copy) as store:
        enrolled(store, "one")
        enrolled(store, "two")
    assert lacking() == 1  # the store gave the number of the other


def test_ends_that_only_a_copy_knows_are_counted(db: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    copy.write_bytes(db.read_bytes())
    with open_store(path=copy) as store:
        complete(store, "runs", "turn of runs")
    with open_read(copy) as there, open_read(db) as here:
        assert instances_lacking(there, here) == 1
