"""The stand-in gateway and its conductor: lists and plans carried out by real processes, some of them killed.

What an agent runtime does with the host's verdicts is done here by `examples/`: the flags reach the code (T2.4, R47),
all are started and restarted (T2.7, R51), the launched home's own `.env` wins (R53), a gateway outlives the app that
began it (R56), one gateway for all.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hermes_state.host import Host, Kind, MarkerKind, RunState, Seen, Waits, open_host
from hermes_state.host.living import Judged
from tests.examples.programs import Program
from tests.support.children import PROJECT, Children

SEED = int(os.environ.get("HERMES_STATE_SEED", "7000"))
ROUNDS = int(os.environ.get("HERMES_STATE_ROUNDS", "20"))
TICK = ("--tick", "0.05")
SUPERVISORS = ("INVOCATION_ID", "HERMES_S6_SUPERVISED_CHILD", "XPC_SERVICE_NAME", "HERMES_GATEWAY_EXTERNAL_SUPERVISOR")
pytestmark = pytest.mark.slow


class Stand:
    """An installation with three homes, and a host of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "root"
        self.homes = [self.root, self.root / "profiles" / "side", self.root / "profiles" / "work"]
        for home in self.homes:
            home.mkdir(parents=True)
            (home / ".env").write_text(f"TELEGRAM_BOT_TOKEN=token of {home.name}\n")
        self.started: list[Program] = []
        self.host: Host = open_host(folder / "state" / "hermes", waits=Waits(identify=20.0))

    def gateway(self, home: Path, *words: str) -> Program:
        program = Program("host_gateway.py", self.folder, "--home", home, *TICK, *words)
        self.started.append(program)
        return program

    def serving(self, home: Path, *words: str) -> Program:
        program = self.gateway(home, *words)
        program.until("serving", home=str(home))
        return program

    def conduct(self, verb: str, *homes: Path) -> Program:
        program = Program("host_conductor.py", self.folder, verb, *homes, "--tick=0.05")
        self.started.append(program)
        return program

    def conducted(self, verb: str, *homes: Path, code: int = 0) -> list[dict[str, object]]:
        program = self.conduct(verb, *homes)
        assert program.process.wait(90) == code, program.everything()
        program.kill()  # it ended; the thread that listens reads what was said last
        return program.said

    def alive(self) -> list[Judged]:
        return [one for one in self.host.gateways() if one.may_live]

    def served(self) -> dict[str, list[str]]:
        """Home of each gateway -> whom it says that it serves."""
        return {one.home: sorted(said.served or ()) for one, said in self.host.probe.ask_all() if said is not None}

    def connected(self) -> list[str]:
        """Homes whose bot a living run says is connected."""
        return sorted(
            one.home for status in self.host.statuses() if status.judged.may_live for one in status.platforms
            if one.state == "connected"
        )

    def wait(self, what: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60.0
        while not what():
            assert time.monotonic() < deadline, (self.served(), self.connected())
            time.sleep(0.01)

    def close(self) -> None:
        for one in self.alive():
            if one.gateway.identity is not None:
                os.kill(one.gateway.identity.pid, signal.SIGKILL)  # those that a conductor began
        for program in self.started:
            program.close()
        self.host.close()


@pytest.fixture(name="stand")
def a_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stand]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TELEGRAM_BOT_TOKEN", "token of the boot")
    for name in SUPERVISORS:
        monkeypatch.delenv(name, raising=False)
    made = Stand(tmp_path)
    yield made
    made.close()


def names(homes: list[Path]) -> list[str]:
    return sorted(map(str, homes))


