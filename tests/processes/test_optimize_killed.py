"""kill -9 at every kind of point of an optimize run: the store opens, is whole, and has every row."""

from __future__ import annotations

import pytest

from maintenance.space.reclaim import leftover_copies
from maintenance.space.verify import check
from tests.support.children import Children
from tests.support.cli import RunCli
from tests.support.space import change, content, context, grow, thin
from tests.support.stores import StoreCopy

# Runs the real steps on the real store and stops for good at the point named by the second argument.
STEPS = """
import sys, gates
from pathlib import Path
from hermes_state.clock import SYSTEM
from hermes_state.engine import open_exclusive
from maintenance.space import reclaim
from maintenance.space.merge import merge_alone
from maintenance.space.segments import fulltext_tables, index_state
from maintenance.space.sizes import sizes

db, point = Path(sys.argv[1]), sys.argv[2]

def stop(here):
    if here == point:
        gates.reach("stopped")
        gates.wait("never")

with open_exclusive(db, foreign=True) as store:
    stop("locked")
    for name in fulltext_tables(store):
        merge_alone(store, index_state(store, name), SYSTEM, lambda _pages: stop("inside a merge"))
        stop("between two merges")
    if point.startswith("copy"):
        with reclaim.private_copy(store.path, SYSTEM) as copy:
            store.vacuum_into(copy, on_progress=lambda _step: stop("copy half written"))
            stop("copy written")
            reclaim.verify_copy(store, copy)
            store.promote(copy)
            stop("copy promoted")
    else:
        reclaim.vacuum(store, sizes(store), lambda _step: stop("inside the rewrite"))
    stop("rewritten, not checkpointed")
    store.checkpoint("truncate")
    stop("checkpointed")
"""

POINTS = (
    "locked",
    "inside a merge",
    "between two merges",
    "inside the rewrite",
    "rewritten, not checkpointed",
    "checkpointed",
    "copy half written",
    "copy written",
    "copy promoted",
)


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_any_point_leaves_a_whole_store_with_every_row(
    store_copy: StoreCopy, child: Children, run_cli: RunCli, point: str
) -> None:
    db = store_copy()
    grow(db, sessions=4)
    thin(db, keep=2)
    # Many small rows, so that SQLite calls back in the middle of the rewrite.
    change(
        db,
        "CREATE TABLE unknown(a, b)",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60000) "
        "INSERT INTO unknown SELECT i, 'x' FROM n",
    )
    rows = content(db)
    victim = child(STEPS, db, point)
    victim.wait_for("stopped")
    victim.kill()

    verdict, _stamp = check(context(db), quick=False)
    assert (verdict.pages, verdict.indexes) == ((), {})
    assert content(db) == rows
    assert len(leftover_copies(db)) == (1 if point in ("copy half written", "copy written", "copy promoted") else 0)

    again = run_cli("sessions", "optimize", "--reclaim", "always", "--json")
    assert again.exit_code == 0, again.stderr
    assert content(db) == rows
    assert [index["segments_after"] for index in again.json["indexes"]] == [1, 1]
