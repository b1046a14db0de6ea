"""The operations that must survive every fault: how each is prepared, done, and what it may leave.

To add one: a function that prepares a home, a function that works in it and calls `done(label, durability)` after each
thing that it was told is done, and a row in `OPERATIONS`; those over damaged stores are in `mending`. Times come from
the fake clock of the tests and names are given, so that two runs end in the same state.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from hermes_state import open_store
from hermes_state.clock import clock_from_environment
from hermes_state.compaction.clips import BodyClip, Clip
from hermes_state.compaction.generations import commit, rollback
from hermes_state.engine import open_read, open_write
from hermes_state.engine.migrate import migrate
from hermes_state.engine.schema import Migration, known_migrations
from hermes_state.errors import DiskFull
from hermes_state.store import open_spool
from maintenance.backups.making import backup
from maintenance.backups.manifest import ENDING, read_manifest
from maintenance.backups.restoring import restore
from maintenance.replacement.replace import replace_content
from tests.faults.enrolling import ENROLLING
from tests.faults.mending import MENDING
from tests.faults.operation import STORE, Done, Operation, conversation, foreign, verb
from tests.faults.owing import OWING
from tests.faults.ticking import TICKING
from tests.maintenance.adopting import adopt_in_place, nobody
from tests.maintenance.native_stores import add_session, context
from tests.support.compacting import begun, made

# --- before ------------------------------------------------------------------------------------------------------


def old_sessions(home: Path) -> None:
    """A store with three sessions that are old enough to be pruned, and one that is not; some bodies are large."""
    conversation(home)
    for number in range(3):
        bodies = [f"old {number} {line} " + "output line\n" * (300 if line % 4 == 0 else 3) for line in range(10)]
        add_session(home / STORE, f"old-{number}", bodies=bodies, days_old=200 + number)


def two_stores(home: Path) -> None:
    """A store, and a file with the content that it is to have."""
    conversation(home)
    with open_store(path=home / "other" / STORE) as store:
        store.sessions.create(id="restored", source="cli")
        for number in range(9):
            store.messages.append("restored", role="user", content=f"restored {number} " + "word " * 700)
    with open_read(home / "other" / STORE) as reader:
        reader.backup_to(home / "new.db")
    shutil.rmtree(home / "other")


def nothing(home: Path) -> None:
    """A home in which no store was made yet."""


# --- the work ----------------------------------------------------------------------------------------------------


def create(home: Path, done: Done) -> None:
    with open_store(path=home / STORE) as store:
        done("made", "process")
        store.sessions.create(id="first", source="cli")
        done("first session", "process")
        store.messages.append("first", role="user", content="kept", durability="power")
        done("kept", "power")


def append_process(home: Path, done: Done) -> None:
    with open_store(path=home / STORE) as store:
        store.sessions.create(id="new", source="cli")
        done("created", "process")
        for number in range(3):
            store.messages.append("new", role="user", content=f"said {number} " + "word " * (number * 400))
            done(f"said {number}", "process")


def append_power(home: Path, done: Done) -> None:
    with open_store(path=home / STORE) as store:
        for number in range(3):
            store.messages.append("talk", role="user", content=f"kept {number}", durability="power")
            done(f"kept {number}", "power")


def turn(home: Path, done: Done) -> None:
    with open_store(path=home / STORE) as store:
        for number in range(2):
            rows = [
                {"role": "user", "content": f"question {number}"}, {"role": "tool", "content": "out\n" * 900},
                {"role": "assistant", "content": f"answer {number}"},
            ]
            store.messages.append_many("talk", rows)
            done(f"turn {number}", "process")
            store.messages.settle("talk")
            done(f"settled {number}", "power")


def stream(home: Path, done: Done) -> None:
    with open_store(path=home / STORE) as store:
        with store.messages.stream("talk") as text:
            for number in range(3):
                text.append(f"part {number} " + "token " * 900)
            text.settle(durability="power")
        done("streamed", "power")


def rewind(home: Path, done: Done) -> None:
    with open_store(path=home / STORE) as store:
        first = store.messages.history("talk").messages[2].id
        store.messages.rewind("talk", first, durability="power")
        done("rewound", "power")
        store.messages.append("talk", role="user", content="instead", durability="power")
        done("instead", "power")
        store.messages.restore("talk", durability="power")
        done("restored", "power")


def compaction(home: Path, done: Done) -> None:
    """A pass: its running row, what is said meanwhile, its commit; then one that only shortens, and going back."""
    with open_store(path=home / STORE) as store:
        running = begun(store, "talk", 4, anchors=(1,))
        done("begun", "power")
        store.messages.append("talk", role="user", content="said meanwhile", durability="power")
        done("said meanwhile", "power")
        assert commit(store.core, running, made("what was said until now")).state == "done"
        done("compacted", "power")
        shorter = Clip(bodies=(BodyClip(path=("content",), kind="text", head=2, tail=2),))
        running = begun(store, "talk", 4, anchors=(1,))
        done("begun again", "power")
        assert commit(store.core, running, made(None, clips={5: shorter})).state == "done"
        done("shortened", "power")
        rollback(store.core, "talk", 1)
        done("back", "power")


def lineage(home: Path, done: Done) -> None:
    with open_store(path=home / STORE) as store:
        store.sessions.end("talk", "user_exit")
        done("ended", "power")
        store.sessions.reopen("talk")
        done("reopened", "power")
        store.sessions.continue_as("talk", new_id="next")
        done("continued", "power")


def delete_session(home: Path, done: Done) -> None:
    with open_store(path=home / STORE) as store:
        store.sessions.delete(["old-0"], actor="test", reason="a test")
        done("deleted", "power")


def delete_messages(home: Path, done: Done) -> None:
    with open_store(path=home / STORE) as store:
        ids = [message.id for message in store.messages.history("old-1").messages[:3]]
        store.messages.delete("old-1", ids, actor="test", reason="a test")
        done("deleted", "power")


def prune(home: Path, done: Done) -> None:
    verb(home, "sessions", "prune", "--older-than", "90d", "--yes", "--allow-large")
    done("pruned", "power")


def optimize(home: Path, done: Done) -> None:
    verb(home, "sessions", "optimize")
    done("optimized", "process")


def optimize_offline(home: Path, done: Done) -> None:
    verb(home, "sessions", "optimize", "--offline", "--reclaim", "always")
    done("optimized", "process")


def compress(home: Path, done: Done) -> None:
    verb(home, "sessions", "optimize", "--compress", "always", "--reclaim", "never")
    done("compressed", "process")


_STEP = "CREATE TABLE note (id INTEGER PRIMARY KEY) STRICT; CREATE INDEX note_id ON note (id);"


def migrate_one(home: Path, done: Done) -> None:
    """A store at the ledger step before; the step is one that no release has."""
    note = Migration(
        number=9001, name="9001_pre_add_note", phase="pre", sql=_STEP, sha256=hashlib.sha256(_STEP.encode()).hexdigest()
    )
    with open_write(home / STORE) as store:
        migrate(store, known=(*known_migrations(), note))
    done("migrated", "power")


def adopt(home: Path, done: Done) -> None:
    adopt_in_place(home / STORE)
    done("adopted", "power")


def replace(home: Path, done: Done) -> None:
    ctx = context(home / STORE, clock=clock_from_environment())
    replace_content(ctx, "sessions restore", home / "new.db", scanner=nobody)
    done("replaced", "power")


def back_up(home: Path, done: Done) -> None:
    for number in range(2):
        backup(home / STORE, clock=clock_from_environment())
        done(f"backup {number}", "power")


def backups_are_whole(home: Path, steps: int) -> None:
    """Whatever counts as a backup is one: the file is the one that its manifest names, and sound."""
    count = 0
    for path in (home / "backups").glob(f"*{ENDING}"):
        file = path.with_name(path.name.removesuffix(ENDING))
        manifest = read_manifest(file)
        if manifest is None or not file.exists():
            continue
        assert hashlib.sha256(file.read_bytes()).hexdigest() == manifest.sha256, f"{file.name} is not what was verified"
        count += 1
    assert count >= steps, f"{count} of {steps} backups"


def backed_up(home: Path) -> None:
    """A store that went on after its backup."""
    conversation(home)
    backup(home / STORE, clock=clock_from_environment())
    with open_store(path=home / STORE) as store:
        store.messages.append("talk", role="user", content="after the backup", durability="power")


def restore_backup(home: Path, done: Done) -> None:
    (made,) = (home / "backups").glob("*.db")
    restore(made, home / STORE, over_wal=True, clock=clock_from_environment(), scanner=nobody)
    done("restored", "power")


def a_turn(number: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"asked {number}"}, {"role": "assistant", "content": "answer " * 600}]


def save_turns(home: Path, done: Done) -> None:
    with open_store(path=home / STORE) as store:
        for number in range(2):
            store.spool.save("talk", a_turn(number), key=f"turn {number}")
            done(f"saved {number}", "power")


def spool_turns(home: Path, done: Done) -> None:
    """Turns that the store could not take, then the store takes them."""
    spool = open_spool(path=home / STORE)
    for number in range(2):
        spool.save("talk", a_turn(number), cause=DiskFull("The disk is full."), key=f"turn {number}")
        done(f"spooled {number}", "power")
    with open_store(path=home / STORE) as store:
        store.spool.replay()
    done("replayed", "power")


def replay(home: Path, _steps: int) -> None:
    """A turn counts as saved when it is in the store or in the spool: so the store is looked at after a replay.

    A line that was torn before it was acknowledged is quarantined, which is right.
    """
    with open_store(path=home / STORE) as store:
        store.spool.replay()


def foreign_optimize(home: Path, done: Done) -> None:
    verb(home, "sessions", "optimize", "--reclaim", "always")
    done("optimized", "process")


def optimize_via_copy(home: Path, done: Done) -> None:
    verb(home, "sessions", "optimize", "--via-copy", "--reclaim", "always")
    done("optimized", "process")


OPERATIONS: dict[str, Operation] = {
    operation.name: operation
    for operation in (
        Operation(name="create", prepare=nothing, run=create),
        Operation(name="append_process", prepare=conversation, run=append_process),
        Operation(name="append_power", prepare=conversation, run=append_power),
        Operation(name="turn", prepare=conversation, run=turn),
        Operation(name="stream", prepare=conversation, run=stream),
        Operation(name="rewind", prepare=conversation, run=rewind),
        Operation(name="compaction", prepare=conversation, run=compaction),
        Operation(name="lineage", prepare=conversation, run=lineage),
        Operation(name="delete_session", prepare=old_sessions, run=delete_session),
        Operation(name="delete_messages", prepare=old_sessions, run=delete_messages),
        Operation(name="migrate", prepare=conversation, run=migrate_one),
        Operation(name="prune", prepare=old_sessions, run=prune, whole=False),
        Operation(name="optimize", prepare=old_sessions, run=optimize),
        Operation(name="optimize_offline", prepare=old_sessions, run=optimize_offline),
        Operation(name="compress", prepare=old_sessions, run=compress),
        Operation(
            name="adopt", prepare=foreign, run=adopt, dialects=frozenset({"foreign", "native"})
        ),
        Operation(name="replace", prepare=two_stores, run=replace, keeps_old=True),
        Operation(name="backup", prepare=conversation, run=back_up, also=backups_are_whole),
        Operation(name="restore", prepare=backed_up, run=restore_backup, keeps_old=True),
        Operation(name="save_turns", prepare=conversation, run=save_turns, also=replay),
        Operation(name="spool_turns", prepare=conversation, run=spool_turns, also=replay),
        Operation(
            name="foreign_optimize", prepare=foreign, run=foreign_optimize, dialects=frozenset({"foreign"})
        ),
        Operation(name="optimize_via_copy", prepare=foreign, run=optimize_via_copy, dialects=frozenset({"foreign"})),
        *MENDING,
        *OWING,
        *ENROLLING,
        *TICKING,
    )
}
