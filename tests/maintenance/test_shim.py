"""Whose the `hermes` script is, and getting it back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hermes_state.errors import Refused
from maintenance import shim

OURS = "#!/usr/bin/python3\nimport sys\nfrom maintenance.entry import hermes\nsys.exit(hermes())\n"
THEIRS = "#!/usr/bin/python3\nimport re, sys\nfrom hermes_cli.main import main\nsys.exit(main())\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "bin"
    path.mkdir()
    return path


def state(folder: Path, path: str | None = None) -> shim.ShimState:
    return shim.shim_state(folder=folder, environ={"PATH": path or str(folder)})


def write(folder: Path, text: str) -> Path:
    script = folder / "hermes"
    script.write_text(text)
    script.chmod(0o755)
    return script


OWNERS = [(OURS, "hermes-state"), (THEIRS, "hermes-agent"), ("#!/bin/sh\n", "unknown")]


@pytest.mark.parametrize(("text", "owner"), OWNERS)
def test_owner_is_known_by_what_the_script_imports(folder: Path, text: str, owner: str) -> None:
    script = write(folder, text)
    assert state(folder) == shim.ShimState(path=script, owner=owner, on_path=script)


def test_a_missing_script_is_missing(folder: Path) -> None:
    found = state(folder)
    assert (found.owner, found.on_path, found.shadowed) == ("missing", None, False)
    assert found.sentence == f"there is no {folder / 'hermes'}"


def test_another_hermes_earlier_in_path_is_said(folder: Path, tmp_path: Path) -> None:
    write(folder, OURS)
    earlier = tmp_path / "earlier"
    earlier.mkdir()
    write(earlier, THEIRS)
    found = state(folder, f"{earlier}:{folder}")
    assert found.sentence == f"{folder / 'hermes'} is the script of hermes-state; a shell starts {earlier / 'hermes'}"


@pytest.mark.parametrize("text", [THEIRS, None])
def test_install_puts_a_working_script_in_place(folder: Path, text: str | None, run_cli) -> None:
    if text is not None:
        write(folder, text)
    assert shim.install(state(folder))
    assert state(folder).owner == "hermes-state"
    ended = subprocess.run(
        [folder / "hermes", "--version"], env=run_cli.environment(), capture_output=True, text=True, timeout=60
    )
    assert (ended.stdout, ended.returncode) == ("hermes-state 0.8.0\n", 0)
    assert os.listdir(folder) == ["hermes"]
    assert not shim.install(state(folder))


def test_an_unknown_script_needs_a_yes(folder: Path) -> None:
    script = write(folder, "#!/bin/sh\necho mine\n")
    with pytest.raises(Refused) as caught:
        shim.install(state(folder))
    assert caught.value.message == f"{script} belongs to neither hermes-state nor hermes-agent, so it is left alone."
    assert script.read_text() == "#!/bin/sh\necho mine\n"
    assert shim.install(state(folder), overwrite_unknown=True)


def test_a_folder_of_that_name_is_never_replaced(folder: Path) -> None:
    (folder / "hermes").mkdir()
    with pytest.raises(Refused):
        shim.install(state(folder), overwrite_unknown=True)


def test_a_long_or_spaced_interpreter_path_gets_a_lead_that_the_shell_runs(tmp_path: Path, run_cli) -> None:
    python = tmp_path / ("deep folder " * 12) / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    script = tmp_path / "hermes"
    script.write_text(shim.script_text(str(python)))
    script.chmod(0o755)
    environment = run_cli.environment()
    site = [path for path in sys.path if path.endswith("site-packages")]
    environment["PYTHONPATH"] = os.pathsep.join([environment["PYTHONPATH"], *site])
    ended = subprocess.run([script, "--version"], env=environment, capture_output=True, text=True, timeout=60)
    assert (ended.stdout, ended.stderr) == ("hermes-state 0.8.0\n", "")


def test_dry_run_of_the_command_changes_nothing(run_cli) -> None:
    shown = run_cli("install-shim", "--dry-run", "--json")
    assert shown.exit_code == 0 and shown.json["installed"] is False and shown.json["dry_run"] is True
    assert set(shown.json) == {
        "path", "owner_before", "dry_run", "installed", "already_done", "on_path", "shadowed"
    }
