"""Reports 3, 10, 12, 15, 16, 68: what happens to the files of a store that a gateway has open."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_state.engine import NulRule, open_write
from hermes_state.errors import GenerationLost
from tests.lockowners.holding import USER, as_user, needs_root
from tests.maintenance.damage import examined, only, opened, overwrite_page
from tests.reports.gateway import SUFFIXES, display_name, finish, identities, start
from tests.support import strace
from tests.support.children import Children
from tests.support.cli import RunCli
from tests.support.stores import StoreCopy

pytestmark = pytest.mark.slow

needs_strace = pytest.mark.skipif(not strace.available(), reason="strace cannot trace here")
SESSION = "20260121_000009_f2bd79"


# --- 3: listing sessions took the WAL away, and said FATAL with exit status 0 ------------------------------------


@needs_strace
@pytest.mark.parametrize("manner", ["holding", "cancelled"])
@pytest.mark.parametrize(
    "verb", [("sessions", "list"), ("sessions", "stats"), ("sessions", "export", "-"), ("doctor",)], ids=" ".join
)
def test_listing_beside_a_gateway_takes_nothing_away_even_when_its_locks_are_cancelled(
    store_copy: StoreCopy, run_cli: RunCli, child: Children, tmp_path: Path, manner: str, verb: tuple[str, ...]
) -> None:
    db = store_copy()
    gateway = start(child, db, manner)
    before = identities(db)
    trace = tmp_path / "trace"
    done = run_cli(*verb, wrapper=strace.under_strace([], trace))
    assert done.exit_code == 0, done.stderr
    seen = strace.read(trace.read_text(errors="replace").splitlines(), db)
    assert (seen.forbidden, seen.writable_opens, seen.locks > 0) == ((), (), True)
    assert identities(db) == before
    assert finish(gateway) == "committed 0"
    assert display_name(db) == "by the gateway 2"


def test_an_ordinary_opener_does_take_the_wal_of_such_a_gateway_away(store_copy: StoreCopy, child: Children) -> None:
    # What the reports saw, so that the tests around this one stand for something.
    db = store_copy()
    gateway = start(child, db, "cancelled")
    script = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT 1 FROM sessions'); c.close()"
    subprocess.run([sys.executable, "-c", script, str(db)], check=True)
    assert not os.path.exists(f"{db}-wal")
    gateway.kill()


@pytest.mark.parametrize("verb", ["list", "stats", "show"])
def test_what_fails_for_good_never_exits_0(store_copy: StoreCopy, run_cli: RunCli, verb: str) -> None:
    db = store_copy()
    connection = opened(db)
    root = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'sessions'").fetchall()[0][0]
    connection.close()
    overwrite_page(db, root)
    done = run_cli("sessions", verb, *([SESSION] if verb == "show" else []))
    assert (done.exit_code, done.stdout) == (65, "")
    assert done.stderr.splitlines()[0].startswith(f"Error: The database file {db} is damaged: it failed while reading")
    assert done.stderr.splitlines()[-1] == (
        f"Try: Run `hermes-state doctor --db {db}`; it names the damaged object and changes nothing."
    )


@pytest.mark.parametrize("verb", ["list", "stats"])
def test_a_store_that_somebody_keeps_for_himself_is_busy_and_not_empty(
    store_copy: StoreCopy, run_cli: RunCli, child: Children, fake_clock: object, verb: str
) -> None:
    db = store_copy()
    owner = child(
        """
        import sqlite3, sys, gates
        store = sqlite3.connect(sys.argv[1], isolation_level=None)
        store.execute("PRAGMA locking_mode = exclusive").fetchall()
        store.execute("BEGIN EXCLUSIVE")
        gates.reach("ready")
        gates.wait("end")
        """,
        db,
    )
    owner.wait_for("ready")
    done = run_cli("sessions", verb)
    assert (done.exit_code, done.stdout) == (75, "")
    assert f"PID {owner.pid}" in done.stderr


# --- 10: the chat user reads FATAL -------------------------------------------------------------------------------


def test_who_chats_reads_one_plain_sentence_with_one_safe_next_step(store_copy: StoreCopy) -> None:
    db = store_copy()
    store = open_write(db, foreign=True, nul_rule=NulRule.CUT)
    with store.transaction() as tx:
        tx.execute("UPDATE sessions SET display_name = 'kept' WHERE rowid = 1")
    for suffix in SUFFIXES[1:]:
        os.unlink(f"{db}{suffix}")
    with pytest.raises(GenerationLost) as guard, store.transaction() as tx:
        tx.execute("UPDATE sessions SET display_name = 'too late' WHERE rowid = 1")
    store.close()
    assert guard.value.facts["user_sentence"] == (
        "Hermes paused saving because another program replaced the files of its session store while it was running. "
        "What was saved is kept; please quit every Hermes program of this profile and start it again, and do not "
        "delete any file."
    )


def test_a_person_at_the_command_line_gets_one_safe_command_and_an_exit_status(
    store_copy: StoreCopy, run_cli: RunCli, child: Children
) -> None:
    db = store_copy()
    gateway = start(child, db)
    for suffix in SUFFIXES[1:]:
        os.unlink(f"{db}{suffix}")
    done = run_cli("sessions", "rename", SESSION, "another title", "--json")
    problem = done.json_error["error"]
    assert (done.exit_code, done.stdout) == (1, "")
    assert problem["message"] == (
        f"1 process still uses files of {db} that were deleted or replaced (shm, wal), and `sessions rename` would "
        "write beside that second version of the store. Nothing was changed."
    )
    assert problem["why"].startswith(f"PID {gateway.pid} (")
    assert problem["try"] == "Run `hermes-state doctor` first: it says what they hold. Stop them only after that."
    assert not os.path.exists(f"{db}-wal") or os.stat(f"{db}-wal").st_size == 0


# --- 12: a web interface falls back to a writing connection ------------------------------------------------------


def recipe(project: Path) -> str:
    """The code that the page for other programs gives them."""
    page = (project / "docs" / "reading-safely.md").read_text(encoding="utf-8")
    return "\n\n".join(["import sys", *re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)])


READ = """
try:
    connection = open_for_reading(sys.argv[1])
    print(connection.execute("SELECT display_name FROM sessions WHERE rowid = 1").fetchall()[0][0])
    connection.close()
