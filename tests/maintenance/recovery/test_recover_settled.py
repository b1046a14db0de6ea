"""After a recovery that lost messages of a native store the store is whole again, and says what it lost."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from hermes_state import deletions
from hermes_state.engine import open_read, open_write
from hermes_state.store import open_store
from hermes_state.testing.corruption import CASES
from hermes_state.testing.pages import DatabaseFile
from maintenance.recovery.captures.merge import merge_wal
from tests.maintenance.recovery.captures.making import write_manifest
from tests.support.cli import RunCli

pytestmark = pytest.mark.slow


def grown(db: Path) -> None:
    """20 sessions with 60 messages each, all in the main file."""
    with open_store(path=db) as store:
        for key in range(20):
            store.sessions.create(id=f"s{key}", source="cli")
            store.messages.append_many(
                f"s{key}", [{"role": "user", "content": f"{n} of {key} " + "words " * 30} for n in range(60)]
            )
    with open_write(db) as engine:
        engine.checkpoint("truncate")


def damage(db: Path) -> None:
    CASES["five_leaves_zeroed_beside_wal"].apply(db, "messages", 3)


def test_a_partial_result_that_was_agreed_to_is_a_healthy_store_with_the_loss_on_record(
    tmp_path: Path, run_cli: RunCli
) -> None:
    db = tmp_path / "home" / "state.db"
    grown(db)
    capture = db.with_name("state.db.retired-wal-20260913T101500Z-4711")
    capture.mkdir()
    (capture / "copy.db").write_bytes(db.read_bytes())
    write_manifest(capture, "2026-09-13T10:15:00Z", ["copy.db"])
    damage(db)
    ran = run_cli("sessions", "recover", "--source", db, "--allow-partial", "--install", "--yes", "--json")
    assert ran.exit_code == 0, ran.stderr
    (lost,) = [table["lost_keys"] for table in ran.json["tables"] if table["table"] == "messages"]
    assert lost > 0
    checked = run_cli("doctor", "--deep", "--db", db, "--json")
    said = {one["code"] for one in checked.json["findings"]}
    assert {"message_numbers", "message_ids"} <= said and not said & {"messages_missing", "message_floor_low"}
    with open_read(db) as reader:
        (entry,) = deletions.page(reader)
        assert reader.rows("SELECT count(*) FROM messages") == [(1200 - lost,)]
    assert (entry.actor, entry.reason, entry.kind, entry.keys, entry.rows) == (
        "hermes-state sessions recover", "lost to damage", "message", (), lost,
    )
    assert entry.detail["messages"] == len(entry.detail["message_ids"]) == lost
    # They were not deleted on purpose: what still has them brings them back.
    assert merge_wal(capture, db).captures[0].rows == {"messages": lost}


def test_messages_lost_at_the_end_do_not_leave_their_numbers_to_others(tmp_path: Path, run_cli: RunCli) -> None:
    db = tmp_path / "home" / "state.db"
    grown(db)
    with open_read(db) as reader:
        (last,) = reader.rows("SELECT max(id) FROM messages")[0]
    # The last leaf of the table: the newest messages of the last session.
    with DatabaseFile(db) as file:
        page = list(file.tree(file.object("messages").root).leaves)[-1]
    with db.open("r+b") as raw:
        raw.seek((page - 1) * 4096)
        raw.write(bytes(4096))
    ran = run_cli("sessions", "recover", "--source", db, "--allow-partial", "--install", "--yes")
    assert ran.exit_code == 0, ran.stderr
    assert ran.stdout.splitlines()[-1] == f"Next: hermes-state doctor --db {db}"
    with open_store(path=db) as store:
        assert store.messages.append("s19", role="user", content="the next one") > last
    with open_read(db) as reader:
        newest = "SELECT max(seq) FROM messages JOIN sessions ON no = session_no WHERE sessions.id = 's19'"
        assert reader.rows(newest) == [(61,)]
    assert run_cli("doctor", "--deep", "--db", db).exit_code == 0


def test_after_a_partial_run_the_same_command_names_the_way(tmp_path: Path, run_cli: RunCli) -> None:
    db = tmp_path / "home" / "state.db"
    grown(db)
    damage(db)
    first = run_cli("sessions", "recover", "--source", db)
    restore = f"hermes-state sessions restore {db}.recovered.db.partial --db {db}"
    assert (first.exit_code, first.stdout.splitlines()[-1]) == (65, f"Next: {restore}")
    again = run_cli("sessions", "recover", "--source", db, "--allow-partial", "--json")
    assert again.exit_code == 1
    assert again.json_error["error"]["message"] == f"{db}.recovered.db.partial exists already."
    assert again.json_error["error"]["try"] == (
        f"An earlier recovery ended there, with rows lost. `{restore}` puts that in the store's place; to recover "
        "anew, name a new file with --output."
    )
    # With --install the result goes into the store's place, so it takes the next free name by itself.
    anew = run_cli("sessions", "recover", "--source", db, "--allow-partial", "--install", "--yes", "--json")
    assert (anew.exit_code, anew.json["output"]) == (0, f"{db}.2.recovered.db")
    assert run_cli(*shlex.split(restore)[1:], "--yes").exit_code == 0
    assert run_cli("doctor", "--deep", "--db", db).exit_code == 0
