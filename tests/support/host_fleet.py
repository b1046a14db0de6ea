"""A fleet of gateways under a supervisor, as one program: forks units, honours exit codes, says how each round ended.

    host_fleet.py FOLDER ROUNDS SEED SUPERVISOR READING TOPOLOGY EVENTS DELAY

Each round boots eleven units in random order; each is a process of its own that starts as a gateway does. A unit that
exits is started again after DELAY seconds, or parked, as the table of fates says. EVENTS, one letter each, happen at
random moments from the first on: k, the host's owner is killed; r, a person replaces it for a moment and is killed as
well. One JSON line a round. A process that asks from outside, as a person
would, says whether every home is served by exactly one live gateway and one process owns the host.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path

from hermes_state.host import (
    FATES,
    Fate,
    MarkerKind,
    Reading,
    Run,
    RunState,
    Seen,
    Supervisor,
    Waits,
    exit_code,
    open_host,
    start,
    stop_code,
)
from hermes_state.host.layout import HOST

UNITS = 11
PATIENCE_SECONDS = 60.0
# An answer takes as long as a busy machine needs; nobody here is silent and alive.
WAITS = Waits(identify=10.0, settle=1.0, poll=0.01, rescan=10.0, leave=5.0)
# Which homes are configured to have a gateway of their own.
STANDALONE = {"multiplex": range(0), "standalone": range(UNITS), "mixed": range(0, UNITS, 3)}


def home_of(number: int) -> str:
    return f"/homes/{number}"


def unit(folder: Path, number: int, supervisor: Supervisor, topology: str, seed: int) -> int:
    """One start of one unit; gives what it exits with."""
    # Taken by one thread that waits for it: a handler may come between the last look and the wait, and never run.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    chance = random.Random(seed)
    alone = number in STANDALONE[topology]
    together = [home_of(one) for one in range(UNITS) if one not in STANDALONE[topology]]
    served = [home_of(number)] if alone else together
    run = Run(home=home_of(number), supervisor=supervisor, label=f"unit-{number}")
    host, entered = start(run, folder=folder, standalone=alone, waits=WAITS, rescan=lambda: served)
    code = exit_code(entered.verdict.outcome, supervisor)
    if code is not None:
        return code
    member = entered.member
    if host is None or member is None:
        return 1
    # The served set is settled a moment after the claim, as by a gateway that starts its adapters first.
    time.sleep(chance.random() * 0.05)

    member.settle(served, multiplex=not alone)
    member.move(RunState.RUNNING)
    signal.sigwait({signal.SIGTERM})
    marker = host.markers.take(MarkerKind.TAKEOVER)
    member.leave(reason="stopped")
    os._exit(stop_code(marker and marker.kind, supervisor))


def person(folder: Path, seed: int) -> int:
    """Somebody who replaces the owner by hand, serves what it served for a moment, and is gone without a word."""
    chance = random.Random(seed)
    with open_host(folder, waits=WAITS) as host:
        for _ in range(200):
            host.probe.forget()
            view = host.host_gateway()
            if view.answer is not None and view.owner is not None and view.answer.state is RunState.RUNNING:
                break
            time.sleep(0.01)
        else:
            return 1
        served = sorted(view.answer.served or ())
        entered = host.enter(Run(home=view.owner.home), replace=True)
        if entered.member is None:
            return 0  # it was not the owner any more, and is served
        entered.member.settle(served, multiplex=bool(view.answer.multiplex))
        entered.member.move(RunState.RUNNING)
        time.sleep(chance.random() * 0.3)
        os._exit(0)


def fork(work: object, *args: object) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 99
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        code = work(*args)  # type: ignore[operator]
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def kill_owner(folder: Path) -> int:
    """Kill whoever owns the host, once there is one; 0 when it was done."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    with open_host(folder, waits=WAITS) as host:
        while time.monotonic() < deadline:
            host.probe.forget()
            view = host.host_gateway()
            if view.seen is Seen.LIVE and view.owner is not None and view.owner.identity is not None:
                os.kill(view.owner.identity.pid, signal.SIGKILL)
                return 0
            time.sleep(0.002)
    return 1


