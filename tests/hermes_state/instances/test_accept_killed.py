"""kill -9 at every statement of a connect of a restarted plugin, and two servers that start at once.

What must hold at each: the boot id is remembered exactly when its recovery was applied, so the next connect recovers
what the killed one did not; and no epoch is given out twice.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hermes_state.instances import remembered
from hermes_state.store import open_store
from tests.hermes_state.instances.servers import Server, hello
from tests.support.children import Children

# Forks before any store is open, once for each statement at which it dies; the last one lives.
KILLED = """
import os, shutil, signal, sys
from hermes_state.engine.transaction import Transaction
from hermes_state.instances.protocol import save_cursor
from hermes_state.store import open_store
from tests.hermes_state.instances.servers import Server, hello

template, folder, ROUNDS = sys.argv[1], sys.argv[2], int(sys.argv[3])
count = 0

def run(home, dies_at):
    def counting(name):
        plain = getattr(Transaction, name)
        def call(self, *given, **named):
            global count
            count += 1
            if count == dies_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return plain(self, *given, **named)
        setattr(Transaction, name, call)
    store = open_store(home)
    server = Server(store)
    server.connections._apply = lambda tx, plan: save_cursor(
        tx, "mac", "recovered", version=2, position=plan.boot_id, at=1.0
    )
    for name in ("execute", "rows", "row"):
        counting(name)
    server.connections.accept(hello(boot_id="boot 2"))
    os.kill(os.getpid(), signal.SIGKILL)  # after the commit, before anything was told to anybody

for dies_at in range(1, ROUNDS + 1):
    home = os.path.join(folder, str(dies_at))
    shutil.copytree(template, home)
    child = os.fork()
    if child == 0:
        run(home, dies_at)
    os.waitpid(child, 0)
"""

RACER = """
import gates
import sys
from hermes_state.store import open_store
from tests.hermes_state.instances.servers import Server

with open_store(sys.argv[1]) as store:
    gates.reach("ready")
    gates.wait("go")
    print([Server(store).connections.epoch for _ in range(10)])
"""


@pytest.mark.slow
def test_boot_id_is_remembered_exactly_when_its_recovery_was_applied(tmp_path: Path, child: Children) -> None:
    template = tmp_path / "template"
    with open_store(template) as store:
        Server(store).connections.accept(hello())
    folder = tmp_path / "killed"
    folder.mkdir()
    rounds = 10  # the connect runs four statements; the last rounds die after it
    child(KILLED, template, folder, rounds).finish()
    outcomes = []
    for dies_at in range(1, rounds + 1):
        with open_store(folder / str(dies_at)) as store:
            with store.core.reader() as reader:
                applied = reader.rows("SELECT position FROM gateway_cursors")
                before = remembered.read(reader, "mac")
            assert before is not None
            assert (before.boot_id == "boot 2") == (applied == [("boot 2",)])
            again = Server(store).connections.accept(hello(boot_id="boot 2"))
            assert again.boot_id_changed == (not applied)
            outcomes.append(again.boot_id_changed)
    assert outcomes == [True] * 4 + [False] * 6


@pytest.mark.slow
def test_servers_that_start_at_once_never_share_an_epoch(tmp_path: Path, child: Children) -> None:
    """T1.21, with two real processes behind a gate."""
    with open_store(tmp_path / "home"):
        pass
    racers = [child(RACER, tmp_path / "home") for _ in range(2)]
    for racer in racers:
        racer.wait_for("ready")
    for racer in racers:
        racer.release("go")
    epochs = [json.loads(racer.finish()) for racer in racers]
    assert sorted(epochs[0] + epochs[1]) == list(range(1, 21))
    assert all(one == sorted(one) for one in epochs)
