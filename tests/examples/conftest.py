"""A gateway and a plugin with stores of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.examples.programs import Stage
from tests.support.cli import RunCli


@pytest.fixture
def stage(tmp_path: Path, live_store_audit_hook: object) -> Iterator[Stage]:
    """Where both programs run; all of them are killed when the test ends."""
    made = Stage(tmp_path / "stage")
    yield made
    made.close()
    assert made.errors() == ""


@pytest.fixture
def hermes(run_cli: RunCli, stage: Stage) -> Callable[..., Any]:
    """`hermes("list")` is `hermes instances list --json` on the gateway's store, in a process of its own."""

    def run(verb: str, *words: object) -> Any:
        done = run_cli("instances", verb, *words, "--json", program="hermes", home=stage.home)
        assert done.exit_code == 0, done.stderr
        return done.json

    return run