def look(folder: Path) -> int:
    """Wait until everything is as it has to be; 0 when it is, with the sight on stdout otherwise."""
    from hermes_state.host.asking import Question, ask

    deadline = time.monotonic() + PATIENCE_SECONDS
    wanted = sorted(home_of(number) for number in range(UNITS))
    with open_host(folder, waits=WAITS) as host:
        while True:
            host.probe.forget()
            view = host.host_gateway()
            found, gateways = [], 0
            for judged in host.gateways():
                if judged.may_live:
                    gateways += 1
                    said = ask(judged.gateway.party(), Question.IDENTIFY)
                    found += sorted(said.served or ()) if said is not None and said.state is RunState.RUNNING else []
            if sorted(found) == wanted and view.seen is Seen.LIVE:
                return 0
            if len(found) != len(set(found)):
                print(f"served twice: {sorted(found)}", file=sys.stderr)
                return 2
            if time.monotonic() > deadline:
                print(f"{view.seen} {view.because} {gateways} gateways serve {sorted(found)}", file=sys.stderr)
                return 1
            time.sleep(0.02)


class Fleet:
    """The supervisor of one round."""

    def __init__(self, folder: Path, supervisor: Supervisor, reading: Reading, topology: str, delay: float) -> None:
        self.folder, self.supervisor, self.topology, self.delay = folder, supervisor, topology, delay
        self.fates = FATES[reading]
        self.chance = random.Random()
        self.units: dict[int, int] = {}  # pid -> number
        self.due: dict[int, float] = {}  # number -> when it is started again
        self.parked: list[int] = []
        self.starts = 0
        self.codes: dict[str, int] = {}
        self.others: dict[int, int | None] = {}  # pid -> exit code of what is no unit

    def boot(self, number: int) -> None:
        self.starts += 1
        pid = fork(unit, self.folder, number, self.supervisor, self.topology, self.chance.getrandbits(32))
        self.units[pid] = number

    def step(self) -> None:
        """Reap what ended, start what is due."""
        pid, status = os.waitpid(-1, os.WNOHANG) if self.units or self.others else (0, 0)
        if pid in self.units:
            number = self.units.pop(pid)
            code = os.waitstatus_to_exitcode(status)
            self.codes[str(code)] = self.codes.get(str(code), 0) + 1
            # A death by signal or another failure is started again by each of them.
            fate = self.fates.get((self.supervisor, code), Fate.RESTARTED)
            if fate is Fate.PARKED:
                self.parked.append(number)
            else:
                self.due[number] = time.monotonic() + self.delay
        elif pid:
            self.others[pid] = os.waitstatus_to_exitcode(status)
        else:
            time.sleep(0.002)
        for number in [number for number, at in self.due.items() if time.monotonic() >= at]:
            del self.due[number]
            self.boot(number)

    def until(self, pid: int) -> int:
        """Supervise until that other process ended; gives its exit code."""
        self.others[pid] = None
        while self.others[pid] is None:
            self.step()
        code = self.others.pop(pid)
        return 99 if code is None else code

    def stop(self) -> None:
        for pid in self.units:
            os.kill(pid, signal.SIGKILL)
        for pid in self.units:
            os.waitpid(pid, 0)
        self.units.clear()


def one_round(folder: Path, seed: int, fleet: Fleet, events: str) -> dict[str, object]:
    fleet.chance.seed(seed)
    order = list(range(UNITS))
    fleet.chance.shuffle(order)
    begun = time.monotonic()
    try:
        for number in order:
            fleet.boot(number)
        done = 0
        for event in events:
            # At a random moment of the boot, or of what follows the kill before.
            until = time.monotonic() + fleet.chance.random() * 0.6
            while time.monotonic() < until:
                fleet.step()
            does = (kill_owner, folder) if event == "k" else (person, folder, fleet.chance.getrandbits(32))
            done += fleet.until(fork(*does)) == 0
        code = fleet.until(fork(look, folder))
    finally:
        fleet.stop()
    return {
        "seed": seed, "look": code, "parked": fleet.parked, "starts": fleet.starts, "codes": fleet.codes,
        "events": done, "seconds": round(time.monotonic() - begun, 2),
    }


def main() -> None:
    base, rounds, seed, supervisor, reading, topology, events, delay = sys.argv[1:]
    assert HOST.sql and HOST.steps  # read once, for every unit that is forked
    for number in range(int(rounds)):
        folder = Path(base) / f"{seed}-{number}" / "hermes"
        fleet = Fleet(folder, Supervisor(supervisor), Reading(reading), topology, float(delay))
        print(json.dumps(one_round(folder, int(seed) + number, fleet, events.strip("-"))), flush=True)


if __name__ == "__main__":
    main()
