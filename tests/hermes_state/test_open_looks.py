"""When an open for writing looks at every process for holders of deleted sidecars."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hermes_state import errors
from hermes_state.engine import open_exclusive, open_write
from hermes_state.engine.stale import has_sidecars
from tests.support.native import bodies, make_store

OURS = """
    import sys, gates
    from hermes_state import engine, errors
    store = getattr(engine, sys.argv[2])(sys.argv[1])
    store.rows("SELECT count(*) FROM note")
    gates.reach("open")
    gates.wait("close")
    try:
        store.close()
        print("closed")
    except errors.GenerationLost:
        print("captured")
"""
ADD = "INSERT INTO note(body) VALUES(?)"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_store(tmp_path / "state.db")


def unlink_sidecars(store: Path) -> None:
    for suffix in ("-wal", "-shm"):
        os.unlink(f"{store}{suffix}")


@pytest.mark.parametrize("kind", ["open_read", "open_write"])
def test_open_that_makes_new_sidecars_is_refused_beside_a_stale_holder(store: Path, child, kind: str) -> None:
    stale = child(OURS, store, kind)
    stale.wait_for("open")
    unlink_sidecars(store)
    with pytest.raises(errors.GenerationLost) as refused:
        open_write(store)
    assert refused.value.operator_detail == f"PID {stale.pid} still has replaced or unlinked files of {store} open."
    assert not has_sidecars(store)
    stale.kill()
    open_write(store).close()


@pytest.mark.parametrize("kind", ["open_read", "open_write"])
def test_native_store_with_its_sidecars_is_opened_without_a_look_and_the_stale_engine_harms_nothing(
    store: Path, child, kind: str
) -> None:
    stale = child(OURS, store, kind)
    stale.wait_for("open")
    unlink_sidecars(store)
    fresh = child(OURS, store, "open_read")
    fresh.wait_for("open")
    with open_write(store) as writer:
        writer.write(lambda transaction: transaction.execute(ADD, ("one",)))
        stale.release("close")
        assert stale.finish().split() == ["closed" if kind == "open_read" else "captured"]
        writer.write(lambda transaction: transaction.execute(ADD, ("two",)))
    fresh.kill()
    assert bodies(store) == ["one", "two"]


def test_foreign_file_and_exclusive_open_are_always_looked_at(store: Path, child) -> None:
    stale = child(OURS, store, "open_read")
    stale.wait_for("open")
    unlink_sidecars(store)
    fresh = child(OURS, store, "open_read")
    fresh.wait_for("open")
    for refused in (lambda: open_write(store, foreign=True), lambda: open_exclusive(store)):
        with pytest.raises(errors.GenerationLost) as seen:
            refused()
        assert [holder.process.pid for holder in seen.value.holders] == [stale.pid]
    stale.kill()
    fresh.kill()
    open_write(store, foreign=True).close()
    open_exclusive(store).close()
