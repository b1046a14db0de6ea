"""Random lives of several gateways on one host: one owner, a fence that rises, nobody served twice, no false attach."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from pathlib import Path

import pytest

from hermes_state.host import Attach, Membership, Outcome, ReplaceHost, RunState, Start, Supervisor
from tests.hermes_state.host.hosts import Party, run

SEED = int(os.environ.get("HERMES_STATE_SEED", "300"))
ROUNDS = int(os.environ.get("HERMES_STATE_ROUNDS", "200"))
HOMES = [f"/h/{number}" for number in range(4)]


@dataclass
class Living:
    """One run that was not ended here."""

    party: Party
    member: Membership
    multiplex: bool
    settled: bool = False

    def serves(self) -> set[str]:
        return set(self.member.answer.served or ())


class Machine:
    """The model: what lives, and what was seen of the fence."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.chance = folder, random.Random(seed)
        self.living: list[Living] = []
        self.fence = 0
        self.said: list[str] = []

    def start(self) -> None:
        home = self.chance.choice(HOMES)
        alone = self.chance.random() < 0.4
        supervisor = self.chance.choice(list(Supervisor))
        replaces = self.chance.random() < 0.3
        party = Party(self.folder)

        def end(pid: int, number: int) -> None:
            owner = next(one for one in self.living if one.member.owns_host)
            assert replaces and supervisor is Supervisor.NONE
            self.kill(owner)

        looks_again = self.chance.random() < 0.5

        def rescan() -> set[str]:
            """Called while another start asks: what it serves, and, of one that looks, what nobody has."""
            one = next(one for one in self.living if one.party is party)
            return one.serves() | (self.free(one) if looks_again else set())

        entered = party.host.enter(
            run(home, supervisor), replace=replaces, standalone=alone, rescan=rescan, signal=end
        )
        verdict = entered.verdict
        self.said.append(f"{home} {supervisor} alone={alone} replace={replaces}: {verdict.reason}")
        serving = [one for one in self.living if home in one.serves()]
        assert not isinstance(verdict, ReplaceHost)
        if isinstance(verdict, Attach):
            assert serving and verdict.served == serving[0].serves()
        elif isinstance(verdict, Start):
            assert not serving, self.said
            member = entered.member
            assert member is not None
            if member.fence is not None:
                assert member.fence > self.fence
                self.fence = member.fence
            self.living.append(Living(party, member, not alone))
            return
        party.host.close()
        party.die()

    def settle(self, one: Living) -> None:
        if one.settled:
            return
        one.settled = True
        homes = {one.member.run.home}
        if one.multiplex and self.chance.random() < 0.6:
            homes |= self.free(one)
        one.member.settle(homes, multiplex=one.multiplex)
        one.member.move(RunState.RUNNING)

    def free(self, one: Living) -> set[str]:
        """What a gateway for several homes may take on: every home that nobody else has."""
        others = [other for other in self.living if other is not one]
        taken = {home for other in others for home in (*other.serves(), other.member.run.home)}
        return set(HOMES) - taken

    def kill(self, one: Living) -> None:
        self.said.append(f"killed {one.member.run.home}")
        one.member._voice.close()  # type: ignore[union-attr]
        if one.member._lock is not None:
            one.member._lock.release()
        one.party.die()
        self.living.remove(one)

    def step(self) -> None:
        kind = self.chance.random()
        if kind < 0.5 or not self.living:
            self.start()
        elif kind < 0.75:
            self.settle(self.chance.choice(self.living))
        elif kind < 0.85:
            self.kill(self.chance.choice(self.living))
        else:
            one = self.chance.choice(self.living)
            one.member.leave(reason="leaves")
            one.party.die()
            self.living.remove(one)
        self.check()

    def check(self) -> None:
        owners = [one for one in self.living if one.member.owns_host]
        assert len(owners) <= 1, self.said
        homes = [one.member.run.home for one in self.living]
        assert len(homes) == len(set(homes)), self.said
        served = [home for one in self.living for home in one.serves()]
        assert len(served) == len(set(served)), self.said

    def end(self) -> None:
        for one in self.living:
            one.member.leave(reason="the end")
            one.party.die()
        last = Party(self.folder)
        entered = last.host.enter(run(HOMES[0], Supervisor.SYSTEMD))
        assert entered.verdict.outcome is Outcome.START and entered.member is not None and entered.member.owns_host
        assert entered.member.fence == self.fence + 1
        entered.member.leave(reason="the end")


def one_round(folder: Path, seed: int) -> list[str]:
    machine = Machine(folder, seed)
    for _ in range(20):
        machine.step()
    machine.end()
    return machine.said


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEED, SEED + 5))
def test_a_few_random_lives(tmp_path: Path, seed: int) -> None:
    one_round(tmp_path / "state" / "hermes", seed)


@pytest.mark.campaign
def test_many_random_lives(tmp_path: Path) -> None:
    said: list[str] = []
    for seed in range(SEED, SEED + ROUNDS):
        said += one_round(tmp_path / str(seed) / "hermes", seed)
    reasons = {line.rpartition(": ")[2] for line in said if ": " in line}
    print(f"\n{ROUNDS} rounds, {len(said)} starts and kills, reasons: {sorted(reasons)}")
    assert {"no_owner", "served", "beside_standalone", "not_settled", "excluded", "served_by_other"} <= reasons
