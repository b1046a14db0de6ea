"""The contributors' script: every campaign has a verb, every verb is listed."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import re
import subprocess
import sys
from types import ModuleType

import pytest

from tests.support.children import PROJECT


@pytest.fixture(scope="module")
def dev() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("dev_script", str(PROJECT / "dev"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("dev_script", loader))  # type: ignore[arg-type]
    written, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    loader.exec_module(module)
    sys.dont_write_bytecode = written
    return module


def test_every_campaign_has_a_verb(dev: ModuleType) -> None:
    marked = {
        path.relative_to(PROJECT / "tests").as_posix()
        for path in (PROJECT / "tests").rglob("test_*.py")
        if re.search(r"pytest\.mark\.campaign\b", path.read_text(encoding="utf-8")) and path.name != "test_dev.py"
    }
    assert marked == {file for files, _ in dev.CAMPAIGN_VERBS.values() for file in files}


def test_dev_alone_lists_its_verbs(dev: ModuleType) -> None:
    shown = subprocess.run([sys.executable, PROJECT / "dev"], capture_output=True, text=True, timeout=60)
    listed = [line.split()[1] for line in shown.stdout.splitlines()]
    assert (shown.returncode, listed) == (0, [*dev.VERBS, *dev.CAMPAIGN_VERBS])


def test_an_unknown_verb_is_a_usage_error_that_says_so() -> None:
    ran = subprocess.run([sys.executable, PROJECT / "dev", "nosuch"], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout, ran.stderr) == (
        2, "", "./dev: there is no verb 'nosuch'; ./dev help lists them.\n"
    )


def test_ci_runs_only_what_a_contributor_can_run(dev: ModuleType) -> None:
    script = (PROJECT / ".ci" / "run").read_text(encoding="utf-8")
    commands = [line.split() for line in script.splitlines() if line and not line.startswith(("#", "set", "cd"))]
    assert all(command[0] == "./dev" and command[1] in dev.VERBS for command in commands)
