"""List, show, stats and export on native stores, and how a native store is recognised."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes_state.engine import open_read
from hermes_state.engine.schema import known_migrations
from hermes_state.store import open_store
from maintenance.dialects.detect import dialect_of
from maintenance.dialects.native import listing
from maintenance.lineage import Forest, Kind
from maintenance.marks import read_marks
from maintenance.reading.listing import list_filters, list_sessions
from maintenance.selection import Filters
from tests.maintenance.native_stores import DAY, NOW, add_session, change, new_store

# Every test runs the program in a process of its own, some several times.
pytestmark = pytest.mark.slow

RunCli = Callable[..., Any]


@pytest.fixture
def db(tmp_path: Path, fake_clock: Any) -> Path:
    return new_store(tmp_path)


def listed(run_cli: RunCli, db: Path, *more: str) -> dict[str, Any]:
    result = run_cli("sessions", "list", "--json", "--db", str(db), *more)
    assert result.exit_code == 0, result.stderr
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def test_a_native_store_is_recognised_under_any_name_and_beside_tables_of_others(db: Path) -> None:
    change(db, "CREATE TABLE plugin_notes (x)", "CREATE TABLE foreign_state_meta (key, value)")
    moved = db.with_name("something.bin")
    db.rename(moved)
    with open_read(moved) as store:
        dialect = dialect_of(store)
    newest = known_migrations()[-1].number
    assert (dialect.name, dialect.is_native, dialect.shape.schema_version) == ("native", True, newest)
    assert dialect.shape.unknown_tables == ("plugin_notes",)


def test_relations_are_what_the_row_says_whatever_the_end_reasons(db: Path) -> None:
    add_session(db, "root", state="replaced")
    add_session(db, "next", parent="root", relation="continuation", source="tool")
    add_session(db, "side", parent="root", relation="other")
    add_session(db, "work", parent="next", relation="delegate")
    add_session(db, "again", parent="next", relation="reset")
    add_session(db, "way", parent="next", relation="branch")
    with open_read(db) as store:
        forest = Forest(dialect_of(store).lineage(store))
    kinds = {key: forest.kind(key) for key in ("root", "next", "side", "work", "again", "way")}
    assert kinds == {
        "root": Kind.ROOT, "next": Kind.CONTINUATION, "side": Kind.OTHER, "work": Kind.DELEGATE,
        "again": Kind.RESET, "way": Kind.BRANCH,
    }
    assert forest.segments("next") == ("root", "next")
    assert forest.owner("work") == "next"


def test_the_list_shows_conversations_and_counts_what_it_leaves_out(run_cli: RunCli, db: Path) -> None:
    add_session(db, "root", state="replaced", days_old=100, text="first words")
    add_session(db, "tip", parent="root", relation="continuation", state="open", days_old=90)
    add_session(db, "work", parent="root", relation="delegate", days_old=2)
    add_session(db, "put-away", days_old=1, columns={"archived_at": NOW})
    add_session(db, "tools", source="tool")
    document = listed(run_cli, db)
    [entry] = document["sessions"]
    assert (entry["id"], entry["root_id"], entry["segments"], entry["preview"]) == ("tip", "root", 2, "first words 0")
    assert (entry["message_count"], document["matching"], document["more"]) == (4, 1, False)
    assert document["left_out"] == {"archived": 1, "delegates": 1, "tool": 1, "hidden": 0, "unnamed": 0}
    stats = json.loads(run_cli("sessions", "stats", "--json", "--db", str(db)).stdout)
    assert (stats["sessions"], stats["conversations"], stats["archived"], stats["messages"]) == (5, 4, 1, 10)


def test_filters_on_columns_and_figures_choose_native_rows(run_cli: RunCli, db: Path) -> None:
    add_session(db, "a", messages=3, columns={"title": "Release plan", "model": "gpt-x", "cwd": "/srv/site"})
    add_session(db, "b", messages=9, columns={"git_repo_root": "/srv/site", "session_key": "k", "user_id": "u"})
    add_session(db, "c", messages=0, columns={"session_key": "k2"})
    change(db, "INSERT INTO session_totals (session_no, input_tokens, output_tokens, provider, actual_cost_usd)"
               " VALUES (1, 900, 100, 'Acme', 0.5)")

    def ids(*more: str) -> list[str]:
        return sorted(entry["id"] for entry in listed(run_cli, db, *more)["sessions"])

    assert ids("--title", "release") == ids("--model", "GPT") == ids("--cwd", "/srv") == ["a"]
    assert ids("--workspace", "site") == ["a", "b"]
    assert ids("--min-messages", "4") == ids("--user", "u") == ["b"]
    assert ids("--min-tokens", "1000") == ids("--provider", "acme") == ids("--min-cost", "0.4") == ["a"]
    assert ids("--never-active") == ["c"]


def test_show_marks_what_was_compacted_and_what_was_taken_back(run_cli: RunCli, db: Path) -> None:
    add_session(db, "one", messages=6, state="open")
    change(
        db,
        "INSERT INTO view_edits (session_no, action, from_seq, to_seq, made_at) VALUES (1, 'compact', 1, 2, 1)",
        "INSERT INTO view_edits (session_no, action, from_seq, to_seq, made_at) VALUES (1, 'rewind', 5, 6, 1)",
        "INSERT INTO view_edits (session_no, action, from_seq, to_seq, made_at) VALUES (1, 'rewind', 3, 4, 1)",
        "INSERT INTO view_edits (session_no, action, undoes, made_at) VALUES (1, 'restore', 3, 2)",
    )
    document = json.loads(run_cli("sessions", "show", "one", "--all", "--json", "--db", str(db)).stdout)
    states = [(message["live"], message["compacted"]) for message in document["messages"]]
    assert states == [(False, True), (False, True), (True, False), (True, False), (False, False), (False, False)]


def test_bodies_kept_apart_are_shown_and_exported_whole(run_cli: RunCli, db: Path) -> None:
    text, parts = "line of output\n" * 400, [{"type": "text", "text": "w" * 5000}]
    add_session(db, "one", bodies=[text, parts, b"\x00\x01" * 3000])
    assert run_cli("sessions", "optimize", "--db", str(db)).exit_code == 0
    exported = json.loads(run_cli("sessions", "export", "--db", str(db), "-").stdout)
    contents = [message["content"] for message in exported["messages"]]
    assert contents[:2] == [text, parts]
    assert contents[2]["base64"].startswith("AAEAAQ")
    shown = run_cli("sessions", "show", "one", "--all", "--db", str(db)).stdout
    assert shown.count("line of output") == 400


def test_an_export_speaks_the_words_of_hermes_agent_and_brings_extra_fields_back(run_cli: RunCli, db: Path) -> None:
    add_session(
        db, "one", messages=1,
        columns={"extra": json.dumps({"handoff_state": "x", "title": "not over a column"}), "title": "T"},
    )
    with open_store(path=db) as store:
        store.sessions.reopen("one")
        store.sessions.set_prompt("one", "You are helpful.")
    record = json.loads(run_cli("sessions", "export", "--db", str(db), "-").stdout)
    assert (record["title"], record["handoff_state"], record["system_prompt"]) == ("T", "x", "You are helpful.")
    assert (record["parent_session_id"], record["message_count"], record["archived"]) == (None, 1, 0)
    [message] = record["messages"]
    assert (message["session_id"], message["timestamp"], message["active"]) == ("one", NOW - 200 * DAY, 1)


def many(db: Path, count: int) -> None:
    """`count` sessions with one message each, made in one statement."""
    number = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})"
    change(
        db,
        f"{number} INSERT INTO sessions (id, source, started_at, active_at, archived_at)"
        f" SELECT printf('s%06d', i), iif(i % 10, 'cli', 'tool'), {NOW} - i * 60, {NOW} - i * 60,"
        " iif(i % 7, NULL, 1) FROM n",
        f"{number} INSERT INTO messages (id, session_no, seq, role, content_type, content, created_at, row_check)"
        f" SELECT i, i, 1, 'user', 'text', 'words of ' || i, {NOW} - i * 60 + i % 50, 0 FROM n",
    )


def test_a_page_of_a_large_store_is_the_same_as_when_all_of_it_is_read(
    db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many(db, 1500)
    add_session(db, "root", state="replaced", days_old=0.5)
    add_session(db, "tip", parent="root", relation="continuation", state="open", days_old=0.01)
    add_session(db, "work", parent="tip", relation="delegate", days_old=0.02)

    def pages(filters: Filters) -> list[list[tuple[str, tuple[str, ...], int, str | None, bool]]]:
        found = []
        with open_read(db) as store:
            dialect, marks = dialect_of(store), read_marks(db)
            for offset in (0, 20, 1180):
                page = list_sessions(store, dialect, marks, filters, NOW, limit=20, offset=offset)
                found.append([
                    (one.conversation.id, one.conversation.segments, one.conversation.facts.message_count, one.preview,
                     page.more)
                    for one in page.entries
                ])
        return found

    for filters in (Filters(), Filters(include_archived=True), Filters(sources=("tool",))):
        wanted = list_filters(filters, everything=False)
        bounded = pages(wanted)
        assert bounded[0]
        monkeypatch.setattr(listing, "COUNTED", 10_000)
        assert pages(wanted) == bounded
        monkeypatch.undo()


def test_a_large_store_says_that_it_was_not_counted(run_cli: RunCli, db: Path) -> None:
    many(db, 1500)
    document = listed(run_cli, db)
    assert (document["matching"], document["remaining"], document["left_out"], document["more"]) == (
        None, None, None, True,
    )
    text = run_cli("sessions", "list", "--db", str(db)).stdout
    assert text.endswith(
        "Shown: 1 to 20, not counted further: `hermes-state sessions stats` counts.\nMore: with --offset 20.\n"
        f"Store: {db}\n"
    )
    assert len(listed(run_cli, db, "--all")["sessions"]) == 1500


def test_sizes_by_channel_cost_the_same_for_any_store_and_say_what_is_large(run_cli: RunCli, db: Path) -> None:
    """Reports 222 and 242: a size report that looks at a sample, by kind of content."""
    add_session(db, "one", bodies=["u" * 100, "a" * 900] * 2000)
    stats = json.loads(run_cli("sessions", "stats", "--json", "--db", str(db)).stdout)
    assert [(item["name"], item["exact"]) for item in stats["channels"]] == [
        ("assistant content", False), ("user content", False),
    ]
    assert stats["channels"][0]["share"] == pytest.approx(0.9, abs=0.02)
    assert sum(item["bytes"] for item in stats["channels"]) == pytest.approx(2_000_000, rel=0.05)
    shown = run_cli("sessions", "stats", "--db", str(db)).stdout
    assert "about 1.9 MiB: assistant content 90%, user content 10%" in shown


def test_a_branch_of_a_deleted_session_shows_and_exports_what_it_inherited(run_cli: RunCli, db: Path) -> None:
    add_session(db, "parent", messages=6, text="shared")
    change(db, "INSERT INTO view_edits (session_no, action, from_seq, to_seq, made_at) VALUES (1, 'compact', 1, 2, 1)")
    add_session(
        db, "branch", parent="parent", relation="branch", messages=2, text="own", days_old=1,
        columns={"branched_at_seq": 4, "branched_at_edit": 1},
    )
    export = ("sessions", "export", "--all-messages", "--db", str(db))
    alone = json.loads(run_cli(*export, "--session-id", "branch", "-").stdout)
    assert [message["content"] for message in alone["messages"]] == ["own 0", "own 1"]
    assert run_cli("sessions", "delete", "parent", "--yes", "--db", str(db)).exit_code == 0
    record = json.loads(run_cli(*export, "-").stdout)
    assert [(message["seq"], message["content"], message["active"]) for message in record["messages"]] == [
        (1, "shared 0", 0), (2, "shared 1", 0), (3, "shared 2", 1), (4, "shared 3", 1),
        (5, "own 0", 1), (6, "own 1", 1),
    ]
    assert {message["session_id"] for message in record["messages"]} == {"branch"}
    assert (record["message_count"], record["branched_at_seq"]) == (6, None)
    assert [(edit["action"], edit["from_seq"], edit["to_seq"]) for edit in record["view_edits"]] == [("compact", 1, 2)]
    shown = json.loads(run_cli("sessions", "show", "branch", "--messages", "1", "--json", "--db", str(db)).stdout)
    assert [message["id"] for message in shown["messages"]] == [1, 8]


def test_columns_that_come_and_go_with_a_later_release_do_not_stop_reading(run_cli: RunCli, db: Path) -> None:
    add_session(db, "one", columns={"title": "T"})
    change(
        db,
        "ALTER TABLE sessions DROP COLUMN git_branch",
        "ALTER TABLE sessions ADD COLUMN mood TEXT DEFAULT 'calm'",
        "INSERT INTO migrations VALUES (900, '0900_post_later', 'ab', 1, '9.0')",
    )
    [entry] = listed(run_cli, db, "--title", "T")["sessions"]
    assert entry["id"] == "one"
    assert listed(run_cli, db, "--branch", "x")["sessions"] == []
    record = json.loads(run_cli("sessions", "export", "--db", str(db), "-").stdout)
    assert (record["mood"], "git_branch" in record) == ("calm", False)
    change(db, "ALTER TABLE messages RENAME COLUMN seq TO number")
    refused = run_cli("sessions", "list", "--db", str(db))
    assert refused.exit_code == 1
    assert refused.stderr.startswith(
        f"Error: {db} has schema step 900; this release knows steps up to {known_migrations()[-1].number}, and misses "
        "messages.seq."
    )
