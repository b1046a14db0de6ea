"""Every benchmark runs, small and with nobody to compare with, so that none rots."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.children import PROJECT

BENCHMARKS = sorted(path.stem for path in (PROJECT / "benchmarks").glob("bench_*.py"))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stores of this run, so that a change of their recipe is seen."""
    return tmp_path_factory.mktemp("stores")


@pytest.mark.slow
@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_small_run_without_the_peer_measures_ours_and_the_floor(name: str, tmp_path: Path, cache: Path) -> None:
    without_peer = {name: value for name, value in os.environ.items() if not name.startswith(("HERMES", "PYTHON"))}

    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", "--scale", "1", "--rounds", "1", "--results", str(tmp_path)],
        cwd=PROJECT,
        env={**without_peer, "HERMES_BENCH_CACHE": str(cache)},
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    (result,) = tmp_path.glob("*.json")
    document = json.loads(result.read_text(encoding="utf-8"))
    sides = document["seconds"]
    assert document["question"] == name.removeprefix("bench_") == result.stem
    assert document["environment"]["peer"] == "absent"
    assert any(side.startswith("ours") for side in sides)
    assert any(side.startswith("floor") for side in sides)
    assert all(phase["median"] >= 0 for phases in sides.values() for phase in phases.values())


def test_every_benchmark_is_in_the_readme_with_its_question() -> None:
    listed = {
        line.split("`")[1].removesuffix(".py")
        for line in (PROJECT / "benchmarks" / "README.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("| `bench_")
    }
    assert listed == set(BENCHMARKS)
    for name in BENCHMARKS:
        text = (PROJECT / "benchmarks" / f"{name}.py").read_text(encoding="utf-8")
        assert text.split("\n")[0].endswith("?") and "change" in text.split('"""')[1], name
