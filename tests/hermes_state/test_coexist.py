"""Our package beside a module of the same name. A small stand-in plays hermes-agent; the real one has a campaign."""

from __future__ import annotations

from pathlib import Path

import pytest

STAND_IN = '''
import logging
import os
import sqlite3
import threading
from dataclasses import dataclass

logger = logging.getLogger(__name__)
DEFAULT_DB_PATH = os.environ.get("STAND_IN_DB")
LOADED = []
LOADED.append(threading.get_ident())
engine = "theirs, but the folder is ours"

import hermes_state_sibling

class SessionDB:
    def __init__(self, db_path=None, read_only=False):
        self.db_path = db_path or DEFAULT_DB_PATH
        address = f"file:{self.db_path}?mode=ro" if read_only else str(self.db_path)
        self._conn = sqlite3.connect(address, uri=read_only)
        self._conn.execute("SELECT count(*) FROM sessions").fetchone()

    def close(self):
        self._conn.close()

def apply_wal_with_fallback(conn, *, db_label="state.db"):
    return conn.execute("PRAGMA journal_mode").fetchone()[0]

def default_path():
    return DEFAULT_DB_PATH
'''
SIBLING = '''
from hermes_state import DEFAULT_DB_PATH, logger
import hermes_state

def sibling_default():
    return hermes_state.DEFAULT_DB_PATH
'''


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site directory with the stand-in."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "hermes_state.py").write_text(STAND_IN)
    (folder / "hermes_state_sibling.py").write_text(SIBLING)
    return folder


@pytest.fixture
def beside(child, project: Path, site: Path):
    """Run code in a process that has our packages first and the stand-in after them."""

    def run(code: str, *args: object, audited: bool = True) -> str:
        path = [str(project), str(site)]
        lead = f"import sys; sys.path[:0] = {path!r}\n"
        return child(lead + code, *args, own_packages=False, audited=audited).finish().strip()

    return run


def test_import_is_light_and_loads_no_peer(beside) -> None:
    heavy = "('click','rich','psutil','watchfiles','sqlite3','sqlite_utils','apsw','lockowners','importlib.metadata')"
    code = f"import hermes_state, hermes_state.errors\nprint([m for m in {heavy} if m in sys.modules])"
    assert beside(code) == "[]"


def test_foreign_names_are_read_from_the_peer(beside) -> None:
    assert beside("from hermes_state import SessionDB, logger\nprint(SessionDB.__module__, logger.name)") == (
        "hermes_state hermes_state"
    )


def test_our_names_stay_ours(beside) -> None:
    code = "import hermes_state as it\nprint(it.__version__, it.engine.__name__, it.errors.__name__)"
    assert beside(code) == "0.8.0 hermes_state.engine hermes_state.errors"


def test_assignment_reaches_the_peer_and_its_siblings(beside) -> None:
    code = """
import hermes_state
hermes_state.DEFAULT_DB_PATH = "elsewhere"
import hermes_state_sibling
print(hermes_state.default_path(), hermes_state_sibling.sibling_default(), "DEFAULT_DB_PATH" in vars(hermes_state))
"""
    assert beside(code) == "elsewhere elsewhere False"


def test_a_deleted_foreign_name_is_gone_from_the_peer(beside) -> None:
    code = """
import hermes_state
hermes_state.EXTRA = 1
del hermes_state.EXTRA
print(hasattr(hermes_state, "EXTRA"), "LOADED" in dir(hermes_state), "coexist" in dir(hermes_state))
"""
    assert beside(code) == "False True True"


def test_mock_patch_works_through_the_package(beside) -> None:
    code = """
from unittest import mock
import hermes_state
with mock.patch("hermes_state.DEFAULT_DB_PATH", "patched"):
    print(hermes_state.default_path())
print(hermes_state.default_path())
"""
    assert beside(code) == "patched\nNone"


