"""Our side of `bench_compact_pass`: sessions with much or little behind them, compacted again and again.

Invariant: the passes are those of `store.compaction.compact`; the commit is timed where the pass calls it, and its
transaction where the commit calls the store. Not for: comparing with anybody: no peer keeps what it compacted.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).resolve().parents[2])]

import measure  # noqa: E402

from benchmarks.small_windows.ours import Ahead  # noqa: E402
from hermes_state import open_store  # noqa: E402
from hermes_state.compaction import passes as passing  # noqa: E402
from hermes_state.engine.core import Core  # noqa: E402

SESSION = "long"
SETTINGS = {"window": 8192, "fixed_tokens": 1500}
# Messages of four to a turn; their sizes are those of S2.
LIVE = 40


def turn(number: int) -> list[dict[str, Any]]:
    """Four messages of about 1,000 tokens together."""
    body = "\n".join(
        f"2026-10-{line % 28 + 1:02} INFO worker {line * 7 % 13} took part {number} in {line}ms" for line in range(40)
    )
    function = {"name": "terminal", "arguments": '{"command": "ls"}'}
    call = {"id": f"call_{number}", "type": "function", "function": function}
    return [
        {"role": "user", "content": f"Please go on with part {number}."},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": body, "tool_call_id": f"call_{number}", "tool_name": "terminal"},
        {"role": "assistant", "content": f"Part {number} is done."},
    ]


class Watching:
    """Seconds that a pass spends in its commit, and in the transactions of that."""

    def __init__(self) -> None:
        self.commit, self.transaction = 0.0, 0.0
        self._commit, self._write, self._within = passing.commit, Core.write, False

    def __enter__(self) -> Watching:
        watching = self

        def commit(*arguments: Any, **options: Any) -> Any:
            watching._within, started = True, time.perf_counter()
            try:
                return watching._commit(*arguments, **options)
            finally:
                watching._within, watching.commit = False, time.perf_counter() - started

        def write(core: Core, work: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
            started = time.perf_counter()
            try:
                return watching._write(core, work, *arguments, **options)
            finally:
                if watching._within:
                    watching.transaction = time.perf_counter() - started

        passing.commit = commit  # type: ignore[assignment]
        Core.write = write  # type: ignore[method-assign,assignment]
        return self

    def __exit__(self, *_: object) -> None:
        passing.commit, Core.write = self._commit, self._write  # type: ignore[method-assign]


def one_pass(store: Any, clock: Ahead) -> dict[str, float]:
    """Plan, then compact; seconds, bytes and what was made."""
    clock.ahead += 3600.0
    started = time.perf_counter()
    planned = store.compaction.plan(SESSION, **SETTINGS)
    plan_seconds = time.perf_counter() - started
    written = measure.written_bytes()
    started = time.perf_counter()
    with Watching() as seen:
        outcome = store.compaction.compact(SESSION, **SETTINGS)
    taken = time.perf_counter() - started
    if outcome.state != "compacted":
        raise SystemExit(f"no pass: {outcome.state} {outcome.why} {outcome.detail}")
    return {
        "total": taken, "plan": plan_seconds, "commit": seen.commit, "transaction": seen.transaction,
        "bytes": measure.written_bytes() - written, "summarised": planned.end - planned.start,
    }


def prepare(db: str, rows: int) -> dict[str, Any]:
    """A session of `rows` messages that was never compacted, and its first pass."""
    clock = Ahead()
    with open_store(path=db, clock=clock) as store:
        store.sessions.create(id=SESSION, source="cli")
        for at in range(0, rows, 4000):
            turns = range(at // 4, min(at + 4000, rows) // 4)
            store.messages.append_many(SESSION, [message for number in turns for message in turn(number)])
        return {"first": one_pass(store, clock)}


def passes(db: str, first: int, count: int) -> dict[str, Any]:
    """`count` passes, each after another live part of the same size; how many rows compaction has before and after."""
    clock = Ahead()
    clock.ahead = 36_000.0 + first * 3600.0
    with open_store(path=db, clock=clock) as store:
        made = []
        for number in range(first, first + count):
            turns = [message for part in range(LIVE // 4) for message in turn(10_000_000 + number * 10 + part)]
            store.messages.append_many(SESSION, turns)
            started = time.perf_counter()
            store.messages.context(SESSION)
            read = time.perf_counter() - started
            made.append({**one_pass(store, clock), "read": read})
        return {"passes": made, "generations": len(store.compaction.generations(SESSION))}


if __name__ == "__main__":
    measure.serve({"prepare": prepare, "passes": passes})
