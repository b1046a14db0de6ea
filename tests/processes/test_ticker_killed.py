"""Four processes tick homes with `CronTicker`, and are killed at every statement and at random.

What a run does outside is a line in a file that outlives its process. A slot that says `succeeded` has one line, one
that is `interrupted` or `unknown` none or one, one that is `missed` or `skipped` none; none has two, unless its job
says that its effect is idempotent. Half of the processes see another `host.db` than the other half.
"""

from __future__ import annotations

import collections
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from cron_store.cron import Cron
from hermes_state.clock import FakeClock
from hermes_state.store import open_store
from tests.support.children import Children

SEED = int(os.environ.get("HERMES_STATE_SEED", "9000"))
ROUNDS = int(os.environ.get("HERMES_STATE_ROUNDS", "5"))
WINDOWS = 25  # of a round; 40 rounds are 1,000

# Forks workers that tick when they are told to. They count statements, ends of transactions and lines, and die before
# the one that they are told. The parent never has a store open while it forks.
PROGRAM = """
import json, os, random, signal, sys, threading, time, traceback
from pathlib import Path
from cron_store.cron import Cron
from cron_store.records import Failed, Policies
from cron_store.runs.foreign import release_anywhere
from cron_store.schedule import Interval
from cron_store.ticker import CronTicker
from hermes_state.clock import CLOCK_FILE_VARIABLE, FakeClock
from hermes_state.engine.core import Core
from hermes_state.engine.transaction import Transaction
from hermes_state.errors import HomeRemoved, StaleFence, StateError
from hermes_state.host import open_host
from hermes_state.store import open_store

what, root, receiver, seed, windows = sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
names = sys.argv[6].split(",")
homes = [root / "profiles" / name for name in names]
count, dies_at, lock = 0, 0, threading.Lock()

class PatientFile(FakeClock):
    # No time passes for those who wait for each other: the parent alone moves it.
    def sleep(self, seconds):
        time.sleep(min(seconds, 0.002))

clock = PatientFile(Path(os.environ[CLOCK_FILE_VARIABLE]))

def line(*said):
    out = os.open(receiver, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(out, (json.dumps(said) + "\\n").encode())
    os.close(out)

def step(where):
    global count
    with lock:
        count += 1
        dies = count == dies_at
    if dies:
        line("killed", where)
        os.kill(os.getpid(), signal.SIGKILL)

def counting(name):
    plain = getattr(Transaction, name)
    def call(self, sql, *given, **named):
        step(sql.split("(")[0][:40])
        return plain(self, sql, *given, **named)
    setattr(Transaction, name, call)

plain_write = Core.write

def write(self, work, **how):
    def whole(tx):
        done = work(tx)
        step("COMMIT")
        return done
    done = plain_write(self, whole, **how)
    step("after COMMIT")
    return done

def working(chance):
    def work(running):
        claim = running.claim
        step("before the effect")
        line("effect", claim.home.profile, claim.job_id, claim.slot, claim.attempt)
        step("after the effect")
        with lock:
            die = chance.random()
        if what == "homes" and die < 0.5:
            # A context that means another home lets go of it; the ticker is told when it wants to settle.
            os.environ["HERMES_HOME"] = str(random.choice(homes))
            line("released", release_anywhere(claim, clock=clock))
        elif die < 0.2:
            raise ValueError("the work failed")
        elif die < 0.3:
            return Failed(error="no")
        return None
    return work

def worker(number, at, orders, answers):
    global count, dies_at
    count, dies_at = 0, at
    Core.write = write
    for name in ("execute", "rows", "row"):
        counting(name)
    chance = random.Random(seed * 1000 + number)
    try:
        os.environ["XDG_STATE_HOME"] = str(root / f"state {number % 2}")
        with open_host(clock=clock) as host:
            with CronTicker(working(chance), homes=homes, most_parallel=4, host=host, clock=clock) as ticker:
                while os.read(orders, 1) == b"t":
                    done = ticker.tick()
                    assert ticker.wait_idle(30)
                    for problem in ticker.tick().problems + done.problems:
                        if not isinstance(problem.error, StaleFence):
                            line("problem", repr(problem.error))
                    os.write(answers, b"d")
    except BaseException:
        line("failed", traceback.format_exc())
        os._exit(1)
    os._exit(0)

class Worker:
    def __init__(self, number, at):
        theirs, self.orders = os.pipe()
        self.answers, said = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            os.close(self.orders)
            os.close(self.answers)
            for other in living:
                os.close(other.orders)
                os.close(other.answers)
            worker(number, at, theirs, said)
        os.close(theirs)
        os.close(said)

    def order(self):
        try:
            os.write(self.orders, b"t")
        except BrokenPipeError:
            pass

    def answered(self):
        return os.read(self.answers, 1) == b"d"

    def end(self):
        # No more orders: it drains.
        os.close(self.orders)
        os.close(self.answers)
        return os.WIFSIGNALED(os.waitpid(self.pid, 0)[1])

signal.signal(signal.SIGPIPE, signal.SIG_IGN)
living = []
now = int(clock.now())
for home in homes:
    with open_store(home, clock=clock) as store:
        cron = Cron(store)
        cron.add("plain", Interval(seconds=60, anchor=now))
        if what != "each":
            cron.add("idempotent", Interval(seconds=60, anchor=now), policies=Policies(effect="idempotent"))
            cron.add("all", Interval(seconds=60, anchor=now), policies=Policies(misfire="run_all", spacing_seconds=0.0))
            cron.add("beside", Interval(seconds=60, anchor=now), policies=Policies(overlap="allow"))

if what == "each":
    number, killed = 1, True
    while killed:
        clock.advance(60.0)
        one = Worker(number, number)
        one.order()
        one.answered()
        killed = one.end()
        other = Worker(number + 1, 0)
        other.order()
        other.answered()
        other.end()
        number += 1
    line("windows", number - 1)
else:
    chance, number = random.Random(seed), 0
    for window in range(windows):
        clock.advance(60.0)
        while len(living) < 4:
            number += 1
            living.append(Worker(number, chance.randrange(20, 600)))
        for one in living:
            one.order()
        for one in living[:]:
            if not one.answered() or chance.random() < 0.1:
                living.remove(one)
                one.end()
    while living:
        living.pop().end()
    clock.advance(60.0)
    for _last in range(2):
        last = Worker(number + 1, 0)
        last.order()
        assert last.answered()
        last.end()
    line("processes", number)
"""