def test_star_import_gives_the_peers_public_names(beside) -> None:
    assert beside("from hermes_state import *\nprint(SessionDB.__name__, '_conn' in dir())") == "SessionDB False"


def test_dunder_probes_do_not_load_the_peer(beside) -> None:
    code = """
import hermes_state
print(hasattr(hermes_state, "__wrapped__"), hasattr(hermes_state, "__pytest_wrapped__"), "sqlite3" in sys.modules)
"""
    assert beside(code) == "False False False"


def test_many_threads_load_it_once(beside) -> None:
    code = """
import threading, hermes_state
gate, seen = threading.Barrier(8), []
def work():
    gate.wait()
    seen.append(hermes_state.LOADED)
threads = [threading.Thread(target=work) for _ in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
print(len(seen), len({id(x) for x in seen}), len(seen[0]))
"""
    assert beside(code) == "8 1 1"


@pytest.mark.parametrize("last", ["parent", "sibling"])
def test_two_threads_that_import_each_others_halves_do_not_hang(beside, site: Path, last: str) -> None:
    # Each half holds its own module's lock and asks for the other's; `last` asks when the other already waits, so it
    # is the one that meets the deadlock.
    gates = "import sys\nsys.arrive({name!r})\n"
    ask = "import hermes_state_sibling\n"
    (site / "hermes_state.py").write_text(STAND_IN.replace(ask, gates.format(name="parent") + ask))
    (site / "hermes_state_sibling.py").write_text(gates.format(name="sibling") + SIBLING)
    code = f"last = {last!r}" + """
import threading, time, hermes_state
started, seen = {"parent": threading.Event(), "sibling": threading.Event()}, []
def arrive(name):
    started[name].set()
    [gate.wait(30) for gate in started.values()]
    if name == last:
        other, until = next(t for t in threads if t.name != name), time.monotonic() + 30
        while sys._current_frames()[other.ident].f_code.co_name != "acquire" and time.monotonic() < until:
            pass
sys.arrive = arrive
def parent():
    seen.append(hermes_state.SessionDB.__name__)
def sibling():
    import hermes_state_sibling; seen.append(hermes_state_sibling.__name__)
threads = [threading.Thread(target=parent, name="parent"), threading.Thread(target=sibling, name="sibling")]
[t.start() for t in threads]; [t.join(60) for t in threads]
print(sorted(seen))
"""
    assert beside(code) == "['SessionDB', 'hermes_state_sibling']"


def test_classes_pickle_under_the_shared_name(beside) -> None:
    code = """
import pickle, hermes_state
from hermes_state import SessionDB
class Sub(SessionDB): pass
print(pickle.loads(pickle.dumps(SessionDB)) is SessionDB, issubclass(Sub, hermes_state.SessionDB))
"""
    assert beside(code) == "True True"


def test_a_missing_name_of_an_installed_peer_says_where_it_was_looked_for(beside, site: Path) -> None:
    code = """
import hermes_state
try:
    hermes_state.nothing
except AttributeError as error:
    print(error)
try:
    from hermes_state import nothing
except ImportError as error:
    print(error)
"""
    attribute, imported = beside(code).splitlines()
    assert attribute == f"module 'hermes_state' has no attribute 'nothing', nor has {site / 'hermes_state.py'}"
    assert imported.startswith("cannot import name 'nothing' from 'hermes_state'")


def test_without_the_peer_the_error_names_the_package(child) -> None:
    code = """
    import hermes_state
    try:
        hermes_state.SessionDB
    except AttributeError as error:
        print(error)
    try:
        from hermes_state import SessionDB
    except ImportError as error:
        print(error)
    print(hasattr(hermes_state, "SessionDB"))
    hermes_state.anything = 1
    print(hermes_state.anything)
    """
    why = "it is not a name of hermes-state, and hermes-agent, which may provide it, is not installed here"
    assert child(code).finish().splitlines() == [
        f"module 'hermes_state' has no attribute 'SessionDB': {why}",
        f"cannot import name 'SessionDB' from 'hermes_state': {why}",
        "False",
        "1",
    ]


