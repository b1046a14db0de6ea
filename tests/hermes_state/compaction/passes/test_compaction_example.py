"""examples/compact_small_window.py does what it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hermes_state import open_store
from tests.support.children import PROJECT, child_environment


def run_example(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(PROJECT / "examples" / "compact_small_window.py"), *map(str, arguments)],
        capture_output=True, text=True, env=child_environment(own_packages=True), check=False, timeout=60,
    )


@pytest.mark.slow
def test_a_model_that_serves_less_than_was_declared_is_obeyed_and_nothing_is_lost(tmp_path: Path) -> None:
    ran = run_example(tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")
    lines = ran.stdout.splitlines()
    assert "refused at 4096 tokens" in lines[0] and all("refused" not in line for line in lines[1:])
    assert "120 messages" in lines[-3] and lines[-1] == "rolled back: 120 in the view"
    with open_store(path=tmp_path / "state.db", read_only=True) as store:
        (session,) = store.sessions.list()
        assert store.messages.count(session.id) == 120
        assert all(store.compaction.verify(session.id, one.generation).ok for one in
                   store.compaction.generations(session.id))


def test_without_a_folder_it_says_how_it_is_used() -> None:
    ran = run_example()
    assert (ran.returncode, ran.stdout) == (2, "") and "python examples/compact_small_window.py" in ran.stderr
