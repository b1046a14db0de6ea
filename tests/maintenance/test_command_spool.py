"""`sessions spool`: what waits is shown, brought in, and put back from quarantine."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_state.store import open_store

pytestmark = pytest.mark.slow


@pytest.fixture
def db(tmp_path: Path, fake_clock: object) -> Path:
    """A store with two turns in its spool, one of which is for a session that is not there."""
    path = tmp_path / "state.db"
    with open_store(path=path) as store:
        store.sessions.create(id="s", source="cli")
        store.sessions.create(id="gone", source="cli")
        store.core.write(lambda tx: tx.execute(
            "CREATE TRIGGER broken BEFORE INSERT ON messages BEGIN SELECT raise(ABORT, 'broken'); END"
        ))
        store.spool.save("s", [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}])
        store.spool.save("gone", [{"role": "user", "content": "three"}])
        store.core.write(lambda tx: tx.execute("DROP TRIGGER broken"))
        store.sessions.delete("gone", actor="test", reason="test")
    return path


def test_what_waits_is_listed_then_brought_in_and_poison_is_named(db: Path, run_cli) -> None:
    listed = run_cli("sessions", "spool", "--db", db, "--json")
    assert listed.exit_code == 0
    assert [(item["session_id"], item["messages"], item["cause"]) for item in listed.json["waiting"]] == [
        ("s", 2, "statement_failed"), ("gone", 1, "statement_failed"),
    ]

    replayed = run_cli("sessions", "spool", "--replay", "--db", db)
    (kept,) = (path.stem for path in (db.parent / "state.db.hermes-state.spool" / "quarantine").iterdir())
    assert replayed.exit_code == 3
    assert replayed.stdout == (
        "1 turn brought in, 2 messages of them new.\n"
        "1 item that cannot be stored:\n"
        f"  {kept}  Session 'gone' of {db} was deleted at 2027-01-15T08:00:00Z.\n"
    )
    with open_store(path=db) as store:
        assert store.messages.count("s") == 2


def test_a_dry_run_changes_nothing(db: Path, run_cli) -> None:
    before = sorted((path, path.stat().st_size) for path in db.parent.rglob("*.jsonl"))
    assert run_cli("sessions", "spool", "--replay", "--dry-run", "--db", db).exit_code == 0
    assert sorted((path, path.stat().st_size) for path in db.parent.rglob("*.jsonl")) == before


def test_a_quarantined_item_is_put_back_and_brought_in_when_the_reason_is_gone(db: Path, run_cli) -> None:
    run_cli("sessions", "spool", "--replay", "--db", db)
    again = run_cli("sessions", "spool", "--requeue", "all", "--replay", "--db", db, "--json")
    assert [item["code"] for item in again.json["quarantined"]] == ["session_deleted"]

    refused = run_cli("sessions", "spool", "--requeue", "nothing", "--db", db, "--json")
    assert refused.exit_code == 1
    assert refused.json_error["error"]["message"] == (
        f"There is no quarantined item nothing in {db}.hermes-state.spool."
    )


def test_a_store_with_nothing_beside_it_says_so(tmp_path: Path, run_cli) -> None:
    ran = run_cli("sessions", "spool", "--db", tmp_path / "state.db")
    assert (ran.exit_code, ran.stdout) == (0, f"Nothing waits beside {tmp_path / 'state.db'}.\n")
    assert [path.name for path in tmp_path.iterdir() if path.name != "user"] == []
