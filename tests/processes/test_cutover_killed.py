"""A cutover that is killed runs no job twice, and the same command finishes it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cron_store.looking import Looking
from hermes_state.clock import FakeClock
from hermes_state.store import open_store
from tests.support.children import Children
from tests.support.cli import RunCli
from tests.support.cron_peer import fixture

# The program itself, held at one system call: the rename of jobs.json, or what comes right after it.
HELD = """
import os, sys, gates
from maintenance.entry import run
place, folder, *words = sys.argv[1:]
renamed = False
def hook(event, args):
    global renamed
    about = str(args[0]) if args else ""
    if event == "os.rename" and about.startswith(folder):
        renamed = True
        if place == "before the rename":
            gates.reach("held")
            gates.wait("never")
    elif event == "open" and renamed and about == folder and place == "after the rename":
        renamed = False
        gates.reach("held")
        gates.wait("never")
sys.addaudithook(hook)
sys.exit(run(words, program="hermes-state"))
"""


def sides(there: Path, db: Path) -> list[tuple[str, bool, bool]]:
    """Each job that came in: whether it would run there, and here."""
    with open_store(path=db, read_only=True) as store:
        here = {job.job_id: job.active for job in Looking(store).jobs()}
    found = json.loads((there / "cron" / "jobs.json").read_text())["jobs"]
    return [(one["name"], bool(one["enabled"]), here[one["id"]]) for one in found if one["id"] in here]


@pytest.mark.slow
@pytest.mark.parametrize("place", ["before the rename", "after the rename"])
def test_a_job_runs_on_one_side_or_on_none_wherever_a_cutover_is_killed(
    place: str, tmp_path: Path, fake_clock: FakeClock, child: Children, run_cli: RunCli
) -> None:
    there, db = fixture("0.19.0", tmp_path / "there"), tmp_path / "here" / "state.db"
    with open_store(path=db):
        pass
    words = ("cron", "import", "--from", there, "--cutover", "--yes", "--db", db, "--json")
    held = child(HELD, place, there / "cron", *words)
    held.wait_for("held")
    assert run_cli(*words, "--wait", "0").exit_code == 75, "hermes-agent's locks are had"
    held.kill()
    found = sides(there, db)
    assert len(found) == 8 and not any(here for _name, _there, here in found)
    assert any(there for _name, there, _here in found) is (place == "before the rename")
    assert run_cli(*words).exit_code == 3
    after = {name: (there, here) for name, there, here in sides(there, db)}
    assert {name for name, (there, here) in after.items() if here} == {
        "brief", "half hourly", "three times", "in summer", "backup"
    }
    assert not any(there for there, _here in after.values())
