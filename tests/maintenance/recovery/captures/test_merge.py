"""What only a capture holds comes into the store once, and nothing else changes (report 11)."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes_state.engine import open_read, open_write
from hermes_state.errors import CaptureRefused, GenerationLost
from hermes_state.store import open_store
from maintenance.recovery.captures.merge import merge_wal
from tests.maintenance.recovery.captures.making import LOSING, foreign_capture, write_manifest
from tests.support.children import Children
from tests.support.cli import RunCli

pytestmark = pytest.mark.slow


@pytest.fixture
def db(store_copy: Callable[[str], Path]) -> Path:
    return store_copy("0.19.0")


def rows(db: Path, sql: str) -> list[tuple[Any, ...]]:
    with open_read(db) as reader:
        return reader.rows(sql)


def session_of(db: Path) -> str:
    return str(rows(db, "SELECT id FROM sessions ORDER BY id LIMIT 1")[0][0])


def say(db: Path, session: str, text: str) -> None:
    with open_write(db, foreign=True, deadline_seconds=5.0) as store, store.transaction() as tx:
        tx.execute(
            "INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, 'user', ?, 5.0)", (session, text)
        )


def test_rows_of_a_capture_come_in_once_and_what_others_wrote_stays(db: Path, child: Children) -> None:
    session = session_of(db)
    before = rows(db, "SELECT * FROM messages ORDER BY id")
    counted = rows(db, f"SELECT message_count FROM sessions WHERE id = '{session}'")[0][0]
    capture = foreign_capture(db, child, session=session)
    say(db, session, "written meanwhile")

    report = merge_wal(capture, db)
    assert [one.rows for one in report.captures] == [{"messages": 4, "sessions": 1}]
    assert report.proven is True
    now = rows(db, "SELECT * FROM messages ORDER BY id")
    assert now[: len(before)] == before
    added = rows(db, "SELECT session_id, content FROM messages ORDER BY id")[len(before) :]
    # The id that both sides gave is the live row's; the captured row got the next one, the others kept theirs.
    assert sorted(text for _session, text in added) == ["hello", "new 0", "new 1", "new 2", "written meanwhile"]
    assert rows(db, f"SELECT message_count FROM sessions WHERE id = '{session}'")[0][0] == counted + 3
    assert rows(db, "SELECT source FROM sessions WHERE id = 'captured-session'") == [("cli",)]
    assert json.loads((capture / "merged.json").read_text())["rows"] == {"messages": 4, "sessions": 1}

    again = merge_wal(capture, db)
    assert [one.rows for one in again.captures] == [{}]
    assert rows(db, "SELECT * FROM messages ORDER BY id") == rows(db, "SELECT * FROM messages ORDER BY id")
    assert len(rows(db, "SELECT 1 FROM messages")) == len(now)


def test_merged_rows_are_found_by_hermes_agents_own_index(db: Path, child: Children, run_cli: RunCli) -> None:
    capture = foreign_capture(db, child, session=session_of(db), prefix="newwordofthecapture")
    merge_wal(capture, db)
    found = rows(db, "SELECT count(*) FROM messages_fts WHERE messages_fts MATCH 'newwordofthecapture'")
    assert found == [(3,)]
    assert run_cli("doctor", "--db", db).exit_code == 3  # the capture is still there
    assert [finding["code"] for finding in run_cli("doctor", "--db", db, "--json").json["findings"]
            if finding["severity"] == "problem"] == []


def test_equal_messages_are_counted_and_what_was_deleted_since_stays_deleted(db: Path, child: Children) -> None:
    session = session_of(db)
    gone = rows(db, f"SELECT id FROM messages WHERE session_id = '{session}' ORDER BY id LIMIT 1")[0][0]
    folder = foreign_capture(db, child, session=session, prefix="same", count=1)
    with open_write(db, foreign=True, deadline_seconds=5.0) as store, store.transaction() as tx:
        tx.execute("DELETE FROM messages WHERE id = ?", (gone,))
        # What the capture holds once is here once already.
        tx.execute(
            "INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, 'user', 'same 0', 1800000000.0)",
            (session,),
        )
    report = merge_wal(folder, db)
    assert report.captures[0].rows == {}
    assert rows(db, f"SELECT count(*) FROM messages WHERE id = {gone}") == [(0,)] or rows(
        db, f"SELECT content FROM messages WHERE id = {gone}"
    ) == [("same 0",)]


def test_two_generations_are_merged_oldest_first_whatever_their_names(db: Path, child: Children) -> None:
    session = session_of(db)
    foreign_capture(db, child, session=session, prefix="b", stamp="1", captured_at="2026-09-13T11:00:00Z")
    foreign_capture(db, child, session=session, prefix="a", stamp="2", captured_at="2026-09-13T10:00:00Z")

    report = merge_wal(None, db)
    assert [one.rows for one in report.captures] == [{"messages": 3}, {"messages": 3}]
    added = rows(db, "SELECT content FROM messages ORDER BY id DESC LIMIT 6")
    assert [text for (text,) in reversed(added)] == ["a 0", "a 1", "a 2", "b 0", "b 1", "b 2"]


def test_of_five_variants_four_are_refused_and_one_is_merged(db: Path, child: Children) -> None:
    session = session_of(db)
    good = foreign_capture(db, child, session=session, stamp="1", captured_at="2026-09-13T10:00:00Z")
    missing = foreign_capture(db, child, session=session, prefix="m", stamp="2", captured_at="2026-09-13T10:01:00Z")
    (missing / "state.db-wal").unlink()
    altered = foreign_capture(db, child, session=session, prefix="x", stamp="3", captured_at="2026-09-13T10:02:00Z")
    (altered / "state.db-wal").write_bytes((altered / "state.db-wal").read_bytes()[::-1])
    partial = foreign_capture(db, child, session=session, prefix="p", stamp="4", captured_at="2026-09-13T10:03:00Z")
    partial = partial.rename(partial.with_name(partial.name + ".partial"))
    older = foreign_capture(db, child, session=session, prefix="o", stamp="5", captured_at="2026-09-13T09:00:00Z")
    content = db.read_bytes()
    for wrong in (missing, altered, partial, [good, older]):
        with pytest.raises(CaptureRefused):
            merge_wal(wrong, db)
    assert db.read_bytes() == content

    assert merge_wal(good, db).captures[0].total == 5


def test_a_capture_of_another_store_is_refused(db: Path, child: Children, store_copy: Callable[[str], Path]) -> None:
    other = store_copy("0.18.2")
    with open_write(other, foreign=True, deadline_seconds=5.0) as store, store.transaction() as tx:
        tx.rows("PRAGMA defer_foreign_keys = ON")
        for table, column in (("sessions", "id"), ("messages", "session_id")):
            tx.execute(f"UPDATE {table} SET {column} = 'other-' || {column}")
        tx.execute("UPDATE sessions SET parent_session_id = NULL")
    capture = foreign_capture(other, child, session=session_of(other))
    with pytest.raises(CaptureRefused) as raised:
        merge_wal(capture, db)
    assert (raised.value.kind, raised.value.message) == (
        "other_store", f"The capture {capture} shares no session with {db}: it is of another store.",
    )


def test_a_wal_without_its_store_names_the_command_that_reads_it(db: Path, child: Children) -> None:
    capture = foreign_capture(db, child, session=session_of(db))
    (capture / "state.db.header").write_bytes((capture / "state.db").read_bytes()[:100])
    (capture / "state.db").unlink()
    write_manifest(capture, "2026-09-13T10:15:00Z", ["state.db-wal", "state.db.header"])
    with pytest.raises(CaptureRefused) as raised:
        merge_wal(capture, db)
    assert (raised.value.kind, raised.value.hint) == (
        "header_only", f"Run `hermes-state sessions recover --source {capture}`: it reads the rows in the WAL.",
    )


# --- captures of the library's own ------------------------------------------------------------------------------


def lose(path: Path, child: Children) -> Path:
    """A gateway loses its WAL with five messages and a session in it, and leaves a capture."""
    gateway = child(LOSING, path)
    gateway.wait_for("written")
    for name in ("-wal", "-shm"):
        os.unlink(f"{path}{name}")
    gateway.release("go")
    capture = Path(gateway.wait_for("lost"))
    gateway.kill()
    with open_store(path=path) as store:
        store.messages.append("s", role="user", content="by another process, into the new WAL")
    return capture


@pytest.fixture
def native(tmp_path: Path) -> Path:
    path = tmp_path / "home" / "state.db"
    with open_store(path=path) as store:
        store.sessions.create(id="s", source="cli")
        store.messages.append("s", role="user", content="before")
    return path


def texts(path: Path, session: str = "s") -> list[Any]:
    with open_store(path=path) as store:
        return [message.content for message in store.messages.history(session, after=0, limit=100).messages]


def test_what_a_gateway_lost_with_its_wal_is_brought_back_once(native: Path, child: Children) -> None:
    capture = lose(native, child)
    assert texts(native) == ["before", "by another process, into the new WAL"]

    look = merge_wal(capture, native, dry_run=True)
    assert (look.captures[0].rows, look.written, look.proven) == ({"sessions": 1, "messages": 6}, False, None)
    assert texts(native) == ["before", "by another process, into the new WAL"]

    assert merge_wal(capture, native).captures[0].rows == {"sessions": 1, "messages": 6}
    expected = ["before", "by another process, into the new WAL"] + [f"only in the lost WAL {n}" for n in range(5)]
    assert texts(native) == expected
    assert texts(native, "lost-session") == ["a session of its own"]
    assert merge_wal(capture, native).captures[0].rows == {}
    assert texts(native) == expected


def test_nothing_is_merged_while_a_process_works_on_the_deleted_files(native: Path, child: Children) -> None:
    capture = lose(native, child)
    held = child(
        """
        import sys, gates
        from hermes_state.store import open_store
        store = open_store(path=sys.argv[1])
        store.sessions.count()
        gates.reach("open")
        gates.wait("end")
        """,
        native,
    )
    held.wait_for("open")
    for name in ("-wal", "-shm"):
        os.unlink(f"{native}{name}")
    with pytest.raises(GenerationLost) as raised:
        merge_wal(capture, native)
    assert f"PID {held.pid} " in raised.value.message
    held.kill()
    assert merge_wal(capture, native).captures[0].rows == {"sessions": 1, "messages": 6}


def test_a_message_and_a_session_that_were_deleted_since_stay_deleted(native: Path, child: Children) -> None:
    capture = lose(native, child)
    with open_store(path=native) as store:
        (first,) = (message.id for message in store.messages.history("s", after=0, limit=1).messages)
        store.messages.delete("s", [first], actor="test", reason="test")
    merge_wal(capture, native)
    with open_store(path=native) as store:
        store.sessions.delete("lost-session", actor="test", reason="test")
    assert merge_wal(capture, native).captures[0].rows == {}
    assert "before" not in texts(native)


def test_a_capture_of_another_native_store_is_refused(native: Path, child: Children, tmp_path: Path) -> None:
    capture = lose(native, child)
    other = tmp_path / "other" / "state.db"
    with open_store(path=other) as store:
        theirs = store.store_id
    with open_store(path=native) as store:
        mine = store.store_id
    with pytest.raises(CaptureRefused) as raised:
        merge_wal(capture, other)
    assert raised.value.message == (
        f"The capture {capture} is of the store {mine}; {other} is the store {theirs}."
    )


def test_the_command_lists_merges_and_says_so(native: Path, child: Children, run_cli: RunCli) -> None:
    capture = lose(native, child)
    partial = capture.with_name(capture.name + "-2.partial")
    partial.mkdir()

    listed = run_cli("sessions", "captures", "--db", native)
    assert listed.exit_code == 65
    assert listed.stdout == (
        f"1 capture of {native}, with 7 rows that it lacks\n"
        f"  {capture.name}: 1 session, 6 messages\n"
        f"  The capture {partial} cannot be used: it was interrupted while it was made, so it may hold only a part.\n"
        f"Next: hermes-state sessions captures --db {native} --merge\n"
    )
    partial.rmdir()
    assert run_cli("sessions", "captures", "--db", native).exit_code == 3

    merged = run_cli("sessions", "captures", "--merge", "--yes", "--db", native)
    assert (merged.exit_code, merged.stdout) == (
        0, f"Merged into {native}:\n  {capture.name}: 1 session, 6 messages\nThe store takes writes.\n",
    )
    again = run_cli("sessions", "captures", "--db", native, "--json")
    assert (again.exit_code, again.json["captures"][0]["row_count"]) == (0, 0)


def test_without_a_capture_merging_writes_nothing(db: Path, run_cli: RunCli) -> None:
    before = db.read_bytes()
    ran = run_cli("sessions", "captures", "--merge", "--yes", "--db", db)
    assert (ran.exit_code, ran.stdout, ran.stderr) == (0, f"There is no capture beside {db}.\n", "")
    assert db.read_bytes() == before
    assert not (wal := db.with_name(db.name + "-wal")).exists() or wal.stat().st_size == 0


def test_the_next_command_can_be_pasted_from_a_folder_with_spaces(
    store_copy: Callable[..., Path], child: Children, run_cli: RunCli
) -> None:
    db = store_copy("0.19.0", home="my home's $x")
    foreign_capture(db, child, session=session_of(db))
    listed = run_cli("sessions", "captures", "--db", db)
    last = listed.stdout.splitlines()[-1]
    assert last == f"Next: hermes-state sessions captures --db {shlex.quote(str(db))} --merge"
    last = run_cli("sessions", "leftovers", "--db", db).stdout.splitlines()[-1]
    assert last == f"Next: hermes-state sessions captures --db {shlex.quote(str(db))}"
