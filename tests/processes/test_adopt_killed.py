"""kill -9 at every step of an adoption in place: the old file or the new one is there, whole, and a repeat ends it."""

from __future__ import annotations

from pathlib import Path

import pytest

from maintenance.interop.adopt import places
from maintenance.space.verify import check
from tests.maintenance.adopting import adopt_in_place, query
from tests.support.children import Children
from tests.support.space import content, context, grow
from tests.support.stores import StoreCopy

# The real work; it stops for good once the step named by the second argument is done, or only says so and goes on.
WORK = """
import sys, gates
from pathlib import Path
from tests.maintenance.adopting import nobody
from tests.support.space import context
from maintenance.interop.adopt import build, flow

build.BATCH_ROWS = 50  # many transactions in a small file
db, point, stops = Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "stops"

def step(done):
    if done == point:
        gates.reach("there")
        if stops:
            gates.wait("never")

ctx = context(db)
plan = flow.make_plan(ctx, None)
gates.reach("planned")
flow.adopt_in_place(ctx, plan, scanner=nobody, step=step)
"""
POINTS = (
    "locked", "original copied", "original kept", "store made", "store filled", "store verified", "content replaced",
    "checkpointed",
)
REPLACED = {"content replaced", "checkpointed"}


def require_whole_and_finish(db: Path, rows: dict[str, list[tuple[object, ...]]], *, replaced: bool | None) -> bool:
    """Assert one whole file, old or new, then adopt again; returns which it was."""
    verdict, _stamp = check(context(db), quick=False)
    assert (verdict.pages, verdict.indexes) == ((), {})
    native = query(db, "SELECT count(*) FROM sqlite_schema WHERE name = 'view_edits'") == [(1,)]
    assert replaced is None or native is replaced
    if not native:
        assert content(db) == rows
    else:
        (original, *_more) = places.earlier_originals(db)
        assert content(original) == rows
    report = adopt_in_place(db) if not native else None
    assert query(db, "SELECT count(*) FROM messages") == [(len(rows["messages"]),)]
    assert query(db, "SELECT count(*) FROM sessions") == [(len(rows["sessions"]),)]
    assert query(db, "PRAGMA integrity_check") == [("ok",)]
    assert report is None or (report.built is not None and places.leftovers(db) == ())
    assert len(places.earlier_originals(db)) == 1  # however often it was begun
    return native


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_a_kill_after_any_step_leaves_one_whole_file(store_copy: StoreCopy, child: Children, point: str) -> None:
    db = store_copy()
    grow(db, sessions=3)
    rows = content(db)
    victim = child(WORK, db, point, "stops")
    victim.wait_for("there")
    victim.kill()
    # Once kept, the original stays, whatever happens to the rest.
    kept = POINTS.index(point) >= POINTS.index("original kept")
    assert len(places.earlier_originals(db)) == int(kept)
    require_whole_and_finish(db, rows, replaced=point in REPLACED)


@pytest.mark.slow
@pytest.mark.parametrize("point", ["planned", "store made", "store verified"])
def test_a_kill_in_the_middle_of_the_next_step_leaves_one_whole_file(
    store_copy: StoreCopy, child: Children, point: str
) -> None:
    db = store_copy()
    grow(db, sessions=12)
    rows = content(db)
    victim = child(WORK, db, point, "goes on")
    victim.wait_for("planned" if point == "planned" else "there")
    victim.kill()
    require_whole_and_finish(db, rows, replaced=None)


@pytest.mark.slow
def test_a_killed_run_with_to_leaves_no_file_of_that_name(store_copy: StoreCopy, child: Children) -> None:
    db = store_copy()
    target = db.with_name("native.db")
    script = WORK.replace("plan = flow.make_plan(ctx, None)", "plan = flow.make_plan(ctx, db.with_name('native.db'))")
    script = script.replace(
        "flow.adopt_in_place(ctx, plan, scanner=nobody, step=step)",
        "flow.adopt_to(ctx, plan, db.with_name('native.db'), step=step)",
    )
    before = db.read_bytes()
    victim = child(script, db, "store filled", "stops")
    victim.wait_for("there")
    victim.kill()
    assert not target.exists() and db.read_bytes() == before
    assert len(places.leftovers(target)) == 1
    from tests.maintenance.adopting import adopt_to

    report = adopt_to(db, target)
    assert len(report.cleared) == 1 and places.leftovers(target) == ()
