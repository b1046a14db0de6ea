"""Rarer accidents: big transactions, forks, other journal modes, the exclusive door, files changed in place.

Invariant: as in `scenes.py`; only the strings differ. Big transactions matter because SQLite may write pages of an open
transaction to the files long before COMMIT, when nobody asks whether the lock is still there.
"""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
import sys

from tests.campaigns.scenes import LOCKED_FILES, OTHERS, PLAIN, scene
from tests.campaigns.stage import Stage


def in_rollback_mode(stage: Stage) -> None:
    """Turn the store into one with a rollback journal, before anybody opens it."""
    con = sqlite3.connect(stage.db)
    assert con.execute("PRAGMA journal_mode=DELETE").fetchone() == ("delete",)
    con.close()


@scene
def raw_descriptor_closed_then_our_transaction_outgrows_the_cache(stage: Stage, chance: random.Random) -> bool:
    us, them = stage.player("A", "ours"), stage.player("B", chance.choice(OTHERS))
    us.put(chance.randint(0, 3))
    us.do("begin")
    us.insert()
    us.do("raw", "-shm")
    them.put(chance.randint(1, 5))
    us.insert_big()
    us.do("commit")
    them.put(1)
    us.do("close")
    them.do("close")
    return True


@scene
def our_transaction_has_outgrown_the_cache_when_a_raw_descriptor_is_closed(stage: Stage, chance: random.Random) -> bool:
    us, them = stage.player("A", "ours"), stage.player("B", chance.choice(OTHERS))
    us.put(chance.randint(0, 3))
    us.do("begin")
    us.insert_big()
    for suffix in chance.choice((("-shm",), ("", "-shm"))):
        us.do("raw", suffix)
    them.put(chance.randint(1, 5))
    if chance.random() < 0.5:
        them.do("begin")
        them.insert_big()
    us.do("rollback" if chance.random() < 0.5 else "commit")
    them.do("commit")
    them.put(1)
    us.do("close")
    them.do("close")
    return False


@scene
def rollback_mode_raw_descriptor_closed_in_a_transaction(stage: Stage, chance: random.Random) -> bool:
    in_rollback_mode(stage)
    us, them = stage.player("A", "ours"), stage.player("B", chance.choice(OTHERS))
    us.put(chance.randint(0, 3))
    us.do("begin")
    us.insert_big() if chance.random() < 0.5 else us.insert()
    us.do("raw", "")
    them.put(chance.randint(1, 5))
    if chance.random() < 0.3:
        us.insert_big()
    us.do("commit")
    them.put(1)
    us.do("close")
    them.do("close")
    return True


@scene
def rollback_mode_second_library_beside_us(stage: Stage, chance: random.Random) -> bool:
    in_rollback_mode(stage)
    us, them = stage.player("A", "ours"), stage.player("B", chance.choice(OTHERS))
    us.put(chance.randint(0, 3))
    when = chance.choice(("before", "inside", "touch"))
    if when == "before":
        us.do("second_open")
        us.do("second_do", "begin")
        us.second_insert()
        us.put(1)
        us.do("second_do", "commit")
    else:
        us.do("begin")
        us.insert()
        if when == "inside":
            us.do("second_open")
            us.second_put()
        else:
            us.do("second_touch")
            them.put(2)
        us.do("commit")
    us.do("close")
    them.put(1)
    them.do("close")
    return True


@scene
def a_forked_child_ends_with_our_open_transaction(stage: Stage, chance: random.Random) -> bool:
    us, them = stage.player("A", "ours"), stage.player("B", chance.choice(OTHERS))
    us.put(chance.randint(0, 3))
    us.do("begin")
    us.insert_big() if chance.random() < 0.7 else us.insert()
    us.do("fork", chance.choice(("exit", "commit", "raise", "close", "collect")))
    them.do("read")
    us.insert()
    us.do("commit")
    them.put(1)
    us.put(1)
    us.do("close")
    them.do("close")
    return False


@scene
def a_forked_child_ends_while_we_are_idle(stage: Stage, chance: random.Random) -> bool:
    us, them = stage.player("A", "ours"), stage.player("B", chance.choice(OTHERS))
    us.put(chance.randint(1, 3))
    for _ in range(chance.randint(1, 3)):
        us.do("fork", chance.choice(("exit", "raise", "close", "collect")))
        them.put(1)
        us.put(1)
    for player in chance.sample([us, them], 2):
        player.do("close")
    return False


