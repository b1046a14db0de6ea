"""Reports 52 to 56, 59, 64, 66, 67: what makes a store large is named, and each thing that helps is one command."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import apsw
import pytest

from hermes_state.clock import FakeClock
from hermes_state.engine import NulRule, open_read
from tests.maintenance.damage import change, opened
from tests.maintenance.removal_stores import add_session, empty_store, ids, rows
from tests.support.children import Children
from tests.support.cli import RunCli
from tests.support.space import grow
from tests.support.stores import StoreCopy

pytestmark = pytest.mark.slow

SESSION = "20260121_000009_f2bd79"


def objects(run_cli: RunCli) -> dict[str, dict[str, Any]]:
    """Bytes and share by object, as the program reports them."""
    done = run_cli("sessions", "stats", "--sizes", "--json")
    assert done.exit_code == 0, done.stderr
    return {item["name"]: item for item in done.json["objects"]}


def indexed(db: Path, text: str, *, index: str) -> int:
    """How many rows an index finds."""
    with open_read(db, nul_rule=NulRule.CUT) as store:
        return int(store.rows(f"SELECT count(*) FROM {index} WHERE {index} MATCH ?", (text,))[0][0])


# --- 52: most of the store is its search indexes -----------------------------------------------------------------


def test_the_share_of_every_object_is_shown_and_one_command_halves_it(store_copy: StoreCopy, run_cli: RunCli) -> None:
    db = store_copy()
    grow(db, sessions=25)
    assert run_cli("sessions", "optimize").exit_code == 0
    found = objects(run_cli)
    search = found["messages_fts"]["share"] + found["messages_fts_trigram"]["share"]
    assert max(found.values(), key=lambda item: item["bytes"])["name"] == "messages_fts_trigram"
    assert search > 0.6
    shown = run_cli("sessions", "stats", "--sizes").stdout
    assert f"({search:.0%} of the pages in use)" in shown
    assert any(line.split()[:3] == ["messages_fts_trigram", "search", "index"] for line in shown.splitlines())
    before = db.stat().st_size
    assert run_cli("sessions", "optimize-storage").exit_code == 0
    after = objects(run_cli)
    assert after["messages_fts"]["bytes"] + after["messages_fts_trigram"]["bytes"] < 0.6 * (
        found["messages_fts"]["bytes"] + found["messages_fts_trigram"]["bytes"]
    )
    assert db.stat().st_size < 0.75 * before


# --- 53: prompts of 275 KB, repeated by every scheduled run ------------------------------------------------------

PROMPT_BYTES = 275_000


def with_prompts(db: Path, count: int) -> None:
    prompt = "(SELECT substr(group_concat(printf('line %d of the standing instructions', i), ' '), 1, 275000) FROM n)"
    change(
        db,
        f"""WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 8000),
            run(k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM run WHERE k < {count})
        INSERT INTO sessions(id, source, started_at, ended_at) SELECT 'cron_' || k, 'cron', 1.7e9, 1.7e9 FROM run""",
        f"""WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 8000),
            run(k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM run WHERE k < {count})
        INSERT INTO messages(session_id, role, content, timestamp)
        SELECT 'cron_' || k, 'user', {prompt}, 1.7e9 FROM run""",
    )


def test_repeated_prompts_leave_the_trigram_index_when_it_is_switched_off(
    store_copy: StoreCopy, run_cli: RunCli
) -> None:
    db = store_copy()
    with_prompts(db, 20)
    text = 20 * PROMPT_BYTES
    found = objects(run_cli)
    assert found["messages_fts_trigram"]["bytes"] > text  # the index is larger than what it indexes
    assert run_cli("sessions", "optimize-storage", "--trigram", "off", "--yes").exit_code == 0
    after = objects(run_cli)
    assert after["messages_fts_trigram"]["bytes"] < 50_000
    assert rows(db, "SELECT count(*), sum(octet_length(content)) FROM messages WHERE session_id LIKE 'cron%'") == [
        (20, text)
    ]


# --- 54: tool calls as JSON fill the trigram index ---------------------------------------------------------------


def test_the_smaller_layout_indexes_no_tool_output_by_parts_of_words(store_copy: StoreCopy, run_cli: RunCli) -> None:
    db = store_copy()
    change(
        db,
        """WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1500)
        INSERT INTO messages(session_id, role, content, tool_name, tool_calls, timestamp)
        SELECT (SELECT min(id) FROM sessions), iif(i % 2, 'tool', 'assistant'),
               iif(i % 2, printf('{"stdout": "%x %x %x", "exit_code": 0}', i * 7919, i * 104729, i * 15485863), 'done'),
               'terminal', printf('[{"id": "call_%x", "arguments": {"command": "ls /srv/%x"}}]', i * 999983, i * 31337),
               1.7e9 + i FROM n""",
    )
    inline = objects(run_cli)["messages_fts_trigram"]["bytes"]
    assert indexed(db, '"exit_code"', index="messages_fts_trigram") == 750
    assert run_cli("sessions", "optimize-storage").exit_code == 0
    assert objects(run_cli)["messages_fts_trigram"]["bytes"] < inline / 5
    assert indexed(db, '"exit_code"', index="messages_fts_trigram") == 0
    assert indexed(db, "exit_code", index="messages_fts") == 750  # whole words are still found


# --- 55: a working off-switch ------------------------------------------------------------------------------------


def test_the_trigram_index_goes_off_stays_off_and_comes_back_whole(store_copy: StoreCopy, run_cli: RunCli) -> None:
    db = store_copy()
    add = (
        "INSERT INTO messages(session_id, role, content, timestamp) "
        f"VALUES ('{SESSION}', 'user', 'the zebrafish tank', 1.7e9)"
    )
    triggers = "SELECT count(*) FROM sqlite_schema WHERE type = 'trigger' AND name LIKE 'messages_fts_trigram%'"
    assert run_cli("sessions", "optimize-storage", "--trigram", "off", "--yes").exit_code == 0
    # The names stay, because hermes-agent rebuilds what lacks them; they do nothing.
    assert rows(db, triggers) == [(3,)]
    change(db, add)
    assert indexed(db, "brafi", index="messages_fts_trigram") == 0
    assert indexed(db, "zebrafish", index="messages_fts") == 1
    assert rows(db, "SELECT content FROM messages WHERE content LIKE '%brafi%'") == [("the zebrafish tank",)]
    # No start builds it again: every verb leaves it off, and a second run has nothing to do.
    for verb in (("sessions", "list"), ("doctor",), ("sessions", "optimize"), ("sessions", "optimize-storage")):
        assert run_cli(*verb).exit_code == 0
    assert run_cli("sessions", "optimize-storage", "--json").json["already_done"] is True
    assert indexed(db, "brafi", index="messages_fts_trigram") == 0
    assert (
        "note     The search index messages_fts_trigram is switched off: its triggers do nothing, so new messages are "
        "not in it."
    ) in run_cli("doctor").stdout.splitlines()
    assert run_cli("sessions", "optimize-storage", "--trigram", "on").exit_code == 0
    assert indexed(db, "brafi", index="messages_fts_trigram") == 1
    change(db, add.replace("zebrafish", "goldfish"))
    assert indexed(db, "oldfi", index="messages_fts_trigram") == 1
    assert run_cli("doctor", "--deep").exit_code == 0


# --- 56: images in the text, which LIKE and length() do not see --------------------------------------------------


def test_images_behind_a_nul_are_measured_with_their_repeats(store_copy: StoreCopy, run_cli: RunCli) -> None:
    db = store_copy()
    before = run_cli("sessions", "stats", "--sizes", "--json").json["content"]
    connection = opened(db)
    for number in range(8):
        body = "\x00json:" + f'[{{"type": "image_url", "image_url": {{"url": "data:;base64,{"QUJD" * 5000}"}}}}]'
        text = body if number < 6 else body.replace("QUJD", "WFla")
        connection.execute(
            "INSERT INTO messages(session_id, role, content, timestamp) VALUES (?, 'user', ?, 1.7e9)", (SESSION, text)
        ).fetchall()
    size = len(body.encode())
    seen = connection.execute("SELECT count(*) FROM messages WHERE content LIKE '%base64,QUJD%'").fetchall()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()
    assert seen == [(0,)]  # the probe of the report
    after = run_cli("sessions", "stats", "--sizes", "--json").json["content"]
    assert after["structured_messages"] - before["structured_messages"] == 8
    assert after["structured_bytes"] - before["structured_bytes"] == 8 * size
    assert after["structured_repeated_bytes"] - before["structured_repeated_bytes"] == 6 * size


# --- 59: prune without a lifecycle; VACUUM only when it pays -----------------------------------------------------


def test_pruning_one_session_of_a_large_store_runs_no_vacuum(
    store_copy: StoreCopy, fake_clock: FakeClock, run_cli: RunCli
) -> None:
    db = empty_store(store_copy())
    for number in range(3):
        add_session(db, f"young-{number}", days_old=1, messages=1500, text="a long conversation " * 12)
    add_session(db, "old", messages=6)
    assert run_cli("sessions", "optimize", "--reclaim", "always").exit_code == 0
    inode, size = db.stat().st_ino, db.stat().st_size
    done = run_cli("sessions", "prune", "--yes", "--json")
    assert done.exit_code == 0, done.stderr
    assert done.json["sessions"] == ["old"]
    assert (done.json["reclaim"]["runs"], db.stat().st_ino, db.stat().st_size) == (False, inode, size)
    [free] = rows(db, "PRAGMA freelist_count")[0]
    assert free / (size / 4096) < 0.01
    assert done.json["reclaim"]["reason"].endswith(
        "not above the threshold of 10 %: a rewrite does not pay"
    )


def test_each_profile_has_its_own_retention_by_name(
    store_copy: StoreCopy, fake_clock: FakeClock, run_cli: RunCli, tmp_path: Path
) -> None:
    kept = empty_store(store_copy())
    pruned = empty_store(store_copy(home="home/profiles/work"))
    for db in (kept, pruned):
        add_session(db, "old")
        add_session(db, "young", days_old=1)
    done = run_cli("sessions", "prune", "--profile", "work", "--yes")
    assert done.exit_code == 0, done.stderr
    assert (ids(kept), ids(pruned)) == ({"old", "young"}, {"young"})


# --- 64: archiving frees nothing ---------------------------------------------------------------------------------


def test_archive_promises_no_space_and_export_then_delete_moves_the_bytes_out(
    store_copy: StoreCopy, fake_clock: FakeClock, run_cli: RunCli, tmp_path: Path
) -> None:
    db = empty_store(store_copy())
    for number in range(6):
        source = "cron" if number % 2 else "cli"
        add_session(db, f"s{number}", source=source, messages=200, text="the lighthouse keeper's log " * 10)
    assert "the file does not shrink" in " ".join(run_cli("sessions", "archive", "--help").stdout.split())
    assert run_cli("sessions", "archive", "--source", "cron", "--yes").exit_code == 0
    assert run_cli("sessions", "optimize", "--reclaim", "always").exit_code == 0
    flagged = db.stat().st_size
    assert run_cli("sessions", "optimize", "--reclaim", "always").exit_code == 0
    assert db.stat().st_size == flagged
    # What does free space, and keeps the conversations in a file that can be read and searched.
    target = tmp_path / "cron.db"
    chosen = ("--source", "cron", "--include-archived")
    exported = run_cli("sessions", "export", *chosen, "--format", "sqlite", target)
    assert exported.exit_code == 0, exported.stderr
    assert run_cli("sessions", "prune", *chosen, "--yes").exit_code == 0
    assert run_cli("sessions", "optimize", "--reclaim", "always").exit_code == 0
    assert db.stat().st_size < 0.65 * flagged
    copy = apsw.Connection(str(target), flags=apsw.SQLITE_OPEN_READONLY)
    assert copy.execute("SELECT count(DISTINCT session_id), count(*) FROM messages").fetchall() == [(3, 600)]
    copy.close()


# --- 66: the WAL file never shrinks ------------------------------------------------------------------------------


def test_a_long_wal_is_told_by_frames_and_bytes_and_optimize_empties_it(
    store_copy: StoreCopy, run_cli: RunCli, child: Children
) -> None:
    db = store_copy()
    writer = child(
        """
        import sqlite3, sys, gates
        store = sqlite3.connect(sys.argv[1], isolation_level=None)
        store.execute("CREATE TABLE filler(x)")
        store.execute("INSERT INTO filler VALUES (zeroblob(4000000))")
        store.execute("DROP TABLE filler")
        print(store.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall())
        gates.reach("done")
        gates.wait("end")
        """,
        db,
    )
    writer.wait_for("done")
    size = os.stat(f"{db}-wal").st_size
    done = run_cli("doctor", "--json")
    [finding] = [finding for finding in done.json["findings"] if finding["code"] == "wal"]
    assert size > 4_000_000
    assert (finding["facts"]["pending_frames"], finding["facts"]["wal_bytes"]) == (0, size)
    assert finding["severity"] == "ok"
    assert finding["sentence"].startswith("The WAL has 0 frames to copy of ")
    writer.kill()  # a crash: nobody removes the sidecars
    assert os.stat(f"{db}-wal").st_size == size
    assert run_cli("sessions", "optimize").exit_code == 0
    assert not os.path.exists(f"{db}-wal") or os.stat(f"{db}-wal").st_size == 0


# --- 67: a long read keeps the WAL from being copied -------------------------------------------------------------

READER = """
import sqlite3, sys, gates
store = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True, isolation_level=None)
store.execute("BEGIN")
store.execute("SELECT count(*) FROM messages").fetchall()
gates.reach("reading")
gates.wait("end")
"""
WRITER = """
import sqlite3, sys, gates
store = sqlite3.connect(sys.argv[1], isolation_level=None)
store.execute("UPDATE sessions SET display_name = 'before' WHERE rowid = 1")
gates.reach("first")
gates.wait("more")
for number in range(50):
    store.execute("UPDATE sessions SET display_name = ? WHERE rowid = 1", (f"after {number}",))
print(*store.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()[0])
gates.reach("done")
gates.wait("end")
"""


def test_a_reader_that_pins_the_wal_is_named_with_pid_and_age(
    store_copy: StoreCopy, run_cli: RunCli, child: Children
) -> None:
    db = store_copy()
    writer = child(WRITER, db)
    writer.wait_for("first")
    reader = child(READER, db)
    reader.wait_for("reading")
    writer.release("more")
    writer.wait_for("done")
    done = run_cli("doctor", "--json")
    [pinned] = [finding for finding in done.json["findings"] if finding["code"] == "wal_pinned"]
    assert [entry["pid"] for entry in pinned["facts"]["readers"]] == [reader.pid]
    assert pinned["facts"]["pending_frames"] > 40
    assert f"Kept from being copied by PID {reader.pid} (" in pinned["sentence"]
    locks = run_cli("locks", "--json").json["locks"]
    assert reader.pid in [lock["process"]["pid"] for lock in locks if lock["lock"] == "reader"]
    reader.kill()
    gone = run_cli("doctor", "--json")
    assert [finding for finding in gone.json["findings"] if finding["code"] == "wal_pinned"] == []
