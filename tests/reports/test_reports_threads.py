"""Report 18: a busy chat starts a job whose process opens the same file; nobody ever reads a damaged store."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_state import open_store
from tests.maintenance.damage import examined
from tests.support.children import Children

pytestmark = pytest.mark.slow

# In the middle of its transaction it starts the job, by `fork` of a busy process or as a program of its own; the job
# opens and reads the file while the transaction is open, and the transaction ends only then.
CHAT = """
import os, subprocess, sys, threading, gates
from hermes_state import open_store
from hermes_state.errors import StateError

db, manner, job = sys.argv[1:]
chat = open_store(path=db)
session = chat.sessions.create(id="chat", source="telegram").id
said = []

def reading():
    while not done.is_set():
        try:
            chat.sessions.list(limit=5)
            chat.messages.context(session)
        except StateError as problem:
            said.append(f"{problem.code} {problem.sqlite_code} {problem.sqlite_extended}")

done = threading.Event()
threads = [threading.Thread(target=reading) for _ in range(3)]
for thread in threads:
    thread.start()
for turn in range(3):
    chat.messages.append(session, role="user", content=f"turn {turn}")
    started = []

    def inside(tx, turn=turn, started=started):
        tx.execute("UPDATE sessions SET model = ? WHERE id = 'chat'", (f"model {turn}",))
        if started:
            return
        reader, writer = os.pipe()
        os.set_inheritable(writer, True)
        command = [sys.executable, "-c", job, db, str(turn), str(writer)]
        if manner == "program":
            started.append(subprocess.Popen(command, pass_fds=[writer]).pid)
        else:
            started.append(os.fork())
            if started[0] == 0:
                try:
                    chat.sessions.list(limit=1)
                    os.write(writer, b"read in the child\\n")
                except StateError as problem:
                    os.write(writer, problem.code.encode() + b"\\n")
                finally:
                    os.execv(command[0], command)
        os.close(writer)
        pipe = open(reader)
        started.append(pipe)
        for line in pipe:
            print(line.strip())
            if line == "job is open\\n":
                break

    chat.core.write(inside)
    pid, pipe = started
    print(pipe.read().strip())
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
done.set()
for thread in threads:
    thread.join(60)
print("chat met", sorted(set(said)))
chat.close()
"""
JOB = """
import os, sys
from hermes_state import open_store
from hermes_state.errors import StateError

def say(line):
    os.write(int(sys.argv[3]), line.encode() + b"\\n")

try:
    with open_store(path=sys.argv[1]) as store:
        store.sessions.list(limit=5)
        say("job is open")
        session = store.sessions.create(id=f"job-{sys.argv[2]}", source="cron").id
        store.messages.append_many(session, [{"role": "user", "content": f"run {n}"} for n in range(20)])
    say("job is done")
except StateError as problem:
    say(f"job met {problem.code} {problem.sqlite_code} {problem.sqlite_extended}")
    raise
"""
# A third process, as the scheduler's: it opens, counts and closes, over and over.
TICKS = """
import sys, gates
from hermes_state import open_store
from hermes_state.errors import StateError

met = set()
ticks = 0
gates.reach("ticking")
while not gates.released("stop") or ticks < 20:
    try:
        with open_store(path=sys.argv[1], read_only=ticks % 2 == 0) as store:
            store.sessions.count_by_source()
    except StateError as problem:
        met.add(f"{problem.code} {problem.sqlite_code} {problem.sqlite_extended}")
    ticks += 1
print("ticks met", sorted(met))
"""


@pytest.mark.parametrize("manner", ["program", "fork"])
def test_a_job_that_is_started_in_the_middle_of_a_turn_damages_nothing_and_nobody_sees_damage(
    tmp_path: Path, child: Children, manner: str
) -> None:
    db = tmp_path / "home" / "state.db"
    with open_store(path=db):
        pass
    ticks = child(TICKS, db)
    ticks.wait_for("ticking")
    chat = child(CHAT, db, manner, JOB)
    # What the parent has open is not the child's: used there it is refused by name, and a program of its own is not.
    lines = chat.finish(120).splitlines()
    turn = {"program": [], "fork": ["forked_connection"]}[manner] + ["job is open", "job is done"]
    assert lines == [*(turn * 3), "chat met []"]
    ticks.release("stop")
    assert ticks.finish().splitlines() == ["ticks met []"]
    with open_store(path=db) as store:
        assert [message["content"] for message in store.messages.context("chat")] == [f"turn {n}" for n in range(3)]
        for turn in range(3):
            context = store.messages.context(f"job-{turn}")
            assert [message["content"] for message in context] == [f"run {n}" for n in range(20)]
        assert store.sessions.get("chat").model == "model 2"
    assert examined(db).verdict == "healthy"
