"""`python -m tests.faults.one_run NAME HOME`: one operation in a process of its own; each step told on stdout."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.faults.operations import OPERATIONS


def tell(label: str, _durability: str) -> None:
    print(label, flush=True)


if __name__ == "__main__":
    OPERATIONS[sys.argv[1]].run(Path(sys.argv[2]), tell)
