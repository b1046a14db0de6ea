"""kill -9 at every statement of converting what adoption kept: all of it is done or none, and a repeat does the rest.

A program forks once for each statement of its transactions, on a copy of one adopted store each time. What the next
run finds is converted whole or pending; afterwards every row has its outcome and no obligation is there twice.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.maintenance.kept_gateway import adopted
from tests.support.children import Children
from tests.support.stores import StoreCopy

SEED = int(os.environ.get("HERMES_STATE_SEED", "9000"))
CONVERTING = """
import json, shutil, sys
from pathlib import Path
from hermes_state.clock import SYSTEM
from hermes_state.engine import open_read, open_write
from maintenance.interop.convert.convert import convert, look
from tests.support.forked_kills import every_statement, step

pattern, folder = Path(sys.argv[1]), Path(sys.argv[2])
first, stride = int(sys.argv[3]), int(sys.argv[4])
TABLES = ("routing_entries", "topic_chats", "outbox", "reply_seals", "background_work")

def place(number):
    return folder / str(number) / "native.db"

def counts(db):
    with open_read(db) as reader:
        return {name: reader.rows(f"SELECT count(*) FROM {name}")[0][0] for name in TABLES}

def run(number):
    db = place(number)
    db.parent.mkdir()
    shutil.copyfile(pattern, db)
    db.chmod(0o600)
    with open_write(db) as store:
        step()
        convert(store, SYSTEM)
        step()

def check(number):
    db = place(number)
    with open_read(db) as reader, reader.snapshot():
        found = look(reader)
    before = counts(db)
    assert found.pending == (not any(before.values())), (found, before)
    if not found.pending:
        assert before == whole, before
    with open_write(db) as store:
        again = convert(store, SYSTEM)
    assert again.already_done == (not found.pending)
    assert counts(db) == whole, counts(db)
    assert again.counts == outcomes, again.counts
    shutil.rmtree(db.parent)

run(0)
whole = counts(place(0))
with open_read(place(0)) as reader, reader.snapshot():
    outcomes = look(reader).counts
print(json.dumps({"killed": every_statement(run, check, first=first, stride=stride), "whole": whole}))
"""


def converting(child: Children, store_copy: StoreCopy, folder: Path, *, first: int, stride: int) -> dict[str, object]:
    native = adopted(store_copy)
    folder.mkdir()
    said = child(CONVERTING, native, folder, first, stride).finish(600)
    found: dict[str, object] = json.loads(said.splitlines()[-1])
    print(f"converting, every {stride}. statement from {first}: {found}")
    return found


@pytest.mark.slow
def test_a_killed_conversion_is_whole_or_pending(child: Children, store_copy: StoreCopy, tmp_path: Path) -> None:
    found = converting(child, store_copy, tmp_path / "kills", first=1 + SEED % 197, stride=197)
    assert isinstance(found["killed"], int) and found["killed"] >= 1
    assert found["whole"] == {
        "routing_entries": 2, "topic_chats": 1, "outbox": 10, "reply_seals": 3, "background_work": 4,
    }


@pytest.mark.campaign
def test_a_conversion_killed_at_every_statement_is_whole_or_pending(
    child: Children, store_copy: StoreCopy, tmp_path: Path
) -> None:
    found = converting(child, store_copy, tmp_path / "kills", first=1, stride=1)
    assert isinstance(found["killed"], int) and found["killed"] > 100