@scene
def exclusive_lock_lost_by_a_raw_descriptor(stage: Stage, chance: random.Random) -> bool:
    us = stage.player("A", "exclusive")
    us.put(chance.randint(1, 4))
    in_transaction = chance.random() < 0.4
    if in_transaction:
        us.do("begin")
        us.insert()
    us.do("raw", "")
    them = stage.player("B", chance.choice(OTHERS))
    them.put(chance.randint(1, 4))
    if in_transaction:
        if chance.random() < 0.5:
            us.insert_big()
        us.do("commit")
    elif chance.random() < 0.6:
        us.do(*chance.choice((("vacuum",), ("checkpoint",), ("put", stage.key("A")))))
    us.do("close")
    if chance.random() < 0.5:  # otherwise they are killed, and what only their page cache has is gone
        them.put(1)
        them.do("close")
    return True


@scene
def second_library_beside_our_exclusive_lock(stage: Stage, chance: random.Random) -> bool:
    us = stage.player("A", "exclusive")
    us.put(chance.randint(1, 4))
    us.do("second_open")
    us.second_put()
    if chance.random() < 0.6:
        us.do(*chance.choice((("vacuum",), ("checkpoint",), ("put", stage.key("A")))))
    us.do("close")
    us.second_put()
    us.do("second_do", "close")
    return True


@scene
def second_library_touched_the_store_under_our_exclusive_lock(stage: Stage, chance: random.Random) -> bool:
    us = stage.player("A", "exclusive")
    us.put(chance.randint(1, 4))
    us.do("second_touch")
    them = stage.player("B", chance.choice(PLAIN))
    them.put(chance.randint(1, 4))
    us.do("close")
    them.put(1)
    them.do("close")
    return False


@scene
def our_reader_closes_while_a_second_library_writes(stage: Stage, chance: random.Random) -> bool:
    us, them = stage.player("A", "reader"), stage.player("B", chance.choice(OTHERS))
    them.put(chance.randint(1, 3))
    us.do("read")
    us.do("second_open")
    us.do("second_do", "begin")
    us.second_insert()
    if chance.random() < 0.5:
        us.do("read")
    us.do("close")
    them.put(chance.randint(1, 3))
    us.do("second_do", "commit")
    us.do("second_do", "close")
    them.do("close")
    return True


@scene
def two_second_libraries_beside_us(stage: Stage, chance: random.Random) -> bool:
    us, them = stage.player("A", "ours"), stage.player("B", chance.choice(OTHERS))
    us.put(chance.randint(1, 3))
    us.do("second_open")
    us.do("second_do", "begin")
    us.second_insert()
    us.do("close")
    us.do("open")
    us.put(1)
    us.do("second_touch")
    them.put(1)
    us.do("second_do", "commit")
    us.do("second_do", "close")
    us.do("open")
    us.put(1)
    us.do("close")
    them.do("close")
    return False


@scene
def two_stores_of_ours_in_one_process_and_a_raw_descriptor(stage: Stage, chance: random.Random) -> bool:
    us, them = stage.player("A", "ours"), stage.player("B", chance.choice(OTHERS))
    us.put(chance.randint(0, 2))
    us.do("twin_open")
    us.twin_put(chance.randint(1, 3))
    us.put(1)
    us.do("begin")
    us.insert()
    for suffix in chance.choice(LOCKED_FILES):
        us.do("raw", suffix)
    if chance.random() < 0.5:
        us.do("twin_do", "close")
    else:
        us.do("twin_do", "read")
    them.put(chance.randint(1, 4))
    us.do("commit")
    us.twin_put(1)
    us.do("close")
    them.do("close")
    return True


@scene
def closing_one_store_of_ours_leaves_the_locks_of_the_other(stage: Stage, chance: random.Random) -> bool:
    us, them = stage.player("A", "ours"), stage.player("B", chance.choice(OTHERS))
    us.do("twin_open")
    us.twin_put(1)
    us.do("begin")
    us.insert()
    us.do("twin_do", "close")
    them.put(1)
    us.do("commit")
    us.do("twin_open")
    us.do("close")
    us.twin_put(2)
    them.put(1)
    us.do("twin_do", "close")
    them.do("close")
    return False


