"""`leftovers` and `captures`: facts of sessions and tables that only a copy has keep it from being let go."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_state.engine import open_write
from hermes_state.store import open_store
from maintenance.leftovers import inventory, prune
from maintenance.recovery.captures.merge import merge_wal
from tests.maintenance.leftovers.test_inventory import beside, first_session, one_of, put
from tests.maintenance.owing import owing_store
from tests.maintenance.recovery.captures.making import foreign_capture, write_manifest
from tests.support.children import Children
from tests.support.cli import RunCli

pytestmark = pytest.mark.slow


@pytest.fixture
def db(store_copy: Callable[[str], Path]) -> Path:
    return store_copy("0.19.0")


def change(db: Path, *statements: str) -> None:
    with open_write(db, foreign=True, deadline_seconds=5.0) as store, store.transaction() as tx:
        for statement in statements:
            tx.execute(statement)


def test_a_copy_with_another_title_and_model_of_a_session_stays(db: Path) -> None:
    copy = put(beside(db, ".malformed-backup-20260913_101500"), db)
    key = first_session(db)
    change(copy, f"UPDATE sessions SET title = 'only here', model = 'another' WHERE id = '{key}'")
    found = one_of(inventory(db, deep=True), copy)
    assert (found.safe, found.why) == (False, "The store says otherwise of 1 session in it: model, title.")
    assert found.holds is not None and found.holds.all_in_store is False
    assert found.holds.differing == {key: ["model", "title"]}
    assert prune(db).dropped == () and copy.exists()


def test_a_session_that_was_used_further_and_ended_is_no_difference(db: Path) -> None:
    key = first_session(db)
    change(db, f"UPDATE sessions SET ended_at = NULL, end_reason = NULL, input_tokens = 5 WHERE id = '{key}'")
    copy = put(beside(db, ".malformed-backup-20260913_101500"), db)
    change(
        db, f"UPDATE sessions SET ended_at = 9.0, end_reason = 'done', input_tokens = 6, message_count = 99 "
        f"WHERE id = '{key}'",
    )
    assert one_of(inventory(db, deep=True), copy).safe
    change(copy, f"UPDATE sessions SET input_tokens = 7 WHERE id = '{key}'")
    assert one_of(inventory(db, deep=True), copy).why == (
        "The store says otherwise of 1 session in it: input_tokens."
    )


def test_a_native_copy_with_another_title_prompt_or_end_stays(tmp_path: Path) -> None:
    db = tmp_path / "home" / "state.db"
    with open_store(path=db) as store:
        store.sessions.create(id="s", source="cli", title="first", system_prompt="be brief")
        store.sessions.create(id="t", source="cli")
        store.messages.append("s", role="user", content="hello")
    with open_write(db, deadline_seconds=5.0) as engine:
        engine.checkpoint("truncate")
    copy = put(beside(db, ".malformed-backup-20260913_101500"), db)
    assert one_of(inventory(db, deep=True), copy).safe
    with open_write(copy, deadline_seconds=5.0) as other, other.transaction() as tx:
        tx.execute("UPDATE sessions SET title = 'second', prompt_no = NULL, archived_at = 3.0 WHERE id = 's'")
        tx.execute("UPDATE sessions SET state = 'ended', ended_at = 4.0 WHERE id = 't'")
    found = one_of(inventory(db, deep=True), copy)
    assert (found.safe, found.why) == (
        False, "The store says otherwise of 2 sessions in it: title, archived_at, state, ended_at.",
    )


def test_tables_of_a_capture_that_are_not_merged_are_listed_and_keep_it(
    db: Path, child: Children, run_cli: RunCli
) -> None:
    capture = foreign_capture(db, child, session=first_session(db))
    change(
        capture / "state.db", "CREATE TABLE gone (k INTEGER PRIMARY KEY, v TEXT)", "INSERT INTO gone VALUES (1, 'a')",
        "CREATE TABLE keyless (v TEXT)", "INSERT INTO keyless VALUES ('same'), ('same'), ('other')",
    )
    # The change took the WAL in, so the rows are in the main file; a capture of it alone has no WAL.
    for ending in ("-wal", "-shm"):
        (capture / f"state.db{ending}").unlink(missing_ok=True)
    shutil.move(capture / "state.db", capture / "copy.db")
    write_manifest(capture, "2026-09-13T10:15:00Z", ["copy.db"])
    change(db, "CREATE TABLE keyless (v TEXT)", "INSERT INTO keyless VALUES ('same')")

    report = merge_wal(capture, db)
    assert report.captures[0].refused == (
        "1 row of table gone, which the store does not have", "2 rows of table keyless, which has no primary key",
    )
    found = one_of(inventory(db, deep=True), capture)
    assert (found.safe, found.why) == (False, "The store lacks 3 rows of it.")
    assert found.holds is not None and found.holds.lacking == {"gone": 1, "keyless": 2}
    ran = run_cli("sessions", "captures", "--db", db)
    assert ran.exit_code == 3
    assert ran.stdout.splitlines()[1:] == [
        f"  {capture.name}: nothing to merge",
        f"  1 session of {capture.name} differ in the store; the store's stay.",
        "  not taken: 1 row of table gone, which the store does not have",
        "  not taken: 2 rows of table keyless, which has no primary key",
        f"Next: hermes-state sessions recover --source {capture}",
    ]
    change(db, "INSERT INTO keyless VALUES ('same'), ('other')", "CREATE TABLE gone (k INTEGER PRIMARY KEY, v TEXT)",
           "INSERT INTO gone VALUES (1, 'a')")
    assert one_of(inventory(db, deep=True), capture).safe


def test_a_copy_that_owes_what_the_store_does_not_know_stays(tmp_path: Path) -> None:
    db = owing_store(tmp_path, "owed")
    copy = put(beside(db, ".malformed-backup-20260913_101500"), db)
    assert one_of(inventory(db, deep=True), copy).safe
    with open_write(copy, deadline_seconds=5.0) as other, other.transaction() as tx:
        tx.execute(
            "INSERT INTO outbox (dedupe_id, kind, transport, policy, payload_bytes, payload_check, schedule, made_at,"
            " due_at) SELECT 'later', kind, transport, policy, payload_bytes, payload_check, schedule, made_at, due_at"
            " FROM outbox"
        )
        tx.execute("UPDATE outbox SET state = 'accepted', settled_at = 5.0 WHERE dedupe_id = 'owed'")
    found = one_of(inventory(db, deep=True), copy)
    assert (found.safe, found.why) == (False, "The store lacks 2 rows of it.")
    with open_store(path=db) as store:
        store.core.write(lambda tx: tx.execute("INSERT INTO outbox_horizon (one, forgotten_to) VALUES (1, 9e9)"))
        store.outbox.drop("owed", reason="a person")
    # What both have settled, and an id that the store has forgotten, are nothing that it lacks.
    assert one_of(inventory(db, deep=True), copy).safe
