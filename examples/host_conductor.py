"""Carries out what the lists and plans of a host say, with gateways of host_gateway.py.

`python examples/host_conductor.py VERB HOME... [--OPTION=VALUE of the gateways]`, where VERB is one of

    drain HOME               the gateway of that home finishes what it has and takes nothing new
    resume HOME              it takes new work again
    stop HOME                it drains and ends as planned
    start-all HOME...        a gateway for each home that nobody serves; nobody is ended
    restart-all HOME         the gateway that serves that home, and no other, is ended and started, serving as much
    migrate HOME...          from one gateway a home to one for all, step by step

The host says what is to be done, as data; here it is done. Only gateways that a person started are: of a unit its
supervisor has to be told, so the words for that are shown. Each thing done is a line of JSON.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from host_gateway import say

from hermes_state.host import Host, MarkerKind, RunState, Supervisor, open_host
from hermes_state.host.asking import Question, ask
from hermes_state.host.converge import Do, Step
from hermes_state.host.everyone import Does, ForHomes
from hermes_state.host.records import Gateway

PATIENCE_SECONDS = 60.0
LOOK_SECONDS = 0.05


class Refused(Exception):
    """What was to be done cannot be done from here."""


class Conductor:
    """What can be done to gateways. `words` are further options of each gateway that is started."""

    def __init__(self, host: Host, words: Sequence[str]) -> None:
        self._host = host
        self._words = list(words)

    # --- one gateway -----------------------------------------------------------------------------------------

    def of(self, home: str) -> Gateway:
        """The gateway that was started for a home."""
        for one in self._host.gateways():
            if one.may_live and one.gateway.home == home:
                return one.gateway
        raise Refused(f"no gateway was started for {home}")

    def mark(self, gateway: Gateway, kind: MarkerKind, reason: str) -> None:
        if gateway.identity is None:
            raise Refused(f"who gateway {gateway.no} is cannot be read")
        self._host.markers.place(kind, home=gateway.home, target=gateway.identity, reason=reason)

    def drain(self, gateway: Gateway, reason: str) -> None:
        """Until it takes nothing new and has nothing left; a marker counts for a minute, so it is left again."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (now := self._now(gateway)) is not None and now.state in (RunState.STARTING, RunState.RUNNING):
            self.mark(gateway, MarkerKind.DRAIN, reason)
            self._rest(deadline, f"gateway {gateway.no} does not drain")
        while (now := self._now(gateway)) is not None and now.active_work:
            self._rest(deadline, f"gateway {gateway.no} has work left")
        say("drained", home=gateway.home)

    def stop(self, gateway: Gateway, reason: str) -> None:
        """Drain, then end as planned. Raises `Refused` for a unit of a supervisor, which would start it again."""
        from hermes_state.host.code import stop_words

        if gateway.supervisor is not Supervisor.NONE:
            raise Refused(f"gateway {gateway.no} is started by {gateway.supervisor}: {stop_words(gateway)}")
        self.drain(gateway, reason)
        self.mark(gateway, MarkerKind.PLANNED_STOP, reason)
        assert gateway.identity is not None  # it was marked
        if self._now(gateway) is not None:  # proven to live a moment ago, and its pid is in its identity
            os.kill(gateway.identity.pid, signal.SIGTERM)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._now(gateway) is not None:
            self._rest(deadline, f"gateway {gateway.no} does not end")
        self._host.retract_dead()
        say("stopped", home=gateway.home)

    def start(self, home: str, *, multiplex: bool = False) -> None:
        """Start a gateway and wait until somebody says that the home is served. Raises `Refused` when it ends."""
        program = Path(__file__).with_name("host_gateway.py")
        words = [*self._words, *(["--multiplex"] if multiplex else [])]
        # A session of its own and no pipe of ours: it lives on when this process ends.
        began = subprocess.Popen(
            [sys.executable, str(program), "--home", home, *words], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, start_new_session=True,
        )
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not any(answer is not None and answer.serves(home) for _one, answer in self._host.probe.ask_all()):
            if (code := began.poll()) not in (None, 0):
                raise Refused(f"the gateway of {home} ended with {code}")
            self._rest(deadline, f"nobody serves {home}")
        say("started", home=home, pid=began.pid, multiplex=multiplex)

    def _now(self, gateway: Gateway) -> Gateway | None:
        """What its row says now; None once it is proven to be gone."""
        runs = (one.gateway for one in self._host.gateways() if one.may_live)
        return next((one for one in runs if one.no == gateway.no), None)

    def _rest(self, deadline: float, problem: str) -> None:
        if time.monotonic() > deadline:
            raise Refused(f"{problem} within {PATIENCE_SECONDS:g} s")
        time.sleep(LOOK_SECONDS)

    # --- lists and plans -------------------------------------------------------------------------------------

    def carry_out(self, lines: list[ForHomes]) -> int:
        """A list of `start_all` or `restart_all`; gives the exit code of the worst line."""
        for line in lines:
            say("line", does=line.does, homes=line.homes, how=line.how)
            if line.does is Does.START:
                for home in line.homes:
                    self.start(home)
            elif line.does is Does.RESTART and line.gateway is not None:
                self.stop(line.gateway, "restart")
                self.start(line.gateway.home, multiplex=bool(line.gateway.multiplex))
        return max((line.exit_code for line in lines), default=0)

    def migrate(self, homes: list[str]) -> int:
        """One step at a time, and the plan anew after each: others start and stop meanwhile."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while steps := self._host.plan_multiplex(homes):
            say("step", do=steps[0].do, homes=steps[0].homes, how=steps[0].how)
            self._step(steps[0], homes)
            self._rest(deadline, "the plan does not come to its end")
        return 0

    def _step(self, step: Step, homes: list[str]) -> None:
        gateway = step.gateway
        if step.do is Do.START:
            self.start(homes[0], multiplex=True)
        elif gateway is None or step.do is Do.WAIT:
            return
        elif step.do is Do.RESCAN:
            ask(gateway.party(), Question.RESCAN, PATIENCE_SECONDS)
        else:
            self.stop(gateway, "one gateway for all")
            if step.do is Do.MULTIPLEX:
                self.start(gateway.home, multiplex=True)


def main() -> int:
    if len(sys.argv) < 3 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return 0 if len(sys.argv) == 2 else 2
    verb, words = sys.argv[1], sys.argv[2:]
    options = [word for word in words if word.startswith("--")]  # for the gateways, such as --tick=0.1
    homes = [os.path.realpath(word) for word in words if not word.startswith("--")]
    with open_host() as host:
        conductor = Conductor(host, options)
        verbs: dict[str, Callable[[], object]] = {
            "drain": lambda: conductor.drain(conductor.of(homes[0]), "a person asked"),
            "resume": lambda: conductor.mark(conductor.of(homes[0]), MarkerKind.RESUME, "a person asked"),
            "stop": lambda: conductor.stop(conductor.of(homes[0]), "a person asked"),
            "start-all": lambda: conductor.carry_out(host.start_all(homes)),
            "restart-all": lambda: conductor.carry_out(host.restart_all(homes[0])),
            "migrate": lambda: conductor.migrate(homes),
        }
        if verb not in verbs:
            print(__doc__)
            return 2
        try:
            return int(str(verbs[verb]() or 0))
        except Refused as error:
            say("refused", because=str(error))
            return 1


if __name__ == "__main__":
    sys.exit(main())
