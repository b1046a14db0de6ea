"""What is in a result: parents, references, search, unknown tables, counters, native bodies and checks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import apsw
import pytest

from hermes_state import open_store
from hermes_state.testing.page_damage import garbage_pages, zero_leaves, zero_page, zero_root
from hermes_state.testing.pages import DatabaseFile
from maintenance.dialects.native.checks import failed_rows
from maintenance.recovery import recover
from tests.maintenance.damage import change, examined, worse_than
from tests.maintenance.recovery.recovering import everything, foreign_store, little_space, native_store

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("little_space")]
__all__ = ["little_space"]


def ask(path: Path, sql: str, *params: Any) -> list[tuple[Any, ...]]:
    connection = apsw.Connection(str(path))
    try:
        return [tuple(row) for row in connection.execute(sql, params)]
    finally:
        connection.close()


def test_messages_whose_session_is_lost_get_a_placeholder_that_says_so(tmp_path: Path) -> None:
    db = foreign_store(tmp_path, "0.19.0")
    before = everything(db)
    with DatabaseFile(db) as file:
        leaves = file.tree(file.object("sessions").root).leaves
    for page in leaves:
        zero_page(db, page)
    report = recover(db, tmp_path / "out.db", allow_partial=True)
    made = ask(report.output, "SELECT id, source, title, end_reason FROM sessions WHERE source = 'recovered'")
    owners = {row[1] for (table, _key), row in before.items() if table == "messages"}
    assert owners <= {row[0] for row in ask(report.output, "SELECT id FROM sessions")}
    assert made and {row[1:] for row in made} == {
        ("recovered", f"Recovered conversation {row[0]}: its metadata was unreadable", "recovered") for row in made
    } | {row[1:] for row in made}
    for session, _source, title, _reason in made:
        assert title == f"Recovered conversation {session}: its metadata was unreadable"
    assert report.table("sessions").placeholders == len(made)
    assert report.table("messages").certain == 72  # no orphan was deleted
    assert ask(report.output, "PRAGMA foreign_key_check") == []
    said = [one for one in report.decisions if one["what"] == "placeholder_session"]
    assert {one["session"] for one in said} == {row[0] for row in made}


def test_a_reference_to_a_lost_parent_is_cleared_and_listed(tmp_path: Path) -> None:
    db = foreign_store(tmp_path, "0.19.0")
    change(
        db, "PRAGMA foreign_keys = off",
        "UPDATE sessions SET parent_session_id = 'never-there' WHERE rowid = (SELECT max(rowid) FROM sessions)",
    )
    report = recover(db, tmp_path / "out.db")
    (said,) = report.decisions
    assert {name: said[name] for name in ("what", "table", "column", "was")} == {
        "what": "reference_cleared", "table": "sessions", "column": "parent_session_id", "was": "never-there",
    }


def test_tables_that_nobody_knows_come_back_with_their_indexes_triggers_and_counters(tmp_path: Path) -> None:
    db = foreign_store(tmp_path, "0.18.2")
    change(
        db, "CREATE TABLE plugin (a TEXT, b REAL, c BLOB)", "CREATE INDEX plugin_a ON plugin (a)",
        "CREATE TABLE narrow (k TEXT, v ANY, PRIMARY KEY (k)) WITHOUT ROWID",
        "CREATE TRIGGER plugin_kept BEFORE DELETE ON plugin BEGIN SELECT RAISE(ABORT, 'kept'); END",
        "CREATE VIEW plugin_view AS SELECT a FROM plugin",
        "INSERT INTO plugin (rowid, a, b, c) VALUES (7, 'x', 2, x'00ff'), (9, CAST(x'ff41' AS TEXT), 0.5, NULL)",
        "INSERT INTO narrow VALUES ('k', 1), ('l', 'two')",
        "UPDATE sqlite_sequence SET seq = 5000 WHERE name = 'messages'",
    )
    rows = everything(db)
    report = recover(db, tmp_path / "out.db")
    assert everything(report.output) == rows
    names = "SELECT type, name FROM sqlite_schema WHERE name NOT LIKE '%_fts%' ORDER BY 1, 2"
    assert ask(report.output, names) == ask(db, names)
    assert ask(report.output, "SELECT seq FROM sqlite_sequence WHERE name = 'messages'") == [(5000,)]


def test_search_is_built_again_and_right(tmp_path: Path) -> None:
    db = foreign_store(tmp_path, "0.19.0", grown=4)
    zero_leaves(db, "messages", 1, seed=2)
    report = recover(db, tmp_path / "out.db", allow_partial=True)
    triggers = ask(report.output, "SELECT name FROM sqlite_schema WHERE type = 'trigger' AND name LIKE '%fts%'")
    assert len(triggers) == 6
    hits = ask(report.output, "SELECT count(*) FROM messages_fts WHERE messages_fts MATCH 'word1'")
    expected = ask(report.output, "SELECT count(*) FROM messages WHERE ' ' || content || ' ' LIKE '% word1 %'")
    assert hits == expected and hits[0][0] > 0
    assert worse_than(examined(report.output), worst()) == []


def worst() -> Any:
    from maintenance.doctor.findings import Severity

    return Severity.INFO


def test_a_text_that_is_no_text_any_more_is_that_of_its_copies(tmp_path: Path) -> None:
    db = foreign_store(tmp_path, "0.19.0", grown=2)
    text = "word40 is what it said, and this was not touched"
    change(db, f"UPDATE messages SET content = '{text}' WHERE id = (SELECT max(id) FROM messages)")
    (key,) = ask(db, "SELECT max(id) FROM messages")[0]
    with DatabaseFile(db) as file:
        for leaf in file.tree(file.object("messages").root).leaves:
            page = file.page(leaf)
            at = page.find(text.encode())
            if at >= 0:
                file.put(leaf, b"\xff", at=at + 3)
                break
    report = recover(db, tmp_path / "out.db")
    assert ask(report.output, "SELECT content FROM messages WHERE id = ?", key) == [(text,)]
    (run,) = report.table("messages").uncertain_keys
    assert (run["first"], run["reason"]) == (key, "its text was broken and is that of its copies in the search index")


def test_a_native_message_whose_body_is_lost_keeps_its_preview_and_says_so(tmp_path: Path) -> None:
    db = native_store(tmp_path / "home")
    whole = dict(ask(db, "SELECT id, content FROM messages WHERE body_no IS NOT NULL"))
    zero_leaves(db, "bodies", 2, seed=1)
    report = recover(db, tmp_path / "out.db", allow_partial=True)
    lost = ask(report.output, "SELECT id, content, extra FROM messages WHERE extra LIKE '%recovered%'")
    assert lost
    for key, content, extra in lost:
        assert content == whole[key]
        assert json.loads(extra)["recovered"] == {"body": "lost", "content_type": "text"}
    assert report.table("messages").reasons == {"its body is lost; the preview is kept": len(lost)}
    with open_store(path=report.output) as store, store._core.reader() as reader:
        ids = [row[0] for row in reader.rows("SELECT id FROM messages")]
        assert failed_rows(reader, ids) == []


def test_a_native_message_that_is_not_what_was_written_is_kept_apart(tmp_path: Path) -> None:
    db = native_store(tmp_path / "home", sessions=6)
    connection = apsw.Connection(str(db))
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
    connection.execute("UPDATE messages SET content = 'something else' WHERE id = 3").fetchall()
    connection.close()
    report = recover(db, tmp_path / "out.db")
    assert ask(report.output, "SELECT count(*) FROM messages WHERE id = 3") == [(0,)]
    assert report.table("messages").reasons == {"the row's own check differs": 1}
    assert report.apart_path is not None
    said = json.loads(report.apart_path.read_text())
    assert (said["table"], said["key"], said["values"]["content"]) == ("messages", 3, "something else")


def test_a_native_result_keeps_its_id_and_gets_another_incarnation_and_opens(tmp_path: Path) -> None:
    db = native_store(tmp_path / "home", sessions=8)
    zero_root(db, "messages")
    ((store_id, incarnation),) = ask(db, "SELECT store_id, incarnation FROM store")
    report = recover(db, tmp_path / "out.db")
    ((kept, other),) = ask(report.output, "SELECT store_id, incarnation FROM store")
    assert kept == store_id and other != incarnation
    assert worse_than(examined(report.output, deep=True), worst()) == []
    with open_store(path=report.output) as store:
        page = store.messages.history("s1", limit=5)
        assert len(page.messages) == 5
        store.messages.append("s1", role="user", content="it goes on")


def test_a_file_of_hermes_agent_becomes_a_native_store_when_asked(tmp_path: Path) -> None:
    db = foreign_store(tmp_path, "0.19.0", grown=3)
    zero_root(db, "messages")
    report = recover(db, tmp_path / "native.db", native=True)
    assert report.dialect == "native"
    with open_store(path=report.output) as store:
        assert len(store.sessions.list(limit=100)) > 0
    assert ask(report.output, "SELECT count(*) FROM messages") == [(report.table("messages").rows,)]
    assert worse_than(examined(report.output), worst()) == []


def test_rows_of_another_table_in_a_damaged_tree_are_not_taken(tmp_path: Path) -> None:
    db = foreign_store(tmp_path, "0.19.0", grown=6)
    before = everything(db)
    with DatabaseFile(db) as file:
        sessions = file.tree(file.object("sessions").root).leaves[0]
        messages = file.tree(file.object("messages").root).leaves
        file.put(messages[1], file.page(sessions))
    report = recover(db, tmp_path / "out.db", allow_partial=True)
    after = everything(report.output)
    assert [key for key in after if key not in before] == []
    assert [key for key, row in after.items() if row != before[key]] == []


def test_deleted_rows_are_counted_and_left_out(tmp_path: Path) -> None:
    db = foreign_store(tmp_path, "0.19.0", grown=6)
    change(db, "DELETE FROM messages WHERE session_id = 'grown-2'", "DELETE FROM sessions WHERE id = 'grown-2'")
    before = everything(db)
    zero_leaves(db, "messages", 1, seed=4)
    report = recover(db, tmp_path / "out.db", allow_partial=True)
    assert report.table("messages").deleted_remains > 0
    assert [key for key in everything(report.output) if key not in before] == []


def test_garbage_over_pages_invents_nothing(tmp_path: Path) -> None:
    db = foreign_store(tmp_path, "0.16.0", grown=6)
    before = everything(db)
    garbage_pages(db, 5, seed=11)
    report = recover(db, tmp_path / "out.db", allow_partial=True)
    made = {("sessions", key) for key in report.table("sessions").placeholder_keys}
    assert {key for key in everything(report.output) if key not in before} == made


def test_a_summary_whose_messages_are_lost_stays_and_says_how_many_are_there(tmp_path: Path) -> None:
    db = native_store(tmp_path / "home", sessions=6)
    connection = apsw.Connection(str(db))
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
    connection.execute("UPDATE messages SET content = 'something else' WHERE session_no = 2 AND seq = 3").fetchall()
    connection.close()
    report = recover(db, tmp_path / "out.db")
    assert [said for said in report.decisions if said["what"] == "source_lost"] == [{
        "what": "source_lost", "table": "compactions", "key": 1, "code": "source_lost", "found": 2,
        "message": "2 of the 3 messages that it stands for were found as they were.",
    }]
    assert ask(report.output, "SELECT state, summary, error ->> '$.found' FROM compactions WHERE id = 1") == [
        ("done", "Summary of s1.", 2)
    ]
    found = {one.code: one.severity.name for one in examined(report.output, deep=True).findings}
    assert found["compaction_source_lost"] == "INFO"


@pytest.mark.parametrize("page", [1, "schema"])
def test_rows_of_compactions_come_back_when_the_schema_is_lost(tmp_path: Path, page: int | str) -> None:
    db = native_store(tmp_path / "home", sessions=12)
    tables = ("compactions", "compaction_clips", "model_windows", "token_factors")
    whole = {table: ask(db, f"SELECT * FROM {table}") for table in tables}
    with DatabaseFile(db) as file:
        leaves = file.tree(1).leaves
    zero_page(db, 1 if page == 1 else leaves[-1])
    report = recover(db, tmp_path / "out.db", allow_partial=True)
    assert {table: ask(report.output, f"SELECT * FROM {table}") for table in tables} == whole
    with open_store(path=report.output) as store:
        assert store.messages.context("s1")[0]["content"].startswith("Summary of s1.")


def test_a_preview_that_is_not_the_beginning_of_its_body_is_made_anew(tmp_path: Path) -> None:
    db = native_store(tmp_path)
    (number, preview) = ask(db, "SELECT id, content FROM messages WHERE body_no IS NOT NULL ORDER BY id LIMIT 1")[0]
    change(db, f"UPDATE messages SET content = 'x' || content WHERE id = {number}")
    report = recover(db, tmp_path / "out.db")
    assert ask(report.output, "SELECT content FROM messages WHERE id = ?", number) == [(preview,)]
    assert {"what": "preview_mended", "table": "messages", "key": number} in report.decisions
