"""Each kind of derived damage is repaired on the same inode, with every row as it was, and the damage kept aside."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hermes_state.engine.private import open_private
from hermes_state.errors import Corrupt
from hermes_state.testing import corruption
from maintenance.repair import repair
from tests.maintenance.damage import change
from tests.maintenance.repair.damages import FOREIGN, damaged_folders, prints, problems
from tests.support.peers import find
from tests.support.stores import StoreCopy, versions

pytestmark = pytest.mark.slow


def definitions(path: Path) -> set[tuple[str, str, str | None]]:
    with open_private(path, search_modules=False) as private:
        return set(private.rows("SELECT type, name, sql FROM sqlite_schema"))  # type: ignore[arg-type]


def repaired(path: Path, name: str) -> None:
    damage, objects = FOREIGN[name]
    whole = definitions(path)
    rows = prints(path)
    damage(path)
    if name.endswith("external index"):
        whole, rows = definitions(path), prints(path)
    before, inode = path.read_bytes(), path.stat().st_ino
    report = repair(path)
    assert report.outcome == "repaired"
    assert {step.object for step in report.steps} - {"use of pages"} == objects
    assert report.tables == rows == prints(path)
    assert problems(path) == []
    assert path.stat().st_ino == inode
    now = definitions(path)
    assert {entry[:2] for entry in now} == {entry[:2] for entry in whole} - {("index", "lost")}
    # A definition that is made anew says the same in our words; all others are kept to the letter.
    assert {entry for entry in now if entry[1] not in objects} == {one for one in whole if one[1] not in objects}
    assert report.kept is not None and (report.kept / "state.db").read_bytes() == before
    assert damaged_folders(path) == [report.kept.name]
    assert not path.with_name("state.db.hermes-state.repairing").exists()


@pytest.mark.parametrize("name", FOREIGN)
def test_each_damage_of_what_can_be_built_again_is_repaired(store_copy: StoreCopy, name: str) -> None:
    repaired(store_copy("0.19.0" if name != "root number of an index" else "0.17.0"), name)


@pytest.mark.campaign
@pytest.mark.parametrize("release", versions())
@pytest.mark.parametrize("name", FOREIGN)
def test_each_damage_is_repaired_in_files_of_every_release(store_copy: StoreCopy, name: str, release: str) -> None:
    repaired(store_copy(release), name)


@pytest.mark.parametrize("release", versions())
def test_several_damages_are_repaired_in_one_run(store_copy: StoreCopy, release: str) -> None:
    path = store_copy(release)
    rows = prints(path)
    corruption.damage_fts(path, "pages", 1)
    corruption.zero_root(path, "idx_sessions_source")
    corruption.duplicate_schema_row(path, "sessions")
    report = repair(path)
    kinds = [step.kind for step in report.steps]
    assert kinds == ["schema", "search index", "index", "rebuild"]
    assert (problems(path), prints(path)) == ([], rows)


def test_text_behind_a_nul_stays_as_the_older_sqlite_indexed_it(store_copy: StoreCopy) -> None:
    """SQLite 3.40 ends a trigram entry at the first NUL; an index built otherwise looks damaged to it."""
    path = store_copy("0.17.0")
    corruption.damage_fts(path, "blocks", 1)
    change(path, "DELETE FROM messages_fts_trigram_data WHERE id > 10")
    assert repair(path).outcome == "repaired"
    assert problems(path) == []
    peer = find("0.19.0")
    if peer is None:
        pytest.skip("hermes-agent 0.19.0 is not installed here")
    assert peer.index_check(path).problems == {}


@pytest.mark.parametrize(
    "name", ["root of a key", "pages of a search index", "table twice in the schema", "definition of a trigger"]
)
def test_hermes_agent_opens_a_repaired_file_writes_and_finds(store_copy: StoreCopy, name: str) -> None:
    peer = find("0.19.0")
    if peer is None:
        pytest.skip("hermes-agent 0.19.0 is not installed here")
    path = store_copy("0.19.0")
    FOREIGN[name][0](path)
    assert repair(path).outcome == "repaired"
    (key,) = peer.open_and_append(path, session="20260101_000000_aaaaaa", texts=["a lighthouse keeper writes"])
    assert key in peer.search(path, "lighthouse")["lighthouse"]
    assert peer.index_check(path).problems == {}


def test_a_store_with_commits_in_its_wal_is_repaired_with_them(store_copy: StoreCopy) -> None:
    path = store_copy("0.19.0")
    corruption.damage_fts(path, "blocks", 1)
    from tests.maintenance.damage import opened

    connection = opened(path)
    connection.execute("UPDATE sessions SET title = 'only in the WAL' WHERE rowid = 1").fetchall()
    connection.close()
    assert os.stat(f"{path}-wal").st_size > 0
    assert repair(path).outcome == "repaired"
    with open_private(path) as private:
        assert private.row("SELECT title FROM sessions WHERE rowid = 1") == ("only in the WAL",)


def test_a_search_index_in_which_another_program_keeps_its_text_is_not_built_from_the_messages(
    store_copy: StoreCopy
) -> None:
    path = store_copy("0.19.0")
    change(
        path, "CREATE VIRTUAL TABLE notes USING fts5(text)", "INSERT INTO notes VALUES ('nowhere else')",
        triggers=False,
    )
    assert problems(path) == []
    assert repair(path).outcome == "sound"
    corruption.zero_leaves(path, "idx_messages_session", 1, 1)
    assert repair(path).outcome == "repaired"
    with open_private(path, search_modules=True) as private:
        assert private.rows("SELECT * FROM notes") == [("nowhere else",)]
    assert problems(path) == []
    corruption.zero_root(path, "notes_content")
    assert ("table_damaged", "notes_content") in problems(path)
    with pytest.raises(Corrupt) as refused:
        repair(path)
    assert refused.value.hint == (
        f"Run `hermes-state sessions recover --source {path}`: it reads the rows into a new file and never writes to "
        "this one."
    )
