"""Reports 25, 27, 28, 91, 92, 112, 117, 227, 230, 243: a native store that is killed, swapped or damaged.

Salvage, backups and restore are not tested here: what is here is that nothing is built over, nothing acknowledged is
lost, and the error says what happened and never to delete the file.
"""

from __future__ import annotations

import ast
import os
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from hermes_state import open_store
from hermes_state.engine import Transaction
from hermes_state.errors import Corrupt, GenerationLost, NotAStore, StateError
from hermes_state.store import Store
from tests.maintenance.damage import examined, leaves, only, overwrite_page
from tests.maintenance.native_stores import problems
from tests.support.children import Child, Children


def texts(store: Store, session_id: str) -> list[object]:
    return [message["content"] for message in store.messages.context(session_id)]


def closed_store(folder: Path, *, messages: int = 40) -> Path:
    """A store with the sessions `old` and `new`, all of it in the main file and no sidecars left."""
    db = folder / "state.db"
    with open_store(path=db) as store:
        for name in ("old", "new"):
            store.sessions.create(id=name, source="cli")
            rows = [{"role": "user", "content": f"{name} {number} " + "words " * 40} for number in range(messages)]
            store.messages.append_many(name, rows)
        store.core.writer.checkpoint()
    for suffix in ("-wal", "-shm"):
        Path(f"{db}{suffix}").unlink(missing_ok=True)
    return db


def refused(db: Path, kind: type[StateError]) -> str:
    """What both ways of opening say; they say the same."""
    said = set()
    for read_only in (True, False):
        with pytest.raises(kind) as caught:
            open_store(path=db, read_only=read_only)
        assert type(caught.value) is kind
        assert caught.value.hint == (
            f"Run `hermes-state doctor --db {db}`; it names the damaged object and changes nothing."
        )
        said.add(str(caught.value))
    return said.pop() if len(said) == 1 else str(said)


# --- 25: the whole file is NUL bytes and the WAL is empty --------------------------------------------------------


def test_a_store_of_nul_bytes_is_called_that_and_left_as_it_is(tmp_path: Path) -> None:
    db = closed_store(tmp_path)
    size = db.stat().st_size
    db.write_bytes(b"\0" * size)
    Path(f"{db}-wal").touch()
    assert refused(db, NotAStore) == (
        f"{db} is not an SQLite database. SQLite said: file is not a database (code 26, extended 26)."
    )
    assert only(examined(db), "zeroed_file").sentence.startswith(f"All {size:,} bytes of the file are zero")
    assert db.read_bytes() == b"\0" * size
    assert sorted(os.listdir(tmp_path)) == ["state.db", "state.db-wal"]


# --- 27: the start-up builds empty tables over a damaged store ---------------------------------------------------


@pytest.mark.parametrize("kept", [0, 100], ids=["header too", "header whole"])
def test_no_table_is_ever_built_over_a_damaged_first_page(tmp_path: Path, kept: int) -> None:
    db = closed_store(tmp_path)
    overwrite_page(db, 1, b"\xa5" * (4096 - kept), at=kept)
    before = db.read_bytes()
    if kept:
        assert refused(db, Corrupt) == (
            f"The database file {db} is damaged: it failed while opening. SQLite said: database disk image is "
            "malformed (code 11, extended 11)."
        )
    else:
        assert refused(db, NotAStore) == (
            f"{db} is not an SQLite database. SQLite said: file is not a database (code 26, extended 26)."
        )
    assert db.read_bytes() == before


# --- 28: SIGTERM under load, and half a minute later "malformed" -------------------------------------------------

BUSY = """
import signal, sys
from hermes_state import open_store

def end(*_):
    raise SystemExit(143)

signal.signal(signal.SIGTERM, end)
name, acknowledged, padding = sys.argv[2], sys.argv[3], "text of a tool " * 400
with open_store(path=sys.argv[1]) as store, open(acknowledged, "a", buffering=1) as out:
    store.sessions.ensure(name, "cli")
    number = store.messages.count(name)
    while True:
        rows = [{"role": "user", "content": f"{name} {number + at} {padding}"} for at in range(7)]
        store.messages.append_many(name, rows, durability="power" if number % 3 == 0 else "process")
        number += 7
        print(number, file=out)
"""


def acknowledged(log: Path) -> int:
    """The number in the last whole line; a killed writer may leave half a line."""
    lines = log.read_text(encoding="utf-8").split("\n")[:-1] if log.exists() else []
    return int(lines[-1]) if lines else 0


def stop_at(writer: Child, log: Path, lines: int, spins: int) -> None:
    """TERM once so much is acknowledged, and KILL a moment later: in the last transaction, or in its orderly end."""
    goal = (log.stat().st_size if log.exists() else 0) + 3 * lines
    while (log.stat().st_size if log.exists() else 0) < goal:
        assert writer.process.poll() is None, writer.output
    writer.process.terminate()
    for _ in range(spins):
        pass
    writer.kill()


