"""What may run beside Litestream: after each of it the replica gives the store back."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_state.clock import SYSTEM
from hermes_state.engine import open_read, open_write
from hermes_state.errors import StoreHeld
from hermes_state.store import open_store
from maintenance.replacement.replace import replace_content
from maintenance.replicate.config import config_for
from maintenance.replicate.drill import Drilled, drill
from maintenance.replicate.program import find_program
from maintenance.replicate.run import replicate_once
from maintenance.store_context import context_of
from tests.maintenance.replicate.running import SKIP, replicating
from tests.support.cli import RunCli

pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_program() is None, reason=SKIP)]


def drilled(db: Path) -> Drilled:
    return drill(context_of(db, SYSTEM), config_for(db, None, None), wait_seconds=60.0)


def large(db: Path, count: int = 400) -> Path:
    """More messages in a file of hermes-agent, and a third of them deleted again: free pages."""
    with open_write(db, foreign=True, deadline_seconds=10.0) as store:
        (session,) = store.rows("SELECT id FROM sessions ORDER BY id LIMIT 1")[0]
        with store.transaction() as tx:
            for number in range(count):
                tx.execute(
                    "INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, 'user', ?, ?)",
                    (session, f"message {number} " + "word " * 800, SYSTEM.now()),
                )
        with store.transaction() as tx:
            tx.execute("DELETE FROM messages WHERE length(content) > 3000 AND id % 3 = 0")
    return db


@pytest.mark.parametrize(
    "words",
    [
        ("optimize", "--online"),
        pytest.param(("optimize", "--force"), marks=pytest.mark.campaign),
        pytest.param(("prune", "--online", "--older-than", "1", "--yes"), marks=pytest.mark.campaign),
    ],
)
def test_the_replica_is_the_store_after_upkeep_of_a_file_of_hermes_agent(
    words: tuple[str, ...], store_copy: Callable[[str], Path], tmp_path: Path, run_cli: RunCli
) -> None:
    db = large(store_copy("0.19.0"))
    with replicating(run_cli, db, "--to", tmp_path / "replica"):
        ran = run_cli("sessions", *words, "--db", db)
        assert ran.exit_code == 0, ran.stderr
        found = drilled(db)
        assert (found.sound, found.equal, found.problems) == (True, True, ())
        with open_write(db, foreign=True, deadline_seconds=10.0) as store, store.transaction() as tx:
            tx.execute("UPDATE sessions SET title = 'after' WHERE id = (SELECT min(id) FROM sessions)")
        assert drilled(db).equal


@pytest.mark.campaign
def test_the_replica_is_the_store_after_pages_of_a_native_store_were_returned(tmp_path: Path, run_cli: RunCli) -> None:
    db = tmp_path / "native" / "state.db"
    with open_store(path=db) as store:
        sessions = [store.sessions.create(source="cli").id for _ in range(4)]
        for number in range(400):
            store.messages.append(sessions[number % 4], role="user", content=f"message {number} " + "word " * 500)
    with replicating(run_cli, db, "--to", tmp_path / "replica"):
        with open_store(path=db) as store:
            store.sessions.delete(sessions[:3], actor="test", reason="asked for")
        ran = run_cli("sessions", "optimize", "--db", db, "--json")
        assert ran.exit_code == 0, ran.stderr
        assert ran.json["sizes_after"]["page_count"] < ran.json["sizes_before"]["page_count"]
        with open_store(path=db) as store:
            store.messages.append(sessions[3], role="user", content="a later one")
        assert drilled(db).equal


@pytest.mark.campaign
def test_a_passive_checkpoint_is_harmless_and_a_truncating_one_does_not_get_its_turn(
    store_copy: Callable[[str], Path], tmp_path: Path, run_cli: RunCli
) -> None:
    db = store_copy("0.19.0")
    with replicating(run_cli, db, "--to", tmp_path / "replica"):
        large(db)
        with open_write(db, foreign=True, deadline_seconds=0.2) as store:
            store.checkpoint("passive")
            assert Path(f"{db}-wal").stat().st_size > 100_000
            done = store.checkpoint("truncate")
        assert done.busy
        assert Path(f"{db}-wal").stat().st_size > 100_000
        large(db)
        assert drilled(db).equal


@pytest.mark.campaign
def test_content_is_replaced_only_while_litestream_is_stopped_and_the_next_replica_is_right(
    store_copy: Callable[[str], Path], tmp_path: Path, run_cli: RunCli
) -> None:
    db, other = store_copy("0.19.0"), large(store_copy("0.19.0"))
    new = tmp_path / "new.db"
    with open_write(other, foreign=True, deadline_seconds=5.0) as store:
        store.checkpoint("truncate")
    shutil.copyfile(other, new)
    ctx = context_of(db, SYSTEM)
    with replicating(run_cli, db, "--to", tmp_path / "replica"), pytest.raises(StoreHeld, match="litestream"):
        replace_content(ctx, "sessions restore", new)
    replace_content(ctx, "sessions restore", new)
    with open_read(other) as wanted, open_read(db) as got:
        assert got.rows("SELECT count(*) FROM messages") == wanted.rows("SELECT count(*) FROM messages")
    replicate_once(ctx, config_for(db, None, None), quiet=True)
    assert drilled(db).equal
    # And with one that goes on afterwards.
    with replicating(run_cli, db):
        with open_write(db, foreign=True, deadline_seconds=10.0) as store, store.transaction() as tx:
            tx.execute("UPDATE sessions SET title = 'after' WHERE id = (SELECT min(id) FROM sessions)")
        assert drilled(db).equal
