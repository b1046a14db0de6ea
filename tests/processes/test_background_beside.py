"""Gateways beside each other that begin, end, recover and tell of the same background work, and are killed at any
statement: each end has one notice, and what was told twice was marked.

One round in the default suite, HERMES_STATE_ROUNDS in the campaign.
"""

from __future__ import annotations

import collections
import json
import os
import random
import signal
from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.outbox import Accepted, Verdict
from hermes_state.store import open_store
from hermes_state.work.notices import Notice
from tests.support.children import Children

SEED = int(os.environ.get("HERMES_STATE_SEED", "9100"))
ROUNDS = int(os.environ.get("HERMES_STATE_ROUNDS", "100"))

GATEWAY = """
import json, os, random, signal, sys
from hermes_state.engine.transaction import Transaction
from hermes_state.errors import StaleFence
from hermes_state.outbox import Accepted, NotAdmitted
from hermes_state.store import open_store
from hermes_state.work.background import Tell

home, seed, dies_at, log = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
count, chance = 0, random.Random(seed)

def step():
    global count
    count += 1
    if count == dies_at:
        os.kill(os.getpid(), signal.SIGKILL)

def counting(name):
    plain = getattr(Transaction, name)
    def call(self, *given, **named):
        step()
        return plain(self, *given, **named)
    setattr(Transaction, name, call)

def write_line(*said):
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(out, (json.dumps(said) + "\\n").encode())
    os.close(out)

def admit(notice):
    if chance.random() < 0.3:
        return NotAdmitted(why="busy", retry_after=0.0)
    for one in notice.claim:
        write_line("told", one.dedupe_id, one.recovered)
    step()
    return Accepted()

with open_store(home) as store:
    for name in ("execute", "rows", "row"):
        counting(name)
    here, work = store.routing.home, store.work
    tell = Tell(mode="turn", transport="telegram", target="chat 7")
    for number in range(25):
        what = chance.choice(["begin", "begin", "dispatch", "end", "end", "complete", "recover", "deliver", "sweep"])
        if what == "begin":
            made = work.processes.register(f"p{seed}-{number}", here, command="make", tell=tell, epoch="e")
            write_line("begun", made.key)
            if chance.random() < 0.5:
                work.processes.running(made, here, os.getpid())
        elif what == "dispatch":
            made = work.delegations.dispatch(f"d{seed}-{number}", here, task="t", tell=tell)
            write_line("begun", made.key)
        elif what == "end":
            for one in work.processes.page(states=["registered", "running"], limit=2):
                write_line("ended", work.processes.exited(one, here, exit_code=seed).key)
        elif what == "complete":
            for one in work.delegations.page(states=["running"], limit=2):
                write_line("ended", work.delegations.completed(one, here, seed).key)
        elif what == "recover":
            for one in work.processes.recover(here).exited + work.delegations.recover(here):
                write_line("ended", one.key)
        elif what == "deliver":
            try:
                work.notices.deliver(admit, ["telegram"], limit=3, window_seconds=0.0)
            except StaleFence:
                pass
        else:
            work.processes.renew(here)
            work.notices.sweep(here)
"""


def one_round(home: Path, seed: int, child: Children, fake_clock: FakeClock) -> collections.Counter[str]:
    with open_store(home):
        pass
    chance, log = random.Random(seed), home / "log"
    gateways = [child(GATEWAY, home, seed * 10 + number, chance.randrange(20, 700), log) for number in range(3)]
    outcomes: collections.Counter[str] = collections.Counter()
    for gateway in gateways:
        status = gateway.wait(120)
        assert status in (0, -signal.SIGKILL), gateway.output
        outcomes["killed" if status else "went on to the end"] += 1
    with open_store(home) as store:
        here, told = store.routing.home, list[tuple[str, bool]]()

        def admit(notice: Notice) -> Verdict:
            told.extend((one.dedupe_id, one.recovered) for one in notice.claim)
            return Accepted()

        found = store.work.processes.recover(here)
        outcomes["taken over"] += len(found.taken_over)
        store.work.delegations.recover(here)
        for one in store.work.processes.active():
            store.work.processes.exited(one, here, exit_code=0)
        # What lost its sender twice rests before it is sent again.
        while store.work.notices.deliver(admit, ["telegram"], limit=100) or store.outbox.counts().by_state["pending"]:
            fake_clock.advance(60.0)
        works = [*store.work.processes.page(limit=1000), *store.work.delegations.page(limit=1000)]
        notices = [one.dedupe_id for one in store.outbox.page(limit=1000)]
    lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    told += [(line[1], line[2]) for line in lines if line[0] == "told"]
    assert {line[1] for line in lines if line[0] == "begun"} <= {work.key for work in works}
    assert sorted(notices) == sorted(work.key for work in works)
    assert {str(work.delivery) for work in works} <= {"accepted"}
    for work in works:
        outcomes[str(work.state)] += 1  # type: ignore[attr-defined]
        times = [again for key, again in told if key == work.key]
        outcomes[f"told {min(len(times), 2)} times"] += 1
        assert times, f"{work.key} was told to nobody"
        assert sum(not again for again in times) <= 1, f"{work.key} was told again and not marked"
    return outcomes


@pytest.mark.slow
def test_one_notice_each_among_gateways_that_die(tmp_path: Path, fake_clock: FakeClock, child: Children) -> None:
    one_round(tmp_path / "home", SEED, child, fake_clock)


@pytest.mark.campaign
def test_one_notice_each_among_many_gateways_that_die(
    tmp_path: Path, fake_clock: FakeClock, child: Children
) -> None:
    total: collections.Counter[str] = collections.Counter()
    for seed in range(SEED, SEED + ROUNDS):
        total += one_round(tmp_path / f"home {seed}", seed, child, fake_clock)
    print(f"\n{ROUNDS} rounds from seed {SEED}: {dict(sorted(total.items()))}")
    assert total["killed"] > ROUNDS / 2
