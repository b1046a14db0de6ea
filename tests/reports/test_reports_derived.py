"""Report 70: what can be made again, and copies of the past, stay out of a backup; what lies beside it is sized."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_state import open_store
from hermes_state.clock import FakeClock
from tests.support.cli import RunCli

pytestmark = pytest.mark.slow


def test_a_backup_is_the_store_alone_and_what_lies_beside_it_is_shown_with_its_size(
    tmp_path: Path, fake_clock: FakeClock, run_cli: RunCli
) -> None:
    home = tmp_path / "home"
    db = home / "state.db"
    with open_store(path=db) as store:
        session = store.sessions.create(id="chat", source="cli").id
        for number in range(300):
            store.messages.append(session, role="user", content=f"a word that search finds {number}")
        assert len(store.search("search", limit=500)) == 300
    (home / "update-backups").mkdir()
    (home / "update-backups" / "bundle.zip").write_bytes(bytes(3_000_000))
    (home / "state.db.bak").write_bytes(bytes(2_000_000))

    folder = tmp_path / "backups"
    made = run_cli("sessions", "backup", "--to", folder, "--json")
    assert made.exit_code == 0, made.stderr
    backup = Path(made.json["backup"])
    assert {path.name for path in folder.iterdir()} == {backup.name, f"{backup.name}.manifest.json"}
    # And its manifest; with the index it would be larger.
    size = sum(path.stat().st_size for path in folder.iterdir())
    assert size < db.stat().st_size + 10_000 < db.stat().st_size + (home / "search.db").stat().st_size

    listed = run_cli("sessions", "leftovers", "--json").json["leftovers"]
    beside = {Path(one["path"]).name: one["bytes"] for one in listed}
    assert beside["state.db.bak"] == 2_000_000
    assert beside["search.db"] >= (home / "search.db").stat().st_size
    # What was left out is made again: a restored store is searched as before.
    other = tmp_path / "other" / "state.db"
    other.parent.mkdir()
    restored = run_cli("sessions", "restore", backup, "--db", other, "--yes")
    assert restored.exit_code == 0, restored.stderr
    with open_store(path=other) as store:
        assert len(store.search("search", limit=500)) == 300
