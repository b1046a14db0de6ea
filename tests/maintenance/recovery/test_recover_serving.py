"""Gateways of a damaged store: nobody is let in on a row that is not sure, and no removed id comes free."""

from __future__ import annotations

import gzip
from pathlib import Path

import apsw
import pytest

from hermes_state import open_store
from hermes_state.errors import EnrollmentExpired, Entombed
from hermes_state.outbox.states import State
from hermes_state.testing.pages import DatabaseFile
from hermes_state.turns.records import transport_of
from maintenance.dialects.native.serving import REGISTRY, TABLES, later_of
from maintenance.recovery.install import install
from maintenance.recovery.records import Report
from maintenance.recovery.run import recover
from maintenance.recovery.serving import ANOTHER_TURN, ANSWER_NOT_KNOWN, NOT_SURE, ROW_LOST
from tests.maintenance.adopting import nobody
from tests.maintenance.backups.making import leave_wal, query, tidy
from tests.maintenance.recovery.recovering import little_space
from tests.maintenance.serving import epoch, let_in, serving_store, stands, statuses, turns
from tests.support.gateways import ask, at_work, enrolled, hear, run, thread
from tests.support.native_release import FOLDER
from tests.support.space import context

__all__ = ["little_space"]
pytestmark = pytest.mark.usefixtures("little_space")


def recovered(db: Path) -> Report:
    return recover(db, db.with_name("out.db"), allow_partial=True)


def decisions(report: Report, *what: str) -> list[tuple[str, object]]:
    return [(said["what"], said.get("key")) for said in report.decisions if said["what"] in what]


def zero(db: Path, name: str) -> None:
    (root,) = query(db, f"SELECT rootpage FROM sqlite_schema WHERE name = '{name}'")[0]
    with db.open("r+b") as file:
        file.seek((root - 1) * 4096)
        file.write(bytes(4096))


def unguarded(db: Path, *statements: str) -> None:
    """Change rows as damage would, past triggers and CHECKs; the triggers come back."""
    connection = apsw.Connection(str(db))
    connection.execute("PRAGMA writable_schema = on; PRAGMA ignore_check_constraints = on").fetchall()
    kept = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
    for name, _sql in kept:
        connection.execute(f"DROP TRIGGER {name}").fetchall()
    for statement in statements:
        connection.execute(statement).fetchall()
    for _name, sql in kept:
        connection.execute(sql).fetchall()
    connection.close()
    tidy(db)


def test_a_sound_store_comes_back_with_everybody_who_was_let_in(tmp_path: Path) -> None:
    db = serving_store(tmp_path)
    before = stands(db), turns(db), statuses(db)
    report = recovered(db)
    assert (stands(report.output), turns(report.output), statuses(report.output)) == before and not report.lost
    assert let_in(report.output, "laptop") == "yes" and epoch(report.output) == 3
    for table in sorted(TABLES):
        assert query(report.output, f"SELECT * FROM {table}") == query(db, f"SELECT * FROM {table}")
        assert report.table(table).uncertain == 0
    with open_store(path=report.output) as store:
        with pytest.raises(Entombed):
            store.instances.add("sold", nickname="Sold", actor="test")
        assert hear(store) == [("stop", "stops")] and len(store.turns.questions()) == 1
    with pytest.raises(apsw.ConstraintError, match="an instance does not change so"):
        query(report.output, "UPDATE gateway_instances SET state = 'enrolled' WHERE state = 'removed'")


@pytest.mark.parametrize("table", sorted(REGISTRY))
def test_where_anything_that_lets_in_is_lost_nobody_is_let_in(tmp_path: Path, table: str) -> None:
    db = serving_store(tmp_path)
    with open_store(path=db) as store:
        token = store.instances.enroll("desk", nickname="Desk", actor="test").token
    zero(tidy(db), table)
    report = recovered(db)
    found = stands(report.output)
    assert "enrolled" not in found.values() and found["laptop"] == "revoked"
    assert let_in(report.output, "laptop") == "instance_revoked"
    assert query(report.output, "SELECT count(*) FROM gateway_credentials") == [(0,)]
    with open_store(path=report.output) as store:
        with pytest.raises(EnrollmentExpired):
            store.instances.redeem(token, actor="thief")
        if table == "gateway_instances":
            assert store.instances.get("laptop").state_reason == ROW_LOST
            assert decisions(report, "instance_made") == [("instance_made", "laptop"), ("instance_made", "sold")]
        else:
            assert store.instances.get("laptop").state_reason == NOT_SURE
            assert decisions(report, "instance_revoked") == [("instance_revoked", "laptop")]
        enrolled(store, "laptop", "another")
    assert let_in(report.output, "laptop", "another") == "yes"


