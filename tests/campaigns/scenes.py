"""The measured accidents as scenes: our engine on one side, a real second writer on the other.

Invariant: a scene only pulls strings, with seeded choices (who, when, how many rows, which file). What was acknowledged
and what became of it is the stage's business. A scene returns whether our engine has to answer with a named error.

Not for: accidents that need a fork, a big transaction or another journal mode; see `rarer_scenes.py`.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable

from tests.campaigns.stage import Stage

Scene = Callable[[Stage, random.Random], bool]
SCENES: dict[str, Scene] = {}
OTHERS = ("apsw", "stdlib", "ours")
PLAIN = ("apsw", "stdlib")
LOCKED_FILES = (("",), ("-shm",), ("", "-shm"), ("", "-wal", "-shm"))


def scene(body: Scene) -> Scene:
    """Register a scene. It returns whether our engine has to answer with a named error."""
    SCENES[body.__name__] = body
    return body


@scene
def raw_descriptor_closed_in_a_transaction(stage: Stage, chance: random.Random) -> bool:
    us, them = stage.player("A", "ours"), stage.player("B", chance.choice(OTHERS))
    us.put(chance.randint(0, 4))
    us.do("begin")
    us.insert()
    files = chance.choice(LOCKED_FILES)
    for suffix in files:
        us.do("raw", suffix)
    them.put(chance.randint(1, 5))
    us.do("commit")
    us.do("close")
    them.put(1)
    them.do("close")
    return "-shm" in files


@scene
def raw_descriptor_closed_and_the_other_is_writing_at_our_commit(stage: Stage, chance: random.Random) -> bool:
    """The byte that the kernel shows as locked is then the other's lock, not ours."""
    us, them = stage.player("A", "ours"), stage.player("B", chance.choice(OTHERS))
    us.put(chance.randint(0, 3))
    us.do("begin")
    us.insert()
    us.do("raw", "-shm")
    them.put(chance.randint(1, 4))
    them.do("begin")
    them.insert()
    us.do("commit")
    them.do("commit")
    us.do("close")
    them.do("close")
    return True


@scene
def raw_descriptor_closed_while_idle(stage: Stage, chance: random.Random) -> bool:
    us, them = stage.player("A", "ours"), stage.player("B", chance.choice(OTHERS))
    us.put(chance.randint(1, 4))
    for suffix in chance.choice(LOCKED_FILES):
        us.do("raw", suffix)
    them.put(chance.randint(1, 4))
    if chance.random() < 0.5:
        them.do("close")
    us.put(2)
    us.do("close")
    return False


@scene
def raw_descriptor_closed_then_a_short_lived_writer_closes(stage: Stage, chance: random.Random) -> bool:
    """User report 1: the other's close takes the WAL away from under us."""
    us = stage.player("A", "ours")
    us.put(chance.randint(1, 6))
    us.do("raw", "")
    them = stage.player("B", chance.choice(PLAIN))
    them.do("read")
    them.do("close")
    us.put(3)
    us.do("close")
    return False


@scene
def raw_descriptor_closed_then_both_write_hundreds(stage: Stage, chance: random.Random) -> bool:
    """User report 2: two generations, both sides go on writing, both close."""
    us = stage.player("A", "ours")
    us.put(2)
    us.do("raw", "")
    stage.player("C", chance.choice(PLAIN)).do("close")
    them = stage.player("B", chance.choice(PLAIN))
    for _ in range(chance.randint(5, 20)):
        us.put(1)
        them.put(1)
    for player in chance.sample([us, them], 2):
        player.do("close")
    return False


@scene
def another_program_closed_a_raw_descriptor_and_we_are_the_short_lived_writer(
    stage: Stage, chance: random.Random
) -> bool:
    them = stage.player("B", chance.choice(PLAIN))
    them.put(chance.randint(1, 6))
    them.do("raw", "")
    us = stage.player("A", "ours")
    us.put(chance.randint(0, 2))
    us.do("close")
    them.put(3)
    us = stage.player("A", "ours")
    us.put(1)
    for player in chance.sample([us, them], 2):
        player.do("close")
    return False


@scene
def second_library_connects_reads_and_closes_in_a_transaction(stage: Stage, chance: random.Random) -> bool:
    us, them = stage.player("A", "ours"), stage.player("B", chance.choice(OTHERS))
    us.put(chance.randint(0, 3))
    us.do("begin")
    us.insert()
    us.do("second_touch")
    them.put(chance.randint(1, 5))
    if chance.random() < 0.5:
        them.do("begin")
        them.insert()
    us.do("commit")
    if chance.random() < 0.5:
        them.do("commit")
    us.do("close")
    them.do("close")
    return True


@scene
def second_library_connects_reads_and_closes_while_idle(stage: Stage, chance: random.Random) -> bool:
    us, them = stage.player("A", "ours"), stage.player("B", chance.choice(OTHERS))
    us.put(chance.randint(1, 4))
    us.do("second_touch")
    them.put(chance.randint(1, 4))
    if chance.random() < 0.5:
        them.do("close")
    us.put(2)
    us.do("close")
    return False


@scene
def second_library_is_writing_when_we_begin(stage: Stage, chance: random.Random) -> bool:
    us = stage.player("A", "ours")
    us.put(chance.randint(0, 3))
    us.do("second_open")
    us.do("second_do", "begin")
    us.second_insert()
    us.put(1)
    us.do("second_do", "commit")
    us.do("close")
    return True


