"""No verb that changes a store touches a database of another program."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from maintenance.verbs import VERBS, Access
from tests.support.cli import RunCli

# Each test starts the program.
pytestmark = pytest.mark.slow

# Every verb that changes a store, with arguments that get it as far as its work.
CHANGING = {
    "sessions prune": ["--yes"],
    "sessions archive": ["--yes", "one"],
    "sessions delete": ["--yes", "one"],
    "sessions rename": ["one", "title"],
    "sessions pin": ["one"],
    "sessions unpin": ["one"],
    "sessions adopt": ["--yes"],
    "sessions optimize": [],
    "sessions optimize-storage": [],
    "sessions repair": ["--yes"],
    "sessions scrub": ["--pattern", "a text", "--yes"],
    "sessions replicate": ["--once", "--to", "/nowhere"],
    "sessions window": ["model@http://127.0.0.1:1", "--declare", "8192"],
}
# These open native stores only, through the library.
NATIVE = {
    "sessions compact": ["one", "--window", "8192"],
    "outbox retry": ["1"],
    "outbox drop": ["1", "--reason", "test", "--yes"],
    "instances add": ["one", "--nickname", "One"],
    "instances enroll": ["one", "--nickname", "One", "--yes"],
    "instances rename": ["one", "Two"],
    "instances revoke": ["one", "--reason", "test", "--yes"],
    "instances remove": ["one", "--reason", "test", "--yes"],
    "instances unbind": ["one", "--yes"],
    "instances gc": [],
    "routing import": [],
    "cron add": ["brief", "every 30m", "--zone", "UTC"],
    "cron edit": ["brief", "--name", "Brief"],
    "cron pause": ["brief", "--reason", "test"],
    "cron resume": ["brief"],
    "cron remove": ["brief", "--reason", "test", "--yes"],
    "cron run": ["brief", "--exec", "true"],
    "cron accept-clock": [],
    "cron gc": [],
    "cron tick": ["--once"],
}
# These look beside the file, or into a backup, and have tests of their own for what they are given.
BESIDE = {
    "sessions captures", "sessions spool", "sessions leftovers", "sessions restore", "sessions recover",
    "sessions import", "cron import",
}
WAYS = [
    *(pytest.param([*verb.split(), *words], id=verb) for verb, words in CHANGING.items()),
    *(
        pytest.param(["sessions", verb, flag], id=f"{verb} {flag}")
        for verb in ("optimize", "optimize-storage")
        for flag in ("--dry-run", "--force")
    ),
    pytest.param(["sessions", "optimize", "--online"], id="optimize --online"),
    pytest.param(["sessions", "prune", "--online", "--yes"], id="prune --online"),
]
MISSING = (
    "sessions.ended_at, sessions.id, sessions.source, sessions.started_at, messages.content, messages.id, "
    "messages.role, messages.session_id, messages.timestamp"
)


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A database of another program, which like many has a table `schema_version`."""
    path = tmp_path / "other.db"
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE t(x)").fetchall()
    connection.execute("CREATE TABLE schema_version(version)").fetchall()
    connection.execute("INSERT INTO schema_version VALUES (16)").fetchall()
    connection.close()
    return path


def test_every_verb_that_may_write_is_tried_here() -> None:
    writing = {name for name, verb in VERBS.items() if verb.access in (Access.ONLINE, Access.EXCLUSIVE)}
    # An import writes into native stores only; what else it meets is in tests/maintenance/test_command_import.py.
    assert writing - BESIDE == set(CHANGING) | set(NATIVE)


@pytest.mark.parametrize("words", WAYS)
def test_a_database_of_another_program_is_refused_and_left_as_it_is(
    other: Path, run_cli: RunCli, words: list[str]
) -> None:
    before = other.read_bytes()
    result = run_cli(*words, "--db", other)
    assert (result.exit_code, result.stdout) == (65, "")
    assert f"Error: {other} is not a session store: it has no {MISSING}." in result.stderr
    assert other.read_bytes() == before


@pytest.mark.parametrize("verb", NATIVE)
def test_a_verb_for_native_stores_refuses_it_and_leaves_it_as_it_is(other: Path, run_cli: RunCli, verb: str) -> None:
    before = other.read_bytes()
    result = run_cli(*verb.split(), *NATIVE[verb], "--db", other)
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"Error: {other} was written by hermes-agent or another program, not by this library." in result.stderr
    assert other.read_bytes() == before
