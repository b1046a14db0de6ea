"""Background work, lanes, replies and credentials in a WAL that was lost: what ended there has ended."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hermes_state import open_store
from hermes_state.outbox import Accepted
from hermes_state.work.background import Tell
from hermes_state.work.states import Mode
from maintenance.recovery.captures.merge import merge_wal
from tests.maintenance.backups.making import query, tidy
from tests.support.children import Children

pytestmark = pytest.mark.slow
TURN = Tell(mode=Mode.TURN, transport="telegram", target="7")
LOSING = """
import sys
import gates
from hermes_state.errors import GenerationLost
from hermes_state.outbox import Accepted
from hermes_state.store import open_store
from hermes_state.work.background import Tell

store = open_store(path=sys.argv[1])
home, work = store.routing.home, store.work
tell = Tell(mode="turn", transport="telegram", target="7")
work.lanes.drop("lane", home, reason="answered elsewhere")
work.lanes.add("lane", "2", "Two", home)
work.streams.finish("t", "Hello.", home)
work.streams.deliver(lambda part: Accepted(result={"message_id": "m"}), ["telegram"])
work.delegations.completed(work.delegations.get("d"), home, "found")
work.delegations.dispatch("new", home, task="t", tell=tell)
store.core.write(lambda tx: tx.execute(
    "UPDATE credentials SET rotation = 'grant_may_be_lost', rotation_at = 1.0, rotation_digest = zeroblob(32),"
    " rotation_fence = rotation_fence + 1"
))
gates.reach("written")
gates.wait("go")
try:
    store.sessions.create(id="never", source="cli")
except GenerationLost as error:
    gates.reach("lost", str(error.capture))
    gates.wait("end")
"""
STANDS = (
    "SELECT lane || item_key, state FROM lane_items UNION ALL SELECT turn_id, state FROM reply_seals UNION ALL"
    " SELECT key, state FROM background_work UNION ALL SELECT id, rotation FROM credentials ORDER BY 1"
)


def test_what_ended_in_the_lost_wal_has_ended_and_what_came_there_is_here(tmp_path: Path, child: Children) -> None:
    from hermes_state.routing import home_of
    from hermes_state.work.credentials import SecretFile, Secrets

    db = tmp_path / "state.db"
    with open_store(path=db) as store:
        home, work = store.routing.home, store.work
        work.lanes.add("lane", "1", "One", home)
        work.streams.begin("t", home, transport="telegram", target="7")
        work.delegations.dispatch("d", home, task="t", tell=TURN)
        work.credentials.log_in(
            "nous", "a", home_of(store.core), secrets=SecretFile(tmp_path / "s.json"), auth_type="oauth",
            new=Secrets(access_token="a", refresh_token="b"),
        )
    tidy(db)
    gateway = child(LOSING, db)
    gateway.wait_for("written")
    for name in ("-wal", "-shm"):
        os.unlink(f"{db}{name}")
    gateway.release("go")
    capture = Path(gateway.wait_for("lost"))
    gateway.kill()
    assert dict(query(db, STANDS)) == {
        "a": "whole", "delegation/d": "running", "lanemessage/1": "waiting", "t": "streaming",
    }
    counted = merge_wal(capture, db, dry_run=True).captures[0].rows["beside"]
    report = merge_wal(capture, db)
    assert counted == report.captures[0].rows["beside"] == 6
    assert dict(query(db, STANDS)) == {
        "a": "grant_may_be_lost", "delegation/d": "completed", "delegation/new": "running",
        "lanemessage/1": "dropped", "lanemessage/2": "waiting", "t": "sealed",
    }
    assert "beside" not in merge_wal(capture, db).captures[0].rows
    with open_store(path=db) as store:
        assert store.work.streams.deliver(lambda part: Accepted(), ["telegram"]) == []
        told: list[str] = []
        store.work.notices.deliver(lambda one: told.append(one.text) or Accepted(), ["telegram"])
    assert len(told) == 1 and "found" in told[0]
