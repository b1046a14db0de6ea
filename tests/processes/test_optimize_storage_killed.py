"""kill -9 after every step of a conversion: hermes-agent's triggers work on what is left, and the next run ends it."""

from __future__ import annotations

import pytest

from hermes_state.engine import NulRule, open_exclusive
from maintenance.space.storage.state import storage_state
from maintenance.space.verify import check
from tests.support.children import Children
from tests.support.cli import RunCli
from tests.support.space import change, content, context, grow
from tests.support.stores import StoreCopy

# Converts with small chunks and stops for good when a step was done for the given time.
CONVERT = """
import sys, gates
from collections import Counter
from pathlib import Path
from hermes_state.clock import SYSTEM
from hermes_state.engine import NulRule, open_exclusive
from maintenance.context import Context
from maintenance.space.optimize import Times
from maintenance.space.storage import convert
from maintenance.space.storage.flow import Conversion
from maintenance.space.storage.plan import StorageChoices, look

convert.BACKFILL_ROWS, convert.TEARDOWN_ROWS = 60, 100
db, point, time = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
seen = Counter()

def between(step):
    seen[step] += 1
    if step == point and seen[step] == time:
        gates.reach("stopped")
        gates.wait("never")

with open_exclusive(db, foreign=True, nul_rule=NulRule.CUT) as store:
    plan = look(store, StorageChoices())
    ctx = Context(home=db.parent, profile=None, db=db, json=False, clock=SYSTEM)
    Conversion(ctx, store, plan, between=between).run(Times())
"""

POINTS = (
    ("staged", 1),
    ("some of the old index gone", 1),
    ("some of the old index gone", 9),
    ("some rows indexed", 1),
    ("some rows indexed", 3),
    ("all rows indexed", 1),
    ("index merged", 1),
    ("index merged", 2),
)


@pytest.mark.slow
@pytest.mark.parametrize(("point", "time"), POINTS)
def test_a_kill_after_any_step_leaves_a_file_that_works_and_the_next_run_ends_it(
    store_copy: StoreCopy, child: Children, run_cli: RunCli, point: str, time: int
) -> None:
    db = store_copy("0.18.2")
    grow(db, sessions=2)
    rows = {table: found for table, found in content(db).items() if table != "state_meta"}
    victim = child(CONVERT, db, point, time)
    victim.wait_for("stopped")
    victim.kill()

    verdict, _stamp = check(context(db), quick=True)
    assert verdict.pages == ()
    assert {table: found for table, found in content(db).items() if table != "state_meta"} == rows
    # The file's own triggers go on working on both sides of the marks.
    change(
        db,
        "INSERT INTO messages(session_id, role, content, timestamp) VALUES ('grown-0', 'user', 'zebrafish', 1)",
        "UPDATE messages SET content = 'quagga' WHERE id = 20",
        "UPDATE messages SET content = 'aurochs' WHERE id = (SELECT max(id) - 1 FROM messages)",
        "DELETE FROM messages WHERE id IN (30, (SELECT max(id) - 2 FROM messages))",
    )

    again = run_cli("sessions", "optimize-storage", "--json")
    assert again.exit_code == 0, again.stderr
    with open_exclusive(db, foreign=True, nul_rule=NulRule.CUT) as store:
        assert storage_state(store).done
        for index in ("messages_fts", "messages_fts_trigram"):
            with store.transaction() as tx:
                tx.execute(f"INSERT INTO {index}({index}, rank) VALUES ('integrity-check', 1)")
        for word in ("zebrafish", "quagga", "aurochs"):
            assert len(store.rows("SELECT rowid FROM messages_fts WHERE messages_fts MATCH ?", (word,))) == 1
        assert store.row("SELECT count(*) FROM messages") == (len(rows["messages"]) - 1,)
