"""kill -9 at any statement of claim and settle: nothing is sent twice that may be sent once, nothing else is lost.

The receiver is a file that outlives the senders: a line for each time that something went out. Half of the senders are
slow: the term of a claim runs out in its handler, or would if it were not renewed, before or after the message goes
out, while another sender takes what is due.
"""

from __future__ import annotations

import collections
import json
import os
import random
import signal
import time
from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.outbox import Schedule, State
from hermes_state.store import open_store
from tests.support.children import Children

SEED = int(os.environ.get("HERMES_STATE_SEED", "4000"))
ROUNDS = int(os.environ.get("HERMES_STATE_ROUNDS", "200"))

# Counts statements, commits and sendings, and dies before the one that it is told; says what it sends and what it knows
# to be settled.
SENDER = """
import json, os, random, signal, sys
from hermes_state.engine.transaction import Transaction
from hermes_state.errors import StaleFence
from hermes_state.outbox import Accepted, Failed, NotAdmitted, Outbox
from hermes_state.owners import Presence
from hermes_state.store import open_store

home, seed, dies_at, receiver = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
count = 0

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
    out = os.open(receiver, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(out, (json.dumps(said) + "\\n").encode())
    os.close(out)

plain_settle = Outbox._settle  # what `settle` and `deliver` both write a verdict by

def settle(self, claim, verdict, **how):
    kind, names = type(verdict).__name__, [one.dedupe_id for one in claim]
    late = any(self.get(name).state == "pending" for name in names)
    try:
        plain_settle(self, claim, verdict, **how)
    except StaleFence:
        write_line("stale", names, kind)
        raise
    write_line("settled", names, kind)
    if late:
        write_line("late", names, kind)
    step()

Outbox._settle = settle

with open_store(home) as store:
    for name in ("execute", "rows", "row"):
        counting(name)
    box, chance = store.outbox, random.Random(seed)
    other = Outbox(store.core, presence=Presence(store.path.parent, clock=store.core.clock))

    def run_out(claim):
        renews = chance.random() < 0.5  # itself it stays ours, and what waited for it would run out
        how = f"{claim.primary.policy} {'renewed' if renews else 'ran out'}"
        write_line("is slow", [one.dedupe_id for one in claim], how)
        store.core.clock.advance(40.0)
        if renews:
            box.renew(claim)
        store.core.clock.advance(40.0)
        other.deliver(send, ["telegram"], limit=chance.choice([1, 3]))

    def send(claim, slow=None):
        step()
        for one in claim:
            now = box.get(one.id)
            write_line("given", one.dedupe_id, (str(now.state), now.fence) == ("claimed", one.fence))
        refund, failure = NotAdmitted(why="busy", retry_after=0.0), Failed(why="no")
        verdict = chance.choice([Accepted(), Accepted(), refund, failure])
        if slow == "before":
            run_out(claim)
        if isinstance(verdict, Accepted):
            for one in claim:
                write_line("sent", one.dedupe_id, one.recovered, one.fence)
        if slow == "after":
            run_out(claim)
        step()
        write_line("says", [one.dedupe_id for one in claim], type(verdict).__name__)
        step()
        return verdict

    def slowly(claim):
        return send(claim, chance.choice(["before", "after", None]))

    more = True
    while more:
        limit = chance.choice([1, 3])
        if seed % 2:
            claims = box.claim(["telegram"], limit=limit)
            more = bool(claims)
            for claim in claims:
                box.settle(claim, send(claim))
        else:
            try:
                more = bool(box.deliver(slowly, ["telegram"], limit=limit))
            except StaleFence:
                pass
"""


def one_round(home: Path, seed: int, child: Children) -> collections.Counter[str]:
    """Senders that are killed at places of their choosing, then one until nothing is due; gives the outcomes."""
    home.mkdir()
    chance = random.Random(seed)
    receiver = home / "receiver"
    policies: dict[str, str] = {}
    with open_store(home) as store:
        for number in range(6):
            policies[f"row {number}"] = policy = chance.choice(["at_most_once", "at_least_once"])
            store.outbox.append(
                dedupe_id=f"row {number}", kind="final", transport="telegram", payload=number, policy=policy,  # type: ignore[arg-type]
                batch=chance.choice([None, f"batch {policy}"]), lane=chance.choice([None, "lane"]),
                schedule=Schedule(delays=(0.0,) * 50, rest=0.0),
            )
    killed = 0
    dies_at = chance.randrange(1, 90)
    for attempt in range(4):
        sender = child(SENDER, home, seed + attempt, dies_at if attempt < 3 else 0, receiver)
        status = sender.wait()
        assert status in (0, -signal.SIGKILL), sender.output
        killed += status == -signal.SIGKILL
        dies_at = chance.randrange(1, 90)
    lines = [json.loads(line) for line in receiver.read_text().splitlines()] if receiver.exists() else []
    with open_store(home) as store:
        rows = {row.dedupe_id: row for row in store.outbox.page()}
    outcomes: collections.Counter[str] = collections.Counter(killed=killed)
    for line in lines:
        if line[0] == "is slow":
            outcomes[f"{line[2]} in its handler"] += 1
        elif line[0] in ("late", "stale"):
            outcomes[f"{line[0]} verdict"] += 1
    assert [line for line in lines if line[0] == "given" and not line[2]] == [], "given out after its claim was lost"
    for name, policy in policies.items():
        row = rows[name]
        sent = [line for line in lines if line[0] == "sent" and line[1] == name]
        outcomes[f"{policy} {row.state}"] += 1
        outcomes[f"{policy} sent {min(len(sent), 2)} times"] += 1
        if policy == "at_most_once":
            assert len(sent) <= 1, f"{name} was sent {len(sent)} times"
            assert row.state in (State.ACCEPTED, State.UNKNOWN)
            assert row.state is not State.ACCEPTED or len(sent) == 1
        else:
            assert row.state is State.ACCEPTED
            assert sent
            assert sum(not line[2] for line in sent) <= 1, "a second sending was not marked"
        for kind, spent in (("NotAdmitted", row.refunds), ("Failed", row.attempts)):
            certain = sum(name in line[1] for line in lines if line[0] == "settled" and line[2] == kind)
            said = sum(name in line[1] for line in lines if line[0] == "says" and line[2] == kind)
            assert certain <= spent <= said, (name, kind, certain, spent, said)
    return outcomes


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEED, SEED + 5))
def test_a_few_kills_of_senders(tmp_path: Path, fake_clock: FakeClock, child: Children, seed: int) -> None:
    one_round(tmp_path / "home", seed, child)


@pytest.mark.campaign
def test_many_kills_of_senders(tmp_path: Path, fake_clock: FakeClock, child: Children) -> None:
    total: collections.Counter[str] = collections.Counter()
    began = time.monotonic()
    for seed in range(SEED, SEED + ROUNDS):
        total += one_round(tmp_path / f"home {seed}", seed, child)
    print(f"\n{ROUNDS} rounds from seed {SEED}, {time.monotonic() - began:.0f} s: {dict(sorted(total.items()))}")
    assert total["killed"] > ROUNDS
    if ROUNDS >= 100:
        for kind in (
            "at_most_once ran out in its handler", "at_least_once ran out in its handler", "late verdict",
            "at_most_once renewed in its handler", "at_least_once renewed in its handler", "stale verdict",
            "at_least_once sent 2 times", "at_most_once unknown",
        ):
            assert total[kind] > 0, kind
