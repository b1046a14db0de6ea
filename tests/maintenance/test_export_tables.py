"""Exports as an SQLite file for Datasette: links, search, odd names, and plain text of whatever is compressed."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hermes_state.store import open_store
from maintenance.reading.export.items import ExportRecord
from maintenance.reading.export.tables import NOT_READABLE, count_tables, write_tables
from tests.support.cli import RunCli
from tests.support.stores import StoreCopy


def rows(path: Path, sql: str, *params: Any) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as copy:
        return copy.execute(sql, params).fetchall()


def record(key: str, *messages: dict[str, Any], **session: Any) -> ExportRecord:
    told: Iterator[dict[str, Any]] = iter([{"session_id": key} | message for message in messages])
    return ExportRecord(session={"id": key} | session, messages=told)


def test_messages_and_usage_name_their_session_and_are_searched(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    usage = [{"id": 7, "model": "m", "input_tokens": 5, "session_id": "a"}]
    write_tables(
        [
            record(
                "a",
                {"id": 1, "role": "user", "content": "the red fox"},
                {"id": 2, "content": [{"text": "a parrot"}]},
                title="Animals",
                usage=usage,
            ),
            record("b", {"id": 3, "content": "nothing", "Extra Field": {"deep": [1]}}),
        ],
        path,
    )
    assert count_tables(path) == (2, 3)
    assert rows(path, "PRAGMA foreign_key_check") == []
    links = {(table, rows(path, f"PRAGMA foreign_key_list({table})")[0][2]) for table in ("messages", "usage")}
    assert links == {("messages", "sessions"), ("usage", "sessions")}
    find = "SELECT id FROM messages WHERE rowid IN (SELECT rowid FROM messages_fts WHERE messages_fts MATCH ?)"
    assert (rows(path, find, "fox"), rows(path, find, "parrot")) == ([(1,)], [(2,)])
    assert rows(path, "SELECT model, input_tokens, session_id FROM usage") == [("m", 5, "a")]
    assert json.loads(rows(path, 'SELECT "Extra Field" FROM messages WHERE id = 3')[0][0]) == {"deep": [1]}


def test_names_that_sqlite_cannot_tell_apart_or_quote_are_one_column(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    write_tables(
        [record("a", {"id": 1, "Tag": "x", "a]b": 1, "big": 2**70, "bad": "\ud800"}, {"id": 2, "tag": "y"})], path
    )
    assert rows(path, "SELECT id, Tag, a_b, big, bad FROM messages") == [
        (1, "x", 1, str(2**70), "?"),
        (2, "y", None, None, None),
    ]


def test_a_message_without_its_session_does_not_verify(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    write_tables([record("a", {"id": 1, "content": "x"})], path)
    with closing(sqlite3.connect(path)) as copy, copy:
        copy.execute("DELETE FROM sessions")
    assert count_tables(path) == NOT_READABLE


@pytest.mark.slow
def test_whole_conversations_are_their_segments_in_tables(
    run_cli: RunCli, store_copy: StoreCopy, tmp_path: Path
) -> None:
    store_copy("0.19.0")
    path = tmp_path / "x.db"
    told = run_cli(
        "sessions", "export", path, "--format", "sqlite", "--lineage", "logical", "--include-archived", "--json"
    )
    assert told.exit_code == 0, told.stderr
    assert told.json["sessions"] > told.json["records"]
    assert rows(path, "SELECT count(*) FROM sessions") == [(told.json["sessions"],)]


@pytest.mark.slow
def test_compressed_and_shared_bodies_are_plain_text_and_markdown_can_be_one_file(
    run_cli: RunCli, tmp_path: Path
) -> None:
    long = "needle " + "hay " * 20_000
    with open_store(path=tmp_path / "home" / "state.db") as store:
        store.sessions.create(id="a", source="cli", title="Hay")
        store.messages.append("a", role="tool", content=long, tool_call_id="c")
        store.usage.record("a", model="m", input_tokens=3)
    path = tmp_path / "x.db"
    assert run_cli("sessions", "export", path, "--format", "sqlite").exit_code == 0
    assert rows(path, "SELECT content FROM messages") == [(long,)]
    assert rows(
        path, "SELECT title, usage.model, usage.input_tokens FROM usage JOIN sessions ON sessions.id = session_id"
    ) == [("Hay", "m", 3)]
    page = tmp_path / "talks.md"
    assert run_cli("sessions", "export", page, "--format", "md").exit_code == 0
    assert page.read_text().startswith("<!-- session -->\n# Hay\n")
