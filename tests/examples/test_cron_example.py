"""The example of a ticker, as it stands: once, and until it is told to end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cron_store.cron import Cron
from cron_store.schedule import Interval
from hermes_state.store import open_store
from tests.support.children import PROJECT


def declare(home: Path, job_id: str, *command: str) -> None:
    """A job that is due now."""
    with open_store(home, durability="process") as store:
        now = int(time.time())
        Cron(store).add(
            job_id, Interval(seconds=3600, anchor=now), after=now - 1, fields={"command": list(command)}
        )


def program(root: Path, *options: str) -> subprocess.Popen[str]:
    environment: dict[str, Any] = {
        **os.environ, "PYTHONPATH": str(PROJECT), "XDG_STATE_HOME": str(root.parent / "state"),
    }
    return subprocess.Popen(
        [sys.executable, str(PROJECT / "examples" / "cron_ticker.py"), "--root", str(root), *options],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )


def last_states(home: Path) -> dict[str, str]:
    with open_store(home) as store:
        return {run.job_id: str(run.state) for run in Cron(store).history()}


@pytest.mark.slow
def test_once_does_what_is_due_in_every_profile(tmp_path: Path) -> None:
    root = tmp_path / "root"
    declare(root, "hello", "echo", "good morning")
    declare(root, "broken", "false")
    declare(root / "profiles" / "work", "hello", "echo", "at work")
    out, err = program(root, "--once").communicate(timeout=60)
    assert (sorted(out.splitlines()), err) == (["broken: ", "hello: at work", "hello: good morning"], "")
    assert last_states(root) == {"hello": "succeeded", "broken": "failed"}
    assert last_states(root / "profiles" / "work") == {"hello": "succeeded"}


@pytest.mark.slow
def test_it_drains_when_it_is_told_to_end(tmp_path: Path) -> None:
    """A run that lasts is stopped and is interrupted; one that was over was delivered."""
    root = tmp_path / "root"
    declare(root, "hello", "echo", "good morning")
    declare(root, "long", "sleep", "600")
    running = program(root)
    try:
        assert running.stdout is not None
        lines = {running.stdout.readline(), running.stdout.readline()}
        assert lines == {"ticking\n", "hello: good morning\n"}
        running.send_signal(signal.SIGTERM)
        out, err = running.communicate(timeout=60)
        assert (running.returncode, out, err) == (0, "", "")
    finally:
        running.kill()
    assert last_states(root) == {"hello": "succeeded", "long": "interrupted"}
