"""A forked run of the program says and does what an interpreter of its own would, and is a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli import RunCli
from tests.support.stores import StoreCopy
from tests.support.warm import WARM

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="runs are forked on Linux only")


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("sessions", "list"), ("sessions", "list", "--json"), ("doctor",), ("sessions", "--no-such-option", "--json"),
        ("sessions", "show", "nobody"), ("sessions", "delete", "nobody", "--yes"), ("--help",), ("--version",),
    ],
    ids=" ".join,
)
def test_forked_and_own_interpreters_give_the_same(
    run_cli: RunCli, store_copy: StoreCopy, words: tuple[str, ...]
) -> None:
    store_copy("0.19.0")
    forked, own = run_cli(*words), run_cli(*words, fresh=True)
    assert (forked.exit_code, forked.stdout, forked.stderr) == (own.exit_code, own.stdout, own.stderr)


def test_a_forked_run_has_the_environment_it_was_given_and_the_next_run_has_not(
    run_cli: RunCli, store_copy: StoreCopy, tmp_path: Path
) -> None:
    db = store_copy("0.19.0")
    assert run_cli("sessions", "list", env={"HERMES_HOME": str(tmp_path / "none")}).exit_code == 1
    assert str(db) in run_cli("sessions", "list", "--json").stdout


def test_what_an_interpreter_reads_at_its_start_is_never_forked(run_cli: RunCli) -> None:
    environment = run_cli.environment()
    assert WARM.fits(environment)
    run_cli("--version")
    for more in ({"PYTHONUTF8": "0"}, {"LC_ALL": "C"}, {"LD_PRELOAD": "x.so"}):
        assert not WARM.fits(environment | more)
    assert not WARM.fits(run_cli.environment(audited=False))


def test_a_run_without_end_is_killed_in_its_time(run_cli: RunCli, store_copy: StoreCopy) -> None:
    store_copy("0.19.0")
    with pytest.raises(subprocess.TimeoutExpired):
        run_cli("sessions", "tail", "--follow", timeout=0.3)
    assert run_cli("--version").exit_code == 0
