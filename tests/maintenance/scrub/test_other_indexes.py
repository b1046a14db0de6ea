"""`sessions scrub`: search indexes of other programs, slow patterns, and damaged stores."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_state.engine import open_read, open_write
from hermes_state.store import open_store
from hermes_state.testing.corruption import zero_root
from tests.maintenance.scrub.test_scrub import files_with
from tests.support.cli import RunCli

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("native", [False, True])
def test_texts_that_only_another_programs_search_index_has_are_redacted_there(
    native: bool, store_copy: Callable[[str], Path], tmp_path: Path, run_cli: RunCli
) -> None:
    db = tmp_path / "native" / "state.db" if native else store_copy("0.19.0")
    if native:
        open_store(path=db).close()
    with open_write(db, foreign=not native) as store, store.transaction() as tx:
        for statement in (
            "CREATE VIRTUAL TABLE notes USING fts5(words, place UNINDEXED, tokenize = 'porter')",
            "INSERT INTO notes VALUES ('my HIDDEN7 key', 'in HIDDEN8'), ('nothing', 'here')",
            "CREATE VIRTUAL TABLE terms USING fts5(words, content = '')",
            "INSERT INTO terms(rowid, words) VALUES (1, 'other words')",
        ):
            tx.execute(statement)
    ran = run_cli("sessions", "scrub", "--pattern", r"HIDDEN\d", "--yes", "--db", db)
    assert (ran.exit_code, ran.stdout) == (
        0,
        f"Redacted 2 matches in 1 row of {db}.\nProven: none of it is in the bytes of state.db, state.db-wal.\n",
    )
    assert files_with(db.parent, b"HIDDEN") == [] and files_with(db.parent, b"hidden7") == []
    with open_read(db) as reader:
        assert reader.rows("SELECT rowid FROM notes WHERE notes MATCH 'redacted'") == [(1,)]
        assert reader.rows("SELECT rowid FROM notes WHERE notes MATCH 'hidden7'") == []
        assert reader.rows("SELECT count(*) FROM notes WHERE words LIKE 'my [redacted pattern %] key'") == [(1,)]
        assert reader.rows("SELECT rowid FROM terms WHERE terms MATCH 'other'") == [(1,)]


def test_the_older_kinds_of_search_index_are_redacted_and_one_that_cannot_be_is_said_to_hold_it(
    store_copy: Callable[[str], Path], run_cli: RunCli
) -> None:
    db = store_copy("0.19.0")
    with open_write(db, foreign=True) as store, store.transaction() as tx:
        for statement in (
            "CREATE TABLE texts (id INTEGER PRIMARY KEY, words TEXT)",
            "INSERT INTO texts VALUES (1, 'their HIDDEN7 key')",
            "CREATE VIRTUAL TABLE four USING fts4(words, content=texts)",
            "INSERT INTO four(four) VALUES ('rebuild')",
            "CREATE VIRTUAL TABLE three USING fts3(words)",
        ):
            tx.execute(statement)
        for number in range(40):  # segments, which a rebuild puts together
            tx.execute("INSERT INTO three VALUES (?)", (f"line {number} {'HIDDEN8' if number == 7 else 'plain'}",))
    ran = run_cli("sessions", "scrub", "--pattern", r"HIDDEN\d", "--yes", "--db", db)
    assert (ran.exit_code, ran.stdout) == (
        0,
        f"Redacted 2 matches in 2 rows of {db}.\nProven: none of it is in the bytes of state.db, state.db-wal.\n",
    )
    assert files_with(db.parent, b"HIDDEN") == [] and files_with(db.parent, b"hidden") == []
    with open_read(db) as reader:
        assert reader.rows("SELECT count(*) FROM three") == [(40,)]
        assert reader.rows("SELECT docid FROM four WHERE four MATCH 'redacted'") == [(1,)]
    with open_write(db, foreign=True) as store, store.transaction() as tx:
        tx.execute("CREATE VIRTUAL TABLE none USING fts4(words, content='')")
        tx.execute("INSERT INTO none(docid, words) VALUES (1, 'only here HIDDEN9 now')")
    again = run_cli("sessions", "scrub", "--pattern", "HIDDEN9", "--yes", "--db", db, "--json")
    assert (again.exit_code, again.json["complete"], again.json["rows_left"]) == (1, False, {"none": 1})



def test_a_look_that_is_slow_on_one_word_says_which_table_it_is_in(
    store_copy: Callable[[str], Path], run_cli: RunCli
) -> None:
    db = store_copy("0.19.0")
    with open_write(db, foreign=True) as store, store.transaction() as tx:
        tx.execute("CREATE TABLE huge (word TEXT)")
        tx.execute("INSERT INTO huge VALUES (?)", ("a" * 60_000,))
    above, below = pty.openpty()
    command = run_cli.command("sessions", "scrub", "--pattern", "(a|b)+c", "--dry-run", "--db", db)
    child = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=below, stdin=subprocess.DEVNULL,
        env=run_cli.environment() | {"TERM": "xterm", "COLUMNS": "120"},
    )
    os.close(below)
    seen = b""
    try:
        while b"searching huge" not in seen:
            # The end comes as an error on a terminal: then the bar was never drawn.
            seen += os.read(above, 4096)
    finally:
        child.kill()
        child.wait()
        os.close(above)


def test_a_damaged_store_is_refused_with_the_first_finding_that_says_something(
    store_copy: Callable[[str], Path], run_cli: RunCli
) -> None:
    db = store_copy("0.19.0")
    with open_write(db, foreign=True) as store:
        store.checkpoint("truncate")
    (page,) = zero_root(db, "idx_messages_session").pages
    ran = run_cli("sessions", "scrub", "--pattern", "HIDDEN7", "--yes", "--db", db, "--json")
    assert ran.exit_code == 65
    assert ran.json_error["error"]["message"] == (
        f"{db} is damaged, found before anything was changed: Tree {page} page {page}: btreeInitPage() returns error "
        "code 11 (2 findings)."
    )
