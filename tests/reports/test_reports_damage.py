"""Reports 14, 20, 21, 22, 23: damage is found, named by table or index, and never called anything else."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from hermes_state.engine import NulRule, open_write
from hermes_state.errors import Corrupt
from tests.maintenance.damage import PAGE, change, leaves, opened, overwrite, overwrite_page
from tests.support.cli import RunCli
from tests.support.stores import StoreCopy

pytestmark = pytest.mark.slow


def doctor_lines(run_cli: RunCli, *options: str) -> tuple[int, list[str], str]:
    """Exit status, the lines that are no "ok", and the last line, but for what it says about the `hermes` script."""
    done = run_cli("doctor", *options)
    assert done.stderr == ""
    shown = [line for line in done.stdout.splitlines() if line != "Next: hermes-state install-shim"]
    return done.exit_code, [line for line in shown if line.startswith(("problem", "DAMAGE"))], shown[-1]


def add_messages(path: Path, count: int) -> None:
    change(
        path,
        f"""WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})
        INSERT INTO messages(session_id, role, content, timestamp)
        SELECT (SELECT min(id) FROM sessions), 'user', printf('message %d of a long chat', i), 1.7e9 + i FROM n""",
    )


# --- 14: the damage is in `messages`, not in the search index ----------------------------------------------------


def test_the_damaged_table_is_named_with_the_exact_number_of_rows_that_can_be_read(
    store_copy: StoreCopy, run_cli: RunCli
) -> None:
    path = store_copy("0.17.0")
    add_messages(path, 4000)
    page = leaves(path, "messages")[-1]
    overwrite_page(path, page, b"\xff" * 64)
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    readable = 0
    for key in range(1, 4183):
        with contextlib.suppress(apsw.CorruptError):
            readable += bool(connection.execute("SELECT content FROM messages WHERE id = ?", (key,)).fetchall())
    connection.close()
    code, found, last = doctor_lines(run_cli)
    assert (code, readable < 4182) == (65, True)
    assert found[0] == (
        f"DAMAGE   The table messages is damaged (page {page}); {readable:,} of 4,182 rows can be read by key. A copy "
        "made now carries the same damage; stop Hermes and keep older backups."
    )
    assert [line for line in found if line.startswith("DAMAGE")] == found[:1]  # no index is blamed for it
    assert last == f"Next: hermes-state sessions recover --source {path}"


def test_rows_that_cannot_be_read_are_not_called_gone_and_the_index_that_has_their_text_is_kept(
    store_copy: StoreCopy, run_cli: RunCli
) -> None:
    path = store_copy("0.17.0")
    add_messages(path, 4000)
    # Wild cell pointers: SQLite walks over them and gives fewer rows, without an error.
    overwrite_page(path, leaves(path, "messages")[-1], b"\xff" * 64, at=8)
    code, found, _last = doctor_lines(run_cli)
    assert code == 65 and found[0].startswith("DAMAGE   The table messages is damaged (page ")
    assert [line for line in found if line.startswith("DAMAGE")] == found[:1]
    assert not any("that are gone" in line for line in found)


# --- 20: "malformed" was taken for damage of the search index, and every write was lost for ten hours ------------


def test_damaged_rows_stop_all_writing_and_a_damaged_index_does_not(store_copy: StoreCopy) -> None:
    add = "INSERT INTO messages(session_id, role, content, timestamp) SELECT min(id), 'user', ?, 1 FROM sessions"
    seen = {}
    for what in ("index", "rows"):
        path = store_copy("0.17.0")
        if what == "index":
            change(path, "DELETE FROM messages_fts_data WHERE id = 10")
        else:
            overwrite_page(path, leaves(path, "messages")[-1], b"\xff" * 64)
        with open_write(path, foreign=True, nul_rule=NulRule.CUT) as store:
            with pytest.raises(Corrupt) as first, store.transaction() as tx:
                tx.execute(add, ("new text",))
            after = "goes on"
            try:
                with store.transaction() as tx:
                    tx.execute("UPDATE sessions SET model = 'later' WHERE rowid = 1")
            except Corrupt as again:
                after = "stopped" if again is first.value else "another error"
            seen[what] = (first.value.search_index, first.value.sqlite_code, after)
    assert seen == {"index": (True, 11, "goes on"), "rows": (False, 11, "stopped")}


# --- 21: structural damage was called "FTS", and a copy of the damaged file was offered as a backup --------------


@pytest.mark.parametrize(
    ("index", "table"),
    [
        ("idx_sessions_source", "sessions"),
        ("idx_sessions_parent", "sessions"),
        ("idx_messages_session", "messages"),
        ("sqlite_autoindex_sessions_1", "sessions"),
    ],
)
def test_a_damaged_index_page_is_called_by_the_name_of_its_index_and_the_named_command_works(
    store_copy: StoreCopy, run_cli: RunCli, index: str, table: str
) -> None:
    path = store_copy("0.17.0")
    (path.parent / "backups").mkdir()
    backup = path.parent / "backups" / "state.db"
    page = leaves(path, index)[0]
    overwrite_page(path, page)
    backup.write_bytes(path.read_bytes())  # what the other doctor recommended: a copy of the damage
    code, found, last = doctor_lines(run_cli)
    assert (code, found[0]) == (
        3,
        f"DAMAGE   The index {index} of the table {table} is damaged (page {page}); the rows are in the table, "
        "not in it. SQLite refuses changes that touch it.",
    )
    assert [line for line in found if line.startswith("DAMAGE")] == found[:1]
    assert last == f"Next: hermes-state sessions repair --db {path}"
    done = run_cli(*last.split()[2:], "--yes")
    assert (done.exit_code, done.stdout.splitlines()[:2]) == (
        0, [f"Repaired {path}.", f"  {index}: made anew (index)."]
    )
    assert doctor_lines(run_cli, "--deep")[:2] == (0, [])
    assert run_cli("doctor", "--db", backup).exit_code == 3


# --- 22: a check-only run passed while quick_check failed --------------------------------------------------------


def zero_the_root(tree: str) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        connection = opened(path)
        root = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (tree,)).fetchall()[0][0]
        connection.close()
        overwrite_page(path, root)

    return damage


def last_leaf(tree: str, data: bytes, at: int) -> Callable[[Path], None]:
    return lambda path: overwrite_page(path, leaves(path, tree)[-1], data, at=at)


DAMAGES: dict[str, Callable[[Path], None]] = {
    "the check raises: root of messages": zero_the_root("messages"),
    "the check raises: root of sessions": zero_the_root("sessions"),
    "the check returns rows: leaf of messages": last_leaf("messages", b"\xff" * 64, 0),
    "the check returns rows: an index": last_leaf("idx_messages_session", b"\0" * PAGE, 0),
    "cut short": lambda path: path.write_bytes(path.read_bytes()[: -40 * PAGE]),
    "the schema": lambda path: overwrite(path, 100, b"\xff" * 300),
    "a page of the search index": last_leaf("messages_fts_data", b"\0" * PAGE, 0),
}


def quick_check(path: Path) -> str:
    """What SQLite's own check says: "ok", "rows" or "raises"."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return "ok" if connection.execute("PRAGMA quick_check").fetchall() == [("ok",)] else "rows"
    except apsw.Error:
        return "raises"
    finally:
        connection.close()


