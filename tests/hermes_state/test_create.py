"""Making a new store: whole or not at all, over nothing, by any number of processes at once."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from hermes_state import open_store
from hermes_state.engine import APPLICATION_ID, open_read
from hermes_state.engine.create import create_store
from hermes_state.errors import Refused


def mode(path: Path) -> str:
    return oct(stat.S_IMODE(path.stat().st_mode))


def test_a_new_store_is_private_incremental_and_wal(tmp_path: Path) -> None:
    path = tmp_path / "new" / "home" / "state.db"
    assert create_store(path)
    assert (mode(path.parent), mode(path)) == ("0o700", "0o600")
    assert os.listdir(path.parent) == ["state.db"]
    with open_read(path) as reader:
        assert reader.journal_mode == "wal"
        assert reader.application_id == APPLICATION_ID
        assert reader.pragma("auto_vacuum") == 2
        assert reader.row("SELECT count(*), length(min(store_id)), min(message_floor) FROM store") == (1, 32, 0)


def test_an_existing_folder_keeps_its_mode(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o2770)
    create_store(folder / "state.db")
    assert mode(folder) == "0o2770"


def test_an_existing_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.write_bytes(b"somebody's notes")
    assert not create_store(path)
    assert path.read_bytes() == b"somebody's notes"


def test_an_empty_file_is_never_built_over(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.touch()
    with pytest.raises(Refused) as caught:
        create_store(path)
    assert str(caught.value) == f"{path} is empty (0 bytes); a store that was there may have been cut off."
    assert path.stat().st_size == 0


def test_a_wal_without_its_database_is_never_built_over(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    (tmp_path / "state.db-wal").write_bytes(b"x" * 64)
    with pytest.raises(Refused) as caught:
        open_store(path=path)
    assert str(caught.value) == f"{path}-wal holds 64 bytes of a store whose database file is gone."
    assert os.listdir(tmp_path) == ["state.db-wal"]


@pytest.mark.slow
def test_report_244_eight_processes_that_open_a_new_file_together_share_one_store(child, tmp_path: Path) -> None:
    code = """
    import sys, gates, hermes_state
    gates.reach("ready"); gates.wait("go")
    with hermes_state.open_store(path=sys.argv[1]) as store:
        store.core.write(lambda tx: tx.execute(
            "INSERT INTO sessions (id, source, started_at, active_at) VALUES (?, 'cli', 1, 1)", (sys.argv[2],)))
        print(store.store_id)
    """
    children = [child(code, str(tmp_path / "home" / "state.db"), str(number)) for number in range(8)]
    for one in children:
        one.wait_for("ready")
    for one in children:
        one.release("go")
    assert len({one.finish() for one in children}) == 1
    with open_store(path=tmp_path / "home" / "state.db") as store, store.core.reader() as reader:
        assert reader.rows("SELECT id FROM sessions ORDER BY id") == [(str(number),) for number in range(8)]
    assert sorted(os.listdir(tmp_path / "home")) == ["state.db", "state.db-shm", "state.db-wal"]