def test_r47_r53_replace_and_force_reach_the_code_and_a_home_reads_its_own_settings(stand: Stand) -> None:
    """T2.4 by the program: replace ends the real owner as planned; force starts and asks nobody."""
    (stand.homes[2] / ".env").unlink()
    owner = stand.serving(stand.root, "--multiplex", "--busy", "0.2")
    # R53: the launched home's own .env before the frozen environment; R90: another home never borrows from that.
    held = {token: stand.host.tokens.look("telegram", token) for token in ("token of root", "token of the boot")}
    assert held["token of root"] is not None and held["token of the boot"] is None
    assert stand.connected() == names(stand.homes[:2])
    # T2.14: it drains once it is told, until its work is done, and resumes.
    (one,) = stand.alive()
    assert one.gateway.identity is not None
    for kind, event, state in (
        (MarkerKind.DRAIN, "draining", RunState.DRAINING), (MarkerKind.RESUME, "resumed", RunState.RUNNING)
    ):
        placed = stand.host.markers.place(kind, home=str(stand.root), target=one.gateway.identity, reason="an update")
        assert placed is not None
        assert owner.until(event) == {"event": event, "reason": "an update", "quiet": False}
        assert stand.alive()[0].gateway.state is state
    forced = stand.gateway(stand.homes[1], "--force")
    assert forced.until("decided")["asked"] == 0
    forced.until("waits for its token", holder=str(stand.homes[1]))
    replaced = stand.gateway(stand.homes[2], "--replace", "--multiplex")
    assert owner.until("left")["why"] == "takeover"
    assert owner.process.wait(60) == 0
    assert replaced.until("serving")["owns"] is True
    stand.wait(lambda: stand.connected().count(str(stand.homes[1])) == 1)  # whoever was faster; never both
    forced.kill()
    stand.wait(lambda: stand.served() == {str(stand.homes[2]): names(stand.homes)})


def test_a_plan_is_carried_out_from_a_gateway_a_home_to_one_for_all(stand: Stand) -> None:
    """Drained before they end, ended as planned, and the next one has their tokens."""
    homes = stand.homes[:2]
    gateways = [stand.serving(home) for home in homes]
    said = stand.conducted("migrate", *homes)
    steps = [one["do"] for one in said if one["event"] == "step" and one["do"] != "wait"]
    # What is served is settled at the start, or when it is asked to look: then by one step more.
    assert steps in (["multiplex", "drain"], ["multiplex", "rescan", "drain"])
    for gateway in gateways:
        assert gateway.process.wait(60) == 0
        assert gateway.until("left")["why"] == "planned_stop"
        assert [one["event"] for one in gateway.said][-2:] == ["draining", "left"]
    assert stand.served() == {str(stand.root): names(stand.homes)}
    stand.wait(lambda: stand.connected() == names(stand.homes))


@pytest.mark.campaign
def test_r51_all_are_started_and_restarted_and_nobody_else_is_touched(stand: Stand) -> None:
    """T2.7 by the program, with real processes."""
    stand.conducted("start-all", *stand.homes[1:])
    before = {one.gateway.home: one.gateway.no for one in stand.alive()}
    assert stand.served() == {str(home): [str(home)] for home in stand.homes[1:]}
    lines = [one for one in stand.conducted("start-all", *stand.homes[1:]) if one["event"] == "line"]
    assert [one["does"] for one in lines] == ["served", "served"]
    assert {one.gateway.home: one.gateway.no for one in stand.alive()} == before
    said = stand.conducted("restart-all", stand.homes[1])
    assert [one["does"] for one in said if one["event"] == "line"] == ["restart", "served"]
    after = {one.gateway.home: one.gateway.no for one in stand.alive()}
    work = str(stand.homes[2])
    assert after[work] == before[work] and after[str(stand.homes[1])] > before[work]
    stand.conducted("migrate", *stand.homes)
    (alive,) = stand.alive()
    other = stand.folder / "another"
    other.mkdir()
    line = stand.conducted("restart-all", other, code=78)[0]
    assert line["does"] == "refuse"
    assert [one.gateway.no for one in stand.alive()] == [alive.gateway.no]