def test_a_peer_that_cannot_be_imported_shows_its_own_error(beside, site: Path) -> None:
    (site / "hermes_state.py").write_text("import a_missing_dependency\n")
    code = """
try:
    from hermes_state import SessionDB
except ImportError as error:
    print(error)
"""
    assert beside(code) == "No module named 'a_missing_dependency'"


REFUSED = (
    "{path} is open in this process through hermes-state, so hermes-agent's {who} may not open it: two SQLite "
    "libraries on one file in one process cancel each other's locks, and commits are lost."
)
OPENERS = {"reading": "engine.open_read(path)", "writing": "engine.open_write(path, foreign=True)"}


@pytest.mark.parametrize("opener", OPENERS.values(), ids=OPENERS)
@pytest.mark.parametrize("read_only", [False, True], ids=["read-write", "read-only"])
def test_session_db_refuses_what_our_door_has_open(beside, store_copy, opener: str, read_only: bool) -> None:
    path = store_copy("0.19.0")
    code = f"""
import hermes_state
from hermes_state import engine
from hermes_state.errors import SecondSQLite
path = sys.argv[1]
with {opener}:
    try:
        hermes_state.SessionDB(path, read_only={read_only})
    except SecondSQLite as error:
        print(error)
    hermes_state.DEFAULT_DB_PATH = path
    class Sub(hermes_state.SessionDB):
        pass
    try:
        Sub(read_only={read_only})
    except SecondSQLite as error:
        print(error.hint)
other = hermes_state.SessionDB(path, read_only={read_only})
other.close()
print("opened after close")
"""
    assert beside(code, path).splitlines() == [
        REFUSED.format(path=path, who="SessionDB"),
        "Close the hermes-state store first, or use one of the two in a process of its own.",
        "opened after close",
    ]


def test_another_name_of_the_same_file_is_refused_too(beside, store_copy, tmp_path: Path) -> None:
    path = store_copy("0.19.0")
    link = tmp_path / "link.db"
    link.symlink_to(path)
    code = """
import hermes_state
from hermes_state import engine
from hermes_state.errors import SecondSQLite
with engine.open_read(sys.argv[1]):
    try:
        hermes_state.SessionDB(sys.argv[2])
    except SecondSQLite as error:
        print(error.code, error.path)
"""
    assert beside(code, path, link) == f"second_sqlite {link}"


def test_setting_wal_on_a_store_that_our_door_has_open_is_refused(beside, store_copy) -> None:
    path = store_copy("0.19.0")
    # The connection itself is the accident that the refusal reports, so this child stages it unaudited.
    code = """
import os, sqlite3
import hermes_state
from hermes_state import engine
from hermes_state.errors import SecondSQLite
store = engine.open_read(sys.argv[1])
other = sqlite3.connect(sys.argv[1])
try:
    hermes_state.apply_wal_with_fallback(other)
except SecondSQLite as error:
    print(error, flush=True)
os._exit(0)  # there is no safe way to close either from here
"""
    assert beside(code, path, audited=False) == REFUSED.format(path=path, who="apply_wal_with_fallback")


@pytest.mark.parametrize("opener", OPENERS.values(), ids=OPENERS)
@pytest.mark.parametrize("read_only", [False, True], ids=["read-write", "read-only"])
def test_our_door_refuses_what_session_db_has_open(beside, store_copy, opener: str, read_only: bool) -> None:
    path = store_copy("0.19.0")
    code = f"""
import hermes_state
from hermes_state import engine
from hermes_state.errors import SecondSQLite
path = sys.argv[1]
other = hermes_state.SessionDB(path, read_only={read_only})
try:
    {opener}
except SecondSQLite as error:
    print(error.code)
other.close()
with {opener} as store:
    print("opened after close")
"""
    assert beside(code, path).splitlines() == ["second_sqlite", "opened after close"]
