"""The gateway and the plugin of `examples/` as processes: what is typed into them, and what they say.

Invariant: nothing is timed. `until` waits for something that the program says, and fails with everything that it said
when it ends before; every program is killed when its test ends.

Not for: other examples, which say nothing while they run.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.children import PROJECT, child_environment

# websockets logs this when a socket is cut while it reads; the connection is closed as a lost one all the same.
_CUT_WHILE_READING = re.compile(r"^unexpected internal error\nTraceback.*?^EOFError: stream ended\n", re.M | re.S)
SECONDS = 60.0  # a machine under load; what takes this long has failed


class CommandRefused(Exception):
    """A program answered a command with `refused`; its code is the message."""


class Died(AssertionError):
    """A program ended before it said what was waited for."""


class Program:
    """One running program."""

    def __init__(self, script: str, folder: Path, *words: object, dies_at: int = 0) -> None:
        """`dies_at`: before which of its statements and frames it is killed, see `dying.py`; 0 for none."""
        dying = [str(PROJECT / "tests" / "examples" / "dying.py"), str(dies_at)] if dies_at else []
        self._errors = (folder / f"{script}.stderr").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, *dying, str(PROJECT / "examples" / script), *map(str, words)], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, cwd=folder, start_new_session=True,
            env=child_environment(own_packages=True),
        )
        self._script = script
        self._heard = threading.Condition()
        self.said: list[dict[str, Any]] = []  # all of it
        self._new: list[dict[str, Any]] = []  # what no `until` has waited for yet
        self._ended = False
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not line.endswith("\n"):
                break  # it was killed while it said this
            with self._heard:
                self.said.append(json.loads(line))
                self._new.append(self.said[-1])
                self._heard.notify_all()
        with self._heard:
            self._ended = True
            self._heard.notify_all()

    def until(self, event: str, **facts: Any) -> dict[str, Any]:
        """Wait for an event with these facts that was not waited for before. Raises `Died`."""
        found = self._until(lambda said: said["event"] == event and facts.items() <= said.items())
        if found is None:
            raise Died(f"{self._script} ended before {event} {facts}:\n{self.everything()}")
        return found

    def until_any(self, *events: str) -> str:
        """Wait for the first of these events; gives which. Raises `Died`."""
        found = self._until(lambda said: said["event"] in events)
        if found is None:
            raise Died(f"{self._script} ended before any of {events}:\n{self.everything()}")
        return str(found["event"])

    def silent(self, seconds: float) -> bool:
        """Whether it says nothing more for so long; for loops that move a clock on when nothing moves by itself."""
        with self._heard:
            count = len(self.said)
            return not self._heard.wait_for(lambda: len(self.said) > count, seconds)

    @property
    def alive(self) -> bool:
        """Whether it may say something more; a process that is being killed closes its output first."""
        return not self._ended and self.process.poll() is None

    def _until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any] | None:
        deadline = time.monotonic() + SECONDS
        with self._heard:
            while True:
                for said in self._new:
                    if wanted(said):
                        self._new.remove(said)
                        return said
                if self._ended:
                    return None
                if not self._heard.wait(deadline - time.monotonic()):
                    raise AssertionError(f"{self._script} did not say it within {SECONDS} s:\n{self.everything()}")

    def order(self, *words: object) -> None:
        """Type a command, and wait for nothing. Nothing happens when it ended."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(" ".join(map(str, words)) + "\n")
            self.process.stdin.flush()

    def do(self, command: str, *words: object) -> Any:
        """Type a command; gives its result. Raises `CommandRefused`, `Died`."""
        self.order(command, *words)
        said = self._until(lambda one: one["event"] in ("done", "refused") and one.get("command") == command)
        if said is None:
            raise Died(f"{self._script} ended in {command}:\n{self.everything()}")
        if said["event"] == "refused":
            raise CommandRefused(said.get("code"))
        return said["result"]

    def kill(self) -> None:
        """kill -9."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(SECONDS)
        self._until(lambda _said: False)  # the last of what it said

    def freeze(self) -> None:
        """SIGSTOP: its sockets stay open, and nobody answers."""
        os.killpg(self.process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT after `freeze`."""
        os.killpg(self.process.pid, signal.SIGCONT)

    def wait(self) -> int:
        """Its exit status, once it ended by itself."""
        return self.process.wait(SECONDS)

    def everything(self) -> str:
        """What it said, and its errors."""
        errors = Path(self._errors.name).read_text(encoding="utf-8", errors="replace")
        return "\n".join(json.dumps(one) for one in self.said[-60:]) + "\n" + errors

    def close(self) -> None:
        self.kill()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            try:
                stream.close()
            except BrokenPipeError:
                continue  # a command that nobody read
        self._errors.close()


class Stage:
    """A gateway and a plugin, each with a store of its own, started again as often as a test kills them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home, self.plugin_home = folder / "home", folder / "plugin"
        self.home.mkdir(parents=True)
        self._started: list[Program] = []
        self._port = 0

    def _start(self, script: str, *words: object, dies_at: int) -> Program:
        program = Program(script, self.folder, *words, dies_at=dies_at)
        self._started.append(program)
        return program

    def gateway(self, *, dies_at: int = 0) -> Program:
        """A server; later ones have the port of the first, where the plugin looks for it."""
        program = self._start("gateway.py", "--store", self.home, "--port", self._port, dies_at=dies_at)
        try:
            self._port = program.until("serving")["port"]
        except Died:
            if not dies_at:
                raise
        return program

    def plugin(self, *words: object, dies_at: int = 0) -> Program:
        """A plugin; `"--token", token` the first time."""
        return self._start(
            "gateway_plugin.py", "--store", self.plugin_home, "--server", f"ws://127.0.0.1:{self._port}", *words,
            dies_at=dies_at,
        )

    def errors(self) -> str:
        """What the programs wrote to their standard error: nothing, unless a thread of one died."""
        said = "".join(path.read_text(encoding="utf-8") for path in sorted(self.folder.glob("*.stderr")))
        return _CUT_WHILE_READING.sub("", said)

    def close(self) -> None:
        for program in reversed(self._started):
            program.close()
