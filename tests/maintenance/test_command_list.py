"""`hermes-state sessions list`, `stats` and `show` as people run them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from hermes_state.clock import FakeClock
from maintenance.marks import marks_path, set_mark
from maintenance.output.text import text_width
from tests.support.cli import RunCli
from tests.support.foreign import Foreign
from tests.support.stores import StoreCopy

pytestmark = pytest.mark.slow

VERSIONS = ["0.13.0", "0.15.2", "0.16.0", "0.17.0", "0.18.2", "0.19.0"]


@pytest.fixture
def made(tmp_path: Path) -> Any:
    """A home whose store a test fills before the program opens it."""
    (tmp_path / "home").mkdir()
    return Foreign(tmp_path / "home" / "state.db")


def document(run_cli: RunCli, *args: str) -> Any:
    result = run_cli("sessions", *args, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    return json.loads(result.stdout)


def test_a_list_is_a_table_with_a_footer_that_adds_up(made: Foreign, run_cli: RunCli, fake_clock: FakeClock) -> None:
    now = fake_clock.now()
    made.session("one", title="Plan", started_at=now - 7200, message_count=2)
    made.message("one", "what next?", timestamp=now - 7200)
    made.session("two", source="telegram", started_at=now - 3600)
    made.session("three", started_at=now - 90_000_000, ended_at=now - 90_000_000, end_reason="compression")
    made.session("four", parent_session_id="three", started_at=now - 80_000_000)
    made.session("old", archived=1)
    made.session("worker", parent_session_id="one", model_config='{"_delegate_from": "one"}')
    made.session("script", source="tool")
    made.close()
    result = run_cli("sessions", "list", "--limit", "2", env={"TZ": "UTC"})
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        "title       preview     last active  source    messages  id\n"
        "(untitled)  -           1 h ago      telegram         0  two\n"
        "Plan        what next?  2 h ago      cli              2  one\n"
        "\n"
        "Shown: 1 to 2 of 3 entries (4 sessions with their earlier segments).\n"
        "More: 1, with --limit 3 or --offset 2.\n"
        "Not listed: 1 archived (--include-archived), 1 delegate (--include-delegates), 1 of tools (--source tool).\n"
        f"Store: {made.path}\n"
    )
    page = document(run_cli, "list")
    stats = document(run_cli, "stats")
    assert page["matching_sessions"] + sum(page["left_out"].values()) == stats["sessions"] == 7
    everything = document(run_cli, "list", "--all")
    assert everything["matching_sessions"] == 7 and everything["left_out"] == dict.fromkeys(page["left_out"], 0)
    assert [item["id"] for item in everything["sessions"][:3]] == ["two", "one", "four"]
    assert (everything["sessions"][2]["root_id"], everything["sessions"][2]["segments"]) == ("three", 2)


def test_a_workspace_is_looked_for_before_the_page_is_cut(made: Foreign, run_cli: RunCli) -> None:
    for number in range(30):
        made.session(f"s{number:02}", started_at=1000.0 + number, cwd="/srv/alpha" if number < 2 else "/srv/beta")
    made.session("repo", git_repo_root="/srv/Alpha", cwd="/elsewhere", started_at=1.0)
    made.close()
    page = document(run_cli, "list", "--workspace", "alpha", "--limit", "5")
    assert [item["id"] for item in page["sessions"]] == ["s01", "s00", "repo"]


def test_garbage_in_a_store_never_breaks_a_listing(made: Foreign, run_cli: RunCli) -> None:
    made.session("inf", started_at=math.inf, title="a\x1b[31mred\u202e", message_count=math.inf)
    made.session("text", started_at="x", title=b"\x00\xff")
    made.session("long", title="t" * 300_000)
    made.session("image")
    made.message(
        "image", "\x00json:" + json.dumps([{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}])
    )
    made.run("UPDATE sessions SET title = CAST(X'ff41' AS TEXT) WHERE id = 'image'")
    made.run("INSERT INTO sessions(id, source, started_at) VALUES (X'00ff', 'cli', 1)")
    made.run("INSERT INTO sessions(id, source, started_at) VALUES (CAST(X'62ff' AS TEXT), 'cli', 1)")
    made.close()
    result = run_cli("sessions", "list")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "\x1b" not in result.stdout and "\u202e" not in result.stdout
    lines = {line.rsplit(None, 1)[-1]: line for line in result.stdout.splitlines() if line}
    assert "<blob 2 bytes>" in lines["text"] and "  ?  " in lines["inf"]
    assert "\ufffdA" in lines["image"] and "[image]" in lines["image"]
    assert max(map(len, result.stdout.splitlines())) < 400
    assert "Not listed: 1 damaged, without a readable id." in result.stdout
    page = document(run_cli, "list")
    assert page["matching_sessions"] + page["left_out"]["unnamed"] == document(run_cli, "stats")["sessions"] == 6
    assert document(run_cli, "show", "inf")["session"]["started_at"] is None
    assert document(run_cli, "show", "b")["session"]["id"] == "b?"


def test_a_huge_or_wide_text_takes_no_more_than_its_columns(
    made: Foreign, run_cli: RunCli, fake_clock: FakeClock
) -> None:
    made.session("huge", title="t" * 300_000, source="s" * 5_000)
    made.message("huge", "p" * 5_000)
    made.session("wide", title="\u65e5\u672c\u8a9e" * 100)
    made.message("wide", "\u8a9e" * 500)
    made.close()
    listed = [line for line in run_cli("sessions", "list").stdout.splitlines() if line.endswith(("huge", "wide"))]
    shown = {line.rsplit(None, 1)[-1]: line for line in listed}
    assert shown["huge"].startswith("t" * 39 + "\u2026  " + "p" * 59 + "\u2026  ")
    assert "  " + "s" * 23 + "\u2026  " in shown["huge"]
    assert shown["wide"].startswith("\u65e5\u672c\u8a9e" * 6 + "\u65e5\u2026   " + "\u8a9e" * 29 + "\u2026   ")
    assert text_width(shown["huge"]) == text_width(shown["wide"])
    everything = {entry["id"]: entry for entry in document(run_cli, "list")["sessions"]}
    assert len(everything["huge"]["title"]) == 2_000


def test_a_session_that_a_job_reuses_for_a_month_stays_one_readable_entry(made: Foreign, run_cli: RunCli) -> None:
    made.session("cron_report", source="cron", message_count=4320)
    made.run("BEGIN")
    for number in range(2160):
        made.message("cron_report", f"run {number}", timestamp=1000.0 + number)
        made.message("cron_report", "done", role="assistant", timestamp=1000.5 + number)
    made.run("COMMIT")
    made.close()
    [entry] = document(run_cli, "list", "--source", "cron")["sessions"]
    assert (entry["preview"], entry["message_count"]) == ("run 0", 4320)
    shown = document(run_cli, "show", "cron_report", "--messages", "1")
    assert [message["text"] for message in shown["messages"]] == ["run 0", "done"]
    assert shown["message_rows"] == 4320


def test_list_and_export_take_the_same_filters_and_find_the_same_sessions(
    made: Foreign, run_cli: RunCli, fake_clock: FakeClock
) -> None:
    now = fake_clock.now()
    made.session("recent desktop", source="desktop", title="Weekly 100%", started_at=now - 9e6, message_count=5)
    made.message("recent desktop", timestamp=now - 60)
    made.session("old desktop", source="desktop", title="Weekly 100 %", started_at=now - 9e6, message_count=5)
    made.session(
        "ended", source="desktop", title="weekly 100% b", started_at=now - 9e6, ended_at=now - 50, message_count=1
    )
    made.close()
    for options, expected in (
        (["--newer-than", "1d"], ["ended", "recent desktop"]),
        (["--title", "WEEKLY 100%", "--min-messages", "2"], ["recent desktop"]),
        (["--older-than", "desktop=30d"], ["old desktop"]),
        (["--after", "2026-01-01", "--ended"], ["ended"]),
    ):
        listed = [item["id"] for item in document(run_cli, "list", *options)["sessions"]]
        exported = [json.loads(line)["id"] for line in run_cli("sessions", "export", "-", *options).stdout.splitlines()]
        assert (listed, exported) == (expected, expected), options


def test_an_empty_list_is_no_failure(made: Foreign, run_cli: RunCli) -> None:
    made.close()
    result = run_cli("sessions", "list", "--source", "nowhere")
    assert (result.exit_code, result.stdout, result.stderr) == (0, f"No sessions found.\nStore: {made.path}\n", "")


def test_a_wrong_filter_is_a_usage_error_that_names_the_option(made: Foreign, run_cli: RunCli) -> None:
    made.close()
    result = run_cli("sessions", "list", "--older-than", "soon")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines()[0] == "Error: --older-than: 'soon' is neither a duration nor a date."


def test_a_damaged_marks_file_stops_the_list(made: Foreign, run_cli: RunCli, tmp_path: Path) -> None:
    made.close()
    db = tmp_path / "home" / "state.db"
    marks_path(db).write_text("{")
    result = run_cli("sessions", "list")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines()[0] == f"Error: The marks file {marks_path(db)} is not valid JSON."


def test_pins_of_a_file_without_a_column_are_shown(made: Foreign, run_cli: RunCli, tmp_path: Path) -> None:
    made.session("s")
    made.close()
    set_mark(tmp_path / "home" / "state.db", ["s", "gone"], "pinned", True)
    assert "  pinned  s" in run_cli("sessions", "list").stdout
    assert document(run_cli, "stats")["pinned"] == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_files_of_every_release_can_be_listed_counted_and_shown(
    version: str, store_copy: StoreCopy, run_cli: RunCli
) -> None:
    db = store_copy(version)
    before = db.read_bytes()
    page = document(run_cli, "list", "--all")
    stats = document(run_cli, "stats", "--sizes")
    assert page["matching_sessions"] == stats["sessions"] == 12
    assert sum(item["sessions"] for item in stats["by_source"]) == 12
    assert 0 < stats["search_bytes"] < sum(item["bytes"] for item in stats["objects"])
    shown = document(run_cli, "show", page["sessions"][0]["id"], "--all")
    assert len(shown["messages"]) == shown["message_rows"] == sum(shown["message_rows_by_role"].values())
    assert db.read_bytes() == before


def test_show_finds_a_session_by_prefix_and_by_title_and_says_when_it_cannot(
    made: Foreign, run_cli: RunCli, tmp_path: Path
) -> None:
    for key, title in (("abc1", "Plan"), ("abd2", "Plan #2"), ("xyz3", "Plan #10")):
        made.session(key, title=title)
    made.close()
    assert document(run_cli, "show", "abc")["session"]["id"] == "abc1"
    assert document(run_cli, "show", "Plan")["session"]["id"] == "xyz3"
    several = run_cli("sessions", "show", "ab")
    assert several.exit_code == 2
    assert several.stderr.splitlines()[0] == "Error: 'ab' is the start of several session ids: abc1, abd2."
    missing = run_cli("sessions", "show", "nope")
    assert missing.exit_code == 1
    assert missing.stderr.splitlines()[0] == (
        f"Error: No session in {tmp_path / 'home' / 'state.db'} has an id that starts with 'nope', or that title."
    )


def test_show_says_how_a_session_relates_and_what_protects_it(
    made: Foreign, run_cli: RunCli, fake_clock: FakeClock
) -> None:
    made.run("CREATE TABLE session_turn_leases(conversation_id TEXT, holder TEXT, acquired_at REAL, expires_at REAL)")
    made.run("INSERT INTO session_turn_leases VALUES ('a', 'gateway', 0, ?)", (fake_clock.now() + 60,))
    made.session("a", ended_at=2.0, end_reason="compression")
    made.session("b", parent_session_id="a")
    made.session("c", parent_session_id="b", model_config='{"_branched_from": "b"}')
    made.session("d", parent_session_id="b", model_config='{"_delegate_from": "b"}')
    for number in range(9):
        made.message("b", f"line {number}", role="user" if number % 2 else "assistant", timestamp=fake_clock.now())
    made.message("b", "undone", active=0)
    made.close()
    shown = document(run_cli, "show", "b", "--messages", "1")
    assert shown["lineage"] == {
        "kind": "continuation",
        "parent_id": "a",
        "parent_exists": True,
        "root_id": "a",
        "tip_id": "b",
        "segments": ["a", "b"],
        "branches": ["c"],
        "delegates": ["d"],
    }
    assert shown["guard"] == "a turn is running (lease of gateway)"
    assert [item["text"] for item in shown["messages"]] == ["line 0", "undone"]
    text = run_cli("sessions", "show", "b", "--messages", "1").stdout
    assert "protected    a turn is running (lease of gateway)" in text
    assert "  … 8 more (--all) …" in text and "(rewound): undone" in text
