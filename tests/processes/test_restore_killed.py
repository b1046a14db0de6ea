"""kill -9 at every step of a backup and of a restore: no half backup counts, the store is the old or the new one."""

from __future__ import annotations

import pytest

from maintenance.backups import backup, drill
from maintenance.backups.catalog import backups_of
from maintenance.replacement import unfinished
from tests.maintenance.backups.making import leave_wal, put_back, query, tidy
from tests.support.children import Children
from tests.support.space import grow
from tests.support.stores import StoreCopy

WORK = """
import sys, gates
from pathlib import Path
from tests.maintenance.backups.making import put_back
from maintenance.backups import backup

verb, db, source, point = sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4]

def step(done):
    if done == point:
        gates.reach("there")
        gates.wait("never")

if verb == "backup":
    backup(db, passphrase="opens it" if source == "sealed" else None, keep=1, step=step)
else:
    put_back(Path(source), db, step=step)
"""
RESTORE_POINTS = (
    "staged", "aside copied", "locked", "aside verified", "noted", "prepared", "content replaced", "checkpointed",
    "verified", "note removed",
)
LATER = "INSERT INTO sessions(id, source, started_at) VALUES ('later', 'cli', 1900000000)"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "sealed"])
@pytest.mark.parametrize("point", ["copied", "verified", "sealed", "named", "manifest written"])
def test_a_killed_backup_leaves_the_last_good_one_and_no_half_one(
    store_copy: StoreCopy, child: Children, point: str, kind: str
) -> None:
    if kind == "plain" and point == "sealed":
        pytest.skip("a plain backup is not encrypted")
    db = store_copy()
    grow(db, sessions=2)
    good = backup(db)
    victim = child(WORK, "backup", db, kind, point)
    victim.wait_for("there")
    victim.kill()
    listed = backups_of(db)
    assert good.path in listed and len(listed) == (2 if point == "manifest written" else 1)
    assert drill(good.path).messages == good.manifest.content.messages
    seen = {path.name for path in good.path.parent.iterdir() if not path.name.startswith(".")}
    # Between its name and its manifest it is whole, and counts as one without a manifest.
    assert len(seen) == {"named": 3, "manifest written": 4}.get(point, 2)
    again = backup(db, keep=1)
    assert backups_of(db) == (again.path,)
    assert not [path for path in [*again.path.parent.iterdir(), *db.parent.iterdir()] if path.name.startswith(".")]


@pytest.mark.slow
@pytest.mark.parametrize(
    "point", [pytest.param(p, marks=() if n % 3 == 0 else pytest.mark.campaign) for n, p in enumerate(RESTORE_POINTS)]
)
def test_a_killed_restore_leaves_the_old_store_or_the_new_one(
    store_copy: StoreCopy, child: Children, point: str
) -> None:
    db = tidy(store_copy())
    made = backup(db)
    leave_wal(db, LATER)
    before = tidy(db).read_bytes()
    victim = child(WORK, "restore", db, made.path, point)
    victim.wait_for("there")
    victim.kill()
    restored = RESTORE_POINTS.index(point) >= RESTORE_POINTS.index("content replaced")
    assert query(db, "SELECT count(*) FROM sessions WHERE id = 'later'") == [(0 if restored else 1,)]
    noted = RESTORE_POINTS.index("noted") <= RESTORE_POINTS.index(point) < RESTORE_POINTS.index("note removed")
    assert (unfinished(db) is not None) is noted
    put_back(made.path, db, over_wal=True)
    assert query(db, "SELECT count(*) FROM sessions WHERE id = 'later'") == [(0,)]
    assert unfinished(db) is None
    kept = [folder / "state.db" for folder in db.parent.glob("state.db.replaced-*")]
    assert before in [file.read_bytes() for file in kept]
    left = [path.name for path in db.parent.iterdir() if path.name.endswith(".partial")]
    assert left == []
