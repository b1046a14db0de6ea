"""Reports about stores that Litestream replicates, each as its user met it.

Report 86: a nightly VACUUM in place under Litestream is said to have corrupted the store. With Litestream 0.5.17 it
costs one transfer of the whole file, and the replica is right afterwards; what breaks replicas is renaming a file over
the store, which nothing here does. Report 261: restored copies fail their check, and nobody notices until they are
needed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_state.clock import SYSTEM
from hermes_state.engine import open_read, open_write
from maintenance.replicate.config import config_for
from maintenance.replicate.drill import drill
from maintenance.replicate.program import find_program
from maintenance.replicate.run import replicate_once
from maintenance.space.verify import page_problems
from maintenance.store_context import context_of
from tests.maintenance.replicate.running import SKIP, replicating
from tests.support.cli import RunCli

pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_program() is None, reason=SKIP)]


def test_86_a_nightly_vacuum_in_place_under_litestream_leaves_store_and_replica_whole(
    store_copy: Callable[[str], Path], tmp_path: Path, run_cli: RunCli
) -> None:
    db = store_copy("0.19.0")
    ctx = context_of(db, SYSTEM)
    with replicating(run_cli, db, "--to", tmp_path / "replica"):
        inode = db.stat().st_ino
        for night in range(3):
            with open_write(db, foreign=True, deadline_seconds=10.0) as store, store.transaction() as tx:
                tx.execute(
                    "INSERT INTO messages (session_id, role, content, timestamp) "
                    "SELECT session_id, role, content || ?, ? FROM messages WHERE id <= 40",
                    (f" night {night}", SYSTEM.now()),
                )
                tx.execute("DELETE FROM messages WHERE id > 72 AND id % 2 = 0")
            plan = run_cli("sessions", "optimize", "--force", "--db", db, "--dry-run")
            assert "A full rewrite makes it send the whole compact file" in plan.stdout
            assert run_cli("sessions", "optimize", "--force", "--db", db).exit_code == 0
            assert drill(ctx, config_for(db, None, None), wait_seconds=60.0).equal
        assert db.stat().st_ino == inode
    with open_read(db, search_modules=False) as reader:
        assert page_problems(reader) == ()


def test_261_a_replica_that_lost_rows_or_pages_is_found_by_the_nightly_drill_and_not_in_need(
    store_copy: Callable[[str], Path], tmp_path: Path, run_cli: RunCli
) -> None:
    db = store_copy("0.19.0")
    replica = tmp_path / "replica"
    replicate_once(context_of(db, SYSTEM), config_for(db, str(replica), None), quiet=True)
    assert run_cli("sessions", "replicate", "--drill", "--db", db).exit_code == 0
    with open_write(db, foreign=True, deadline_seconds=10.0) as store, store.transaction() as tx:
        tx.execute(
            "INSERT INTO messages (session_id, role, content, timestamp) SELECT session_id, role, content, 1.0 "
            "FROM messages WHERE id <= 30"
        )
    replicate_once(context_of(db, SYSTEM), config_for(db, None, None), quiet=True)
    # The newest file of the replica is gone, as after a sync that a remote side undid.
    newest = max(replica.rglob("*.ltx"), key=lambda path: path.name)
    content = newest.read_bytes()
    newest.unlink()
    lost = run_cli("sessions", "replicate", "--drill", "--db", db, "--json")
    assert lost.exit_code == 65 and lost.json["behind"] == 30
    # It is there with other bytes.
    newest.write_bytes(content[:-200] + bytes(100) + content[-100:])
    damaged = run_cli("sessions", "replicate", "--drill", "--db", db, "--json")
    assert damaged.exit_code == 65 and damaged.json["problems"]
    newest.write_bytes(content)
    assert run_cli("sessions", "replicate", "--drill", "--db", db).exit_code == 0