def kill_writers(folder: Path, child: Children, seeds: range) -> None:
    """Two writers beside each other, stopped in turn, over and over; the file is checked after each."""
    db = folder / "state.db"
    with open_store(path=db):
        pass
    for seed in seeds:
        chance = random.Random(seed)
        names = ("first", "second")
        writers = {name: child(BUSY, db, name, folder / name) for name in names}
        for name in chance.sample(names, 2):
            stop_at(writers[name], folder / name, chance.randrange(1, 12), chance.randrange(200_000))
        with open_store(path=db) as store:
            for name in names:
                said = acknowledged(folder / name)
                # A batch is stored whole or not at all; at most the one that was under way is not acknowledged.
                stored = [str(text).split()[1] for text in texts(store, name)]
                assert stored == [str(number) for number in range(len(stored))], seed
                assert len(stored) in (said, said + 7), seed
        assert problems(db) == [], seed
    found = examined(db, deep=True)
    assert found.verdict == "healthy", [finding.sentence for finding in found.findings]


@pytest.mark.slow
def test_writers_that_are_stopped_and_killed_leave_a_whole_store_in_five_rounds(
    tmp_path: Path, child: Children
) -> None:
    kill_writers(tmp_path, child, range(5))


@pytest.mark.campaign
def test_writers_that_are_stopped_and_killed_leave_a_whole_store_in_five_hundred_rounds(
    tmp_path: Path, child: Children
) -> None:
    count = int(os.environ.get("HERMES_STATE_ROUNDS", "500"))
    first = int(os.environ.get("HERMES_STATE_SEED", "1000"))
    for at in range(first, first + count, 10):
        folder = tmp_path / str(at)
        folder.mkdir()
        kill_writers(folder, child, range(at, min(at + 10, first + count)))
        shutil.rmtree(folder)


# --- 91, 92: another file under a program that goes on -----------------------------------------------------------


def test_a_store_that_was_moved_over_ours_gets_no_append_and_what_only_ours_had_is_kept(tmp_path: Path) -> None:
    (tmp_path / "snapshot").mkdir()
    snapshot = closed_store(tmp_path / "snapshot")
    whole = snapshot.read_bytes()
    db = tmp_path / "state.db"
    with open_store(path=db) as store:
        store.sessions.create(id="live", source="cli")
        store.messages.append("live", role="user", content="before the swap")
        os.replace(snapshot, db)
        lost = append_fails(store)
    assert db.read_bytes() == whole
    assert lost.capture is not None
    with open_store(path=lost.capture / "copy.db", read_only=True) as kept:
        assert texts(kept, "live") == ["before the swap"]


@pytest.mark.parametrize("checkpointed", [False, True], ids=["all in the WAL", "all in the main file"])
def test_a_store_that_was_copied_onto_the_inode_of_ours_gets_no_append(tmp_path: Path, checkpointed: bool) -> None:
    (tmp_path / "snapshot").mkdir()
    snapshot = closed_store(tmp_path / "snapshot", messages=200)
    db = tmp_path / "state.db"
    with open_store(path=db) as store:
        store.sessions.create(id="live", source="cli")
        store.messages.append("live", role="user", content="before the swap")
        if checkpointed:
            store.core.writer.checkpoint()
        subprocess.run(["cp", str(snapshot), str(db)], check=True)
        append_fails(store)


def append_fails(store: Store) -> GenerationLost:
    with pytest.raises(GenerationLost) as caught:
        store.messages.append("live", role="user", content="after the swap")
    assert (caught.value.lost, caught.value.committed) == (("main",), False)
    assert str(caught.value).splitlines()[0].startswith(
        "Hermes paused saving because another program replaced the files of its session store while it was running. "
    )
    return caught.value


# --- 112, 117: what was said is lost with the program ------------------------------------------------------------

TURN = """
import sys, gates
from hermes_state import open_store

store = open_store(path=sys.argv[1])
session = store.sessions.create(source="dashboard").id
store.messages.append(session, role="user", content="look at three files")
gates.reach("first message", session)
gates.wait("go on")
calls = [{"id": f"call_{n}", "type": "function", "function": {"name": "read", "arguments": "{}"}} for n in range(3)]
store.messages.append(session, role="assistant", tool_calls=calls)
for number in range(3):
    store.messages.append(session, role="tool", content=f"file {number}", tool_call_id=f"call_{number}")
    gates.reach(f"result {number}")
gates.wait("never")
"""


