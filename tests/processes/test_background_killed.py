"""kill -9 before every statement of registering and of ending background work: one notice each, none twice.

A program forks once for each statement (BEGIN, COMMIT and pragmas included, of every connection), and the fork dies
before it. Then the next gateway recovers: what was registered has ended and has exactly one notice, and so it stays
when the caller, who does not know how far it came, does everything again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.outbox import Accepted
from hermes_state.store import Store, open_store
from hermes_state.work.background import Delegation, Process
from hermes_state.work.notices import KINDS, Notice
from hermes_state.work.states import Mode
from tests.support.children import Children

SEED = int(os.environ.get("HERMES_STATE_SEED", "9000"))
# What both the dying and the next program do; `number` tells the pieces of work apart.
ACTS = """
from hermes_state.work.background import Tell

def process(store, number):
    home, group = store.routing.home, store.work.processes
    tell = Tell(mode="turn", transport="telegram", target="chat 7")
    made = group.register(f"p{number}", home, command="make", epoch="e", tell=tell, patterns=["ERR"])
    group.running(made, home, 77, scope="sandbox")
    group.matched(made, home, "ERR", ["ERR 1"])
    group.exited(made, home, exit_code=0, output="done")

def delegation(store, number):
    home, group = store.routing.home, store.work.delegations
    tell = Tell(mode="turn", transport="telegram", target="chat 7")
    made = group.dispatch(f"d{number}", home, task={"goal": "look"}, tell=tell)
    group.stalling(made, home)
    group.finalizing(made, home)
    group.completed(made, home, "found")
"""

DYING = """
import os, signal, sys
import apsw
import hermes_state.work.delegations, hermes_state.work.notices, hermes_state.work.processes
from hermes_state.store import open_store
""" + ACTS + """
home, act = sys.argv[1], {"process": process, "delegation": delegation}[sys.argv[2]]
count = dies_at = 0

def step(cursor, sql, bindings):
    global count
    count += 1
    if count == dies_at:
        os.kill(os.getpid(), signal.SIGKILL)
    return True

def traced(connection):
    connection.exec_trace = step

def one(number):
    global count, dies_at
    apsw.connection_hooks.append(traced)
    with open_store(home) as store:
        store.routing.home, store.work
        count, dies_at = 0, number
        act(store, number)
        dies_at = 0

number, every = int(sys.argv[3]), int(sys.argv[4])
while True:
    forked = os.fork()
    if forked == 0:
        try:
            one(number)
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _pid, status = os.waitpid(forked, 0)
    if os.WIFEXITED(status):
        print(number if os.WEXITSTATUS(status) == 0 else "failed", flush=True)
        break
    assert os.WTERMSIG(status) == signal.SIGKILL
    number += every
"""


def notices(store: Store) -> dict[str, int]:
    """How many notices of an end there are of each piece of work."""
    found: dict[str, int] = {}
    for one in store.outbox.page(limit=1000, kind="completion"):
        work = one.payload["work"]
        found[work] = found.get(work, 0) + 1
        assert one.dedupe_id == work
    return found


@pytest.mark.slow
@pytest.mark.parametrize("sort", ["process", "delegation"])
def test_one_notice_whichever_statement_of_some_was_the_last(
    tmp_path: Path, fake_clock: FakeClock, child: Children, sort: str
) -> None:
    every = 5
    killed(tmp_path / "home", child, sort, first=1 + SEED % every, every=every)


@pytest.mark.campaign
@pytest.mark.parametrize("sort", ["process", "delegation"])
def test_one_notice_whichever_statement_was_the_last(
    tmp_path: Path, fake_clock: FakeClock, child: Children, sort: str
) -> None:
    killed(tmp_path / "home", child, sort, first=1, every=1)


def killed(home: Path, child: Children, sort: str, *, first: int, every: int) -> None:
    """Die before the first statement and every so many after it, and look what the next gateway makes of it."""
    with open_store(home):
        pass
    dying = child(DYING, home, sort, first, every)
    assert dying.wait(120) == 0, dying.output
    last = int(dying.stdout.split()[-1])  # there are fewer statements than this: nobody died
    numbers = range(first, last + 1, every)
    assert last > 20, dying.output
    again: dict[str, Callable[[Store, int], None]] = {}
    exec(ACTS, again)
    with open_store(home) as store:
        here = store.routing.home
        group = store.work.processes if sort == "process" else store.work.delegations
        left = {work.key: work.ended for work in group.page(limit=1000)}
        owed = notices(store)
        assert {key for key, ended in left.items() if ended} == set(owed), "an end without its notice, or the reverse"
        assert 0 < sum(left.values()) < len(left) <= len(numbers)
        group.recover(here)
        assert notices(store) == dict.fromkeys(left, 1), "after recovery each has ended and has one notice"
        before = {work.key: work for work in group.page(limit=1000)}
        for number in numbers:
            again[sort](store, number)
        now = {work.key: work for work in group.page(limit=1000)}
        assert notices(store) == dict.fromkeys(now, 1)
        assert len(now) == len(numbers)
        for key, work in before.items():
            assert now[key] == work, "what has ended stays as it ended"
        told: list[str] = []

        def admit(notice: Notice) -> Accepted:
            told.extend(one.dedupe_id for one in notice.claim if one.kind == "completion")
            return Accepted()

        store.work.notices.deliver(admit, ["telegram"], limit=1000)
        assert sorted(told) == sorted(now)
        assert store.outbox.claim(["telegram"], kinds=KINDS[Mode.TURN]) == []
        states = {str(work.state) for work in now.values() if isinstance(work, (Process, Delegation))}
        print(json.dumps({"killed": len(numbers) - 1, "before statements up to": last - 1, "ended as": sorted(states)}))
