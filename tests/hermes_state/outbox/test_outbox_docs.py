"""The example in docs/outbox.md: complete, and it sends what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hermes_state.outbox import State
from hermes_state.store import open_store

PROJECT = Path(__file__).parents[3]


@pytest.mark.slow
def test_the_example_runs_as_it_stands(tmp_path: Path) -> None:
    page = (PROJECT / "docs" / "outbox.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    home = tmp_path / "home"
    home.mkdir()
    env = {**os.environ, "HERMES_HOME": str(home), "PYTHONPATH": str(PROJECT)}

    def run(more: str = "") -> str:
        ran = subprocess.run(
            [sys.executable, "-c", example + more], env=env, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert (ran.returncode, ran.stderr) == (0, "")
        return ran.stdout

    assert run() == "to chat 7: Done.\n"
    again = "\nwith open_store() as store:\n    store.outbox.retry(1)\n    store.outbox.deliver(send, ['telegram'])\n"
    assert run(again) == "to chat 7: Done.\n" * 2 + "(sent again: you may have seen this)\n"
    with open_store(path=home / "state.db", read_only=True) as store:
        assert [one.state for one in store.outbox.page()] == [State.ACCEPTED] * 3