@pytest.mark.slow
def test_the_first_message_and_each_result_of_a_tool_outlive_the_program(tmp_path: Path, child: Children) -> None:
    db = tmp_path / "state.db"
    chat = child(TURN, db)
    session = chat.wait_for("first message")
    with open_store(path=db) as other:
        # Seen by everybody before anything else happens.
        (listed,) = other.sessions.list()
        assert (listed.id, listed.preview, texts(other, session)) == (
            session, "look at three files", ["look at three files"]
        )
        chat.release("go on")
        chat.wait_for("result 2")
        chat.kill()
    with open_store(path=db) as store:
        assert [listed.id for listed in store.sessions.list()] == [session]
        context = store.messages.context(session)
    assert [message["role"] for message in context] == ["user", "assistant", "tool", "tool", "tool"]
    assert [(message["tool_call_id"], message["content"]) for message in context[2:]] == [
        (f"call_{number}", f"file {number}") for number in range(3)
    ]


# --- 227: garbage in inner pages, and nothing works --------------------------------------------------------------


def test_garbage_in_one_page_of_messages_leaves_the_other_sessions_usable_and_is_named(tmp_path: Path) -> None:
    db = closed_store(tmp_path, messages=300)
    page = leaves(db, "messages")[3]
    for suffix in ("-wal", "-shm"):
        Path(f"{db}{suffix}").unlink(missing_ok=True)
    overwrite_page(db, page, b"\xa5" * 4096)
    with open_store(path=db) as store:
        assert [listed.id for listed in store.sessions.list()] == ["new", "old"]
        assert len(texts(store, "new")) == 300
        with pytest.raises(Corrupt) as caught:
            store.messages.context("old")
    assert str(caught.value) == (
        f"The database file {db} is damaged: it failed while reading. SQLite said: database disk image is malformed "
        "(code 11, extended 11)."
    )
    damaged = only(examined(db), "table_damaged")
    assert re.fullmatch(
        rf"The table messages is damaged \(page {page}\); 5\d\d of 600 rows can be read by key\. A copy made now "
        r"carries the same damage; stop Hermes and keep older backups\.", damaged.sentence,
    )


# --- 230: people are told to delete the store --------------------------------------------------------------------

# What an advice would have to say to cost somebody the store.
_COSTLY = re.compile(
    r"\brm\b|\b(delete|remove|erase|throw away)\b(?! session)[^.;]*\b(store|database|state\.db|WAL|-wal|file)\b", re.I
)


def hints(project: Path) -> list[tuple[str, str]]:
    """Every text that the packages give as a hint, with where it stands."""
    found = []
    for package in ("hermes_state", "maintenance", "lockowners"):
        for module in sorted((project / package).rglob("*.py")):
            for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
                if isinstance(node, ast.keyword) and node.arg in ("hint", "next_command"):
                    parts = [one.value for one in ast.walk(node.value) if isinstance(one, ast.Constant)]
                    text = " ".join(part for part in parts if isinstance(part, str))
                    found.append((f"{module.relative_to(project)}:{node.value.lineno}", text))
    return found


@pytest.mark.slow
def test_no_advice_of_ours_is_to_delete_a_store(project: Path) -> None:
    assert _COSTLY.search("Delete the database file and start again.")
    assert _COSTLY.search("rm state.db")
    known = hints(project)
    assert len(known) > 100
    assert [place for place, text in known if _COSTLY.search(text) and "do not" not in text.lower()] == []


# --- 243: a statement fails and the lock is kept for life --------------------------------------------------------


@pytest.mark.slow
def test_after_a_failed_write_another_process_writes_at_once(tmp_path: Path, child: Children) -> None:
    db = tmp_path / "state.db"
    with open_store(path=db) as store:
        first, second = (store.sessions.create(id=name, source="cli").id for name in ("first", "second"))
        store.messages.append(first, role="user", content="stays")
        store.core.write(lambda tx: tx.execute(
            "CREATE TRIGGER stop BEFORE DELETE ON messages BEGIN SELECT RAISE(ABORT, 'the second delete fails'); END"
        ))

        def two_deletes(tx: Transaction) -> None:
            tx.execute("DELETE FROM sessions WHERE id = 'second'")
            tx.execute("DELETE FROM messages")

        with pytest.raises(StateError, match="the second delete fails"):
            store.core.write(two_deletes)
        other = child(
            """
            import sys
            from hermes_state import open_store
            with open_store(path=sys.argv[1]) as store:
                work = lambda tx: tx.execute("UPDATE sessions SET model = 'm' WHERE id = 'second'")
                print(store.core.write(work, deadline_seconds=0.0))
            """,
            db,
        )
        assert other.finish() == "1\n"
        assert store.sessions.get(second).model == "m"
        store.messages.append(first, role="user", content="goes on")
        assert texts(store, first) == ["stays", "goes on"]
