"""Gateway instances after older content was put back: nobody who was put out since comes in again."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from hermes_state import open_store
from hermes_state.errors import EnrollmentExpired, Entombed, InstanceRemoved
from hermes_state.instances import credentials
from hermes_state.instances.protocol import VersionRange
from maintenance.backups import backup
from maintenance.backups.drilling import drill
from maintenance.replacement.serving import LOST, NOT_KNOWN, NOT_THERE
from tests.maintenance.adopting import nobody
from tests.maintenance.backups.making import put_back, query, tidy
from tests.maintenance.native_stores import add_session, new_store
from tests.maintenance.replacement.replacing import STATES, overwrite
from tests.maintenance.serving import epoch, let_in, serving_store, stands, statuses, turns
from tests.support.cli import RunCli
from tests.support.gateways import CREDENTIAL, ask, complete, enrolled, hear, run, serve, thread
from tests.support.native_release import FOLDER

VERSIONS = VersionRange(2, 3)


def started(db: Path) -> None:
    """One start of a gateway server more."""
    with open_store(path=db) as store, store.gateway.serve(versions=VERSIONS):
        pass


def test_what_happened_to_instances_since_the_backup_stays(tmp_path: Path) -> None:
    db = serving_store(tmp_path, "revoked", "removed", "again", "kept", "named")
    with open_store(path=db) as store:
        thread(store, "of removed", "removed")
        used = store.instances.enroll("waits", nickname="Waits", actor="test").token
        open_still = store.instances.enroll("unused", nickname="Unused", actor="test").token
    made = backup(tidy(db))
    with open_store(path=db) as store:
        store.instances.revoke("revoked", actor="test", reason="stolen")
        store.instances.revoke("removed", actor="test", reason="sold")
        store.instances.remove("removed", actor="test", reason="sold")
        enrolled(store, "again", "the second credential")
        enrolled(store, "later")
        store.instances.redeem(used, actor="plugin")
        store.instances.change("named", nickname="Unused two")
        store.instances.change("kept", nickname="Named")
    tidy(db)
    before = stands(db)
    done = put_back(made.path, db)
    assert stands(db) == before == {
        "revoked": "revoked", "removed": "removed", "again": "enrolled", "kept": "enrolled", "named": "enrolled",
        "waits": "enrolled", "unused": "configured", "later": "enrolled",
    }
    assert let_in(db, "revoked") == "instance_revoked" and let_in(db, "removed") == "invalid_authentication"
    assert let_in(db, "again") == "invalid_authentication" and let_in(db, "again", "the second credential") == "yes"
    assert (let_in(db, "kept"), let_in(db, "later")) == ("yes", "yes")
    with open_store(path=db) as store:
        with pytest.raises(EnrollmentExpired):
            store.instances.redeem(used, actor="thief")
        with pytest.raises(InstanceRemoved):
            store.instances.enroll("removed", nickname="New", actor="test")
        with pytest.raises(Entombed):
            store.instances.add("removed", nickname="New", actor="test")
        assert [(one.key, one.references) for one in store.instances.tombstones()] == [("removed", 1)]
        assert store.instances.by_nickname("named") == store.instances.get("kept")
        assert store.instances.redeem(open_still, actor="plugin").instance.instance_id == "unused"
    assert done.replaced is not None and done.replaced.gateways.document() == {
        "instances": 7, "revoked": 0, "tokens": 0, "tombstones": 1, "threads": 0, "settled": 0, "lost": 0,
        "cancelled": 0,
    }


def test_turns_questions_and_stops_that_ended_since_stay_ended_and_what_goes_on_goes_on(tmp_path: Path) -> None:
    db = serving_store(tmp_path, "laptop")
    with open_store(path=db) as store:
        for name in ("ends", "runs", "stops", "asks", "open"):
            thread(store, name)
            run(store, name, name)
        question, still = ask(store, "asks", "asks", "r1"), ask(store, "open", "open", "r2")
    made = backup(tidy(db))
    with open_store(path=db) as store:
        complete(store, "ends", "ends")
        run(store, "ends", "ends 2")
        store.turns.answer(question, "accept")
        store.turns.stop("stops")
        thread(store, "later")
        run(store, "later", "later")
    tidy(db)
    before = turns(db), statuses(db)
    done = put_back(made.path, db)
    assert (turns(db), statuses(db)) == before and before[0]["ends"] == ("completed", None)
    assert done.replaced is not None
    assert (done.replaced.gateways.settled, done.replaced.gateways.threads, done.replaced.gateways.lost) == (2, 1, 0)
    with open_store(path=db) as store:
        assert str(store.turns.question(question).decision) == "once"
        assert [one.id for one in store.turns.questions()] == [still]
        assert sorted(hear(store)) == [("approval", "asks"), ("stop", "stops")]
        assert str(store.turns.thread("stops").status) == "stopped"
        complete(store, "ends", "ends 2")
        assert ask(store, "later", "later", "r3") > still


def test_of_what_only_the_backup_has_nothing_is_under_way_and_nobody_is_let_in(tmp_path: Path) -> None:
    db = serving_store(tmp_path, "laptop")
    early = backup(db, to=tmp_path / "early")
    with open_store(path=db) as store:
        enrolled(store, "only there")
        thread(store, "runs")
        run(store, "runs", "runs")
        question = ask(store, "runs", "runs", "r1")
    late = backup(tidy(db), to=tmp_path / "late")
    overwrite(db, bytes(4096))
    put_back(early.path, db)
    assert stands(db) == {"laptop": "revoked"}
    with open_store(path=db) as store:
        enrolled(store, "laptop", "another")
        enrolled(store, "Only There")
    done = put_back(late.path, tidy(db))
    assert stands(db) == {"laptop": "enrolled", "Only There": "enrolled", "only there": "revoked"}
    assert let_in(db, "only there") == "instance_revoked" and let_in(db, "laptop", "another") == "yes"
    assert let_in(db, "laptop") == "invalid_authentication"
    assert turns(db) == {"runs": ("failed", LOST)} and statuses(db) == {"runs": "ready"}
    with open_store(path=db) as store:
        found = store.instances.get("only there")
        assert (found.nickname, found.state_reason) == ("Only there (only there)", NOT_THERE)
        assert (str(store.turns.question(question).state), store.turns.question(question).reason) == ("cancelled", LOST)
    assert done.replaced is not None and done.replaced.gateways.document() == {
        "instances": 2, "revoked": 1, "tokens": 0, "tombstones": 0, "threads": 0, "settled": 0, "lost": 1,
        "cancelled": 1,
    }


@pytest.mark.parametrize("state", [name for name in STATES if name != "healthy"])
def test_over_a_store_that_cannot_be_read_nobody_is_let_in_until_enrolled_again(tmp_path: Path, state: str) -> None:
    db = serving_store(tmp_path)
    started(db)
    with open_store(path=db) as store:
        token = store.instances.enroll("desk", nickname="Desk", actor="test").token
    made = backup(tidy(db))
    started(db)
    STATES[state](tidy(db))
    done = put_back(made.path, db, new_store=True)
    assert stands(db) == {
        "desk": "configured", "shelf": "configured", "laptop": "revoked", "lost": "revoked", "sold": "removed",
    }
    assert let_in(db, "laptop") == "instance_revoked" and epoch(db) > 1_000_000
    assert turns(db) == {
        "turn of runs": ("failed", LOST), "turn of asks": ("failed", LOST), "turn of answered": ("failed", LOST),
        "turn of ended": ("completed", None),
        "turn of stops": ("stopped", NOT_KNOWN), "turn of stopped": ("stopped", None),
    }
    assert statuses(db) == {
        "runs": "ready", "asks": "ready", "answered": "ready", "ended": "ready", "stops": "stop_pending",
        "stopped": "stopped",
    }
    assert done.replaced is not None and done.replaced.gateways.document() == {
        "instances": 0, "revoked": 1, "tokens": 2, "tombstones": 0, "threads": 0, "settled": 0, "lost": 3,
        "cancelled": 1,
    }
    with open_store(path=db) as store:
        with pytest.raises(EnrollmentExpired):
            store.instances.redeem(token, actor="thief")
        assert store.turns.questions() == []
        assert store.instances.get("laptop").state_reason == NOT_KNOWN
        enrolled(store, "laptop", "another")
        assert hear(store) == [("stop", "stops")]
        run(store, "runs", "again")
        assert ask(store, "runs", "again", "r9") > 1_000_000


def test_of_a_store_that_can_be_read_in_part_what_ended_has_ended_and_nobody_is_believed(tmp_path: Path) -> None:
    db = serving_store(tmp_path, "laptop", "removed", "kept")
    with open_store(path=db) as store:
        for name in ("ends", "asks"):
            thread(store, name)
            run(store, name, name)
        question = ask(store, "asks", "asks", "r1")
    made = backup(tidy(db))
    with open_store(path=db) as store:
        complete(store, "ends", "ends")
        store.turns.answer(question, "accept")
        store.instances.revoke("removed", actor="test", reason="sold")
        store.instances.remove("removed", actor="test", reason="sold")
        enrolled(store, "later")
    tidy(db)
    (root,) = query(db, "SELECT rootpage FROM sqlite_schema WHERE name = 'enrollment_tokens_expiry'")[0]
    with db.open("r+b") as file:
        file.seek((root - 1) * 4096)
        file.write(bytes(4096))
    done = put_back(made.path, db)
    assert stands(db) == {"laptop": "revoked", "removed": "removed", "kept": "revoked", "later": "revoked"}
    assert turns(db) == {"ends": ("completed", None), "asks": ("failed", LOST)}
    with open_store(path=db) as store:
        assert str(store.turns.question(question).decision) == "once"
        assert [one.key for one in store.instances.tombstones()] == ["removed"]
    assert done.replaced is not None
    assert (done.replaced.gateways.revoked, done.replaced.gateways.settled) == (3, 2)


def test_the_epoch_of_the_server_never_falls(tmp_path: Path) -> None:
    db = serving_store(tmp_path, "laptop")
    made = backup(db)
    for _start in range(3):
        started(db)
    put_back(made.path, tidy(db))
    assert epoch(db) == 3
    started(db)
    assert epoch(db) == 4


def test_a_backup_from_before_instances_gets_the_tables_when_the_store_has_some(tmp_path: Path) -> None:
    old = tmp_path / "old.db"
    old.write_bytes(gzip.decompress((FOLDER / "0.5.0-filled.db.gz").read_bytes()))
    db = tmp_path / "home" / "state.db"
    db.parent.mkdir()
    db.write_bytes(old.read_bytes())
    with open_store(path=db) as store:
        serve(store)
    tidy(db)
    before = stands(db), turns(db), statuses(db)
    put_back(old, db)
    assert (stands(db), turns(db), statuses(db)) == before and let_in(db, "laptop") == "yes"


def test_a_stop_of_an_instance_that_was_removed_since_is_owed_to_nobody(tmp_path: Path) -> None:
    db = serving_store(tmp_path)
    made = backup(db)
    with open_store(path=db) as store:
        store.instances.revoke("laptop", actor="test", reason="sold")
        store.instances.remove("laptop", actor="test", reason="sold")
    put_back(made.path, tidy(db))
    with open_store(path=db) as store:
        assert hear(store) == [] and {status for status in statuses(db).values()} == {"stopped"}
    assert query(db, "SELECT DISTINCT state FROM stops ORDER BY 1") == [("acked",), ("cancelled",)]


def test_a_drill_compares_instances_and_judges_nobody(tmp_path: Path) -> None:
    assert drill(backup(serving_store(tmp_path)).path, scanner=nobody).findings == ()


def test_another_key_for_digests_comes_with_its_digests(tmp_path: Path) -> None:
    db = new_store(tmp_path)
    add_session(db, "talk")
    made = backup(tidy(db))
    with open_store(path=db) as store:
        enrolled(store, "laptop")
    put_back(made.path, tidy(db))
    assert let_in(db, "laptop", CREDENTIAL) == "yes"
    with open_store(path=db) as store, store.core.reader() as reader:
        assert credentials.digest(reader, "credential", CREDENTIAL, of="laptop") is not None


def test_the_command_says_who_has_to_be_enrolled_again(tmp_path: Path, run_cli: RunCli) -> None:
    db = serving_store(tmp_path, "laptop", "phone")
    made = backup(db)
    overwrite(db, bytes(4096))
    before = made.path.read_bytes()
    dry = run_cli("sessions", "restore", str(made.path), "--db", str(db), "--new-store", "--dry-run")
    assert [line.strip() for line in dry.stdout.splitlines() if "gateway" in line] == [
        "2 gateway instances would be revoked, since nobody knows whether that happened after the backup: enroll those"
        " again that are yours, with `hermes-state instances enroll`"
    ]
    assert made.path.read_bytes() == before
    ended = run_cli("sessions", "restore", str(made.path), "--db", str(db), "--new-store", "--yes")
    assert ended.stdout.splitlines()[-1] == (
        "2 gateway instances are revoked, since nobody knows whether that happened after the backup: enroll those again"
        " that are yours, with `hermes-state instances enroll`."
    )


@pytest.mark.slow
@pytest.mark.parametrize("state", ["healthy", "in part", "gone"])
def test_what_is_said_beforehand_of_gateways_is_what_is_done(tmp_path: Path, run_cli: RunCli, state: str) -> None:
    db = serving_store(tmp_path)
    made = backup(db)
    with open_store(path=db) as store:
        complete(store, "runs", "turn of runs")
        store.instances.revoke("laptop", actor="test", reason="stolen")
        enrolled(store, "later")
    tidy(db)
    if state == "in part":
        (root,) = query(db, "SELECT rootpage FROM sqlite_schema WHERE name = 'enrollment_tokens_expiry'")[0]
        with db.open("r+b") as file:
            file.seek((root - 1) * 4096)
            file.write(bytes(4096))
    elif state == "gone":
        db.unlink()
    args = ("sessions", "restore", str(made.path), "--db", str(db), "--json")
    said = run_cli(*args, "--dry-run").json["gateways_then"]
    done = run_cli(*args, "--yes").json
    assert said == done["gateways_then"] == done["gateways"] and any(said.values())


def test_a_backup_from_before_instances_says_how_many_come_in(tmp_path: Path, run_cli: RunCli) -> None:
    old = tmp_path / "old.db"
    old.write_bytes(gzip.decompress((FOLDER / "0.5.0-filled.db.gz").read_bytes()))
    db = tmp_path / "home" / "state.db"
    db.parent.mkdir()
    db.write_bytes(old.read_bytes())
    with open_store(path=db) as store:
        serve(store)
    tidy(db)
    said = run_cli("sessions", "restore", str(old), "--db", str(db), "--dry-run", "--json").json["gateways_then"]
    assert (said["instances"], said["revoked"]) == (5, 0)
