"""What a store owes is its own: nothing that moves, deletes or copies sessions takes it along or takes it away."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hermes_state import open_store
from maintenance.interop.give_back import give_back, make_plan
from tests.maintenance.adopting import adopt_in_place
from tests.maintenance.owing import owe, owing_store, send, sent, states
from tests.maintenance.staying import pruned, repaired, sent_across
from tests.support.cli import RunCli
from tests.support.space import context
from tests.support.stores import StoreCopy

pytestmark = pytest.mark.slow


def owing(db: Path) -> dict[str, str]:
    return {name: str(one[0]) for name, one in states(db).items()}


@pytest.fixture
def db(tmp_path: Path) -> Path:
    db = owing_store(tmp_path, "owed", "sent")
    with open_store(path=db) as store:
        send(store, "sent")
    return db


def test_an_export_and_an_import_leave_it_where_it_is(db: Path, tmp_path: Path, run_cli: RunCli) -> None:
    other = sent_across(db, tmp_path, run_cli, never="owed")
    assert owing(other) == {} and owing(db) == {"owed": "pending", "sent": "accepted"}


def test_deleting_branching_and_pruning_sessions_change_nothing_of_it(db: Path, run_cli: RunCli) -> None:
    before = owing(db)
    with open_store(path=db) as store:
        store.sessions.branch("talk", new_id="side")
        store.sessions.delete(["side"], actor="test", reason="test")
    pruned(db, run_cli)
    with open_store(path=db) as store:
        assert store.sessions.count() == 0
    assert owing(db) == before


def test_the_way_back_to_hermes_agent_says_what_stays_behind(store_copy: StoreCopy, run_cli: RunCli) -> None:
    db = store_copy("0.19.0")
    adopt_in_place(db)
    assert make_plan(context(db), db.with_name("a.db")).facts["still_owed"] == 0
    with open_store(path=db) as store:
        owe(store, "owed")
        owe(store, "sent")
        send(store, "sent")
    plan = make_plan(context(db), db.with_name("a.db"))
    said = (
        "1 obligation that nobody has sent stays in the store: send or drop them here, since hermes-agent sends none of"
        " them."
    )
    assert plan.lines[1] == said
    report = give_back(context(db), db.with_name("back.db"))
    assert report.document()["still_owed"] == 1 and report.line().endswith(said)
    assert owing(db) == {"owed": "pending", "sent": "accepted"}
    ran = run_cli("sessions", "adopt", "--back", "--to", db.with_name("c.db"), "--db", db, "--yes", "--json")
    assert json.loads(ran.stdout)["still_owed"] == 1


def test_a_repair_of_an_index_leaves_what_is_owed_as_it_is(db: Path, run_cli: RunCli) -> None:
    repaired(db, "outbox_due", run_cli)
    assert states(db) == {"owed": ("pending", 0, 0, None), "sent": ("accepted", 0, 0, "Accepted")}
    assert sent(db, "owed", "sent") == ["owed"]
