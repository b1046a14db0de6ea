"""What a store owed in a WAL that was lost: verdicts come back, what may have been sent is not sent as if for once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hermes_state.store import open_store
from maintenance.recovery.captures.merge import merge_wal
from tests.maintenance.owing import LEAST, ONCE, owe, owing_store, sent, states
from tests.support.children import Children

pytestmark = pytest.mark.slow
SINCE = "it may have been sent since the copy that it comes from was made"
LOSING = """
import sys
import gates
from hermes_state.errors import GenerationLost
from hermes_state.outbox import Accepted
from hermes_state.store import open_store

store = open_store(path=sys.argv[1])

def owe(name, policy):
    store.outbox.append(
        dedupe_id=name, kind="final", transport=name, payload={"text": name}, policy=policy, lane="talk",
    )

def send(name):
    (claim,) = store.outbox.claim([name])
    store.outbox.settle(claim, Accepted())

send("sent")
store.outbox.claim(["held"])
store.outbox.claim(["reply"])
store.outbox.upkeep(blank_after_seconds=0.0)
owe("new sent", "at_most_once")
send("new sent")
owe("new stop", "at_most_once")
owe("new reply", "at_least_once")
gates.reach("written")
gates.wait("go")
try:
    store.sessions.create(id="never", source="cli")
except GenerationLost as error:
    gates.reach("lost", str(error.capture))
    gates.wait("end")
"""


def lose(path: Path, child: Children) -> Path:
    gateway = child(LOSING, path)
    gateway.wait_for("written")
    for name in ("-wal", "-shm"):
        os.unlink(f"{path}{name}")
    gateway.release("go")
    capture = Path(gateway.wait_for("lost"))
    gateway.kill()
    return capture


@pytest.fixture
def db(tmp_path: Path) -> Path:
    db = owing_store(tmp_path, "sent", "held", "kept")
    with open_store(path=db) as store:
        owe(store, "reply", LEAST)
    return db


def test_verdicts_of_the_lost_wal_stand_and_what_it_alone_owed_is_judged_by_its_policy(
    db: Path, child: Children
) -> None:
    capture = lose(db, child)
    before = states(db)
    assert {one[0] for one in before.values()} == {"pending"}
    assert merge_wal(capture, db, dry_run=True).captures[0].rows == {"outbox": 6} and states(db) == before
    report = merge_wal(capture, db)
    assert (report.captures[0].rows, report.captures[0].refused) == ({"outbox": 6}, ())
    expected = {
        "sent": ("accepted", 0, 0, "Accepted"), "held": ("unknown", 0, 1, SINCE), "kept": ("pending", 0, 0, None),
        "reply": ("pending", 0, 1, SINCE), "new sent": ("accepted", 0, 0, "Accepted"),
        "new stop": ("unknown", 0, 1, SINCE), "new reply": ("pending", 0, 1, SINCE),
    }
    assert states(db) == expected
    assert merge_wal(capture, db).captures[0].rows == {} and states(db) == expected
    assert sent(db, *expected) == ["kept", "reply", "new reply"]


def test_what_the_store_has_settled_meanwhile_stays_and_what_it_forgot_stays_forgotten(
    db: Path, child: Children
) -> None:
    capture = lose(db, child)
    with open_store(path=db) as store:
        for name in ("held", "reply"):
            store.outbox.drop(name, reason="a person")
        store.outbox.drop("kept", reason="a person")
        store.outbox.upkeep(blank_after_seconds=0.0, most_settled=0)
    merge_wal(capture, db)
    assert {name: one[0] for name, one in states(db).items()} == {
        "sent": "accepted", "new sent": "accepted", "new stop": "unknown", "new reply": "pending",
    }


def test_an_id_that_may_have_been_forgotten_is_left_to_a_person_whatever_its_policy(db: Path, child: Children) -> None:
    capture = lose(db, child)
    with open_store(path=db) as store:
        at = store.core.clock.now()
        store.core.write(lambda tx: tx.execute("INSERT INTO outbox_horizon (one, forgotten_to) VALUES (1, ?)", (at,)))
    merge_wal(capture, db)
    assert states(db)["new reply"] == ("unknown", 0, 1, SINCE)
    with open_store(path=db) as store:
        assert store.outbox.get("new reply").policy == ONCE
