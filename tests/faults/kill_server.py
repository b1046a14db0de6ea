"""`python -m tests.faults.kill_server`: runs one operation with its faults in a forked process, again and again.

Invariant: each run is a process of its own that dies by the kernel's SIGKILL in the middle of its work, and this one
never opens a store, so a run inherits no connection, lock or thread. A request is one line of JSON on stdin, its
answer one line on stdout. Not for: production code. A new interpreter for each run was rejected: half a second of
imports, for 30 milliseconds of work, kept most operations out of the default suite.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from hermes_state.testing import faults
from hermes_state.testing.faults import Fault
from tests.faults.operations import OPERATIONS
from tests.support.children import child_environment
from tests.support.warm import import_all


@dataclass(frozen=True, kw_only=True)
class Ran:
    """How one run ended."""

    # as `subprocess.Popen.returncode`: negative is a signal
    status: int
    # how many steps were told before
    steps: int
    # what it said on stderr
    stderr: str


class KillServer:
    """The process that forks the runs; closed by the `with` block."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tests.faults.kill_server"], env=child_environment(own_packages=True),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )

    def run(self, name: str, home: Path, fault: Fault) -> Ran:
        """Run the operation `name` in `home` with the fault."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([name, str(home), faults.dumps([fault])]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the kill server ended with {self._process.wait()}"
        return Ran(**json.loads(line))

    def __enter__(self) -> KillServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()


def serve() -> None:
    """Answer requests until stdin ends."""
    import_all()
    for line in sys.stdin:
        name, home, plan = json.loads(line)
        with tempfile.TemporaryFile() as told, tempfile.TemporaryFile() as said:
            child = os.fork()
            if child == 0:
                os.dup2(told.fileno(), 1)
                os.dup2(said.fileno(), 2)
                _run(name, Path(home), plan)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            told.seek(0)
            said.seek(0)
            steps, words = told.read().count(b"\n"), said.read().decode(errors="replace")
        print(json.dumps({"status": status, "steps": steps, "stderr": words}), flush=True)


def _run(name: str, home: Path, plan: str) -> None:
    """In the child; does not return."""
    status = 1
    try:
        with faults.inject(*faults.loads(plan)):
            OPERATIONS[name].run(home, lambda label, _durability: print(label, flush=True))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    serve()
