"""The doctor on gateways, and what a scrub makes of their texts."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_state.clock import SYSTEM, FakeClock
from hermes_state.engine import open_read, open_write
from hermes_state.errors import Entombed, IdempotencyConflict
from hermes_state.instances.protocol import VersionRange
from hermes_state.store import Store, open_store
from hermes_state.turns import FrameKind
from maintenance.doctor.findings import Finding, Severity
from maintenance.doctor.native_gateways import gateway_findings
from maintenance.scrub.patterns import Redactor, rules_for
from maintenance.scrub.work import replace
from tests.maintenance.backups.making import query
from tests.maintenance.scrub.scrubbing import scrubbed
from tests.maintenance.serving import opens
from tests.support.children import Children
from tests.support.cli import RunCli
from tests.support.gateways import ask, enrolled, frame, run, serve, thread
from tests.support.native_release import FOLDER


@pytest.fixture
def store(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Store]:
    with open_store(path=tmp_path / "home" / "state.db", clock=fake_clock) as opened:
        yield opened


def findings(store: Store) -> dict[str, Finding]:
    with open_read(store.core.path) as reader:
        return {one.code: one for one in gateway_findings(reader, store.core.clock)}


def force(store: Store, *statements: str) -> None:
    """Change what the library never does, as another program can."""
    with store.core.writer.transaction() as tx:
        triggers = tx.rows("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'")
        for name, _sql in triggers:
            tx.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            tx.execute(statement)
        for _name, sql in triggers:
            tx.execute(sql)


def test_what_there_is_of_gateways_is_counted(store: Store) -> None:
    assert findings(store)["gateways"].sentence == "There are no gateways."
    serve(store)
    told = findings(store)
    assert set(told) == {"gateways"} and told["gateways"].severity is Severity.OK
    assert told["gateways"].sentence == (
        "5 gateway instances (2 configured, 1 enrolled, 1 removed, 1 revoked); 4 turns under way, 1 open question, "
        "1 stop owed."
    )


def test_a_credential_that_should_have_ended_names_the_command_that_ends_it(store: Store) -> None:
    serve(store)
    force(store, "INSERT INTO gateway_credentials VALUES ('lost', randomblob(32), 5.0)")
    told = findings(store)["credential_left"]
    assert told.sentence == (
        "1 instance has a credential and may not connect (lost): another program put it there."
    )
    assert told.next_command == f"hermes-state instances revoke --db {store.core.path} lost"
    store.instances.revoke("lost", actor="test", reason="again")
    force(store, "DELETE FROM gateway_digest_key")
    told = findings(store)["digest_key_missing"]
    assert told.sentence == "The key of the store is gone, so no credential of 1 instance opens anything (laptop)."
    assert told.next_command == f"hermes-state instances enroll --db {store.core.path} laptop"


def test_a_removed_id_that_could_come_back_and_a_binding_to_nothing_are_problems(store: Store) -> None:
    serve(store)
    force(store, "DELETE FROM tombstone_references", "DELETE FROM tombstones WHERE kind = 'instance'")
    told = findings(store)["tombstone_missing"]
    assert told.sentence == (
        "Threads are bound to 1 removed instance whose id nothing keeps from coming back (sold): another program took "
        "the tombstone out."
    )
    assert told.next_command == f"hermes-state sessions recover --source {store.core.path}"
    path = store.core.path
    store.close()
    query(path, "DROP TRIGGER gateway_instances_go_as_told")
    query(path, "DELETE FROM gateway_instances WHERE instance_id = 'sold'")
    with open_read(path) as reader:
        told = {one.code: one for one in gateway_findings(reader, SYSTEM)}["binding_refers_to_nothing"]
    assert told.sentence == "1 thread is bound to instances that are not there (of sold)."


def test_a_thread_that_says_something_else_than_its_turn_is_a_problem(store: Store) -> None:
    serve(store)
    force(
        store, "UPDATE thread_states SET status = 'ready', active_turn_id = NULL WHERE thread_id = 'runs'",
        "UPDATE thread_states SET active_turn_id = 'nothing' WHERE thread_id = 'asks'",
    )
    told = findings(store)["thread_differs"]
    assert told.severity is Severity.WARNING and told.facts == {"threads": ["asks", "runs"]}
    assert told.sentence == (
        "2 threads say something else than the turns in them (asks, runs): another program or damage changed one of "
        "both."
    )


def test_an_epoch_that_would_be_given_again_is_a_problem(store: Store) -> None:
    serve(store)
    force(store, "UPDATE turns SET generation = '9.4' WHERE no = 1")
    told = findings(store)["gateway_epoch_low"]
    assert told.sentence == (
        "The next start of the gateway server gets epoch 4, and rows name 9: frames of connections that ended could "
        "pass for new ones."
    )
    assert told.next_command == f"hermes-state sessions recover --source {store.core.path}"


def test_an_enrollment_that_was_not_finished_and_questions_past_their_time_are_told(
    store: Store, fake_clock: FakeClock
) -> None:
    serve(store)
    store.instances.enroll("laptop", nickname="Laptop", actor="test")
    force(store, f"UPDATE interactions SET expires_at = {fake_clock.now()} WHERE state = 'open'")
    assert {"instances_out", "questions_overdue"}.isdisjoint(findings(store))
    fake_clock.advance(3601)
    told = findings(store)
    assert told["instances_out"].sentence == (
        "1 enrolled instance has no credential, and no token that is good (laptop): a new enrollment was begun and not "
        "finished."
    )
    assert told["instances_out"].next_command == f"hermes-state instances enroll --db {store.core.path} laptop"
    assert told["questions_overdue"].sentence == (
        "The time of 1 question ran out more than an hour ago, and no gateway server was up to end it; the next one "
        "does."
    )
    assert {one.severity for one in told.values()} == {Severity.OK, Severity.INFO}


SERVING = """
import sys, gates
from hermes_state import open_store
from hermes_state.instances.protocol import VersionRange
with open_store(path=sys.argv[1]) as store, store.gateway.serve(versions=VersionRange(2, 3)):
    gates.reach("up")
    gates.wait("never")
