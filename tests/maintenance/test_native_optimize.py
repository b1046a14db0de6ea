"""Optimize on native stores: cold compression, the search index, free pages, and what a damaged row keeps."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes_state.engine import open_exclusive
from hermes_state.store import open_store
from tests.maintenance.native_stores import add_session, change, new_store, problems, rows, value
from tests.maintenance.owing import owe, send

# Every test runs the program in a process of its own, some several times.
pytestmark = pytest.mark.slow

RunCli = Callable[..., Any]
LINE = "compile step {n}: linked object files into the target directory without a warning, took {n} ms\n"


def tool_output(number: int, lines: int = 40) -> str:
    return "".join(LINE.format(n=number * 1000 + line) for line in range(lines))


@pytest.fixture
def db(tmp_path: Path, fake_clock: Any) -> Path:
    return new_store(tmp_path)


def optimize(run_cli: RunCli, db: Path, *more: str) -> Any:
    result = run_cli("sessions", "optimize", "--json", "--db", str(db), *more)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def contents(db: Path) -> list[Any]:
    with open_store(path=db) as store:
        return [
            message.content
            for (session_id,) in rows(db, "SELECT id FROM sessions ORDER BY no")
            for message in store.messages.history(session_id, limit=500).messages
        ]


def test_cold_messages_are_compressed_and_read_the_same(run_cli: RunCli, db: Path) -> None:
    add_session(db, "cold", bodies=[tool_output(number) for number in range(50)])
    add_session(db, "warm", days_old=3, bodies=[tool_output(number) for number in range(100, 110)])
    before = contents(db)
    document = optimize(run_cli, db)
    assert document["mode"] == "online"
    assert document["compressed"]["message_count"] == 50
    assert document["compressed"]["stored_bytes"] * 3 < document["compressed"]["raw_bytes"]
    # Rows that became small share their pages, although each had one for itself.
    assert document["sizes_before"]["page_count"] - document["sizes_after"]["page_count"] > 40
    assert document["sizes_after"]["free_pages"] == 0
    assert rows(db, "SELECT codec, count(*) FROM bodies GROUP BY 1") == [("zstd", 50)]
    assert contents(db) == before
    assert problems(db) == []
    again = optimize(run_cli, db)
    assert (again["already_done"], again["compressed"]["message_count"]) == (True, 0)


@pytest.mark.parametrize(("option", "compressed"), [("always", 20), ("never", 0)])
def test_compress_always_takes_every_session_and_never_none(
    run_cli: RunCli, db: Path, option: str, compressed: int
) -> None:
    add_session(db, "cold", bodies=[tool_output(number) for number in range(10)])
    add_session(db, "now", days_old=0, state="open", bodies=[tool_output(number) for number in range(10, 20)])
    assert optimize(run_cli, db, "--compress", option)["compressed"]["message_count"] == compressed


def test_cold_days_say_what_cold_is(run_cli: RunCli, db: Path) -> None:
    add_session(db, "week", days_old=7, bodies=[tool_output(1)])
    assert optimize(run_cli, db, "--cold-days", "8")["compressed"]["message_count"] == 0
    assert optimize(run_cli, db, "--cold-days", "6")["compressed"]["message_count"] == 1


def test_a_message_whose_check_fails_is_left_as_it_is_and_said(run_cli: RunCli, db: Path) -> None:
    add_session(db, "cold", bodies=[tool_output(1), tool_output(2)])
    change(db, "UPDATE messages SET content = replace(content, 'linked', 'broken') WHERE id = 2")
    document = optimize(run_cli, db)
    assert document["compressed"]["message_count"] == 1
    assert document["compressed"]["failed_check_messages"] == [2]
    [warning] = document["warnings"]
    assert warning == (
        "1 message did not match the check that was made when it was written, and stayed as it is (2): run "
        f"`hermes-state doctor --deep --db {db}`."
    )
    assert value(db, "SELECT body_no FROM messages WHERE id = 2") is None


def test_a_dry_run_says_how_much_is_cold_and_changes_nothing(run_cli: RunCli, db: Path) -> None:
    add_session(db, "cold", bodies=[tool_output(1)])
    result = run_cli("sessions", "optimize", "--dry-run", "--db", str(db))
    assert result.exit_code == 0
    size = len(tool_output(1))
    assert f"Compress 1 message of sessions idle for 30 days, {size / 1024:.1f} KiB" in result.stdout
    assert value(db, "SELECT count(*) FROM bodies") == 0


def test_the_feed_is_trimmed_and_old_tombstones_go(run_cli: RunCli, db: Path) -> None:
    change(
        db,
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 12000)"
        " INSERT INTO changes (id, table_name, key, operation, at) SELECT i, 'sessions', 'k', 'update', 1 FROM n",
        "INSERT INTO tombstones VALUES ('session', 'past', 1, 2, 'test', 'test')",
        "INSERT INTO tombstones VALUES ('session', 'later', 1, 4000000000, 'test', 'test')",
    )
    document = optimize(run_cli, db)
    assert (document["changes_trimmed"], document["tombstones_collected"]) == (2000, 1)
    assert rows(db, "SELECT min(id), max(id) FROM changes") == [(2001, 12000)]
    assert value(db, "SELECT change_floor FROM store") == 2000
    assert rows(db, "SELECT key FROM tombstones") == [("later",)]


def test_what_was_settled_long_ago_goes_and_what_is_owed_stays(run_cli: RunCli, db: Path) -> None:
    with open_store(path=db) as store:
        for name in ("old", "recent", "owed"):
            owe(store, name)
        for name in ("old", "recent"):
            send(store, name)
    change(
        db, "DROP TRIGGER outbox_ends_once",
        "UPDATE outbox SET made_at = 5.0, settled_at = 6.0 WHERE dedupe_id = 'old'",
        "UPDATE outbox SET made_at = 5.0 WHERE dedupe_id = 'owed'",
        "UPDATE outbox SET settled_at = settled_at - 90000 WHERE dedupe_id = 'recent'",
    )
    document = optimize(run_cli, db)
    assert (document["obligations_blanked"], document["obligations_forgotten"]) == (2, 1)
    assert rows(db, "SELECT dedupe_id, payload IS NULL FROM outbox ORDER BY id") == [("recent", 1), ("owed", 0)]
    assert value(db, "SELECT forgotten_to FROM outbox_horizon") == 5.0


def test_the_search_index_is_merged_and_finds_the_same(run_cli: RunCli, db: Path) -> None:
    for number in range(20):
        add_session(db, f"s{number}", bodies=[f"needle{number} " + tool_output(number) for _ in range(20)])
        with open_store(path=db) as store:
            store.search.catch_up(10)
    with open_store(path=db) as store:
        before = {hit.message_id for hit in store.search("needle7", limit=100)}
    document = optimize(run_cli, db)
    assert document["search"]["merged_pages"] > 0
    with open_store(path=db) as store:
        found = store.search("needle7", limit=100)
        assert (found.degraded, {hit.message_id for hit in found}) == ("", before)
        assert len(before) == 20


def test_a_store_without_a_search_index_gets_none(run_cli: RunCli, db: Path) -> None:
    add_session(db, "cold")
    assert optimize(run_cli, db)["search"] is None
    assert not db.with_name("search.db").exists()


def test_offline_rewrites_a_file_whose_rows_lie_scattered(run_cli: RunCli, db: Path) -> None:
    # Every second message of two sessions that were written side by side.
    for number in range(40):
        add_session(db, f"go{number}", bodies=["g" * 1500])
        add_session(db, f"stay{number}", days_old=1, bodies=["s" * 500])
    run_cli("sessions", "prune", "--yes", "--allow-large", "--db", str(db))
    online = optimize(run_cli, db, "--compress", "never")
    assert online["rewritten"] is False
    scattered = online["unused_share"]
    offline = optimize(run_cli, db, "--offline", "--compress", "never", "--reclaim", "always")
    assert (offline["rewritten"], offline["mode"]) == (True, "exclusive")
    assert offline["unused_share"] < scattered
    assert value(db, "PRAGMA auto_vacuum") == 2
    assert problems(db) == []


def test_options_of_foreign_files_are_refused_by_name(run_cli: RunCli, db: Path) -> None:
    result = run_cli("sessions", "optimize", "--via-copy", "--db", str(db))
    assert result.exit_code == 2
    assert result.stderr.startswith(
        "Error: --force and --via-copy are for files of hermes-agent: a native store is optimized beside its users."
    )


@pytest.mark.parametrize("option", ["--cold-days", "--reclaim-above"])
def test_nan_is_a_usage_error(option: str, run_cli: RunCli, db: Path) -> None:
    result = run_cli("sessions", "optimize", option, "nan", "--db", str(db))
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"Invalid value for '{option}': nan is not a number." in result.stderr


def test_a_store_that_was_rebuilt_without_incremental_vacuum_gets_it_back(run_cli: RunCli, db: Path) -> None:
    add_session(db, "one", messages=20)
    with open_exclusive(db) as store:
        store.statement("PRAGMA auto_vacuum = none", doing="preparing")
        store.vacuum()
    doctor = json.loads(run_cli("doctor", "--json", "--db", str(db)).stdout)
    assert doctor["next_command"] == f"hermes-state sessions optimize --db {db} --offline"
    assert optimize(run_cli, db)["rewritten"] is False
    assert optimize(run_cli, db, "--offline")["rewritten"] is True
    assert value(db, "PRAGMA auto_vacuum") == 2
    assert run_cli("doctor", "--db", str(db)).exit_code == 0


KILLED = """
import os, sys
from maintenance.space import compress
done, last = 0, int(sys.argv[2])
step = compress.failed_rows
def stop(reader, ids):
    global done
    done += 1
    if done == last:
        os.kill(os.getpid(), 9)
    return step(reader, ids)
compress.failed_rows = stop
compress.FIRST_BYTES = compress.LEAST_BYTES = compress.MOST_BYTES = 16 * 1024
sys.argv = ["hermes-state", "sessions", "optimize", "--db", sys.argv[1]]
from maintenance.entry import hermes_state
sys.exit(hermes_state())
"""


@pytest.mark.parametrize("steps", [2, 5, 8])
def test_after_kill_9_every_body_is_whole_and_the_next_run_goes_on(
    run_cli: RunCli, db: Path, child: Any, steps: int
) -> None:
    add_session(db, "cold", bodies=[tool_output(number) for number in range(40)])
    before = contents(db)
    process = child(KILLED, db, steps)
    assert process.wait() == -9, process.output
    assert contents(db) == before
    done = value(db, "SELECT count(*) FROM bodies")
    assert 0 < done + 1 < 40
    assert optimize(run_cli, db)["compressed"]["message_count"] == 40 - done
    assert contents(db) == before
    assert problems(db) == []
