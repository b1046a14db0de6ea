"""Our package in one process with a real hermes-agent 0.19.0, and both packages in one real environment.

Run by `./dev coexist`. HERMES_PEERS names a folder with `<version>/bin/python` (see `install_peers.py`); the test of
the real environment installs both from the package index.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import stores
from tests.support.children import PROJECT

pytestmark = [pytest.mark.campaign]
RELEASE = "0.19.0"


@pytest.fixture(scope="module")
def python() -> Path:
    folder = os.environ.get("HERMES_PEERS")
    path = Path(folder or "/nonexistent") / RELEASE / "bin" / "python"
    if not path.exists():
        pytest.skip(f"HERMES_PEERS has no {RELEASE}: python tests/campaigns/install_peers.py DIRECTORY")
    return path


@pytest.fixture
def beside(python: Path, child, tmp_path: Path, store_copy):
    """Run code with the release's interpreter, our packages first on its path, and our APSW beside them."""
    import apsw

    extra = tmp_path / "extra"
    extra.mkdir()
    (extra / "apsw").symlink_to(Path(apsw.__file__).parent)
    path = store_copy(RELEASE)

    def run(code: str, *, lead: bool = True) -> list[str]:
        first = f"import sys; sys.path[:0] = {[str(PROJECT), str(extra)]!r}\npath = sys.argv[1]\n" if lead else ""
        env = {"HERMES_HOME": str(path.parent), "HOME": str(tmp_path)}
        return child(first + code, path, python=python, env=env).finish().splitlines()

    return run


def test_hermes_agents_modules_import_through_our_package(beside) -> None:
    code = """
import hermes_state, logging, pickle
import hermes_cli.main, gateway.session, gateway.run, agent.insights, tools.session_search_tool, cron.scheduler
from hermes_state import SessionDB, AsyncSessionDB, DEFAULT_DB_PATH, apply_wal_with_fallback
print(hermes_state.__version__, hermes_state.coexist.peer_file().name)
print(gateway.session.SessionDB is SessionDB if hasattr(gateway.session, "SessionDB") else True)
print(pickle.loads(pickle.dumps(SessionDB)) is SessionDB, SessionDB.__module__)
print(all(hasattr(hermes_state, name) for name in dir(sys.modules["hermes_state._peer"])))
"""
    assert beside(code) == ["0.8.0 hermes_state.py", "True", "True hermes_state", "True"]


def test_assignment_of_the_default_path_moves_session_db(beside, tmp_path: Path) -> None:
    code = f"""
import hermes_state
from pathlib import Path
hermes_state.DEFAULT_DB_PATH = Path({str(tmp_path / "moved" / "state.db")!r})
db = hermes_state.SessionDB()
db.create_session("s1", source="cli")
db.append_message("s1", "user", "hello")
print(len(db.get_messages("s1")), hermes_state.DEFAULT_DB_PATH.exists())
db.close()
"""
    assert beside(code) == ["1 True"]


@pytest.mark.parametrize("opener", ["open_read(path)", "open_write(path, foreign=True)"])
@pytest.mark.parametrize("read_only", [False, True])
def test_both_orders_are_refused_and_each_works_alone(beside, opener: str, read_only: bool) -> None:
    code = f"""
from pathlib import Path
import hermes_state
from hermes_state import engine
from hermes_state.errors import SecondSQLite
with engine.{opener} as store:
    try:
        hermes_state.SessionDB(Path(path), read_only={read_only})
    except SecondSQLite as error:
        print("ours first:", error.code)
db = hermes_state.SessionDB(Path(path), read_only={read_only})
try:
    engine.{opener}
except SecondSQLite as error:
    print("theirs first:", error.code)
db.close()
with engine.{opener} as store:
    print(store.row("SELECT count(*) FROM sessions")[0] > 0)
"""
    assert beside(code) == ["ours first: second_sqlite", "theirs first: second_sqlite", "True"]


def test_a_refusal_loses_nothing_that_hermes_agent_wrote(beside) -> None:
    code = """
from pathlib import Path
import hermes_state
from hermes_state import engine
from hermes_state.errors import SecondSQLite
db = hermes_state.SessionDB(Path(path))
db.create_session("kept", source="cli")
for number in range(50):
    db.append_message("kept", "user", f"row {number}")
    try:
        engine.open_read(path)
    except SecondSQLite:
        pass
db.close()
with engine.open_read(path) as store:
    print(store.row("SELECT count(*) FROM messages WHERE session_id = 'kept'")[0])
"""
    assert beside(code) == ["50"]


def sh(*command: object, env: dict[str, str] | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([str(word) for word in command], env=env, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0 or not check, f"{command}: {done.stdout}{done.stderr}"
    return done


def test_both_packages_in_one_environment(tmp_path: Path) -> None:
    """One resolution finds versions for both; the script changes hands as installers leave it, and comes back."""
    venv = tmp_path / "venv"
    sh(sys.executable, "-m", "venv", venv)
    scripts = venv / "bin"
    # Building leaves files in the source tree, so it is done in a copy.
    source = tmp_path / "source"
    left_out = shutil.ignore_patterns(".*", "__pycache__", "tests", "build", "*.egg-info")
    shutil.copytree(PROJECT, source, ignore=left_out)
    sh(scripts / "python", "-m", "pip", "install", "--quiet", source, f"hermes-agent=={RELEASE}")
    pinned = json.loads(sh(scripts / "python", "-m", "pip", "list", "--format=json").stdout)
    found = {item["name"].lower(): item["version"] for item in pinned}
    assert (found["rich"], found["psutil"]) == ("14.3.3", "7.2.2")
    store = stores.unpack(RELEASE, tmp_path / "home" / "state.db")
    env = {"PATH": f"{scripts}:/usr/bin:/bin", "HOME": str(tmp_path), "HERMES_HOME": str(store.parent)}

    def owner() -> str:
        done = sh(scripts / "hermes-state", "install-shim", "--dry-run", "--json", env=env)
        return str(json.loads(done.stdout)["owner_before"])

    again = ("--quiet", "--force-reinstall", "--no-deps", f"hermes-agent=={RELEASE}")
    sh(scripts / "python", "-m", "pip", "install", *again)
    assert owner() == "hermes-agent"
    sh(scripts / "hermes-state", "install-shim", env=env)
    assert owner() == "hermes-state"
    assert "Hermes Agent" in sh(scripts / "hermes", "--version", env=env).stdout
    listed = sh(scripts / "hermes", "sessions", "list", "--json", env=env)
    assert json.loads(listed.stdout)
    wrong = sh(scripts / "hermes", "sessions", "browse", "--no-such-flag", env=env, check=False)
    assert wrong.returncode == 2 and "unrecognized arguments: --no-such-flag" in wrong.stderr
    sh(scripts / "python", "-m", "pip", "uninstall", "--yes", "--quiet", "hermes-agent")
    assert owner() == "missing"
    sh(scripts / "hermes-state", "install-shim", env=env)
    assert sh(scripts / "hermes", "--version", env=env).stdout == "hermes-state 0.8.0\n"
