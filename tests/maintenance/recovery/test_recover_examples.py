"""examples/recover_all.py does over a folder of stores what it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hermes_state.testing.page_damage import zero_header, zero_leaves
from tests.maintenance.recovery.recovering import everything, foreign_store, native_store
from tests.support.children import PROJECT, child_environment


def run_example(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(PROJECT / "examples" / "recover_all.py"), *map(str, arguments)], capture_output=True,
        text=True, env=child_environment(own_packages=True), check=False,
    )


@pytest.mark.slow
def test_damaged_stores_of_a_folder_are_recovered_and_sound_ones_left(tmp_path: Path) -> None:
    homes = tmp_path / "homes"
    whole = foreign_store(homes / "whole", "0.19.0")
    headless = foreign_store(homes / "headless", "0.16.0")
    rows = everything(headless)
    zero_header(headless)
    native = native_store(homes / "native", sessions=8)
    zero_leaves(native, "messages", 1, seed=1)
    zeroed = homes / "zeroed" / "state.db"
    zeroed.parent.mkdir()
    zeroed.write_bytes(bytes(50_000))
    before = {path: path.read_bytes() for path in (whole, headless, native, zeroed)}
    ran = run_example(homes, tmp_path / "out")
    assert ran.stderr == "" and ran.returncode == 1  # one of them has no rows at all
    assert ran.stdout.splitlines()[0] == (
        f"{headless}: {len(rows)} rows in {tmp_path / 'out' / 'headless-state.db'}, 0 known to be lost"
    )
    assert f"{zeroed}: {zeroed} holds nothing but zeros" in ran.stdout
    assert everything(tmp_path / "out" / "headless-state.db") == rows
    made = sorted(path.name for path in (tmp_path / "out").iterdir() if path.suffix == ".db")
    assert made == ["headless-state.db", "native-state.db"]
    assert {path: path.read_bytes() for path in before} == before
    again = run_example(homes, tmp_path / "out")
    assert [line.partition(":")[0] for line in again.stdout.splitlines()] == [str(zeroed)]


def test_without_two_folders_it_says_how_it_is_used() -> None:
    ran = run_example()
    assert (ran.returncode, ran.stdout) == (2, "") and "python examples/recover_all.py" in ran.stderr
