"""Routing in a WAL that was lost: what was stopped there is stopped, and nobody is let in by it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hermes_state.errors import HomeRemoved
from hermes_state.store import open_store
from maintenance.recovery.captures.merge import merge_wal
from maintenance.recovery.captures.routing import LOST
from tests.maintenance.backups.making import query, tidy
from tests.maintenance.native_stores import add_session, new_store
from tests.support.children import Children
from tests.support.routes import bound, paired

pytestmark = pytest.mark.slow
LOSING = """
import sys
import gates
from hermes_state.errors import GenerationLost
from hermes_state.store import open_store
from tests.support.routes import bound, locked, paired, reset

store = open_store(path=sys.argv[1])
home, routing = store.routing.home, store.routing
found = {one.key.chat_id: one for one in routing.page()}
routing.suspend(found["stopped"], home, reason="stuck")
routing.suspend(found["both"], home, reason="in the WAL")
reset(store, found["reset"], "after the reset")
routing.forget(found["forgotten"], home, actor="test", reason="left")
routing.pairing.revoke("telegram", "put out", home)
routing.pairing.approve("telegram", sys.argv[2], home, by="test")
routing.pairing.revoke("telegram", "asked", home)
paired(store, "let in")
locked(store, "discord")
bound(store, "new", "session of new")
if sys.argv[3] == "removed":
    routing.remove_home(home, actor="test", reason="sold")
gates.reach("written")
gates.wait("go")
try:
    store.sessions.create(id="never", source="cli")
except GenerationLost as error:
    gates.reach("lost", str(error.capture))
    gates.wait("end")
"""


@pytest.fixture
def db(tmp_path: Path) -> Path:
    path = new_store(tmp_path)
    add_session(path, "talk")
    with open_store(path=path) as store:
        for chat in ("stopped", "both", "reset", "forgotten", "same"):
            bound(store, chat)
        for name in ("stays", "put out"):
            paired(store, name)
        (tmp_path / "code").write_text(store.routing.pairing.request("telegram", "asked", store.routing.home))
    return tidy(path)


def lose(path: Path, child: Children, code: str, *, removed: bool = False) -> Path:
    gateway = child(LOSING, path, code, "removed" if removed else "")
    gateway.wait_for("written")
    for name in ("-wal", "-shm"):
        os.unlink(f"{path}{name}")
    gateway.release("go")
    capture = Path(gateway.wait_for("lost"))
    gateway.kill()
    return capture


def test_what_only_the_lost_wal_stopped_or_took_back_is_so_and_nobody_is_let_in(
    db: Path, tmp_path: Path, child: Children
) -> None:
    code = (tmp_path / "code").read_text()
    capture = lose(db, child, code)
    with open_store(path=db) as store:
        both = store.routing.get("agent:main:telegram:dm:both")
        assert both is not None
        store.routing.expire(both, store.routing.home, reason="in the store")
        assert len(store.routing.pairing.paired()) == 2
    tidy(db)
    seen = merge_wal(capture, db, dry_run=True)
    done = merge_wal(capture, db)
    assert [one.rows["routing"] for one in (*seen.captures, *done.captures)] == [7, 7]
    with open_store(path=db) as store:
        found = store.routing.page()
        assert {one.key.chat_id: (str(one.state), one.state_reason, one.session_id) for one in found} == {
            "stopped": ("suspended", "stuck", "session of stopped"),
            "both": ("expired", "in the store", "session of both"), "reset": ("active", "", "after the reset"),
            "same": ("active", "", "session of same"), "new": ("active", "", "session of new"),
        }
        assert [one.user_id for one in store.routing.pairing.paired()] == ["stays"]
        assert store.routing.pairing.approve("telegram", code, store.routing.home, by="thief") is None
        assert bound(store, "forgotten").generation == 3
    assert query(db, "SELECT platform, failures FROM pairing_failures ORDER BY platform") == [
        ("discord", 5), ("telegram", 1),
    ]
    before = query(db, "SELECT * FROM routing_entries")
    again = merge_wal(capture, tidy(db))
    assert "routing" not in again.captures[0].rows and query(db, "SELECT * FROM routing_entries") == before


def test_a_removal_that_only_the_lost_wal_has_holds_and_a_chat_without_its_session_needs_a_new_one(
    db: Path, tmp_path: Path, child: Children
) -> None:
    capture = lose(db, child, (tmp_path / "code").read_text(), removed=True)
    with open_store(path=db) as store:
        store.sessions.create(id="after the reset", source="telegram")
        store.sessions.delete(["after the reset"], actor="test", reason="test")
    merge_wal(capture, tidy(db))
    with open_store(path=db) as store:
        reset = store.routing.get("agent:main:telegram:dm:reset")
        assert reset is not None and (reset.state_reason, reset.goes_on) == (LOST, False)
        with pytest.raises(HomeRemoved):
            bound(store, "other")
