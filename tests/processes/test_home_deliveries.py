"""Home deliveries (facts on gateways, 1.16): either side killed at any step, every delivery is visible exactly once; a
queue that cannot be read is never rewritten.

The plugin's queue is the outbox, at least once; the server keeps what it shows in a store of its own, by the dedupe id,
and acknowledges after that write. Both are processes, joined by a socket.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path

import pytest

from hermes_state.engine import open_exclusive
from hermes_state.errors import StateError
from hermes_state.outbox import Accepted
from hermes_state.store import open_store
from tests.support.children import Children

SEED = int(os.environ.get("HERMES_STATE_SEED", "5600"))
RUNS = int(os.environ.get("HERMES_STATE_ROUNDS", "1000"))
DELIVERIES = 3

# One interpreter forks all processes before it opens anything: a run costs milliseconds instead of starts.
SIDES = """
import json, os, random, shutil, signal, socket, sys
from hermes_state.engine.transaction import Transaction
from hermes_state.outbox import Accepted, Outbox, Schedule, append
from hermes_state.store import open_store

folder, seed, runs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
count = dies_at = 0

def step():
    global count
    count += 1
    if count == dies_at:
        os.kill(os.getpid(), signal.SIGKILL)

for name in ("execute", "rows", "row"):
    def counted(self, *given, _plain=getattr(Transaction, name), **named):
        step()
        return _plain(self, *given, **named)
    setattr(Transaction, name, counted)

def process(work, at):
    global dies_at
    pid = os.fork()
    if pid:
        return pid
    dies_at, status = at, 1
    try:
        work()
        status = 0
    except ConnectionError:
        status = 2  # the other side is gone
    except BaseException:
        import traceback
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)

def plugin(home, line):
    with open_store(path=home + "/plugin.db") as store, line, line.makefile("rw") as said:
        for number in range(DELIVERIES):  # before the send, again by each one that starts
            store.outbox.append(
                dedupe_id=f"delivery {number}", kind="home", transport="home", payload=f"text {number}", made_at=began,
                policy="at_least_once", schedule=Schedule(delays=(0.0,) * 20),
            )
        def send(claim):
            step()
            print(json.dumps([claim.primary.dedupe_id, claim.primary.payload]), file=said, flush=True)
            step()
            if said.readline() != "ack\\n":
                raise ConnectionResetError("no acknowledgement")
            step()
            return Accepted()
        while store.outbox.deliver(send, ["home"], limit=5):
            pass

def server(home, line):
    with open_store(path=home + "/server.db") as store, line, line.makefile("rw") as said:
        store.sessions.ensure(id="home", source="home")
        for heard in said:
            step()
            key, text = json.loads(heard)
            store.messages.append("home", role="assistant", content=text, client_key=key, durability="power")
            step()
            print("ack", file=said, flush=True)
            step()

import time
DELIVERIES, killed, repeated = 3, [0, 0], 0
for run in range(seed, seed + runs):
    chance, began = random.Random(run), time.time()
    home = f"{folder}/{run}"
    os.mkdir(home)
    for attempt in range(20):
        mine, theirs = socket.socketpair()
        at = [chance.randrange(1, 60), chance.randrange(1, 40)] if attempt < 3 else [0, 0]
        if attempt < 3:
            at[chance.randrange(2)] = 0
        pids = []
        for work, line, other, dies in ((plugin, mine, theirs, at[0]), (server, theirs, mine, at[1])):
            pids.append(process(lambda: (other.close(), work(home, line)), dies))
        mine.close(), theirs.close()
        ends = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        assert all(end in (0, 2, -signal.SIGKILL) for end in ends), (run, ends)
        killed = [many + (end == -signal.SIGKILL) for many, end in zip(killed, ends)]
        if ends == [0, 0]:
            break
    def judge():
        with open_store(path=home + "/server.db") as shown, open_store(path=home + "/plugin.db") as queue:
            texts = [row["content"] for row in shown.messages.context("home")]
            states = {str(row.state) for row in queue.outbox.page()}
            again = sum(row.recoveries > 0 for row in queue.outbox.page())
        assert sorted(texts) == [f"text {number}" for number in range(DELIVERIES)], (run, texts)
        assert states == {"accepted"}, (run, states)
        with open(home + "/again", "w") as out:
            out.write(str(again))
    _pid, status = os.waitpid(process(judge, 0), 0)
    assert status == 0, run
    repeated += int(open(home + "/again").read())
    shutil.rmtree(home)
print(json.dumps({"runs": runs, "plugin killed": killed[0], "server killed": killed[1], "sent again": repeated}))
"""


def rounds(folder: Path, child: Children, seed: int, runs: int) -> dict[str, int]:
    folder.mkdir()
    sides = child(SIDES, folder, seed, runs)
    assert sides.wait(3600.0) == 0, sides.output
    counts: dict[str, int] = json.loads(sides.stdout)
    return counts


@pytest.mark.slow
def test_t1_56_a_few_runs_with_either_side_killed(tmp_path: Path, child: Children) -> None:
    counts = rounds(tmp_path / "runs", child, SEED, 5)
    assert counts["plugin killed"] + counts["server killed"] > 0


@pytest.mark.campaign
def test_t1_56_every_delivery_is_visible_exactly_once_in_1_000_runs(tmp_path: Path, child: Children) -> None:
    began = time.monotonic()
    counts = rounds(tmp_path / "runs", child, SEED, RUNS)
    print(f"\nfrom seed {SEED}, {time.monotonic() - began:.0f} s: {counts}")
    assert min(counts["plugin killed"], counts["server killed"], counts["sent again"]) > RUNS / 5


def checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("what", ["no database", "its table is damaged"])
def test_t1_57_an_unreadable_queue_is_never_rewritten_and_a_missing_one_is_new(tmp_path: Path, what: str) -> None:
    path = tmp_path / "state.db"
    with open_store(path=path) as store:  # missing: made, and empty
        assert store.outbox.page() == []
        store.outbox.append(
            dedupe_id="one", kind="home", transport="home", payload="owed", policy="at_least_once"
        )
        with store.core.reader() as reader:
            root = reader.rows("SELECT rootpage FROM sqlite_schema WHERE name = 'outbox'")[0][0]
            size = reader.rows("PRAGMA page_size")[0][0]
    with open_exclusive(path) as alone:
        alone.checkpoint("truncate")
    content = bytearray(path.read_bytes())
    if what == "no database":
        content[:size] = b"\xff" * size
    else:
        content[(root - 1) * size : root * size] = b"\xff" * size
    path.write_bytes(content)
    before = checksum(path)
    for _ in range(3):
        with pytest.raises(StateError), open_store(path=path) as store:
            store.outbox.deliver(lambda claim: Accepted(), ["home"])
        with pytest.raises(StateError), open_store(path=path) as store:
            store.outbox.append(
                dedupe_id="two", kind="home", transport="home", payload="owed", policy="at_least_once"
            )
    assert checksum(path) == before
