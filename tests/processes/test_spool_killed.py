"""kill -9 around the spool: what `save` acknowledged is in the store once in the end (reports 32, 105, 106)."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_state.engine import open_write
from hermes_state.store import open_store
from tests.support.children import Children

pytestmark = pytest.mark.slow

SAVING = """
import sys
import gates
from hermes_state.store import open_store

with open_store(path=sys.argv[1]) as store:
    gates.reach("open")
    gates.wait("go")
    for number in range(int(sys.argv[2])):
        saved = store.spool.save("s", [{"role": "user", "content": f"turn {number}"}], deadline_seconds=0)
        print(number, "spooled" if saved.item else "stored", flush=True)
    gates.reach("saved")
    gates.wait("never")
"""

# A replay that stops at a gate: inside the transaction, after its COMMIT, or when the file is gone.
REPLAYING = """
import sys
import gates
from hermes_state.engine.core import Core
from hermes_state.spool import Spool
from hermes_state.store import open_store

db, where = sys.argv[1:]
write, done = Core.write, Spool.done

def stop(point):
    if point == where:
        gates.reach("stopped")
        gates.wait("never")

def stopping(self, work, **more):
    def inside(tx):
        result = work(tx)
        stop("inside")
        return result

    result = write(self, inside, **more)
    stop("committed")
    return result

def stopping_done(self, path):
    done(self, path)
    stop("taken away")

Core.write, Spool.done = stopping, stopping_done
with open_store(path=db) as store:
    store.spool.replay()
"""


def texts(db: Path) -> list[object]:
    with open_store(path=db) as store:
        return [message.content for message in store.messages.history("s", after=0, limit=1000).messages]


def replay(db: Path) -> tuple[int, int]:
    with open_store(path=db) as store:
        done = store.spool.replay()
        return done.messages, done.applied


@pytest.fixture
def db(tmp_path: Path) -> Path:
    path = tmp_path / "state.db"
    with open_store(path=path) as store:
        store.sessions.create(id="s", source="cli")
    return path


def spool_twenty(db: Path, child: Children) -> None:
    """Twenty turns while another process has the write lock; the process that saved them is killed."""
    saving = child(SAVING, db, 20)
    saving.wait_for("open")
    with open_write(db, deadline_seconds=5.0) as other, other.transaction() as tx:
        tx.execute("UPDATE sessions SET title = title")
        saving.release("go")
        saving.wait_for("saved")
        saving.kill()
    assert saving.stdout.split() == [word for number in range(20) for word in (str(number), "spooled")]


def test_twenty_turns_of_a_locked_store_survive_a_kill_and_are_there_once_after_two_replays(
    db: Path, child: Children
) -> None:
    spool_twenty(db, child)
    assert texts(db) == []

    assert replay(db) == (20, 20)
    assert replay(db) == (0, 0)
    assert texts(db) == [f"turn {number}" for number in range(20)]


@pytest.mark.parametrize("where", ["inside", "committed", "taken away"])
def test_a_replay_that_is_killed_is_finished_by_the_next_one_without_doubling_a_turn(
    db: Path, child: Children, where: str
) -> None:
    spool_twenty(db, child)
    replaying = child(REPLAYING, db, where)
    replaying.wait_for("stopped")
    replaying.kill()

    replay(db)
    assert texts(db) == [f"turn {number}" for number in range(20)]
    with open_store(path=db) as store:
        assert store.spool.waiting() == [] and store.spool.quarantined() == []
