"""kill -9 at each statement of claim, start and settle, and of four processes that tick one home at once.

What a run does outside is a line in a file that outlives its process. A slot that says `succeeded` has one line, one
that is `interrupted` none or one, one that is `missed` or `skipped` none; none has two, unless its job says that its
effect is idempotent.
"""

from __future__ import annotations

import collections
import json
import os
from pathlib import Path
from typing import Any

import pytest

from cron_store.cron import Cron
from hermes_state.clock import FakeClock
from hermes_state.store import open_store
from tests.support.children import Children

SEED = int(os.environ.get("HERMES_STATE_SEED", "6000"))
ROUNDS = int(os.environ.get("HERMES_STATE_ROUNDS", "40"))

# Forks workers that count statements, ends of transactions and lines, and that die before the one that they are told.
# It never has a store open while it forks.
PROGRAM = """
import json, os, random, signal, sys, traceback
from cron_store.cron import Cron
from cron_store.records import Policies, Succeeded
from cron_store.schedule import Interval
from hermes_state.clock import clock_from_environment
from hermes_state.engine.core import Core
from hermes_state.engine.transaction import Transaction
from hermes_state.errors import LeaseHeld, LeaseLost, LockTimeout, Refused, StaleFence
from hermes_state.store import open_store

what, home, receiver, seed, windows = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
count, dies_at, at_statement = 0, 0, ""
clock = clock_from_environment()

def line(*said):
    out = os.open(receiver, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(out, (json.dumps(said) + "\\n").encode())
    os.close(out)

def step(where):
    global count
    count += 1
    if count == dies_at:
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

def patiently(call, *given, **named):
    # The shared clock is moved on by whole minutes, which is all the patience that a wait for a lock has.
    while True:
        try:
            return call(*given, **named)
        except LockTimeout:
            step("lock timeout")

def tick(cron, chance):
    patiently(cron.heartbeat)
    lease = patiently(cron.tick_lease)
    patiently(cron.reap, lease)
    taken = patiently(cron.take, lease, room=chance.choice([1, 2, 5]))
    # One by one, each statement has the same number in each worker, so that none is passed over.
    if what == "each" or chance.random() < 0.7 or not dies_at:
        patiently(lease.release)
    for claim in taken.claims:
        try:
            patiently(cron.start, claim)
        except (StaleFence, Refused):
            patiently(cron.release, claim)
            continue
        step("before the effect")
        line("effect", claim.job_id, claim.slot, claim.attempt)
        step("after the effect")
        if chance.random() < 0.1:
            patiently(cron.release, claim)
            continue
        try:
            patiently(cron.settle, claim, Succeeded())
        except StaleFence:
            line("stale", claim.job_id, claim.slot)
    return len(taken.claims)

def worker(number, at):
    global count, dies_at
    count, dies_at = 0, at
    Core.write = write
    for name in ("execute", "rows", "row"):
        counting(name)
    chance = random.Random(seed * 1000 + number)
    try:
        with open_store(home) as store:
            cron = Cron(store)
            idle = 0
            while idle < (1 if what == "each" else 3) or at:
                step("tick")
                try:
                    idle = 0 if tick(cron, chance) else idle + 1
                except (LeaseHeld, LeaseLost, StaleFence):
                    idle = 0 if at else idle + 1
                if what == "each" and at:
                    return
    except BaseException:
        line("failed", traceback.format_exc())
        os._exit(1)

def forked(number, at):
    pid = os.fork()
    if not pid:
        worker(number, at)
        os._exit(0)
    return pid

def wait(pid):
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])

def states():
    with open_store(home) as store:
        return [(one.job_id, str(one.state)) for job in ("plain",) for one in Cron(store).slots(job)]

if what == "each":
    number = killed = 1
    while killed:
        with open_store(home) as store:
            cron = Cron(store)
            if number == 1:
                cron.add("plain", Interval(seconds=60, anchor=int(clock.now())))
        clock.advance(60.0)
        killed = wait(forked(number, number))
        line("after", number, states()[-1:] if killed else [])
        wait(forked(number, 0))
        number += windows  # the stride
else:
    now = int(clock.now())
    with open_store(home) as store:
        cron = Cron(store)
        cron.add("plain", Interval(seconds=60, anchor=now))
        cron.add("idempotent", Interval(seconds=60, anchor=now), policies=Policies(effect="idempotent"))
        cron.add("all", Interval(seconds=60, anchor=now), policies=Policies(misfire="run_all", spacing_seconds=0.0))
        cron.add("beside", Interval(seconds=60, anchor=now), policies=Policies(overlap="allow"))
    chance = random.Random(seed)
    number, living = 0, set()
    for window in range(windows):
        clock.advance(60.0)
        while len(living) < 4:
            number += 1
            living.add(forked(number, chance.randrange(40, 400)))
        pid, _status = os.waitpid(-1, 0)
        living.discard(pid)
    for pid in living:
        os.waitpid(pid, 0)
    clock.advance(180.0)
    wait(forked(number + 1, 0))
"""


