"""`hermes-state sessions export`: whole files or none."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.support.children import Children
from tests.support.cli import RunCli
from tests.support.foreign import Foreign
from tests.support.stores import StoreCopy

pytestmark = pytest.mark.slow

VERSIONS = ["0.13.0", "0.15.2", "0.16.0", "0.17.0", "0.18.2", "0.19.0"]


@pytest.fixture
def made(tmp_path: Path) -> Any:
    (tmp_path / "home").mkdir()
    store = Foreign(tmp_path / "home" / "state.db", session_extra="from_a_fork TEXT")
    store.session("a", ended_at=2.0, end_reason="compression", from_a_fork="kept")
    store.message("a", "first <b>question</b> ```fence```")
    store.message("a", "undone", active=0)
    store.message("a", None, role="assistant", tool_calls='[{"function": {"name": "run"}}]')
    store.session("b", parent_session_id="a")
    store.message(
        "b", "\x00json:" + json.dumps([{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {}}])
    )
    store.message("b", b"\x00\x01", timestamp=float("inf"))
    store.session("d", parent_session_id="b", model_config='{"_delegate_from": "b"}')
    store.session("hidden", archived=1)
    store.message("hidden", "key sk-abcdefghijklmnopqrstuvwx")
    return store


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_has_every_column_and_the_live_messages_decoded(made: Foreign, run_cli: RunCli, tmp_path: Path) -> None:
    made.close()
    target = tmp_path / "out.jsonl"
    result = run_cli("sessions", "export", target)
    assert result.exit_code == 0, result.stderr
    digest = hashlib.sha256(target.read_bytes()).hexdigest()
    assert result.stdout.splitlines()[0].startswith(f"Wrote 3 sessions, 4 messages to {target} (")
    assert result.stdout.splitlines()[1] == f"sha256 {digest}"
    assert result.stderr == (
        "1 archived session left out (--include-archived).\n"
        "1 rewound or compacted message left out (--all-messages).\n"
    )
    assert target.stat().st_mode & 0o777 == 0o600
    records = {record["id"]: record for record in lines(target)}
    assert set(records) == {"a", "b", "d"} and records["a"]["from_a_fork"] == "kept"
    assert records["a"]["messages"][1]["tool_calls"] == [{"function": {"name": "run"}}]
    assert [message["content"] for message in records["b"]["messages"]] == [
        [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {}}],
        {"base64": "AAE="},
    ]
    assert records["b"]["messages"][1]["timestamp"] == "Infinity"
    assert [path.name for path in tmp_path.iterdir() if "partial" in path.name] == []


def test_an_existing_file_stays_unless_forced_and_the_store_is_never_a_target(
    made: Foreign, run_cli: RunCli, tmp_path: Path
) -> None:
    made.close()
    target = tmp_path / "out.jsonl"
    target.write_text("mine")
    refused = run_cli("sessions", "export", target)
    assert (refused.exit_code, target.read_text()) == (1, "mine")
    assert refused.stderr.splitlines()[0] == f"Error: {target} already exists."
    assert run_cli("sessions", "export", "-o", target, "--force").exit_code == 0
    assert len(lines(target)) == 3
    db = tmp_path / "home" / "state.db"
    for name in (db, Path(f"{db}-wal"), Path(f"{db}.hermes-state.json")):
        result = run_cli("sessions", "export", name, "--force")
        assert result.exit_code == 1
        assert result.stderr.splitlines()[0] == f"Error: {name} belongs to the store itself and is not written to."
    other = tmp_path / "other.db"
    Path(f"{other}-wal").touch()
    result = run_cli("sessions", "export", other, "--force")
    assert (result.exit_code, result.stderr.splitlines()[0]) == (
        1,
        f"Error: {other} is a store in use, or was one: {other}-wal is beside it.",
    )
    missing = run_cli("sessions", "export", tmp_path / "no" / "out")
    assert (missing.exit_code, missing.stderr.splitlines()[0]) == (
        2,
        f"Error: The folder {tmp_path / 'no'} does not exist.",
    )


def test_lines_go_to_standard_output_and_notes_do_not(made: Foreign, run_cli: RunCli) -> None:
    made.close()
    result = run_cli("sessions", "export", "-", "--session-id", "hid", "--redact")
    [record] = [json.loads(line) for line in result.stdout.splitlines()]
    assert record["messages"][0]["content"] == "key [redacted]"
    assert (result.exit_code, result.stderr) == (0, "1 secret masked.\n")
    prompts = run_cli("sessions", "export", "-", "--only", "user-prompts", "--session-id", "a")
    assert [item["role"] for item in json.loads(prompts.stdout)["messages"]] == ["user"]


def test_a_logical_record_joins_the_segments_of_a_conversation(made: Foreign, run_cli: RunCli) -> None:
    made.close()
    result = run_cli("sessions", "export", "-", "--lineage", "logical", "--session-id", "a", "--all-messages")
    [record] = [json.loads(line) for line in result.stdout.splitlines()]
    assert (record["id"], record["lineage_session_ids"]) == ("b", ["a", "b"])
    assert [item["id"] for item in record["segments"]] == ["a", "b"]
    assert [item["session_id"] for item in record["messages"]] == ["a", "a", "a", "b", "b"]


def test_pages_escape_what_they_show_and_hold_no_base64(made: Foreign, run_cli: RunCli, tmp_path: Path) -> None:
    made.message("a", "<!-- message -->\n<script>alert(1)</script>")
    made.close()
    page = tmp_path / "out.html"
    assert run_cli("sessions", "export", page, "--format", "html").exit_code == 0
    text = page.read_text()
    assert "&lt;b&gt;question" in text and "<script" not in text and "see [image]" in text and "[calls run]" in text
    folder = tmp_path / "md"
    done = run_cli("sessions", "export", folder, "--format", "md", "--json")
    assert done.exit_code == 0, done.stderr
    assert "````text\nfirst <b>question</b> ```fence```\n````" in (folder / "a.md").read_text()
    manifest = lines(folder / "manifest.jsonl")
    assert [(item["file"], item["messages"]) for item in manifest] == [("a.md", 3), ("b.md", 2), ("d.md", 0)]
    for item in manifest:
        assert item["sha256"] == hashlib.sha256((folder / item["file"]).read_bytes()).hexdigest()
    assert {item["path"] for item in json.loads(done.stdout)["files"]} == {str(folder / f"{key}.md") for key in "abd"}
    again = run_cli("sessions", "export", folder, "--format", "md")
    assert (again.exit_code, again.stderr.splitlines()[0]) == (1, f"Error: {folder / 'a.md'} already exists.")


IDLE_HOLDER = """
import sys, gates
import apsw
connection = apsw.Connection(sys.argv[1])
connection.execute("PRAGMA journal_mode = wal").fetchall()
connection.execute("SELECT count(*) FROM sessions").fetchall()
gates.reach("ready")
gates.wait("go")
"""


def test_a_process_on_a_deleted_wal_is_named_because_what_it_saved_is_not_exported(
    made: Foreign, run_cli: RunCli, child: Children, tmp_path: Path
) -> None:
    made.close()
    holder = child(IDLE_HOLDER, made.path, audited=False)
    holder.wait_for("ready")
    beside = run_cli("sessions", "export", tmp_path / "beside.jsonl", "--json").json
    assert beside["stale_holders"] == []
    for suffix in ("-wal", "-shm"):
        os.unlink(f"{made.path}{suffix}")
    said = run_cli("sessions", "export", tmp_path / "split.jsonl")
    assert said.exit_code == 0
    [warning] = [line for line in said.stderr.splitlines() if line.startswith("Warning:")]
    assert warning.startswith(
        "Warning: 1 process works on deleted files of this store, and what was saved there is not in the export: "
        f"PID {holder.pid} ("
    )
    assert warning.endswith("). Do not delete anything; `hermes-state doctor` says what to do.")
    [stale] = run_cli("sessions", "export", tmp_path / "json.jsonl", "--json").json["stale_holders"]
    assert (stale["process"]["pid"], stale["deleted"]) == (holder.pid, ["shm", "wal"])


def test_a_dry_run_writes_nothing(made: Foreign, run_cli: RunCli, tmp_path: Path) -> None:
    made.close()
    result = run_cli("sessions", "export", tmp_path / "out.jsonl", "--dry-run", "--include-archived")
    assert (result.exit_code, result.stdout) == (0, f"Would write 4 sessions to {tmp_path / 'out.jsonl'} (jsonl).\n")
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "There is no OUTPUT to write to."),
        (("x", "-o", "y"), "OUTPUT and --output name two files."),
        (("-", "--format", "sqlite"), "--format sqlite needs a file."),
        (("-", "--session-id", "a", "--source", "cli"), "--session-id names one session; it does not go with filters."),
    ],
)
def test_what_does_not_fit_together_is_a_usage_error(
    options: tuple[str, ...], message: str, made: Foreign, run_cli: RunCli
) -> None:
    made.close()
    result = run_cli("sessions", "export", *options)
    assert (result.exit_code, result.stderr.splitlines()[0]) == (2, f"Error: {message}")


@pytest.mark.parametrize("version", VERSIONS)
def test_every_format_holds_every_session_of_every_release(
    version: str, store_copy: StoreCopy, run_cli: RunCli, tmp_path: Path
) -> None:
    db = store_copy(version)
    before = db.read_bytes()
    stats = json.loads(run_cli("sessions", "stats", "--json").stdout)
    for form in ("jsonl", "json", "html", "sqlite"):
        target = tmp_path / f"out.{form}"
        result = run_cli("sessions", "export", target, "--format", form, "--all-messages", "--json")
        assert result.exit_code == 0, result.stderr
        done = json.loads(result.stdout)
        assert (done["sessions"], done["messages"]) == (12, stats["messages"])
    with sqlite3.connect(tmp_path / "out.sqlite") as copy:
        assert copy.execute("SELECT count(*) FROM messages JOIN sessions ON sessions.id = session_id").fetchone() == (
            stats["messages"],
        )
    copy.close()
    assert [record["id"] for record in json.loads((tmp_path / "out.json").read_text())] == [
        record["id"] for record in lines(tmp_path / "out.jsonl")
    ]
    assert db.read_bytes() == before
