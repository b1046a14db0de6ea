"""A stand-in gateway of one user's host: `python examples/host_gateway.py --home DIR` enters, serves, and leaves.

It starts as every gateway has to: it decides, and exits with the code of its verdict, or runs. Then it settles whom it
serves, connects a bot for each home that has a token, and gives a sign of life; it drains and resumes when a marker
says so, finds new homes when another start asks, and ends on SIGTERM with the code that says whether that was planned.
SIGUSR1 ends it to be started again. Trouble with `host.db` ends no gateway: it goes on where that passes, and decides
anew where the file is another one or damaged. What happens is told in lines of JSON. host_conductor.py starts and ends
such gateways by the lists and plans of the host.

The bots are names: a token is `TELEGRAM_BOT_TOKEN`. The home that was launched has its own `.env` before the
environment of the process, which was frozen when it began; every other home has its `.env` and nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from pathlib import Path

from hermes_state.errors import (
    Corrupt,
    HostLost,
    LeaseHeld,
    LeaseLost,
    LockTimeout,
    NotAStore,
    StateError,
    StorageError,
    UnsafeProcess,
)
from hermes_state.host import (
    Entered,
    Host,
    Kind,
    MarkerKind,
    Membership,
    PlatformState,
    Run,
    RunState,
    Supervisor,
    exit_code,
    start,
    stop_code,
    supervisor_of,
)
from hermes_state.host.exits import TRY_AGAIN
from hermes_state.leases import Lease
from hermes_state.location import PROFILES, profiles_of, root_of

TOKEN = "TELEGRAM_BOT_TOKEN"


def say(event: str, **facts: object) -> None:
    print(json.dumps({"event": event, **facts}), flush=True)


def homes_for(home: str, *, multiplex: bool) -> list[str]:
    """Whom a gateway that was launched for this home serves: itself, or its whole installation."""
    if not multiplex:
        return [home]
    root = root_of(Path(home), os.environ)
    return sorted({os.path.realpath(one) for one in (root, *(root / PROFILES / name for name in profiles_of(root)))})


def environment_of(home: str, launched: str) -> dict[str, str]:
    """What a home reads: its own `.env`; the frozen environment below it only for the home that was launched."""
    found = dict(os.environ) if home == launched else {}
    try:
        lines = (Path(home) / ".env").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        lines = []
    for line in lines:
        name, is_set, value = line.partition("=")
        if is_set and not line.startswith("#"):
            found[name.strip()] = value.strip()
    return found


class Gateway:
    """One run, from its row to its end."""

    def __init__(self, host: Host, member: Membership, *, multiplex: bool, busy_seconds: float) -> None:
        self._host, self._member, self._multiplex = host, member, multiplex
        self._bots: dict[str, Lease] = {}  # home -> the lock on its token
        self._refused: set[str] = set()  # homes whose token somebody else has, told once
        self._idle_at = host.core.clock.monotonic() + busy_seconds

    def begin(self) -> None:
        home = self._member.run.home
        self._member.settle(homes_for(home, multiplex=self._multiplex), multiplex=self._multiplex)
        self._member.move(RunState.RUNNING)
        self.step()
        say("serving", home=home, served=self._served(), owns=self._member.owns_host, fence=self._member.fence)

    def step(self) -> None:
        """What is due a few times a minute. Raises `HostLost` when this run was ended by others."""
        told = self._host.follow(self._member)
        if told is not None:
            say("draining" if told.kind is MarkerKind.DRAIN else "resumed", reason=told.reason, quiet=told.quiet)
        if self._member.answer.state is RunState.RUNNING:
            for home in self._served():
                self._connect(home)
        for lock in self._bots.values():
            lock.renew()
        busy = self._host.core.clock.monotonic() < self._idle_at
        self._member.beat(active_agents=int(busy), active_work=int(busy))

    def _served(self) -> list[str]:
        return sorted(self._member.answer.served or ())

    def _connect(self, home: str) -> None:
        token = environment_of(home, self._member.run.home).get(TOKEN)
        if token is None or home in self._bots:
            return
        try:
            lock = self._host.tokens.acquire("telegram", token, profile=Path(home).name, home=home)
        except LeaseHeld as error:
            if home not in self._refused:
                self._refused.add(home)
                holder = error.facts["note"]["home"]
                self._report(home, PlatformState.RETRYING, f"its token is in use by {holder}")
                say("waits for its token", home=home, holder=holder)
            return
        self._bots[home] = lock
        self._refused.discard(home)
        self._report(home, PlatformState.CONNECTED)
        say("connected", home=home)

    def _report(self, home: str, state: PlatformState, attention: str | None = None) -> None:
        self._host.report(self._member, home=home, platform="telegram", state=state, needs_attention=attention)

    def let_go(self) -> None:
        """Give the tokens back, where that can be written; where not, the file that says so counts no more."""
        for lock in self._bots.values():
            try:
                lock.release()
            except StateError as error:
                say("kept its token", because=error.message)
        self._bots.clear()

    def end(self, *, again: bool) -> int:
        """Leave as planned, and say with which code."""
        supervisor = self._member.run.supervisor
        marker = self._host.markers.take(MarkerKind.TAKEOVER) or self._host.markers.take(MarkerKind.PLANNED_STOP)
        if again:
            self._member.request_restart()
        if self._member.answer.state is not RunState.STOPPING:
            self._member.move(RunState.STOPPING)
        for lock in self._bots.values():
            lock.release()
        why = "restart" if again else str(marker.kind) if marker else "SIGTERM that nobody announced"
        self._member.leave(reason=why)
        code = stop_code(None if marker is None else marker.kind, supervisor)
        if again:
            code = 0 if supervisor is Supervisor.NONE else TRY_AGAIN
        say("left", why=why, code=code)
        return code


def serve(entered: Entered, host: Host | None, asked: argparse.Namespace, stop: threading.Event) -> int | None:
    """One run; its exit code, or None when the host knows nothing of it any more and it has to decide anew."""
    if host is None or entered.member is None:
        # The host's record cannot be written: it runs all the same, and answers whoever asks where that is possible.
        say("serving unseen", because=entered.unwritten_because, answers=entered.unlisted is not None)
        stop.wait()
        if entered.unlisted is not None:
            entered.unlisted.leave()
        return stop_code(None, Supervisor.NONE)
    gateway = Gateway(host, entered.member, multiplex=asked.multiplex, busy_seconds=asked.busy)
    guards = host.guards(entered.member.run.home)
    if guards.wait_seconds:
        say("start storm", wait_seconds=guards.wait_seconds)
        stop.wait(guards.wait_seconds)
    begun, told = False, ""
    try:
        while True:
            try:
                if begun:
                    gateway.step()
                else:
                    gateway.begin()
                begun = True
            except (StorageError, LockTimeout) as error:
                if isinstance(error, _LASTS):
                    raise
                # A full disk, say: that passes, and what it serves does not depend on it.
                if told != error.code:
                    say("goes on", because=error.message)
                told = error.code
            if stop.wait(asked.tick):
                return gateway.end(again=AGAIN.is_set())
    except (HostLost, LeaseLost, StorageError, UnsafeProcess, LockTimeout) as error:
        say("lost the host", because=error.message)
        gateway.let_go()
        try:
            entered.member.leave(reason=f"lost the host: {error.code}")
        except StateError as left:
            say("left without a word", because=left.message)
        return stop_code(None, entered.member.run.supervisor) if stop.is_set() else None


_LASTS = (Corrupt, NotAStore)  # what no waiting mends
AGAIN = threading.Event()  # SIGUSR1 came: it ends to be started again


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", required=True, help="the home that is launched")
    parser.add_argument("--multiplex", action="store_true", help="serve the whole installation of that home")
    parser.add_argument("--standalone", action="store_true", help="this home has a gateway of its own")
    parser.add_argument("--serve", action="store_true", help="a control plane, as the Desktop app starts one")
    parser.add_argument("--replace", action="store_true", help="have the owner leave")
    parser.add_argument("--force", action="store_true", help="start whoever runs, ask nobody")
    parser.add_argument("--busy", type=float, default=0.0, help="seconds for which an agent works after the start")
    parser.add_argument("--tick", type=float, default=5.0, help="seconds between two looks")
    asked = parser.parse_args()
    stop = threading.Event()

    def again(number: int, frame: object) -> None:
        AGAIN.set()
        stop.set()

    # Both come before the row that others see: a SIGTERM that came between them would be no end that was planned.
    signal.signal(signal.SIGTERM, lambda number, frame: stop.set())
    signal.signal(signal.SIGUSR1, again)
    if not asked.serve:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a gateway outlives the terminal or app that began it
    home = os.path.realpath(asked.home)
    supervisor = supervisor_of(os.environ, pid=os.getpid(), parent=os.getppid())
    run = Run(
        home=home, kind=Kind.SERVE if asked.serve else Kind.GATEWAY, supervisor=supervisor,
        command=f"python examples/host_gateway.py --home {home}",
    )
    replaces = asked.replace
    while True:
        host, entered = start(
            run, replace=replaces, force=asked.force, standalone=asked.standalone,
            rescan=lambda: homes_for(home, multiplex=asked.multiplex),
        )
        replaces = False  # what was asked for was done once
        code = exit_code(entered.verdict.outcome, supervisor)
        dialled = None if host is None else host.probe.dialled
        say("decided", verdict=entered.verdict.outcome, reason=entered.verdict.reason, code=code, asked=dialled)
        try:
            ended = serve(entered, host, asked, stop) if code is None else code
        finally:
            if host is not None:
                host.close()
        if ended is not None:
            return ended


if __name__ == "__main__":
    sys.exit(main())