def test_r56_a_gateway_outlives_the_app_that_began_it_and_a_server_does_not(stand: Stand, child: Children) -> None:
    app = child(APP, PROJECT / "examples" / "host_gateway.py", stand.root)
    app.wait_for("began")
    stand.wait(lambda: len(stand.alive()) == 2 and stand.served() == {str(stand.root): [str(stand.root)]})
    pids = {one.gateway.kind: one.gateway.identity and one.gateway.identity.pid for one in stand.alive()}
    app.kill()  # and all that is in its session
    stand.wait(lambda: len(stand.alive()) == 1)
    (left,) = stand.alive()
    assert (left.gateway.kind, left.gateway.identity and left.gateway.identity.pid) == (
        Kind.GATEWAY, pids[Kind.GATEWAY]
    )
    stand.host.probe.forget()
    assert stand.host.host_gateway().seen is Seen.LIVE and stand.served() == {str(stand.root): [str(stand.root)]}


APP = """
import subprocess, sys
import gates
program, home = sys.argv[1:]
words = [sys.executable, program, "--home", home, "--tick", "0.05"]
quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
subprocess.Popen(words, start_new_session=True, **quiet)  # the gateway is on its own
subprocess.Popen([*words, "--serve"], **quiet)  # the control plane dies with the app
gates.reach("began")
gates.wait("never")
"""


@pytest.mark.campaign
def test_kills_at_any_moment_of_a_migration_leave_a_host_that_converges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gateways and the conductor are killed at random moments; the next conductor comes to the same end."""
    began, killed = time.monotonic(), {"conductor": 0, "gateway": 0}
    for name in SUPERVISORS:
        monkeypatch.delenv(name, raising=False)
    for seed in range(SEED, SEED + ROUNDS):
        chance = random.Random(seed)
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / str(seed) / "state"))
        stand = Stand(tmp_path / str(seed))
        try:
            for home in stand.homes:
                stand.serving(home)
            for _ in range(2):
                migrate_and_kill(stand, chance, killed)
            stand.conducted("migrate", *stand.homes)
            (served,) = stand.served().values()
            assert served == names(stand.homes), seed
            stand.wait(lambda stand=stand: stand.connected() == names(stand.homes))
        finally:
            stand.close()
    print(f"\n{ROUNDS} migrations from seed {SEED} in {time.monotonic() - began:.0f} s, killed {killed}")


def migrate_and_kill(stand: Stand, chance: random.Random, killed: dict[str, int]) -> None:
    conductor = stand.conduct("migrate", *stand.homes)
    time.sleep(chance.random() * 2.0)
    if chance.random() < 0.5:
        killed["conductor"] += conductor.process.poll() is None
        conductor.kill()
    elif alive := stand.alive():
        one = chance.choice(alive)
        if one.gateway.identity is not None:
            killed["gateway"] += 1
            os.kill(one.gateway.identity.pid, signal.SIGKILL)
        conductor.process.wait(120)  # it may be refused: what it waited for is gone


def test_a_gateway_whose_host_file_is_removed_or_damaged_goes_on_and_decides_anew(stand: Stand) -> None:
    home = stand.homes[1]
    host = stand.folder / "state" / "hermes" / "host.db"
    stand.host.close()
    program = stand.serving(home)
    for path in (host, Path(f"{host}-wal"), Path(f"{host}-shm")):
        path.unlink()
    program.until("lost the host")
    program.until("serving", home=str(home))
    for path in (Path(f"{host}-wal"), Path(f"{host}-shm")):
        path.unlink()
    host.unlink()
    host.write_bytes(b"no database at all, but long enough to look at" * 100)
    told = program.until("serving unseen")
    assert told["answers"] is True
    # Another start for that home finds it, though nothing can be written or read.
    assert stand.gateway(home, "--standalone").until("decided")["reason"] == "served_by_other"
    assert program.process.poll() is None
    stand.host = open_host(stand.folder / "other" / "hermes")  # what the stand closes
