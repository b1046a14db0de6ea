"""Two processes race for one stale lock: exactly one winner each time (T2.13), and two write status at once (T2.12)."""

from __future__ import annotations

import collections
import os
import time
from pathlib import Path

import pytest

from hermes_state.host import open_host
from tests.hermes_state.host.hosts import folder_of
from tests.support.children import Child, Children

ROUNDS = int(os.environ.get("HERMES_STATE_ROUNDS", "2000"))

# Holds every lock of the race and is killed: what it leaves is stale.
LEAVES_STALE = """
import sys
from pathlib import Path
import gates
from hermes_state.host import Run, open_host
folder, kind, rounds = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
if kind == "token":
    host = open_host(folder)
    for number in range(rounds):
        host.tokens.acquire("telegram", f"credential {number}", profile="dead", term_seconds=3600.0)
else:
    hosts = []
    for number in range(rounds):
        host = open_host(folder / str(number))
        hosts.append((host, host.enter(Run(home="/h/dead"), answers=False)))
gates.reach("held")
gates.wait("never")
"""

# Both take a step when both are there: each has a byte counter of four digits in a file that both map.
RACER = """
import mmap, sys, time
from pathlib import Path
import gates
from hermes_state.errors import LeaseHeld
from hermes_state.host import Run, Waits, open_host
from hermes_state.host.gateway_lock import acquire

folder, kind, rounds, me, meeting = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
with open(meeting, "r+b") as file:
    shared = mmap.mmap(file.fileno(), 8)

def meet(step):
    shared[4 * me : 4 * me + 4] = step.to_bytes(4, "big")
    other = 4 * (1 - me)
    while int.from_bytes(shared[other : other + 4], "big") < step:
        time.sleep(0)

waits = Waits(identify=1.0, settle=0.0, poll=0.0, rescan=0.0)
host = open_host(folder) if kind == "token" else None
won = []
gates.reach("ready")
gates.wait("go")
for number in range(rounds):
    kept = None
    meet(2 * number + 1)
    if kind == "token":
        try:
            kept = host.tokens.acquire("telegram", f"credential {number}", profile=str(me), term_seconds=3600.0)
        except LeaseHeld as error:
            assert error.note["profile"] == str(1 - me), error.note
    else:
        one = open_host(folder / str(number), waits=waits)
        kept = one.enter(Run(home=f"/h/{me}"), answers=False).member
    meet(2 * number + 2)
    if kept is not None:
        won.append(f"{number} {kept.fence}")
        if kind == "host":
            kept.leave(reason="next round")
    if kind == "host":
        one.close()
gates.reach("done", "\\n".join(won))
"""


def race(tmp_path: Path, child: Children, kind: str, rounds: int) -> collections.Counter[str]:
    """The races; who won how many."""
    folder = folder_of(tmp_path) if kind == "token" else tmp_path / "state"
    stale = child(LEAVES_STALE, folder, kind, rounds)
    stale.wait_for("held", 600.0)
    stale.kill()
    meeting = tmp_path / "meeting"
    meeting.write_bytes(bytes(8))
    racers: list[Child] = [child(RACER, folder, kind, rounds, number, meeting) for number in range(2)]
    for racer in racers:
        racer.wait_for("ready")
    for racer in racers:
        racer.release("go")
    won: collections.Counter[str] = collections.Counter()
    winners: dict[str, list[str]] = collections.defaultdict(list)
    for number, racer in enumerate(racers):
        for line in racer.wait_for("done", 1200.0).splitlines():
            one, fence = line.split()
            winners[one].append(fence)
            won[f"racer {number}"] += 1
    # The stale one had fence 1; exactly one of both has the next.
    assert {one: fences for one, fences in winners.items() if fences != ["2"]} == {}
    assert len(winners) == rounds
    return won


@pytest.mark.slow
def test_t2_13_one_of_two_gets_a_stale_token_lock(tmp_path: Path, child: Children) -> None:
    race(tmp_path, child, "token", 5)


@pytest.mark.slow
def test_one_of_two_becomes_the_owner_after_a_dead_one(tmp_path: Path, child: Children) -> None:
    race(tmp_path, child, "host", 5)


@pytest.mark.campaign
@pytest.mark.parametrize("kind", ["token", "host"])
def test_t2_13_many_races_for_one_stale_lock(tmp_path: Path, child: Children, kind: str) -> None:
    began = time.monotonic()
    rounds = ROUNDS if kind == "token" else min(ROUNDS, 200)
    won = race(tmp_path, child, kind, rounds)
    print(f"\n{rounds} races of kind {kind} in {time.monotonic() - began:.0f} s: {dict(won)}")
    assert sum(won.values()) == rounds


STATUS_WRITER = """
import sys
from pathlib import Path
import gates
from hermes_state.host import PlatformState, Run, open_host
folder, me, writes = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
host = open_host(folder)
member = host.enter(Run(home=f"/h/{me}"), force=True, answers=False).member
gates.reach("ready", str(member.gateway_no))
gates.wait("go")
for number in range(writes):
    host.report(member, home="/h/shared", platform=f"platform {number % 10}", state=PlatformState.CONNECTED)
    if number % 10 == 0:
        member.beat(active_agents=number)
gates.reach("done")
gates.wait("end")
"""


@pytest.mark.slow
def test_t2_12_two_that_write_status_at_once_lose_no_platform_of_each_other(tmp_path: Path, child: Children) -> None:
    folder = folder_of(tmp_path)
    writers = [child(STATUS_WRITER, folder, number, 1000) for number in range(2)]
    rows = [int(writer.wait_for("ready")) for writer in writers]
    for writer in writers:
        writer.release("go")
    for writer in writers:
        writer.wait_for("done", 300.0)
    with open_host(folder) as host:
        statuses = {status.judged.gateway.no: status for status in host.statuses()}
    assert sorted(statuses) == sorted(rows)
    for no, writer in zip(rows, writers, strict=True):
        status = statuses[no]
        identity = status.judged.gateway.identity
        assert identity is not None and identity.pid == writer.pid  # who says it is who wrote it
        assert [one.platform for one in status.platforms] == [f"platform {number}" for number in range(10)]
        assert {one.gateway_no for one in status.platforms} == {no}
        assert (status.judged.gateway.beats, status.judged.gateway.active_agents) == (100, 990)
        assert status.is_fresh
