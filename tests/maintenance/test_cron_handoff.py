"""`hermes cron`: ours where the store is ours, hermes-agent's where it is hermes-agent's."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from hermes_state import open_store
from hermes_state.engine import APPLICATION_ID
from maintenance import handoff
from tests.maintenance.test_handoff import PEER_MAIN


@pytest.fixture
def native(tmp_path: Path) -> Path:
    """A home whose store is ours."""
    with open_store(tmp_path / "native"):
        pass
    return tmp_path / "native"


def test_the_mark_in_the_header_is_that_of_the_engine() -> None:
    assert int.from_bytes(handoff._MARK, "big") == APPLICATION_ID


def test_cron_of_a_native_home_is_ours_with_every_verb(native: Path, store_copy, tmp_path: Path) -> None:
    theirs = store_copy("0.19.0").parent
    for words in ("cron", "cron list", "cron create 30m x", "--json cron runs"):
        for ours, home in ((True, native), (False, theirs), (False, tmp_path / "nothing")):
            if home.exists():  # else that option is refused, by us
                assert handoff.is_ours(["--home", str(home), *words.split()]) is ours
            assert handoff.is_ours([*words.split(), f"--db={home / 'state.db'}"]) is ours


def test_a_profile_is_asked_and_not_its_installation(native: Path, store_copy, monkeypatch) -> None:
    monkeypatch.setenv("HERMES_HOME", str(native))
    profile = native / "profiles" / "work"
    profile.mkdir(parents=True)
    (profile / "state.db").write_bytes(store_copy("0.19.0").read_bytes())
    assert handoff.is_ours(["cron", "list"])
    assert not handoff.is_ours(["-p", "work", "cron", "list"])
    assert handoff.is_ours(["cron", "list", "--profile", "nobody"]), "our command says that there is none"


@pytest.mark.slow
def test_in_a_home_of_hermes_agent_the_call_reaches_it_unchanged(run_cli, store_copy, tmp_path: Path) -> None:
    site, db = tmp_path / "site", store_copy("0.19.0")
    info = site / "hermes_agent-0.19.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hermes-agent\nVersion: 0.19.0\n")
    (info / "entry_points.txt").write_text("[console_scripts]\nhermes = stand_in_cli.main:main\n")
    (site / "stand_in_cli").mkdir()
    (site / "stand_in_cli" / "__init__.py").touch()
    (site / "stand_in_cli" / "main.py").write_text(PEER_MAIN)
    environment = run_cli.environment(home=db.parent)
    environment["PYTHONPATH"] += f":{site}"
    said = {}
    for home in (db.parent, tmp_path / "native"):
        with open_store(tmp_path / "native"):
            pass
        ended = subprocess.run(
            run_cli.command("cron", "list", "--json", program="hermes"),
            env=environment | {"HERMES_HOME": str(home)}, capture_output=True, text=True, timeout=60, cwd=tmp_path,
        )
        assert ended.returncode == 0, ended.stderr
        said[home] = json.loads(ended.stdout)
    assert said[db.parent]["argv"] == ["hermes", "cron", "list", "--json"]
    assert said[db.parent]["ours"] == ["maintenance"]
    assert said[tmp_path / "native"] == {
        "path": str(tmp_path / "native" / "state.db"), "jobs": [], "unreadable": [], "next_after": None,
    }


@pytest.mark.slow
def test_hermes_state_refuses_it_there_and_names_the_command_that_adopts(run_cli, store_copy) -> None:
    db = store_copy("0.19.0")
    for words in ("list", "add x 30m --zone UTC", "tick --once", "import"):
        ended = run_cli("cron", *words.split(), "--db", db)
        assert (ended.exit_code, ended.stdout) == (1, "")
        assert f"hermes-state sessions adopt --db {db}" in ended.stderr