@pytest.mark.parametrize("what", DAMAGES)
def test_no_run_of_the_doctor_calls_healthy_what_quick_check_rejects(
    store_copy: StoreCopy, run_cli: RunCli, what: str
) -> None:
    path = store_copy("0.19.0")
    DAMAGES[what](path)
    assert quick_check(path) != "ok"
    for options in ([], ["--deep"], ["--sizes"]):
        done = run_cli("doctor", "--json", *options)
        assert done.exit_code == done.json["exit_code"] == (3 if "index" in what else 65), done.stdout
        assert done.json["verdict"] in ("problems", "damaged")
    quick = run_cli("doctor", "--quick", "--json")
    assert quick.json["verdict"] != "healthy"


def test_the_quick_run_that_checks_no_pages_does_not_say_healthy(store_copy: StoreCopy, run_cli: RunCli) -> None:
    path = store_copy("0.19.0")
    DAMAGES["the check returns rows: an index"](path)
    code, found, last = doctor_lines(run_cli, "--quick")
    assert (code, found) == (0, [])
    assert last == "Verdict: nothing wrong in what was looked at; pages and indexes were not checked."
    assert run_cli("doctor", "--quick", "--json").json["verdict"] == "unchecked"


# --- 23: damage of the search index stays unseen -----------------------------------------------------------------

NEWEST = "(SELECT max(id) FROM messages)"


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (
            "DELETE FROM messages_fts_data WHERE id > 10",
            "The search index messages_fts does not agree with its text; no conversation is affected.",
        ),
        (
            "UPDATE messages_fts_data SET block = randomblob(length(block)) WHERE id = 10",
            "The search index messages_fts does not agree with its text; no conversation is affected.",
        ),
        (
            f"DELETE FROM messages_fts WHERE rowid = {NEWEST}",
            "The search index messages_fts lacks 1 message; searches miss or show them wrongly.",
        ),
        (
            f"UPDATE messages_fts SET content = 'stale text' WHERE rowid = {NEWEST}",
            "The search index messages_fts keeps another text than the messages for 1 row; its own check cannot see "
            "that.",
        ),
    ],
    ids=["blocks gone", "structure overwritten", "row missing", "row stale"],
)
def test_each_kind_of_damage_of_a_search_index_is_found_and_the_named_command_heals_it(
    store_copy: StoreCopy, run_cli: RunCli, damage: str, sentence: str
) -> None:
    path = store_copy("0.17.0")
    change(path, damage)
    code, found, last = doctor_lines(run_cli)
    assert (code, [line[9:] for line in found][:1]) == (3, [sentence])
    assert last == f"Next: hermes-state sessions repair --db {path}"
    assert run_cli("sessions", "repair", "--yes", "--db", path).exit_code == 0
    assert doctor_lines(run_cli, "--deep") == (0, [], "Verdict: healthy.")
