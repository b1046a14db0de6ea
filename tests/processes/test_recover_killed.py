"""kill -9 at every step of a recovery: the source stays, nothing has a final name, and the same call ends the same."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from hermes_state.testing.page_damage import zero_leaves
from maintenance.recovery import recover
from tests.maintenance.recovery.recovering import everything, foreign_store, little_space, native_store
from tests.support.children import Children

__all__ = ["little_space"]
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("little_space")]

# The real work; it stops for good at the step whose name begins as said, or only says so and goes on.
WORK = """
import sys, gates
from pathlib import Path
from maintenance.recovery import filling, recover, run

filling.BATCH_ROWS = 40  # many transactions in a small file
run.MARGIN_BYTES = 1 << 20
source, output, point, stops = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4] == "stops"
seen = 0

def step(now):
    global seen
    if now.doing.startswith(point):
        seen += 1
        if seen == int(sys.argv[5]):
            gates.reach("there")
            if stops:
                gates.wait("never")

recover(source, output, allow_partial=True, progress=step)
gates.reach("ended")
"""


def some(points: list[tuple[str, int]]) -> list[object]:
    """Every third in the suite, all in the campaign."""
    return [
        pytest.param(*point, marks=() if number % 3 == 0 else pytest.mark.campaign)
        for number, point in enumerate(points)
    ]


FOREIGN = (
    ("checking pages", 1), ("reading sessions", 1), ("reading pages", 1), ("comparing with the search index", 2),
    ("comparing messages", 1), ("building indexes", 1), ("verifying", 1),
)
NATIVE = (("reading messages", 1), ("checking messages", 1), ("building indexes", 1))


def kill_and_finish(db: Path, child: Children, point: str, count: int, *, stops: bool = True) -> None:
    output = db.with_name("out.db")
    straight = recover(db, db.with_name("straight.db"), allow_partial=True)
    before = hashlib.sha256(db.read_bytes()).hexdigest()
    victim = child(WORK, db, output, point, "stops" if stops else "goes on", count)
    victim.wait_for("there")
    victim.kill()
    assert hashlib.sha256(db.read_bytes()).hexdigest() == before
    if stops:
        assert not output.exists()
    if output.exists():  # it had ended before the kill
        return
    report = recover(db, output, allow_partial=True)
    ignored = ("store", "migrations")
    result, expected = everything(report.output), everything(straight.output)
    assert {key: row for key, row in result.items() if key[0] not in ignored} == {
        key: row for key, row in expected.items() if key[0] not in ignored
    }
    for one, other in zip(report.tables, straight.tables, strict=True):
        said, wanted = one.document(), other.document()
        assert {**said, "seconds": None, "rungs": None} == {**wanted, "seconds": None, "rungs": None}
        assert sum(said["rungs"].values()) == sum(wanted["rungs"].values())
    assert report.decisions == straight.decisions
    assert not output.with_name("out.db.recovering").exists()


@pytest.mark.parametrize(("point", "count"), some(FOREIGN))
def test_a_killed_recovery_of_a_foreign_store_goes_on(
    tmp_path: Path, child: Children, point: str, count: int
) -> None:
    db = foreign_store(tmp_path, "0.19.0", grown=8)
    zero_leaves(db, "messages", 2, seed=3)
    kill_and_finish(db, child, point, count)


@pytest.mark.parametrize(("point", "count"), some(NATIVE))
def test_a_killed_recovery_of_a_native_store_goes_on(
    tmp_path: Path, child: Children, point: str, count: int
) -> None:
    db = native_store(tmp_path / "home", sessions=40)
    zero_leaves(db, "bodies", 1, seed=3)
    kill_and_finish(db, child, point, count)


@pytest.mark.parametrize("point", ["checking pages", "reading pages", "comparing messages"])
def test_a_kill_in_the_middle_of_the_next_step_loses_nothing(tmp_path: Path, child: Children, point: str) -> None:
    db = foreign_store(tmp_path, "0.17.0", grown=12)
    zero_leaves(db, "messages", 2, seed=5)
    kill_and_finish(db, child, point, 1, stops=False)


def test_a_step_that_killed_its_process_twice_is_left_out(tmp_path: Path, child: Children) -> None:
    db = foreign_store(tmp_path, "0.19.0", grown=8)
    zero_leaves(db, "messages", 2, seed=3)
    for _try in range(2):
        victim = child(WORK, db, tmp_path / "out.db", "reading pages", "stops", 1)
        victim.wait_for("there")
        victim.kill()
    report = recover(db, tmp_path / "out.db", allow_partial=True)
    assert [said for said in report.decisions if said["what"] == "carving_left_out"] == [
        {"what": "carving_left_out", "why": "it ended the process twice"}
    ]
    assert report.table("messages").rungs.keys() == {"bisection"}


NAMING = """
import sys, gates
from pathlib import Path
from maintenance.recovery import recover, reporting, run

run.MARGIN_BYTES = 1 << 20
ending = sys.argv[3]
name_it, write_it = run._Ending._publish, reporting.write_report

def stop():
    gates.reach("there")
    gates.wait("never")

def publish(self, staged, target):
    name_it(self, staged, target)
    if target.name.endswith(ending):
        stop()

def write(document, target, **more):
    if ending == "half a report":
        target.write_text("{")
        stop()
    write_it(document, target, **more)
    if ending == "whole report":
        stop()

run._Ending._publish, reporting.write_report = publish, write
recover(Path(sys.argv[1]), Path(sys.argv[2]))
"""


@pytest.mark.parametrize("allowed", [False, True])
@pytest.mark.parametrize("ending", [".jsonl", ".partial", "half a report", "whole report"])
def test_killed_while_files_get_their_names_the_same_command_goes_on(
    tmp_path: Path, child: Children, ending: str, allowed: bool
) -> None:
    db = foreign_store(tmp_path, "0.19.0", grown=8)
    zero_leaves(db, "messages", 2, seed=3)
    straight = recover(db, tmp_path / "straight.db", allow_partial=True)
    output = tmp_path / "out.db"
    victim = child(NAMING, db, output, ending)
    victim.wait_for("there")
    victim.kill()
    named = tmp_path / "out.db.partial"
    # What looks finished has its report already.
    assert named.exists() == (ending == ".partial")
    assert not named.exists() or json.loads((tmp_path / "out.db.recovery.json").read_text())["output"] == str(named)
    report = recover(db, output, allow_partial=allowed)
    assert report.resumed and report.output == (output if allowed else tmp_path / "out.db.partial")
    assert everything(report.output) == everything(straight.output)
    assert sorted(path.name for path in tmp_path.glob("out.db*") if not path.name.endswith(("-wal", "-shm"))) == [
        report.output.name, "out.db.recovery-apart.jsonl", "out.db.recovery.json",
    ]
    assert json.loads(report.report_path.read_text())["output"] == str(report.output)
