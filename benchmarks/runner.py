"""Runs the sides of one question in interleaved rounds and writes what was measured.

Invariant: every ratio comes from pairs measured in the same round, and the order of the sides rotates from round to
round, so that a machine that slows down in the middle slows every side. What was not measured is absent from the
result, never estimated.

Not for: profiling one function. A ratio of two medians from separate runs was rejected: on a shared machine it moved
by a factor of two.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from benchmarks import store
from tests.support import peers

RESULTS = Path(__file__).with_name("results")
ROOT = Path(__file__).resolve().parents[1]
PEER_VERSION = "0.19.0"
# Both sides read times without an offset as UTC.
UTC = {"TZ": "UTC"}


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the person running a benchmark chose."""

    # 1 is a smoke run for CI; 100 is the size that the question is about.
    scale: int
    # Interleaved rounds.
    rounds: int
    # Folder for the result document.
    results: Path


@dataclass(frozen=True, kw_only=True)
class Side:
    """One contender of a question."""

    # ours, peer or floor.
    name: str
    # One measurement: seconds by phase, at least "total".
    run: Callable[[], dict[str, float]]


def options(description: str, *, scale: int = 100, rounds: int = 5) -> Options:
    """Command line of a benchmark."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=int, default=scale, help="1 is a smoke run, 100 the full size (default)")
    parser.add_argument("--rounds", type=int, default=rounds, help="interleaved rounds")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the result document")
    asked = parser.parse_args()
    rounds = min(asked.rounds, 2) if asked.scale == 1 else asked.rounds
    return Options(scale=asked.scale, rounds=rounds, results=asked.results)


def peer() -> peers.Peer | None:
    """The real hermes-agent to compare with, when HERMES_PEERS has it."""
    return peers.find(PEER_VERSION)


def ours(*arguments: str, home: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Our command line as a user runs it, in a process of its own."""
    done = subprocess.run(
        our_command(*arguments),
        env=our_environment(home),
        cwd=ROOT,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if check and done.returncode != 0:
        raise SystemExit(f"{' '.join(arguments)} ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


def our_command(*arguments: str) -> list[str]:
    """Argument vector of our command line: the installed script, or the sources where none is installed."""
    script = Path(sys.executable).with_name("hermes-state")
    start = "from maintenance.entry import hermes_state; hermes_state()"
    return [*([str(script)] if script.exists() else [sys.executable, "-P", "-c", start]), *arguments]


def our_environment(home: Path) -> dict[str, str]:
    """Variables under which our command line sees only `home`; like the peer's, none of Python's own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HERMES", "PYTHON"))}
    sources = {} if Path(sys.executable).with_name("hermes-state").exists() else {"PYTHONPATH": str(ROOT)}
    return {**kept, **sources, **UTC, "HERMES_HOME": str(home), "NO_COLOR": "1", "COLUMNS": "200"}


def theirs(*arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    """The peer's command line as its users run it. Its exit status is 0 on failure too, so look at the result."""
    peer_to_ask = peer()
    assert peer_to_ask is not None
    done = subprocess.run(
        [str(peer_to_ask.python.with_name("hermes")), *arguments],
        env={**peer_to_ask.environment(home), **UTC},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"hermes {' '.join(arguments)} ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


def recipe(chosen: Options, *, megabytes: int, messages: int = 100, free_share: float = 0.0) -> store.Recipe:
    """The store of a question at the chosen scale; a small one gets short sessions, so that it still has many."""
    size = max(2, megabytes * chosen.scale // 100)
    return store.Recipe(megabytes=size, free_share=free_share, messages=messages if size >= 20 else 5)


@contextmanager
def fresh_store(recipe: store.Recipe) -> Iterator[Path]:
    """A private home with a new copy of the recipe's store, on the disk before anything is timed."""
    builder = peer()
    with tempfile.TemporaryDirectory(prefix="hermes-bench-") as folder:
        db = store.made(recipe, Path(folder) / "home" / "state.db", python=builder.python if builder else None)
        os.sync()
        yield db


def peer_note() -> dict[str, str]:
    """A fact for the report when there is nobody to compare with."""
    if peer():
        return {}
    return {
        "peer": f"hermes-agent {PEER_VERSION} is not installed (HERMES_PEERS): only ours and the floor were measured"
    }


def interleaved(sides: Sequence[Side], rounds: int) -> dict[str, list[dict[str, float]]]:
    """Every side once a round, the order rotated by one each round."""
    series: dict[str, list[dict[str, float]]] = {side.name: [] for side in sides}
    for number in range(rounds):
        turn = number % len(sides)
        for side in [*sides[turn:], *sides[:turn]]:
            series[side.name].append(side.run())
    return series


@contextmanager
def timing() -> Iterator[dict[str, float]]:
    """Fills `total` with the wall seconds of the block."""
    measured: dict[str, float] = {}
    started = time.perf_counter()
    yield measured
    measured["total"] = time.perf_counter() - started


def ratios(
    series: dict[str, list[dict[str, float]]], of: str, to: str, phase: str = "total", other: str = ""
) -> list[float]:
    """Per round: phase of one side divided by phase (or `other`) of another side in the same round."""
    if of not in series or to not in series:
        return []
    pairs = zip(series[of], series[to], strict=True)
    return [
        mine[phase] / theirs[other or phase] for mine, theirs in pairs if phase in mine and (other or phase) in theirs
    ]


def summary(values: Sequence[float]) -> dict[str, float | int]:
    """Median, p99 and range."""
    ordered = sorted(values)
    return {
        "rounds": len(ordered),
        "median": round(statistics.median(ordered), 9),
        "p99": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))], 9),
        "least": round(ordered[0], 9),
        "most": round(ordered[-1], 9),
    }