@scene
def wal_truncated_in_place_while_we_are_idle(stage: Stage, chance: random.Random) -> bool:
    us = stage.player("A", "ours")
    us.put(chance.randint(1, 4))
    os.truncate(f"{stage.db}-wal", 0)
    stage.destroyed("truncated the WAL in place")
    us.put(2)
    us.do("close")
    them = stage.player("B", chance.choice(OTHERS))
    them.put(chance.randint(1, 3))
    them.do("close")
    return True


@scene
def main_file_overwritten_in_place_by_a_shorter_one(stage: Stage, chance: random.Random) -> bool:
    small = stage.db.with_name("small.db")
    con = sqlite3.connect(small)
    con.execute("PRAGMA page_size=1024")
    con.execute("CREATE TABLE state_meta (key TEXT PRIMARY KEY, value TEXT)")
    con.commit()
    con.close()
    us = stage.player("A", "ours")
    us.put(chance.randint(1, 4))
    in_transaction = chance.random() < 0.5
    if in_transaction:
        us.do("begin")
        us.insert()
    shutil.copyfile(small, stage.db)
    stage.destroyed("copied another database over the main file, in place")
    us.do("commit") if in_transaction else us.put(1)
    us.do("close")
    for suffix in ("-wal", "-shm"):
        stage.db.with_name(stage.db.name + suffix).unlink(missing_ok=True)
    return True


@scene
def only_the_wal_index_is_unlinked(stage: Stage, chance: random.Random) -> bool:
    us = stage.player("A", "ours")
    us.put(chance.randint(1, 4))
    stage.unlink("-shm")
    them = stage.player("B", chance.choice(OTHERS))
    them.put(chance.randint(1, 4))
    us.do("checkpoint") if chance.random() < 0.3 else us.put(1)
    them.put(1)
    for player in chance.sample([us, them], 2):
        player.do("close")
    return True


@scene
def the_whole_folder_is_moved_away_and_back(stage: Stage, chance: random.Random) -> bool:
    us = stage.player("A", "ours")
    us.put(chance.randint(1, 4))
    away = stage.db.parent.with_name("away")
    os.rename(stage.db.parent, away)
    stage.did("moved the folder away")
    us.put(1)
    if chance.random() < 0.5:
        us.do("close")
    os.rename(away, stage.db.parent)
    stage.did("moved the folder back")
    them = stage.player("B", chance.choice(OTHERS))
    them.put(chance.randint(1, 3))
    us.do("close")
    them.do("close")
    return True


@scene
def another_program_switches_the_journal_mode_after_our_locks_are_gone(stage: Stage, chance: random.Random) -> bool:
    us = stage.player("A", "ours")
    us.put(chance.randint(1, 4))
    in_transaction = chance.random() < 0.5
    if in_transaction:
        us.do("begin")
        us.insert()
    for suffix in ("", "-shm"):
        us.do("raw", suffix)
    them = stage.player("B", chance.choice(PLAIN))
    them.do("to_rollback_mode")
    them.put(chance.randint(1, 3))
    us.do("commit") if in_transaction else us.put(1)
    us.do("close")
    them.put(1)
    them.do("close")
    return True


@scene
def the_store_has_a_second_name(stage: Stage, chance: random.Random) -> bool:
    """A hard link: the other program has its own -wal and -shm beside the other name."""
    other = stage.db.with_name("other.db")
    os.link(stage.db, other)
    us = stage.player("A", "ours", opened=False)
    program = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None);"
        "c.execute(\"INSERT INTO state_meta VALUES ('linked:1', '1')\"); print('ready', flush=True); sys.stdin.read()"
    )
    linked = subprocess.Popen(
        [sys.executable, "-c", program, str(other)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert linked.stdout is not None and linked.stdout.readline() == "ready\n"
    stage.did("another process opened and wrote the hard link other.db, and stays")
    us.do("open")
    us.put(chance.randint(1, 3))
    us.do("close")
    linked.communicate()
    stage.acknowledged.append("linked:1")
    stage.did("that process closed")
    return True
