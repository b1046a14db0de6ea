"""Runs an example that dies by kill -9 before the statement or frame it is told: `dying.py NUMBER SCRIPT WORDS...`.

Counted are the statements of its transactions and the frames that it sends, from its start on; 0 is never.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

dies_at, script = int(sys.argv[1]), Path(sys.argv[2])
sys.argv = sys.argv[2:]
sys.path.insert(0, str(script.parent))

import gateway_frames  # type: ignore[import-not-found]  # noqa: E402  # of the folder of the examples

from hermes_state.engine.transaction import Transaction  # noqa: E402

_counting = threading.Lock()
_count = 0


def counted(plain: Callable[..., Any]) -> Callable[..., Any]:
    """The same, but for the last one."""

    def call(*given: Any, **named: Any) -> Any:
        global _count
        with _counting:
            _count += 1
            if _count == dies_at:
                os.kill(os.getpid(), signal.SIGKILL)
        return plain(*given, **named)

    return call


for name in ("execute", "executemany", "rows", "row"):
    setattr(Transaction, name, counted(getattr(Transaction, name)))
gateway_frames.send = counted(gateway_frames.send)
runpy.run_path(str(script), run_name="__main__")
