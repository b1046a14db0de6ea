"""kill -9 at every step of a replacement of content: the old or the new content, whole, and the old files aside."""

from __future__ import annotations

from pathlib import Path

import pytest

from maintenance.replacement import unfinished
from maintenance.replacement.marker import marker_path
from tests.maintenance.replacement.replacing import STATES, files_of, make, query, replace, words
from tests.support.children import Children

# The real work; it stops for good once the step named by the third argument is done, or goes on from there.
WORK = """
import sys, gates
from pathlib import Path
from tests.maintenance.replacement.replacing import replace

db, new, point, stops = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4] == "stops"

def step(done):
    if done == point:
        gates.reach("there")
        if stops:
            gates.wait("never")

replace(db, new, step=step)
"""
POINTS = (
    "aside copied", "locked", "aside verified", "noted", "prepared", "content replaced", "checkpointed", "verified",
    "note removed",
)
KINDS = ("healthy", "rollback", "zeroed header")
CHANGED = POINTS[POINTS.index("content replaced") :]


def old_is_there(db: Path, state: str, before: bytes) -> bool:
    if state in ("healthy", "rollback"):
        return words(db) == {"old"}
    return db.read_bytes() == before  # broken as it was


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "state"),
    [
        pytest.param(point, state, marks=() if (number + turn) % 3 == 0 else pytest.mark.campaign)
        for number, point in enumerate(POINTS) for turn, state in enumerate(KINDS)
    ],
)
def test_a_kill_after_any_step_leaves_old_or_new_and_the_next_run_ends_it(
    tmp_path: Path, child: Children, point: str, state: str
) -> None:
    db = make(tmp_path / "home" / "state.db", "old", mode="delete" if state == "rollback" else "wal")
    STATES.get(state, STATES["healthy"])(db)
    before = db.read_bytes()
    new = make(tmp_path / "new.db", "new", rows=3000)
    victim = child(WORK, db, new, point, "stops")
    victim.wait_for("there")
    victim.kill()
    assert old_is_there(db, state, before) is (point not in CHANGED)
    assert point not in CHANGED or words(db) == {"new"}
    found = unfinished(db)
    assert (found is not None) is (point in POINTS[POINTS.index("noted") : -1])
    if found is not None:
        assert found.note is not None and found.running is False
        assert files_of(Path(found.note.old)) == {"state.db": before}
        assert found.next.startswith("Nothing was changed yet." if point == "noted" else "The store holds the old")
    done = replace(db, new)
    assert words(db) == {"new"} and query(db, "PRAGMA integrity_check") == [("ok",)]
    assert unfinished(db) is None and not marker_path(db).exists()
    kept = sorted(db.parent.glob("state.db.replaced-*"))
    assert before in [(folder / "state.db").read_bytes() for folder in kept]
    assert done.aside in kept
    # What the killed run had kept is not kept twice, unless the store was changed after it.
    assert len(kept) == (2 if point in ("prepared", "note removed") else 1)
    assert not [path for path in db.parent.iterdir() if ".replacing-" in path.name or path.name.endswith(".partial")]


@pytest.mark.slow
@pytest.mark.parametrize("state", ["healthy", "rollback", "zeroed header"])
def test_a_kill_in_the_middle_of_the_copy_leaves_one_whole_content(
    tmp_path: Path, child: Children, state: str
) -> None:
    db = make(tmp_path / "home" / "state.db", "old", rows=30_000, mode="delete" if state == "rollback" else "wal")
    STATES.get(state, STATES["healthy"])(db)
    before = db.read_bytes()
    new = make(tmp_path / "new.db", "new", rows=60_000)
    script = WORK.replace(
        "replace(db, new, step=step)",
        """
def progress(what, done, total):
    if what == point and done > total / 2:
        gates.reach("there")
        gates.wait("never")

replace(db, new, progress=progress)""",
    )
    victim = child(script, db, new, "putting the new content in place", "stops")
    victim.wait_for("there")
    victim.kill()
    found = unfinished(db)
    assert found is not None and found.note is not None
    assert (Path(found.note.old) / "state.db").read_bytes() == before
    if state == "zeroed header":
        with pytest.raises(Exception, match="not a database"):  # SQLite plays a hot journal back on the way
            query(db, "SELECT 1 FROM note")
    assert old_is_there(db, state, before)
    replace(db, new)
    assert words(db) == {"new"} and query(db, "PRAGMA integrity_check") == [("ok",)]
