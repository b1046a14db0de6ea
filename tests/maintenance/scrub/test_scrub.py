"""`sessions scrub`: what was found is in no byte of the store afterwards, and nothing else changed (report 208)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes_state.engine import open_read, open_write
from hermes_state.store import Store, open_store
from tests.support.children import Children
from tests.support.cli import RunCli

pytestmark = pytest.mark.slow

SECRET = "sk-ant-api03-Zq7Zq7Zq7Zq7Zq7Zq7Zq7Zq7"
LARGE = "0123456789abcdef " * 2000


def filled(path: Path) -> None:
    """A native store with the secret in every kind of place, deleted and searched ones included."""
    with open_store(path=path) as store:
        store.sessions.create(
            id="s", source="telegram", title=f"about {SECRET}", system_prompt=f"use {SECRET} always",
            tools=[{"name": "curl", "default": SECRET}], cwd=f"/home/{SECRET}",
        )
        add = store.messages.append
        add("s", role="user", content=f"my key is {SECRET}")
        add("s", role="assistant", tool_calls=[
            {"id": "c1", "function": {"name": "curl", "arguments": json.dumps({"header": f"x-api-key: {SECRET}"})}}
        ], reasoning=f"they gave me {SECRET}")
        add("s", role="tool", tool_call_id="c1", content=f"{LARGE}{SECRET} {LARGE}")
        add("s", role="tool", content={"nested": [{"key": SECRET}]}, extra={"note": SECRET})
        add("s", role="tool", content=b"\x00\x01" + SECRET.encode() + b"\xff")
        add("s", role="user", content="nothing to see")
        gone = add("s", role="user", content=f"deleted {SECRET}")
        store.messages.delete("s", [gone], actor="test", reason="test")
        store.core.write(lambda tx: tx.execute("CREATE TABLE others (id INTEGER PRIMARY KEY, words TEXT, raw BLOB)"))
        store.core.write(lambda tx: tx.execute("INSERT INTO others VALUES (1, ?, ?)", (SECRET, SECRET.encode())))
        assert len(store.search("api03", limit=5)) > 0


def files_with(folder: Path, needle: bytes) -> list[str]:
    return sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and needle in path.read_bytes()
    )


def transcript(path: Path) -> list[Any]:
    with open_store(path=path) as store:
        page = store.messages.history("s", after=0, limit=100)
        return [(message.role, message.content, message.created_at) for message in page.messages]


def test_no_byte_of_a_native_store_holds_it_afterwards(tmp_path: Path, run_cli: RunCli) -> None:
    db = tmp_path / "home" / "state.db"
    filled(db)
    assert "state.db" in files_with(db.parent, SECRET.encode())
    before = transcript(db)

    ran = run_cli("sessions", "scrub", "--preset", "secrets", "--yes", "--db", db, "--json")

    assert ran.exit_code == 0, ran.stderr
    assert ran.json["complete"] is True and ran.json["rows_left"] == {}
    assert files_with(db.parent, SECRET.encode()) == []
    assert {entry["state"] for entry in ran.json["proof"]} == {"clean"}
    assert ran.json["rows"]["messages"] == 5 and ran.json["rows"]["others"] == 1
    after = transcript(db)
    assert [(role, at) for role, _content, at in after] == [(role, at) for role, _content, at in before]
    mark = after[0][1].removeprefix("my key is ")
    assert mark.startswith("[redacted anthropic ")
    assert after[2][1] == f"{LARGE}{mark} {LARGE}"
    assert after[3][1] == {"nested": [{"key": mark}]}
    assert after[4][1] == b"\x00\x01" + mark.encode() + b"\xff"
    assert after[5][1] == "nothing to see"


def test_a_scrubbed_store_is_sound_and_is_searched_as_before(tmp_path: Path, run_cli: RunCli) -> None:
    db = tmp_path / "home" / "state.db"
    filled(db)
    assert run_cli("sessions", "scrub", "--preset", "secrets", "--yes", "--db", db).exit_code == 0

    checked = run_cli("doctor", "--deep", "--db", db, "--json")
    assert checked.exit_code == 0, checked.stdout
    with open_store(path=db) as store:
        assert [hit.session_id for hit in store.search('"nothing to see"', limit=5)] == ["s"]
        assert len(store.search("api03", limit=5)) == 0
        assert store.sessions.get("s").title.startswith("about [redacted anthropic ")  # type: ignore[union-attr]
        assert "[redacted anthropic " in str(store.sessions.prompt("s"))
        assert json.loads(str(store.sessions.tools("s")))[0]["name"] == "curl"
        assert store.messages.append("s", role="user", content="and on it goes") > 0


def test_a_dry_run_says_what_it_would_do_and_changes_no_byte(tmp_path: Path, run_cli: RunCli) -> None:
    db = tmp_path / "home" / "state.db"
    filled(db)
    before = db.read_bytes()

    ran = run_cli("sessions", "scrub", "--pattern", "Zq7(Zq7)+", "--dry-run", "--db", db, "--json")
    assert ran.exit_code == 0
    assert ran.json["row_count"] == sum(ran.json["rows"].values()) > 5
    assert ran.json["complete"] is None
    assert db.read_bytes() == before


def test_a_second_run_finds_nothing_and_proves_it_again(tmp_path: Path, run_cli: RunCli) -> None:
    db = tmp_path / "home" / "state.db"
    filled(db)
    assert run_cli("sessions", "scrub", "--preset", "secrets", "--yes", "--db", db).exit_code == 0
    again = run_cli("sessions", "scrub", "--preset", "secrets", "--yes", "--db", db, "--json")
    assert (again.exit_code, again.json["match_count"], again.json["complete"]) == (0, 0, True)
    # With no text to look for nothing is called proven.
    said = run_cli("sessions", "scrub", "--preset", "secrets", "--yes", "--db", db)
    assert (said.exit_code, said.stdout) == (
        0,
        f"Redacted 0 matches in 0 rows of {db}.\nNo row matches, so there was nothing to look for in state.db, "
        "state.db-wal; they were written anew.\n",
    )


def test_what_a_delete_left_in_free_pages_and_wal_goes_although_no_row_matches(
    tmp_path: Path, run_cli: RunCli
) -> None:
    db = tmp_path / "home" / "state.db"
    with open_store(path=db) as store:
        store.sessions.create(id="s", source="cli")
        gone = store.messages.append("s", role="user", content=f"{LARGE}{SECRET}")
        store.messages.delete("s", [gone], actor="test", reason="test")
    assert files_with(db.parent, SECRET.encode()) != []

    ran = run_cli("sessions", "scrub", "--pattern", SECRET, "--yes", "--db", db, "--json")
    assert (ran.exit_code, ran.json["match_count"]) == (0, 0)
    assert files_with(db.parent, SECRET.encode()) == []


def test_beside_a_gateway_rows_are_redacted_and_the_run_says_that_it_is_incomplete(
    tmp_path: Path, run_cli: RunCli, child: Children
) -> None:
    db = tmp_path / "home" / "state.db"
    filled(db)
    gateway = child(
        """
        import sys
        import gates
        from hermes_state.store import open_store
        with open_store(path=sys.argv[1]) as store:
            store.sessions.count()
            gates.reach("open")
            gates.wait("go")
        """,
        db,
    )
    gateway.wait_for("open")
    ran = run_cli("sessions", "scrub", "--preset", "secrets", "--yes", "--db", db)
    assert ran.exit_code == 75
    lines = ran.stdout.splitlines()
    assert lines[1] == (
        "Incomplete: rows are redacted, but free pages, the WAL and the search index may still hold what was replaced, "
        "because other processes have the store open."
    )
    assert f"PID {gateway.pid} " in lines[2]
    assert lines[-1] == "Next: stop them and run the same command again."
    with open_store(path=db) as store:
        assert SECRET not in str(store.messages.context("s"))
    gateway.release("go")
    gateway.finish()

    assert run_cli("sessions", "scrub", "--preset", "secrets", "--yes", "--db", db).exit_code == 0
    # The second run matches nothing; the bytes of what the first one replaced are gone all the same.
    assert files_with(db.parent, SECRET.encode()) == []


def test_copies_beside_the_store_are_named_and_left_alone(tmp_path: Path, run_cli: RunCli) -> None:
    db = tmp_path / "home" / "state.db"
    filled(db)
    held = db.parent / "state.db.malformed-backup-20260101_000000"
    held.write_bytes(db.read_bytes())
    closed = db.parent / "state.db.copy.gz"
    closed.write_bytes(b"\x1f\x8b" + b"whatever")
    clean = db.parent / "state.db.hermes-state.json"
    clean.write_text("{}")

    ran = run_cli("sessions", "scrub", "--preset", "secrets", "--yes", "--db", db)
    assert ran.exit_code == 0
    assert ran.stdout.splitlines()[-2:] == [
        f"{closed}: cannot be looked into (compressed or encrypted)", f"{held}: still holds it",
    ]
    assert SECRET.encode() in held.read_bytes()


@pytest.mark.parametrize("version", ["0.13.0", "0.16.0", "0.19.0"])
def test_a_file_of_hermes_agent_is_scrubbed_with_its_search_indexes(
    version: str, store_copy: Callable[[str], Path], run_cli: RunCli
) -> None:
    db = store_copy(version)
    with open_write(db, foreign=True, deadline_seconds=5.0) as store:
        (session,) = store.rows("SELECT id FROM sessions LIMIT 1")[0]
        with store.transaction() as tx:
            tx.execute(
                "INSERT INTO messages (session_id, role, content, tool_calls, timestamp) VALUES (?, 'user', ?, ?, 1.0)",
                (session, f"the key {SECRET}", json.dumps([{"arguments": SECRET}])),
            )
    with open_read(db) as reader:
        before = reader.rows("SELECT count(*) FROM messages")

    ran = run_cli("sessions", "scrub", "--preset", "secrets", "--yes", "--db", db, "--json")
    assert (ran.exit_code, ran.json["complete"]) == (0, True), (ran.stdout, ran.stderr)
    assert files_with(db.parent, SECRET.encode()) == []
    assert run_cli("doctor", "--db", db).exit_code == 0
    with open_read(db) as reader:
        assert reader.rows("SELECT count(*) FROM messages") == before
        (content,) = reader.rows("SELECT content FROM messages WHERE content LIKE 'the key %'")[0]
    assert content.startswith("the key [redacted anthropic ")


def test_text_that_is_still_being_received_is_scrubbed_across_its_frames(tmp_path: Path, run_cli: RunCli) -> None:
    db = tmp_path / "home" / "state.db"

    def stream_rows(store: Store) -> None:
        store.sessions.create(id="s", source="cli")
        no = store.sessions.get("s").no

        def work(tx: Any) -> None:
            tx.execute(
                "INSERT INTO streams (key, session_no, role, started_at, owner)"
                " VALUES ('k', ?, 'assistant', 1, '{}')", (no,),
            )
            for number, text in enumerate(("it is ", SECRET[:9], SECRET[9:], ", see"), 1):
                tx.execute(
                    "INSERT INTO stream_frames (stream_id, number, operation, text) VALUES (1, ?, 'append', ?)",
                    (number, text),
                )

        store.core.write(work)

    with open_store(path=db) as store:
        stream_rows(store)
    assert run_cli("sessions", "scrub", "--preset", "secrets", "--yes", "--db", db).exit_code == 0
    with open_read(db) as reader:
        frames = reader.rows("SELECT number, operation, text FROM stream_frames")
    assert [(number, operation) for number, operation, _text in frames] == [(4, "replace")]
    assert frames[0][2].startswith("it is [redacted anthropic ") and frames[0][2].endswith("], see")


def test_nothing_is_replaced_without_an_answer(tmp_path: Path, run_cli: RunCli) -> None:
    db = tmp_path / "home" / "state.db"
    filled(db)
    before = db.read_bytes()
    ran = run_cli("sessions", "scrub", "--preset", "secrets", "--db", db, "--json")
    assert ran.exit_code == 1
    assert ran.json_error["error"]["message"] == "This needs an answer, and there is no terminal to ask on."
    assert db.read_bytes() == before


def test_tables_of_other_programs_are_scrubbed_whatever_they_look_like(
    store_copy: Callable[[str], Path], run_cli: RunCli
) -> None:
    db = store_copy("0.19.0")
    with open_write(db, foreign=True) as store, store.transaction() as tx:
        for statement in (
            "CREATE TABLE keyed(k TEXT PRIMARY KEY, v TEXT) WITHOUT ROWID",
            "INSERT INTO keyed VALUES ('key HIDDEN7', 'value HIDDEN7')",
            "CREATE TABLE made(a TEXT, b TEXT GENERATED ALWAYS AS ('x' || a) STORED, c TEXT AS (a || 'x'))",
            "INSERT INTO made(a) VALUES ('HIDDEN7')",
            "CREATE TABLE \"odd \"\"na'me\"(\"co\"\"l\" TEXT, rowid TEXT, oid TEXT, _rowid_ TEXT)",
            "INSERT INTO \"odd \"\"na'me\" VALUES ('HIDDEN7', 'a', NULL, x'00')",
            "CREATE TABLE locked(a TEXT)", "INSERT INTO locked VALUES ('HIDDEN7')",
            "CREATE TRIGGER lock BEFORE UPDATE ON locked BEGIN SELECT raise(ABORT, 'no'); END",
        ):
            tx.execute(statement)
    ran = run_cli("sessions", "scrub", "--pattern", r"HIDDEN\d", "--yes", "--db", db)
    assert (ran.exit_code, ran.stdout) == (
        0,
        f"Redacted 5 matches in 4 rows of {db}.\nProven: none of it is in the bytes of state.db, state.db-wal.\n",
    )
    assert files_with(db.parent, b"HIDDEN7") == []
    with open_read(db) as reader:
        assert reader.rows("SELECT count(*) FROM sqlite_schema WHERE name = 'lock'") == [(1,)]


def test_a_row_that_its_table_will_not_have_changed_is_said_to_be_there_and_the_others_go(
    store_copy: Callable[[str], Path], run_cli: RunCli
) -> None:
    db = store_copy("0.19.0")
    with open_write(db, foreign=True) as store, store.transaction() as tx:
        tx.execute("CREATE TABLE strict(a TEXT CHECK (length(a) = 7 OR a LIKE 'free%'))")
        tx.execute("INSERT INTO strict VALUES ('HIDDEN7'), ('free HIDDEN8')")
    ran = run_cli("sessions", "scrub", "--pattern", r"HIDDEN\d", "--yes", "--db", db)
    assert (ran.exit_code, ran.stdout) == (
        1,
        f"Redacted 2 matches in 1 row of {db}.\nNot gone: {db} still holds it.\n"
        "Not gone: 1 row of table strict still match.\n",
    )
    assert files_with(db.parent, b"HIDDEN8") == []