"""


@pytest.mark.slow
def test_a_server_that_is_gone_is_told_and_one_that_runs_is_not(tmp_path: Path, child: Children) -> None:
    db = tmp_path / "home" / "state.db"
    with open_store(path=db) as store:
        enrolled(store, "laptop")
        thread(store, "runs")
        server = child(SERVING, db)
        server.wait_for("up")
        assert "gateway_server_gone" not in findings(store)
        run(store, "runs", "runs")
        server.kill()
        told = findings(store)["gateway_server_gone"]
        assert told.sentence == (
            "The process of the gateway server (epoch 1) is gone without having let go, with 1 turn under way: the "
            "next start settles what it can, and asks the gateways for the rest."
        )
        assert told.next_command == f"hermes-state instances list --db {db}"
        with store.gateway.serve(versions=VersionRange(2, 3)):
            assert "gateway_server_gone" not in findings(store)


def test_a_store_from_before_gateways_says_so_and_one_of_this_release_is_fine(tmp_path: Path, run_cli: RunCli) -> None:
    for release, said in (("0.5.0", "There are no gateways: the tables"), ("0.6.0", "5 gateway instances (2 conf")):
        db = tmp_path / release / "state.db"
        db.parent.mkdir()
        db.write_bytes(gzip.decompress((FOLDER / f"{release}-filled.db.gz").read_bytes()))
        ran = run_cli("doctor", "--db", db, "--json")
        (told,) = [one for one in ran.json["findings"] if one["code"] == "gateways"]
        assert ran.exit_code == 0 and told["sentence"].startswith(said)


# --- scrub -----------------------------------------------------------------------------------------------------------


def test_texts_of_gateways_are_scrubbed_and_who_may_connect_stays(store: Store, fake_clock: FakeClock) -> None:
    serve(store)
    store.instances.rename("laptop", "The hunter2 laptop")
    store.instances.change("desk", connector_url="ws://desk/hunter2")
    store.instances.revoke("shelf", actor="hunter2", reason="it said hunter2")
    run(store, "ended", "more")
    store.turns.receive(frame(FrameKind.ITEM, "ended", "more", item_type="status_text", text="key hunter2"))
    number = ask(store, "ended", "more", "r7")
    force(
        store, "UPDATE interactions SET args = '{\"command\": \"hunter2\"}', detail = 'hunter2' WHERE id = 3",
        "UPDATE turns SET error = 'hunter2' WHERE turn_id = 'turn of ended'",
        "UPDATE gateway_operations SET outcome = '{\"hunter2\": 1}' WHERE id = 'operation 2'",
        "UPDATE gateway_attention SET detail = 'hunter2'",
    )
    store.turns.home.receive("laptop", "delivery 2", {"text": "hunter2"})
    with store.core.reader() as reader:
        digests = reader.rows("SELECT * FROM gateway_credentials"), reader.rows("SELECT * FROM enrollment_tokens")
    assert number == 3
    assert scrubbed(store, fake_clock) == {
        "gateway_instances": 3, "turn_items": 1, "interactions": 1, "turns": 1, "gateway_operations": 1,
        "gateway_attention": 1, "home_deliveries": 1,
    }
    with store.core.reader() as reader:
        assert (
            reader.rows("SELECT * FROM gateway_credentials"), reader.rows("SELECT * FROM enrollment_tokens")
        ) == digests
        (kept,) = reader.rows("SELECT payload, payload_check FROM home_deliveries WHERE delivery_id = 'delivery 2'")
        assert kept[1] == hashlib.sha256(kept[0].encode()).hexdigest()
        (key,) = reader.rows("SELECT nickname_key FROM gateway_instances WHERE instance_id = 'laptop'")[0]
        assert key.startswith("the [redacted") and "hunter2" not in key
    assert opens(store, "laptop") == "yes"
    assert "[redacted" in store.turns.question(3).args["command"]
    with pytest.raises(IdempotencyConflict):
        store.turns.home.receive("laptop", "delivery 2", {"text": "hunter2"})


def test_a_removed_id_stays_out_whatever_is_scrubbed(store: Store, fake_clock: FakeClock) -> None:
    for name in ("free hunter2", "bound hunter2"):
        enrolled(store, name)
    thread(store, "thread of hunter2", "bound hunter2")
    for name in ("free hunter2", "bound hunter2"):
        store.instances.revoke(name, actor="test", reason="sold")
        store.instances.remove(name, actor="hunter2", reason="it said hunter2")
    before = [(one.key, one.references) for one in store.instances.tombstones()]
    assert before == [("bound hunter2", 1), ("free hunter2", 0)]
    with open_write(store.core.path) as writer:
        replace(writer, Redactor(rules_for(["hunter2"], None)), fake_clock)
    after = store.instances.tombstones()
    assert [(one.key, one.references) for one in after] == before
    assert not any("hunter2" in one.actor + one.reason for one in after)
    for name in ("free hunter2", "bound hunter2"):
        with pytest.raises(Entombed):
            store.instances.add(name, nickname="Another", actor="test")


def test_ids_and_words_of_ours_are_no_texts(store: Store, fake_clock: FakeClock) -> None:
    serve(store)
    pattern = "laptop$|running|turn of .*|session of .*|boot-1|r1|status_text|assistant"
    assert scrubbed(store, fake_clock, pattern).keys() == {"outbox", "changes"}
    assert str(store.turns.thread("runs").status) == "running" and opens(store, "laptop") == "yes"
