"""Every case of the corruption library on every kind of store: the right object, exit status and next command."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from hermes_state.errors import NotFound
from hermes_state.testing import corruption
from hermes_state.testing.corruption import CASES
from maintenance.doctor.examine import Examination
from maintenance.doctor.findings import Severity
from tests.maintenance.damage import change, examined, only, opened
from tests.maintenance.native_stores import add_session, new_store
from tests.support.stores import StoreCopy, unpack, versions

pytestmark = pytest.mark.slow

RECOVER = "hermes-state sessions recover --source {path}"
REPAIR = "hermes-state sessions repair --db {path}"
# The store itself, its WAL, and the index that the library damages, as findings name them.
DB, WAL, INDEX = "{path}", "{path}-wal", "{index}"


@dataclass(frozen=True)
class Expected:
    """What the doctor says: exit status, next command, and findings of which each must be there."""

    exit: int
    next: str
    # (code, object)
    findings: tuple[tuple[str, str], ...] = ()


def _of(exit_code: int, command: str, *findings: tuple[str, str]) -> Expected:
    return Expected(exit=exit_code, next=command, findings=findings)


CANONICAL = _of(65, RECOVER, ("table_damaged", "messages"))
EXPECTED: dict[str, Expected] = {
    "header_zeroed": _of(65, RECOVER, ("zeroed_header", DB)),
    "page_1_zeroed": _of(65, RECOVER, ("zeroed_header", DB)),
    "root_zeroed": CANONICAL,
    "interior_zeroed": CANONICAL,
    "one_leaf_zeroed": CANONICAL,
    "twenty_leaves_zeroed": CANONICAL,
    "twenty_overflow_zeroed": _of(65, RECOVER),
    "cut_to_70_percent": _of(65, RECOVER, ("file_cut", DB)),
    "cut_to_90_percent_and_777_bytes": _of(65, RECOVER, ("file_cut", DB)),
    "schema_row_duplicated": _of(3, REPAIR, ("schema_entry_damaged", "messages")),
    "schema_sql_garbage": _of(65, RECOVER, ("schema_damaged", "messages")),
    "fts_blocks_overwritten": _of(3, REPAIR, ("search_index_damaged", "messages_fts")),
    "fts_data_missing": _of(3, REPAIR, ("search_index_damaged", "messages_fts")),
    "fts_pages_zeroed": _of(3, REPAIR, ("search_index_pages_damaged", "messages_fts")),
    "freelist_trunk_bad": _of(3, REPAIR, ("freelist_damaged", "freelist")),
    "leaves_swapped": CANONICAL,
    "index_leaf_zeroed": _of(3, REPAIR, ("index_damaged", INDEX)),
    "wal_control": _of(0, ""),
    # Nothing of what stood behind the cut is left, so no command brings it back.
    "wal_cut_mid_frame": _of(3, "", ("wal_cut", WAL)),
    "wal_bad_checksum": _of(65, RECOVER, ("wal_end_damaged", WAL)),
    "wal_header_zeroed": _of(65, RECOVER, ("wal_header_damaged", WAL)),
    # Nothing of those commits is left anywhere: SQLite and we have a whole store of an earlier moment.
    "wal_deleted": _of(0, ""),
    "wal_mismatched": _of(65, RECOVER, ("wal_other_generation", WAL)),
    "five_leaves_zeroed_beside_wal": CANONICAL,
}
# What these hit is chance: pages of any object, or text inside a whole page.
BY_CHANCE = {"two_hundred_bits_flipped", "twenty_garbage_pages"}


def grow(path: Path) -> None:
    """Rows for a tree of three levels, values in overflow chains, and free pages."""
    change(
        path,
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1200) "
        "INSERT INTO messages(session_id, role, content, timestamp) SELECT (SELECT min(id) FROM sessions), 'user', "
        "printf('number %d ', i) || hex(zeroblob(1000)), 1.7e9 + i FROM n",
        "UPDATE messages SET content = content || hex(zeroblob(10000)) WHERE id % 100 = 0",
        "CREATE TABLE filler(x)", "INSERT INTO filler VALUES (zeroblob(40000))", "DROP TABLE filler",
        triggers=False,
    )


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = unpack("0.19.0", tmp_path_factory.mktemp("grown") / "state.db")
    grow(path)
    # The index has no rows for what the triggers did not see.
    change(
        path,
        *(
            f"INSERT INTO {name}(rowid, content) SELECT id, content || '  ' FROM messages WHERE id > 72"
            for name in ("messages_fts", "messages_fts_trigram")
        ),
    )
    return path


def with_wal(path: Path) -> None:
    """Thirty commits that only the WAL holds."""
    connection = opened(path)
    for number in range(30):
        text = f"title {number} " * 40
        connection.execute("UPDATE sessions SET title = ? WHERE rowid = ?", (text, number % 4 + 1)).fetchall()
    connection.close()


def judged(path: Path, name: str) -> None:
    """Damage the store and compare what the doctor says with the table."""
    case = CASES[name]
    if "wal" in case.needs:
        with_wal(path)
    damage = case.apply(path, "messages", 1)
    before = {item.name: item.read_bytes() for item in path.parent.iterdir() if not item.name.endswith("-shm")}
    found = examined(path)
    assert {name: (path.parent / name).read_bytes() for name in before} == before
    if name in BY_CHANCE:
        assert found.exit_code in (3, 65)
        assert (found.next_command == RECOVER.format(path=path)) or found.exit_code == 3
        return
    expected, index = EXPECTED[name], damage.objects[0] if damage and damage.objects else ""
    words = {"path": path, "index": index}
    assert said(found) == (expected.exit, expected.next.format(**words)), shown(found)
    there = {(finding.code, finding.object) for finding in found.findings if finding.severity >= Severity.WARNING}
    assert {(code, what.format(**words)) for code, what in expected.findings} <= there


def said(found: Examination) -> tuple[int, str]:
    return found.exit_code, "" if found.next_command.endswith("install-shim") else found.next_command


def shown(found: Examination) -> list[tuple[str, str]]:
    return [(one.code, one.object) for one in found.findings if one.severity >= Severity.WARNING]


def test_the_table_has_every_case_of_the_library() -> None:
    assert EXPECTED.keys() | BY_CHANCE == CASES.keys()


@pytest.mark.parametrize(
    "release",
    [
        pytest.param(release, marks=() if release in ("0.13.0", "0.19.0") else pytest.mark.campaign)
        for release in versions()
    ],
)
@pytest.mark.parametrize("name", [name for name in CASES if not CASES[name].needs & {"interior", "overflow"}])
def test_each_damage_of_a_file_of_each_release_is_named_with_the_command_that_helps(
    store_copy: StoreCopy, name: str, release: str
) -> None:
    path = store_copy(release)
    if name == "freelist_trunk_bad":
        change(path, "CREATE TABLE filler(x)", "INSERT INTO filler VALUES (zeroblob(40000))", "DROP TABLE filler")
    judged(path, name)


@pytest.mark.parametrize("name", CASES)
def test_each_damage_of_a_large_file_is_named_with_the_command_that_helps(
    grown: Path, tmp_path: Path, name: str
) -> None:
    path = tmp_path / "home" / "state.db"
    path.parent.mkdir()
    shutil.copy(grown, path)
    judged(path, name)


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = new_store(tmp_path_factory.mktemp("native"))
    for number in range(40):
        add_session(path, f"session {number}", messages=40)
    change(path, "CREATE TABLE filler(x)", "INSERT INTO filler VALUES (zeroblob(40000))", "DROP TABLE filler")
    return path


@pytest.mark.parametrize("name", [name for name in CASES if "fts" not in CASES[name].needs])
def test_each_damage_of_a_native_store_is_named_with_the_command_that_helps(
    native: Path, tmp_path: Path, name: str
) -> None:
    path = Path(shutil.copytree(native.parent, tmp_path / "home")) / native.name
    try:
        judged(path, name)
    except NotFound:
        assert CASES[name].needs & {"interior", "overflow"}  # a store of this size has none
        pytest.skip("a native store keeps long texts outside the table, and this one is small")


def test_swapped_leaves_of_an_index_are_never_called_damage_of_its_table(grown: Path, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    shutil.copy(grown, path)
    corruption.swap_leaves(path, "idx_messages_session", 1)
    found = examined(path, deep=True)
    assert said(found) == (3, REPAIR.format(path=path)), shown(found)
    assert only(found, "index_content_differs").sentence == (
        "The index idx_messages_session of the table messages disagrees with its rows, although all pages are whole."
    )


def test_a_page_that_two_tables_use_is_damage_of_both(grown: Path, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    shutil.copy(grown, path)
    change(path, "CREATE TABLE first(x)", "CREATE TABLE second(x)", "INSERT INTO first VALUES (1)")
    connection = opened(path)
    connection.config(1010, 0)
    connection.execute("PRAGMA writable_schema = ON").fetchall()
    connection.execute(
        "UPDATE sqlite_schema SET rootpage = (SELECT rootpage FROM sqlite_schema WHERE name = 'first') "
        "WHERE name = 'second'"
    ).fetchall()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()
    found = examined(path)
    assert found.exit_code == 65
    assert {one for code, one in shown(found) if code == "table_damaged"} == {"first", "second"}