@scene
def second_library_begins_inside_our_transaction(stage: Stage, chance: random.Random) -> bool:
    us = stage.player("A", "ours")
    us.put(chance.randint(0, 3))
    us.do("begin")
    us.insert()
    us.do("second_open")
    us.do("second_do", "begin")
    us.second_insert()
    us.do("commit")
    us.do("second_do", "commit")
    us.do("second_do", "close")
    us.do("close")
    return True


@scene
def second_library_commits_inside_our_transaction(stage: Stage, chance: random.Random) -> bool:
    us = stage.player("A", "ours")
    us.put(chance.randint(0, 3))
    us.do("begin")
    us.insert()
    us.do("second_open")
    us.do("second_do", "begin")
    us.second_insert()
    us.do("second_do", "commit")
    us.do("commit")
    us.do("second_do", "close")
    us.do("close")
    return True


@scene
def second_library_was_there_first(stage: Stage, chance: random.Random) -> bool:
    us = stage.player("A", "ours", opened=False)
    us.do("second_open")
    if chance.random() < 0.5:
        us.do("second_do", "begin")
        us.second_insert()
        us.do("open")
        us.do("second_do", "commit")
    else:
        us.do("open")
        us.do("second_do", "begin")
        us.second_insert()
        us.do("second_do", "commit")
    us.do("second_do", "close")
    us.do("open")
    us.put(1)
    us.do("close")
    return True


@scene
def wal_unlinked_under_us_while_idle(stage: Stage, chance: random.Random) -> bool:
    us = stage.player("A", "ours")
    us.put(chance.randint(1, 5))
    stage.unlink(*chance.choice((("-wal",), ("-wal", "-shm"))))
    if chance.random() < 0.7:
        them = stage.player("B", chance.choice(OTHERS))
        them.put(chance.randint(1, 4))
        if chance.random() < 0.5:
            them.do("close")
    us.put(2)
    us.do("close")
    return True


@scene
def wal_unlinked_under_us_and_we_reopen(stage: Stage, chance: random.Random) -> bool:
    """Reopening lets go of the last descriptor of the unlinked WAL, as closing does."""
    us = stage.player("A", "ours")
    us.put(chance.randint(1, 5))
    stage.unlink(*chance.choice((("-wal",), ("-wal", "-shm"))))
    if chance.random() < 0.5:
        them = stage.player("B", chance.choice(OTHERS))
        them.put(chance.randint(1, 4))
    us.do("reopen")
    us.do("open")
    us.put(1)
    us.do("close")
    return True


@scene
def wal_unlinked_under_us_in_a_transaction(stage: Stage, chance: random.Random) -> bool:
    us = stage.player("A", "ours")
    us.put(chance.randint(0, 4))
    us.do("begin")
    us.insert()
    stage.unlink(*chance.choice((("-wal",), ("-shm",), ("-wal", "-shm"))))
    if chance.random() < 0.7:
        them = stage.player("B", chance.choice(OTHERS))
        them.put(chance.randint(1, 4))
    us.do("commit")
    us.do("close")
    return True


@scene
def main_file_replaced_by_a_rename(stage: Stage, chance: random.Random) -> bool:
    copy = stage.db.with_name("copy.db")
    shutil.copyfile(stage.db, copy)
    us = stage.player("A", "ours")
    us.put(chance.randint(1, 4))
    in_transaction = chance.random() < 0.5
    if in_transaction:
        us.do("begin")
        us.insert()
    stage.replace_main(copy)
    if chance.random() < 0.5:
        stage.unlink("-wal", "-shm")
    them = stage.player("B", chance.choice(PLAIN))
    them.put(chance.randint(1, 3))
    us.do("commit") if in_transaction else us.put(1)
    us.do("close")
    return True


@scene
def our_stale_connection_closes_after_another_committed(stage: Stage, chance: random.Random) -> bool:
    us = stage.player("A", "ours")
    us.put(chance.randint(1, 4))
    stage.unlink("-wal", "-shm")
    them = stage.player("B", chance.choice(OTHERS))
    them.put(chance.randint(1, 6))
    us.do("close")
    if chance.random() < 0.5:
        them.put(1)
        them.do("close")
    return True


@scene
def their_stale_connection_closes_while_we_are_open(stage: Stage, chance: random.Random) -> bool:
    """They still have frames in a WAL that nobody else can see; what they do at close goes over our pages."""
    them = stage.player("B", chance.choice(PLAIN))
    them.put(chance.randint(1, 3))
    stage.unlink("-wal", "-shm")
    us = stage.player("A", "ours")
    us.put(chance.randint(1, 4))
    if chance.random() < 0.5:
        them.put(1)
    them.do("close")
    us.put(2)
    us.do("close")
    return True


@scene
def their_stale_connection_closes_after_we_have_closed(stage: Stage, chance: random.Random) -> bool:
    them = stage.player("B", chance.choice(PLAIN))
    them.put(chance.randint(1, 3))
    stage.unlink("-wal", "-shm")
    us = stage.player("A", "ours")
    us.put(chance.randint(1, 4))
    us.do("close")
    if chance.random() < 0.5:
        them.put(1)
    them.do("close")
    return True


@scene
def a_holder_that_wrote_nothing_is_stale_when_we_open(stage: Stage, chance: random.Random) -> bool:
    """Its close can only unlink sidecars, and what we committed must survive that."""
    them = stage.player("B", chance.choice(PLAIN))
    them.do("read")
    stage.unlink("-wal", "-shm")
    us = stage.player("A", "ours")
    us.put(chance.randint(1, 4))
    first, second = chance.sample([us, them], 2)
    first.do("close")
    us.put(1)
    second.do("close")
    return False
