"""`python -m hermes_state.testing.run_with_faults FAULTS PROGRAM…`: a program with planned faults in its process.

Invariant: PROGRAM runs as `__main__` with its own arguments, as `python PROGRAM…` would run it. Not for: calling by
hand (see `faults.command`). An environment variable was rejected: production code would have to read it.
"""

from __future__ import annotations

import runpy
import sys

from hermes_state.errors import InvalidInput
from hermes_state.testing import faults


def main(arguments: list[str]) -> None:
    """Run the program that the arguments name. Raises `InvalidInput`."""
    if len(arguments) < 2:
        raise InvalidInput("Nothing to run.", hint="Use `faults.command(faults, *program)`.")
    plan, first, *rest = arguments
    with faults.inject(*faults.loads(plan)):
        if first == "-m" and rest:
            sys.argv = rest
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        elif first == "-c" and rest:
            sys.argv = ["-c", *rest[1:]]
            exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
        else:
            sys.argv = [first, *rest]
            runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