def test_nothing_but_stops_is_owed_any_more_to_an_instance_that_is_revoked(tmp_path: Path) -> None:
    db = serving_store(tmp_path, "kept")
    with open_store(path=db) as store:
        at_work(store)
        before = {one.kind for one in store.outbox.page(transport=transport_of("laptop"))}
    assert before > {"stop"}
    zero(tidy(db), "enrollment_tokens")
    report = recovered(db)
    with open_store(path=report.output) as store:
        left = store.outbox.page(transport=transport_of("laptop"), states=[State.PENDING])
        assert [one.kind for one in left] == ["stop"]
        enrolled(store, "laptop", "another")
        assert hear(store) == [("stop", "stops")]
    assert len(decisions(report, "obligation_ended")) == len(before) - 1


def test_a_revocation_in_a_part_of_the_wal_that_sqlite_does_not_read_stands(tmp_path: Path) -> None:
    db = serving_store(tmp_path, "laptop", "kept")
    with open_store(path=db) as store:
        thread(store, "runs")
        run(store, "runs", "runs")
        question = ask(store, "runs", "runs", "r1")
    tidy(db)
    leave_wal(
        db, "UPDATE sessions SET cwd = '/work'", "DELETE FROM gateway_credentials WHERE instance_id = 'laptop'",
        "UPDATE gateway_instances SET state = 'revoked', state_at = 2e9, state_reason = 'stolen'"
        " WHERE instance_id = 'laptop'", "UPDATE sessions SET cwd = '/home'",
    )
    with Path(f"{db}-wal").open("r+b") as file:
        file.seek(32 + 30)  # within the first frame
        file.write(b"\xff\x00\xff")
    report = recovered(db)
    assert stands(report.output) == {"laptop": "revoked", "kept": "revoked"} and epoch(report.output) >= 1_000_000
    with open_store(path=report.output) as store:
        assert store.instances.get("laptop").state_reason == "stolen"
        assert str(store.turns.question(question).state) == "cancelled"


def test_removed_ids_keep_a_tombstone_that_is_lost(tmp_path: Path) -> None:
    db = serving_store(tmp_path)
    zero(db, "tombstones")
    zero(db, "tombstone_references")
    report = recovered(db)
    assert decisions(report, "tombstone_made") == [("tombstone_made", "sold")]
    with open_store(path=report.output) as store:
        (kept,) = store.instances.tombstones()
        assert (kept.key, kept.references) == ("sold", 1) and store.instances.gc().instance_ids == ()
    assert let_in(report.output, "laptop") == "yes"


def test_a_tombstone_whose_tree_is_lost_is_found_on_its_page(tmp_path: Path) -> None:
    db = serving_store(tmp_path)
    with open_store(path=db) as store:
        for number in range(120):
            enrolled(store, f"gone {number}")
            store.instances.revoke(f"gone {number}", actor="test", reason="sold " * 20)
            store.instances.remove(f"gone {number}", actor="test", reason="sold " * 20)
    zero(tidy(db), "tombstones")
    report = recovered(db)
    with open_store(path=report.output) as store:
        assert len(store.instances.tombstones(limit=1000)) == 121
    assert report.table("tombstones").uncertain > 0 or decisions(report, "tombstone_made")


def test_what_may_stand_once_stands_once_and_blocks_no_row(tmp_path: Path) -> None:
    db = serving_store(tmp_path)
    unguarded(
        db, "DROP INDEX turns_active", "DROP INDEX gateway_instances_nickname", "DROP INDEX stops_pending",
        "INSERT INTO turns (turn_id, thread_id, session_id, state, started_at)"
        " VALUES ('later', 'runs', 's', 'running', 1)",
        "UPDATE gateway_instances SET nickname = 'Desk', nickname_key = 'desk' WHERE instance_id = 'lost'",
        "INSERT INTO stops (stop_id, instance_id, thread_id, session_id, obligation, asked_at)"
        " SELECT 'later', instance_id, thread_id, session_id, 'stop/later', 5 FROM stops WHERE state = 'pending'",
        "UPDATE interactions SET args = '{\"command\": '",
    )
    report = recovered(db)
    assert turns(report.output)["turn of runs"] == ("failed", ANOTHER_TURN)
    assert turns(report.output)["later"] == ("running", None)
    with open_store(path=report.output) as store:
        assert store.turns.thread("runs").active_turn_id == "later"
        # The one that changed last keeps its nickname.
        assert sorted(one.nickname for one in store.instances.page()) == ["Desk", "Desk (desk)", "Laptop", "Shelf"]
        (question,) = store.turns.questions()
        assert question.args == {"unreadable": '{"command": '}
        store.turns.sweep()
        assert {*hear(store)} == {("stop", "stops")}
    assert query(report.output, "SELECT stop_id, state FROM stops WHERE stop_id = 'later'") == [("later", "acked")]
    names = {str(name) for (name,) in query(report.output, "SELECT name FROM sqlite_schema WHERE type = 'index'")}
    assert names >= {"turns_active", "gateway_instances_nickname", "stops_pending", "enrollment_tokens_pending"}


