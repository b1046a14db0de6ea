"""The command line as people run it: a process of its own, with exit status, stdout and stderr.

A run is forked from a process that has the program imported (see `warm.py`), unless the start of an interpreter is part
of what is tested: `fresh`, a wrapper, another user, `hermes` instead of `hermes-state`.

Not for: calling click in this process. click's own test runner was rejected: it hides exit statuses, broken pipes and
what is imported, which are part of the contract.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.children import child_environment
from tests.support.warm import WARM


@dataclass(frozen=True, kw_only=True)
class Result:
    """What one run of the program gave."""

    exit_code: int  # the exit status
    stdout: str  # all of standard output
    stderr: str  # all of standard error
    elapsed_seconds: float  # wall time, interpreter start included

    @property
    def json(self) -> Any:
        """Standard output as one JSON document."""
        return json.loads(self.stdout)

    @property
    def json_error(self) -> Any:
        """Standard error as one JSON document."""
        return json.loads(self.stderr)


class RunCli:
    """What the `run_cli` fixture is. `program` is the script's name, `home` becomes HERMES_HOME."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._user_home = directory / "user"

    def command(self, *args: object, program: str = "hermes-state") -> list[str]:
        """The argument vector that starts the program with this project's sources."""
        function = program.replace("-", "_")
        start = f"import sys; sys.argv[0] = {program!r}; import maintenance.entry as it; sys.exit(it.{function}())"
        return [sys.executable, "-P", "-c", start, *(str(arg) for arg in args)]

    def environment(
        self, *, env: Mapping[str, str] | None = None, home: Path | None = None, audited: bool = True
    ) -> dict[str, str]:
        """A clean environment: a private HOME, HERMES_HOME of the test, UTF-8, no colour, 120 columns."""
        self._user_home.mkdir(exist_ok=True)
        environment = child_environment(own_packages=True, audited=audited)
        for name in ("HERMES_PROFILE", "FORCE_COLOR", "TERM_PROGRAM", "XDG_STATE_HOME"):
            environment.pop(name, None)
        environment |= {
            "HOME": str(self._user_home), "HERMES_HOME": str(home or self._directory / "home"),
            "LC_ALL": "C.UTF-8", "TZ": "UTC", "NO_COLOR": "1", "COLUMNS": "120", "PYTHONWARNINGS": "error",
        }
        return environment | dict(env or {})

    def __call__(
        self, *args: object, program: str = "hermes-state", home: Path | None = None, input: str | None = None,
        env: Mapping[str, str] | None = None, audited: bool = True, timeout: float = 120.0,
        wrapper: Sequence[str] = (), user: int | None = None, fresh: bool = False,
    ) -> Result:
        started = time.perf_counter()
        environment = self.environment(env=env, home=home, audited=audited)
        if not (fresh or wrapper or user is not None) and program == "hermes-state" and WARM.fits(environment):
            status, out, err = WARM.run(
                program, [str(arg) for arg in args], environment=environment, folder=self._directory,
                input=(input or "").encode(), timeout=timeout,
            )
            return Result(
                exit_code=status, stdout=out.decode(errors="replace"), stderr=err.decode(errors="replace"),
                elapsed_seconds=time.perf_counter() - started,
            )
        done = subprocess.run(
            [*wrapper, *self.command(*args, program=program)],
            env=environment, timeout=timeout, capture_output=True,
            input=(input or "").encode(), user=user, group=user, extra_groups=None if user is None else [],
            cwd=self._directory,
        )
        return Result(
            exit_code=done.returncode, stdout=done.stdout.decode(errors="replace"),
            stderr=done.stderr.decode(errors="replace"), elapsed_seconds=time.perf_counter() - started,
        )
