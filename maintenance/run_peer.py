"""Run as `python -m maintenance.run_peer SCRIPT FUNCTION MODULE ARGUMENTS...`: become hermes-agent's `hermes` script.

Invariant: hermes-agent finds the process as its own script would have made it: `sys.argv` is SCRIPT and ARGUMENTS, and
the exit status is what its function returns. Nothing else of ours is imported.

Not for: calling directly. `python -m hermes_cli.main` was rejected: it drops the exit status that the function returns.
"""

import sys
from importlib import import_module


def main() -> None:
    """Replace `sys.argv` and call hermes-agent."""
    _, script, function, module, *arguments = sys.argv
    sys.argv = [script, *arguments]
    sys.exit(getattr(import_module(module), function)())


if __name__ == "__main__":
    main()