def test_a_thread_says_what_its_turns_say_and_a_lost_question_gives_its_number_to_nobody(tmp_path: Path) -> None:
    db = serving_store(tmp_path)
    zero(db, "turns")
    zero(db, "interactions")
    report = recovered(db)
    assert set(statuses(report.output).values()) == {"ready", "stop_pending", "stopped"}
    assert ("thread_mended", "runs") in decisions(report, "thread_mended")
    with open_store(path=report.output) as store:
        assert store.turns.questions() == []
        run(store, "runs", "again")
        assert ask(store, "runs", "again", "r9") > 2


def test_the_epoch_is_above_every_one_that_a_row_names(tmp_path: Path) -> None:
    db = serving_store(tmp_path)
    with open_store(path=db) as store:
        store.core.write(lambda tx: tx.execute("UPDATE turns SET generation = '7.2' WHERE turn_id = 'turn of runs'"))
        store.core.write(lambda tx: tx.execute("DELETE FROM leases"))
    report = recovered(tidy(db))
    assert epoch(report.output) == 7 and decisions(report, "epoch_raised") == [("epoch_raised", "gateway server")]
    zero(db, "leases")
    assert epoch(recover(db, db.with_name("other.db"), allow_partial=True).output) > 1_000_000


def test_an_open_question_that_is_not_certain_is_not_asked_again(tmp_path: Path) -> None:
    db = serving_store(tmp_path)
    with open_store(path=db) as store:
        for number in range(90):
            ask(store, "runs", "turn of runs", f"more {number}")
    zero(tidy(db), "interactions")
    report = recovered(db)
    with open_store(path=report.output) as store:
        assert store.turns.questions() == []
    assert query(report.output, "SELECT DISTINCT state, reason FROM interactions WHERE state <> 'resolved'") == [
        ("cancelled", ANSWER_NOT_KNOWN)
    ]


def test_what_is_recovered_from_a_store_of_an_earlier_release_says_nothing_of_gateways(tmp_path: Path) -> None:
    db = tmp_path / "state.db"
    db.write_bytes(gzip.decompress((FOLDER / "0.5.0-filled.db.gz").read_bytes()))
    report = recovered(db)
    assert not report.lost and stands(report.output) == {} and epoch(report.output) == 0


def test_of_two_versions_the_later_state_stands() -> None:
    one = {"instance_id": "a", "state": "enrolled", "state_at": 5.0}
    assert [later_of("gateway_instances", first, second) for first, second in (
        (one, one | {"state": "revoked"}), (one | {"state": "revoked"}, one),
        (one | {"state": "revoked"}, one | {"state_at": 6.0}), (one, one), (one, one | {"instance_id": "b"}),
    )] == [True, False, True, None, None]
    turn = {"turn_id": "t", "settled_at": None, "items": 1}
    assert [later_of("turns", first, second) for first, second in (
        (turn, turn | {"settled_at": 5.0}), (turn | {"settled_at": 5.0}, turn), (turn, turn | {"items": 2}),
    )] == [True, False, True]


def test_an_install_over_the_very_store_leaves_everybody_and_over_a_later_one_revocations_stay(tmp_path: Path) -> None:
    db = serving_store(tmp_path)
    report = recovered(db)
    done = install(context(db), report, scanner=nobody)
    assert let_in(db, "laptop") == "yes" and sum(done.gateways.document().values()) == 0
    with open_store(path=db) as store:
        store.instances.revoke("laptop", actor="test", reason="stolen")
    done = install(context(tidy(db)), report, scanner=nobody)
    assert let_in(db, "laptop") == "instance_revoked" and done.gateways.instances == 1


def test_the_pages_of_the_tables_are_known(tmp_path: Path) -> None:
    with DatabaseFile(serving_store(tmp_path)) as file:
        assert all(file.object(name).root for name in TABLES)
