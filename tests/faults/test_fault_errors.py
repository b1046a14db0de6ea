"""Every operation meets every failing read, write, sync, truncate, open and delete; the store is sound each time.

An error of the tree comes out or the operation is done; afterwards the store opens, passes its checks and shows the
state before or after the step that failed; nothing that was told done is missing. The suite runs
five of each (`test_fault_rounds`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_state.testing.faults import Fault
from tests.faults.injecting import Bench, bench, meet
from tests.faults.judging import record_clean
from tests.faults.operations import OPERATIONS


@pytest.fixture(scope="module")
def benches(tmp_path_factory: pytest.TempPathFactory, operation_clock: Path) -> Iterator[dict[str, Bench]]:
    """Made when first asked for, and kept for the module."""
    made: dict[str, Bench] = {}

    class Made(dict[str, Bench]):
        def __missing__(self, name: str) -> Bench:
            folder = tmp_path_factory.mktemp(name)
            clean = record_clean(OPERATIONS[name], folder)
            self[name] = bench(OPERATIONS[name], folder / "bench", clean.states)
            return self[name]

    made = Made()
    yield made


def wrong(ready: Bench, faults: list[Fault], folder: Path) -> list[str]:
    return [found for fault in faults if (found := meet(ready, fault, folder / "run")) is not None]


@pytest.mark.campaign
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_fault_leaves_the_store_before_or_after_a_step(
    benches: dict[str, Bench], tmp_path: Path, name: str
) -> None:
    ready = benches[name]
    assert wrong(ready, list(ready.faults), tmp_path) == []
    print(f"\n{name}: {len(ready.faults)} faults")