def said(receiver: Path) -> list[list[Any]]:
    lines = [json.loads(line) for line in receiver.read_text().splitlines()]
    assert [line[1] for line in lines if line[0] == "failed"] == []
    return lines


def audit(root: Path, names: list[str], lines: list[list[Any]], *, since: int) -> collections.Counter[str]:
    """Every slot of every home is in one record and has the effects it says, no claim is left; gives the counts."""
    effects: collections.Counter[tuple[str, str, int]] = collections.Counter(
        (line[1], line[2], line[3]) for line in lines if line[0] == "effect"
    )
    counts: collections.Counter[str] = collections.Counter(
        kills=sum(line[0] == "killed" for line in lines), effects=sum(effects.values()),
        released_in_a_foreign_context=sum(line[:2] == ["released", True] for line in lines),
    )
    for name in names:
        with open_store(root / "profiles" / name) as store:
            cron = Cron(store)
            counts["leaked claims"] += len(cron.in_flight())
            for job in cron.jobs():
                expected = since + 60
                for record in cron.slots(job.job_id, limit=10_000):
                    assert record.slot == expected, (name, job.job_id, record)
                    assert record.last_slot == record.slot + (record.count - 1) * 60
                    expected = record.last_slot + 60
                    counts[f"{job.job_id} {record.state}"] += record.count
                    counts["slots"] += record.count
                    had = [effects.pop((name, job.job_id, slot), 0) for slot in range(record.slot, expected, 60)]
                    if job.policies.effect == "idempotent":
                        assert record.state not in ("missed", "skipped") or sum(had) == 0
                        continue
                    counts["two effects"] += max(had) > 1
                    allowed = {
                        "succeeded": (1, 1), "failed": (1, 1), "interrupted": (0, 1), "unknown": (0, 1),
                    }.get(str(record.state), (0, 0))
                    assert allowed[0] <= sum(had) <= allowed[1], (name, record, had)
                assert expected == job.settled_through + 60, f"{name} {job.job_id}: slots after {expected}"
    assert not effects, f"effects of slots that have no record: {effects}"
    assert counts["leaked claims"] == counts["two effects"] == 0
    return counts


def one_round(
    folder: Path, what: str, seed: int, clock: FakeClock, child: Children, names: list[str], windows: int = WINDOWS
) -> collections.Counter[str]:
    folder.mkdir()
    since = int(clock.now())
    program = child(PROGRAM, what, folder, folder / "receiver", seed, windows, ",".join(names))
    assert program.wait(600) == 0, program.output
    lines = said(folder / "receiver")
    counts = audit(folder, names, lines, since=since)
    counts["windows"] = sum(line[1] for line in lines if line[0] == "windows") or windows
    for line in lines:
        if line[0] == "killed":
            kind = line[1] if line[1][:3] in ("COM", "aft", "bef") else "a statement"
            counts[f"killed at {kind}"] += 1
        if line[0] == "problem":
            counts[f"problem {line[1][:60]}"] += 1
    return counts


@pytest.mark.campaign
def test_a_kill_at_each_statement_of_a_tick(tmp_path: Path, fake_clock: FakeClock, child: Children) -> None:
    """T3.17, T3.20, T3.21, R72: one process dies at its 1st, 2nd, 3rd ... step, another one goes on."""
    counts = one_round(tmp_path / "each", "each", SEED, fake_clock, child, ["alone"])
    print(f"\n{dict(sorted(counts.items()))}")
    assert counts["kills"] > 30 and counts["killed at COMMIT"] and counts["killed at before the effect"]


@pytest.mark.slow
def test_four_processes_and_a_few_kills(tmp_path: Path, fake_clock: FakeClock, child: Children) -> None:
    """T3.17, small."""
    one_round(tmp_path / "round", "random", SEED, fake_clock, child, ["alone"], windows=3)


@pytest.mark.campaign
@pytest.mark.parametrize("names", [["alone"], ["one", "Two", "three"]])
def test_four_processes_through_a_thousand_windows_with_kills(
    tmp_path: Path, fake_clock: FakeClock, child: Children, names: list[str]
) -> None:
    """T3.17, T3.1, R60: with HERMES_STATE_ROUNDS=40, 1,000 windows of four jobs; of three homes with the same job ids,
    half of whose runs are let go in a foreign context."""
    began = time.perf_counter()
    total: collections.Counter[str] = collections.Counter()
    what = "random" if len(names) == 1 else "homes"
    for seed in range(SEED, SEED + ROUNDS):
        total += one_round(tmp_path / f"round {seed}", what, seed, fake_clock, child, names)
    print(
        f"\n{what}: {ROUNDS} rounds of {WINDOWS} windows from seed {SEED} in {time.perf_counter() - began:.0f} s:"
        f" {dict(sorted(total.items()))}; leaked claims {total['leaked claims']}, two effects {total['two effects']}"
    )
    assert total["kills"] >= 5 * ROUNDS
    if what == "homes":
        assert total["released_in_a_foreign_context"] > 0
