"""Gateways in a WAL that was lost: who was put out there is out, and what ended there has ended."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hermes_state.errors import EnrollmentExpired
from hermes_state.store import open_store
from maintenance.recovery.captures.merge import merge_wal
from maintenance.recovery.captures.serving import ENDED, ONLY_THERE
from tests.maintenance.backups.making import tidy
from tests.maintenance.serving import let_in, serving_store, stands, turns
from tests.support.children import Children
from tests.support.gateways import ask, enrolled, run, thread

pytestmark = pytest.mark.slow
LOSING = """
import sys
import gates
from hermes_state.errors import GenerationLost
from hermes_state.store import open_store
from tests.support.gateways import complete, enrolled

store = open_store(path=sys.argv[1])
store.instances.revoke("revoked", actor="test", reason="stolen")
store.instances.revoke("removed", actor="test", reason="sold")
store.instances.remove("removed", actor="test", reason="sold")
enrolled(store, "again", "the second credential")
enrolled(store, "new")
store.instances.bind("of new", "new", "session of new")
store.instances.redeem(sys.argv[2], actor="plugin")
complete(store, "ends", "ends")
store.turns.answer(1, "accept")
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
    db = serving_store(tmp_path, "revoked", "removed", "again", "kept", "laptop")
    with open_store(path=db) as store:
        for name in ("ends", "asks"):
            thread(store, name)
            run(store, name, name)
        ask(store, "asks", "asks", "r1")
        (tmp_path / "token").write_text(store.instances.enroll("waits", nickname="Waits", actor="test").token)
    return tidy(db)


def lose(path: Path, child: Children, token: str) -> Path:
    gateway = child(LOSING, path, token)
    gateway.wait_for("written")
    for name in ("-wal", "-shm"):
        os.unlink(f"{path}{name}")
    gateway.release("go")
    capture = Path(gateway.wait_for("lost"))
    gateway.kill()
    return capture


def test_whoever_was_put_out_in_the_lost_wal_is_out(db: Path, tmp_path: Path, child: Children) -> None:
    token = (tmp_path / "token").read_text()
    capture = lose(db, child, token)
    before = stands(db)
    assert set(before.values()) == {"enrolled", "configured"}
    counted = merge_wal(capture, db, dry_run=True).captures[0].rows["gateways"]
    assert stands(db) == before
    report = merge_wal(capture, db)
    assert report.captures[0].refused == () and report.captures[0].rows["gateways"] == counted
    expected = {
        "revoked": "revoked", "removed": "removed", "again": "revoked", "kept": "enrolled", "laptop": "enrolled",
        "waits": "configured", "new": "revoked",
    }
    assert stands(db) == expected and let_in(db, "kept") == "yes"
    assert let_in(db, "again") == let_in(db, "again", "the second credential") == "instance_revoked"
    assert turns(db) == {"ends": ("completed", None), "asks": ("running", None)}
    with open_store(path=db) as store:
        with pytest.raises(EnrollmentExpired):
            store.instances.redeem(token, actor="thief")
        assert (store.instances.get("again").state_reason, store.instances.get("new").state_reason) == (
            ENDED, ONLY_THERE,
        )
        assert [one.key for one in store.instances.tombstones()] == ["removed"]
        assert [one.thread_id for one in store.instances.bound("new")] == ["of new"]
        assert str(store.turns.question(1).decision) == "once"
        assert str(store.turns.thread("ends").status) == "ready"
    assert "gateways" not in merge_wal(capture, db).captures[0].rows and stands(db) == expected


def test_what_the_store_knows_later_stays(db: Path, tmp_path: Path, child: Children) -> None:
    capture = lose(db, child, (tmp_path / "token").read_text())
    with open_store(path=db) as store:
        store.instances.revoke("revoked", actor="test", reason="now")
        enrolled(store, "revoked", "the third")
        enrolled(store, "again", "the third")
        enrolled(store, "new", "the third")
    merge_wal(capture, db)
    assert {let_in(db, name, "the third") for name in ("revoked", "again", "new")} == {"yes"}
    assert stands(db)["removed"] == "removed"