def report(
    question: str,
    chosen: Options,
    series: dict[str, list[dict[str, float]]],
    *,
    compared: dict[str, list[float]],
    facts: dict[str, Any],
    targets: dict[str, float],
) -> dict[str, Any]:
    """Print a table and write `<question>.json`. `targets` names ratios with the most they may be."""
    document: dict[str, Any] = {
        "question": question,
        "scale": chosen.scale,
        "environment": environment(chosen.results),
        "facts": facts,
        "seconds": {
            side: {
                phase: summary([run[phase] for run in runs if phase in run])
                for phase in sorted({p for run in runs for p in run})
            }
            for side, runs in series.items()
        },
        "ratios": {
            name: {**summary(values), "target": targets.get(name), "met": met(values, targets.get(name))}
            for name, values in compared.items()
            if values
        },
    }
    print(question, f"(scale {chosen.scale})")
    print("  " + "  ".join(f"{name}={value}" for name, value in document["environment"].items()))
    for name, value in facts.items():
        print(f"  {name}: {value}")
    for side, phases in document["seconds"].items():
        for phase, numbers in phases.items():
            span = f"({duration(numbers['least'])} to {duration(numbers['most'])})"
            print(f"  {side:<13} {phase:<10} median {duration(numbers['median']):>9}  {span}")
    for name, numbers in document["ratios"].items():
        span = f"({numbers['least']:.3f} to {numbers['most']:.3f})"
        print(f"  ratio  {name:<26} median {numbers['median']:.3f}  {span}{judged(numbers)}")
    chosen.results.mkdir(parents=True, exist_ok=True)
    (chosen.results / f"{question}.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return document


def judged(numbers: dict[str, Any]) -> str:
    """What a ratio is to its target, nothing where it has none."""
    if numbers["target"] is None:
        return ""
    return f"  target {numbers['target']}: {'met' if numbers['met'] else 'NOT MET'}"


def duration(seconds: float) -> str:
    """A time in the unit that suits it."""
    for factor, unit in ((1, "s"), (1e3, "ms")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3f} {unit}"
    return f"{seconds * 1e6:.1f} us"


def met(values: Sequence[float], target: float | None) -> bool | None:
    """Whether the median stays within the target."""
    return None if target is None or not values else statistics.median(values) <= target


def environment(folder: Path) -> dict[str, str]:
    """What a number depends on."""
    return {
        "sqlite": apsw.sqlite_lib_version(),
        "apsw": apsw.apsw_version(),
        "python": platform.python_version(),
        "peer": PEER_VERSION if peer() else "absent",
        "cpu": f"{os.cpu_count()}x {_cpu_model()}",
        "load": f"{os.getloadavg()[0]:.1f}",
        "filesystem": filesystem(Path(tempfile.gettempdir())),
        "kernel": platform.release(),
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return platform.processor() or "unknown"
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def filesystem(folder: Path) -> str:
    """Type of the file system that holds `folder`."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return "unknown"
    best, kind = "", "unknown"
    for line in lines:
        left, right = line.split(" - ", 1)
        mount = left.split()[4]
        if (folder == Path(mount) or Path(mount) in folder.parents) and len(mount) >= len(best):
            best, kind = mount, right.split()[0]
    return kind
