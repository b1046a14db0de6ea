"""kill -9 at every step of a repair: the store is as it was or repaired, and the next run goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_state.testing import corruption
from maintenance.repair import repair
from maintenance.repair.attempts import read_memory
from maintenance.replacement import unfinished
from tests.maintenance.repair.damages import damaged_folders, prints, problems
from tests.support.children import Children
from tests.support.cli import RunCli
from tests.support.stores import StoreCopy

pytestmark = pytest.mark.slow

RUN = """
    import sys, gates
    from maintenance.repair import repair

    def stop(here):
        if here.startswith(sys.argv[2]):
            gates.reach("stopped")
            gates.wait("never")

    repair(sys.argv[1], step=stop, progress=lambda doing: stop(doing.doing))
"""
# What the run says it is doing, then the steps of the replacement.
BEFORE = (
    "copying", "checking", "reading every row", "working on index", "comparing every row", "working on rewrite",
    "verifying", "replacing", "aside copied", "locked", "aside verified", "noted", "prepared",
)
AFTER = ("content replaced", "checkpointed", "verified", "note removed")


def killed(child: Children, path: Path, point: str) -> None:
    victim = child(RUN, path, point)
    victim.wait_for("stopped")
    victim.kill()


@pytest.mark.parametrize(
    "point",
    [
        pytest.param(point, marks=() if number % 3 == 0 else pytest.mark.campaign)
        for number, point in enumerate([*BEFORE, *AFTER])
    ],
)
def test_a_kill_leaves_the_old_store_or_the_repaired_one_and_the_next_run_goes_on(
    store_copy: StoreCopy, child: Children, point: str
) -> None:
    path = store_copy("0.19.0")
    rows = prints(path)
    corruption.zero_root(path, "idx_sessions_source")
    before = path.read_bytes()
    # "verifying" is said before the replacement, "verified" after it.
    killed(child, path, point)
    if point in BEFORE:
        assert path.read_bytes() == before
    report = repair(path)
    assert report.outcome == ("repaired" if point in BEFORE else "sound")
    assert (problems(path), prints(path)) == ([], rows)
    assert unfinished(path) is None
    assert len(damaged_folders(path)) == 1
    left = [item.name for item in path.parent.iterdir() if ".repairing" in item.name or item.name.endswith(".partial")]
    assert left == []
    results = [attempt.result for damage in read_memory(path).damages for attempt in damage.attempts]
    assert results[-1] == "repaired"


def test_the_doctor_says_that_a_repair_was_interrupted_and_names_the_command_that_goes_on(
    store_copy: StoreCopy, child: Children, run_cli: RunCli
) -> None:
    path = store_copy("0.19.0")
    corruption.zero_root(path, "idx_sessions_source")
    killed(child, path, "prepared")
    said = run_cli("doctor", "--json").json
    codes = {finding["code"] for finding in said["findings"] if finding["severity"] in ("warning", "damage")}
    assert codes >= {"repair_interrupted", "replacement_unfinished", "index_damaged"}
    assert said["next_command"] == f"hermes-state sessions repair --db {path}"
    assert run_cli("sessions", "repair", "--yes").exit_code == 0
    assert run_cli("doctor").exit_code == 0


@pytest.mark.parametrize("point", AFTER)
def test_the_command_that_the_doctor_names_ends_a_repair_that_was_killed_after_the_replacement(
    store_copy: StoreCopy, child: Children, run_cli: RunCli, point: str
) -> None:
    path = store_copy("0.19.0")
    corruption.zero_root(path, "idx_sessions_source")
    killed(child, path, point)
    said = run_cli("doctor", "--json").json
    assert said["next_command"] == f"hermes-state sessions repair --db {path}"
    ended = run_cli("sessions", "repair", "--db", path)
    assert (ended.exit_code, ended.stdout) == (
        0, f"{path} needs no repair: pages, indexes, search indexes and schema are sound.\n"
    )
    assert run_cli("doctor").exit_code == 0
    assert unfinished(path) is None
    assert [item.name for item in path.parent.iterdir() if ".repairing" in item.name] == []
