"""The doctor on native stores: what it says of a sound one, and of each thing that can be wrong with one."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from hermes_state.engine import open_write
from hermes_state.engine.create import create_store
from hermes_state.store import open_store
from maintenance.dialects.native.sample import spread
from maintenance.doctor.native_rows import SAMPLE
from tests.maintenance.native_stores import NOW, add_session, change, new_store, value

# Every test runs the program in a process of its own, some several times.
pytestmark = pytest.mark.slow

RunCli = Callable[..., Any]


@pytest.fixture
def db(tmp_path: Path, fake_clock: Any) -> Path:
    return new_store(tmp_path)


def doctor(run_cli: RunCli, db: Path, *more: str, status: int) -> dict[str, Any]:
    result = run_cli("doctor", "--json", "--db", str(db), *more)
    assert result.exit_code == status, result.stderr or [
        finding for finding in json.loads(result.stdout)["findings"] if finding["severity"] in ("warning", "damage")
    ]
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def found(document: dict[str, Any], code: str) -> dict[str, Any]:
    [finding] = [finding for finding in document["findings"] if finding["code"] == code]
    return dict(finding)


def force(db: Path, *statements: str) -> None:
    """Change what the schema forbids, as another program with other settings can."""
    with open_write(db) as store, store.transaction() as tx:
        for statement in statements:
            tx.execute(statement)


def test_a_sound_store_is_healthy_and_says_what_was_looked_at(run_cli: RunCli, db: Path) -> None:
    add_session(db, "one", messages=5)
    document = doctor(run_cli, db, "--deep", status=0)
    assert document["verdict"] == "healthy"
    codes = {finding["code"] for finding in document["findings"]}
    assert codes >= {
        *("native_identity", "schema", "mode", "leases", "streams", "tombstones", "identity_single", "message_checks"),
        *("message_numbers", "message_ids", "activity", "bodies", "order", "no_search_index", "pages", "foreign_keys"),
    }
    assert found(document, "message_checks")["sentence"] == "5 messages match their check."
    assert found(document, "schema")["sentence"] == "Schema at step 12, every step as this release has it."


def test_a_message_that_differs_from_its_check_is_damage(run_cli: RunCli, db: Path) -> None:
    add_session(db, "one", messages=3)
    change(db, "UPDATE messages SET content = 'something else' WHERE id = 2")
    document = doctor(run_cli, db, status=65)
    finding = found(document, "message_check_failed")
    assert finding["sentence"] == (
        "1 message of 3 looked at does not match its check (2): the content is not what was written. A copy made now "
        "carries the same damage; keep older backups."
    )
    assert document["next_command"] == f"hermes-state sessions recover --source {db}"


def test_the_sample_is_spread_and_deep_reads_all(run_cli: RunCli, db: Path) -> None:
    add_session(db, "many", messages=5000)
    looked_at = spread(1, 5000, SAMPLE)
    # Both halves and both roles of a conversation are in it.
    assert 990 < sum(number % 2 for number in looked_at) < 1010
    assert 990 < sum(number <= 2500 for number in looked_at) < 1010
    left_out = next(number for number in range(4000, 5000) if number not in looked_at)
    change(db, ("UPDATE messages SET content = 'x' WHERE id = ?", (left_out,)))
    sampled = doctor(run_cli, db, status=0)
    assert found(sampled, "message_checks")["facts"]["checked"] == len(looked_at)
    deep = doctor(run_cli, db, "--deep", status=65)
    assert found(deep, "message_check_failed")["facts"] == {"failed": 1, "checked": 5000, "messages": [left_out]}


def test_missing_messages_are_found_by_their_numbers(run_cli: RunCli, db: Path) -> None:
    add_session(db, "one", messages=5)
    add_session(db, "two", messages=5)
    force(db, "DELETE FROM messages WHERE session_no = 1 AND seq = 3")
    document = doctor(run_cli, db, status=3)
    assert found(document, "messages_missing")["sentence"] == (
        "1 session has another number of messages than their numbers say, the first one (4 of 5): rows were taken out "
        "or put in by another program."
    )


def test_a_message_that_was_deleted_singly_is_no_hole(run_cli: RunCli, db: Path) -> None:
    add_session(db, "one", messages=5)
    with open_store(path=db) as store:
        store.messages.delete("one", [3], reason="asked for", actor="test")
        store.messages.delete("one", [5], reason="asked for", actor="test")
    document = doctor(run_cli, db, status=0)
    sentence = "The next message gets id 6, above every id that was ever used."
    assert found(document, "message_ids")["sentence"] == sentence


def test_a_floor_below_a_deleted_id_is_a_problem(run_cli: RunCli, db: Path) -> None:
    add_session(db, "one", messages=5)
    with open_store(path=db) as store:
        store.messages.delete("one", [5], reason="asked for", actor="test")
    change(db, "UPDATE store SET message_floor = 0")
    assert found(doctor(run_cli, db, status=3), "message_floor_low")["facts"] == {
        "message_floor": 0, "newest": 4, "deleted": 5,
    }


def test_activity_that_the_list_does_not_know_is_a_problem(run_cli: RunCli, db: Path) -> None:
    add_session(db, "one", state="open", messages=2, days_old=1)
    change(db, "UPDATE sessions SET active_at = active_at - 3600")
    assert found(doctor(run_cli, db, status=3), "activity_behind")["facts"] == {"sessions": ["one"]}


def test_bodies_that_nothing_uses_are_said(run_cli: RunCli, db: Path) -> None:
    change(db, "INSERT INTO bodies (hash, codec, raw_bytes, frame) VALUES (1, 'plain', 1, x'61')")
    assert found(doctor(run_cli, db, status=0), "bodies_unused")["sentence"] == (
        "1 body and 0 shared texts are used by nothing and only take room."
    )


def test_a_step_that_this_release_does_not_know_is_a_problem_and_the_store_is_still_read(
    run_cli: RunCli, db: Path
) -> None:
    add_session(db, "one", days_old=1)
    change(db, "INSERT INTO migrations VALUES (900, '0900_pre_later', 'ab', 1, '9.0')")
    document = doctor(run_cli, db, status=3)
    assert found(document, "schema_of_another_release")["facts"] == {"code": "schema_too_new"}
    assert run_cli("sessions", "list", "--db", str(db)).exit_code == 0
    refused = run_cli("sessions", "pin", "one", "--db", str(db))
    assert (refused.exit_code, "Install the release that wrote it" in refused.stderr) == (1, True)
    assert value(db, "SELECT pinned_at FROM sessions") is None


def test_a_missing_object_of_the_schema_is_damage(run_cli: RunCli, db: Path) -> None:
    force(db, "DROP TRIGGER messages_are_immutable")
    document = doctor(run_cli, db, status=3)
    assert found(document, "schema_object_missing")["object"] == "messages_are_immutable"


def test_half_an_identity_is_damage_and_every_verb_says_so(run_cli: RunCli, db: Path) -> None:
    change(db, "DELETE FROM store")
    assert found(doctor(run_cli, db, status=65), "identity_incomplete")["facts"] == {"code": "not_a_store"}
    listed = run_cli("sessions", "list", "--db", str(db))
    assert listed.exit_code == 65
    assert listed.stderr.startswith(
        f"Error: {db} carries the mark of a native store (application_id) and has no identity row."
    )


def test_an_identity_row_without_the_mark_is_no_native_store(run_cli: RunCli, db: Path) -> None:
    change(db, "PRAGMA application_id = 0")
    listed = run_cli("sessions", "list", "--db", str(db))
    assert listed.exit_code == 1
    assert "and not its mark (application_id): another program rebuilt it." in listed.stderr


def test_a_copy_in_the_same_folder_is_named_and_gets_an_identity_of_its_own(run_cli: RunCli, db: Path) -> None:
    add_session(db, "one")
    run_cli("sessions", "pin", "one", "--db", str(db))
    with open_write(db) as store:
        store.checkpoint("passive")
    copy = db.with_name("copy.db")
    shutil.copyfile(db, copy)
    document = doctor(run_cli, db, status=3)
    conflict = found(document, "identity_conflict")
    assert conflict["next_command"] == f"hermes-state doctor --db {copy} --new-identity"
    before = value(db, "SELECT store_id FROM store")
    given = run_cli("doctor", "--new-identity", "--json", "--db", str(copy))
    assert (given.exit_code, json.loads(given.stdout)["store_id_before"]) == (0, before)
    assert value(copy, "SELECT store_id FROM store") != before
    assert doctor(run_cli, db, status=0)["verdict"] == "healthy"


def test_what_a_recovery_left_beside_the_store_is_no_twin_of_it(run_cli: RunCli, db: Path) -> None:
    add_session(db, "one")
    with open_write(db) as store:
        store.checkpoint("truncate")
    shutil.copyfile(db, db.with_name(f"{db.name}.recovered.db"))
    assert doctor(run_cli, db, status=0)["verdict"] == "healthy"


def test_new_identity_is_refused_for_a_file_of_hermes_agent(
    run_cli: RunCli, store_copy: Callable[[str], Path]
) -> None:
    foreign = store_copy("0.19.0")
    result = run_cli("doctor", "--new-identity", "--db", str(foreign))
    assert (result.exit_code, "is a file of hermes-agent, which has no identity." in result.stderr) == (2, True)


def test_leases_and_streams_of_dead_processes_are_notes(run_cli: RunCli, db: Path, child: Any) -> None:
    add_session(db, "one", state="open", days_old=1)
    script = """
    import sys
    from hermes_state import open_store
    from hermes_state.leases import Leases
    store = open_store(path=sys.argv[1])
    Leases(store.core).acquire("turn:one", term_seconds=600)
    from hermes_state.owners import this_process
    with store.core.writer.transaction() as tx:
        tx.execute(
            "INSERT INTO streams (key, session_no, role, started_at, owner)"
            " VALUES (hex(randomblob(8)), 1, 'assistant', 1, ?)",
            (tx.row("SELECT owner FROM leases")[0],),
        )
    import os
    os.kill(os.getpid(), 9)
    """
    process = child(script, db)
    assert process.wait() == -9, process.output
    document = doctor(run_cli, db, status=0)
    assert found(document, "leases_left")["facts"] == {"names": ["turn:one"], "held": 0}
    assert found(document, "streams_cut_off")["severity"] == "info"
    # Nobody is at work there: it can be deleted.
    assert run_cli("sessions", "delete", "one", "--yes", "--db", str(db)).exit_code == 0


def test_tombstones_past_their_time_are_counted(run_cli: RunCli, db: Path) -> None:
    change(
        db,
        f"INSERT INTO tombstones VALUES ('session', 'a', 1, {NOW - 1}, 't', 't')",
        f"INSERT INTO tombstones VALUES ('session', 'b', 1, {NOW + 100}, 't', 't')",
    )
    assert found(doctor(run_cli, db, status=0), "tombstones")["facts"] == {
        "tombstones": 2, "due": 1, "references": 0,
    }


def with_index(db: Path) -> Path:
    add_session(db, "one", messages=50)
    with open_store(path=db) as store:
        store.search.catch_up(30)
        return store.search.path


def test_a_sound_search_index_is_compared_row_by_row(run_cli: RunCli, db: Path) -> None:
    index = with_index(db)
    finding = found(doctor(run_cli, db, status=0), "search_index")
    assert (finding["object"], finding["facts"]["messages"], finding["facts"]["entries"]) == (index.name, 50, 50)


def test_messages_that_are_not_indexed_yet_are_said(run_cli: RunCli, db: Path) -> None:
    with_index(db)
    add_session(db, "two", messages=2)
    finding = found(doctor(run_cli, db, status=0), "search_index")
    assert finding["sentence"].endswith(" has 50 messages; 2 messages are not indexed yet and read directly.")
    assert finding["facts"]["not_indexed"] == 2


def test_an_index_that_lacks_rows_is_derived_damage(run_cli: RunCli, db: Path) -> None:
    index = with_index(db)
    with open_write(index, foreign=True) as store, store.transaction() as tx:
        tx.execute("DELETE FROM terms WHERE rowid IN (3, 4)")
    finding = found(doctor(run_cli, db, status=3), "search_rows_differ")
    assert (finding["derived"], finding["facts"]["missing"]) == (True, [3, 4])


def test_a_file_that_is_no_index_never_makes_the_store_look_damaged(run_cli: RunCli, db: Path) -> None:
    index = with_index(db)
    for name in (index, index.with_name(f"{index.name}-wal"), index.with_name(f"{index.name}-shm")):
        name.unlink(missing_ok=True)
    index.write_bytes(b"not a database" * 1000)
    document = doctor(run_cli, db, status=3)
    assert found(document, "search_index_unusable")["derived"] is True
    assert document["damaged_objects"] == []
    # The next search builds it anew.
    with open_store(path=db) as store:
        assert len(store.search("lighthouse")) == 20
    assert doctor(run_cli, db, status=0)["verdict"] == "healthy"


def test_an_unfinished_deletion_names_the_command_that_finishes_it(run_cli: RunCli, db: Path) -> None:
    add_session(db, "one", messages=3)
    change(
        db,
        "UPDATE sessions SET id = 'gone', hidden = 1, active_at = 0, started_at = 0, end_reason = 'being_deleted'",
    )
    document = doctor(run_cli, db, status=0)
    assert found(document, "deletion_unfinished")["next_command"] == f"hermes-state sessions optimize --db {db}"
    assert run_cli("sessions", "optimize", "--db", str(db)).exit_code == 0
    assert value(db, "SELECT count(*) FROM messages") == 0
    assert "deletion_unfinished" not in {one["code"] for one in doctor(run_cli, db, status=0)["findings"]}


def test_looking_for_copies_leaves_nothing_beside_them(tmp_path: Path, run_cli: RunCli) -> None:
    db = new_store(tmp_path)
    copy, other = db.with_name("copy.db"), db.with_name("other.db")
    assert create_store(other)
    for ending in ("-wal", "-shm"):
        Path(f"{db}{ending}").unlink(missing_ok=True)
    shutil.copy(db, copy)
    before = sorted(os.listdir(db.parent))
    found = run_cli("doctor", "--quick", "--json").json["findings"]
    [conflict] = [one for one in found if one["code"] == "identity_conflict"]
    assert conflict["object"] == str(copy)
    assert sorted({*os.listdir(db.parent)} - {"state.db-wal", "state.db-shm"}) == before


def test_after_an_ordinary_close_nothing_is_said_of_a_crash(db: Path, run_cli: RunCli) -> None:
    with open_store(path=db) as store:
        store.sessions.create(id="talk", source="cli")
    document = doctor(run_cli, db, "--quick", status=0)
    frames = found(document, "wal_index_rebuilt")["facts"]["frames"]
    assert found(document, "wal_index_rebuilt")["sentence"] == (
        f"Nobody had the store open, so this look built the index of the {frames} frames in its WAL anew, as every "
        "first open does."
    )


def test_a_file_cut_within_its_last_page_is_damage_and_the_doctor_comes_to_an_end(db: Path, run_cli: RunCli) -> None:
    with open_store(path=db) as store:
        store.sessions.create(id="talk", source="cli")
        for number in range(200):  # the last page is one of messages, and its zeros are rows without an order
            store.messages.append("talk", role="user", content=f"{number} " + "x" * 300)
    connection = apsw.Connection(str(db))
    connection.execute("PRAGMA wal_checkpoint(truncate)").fetchall()
    connection.close()
    size = db.stat().st_size
    os.truncate(db, size - 1000)
    document = doctor(run_cli, db, status=65)
    assert found(document, "file_cut")["sentence"] == (
        f"The file was cut: it has {size - 1000:,} bytes and its header counts {size:,}. SQLite refuses it; what "
        "stands before the cut can be read."
    )
