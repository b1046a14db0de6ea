"""Background work, lanes and replies belong to one store: what moves, deletes or copies sessions leaves them there."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from hermes_state import open_store
from hermes_state.engine import open_read
from hermes_state.work.background import Tell
from hermes_state.work.notices import Notice
from hermes_state.work.states import Mode
from maintenance.dialects.native.working import rows_lacking
from tests.maintenance.adopting import query
from tests.maintenance.backups.making import tidy
from tests.maintenance.staying import pruned, repaired, sent_across
from tests.support.cli import RunCli
from tests.support.space import change

pytestmark = pytest.mark.slow
TURN = Tell(mode=Mode.TURN, transport="telegram", target="7")
TABLES = ("background_work", "lane_items", "reply_seals", "login_attempts", "credentials", "topic_chats")


@pytest.fixture
def db(tmp_path: Path) -> Path:
    db = tmp_path / "home" / "state.db"
    with open_store(path=db) as store:
        home, work = store.routing.home, store.work
        session = store.sessions.create(id="talk", source="telegram").id
        store.messages.append(session, role="user", content="Make it")
        work.processes.register("p", home, command="make", epoch="e", session_id=session, tell=TURN)
        done = work.delegations.dispatch("d", home, task="never to be seen", session_id=session, tell=TURN)
        work.delegations.completed(done, home, "found")
        work.lanes.add("lane", "1", "One", home)
        work.streams.finish("t", "Hello.", home, transport="slack", target="C1")
        store.routing.topics.set("telegram", "7", home, user_id="u", enabled=True)
    return db


def rows(db: Path) -> dict[str, list[tuple[Any, ...]]]:
    return {table: query(db, f"SELECT * FROM {table}") for table in TABLES}


def test_an_export_and_an_import_leave_them_where_they_are(db: Path, tmp_path: Path, run_cli: RunCli) -> None:
    before = rows(db)
    other = sent_across(db, tmp_path, run_cli, never="never to be seen")
    assert rows(other) == {table: [] for table in TABLES}
    assert rows(db) == before


def test_a_session_is_deleted_and_pruned_while_its_work_runs_and_the_result_stays_readable(
    db: Path, run_cli: RunCli
) -> None:
    with open_store(path=db) as store:
        store.sessions.end("talk", "done")
        store.sessions.delete(["talk"], actor="test", reason="test")
    pruned(db, run_cli)
    told: list[Notice] = []
    with open_store(path=db) as store:
        process = store.work.processes.get("p", "e")
        assert process is not None
        store.work.processes.exited(process, store.routing.home, exit_code=0)
        store.work.notices.deliver(told.append, ["telegram"], limit=5)
        left = {one.key: (str(one.delivery), one.ended) for one in store.work.notices.undelivered()}
        found = store.work.delegations.get("d")
    assert told == []
    assert left == {"process/p/e": ("suppressed", True), "delegation/d": ("suppressed", True)}
    assert found is not None and found.result == "found"


@pytest.mark.campaign
def test_a_repair_of_an_index_leaves_them_as_they_are(db: Path, run_cli: RunCli) -> None:
    before = rows(db)
    repaired(db, "background_work_ended", run_cli)
    assert rows(db) == before


def test_a_copy_is_known_to_have_what_the_store_lacks_and_not_what_it_forgot(db: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    shutil.copyfile(tidy(db), copy)

    def lacking() -> dict[str, int]:
        with open_read(copy) as there, open_read(db) as here:
            return {table: count for table, count in rows_lacking(there, here).items() if count}

    assert lacking() == {}
    with open_store(path=db) as store:
        store.work.lanes.drop("lane", store.routing.home, reason="done")  # the store knows more
    assert lacking() == {}
    shutil.copyfile(tidy(db), copy)
    with open_store(path=copy) as store:
        home = store.routing.home
        given = store.work.delegations.dispatch("later", home, task="t", tell=TURN)
        store.work.delegations.completed(given, home, "result")
        store.work.streams.finish("t", "Hello. (checked)", home)
    assert lacking() == {"background_work": 1, "reply_seals": 1}
    change(copy, "DROP TRIGGER background_work_keeps_what_is_owed", "DELETE FROM background_work")
    assert lacking() == {"reply_seals": 1}
