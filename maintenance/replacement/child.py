"""Starting the child that reads a store's files as bytes, and hearing what it did.

Invariant: the child is waited for, or killed when this side gives up; its failure is an error here, with what it said.
Not for: what it does (`copier.py`). Doing it in this process was rejected: see there.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hermes_state.errors import IOFailure

Heard = Callable[[int], None]


def run(task: str, path: Path, heard: Heard | None = None, **details: Any) -> dict[str, Any]:
    """Let a child do one task on the files of the store at `path`; `heard` gets bytes done. Raises `IOFailure`."""
    program = Path(__file__).with_name("copier.py")
    child = subprocess.Popen(
        [sys.executable, "-I", str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, encoding="utf-8",
    )
    try:
        assert child.stdin is not None and child.stdout is not None and child.stderr is not None
        json.dump({"task": task, **details}, child.stdin)
        child.stdin.close()
        for line in child.stdout:
            said: dict[str, Any] = json.loads(line)
            if "done" in said:
                child.wait()
                done: dict[str, Any] = said["done"]
                return done
            if heard is not None:
                heard(next(iter(said.values())))
        trouble = child.stderr.read().strip().splitlines()
    finally:
        if child.poll() is None:
            child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout, child.stderr):
            if pipe is not None:
                pipe.close()
    raise IOFailure(
        f"The files of {path} could not be read or copied: {trouble[-1] if trouble else 'the child was stopped'}.",
        hint="Check the disk and the free space; the store was not changed.", path=path, errno=0,
    )