except sqlite3.Error as problem:
    print(problem)
"""


def test_a_reader_that_follows_our_page_leaves_the_files_of_a_gateway_whose_locks_are_cancelled(
    project: Path, store_copy: StoreCopy, child: Children
) -> None:
    db = store_copy()
    gateway = start(child, db, "cancelled")
    before = identities(db)
    reader = child(recipe(project) + READ, db, python=sys.executable, own_packages=False)
    assert reader.finish().strip() == "by the gateway 1"
    assert identities(db) == before
    assert finish(gateway) == "committed 0"


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A folder that other users may look into and not write to."""
    folder = Path(tempfile.mkdtemp(prefix="reports-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@needs_root
def test_a_reader_that_cannot_open_read_only_says_so_and_changes_nothing(
    project: Path, store_copy: StoreCopy, child: Children, shared_folder: Path
) -> None:
    # -shm missing and the folder closed to the reader: the case in which the web interface fell back.
    db = shared_folder / "state.db"
    shutil.move(store_copy(), db)
    before = (os.listdir(shared_folder), os.stat(db).st_mtime_ns)
    reader = child(recipe(project) + READ, db, python=sys.executable, own_packages=False, wrapper=as_user(USER))
    assert reader.finish().strip() == "attempt to write a readonly database"
    assert (os.listdir(shared_folder), os.stat(db).st_mtime_ns) == before


# --- 15: an I/O error, then "malformed", under one long writer and many short ones -------------------------------

LONG = """
import sys, gates
from hermes_state.engine import NulRule, open_write
with open_write(sys.argv[1], foreign=True, nul_rule=NulRule.CUT) as store:
    done = 0
    gates.reach("ready")
    while not gates.released("end"):
        with store.transaction() as tx:
            tx.execute("INSERT INTO messages(session_id, role, content, timestamp) VALUES(?, 'user', ?, 1)",
                       (sys.argv[2], f"long {done} " + "text " * 200))
        done += 1
print(done)
"""
SHORT = """
import sqlite3, sys, gates
done = 0
for number in range(12):
    store = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)
    store.execute("UPDATE sessions SET display_name = ? WHERE rowid = ?", (f"short {number}", int(sys.argv[2]) + 1))
    store.close()
    done += 1
print(done)
"""


def test_one_long_writer_and_eight_that_come_and_go_leave_a_whole_store(store_copy: StoreCopy, child: Children) -> None:
    db = store_copy()
    before = len(opened_rows(db))
    long = child(LONG, db, SESSION)
    long.wait_for("ready")
    short = [child(SHORT, db, number) for number in range(8)]
    assert [int(one.finish()) for one in short] == [12] * 8
    long.release("end")
    written = int(long.finish())
    assert written > 0 and len(opened_rows(db)) == before + written
    found = examined(db)
    assert only(found, "pages").sentence.endswith(" pages are whole.")
    assert found.verdict == "healthy", [finding.sentence for finding in found.findings]


def opened_rows(db: Path) -> list[int]:
    connection = opened(db)
    try:
        return [row[0] for row in connection.execute("SELECT id FROM messages").fetchall()]
    finally:
        connection.close()


# --- 16: an index was rebuilt while another process had the store open -------------------------------------------


@pytest.mark.parametrize(
    "verb", [("optimize",), ("optimize", "--via-copy"), ("optimize-storage",)], ids=" ".join
)
def test_no_index_is_rebuilt_while_another_process_has_the_store_open(
    store_copy: StoreCopy, run_cli: RunCli, child: Children, verb: tuple[str, ...]
) -> None:
    db = store_copy()
    gateway = start(child, db)
    before, content = identities(db), [Path(f"{db}{suffix}").read_bytes() for suffix in ("", "-wal")]
    done = run_cli("sessions", *verb)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.splitlines()[0] == (
        f"Error: `sessions {verb[0]}` needs {db} for itself, and 1 other process has it open. Nothing was changed."
    )
    assert f"PID {gateway.pid} (" in done.stderr
    assert [Path(f"{db}{suffix}").read_bytes() for suffix in ("", "-wal")] == content
    assert identities(db) == before
    assert finish(gateway) == "committed 0"
    assert run_cli("sessions", *verb).exit_code == 0


# --- 68: frequent TRUNCATE checkpoints beside other processes ----------------------------------------------------


def taken_away(seen: strace.Seen) -> list[str]:
    """What shortened or removed a file under others. A checkpoint sets the main file's length: that is its work."""
    return [text for text in seen.forbidden if re.match(r"(f?truncate|fallocate) of (wal|shm)|unlink|rename", text)]


CHECKPOINTING = """
import sys, gates
from hermes_state.engine import NulRule, open_write
with open_write(sys.argv[1], foreign=True, nul_rule=NulRule.CUT) as store:
    for number in range(150):
        with store.transaction() as tx:
            tx.execute("INSERT INTO messages(session_id, role, content, timestamp) VALUES(?, 'user', ?, 1)",
                       (sys.argv[2], f"row {number} " + "words that fill a page of text " * 300))
"""


@needs_strace
def test_the_engine_never_truncates_the_wal_that_others_have_open(
    store_copy: StoreCopy, child: Children, tmp_path: Path
) -> None:
    db = store_copy()
    gateway = start(child, db)
    trace = tmp_path / "trace"
    writer = child(CHECKPOINTING, db, SESSION, wrapper=strace.under_strace([], trace))
    writer.finish(120)
    seen = strace.read(trace.read_text(errors="replace").splitlines(), db)
    assert (taken_away(seen), "pwrite64 to main" in seen.forbidden) == ([], True)  # it did checkpoint
    assert finish(gateway) == "committed 0"
    assert examined(db).verdict == "healthy"


@needs_strace
@pytest.mark.parametrize(
    "verb",
    [
        ("archive", SESSION), ("rename", SESSION, "t"), ("optimize", "--online"),
        ("prune", "--online", "--older-than", "1d", "--yes", "--allow-large"),
    ],
    ids=lambda verb: verb[0],
)
def test_no_verb_that_works_beside_others_truncates_their_wal(
    store_copy: StoreCopy, run_cli: RunCli, child: Children, tmp_path: Path, verb: tuple[str, ...]
) -> None:
    db = store_copy()
    gateway = start(child, db)
    before = identities(db)
    trace = tmp_path / "trace"
    done = run_cli("sessions", *verb, wrapper=strace.under_strace([], trace))
    assert done.exit_code == 0, done.stderr
    seen = strace.read(trace.read_text(errors="replace").splitlines(), db)
    assert (taken_away(seen), "pwrite64 to wal" in seen.forbidden) == ([], True)  # it did write
    assert identities(db) == before
    assert finish(gateway) == "committed 0"
