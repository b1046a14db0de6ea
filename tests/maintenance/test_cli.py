"""The tree of commands and the exit statuses, as a person meets them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import maintenance.cli
from maintenance.entry import INTERRUPTED, READER_GONE
from maintenance.verbs import VERBS, Access, Verb, verbs_of

# A verb for these tests, written into a package of its own and put into the table by the child.
PROBE = '''
import os, signal, sys
import click
from hermes_state.errors import LockTimeout
from maintenance.context import store_options

@click.command()
@click.option("--do", default="")
@store_options
def command(ctx, do):
    """Do what a test wants."""
    if do == "busy":
        raise LockTimeout("Busy.", hint="Wait.", holders=())
    if do == "findings":
        return 3
    if do == "defect":
        raise KeyError("x")
    if do == "interrupt":
        os.kill(os.getpid(), signal.SIGINT)
    if do == "flood":
        for number in range(100_000):
            print(number)
    if do == "imports":
        print(sorted(name for name in sys.modules if name.startswith("maintenance.commands")), "rich" in sys.modules)
        return 0
    if do == "odd":
        print("\\u65e5\\ud800")
        return 0
    print(ctx.db, ctx.profile, ctx.json, ctx.clock.now())
'''
START = """
import sys
sys.path.insert(0, {folder!r})
from maintenance.verbs import VERBS, Access, Verb
VERBS["sessions probe"] = Verb("probe_command", Access.READ, "Probe.")
import maintenance.entry
sys.argv[0] = "hermes-state"
sys.exit(maintenance.entry.hermes_state())
"""


@pytest.fixture
def probe(run_cli, tmp_path: Path):
    """`probe("sessions", "probe", …)` runs the program with one more verb."""
    (tmp_path / "probe_command.py").write_text(PROBE)
    start = START.format(folder=str(tmp_path))

    def run(*args: object, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-P", "-c", start, *map(str, args)]
        return subprocess.run(
            command, env=run_cli.environment(env=env), capture_output=True, text=True, timeout=60, errors="replace"
        )

    run.start = start  # type: ignore[attr-defined]
    return run


def test_sessions_without_a_verb_prints_its_help(run_cli) -> None:
    shown = run_cli("sessions")
    assert (shown.exit_code, shown.stderr) == (0, "")
    listed = {line.split()[0] for line in shown.stdout.partition("Verbs:\n")[2].splitlines() if line[2] != " "}
    assert listed == set(verbs_of("sessions"))


def test_program_without_a_verb_prints_its_help(run_cli) -> None:
    shown = run_cli()
    assert shown.exit_code == 0 and shown.stdout.startswith("Usage: hermes-state ")


def test_version_is_ours(run_cli) -> None:
    assert run_cli("--version").stdout == "hermes-state 0.8.0\n"


def test_wrong_calls_exit_2_and_name_the_help(run_cli) -> None:
    wrong = run_cli("sessions", "lsit")
    assert (wrong.exit_code, wrong.stdout) == (2, "")
    assert wrong.stderr == (
        "Error: There is no verb 'lsit'. Did you mean list?\n"
        "Why: The command was called in a way it does not know.\n"
        "Try: `hermes-state sessions --help` lists what it takes.\n"
    )
    assert run_cli("--json", "sessions", "nothing-like-it").json_error["error"]["code"] == "usage"
    assert run_cli("--bogus").exit_code == 2


def test_a_verb_gets_its_store_from_options_on_either_side(probe, store_copy) -> None:
    path = store_copy("0.19.0")
    words = ["sessions", "probe"]
    for place in range(3):
        assert probe(*words[:place], "--db", path, *words[place:]).stdout.startswith(f"{path} None False ")
    other = store_copy("0.18.2")
    assert probe("--db", path, "sessions", "probe", "--db", other, "--json").stdout.startswith(f"{other} None True ")


def test_a_profile_before_the_verb_is_looked_for_in_a_home_after_it(probe, tmp_path: Path) -> None:
    work = tmp_path / "root" / "profiles" / "work"
    work.mkdir(parents=True)
    (work / "state.db").touch()
    said = probe("-p", "work", "sessions", "probe", "--home", tmp_path / "root")
    assert said.stdout.startswith(f"{work / 'state.db'} work False ")


def test_the_fake_clock_reaches_a_verb(probe, store_copy, fake_clock) -> None:
    store_copy("0.19.0")
    assert probe("sessions", "probe").stdout.endswith(" 1800000000.0\n")


def test_a_verb_imports_its_own_command_only(probe, store_copy) -> None:
    store_copy("0.19.0")
    assert probe("sessions", "probe", "--do", "imports").stdout == "[] False\n"


@pytest.mark.parametrize(
    ("do", "status", "stderr"),
    [
        ("busy", 75, "Error: Busy.\nWhy: Another process kept a lock past the deadline.\nTry: Wait.\n"),
        ("findings", 3, ""),
        ("interrupt", 130, "Interrupted.\n"),
    ],
)
def test_ends_become_exit_statuses(probe, store_copy, do: str, status: int, stderr: str) -> None:
    store_copy("0.19.0")
    ended = probe("sessions", "probe", "--do", do)
    assert (ended.returncode, ended.stderr) == (status, stderr)


def test_with_json_stderr_is_one_object(probe, store_copy) -> None:
    store_copy("0.19.0")
    for do, code in (("busy", "lock_timeout"), ("defect", "defect")):
        assert json.loads(probe("sessions", "probe", "--do", do, "--json").stderr)["error"]["code"] == code


def test_a_defect_is_said_with_its_traceback(probe, store_copy) -> None:
    store_copy("0.19.0")
    ended = probe("sessions", "probe", "--do", "defect")
    assert ended.returncode == 1 and ended.stderr.startswith("Traceback") and "Error: KeyError: 'x'" in ended.stderr


def test_a_missing_store_is_an_error_and_nothing_is_created(probe, tmp_path: Path) -> None:
    home = tmp_path / "empty"
    home.mkdir()
    missing = probe("sessions", "probe", "--home", home)
    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr.startswith(f"Error: There is no store at {home / 'state.db'}.\n")
    assert list(home.iterdir()) == []


def test_a_narrow_terminal_encoding_breaks_nothing(probe, store_copy) -> None:
    store_copy("0.19.0")
    ended = probe("sessions", "probe", "--do", "odd", env={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    assert (ended.returncode, ended.stdout) == (0, "\\u65e5\\ud800\n")


def test_a_reader_that_goes_away_is_quiet(probe, store_copy, run_cli) -> None:
    store_copy("0.19.0")
    command = [sys.executable, "-P", "-c", probe.start, "sessions", "probe", "--do", "flood"]
    running = subprocess.Popen(command, env=run_cli.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert running.stdout is not None and running.stderr is not None
    running.stdout.readline()
    running.stdout.close()
    assert (running.stderr.read(), running.wait(60)) == (b"", 141)
    running.stderr.close()


def test_our_package_wins_over_a_source_checkout_of_the_peer(tmp_path: Path, run_cli) -> None:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    (checkout / "hermes_state.py").write_text("raise RuntimeError('the wrong one')\n")
    environment = run_cli.environment()
    environment["PYTHONPATH"] = os.pathsep.join([str(checkout), environment["PYTHONPATH"]])
    ended = subprocess.run(run_cli.command("--version"), env=environment, capture_output=True, text=True, timeout=60)
    assert (ended.stdout, ended.stderr) == ("hermes-state 0.8.0\n", "")


def test_every_verb_of_the_table_has_its_parts() -> None:
    for verb in VERBS.values():
        assert isinstance(verb, Verb) and isinstance(verb.access, Access) and verb.help.endswith(".")
    first = {name.split()[0] for name in VERBS}
    assert first == {
        "sessions", "outbox", "instances", "routing", "cron", "work", "host", "doctor", "locks", "install-shim",
    }
    assert maintenance.cli.root_command().name == "hermes-state"


def test_progress_is_drawn_only_on_a_terminal_and_only_for_long_work(child) -> None:
    code = textwrap.dedent(
        """
        import io, sys, threading
        from maintenance.output.progress import Progress
        class Terminal(io.StringIO):
            def isatty(self): return True
        kept = sys.stderr
        sys.stderr = io.StringIO()
        with Progress(10, "quiet", after_seconds=0) as bar:
            bar.advance(5)
        assert sys.stderr.getvalue() == "" and "rich" not in sys.modules
        sys.stderr = Terminal()
        with Progress(10, "quick") as bar:
            bar.advance(5)
        assert sys.stderr.getvalue() == "" and "rich" not in sys.modules
        with Progress(10, "long [work]", after_seconds=0) as bar:
            bar._timer.join()
            bar.advance(5)
        assert "long [work]" in sys.stderr.getvalue()
        sys.stderr = kept
        """
    )
    child(code).finish()


def test_signal_numbers_are_those_of_the_shell() -> None:
    assert (INTERRUPTED, READER_GONE) == (128 + signal.SIGINT, 128 + signal.SIGPIPE)
