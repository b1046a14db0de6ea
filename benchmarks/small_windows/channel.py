"""A side's process, started once and asked in lines of JSON.

Invariant: a side runs in the environment that was named for it and sees none of our packages. Not for: what a side
does (see `sides/`). One process a question was rejected: importing a contender takes longer than what is measured.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

SIDES = Path(__file__).with_name("sides")
# Names the environment with tokenizers, the model and LangChain; hermes-agent comes through HERMES_PEERS.
MODELS_VARIABLE = "HERMES_BENCH_MODELS"


class SideFailed(Exception):
    """A side gave a failure instead of an answer; the text is its own."""


class Channel:
    """One running side."""

    def __init__(self, python: Path, program: str, *arguments: str, environment: dict[str, str] | None = None) -> None:
        """Start `sides/<program>.py`; `environment` defaults to ours without what leads to our packages."""
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LANGCHAIN"))}
        self._name = program
        self._process = subprocess.Popen(
            [str(python), str(SIDES / f"{program}.py"), *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, encoding="utf-8",
            env=environment or {**plain, "LANGSMITH_TRACING": "false"},
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        """One request, one answer; SideFailed with the side's own words."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise SideFailed(f"{self._name} ended with {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        if "failed" in answer:
            raise SideFailed(f"{self._name}: {answer['failed']}\n{answer['trace']}")
        return answer

    def close(self) -> None:
        """End the process by ending its input."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def models_python() -> Path | None:
    """The interpreter of the environment that HERMES_BENCH_MODELS names, or None."""
    folder = os.environ.get(MODELS_VARIABLE)
    python = Path(folder) / "bin" / "python" if folder else None
    return python if python is not None and python.exists() else None
