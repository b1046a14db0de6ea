"""Starts the programs of the sides (`benchmarks/sides/`), each in a process of its own.

Invariant: hermes-agent's side runs in its own environment and never sees our packages; each measurement gets a home of
its own. Not for: comparing numbers (see `runner`).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import chat, runner
from benchmarks.sides import measure

SIDES = Path(__file__).with_name("sides")
WRITERS = 8


def kinds(*, floor: bool = True) -> tuple[str, ...]:
    """The sides that can run here."""
    return ("ours", *(("floor",) if floor else ()), *(("peer",) if runner.peer() else ()))


def command(side: str, task: str, **arguments: Any) -> tuple[list[str], dict[str, str] | None]:
    """Argument vector and environment of one task of one side."""
    program = [str(SIDES / f"{side}.py"), task, json.dumps(arguments)]
    if side != "peer":
        return [sys.executable, *program], None
    peer = runner.peer()
    assert peer is not None
    return [str(peer.python), *program], peer.environment(Path(arguments["db"]).parent)


def ask(side: str, task: str, **arguments: Any) -> dict[str, Any]:
    """Run one task and give its answer."""
    words, environment = command(side, task, **arguments)
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{side} {task} ended with {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


@contextmanager
def home() -> Iterator[Path]:
    """A private folder; its store is <folder>/home/state.db."""
    with tempfile.TemporaryDirectory(prefix="hermes-bench-") as folder:
        path = Path(folder) / "home"
        path.mkdir()
        yield path


@contextmanager
def prepared(side: str, plan: Path) -> Iterator[Path]:
    """A store of `side` with the plan's sessions and no message."""
    with home() as folder:
        ask(side, "prepare", db=str(folder / "state.db"), plan=str(plan))
        yield folder / "state.db"


@contextmanager
def planned(*, sessions: int, messages: int) -> Iterator[tuple[Path, int, int]]:
    """The plan's file, its number of rows and its bytes of content."""
    rows = chat.rows(sessions=sessions, messages=messages)
    with tempfile.TemporaryDirectory(prefix="hermes-bench-") as folder:
        yield chat.write_plan(Path(folder) / "plan.json", rows), len(rows), chat.content_bytes(rows)


def crowd(side: str, plan: Path, level: str) -> dict[str, float]:
    """Eight processes that start together; every latency of all of them."""
    with prepared(side, plan) as db:
        writers = []
        for number in range(WRITERS):
            words, environment = command(
                side, "append", db=str(db), plan=str(plan), level=level, first=number, step=WRITERS, wait=True
            )
            writers.append(
                subprocess.Popen(words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
        for writer in writers:
            assert writer.stdout is not None
            while writer.stdout.readline() != "ready\n":
                pass
        with runner.timing() as measured:
            for writer in writers:
                assert writer.stdin is not None
                writer.stdin.write("go\n")
                writer.stdin.flush()
            answers = [json.loads(writer.communicate()[0].strip().splitlines()[-1]) for writer in writers]
    taken = [one for answer in answers for one in answer["taken"]]
    return {**measure.quantiles(taken), **measured}
