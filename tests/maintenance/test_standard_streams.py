"""Standard streams that are closed, full or one JSON object: neither the work nor its exit status depends on them."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from tests.maintenance.removal_stores import add_session, empty_store, rows
from tests.support.children import Children
from tests.support.cli import RunCli
from tests.support.stores import StoreCopy

pytestmark = pytest.mark.slow

HOLDER = """
import sys, gates
from hermes_state.engine import open_write
with open_write(sys.argv[1], foreign=True) as store, store.transaction() as tx:
    tx.execute("UPDATE sessions SET title = title")
    gates.reach("ready")
    gates.wait("go")
"""


def redirected(how: str) -> tuple[str, ...]:
    """A wrapper that starts the program with its streams as a shell would."""
    return ("sh", "-c", f'exec "$@" {how}', "sh")


@pytest.fixture
def db(store_copy: StoreCopy, fake_clock: FakeClock) -> Path:
    path = empty_store(store_copy("0.19.0"))
    add_session(path, "alpha")
    return path


def title(db: Path) -> str:
    [(found,)] = rows(db, "SELECT title FROM sessions WHERE id = 'alpha'")
    return str(found)


def test_with_json_a_lock_that_did_not_come_is_one_object_on_stderr(db: Path, run_cli: RunCli, child: Children) -> None:
    holder = child(HOLDER, db)
    holder.wait_for("ready")
    busy = run_cli("sessions", "rename", "alpha", "another", "--json")
    assert (busy.exit_code, busy.stdout) == (75, "")
    error = busy.json_error["error"]
    assert (error["code"], error["retryable"]) == ("lock_timeout", True)
    assert f"it is held by PID {holder.pid} (wal-writer)." in error["message"]


def test_without_json_the_holders_command_is_logged_before_the_error(
    db: Path, run_cli: RunCli, child: Children
) -> None:
    holder = child(HOLDER, db)
    holder.wait_for("ready")
    busy = run_cli("sessions", "rename", "alpha", "another")
    assert busy.exit_code == 75
    assert busy.stderr.startswith(f"{db} is kept by PID {holder.pid} as wal-writer: ")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_streams_change_neither_the_work_nor_its_exit_status(closed: str, db: Path, run_cli: RunCli) -> None:
    done = run_cli("sessions", "rename", "alpha", "said to nobody", wrapper=redirected(closed))
    assert (done.exit_code, done.stderr, title(db)) == (0, "", "said to nobody")
    assert run_cli("sessions", "list", wrapper=redirected(closed)).exit_code == 0
    assert run_cli("doctor", "--json", wrapper=redirected(closed)).exit_code == 0
    assert run_cli("sessions", "show", "nothing", wrapper=redirected(closed)).exit_code == 1
    assert run_cli("sessions", "--bogus", wrapper=redirected(closed)).exit_code == 2


def test_a_full_stderr_leaves_the_exit_status_of_the_error(db: Path, run_cli: RunCli) -> None:
    full = redirected("2>/dev/full")
    assert run_cli("sessions", "show", "nothing", wrapper=full).exit_code == 1
    assert run_cli("sessions", "--bogus", wrapper=full).exit_code == 2
    assert run_cli("sessions", "rename", "alpha", "", "--json", wrapper=full).exit_code == 2


def test_nothing_is_deleted_when_the_plan_cannot_be_shown(db: Path, run_cli: RunCli) -> None:
    refused = run_cli("sessions", "delete", "alpha", "--yes", wrapper=redirected("2>/dev/full"))
    assert (refused.exit_code, refused.stdout, rows(db, "SELECT count(*) FROM sessions")) == (1, "", [(1,)])


def test_with_stdin_closed_a_question_is_refused(db: Path, run_cli: RunCli) -> None:
    refused = run_cli("sessions", "delete", "alpha", "--json", wrapper=redirected("<&-"))
    assert (refused.exit_code, refused.json_error["error"]["message"]) == (
        1, "This needs an answer, and there is no terminal to ask on."
    )


def test_an_export_to_a_closed_standard_output_is_refused(db: Path, run_cli: RunCli) -> None:
    refused = run_cli("sessions", "export", "-", wrapper=redirected(">&-"))
    assert (refused.exit_code, refused.stderr) == (
        2,
        "Error: OUTPUT is - and standard output is closed.\n"
        "Why: The caller's fault: an argument cannot be used.\n"
        "Try: Name a file.\n",
    )


def test_a_report_that_cannot_be_written_does_not_hide_that_the_work_was_done(
    db: Path, run_cli: RunCli, tmp_path: Path
) -> None:
    full = redirected(">/dev/full")
    done = run_cli("sessions", "rename", "alpha", "said to nobody", wrapper=full)
    assert (done.exit_code, title(db)) == (1, "said to nobody")
    assert done.stderr == (
        "Error: The work was done; its report could not be written: No space left on device.\n"
        "Why: Standard output did not take it.\n"
        "Try: Run it again with another standard output; what is done already is not done twice.\n"
    )
    exported = run_cli("sessions", "export", tmp_path / "all.jsonl", "--json", wrapper=full)
    assert (exported.exit_code, (tmp_path / "all.jsonl").exists()) == (1, True)
    assert exported.json_error["error"]["message"].startswith("The work was done; its report could not be written: ")


@pytest.mark.parametrize(
    "words", ["sessions list", "sessions list --json", "sessions export -", "doctor", "sessions prune --dry-run"]
)
def test_a_result_that_cannot_be_written_is_not_called_work(words: str, db: Path, run_cli: RunCli) -> None:
    lost = run_cli(*words.split(), wrapper=redirected(">/dev/full"))
    assert lost.exit_code == 1
    said = lost.json_error["error"]["message"] if "--json" in words else lost.stderr.splitlines()[0].partition(": ")[2]
    assert said == "The result could not be written: No space left on device."
