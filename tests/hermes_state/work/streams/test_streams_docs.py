"""docs/streams.md: its example runs and says what it shows, and its tables say what the code does."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hermes_state.work.login_states import LoginState
from hermes_state.work.mirroring import ELIGIBLE, Provenance
from hermes_state.work.reply_states import ReplyState

PROJECT = Path(__file__).parents[4]
PAGE = (PROJECT / "docs" / "streams.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_example_runs_as_it_stands(tmp_path: Path) -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    env = {**os.environ, "HERMES_HOME": str(tmp_path / "home"), "PYTHONPATH": str(PROJECT)}
    ran = subprocess.run(
        [sys.executable, "-c", example], env=env, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines() == [
        "append m1 'Hel'", "append m1 'lo'", "append m1 ', you.'", r"edit m1 'Hello, you.\n(checked)'",
        r"edit m1 'Hello, you.\n(checked twice)'", "sealed",
    ]


def test_the_table_of_mirrors_is_the_code() -> None:
    rows = re.findall(r"^\| `(\w+)`:? [^|]*\| (yes|no) \| (yes|no) \|$", PAGE, re.MULTILINE)
    said = {
        (Provenance(name), opted): word == "yes"
        for name, yes, no in rows for opted, word in ((True, yes), (False, no))
    }
    assert said == dict(ELIGIBLE)


def test_every_state_is_named() -> None:
    for state in (*ReplyState, *LoginState):
        assert f"`{state}`" in PAGE, state