def said(receiver: Path) -> list[list[Any]]:
    lines = [json.loads(line) for line in receiver.read_text().splitlines()]
    assert [line[1] for line in lines if line[0] == "failed"] == []
    return lines


def audit(home: Path, lines: list[list[Any]], *, through: int, since: int) -> collections.Counter[str]:
    """Every slot is in one record, and has the effects that its record says; gives the counts."""
    effects: collections.Counter[tuple[str, int]] = collections.Counter(
        (line[1], line[2]) for line in lines if line[0] == "effect"
    )
    counts: collections.Counter[str] = collections.Counter(killed=sum(line[0] == "killed" for line in lines))
    with open_store(home) as store:
        cron = Cron(store)
        assert cron.in_flight() == []
        for job in cron.jobs():
            expected = since + 60
            for record in cron.slots(job.job_id, limit=10_000):
                assert record.slot == expected, (job.job_id, record)
                assert record.last_slot == record.slot + (record.count - 1) * 60
                expected = record.last_slot + 60
                counts[f"{job.job_id} {record.state}"] += record.count
                assert record.state != "due", f"{record} was left, though nobody has it"
                had = [effects.pop((job.job_id, slot), 0) for slot in range(record.slot, expected, 60)]
                if job.policies.effect == "idempotent":
                    assert record.state != "succeeded" or had[0] >= 1
                    assert record.state in ("succeeded", "interrupted") or sum(had) == 0
                    continue
                allowed = {"succeeded": (1, 1), "interrupted": (0, 1)}.get(str(record.state), (0, 0))
                assert allowed[0] <= sum(had) <= allowed[1], (record, had)
            assert expected == max(through, job.settled_through) + 60, f"{job.job_id}: slots after {expected}"
    assert not effects, f"effects of slots that have no record: {effects}"
    return counts


@pytest.mark.slow
@pytest.mark.parametrize("stride", [4, pytest.param(1, marks=pytest.mark.campaign)])
def test_a_kill_at_each_statement_of_a_fire(
    tmp_path: Path, fake_clock: FakeClock, child: Children, stride: int
) -> None:
    """T3.20, T3.21, R72: after the kill the slot is due or claimed, running or over; then it fires at most once."""
    since = int(fake_clock.now())
    receiver = tmp_path / "receiver"
    program = child(PROGRAM, "each", tmp_path / "home", receiver, SEED, stride)
    assert program.wait() == 0, program.output
    lines = said(receiver)
    killed = [line[1] for line in lines if line[0] == "killed"]
    assert len(killed) > 50 // stride
    if stride == 1:
        assert {"COMMIT", "after COMMIT", "before the effect", "after the effect"} <= set(killed)
    order = [line for line in lines if line[0] in ("killed", "after")]
    in_claim = False
    for where, after in zip(order[::2], order[1::2], strict=False):
        if where[0] != "killed":
            break
        state = after[2][0][1] if after[2] else "due"
        if "INSERT INTO cron_executions" in where[1]:
            in_claim = True
        assert state in ("due", "claimed", "running", "succeeded", "interrupted"), (where, state)
    assert in_claim or stride > 1
    windows = sum(line[0] == "after" for line in lines)
    counts = audit(tmp_path / "home", lines, since=since, through=since + windows * 60)
    print(f"\n{len(killed)} kills: {dict(sorted(counts.items()))}")
    assert counts["plain missed"] == counts["plain skipped"] == 0
    assert counts["plain succeeded"] + counts["plain interrupted"] == windows


def one_round(folder: Path, seed: int, windows: int, clock: FakeClock, child: Children) -> collections.Counter[str]:
    folder.mkdir()
    since = int(clock.now())
    receiver = folder / "receiver"
    program = child(PROGRAM, "random", folder / "home", receiver, seed, windows)
    assert program.wait() == 0, program.output
    # Workers that wait move the clock too, and two that do so at once may set it back: it says itself where it is.
    through = since + int(clock.now() - since) // 60 * 60
    return audit(folder / "home", said(receiver), since=since, through=through)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEED, SEED + 1))
def test_four_processes_and_a_few_kills(tmp_path: Path, fake_clock: FakeClock, child: Children, seed: int) -> None:
    """T3.17, small."""
    one_round(tmp_path / "round", seed, 10, fake_clock, child)


@pytest.mark.campaign
def test_four_processes_through_a_thousand_windows_with_kills(
    tmp_path: Path, fake_clock: FakeClock, child: Children
) -> None:
    """T3.17: with HERMES_STATE_ROUNDS=40, 1,000 windows of four jobs."""
    total: collections.Counter[str] = collections.Counter()
    for seed in range(SEED, SEED + ROUNDS):
        total += one_round(tmp_path / f"round {seed}", seed, 25, fake_clock, child)
    print(f"\n{ROUNDS} rounds of 25 windows from seed {SEED}: {dict(sorted(total.items()))}")
    assert total["killed"] >= 25 * ROUNDS
    if ROUNDS >= 40:
        for kind in ("plain succeeded", "plain missed", "plain interrupted", "idempotent succeeded", "all succeeded"):
            assert total[kind] > 0, f"no round had {kind}"
