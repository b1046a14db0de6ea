"""Real child processes that stop at gates, for tests of locks, crashes and holders.

Invariant: nothing is timed. A parent waits for a point that its child reports, or fails with the child's own stderr;
and every child is killed when its test ends.

Not for: the command line (see `cli.py`). multiprocessing was rejected: fork would hand SQLite's descriptors to the
child, and spawn would hide the interpreter that other environments need.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
SUPPORT = PROJECT / "tests" / "support"
_STEP_SECONDS = 0.002


def child_environment(*, own_packages: bool, audited: bool = True) -> dict[str, str]:
    """The environment of a child: the audit hook, the gates, and our packages unless it is a peer's interpreter."""
    folders = [str(SUPPORT / "inchild")]
    if audited:
        folders.insert(0, str(SUPPORT / "audit"))
    if own_packages:
        folders.append(str(PROJECT))
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(folders))
    if not audited:
        environment.pop("HERMES_STATE_AUDIT_REPORT", None)
    return environment


class Child:
    """One running child. `pid` is that of the started program (of the wrapper, when there is one)."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], folder: Path, *, user: int | None
    ) -> None:
        self.folder = folder
        self._out = (folder / "stdout").open("wb")
        self._err = (folder / "stderr").open("wb")
        self.process = subprocess.Popen(
            list(command), env=dict(environment), stdin=subprocess.DEVNULL, stdout=self._out, stderr=self._err,
            start_new_session=True, user=user, group=user, extra_groups=None if user is None else [],
        )
        self.pid = self.process.pid

    @property
    def stdout(self) -> str:
        return (self.folder / "stdout").read_text(encoding="utf-8", errors="replace")

    @property
    def stderr(self) -> str:
        return (self.folder / "stderr").read_text(encoding="utf-8", errors="replace")

    @property
    def output(self) -> str:
        return self.stdout + self.stderr

    def wait_for(self, name: str, seconds: float = 60.0) -> str:
        """Block until the child reaches `name`; gives the text it said there."""
        if not self.wait_for_or_end(name, seconds):
            raise AssertionError(f"the child ended ({self.process.returncode}) before {name}:\n{self.output}")
        return (self.folder / f"{name}.reached").read_text(encoding="utf-8")

    def wait_for_or_end(self, name: str, seconds: float = 60.0) -> bool:
        """Block until the child reaches `name`, or ends without that; gives whether it reached it."""
        deadline = time.monotonic() + seconds
        while not self.reached(name):
            if self.process.poll() is not None:
                return self.reached(name)  # it may have been there just before its end
            if time.monotonic() > deadline:
                raise AssertionError(f"the child did not reach {name} within {seconds} s:\n{self.output}")
            time.sleep(_STEP_SECONDS)
        return True

    def reached(self, name: str) -> bool:
        """Whether the child is past `name` already."""
        return (self.folder / f"{name}.reached").exists()

    def release(self, name: str, text: str = "") -> None:
        """Let the child go on from its `gates.wait(name)`."""
        staged = self.folder / f".{name}.released"
        staged.write_text(text, encoding="utf-8")
        staged.replace(self.folder / f"{name}.released")

    def wait(self, seconds: float = 60.0) -> int:
        """Block until the child ended; gives its exit status."""
        return self.process.wait(timeout=seconds)

    def finish(self, seconds: float = 60.0) -> str:
        """Wait for a clean end and give what the child printed."""
        status = self.wait(seconds)
        assert status == 0, f"the child ended with {status}:\n{self.output}"
        return self.stdout

    def kill(self) -> None:
        """kill -9 for the child and everything it started in its session."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(timeout=60)

    def freeze(self) -> None:
        """SIGSTOP: the child keeps its locks and does nothing."""
        os.killpg(self.process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT after `freeze`."""
        os.killpg(self.process.pid, signal.SIGCONT)

    def close(self) -> None:
        self.kill()
        self._out.close()
        self._err.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class Children:
    """What the `child` fixture is: call it to start one.

    `script` is Python source or the path of a file. `python` picks another interpreter (our packages are not put on its
    path then).
    `user` runs the child as that uid. `wrapper` is put before the command (`("unshare", "--pid", "--fork")`).
    `audited=False` leaves the audit hook out, for children that stage an accident on purpose.
    """

    def __init__(self) -> None:
        self._started: list[Child] = []

    def __call__(
        self, script: str | Path, *args: object, python: str | Path | None = None, user: int | None = None,
        wrapper: Sequence[str] = (), env: Mapping[str, str] | None = None, audited: bool = True,
        own_packages: bool | None = None,
    ) -> Child:
        folder = Path(tempfile.mkdtemp(prefix="gates-"))
        folder.chmod(0o777)
        if isinstance(script, str):
            source = folder / "script.py"
            source.write_text(textwrap.dedent(script), encoding="utf-8")
            source.chmod(0o644)
        else:
            source = script
        ours = python is None if own_packages is None else own_packages
        environment = child_environment(own_packages=ours, audited=audited) | {"HERMES_STATE_GATES": str(folder)}
        command = [*wrapper, str(python or sys.executable), "-P", str(source), *(str(arg) for arg in args)]
        started = Child(command, environment | dict(env or {}), folder, user=user)
        self._started.append(started)
        return started

    def close(self) -> None:
        for started in reversed(self._started):
            started.close()
