"""Eleven gateways under a supervisor that honours 0, 75 and 78: all homes end up served, none parked, one owner.

For s6 and launchd the sources differ about an exit with 0, so both readings are run. A fleet is one of three: one
gateway for all homes, one a home, or some of each.
"""

from __future__ import annotations

import collections
import json
import os
import time
from itertools import product
from pathlib import Path

import pytest

from hermes_state.host import Reading, Supervisor
from tests.support.children import SUPPORT, Children

SEED = int(os.environ.get("HERMES_STATE_SEED", "7000"))
ROUNDS = int(os.environ.get("HERMES_STATE_ROUNDS", "200"))
KINDS = [
    (Supervisor.SYSTEMD, Reading.RELEASE), (Supervisor.S6, Reading.RELEASE), (Supervisor.S6, Reading.CHANGE_LOG),
    (Supervisor.LAUNCHD, Reading.RELEASE), (Supervisor.LAUNCHD, Reading.CHANGE_LOG),
]
TOPOLOGIES = ("multiplex", "standalone", "mixed")
DELAY_SECONDS = 0.05


def rounds(
    child: Children, folder: Path, count: int, seed: int, kind: tuple[Supervisor, Reading], topology: str, events: str
) -> list[dict[str, object]]:
    """Run a fleet `count` times and judge each round."""
    fleet = child(SUPPORT / "host_fleet.py", folder, count, seed, *kind, topology, f"-{events}", DELAY_SECONDS)
    assert fleet.wait(60.0 + 75.0 * count) == 0, fleet.output
    found: list[dict[str, object]] = [json.loads(line) for line in fleet.stdout.splitlines()]
    assert len(found) == count, fleet.output
    for one in found:
        where = f"{kind} {topology} seed {one['seed']}"
        assert (one["look"], one["parked"], one["events"]) == (0, [], len(events)), f"{where}: {one}\n{fleet.stderr}"
        codes = one["codes"]
        assert isinstance(codes, dict)
        assert set(codes) <= {"75", "-9"}, f"{where}: {one}"
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("number", "kind"), list(enumerate(KINDS)))
def test_a_booted_fleet_is_served_whole_and_again_after_its_owner_is_gone(
    tmp_path: Path, child: Children, number: int, kind: tuple[Supervisor, Reading]
) -> None:
    for index, topology in enumerate(TOPOLOGIES):
        events = ("", "k", "rk")[(number + index) % 3]
        rounds(child, tmp_path / topology, 1, SEED + number, kind, topology, events)


@pytest.mark.slow
def test_five_boots_in_random_order(tmp_path: Path, child: Children) -> None:
    rounds(child, tmp_path / "fleet", 5, SEED, (Supervisor.LAUNCHD, Reading.CHANGE_LOG), "mixed", events="")


@pytest.mark.campaign
@pytest.mark.parametrize("events", ["", "kk", "rk"])
def test_many_boots_in_random_order(tmp_path: Path, child: Children, events: str) -> None:
    """`ROUNDS` boots in all, spread over supervisors, readings and fleets; and as many with the owner killed twice, and
    with the owner replaced by a person and killed.
    """
    cells = list(product(KINDS, TOPOLOGIES))
    began, total = time.monotonic(), collections.Counter[str]()
    for number, (kind, topology) in enumerate(cells):
        count = ROUNDS // len(cells) + (number < ROUNDS % len(cells))
        for one in rounds(child, tmp_path / str(number), count, SEED + 1000 * number, kind, topology, events):
            total["rounds"] += 1
            total["starts"] += int(str(one["starts"]))
            total["events"] += int(str(one["events"]))
    print(f"\n{dict(total)} of {events!r} from seed {SEED} in {time.monotonic() - began:.0f} s")
    assert total["rounds"] == ROUNDS
