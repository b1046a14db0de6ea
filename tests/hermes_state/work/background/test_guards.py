"""What the file itself refuses about background work, whoever writes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hermes_state.errors import StatementFailed
from hermes_state.routing import Home
from hermes_state.store import Store
from hermes_state.work.background import Process

SENSELESS = (
    "state = 'completed'", "state = 'exited'", "ended_at = 1.0", "owner = NULL", "mode = 'shout'", "transport = ''",
    "mode = 'nobody'", "described = 'x'", "reason = 'bored'", "delivery = 'accepted'", "key = 'process/other/e'",
    "home = 'another'", "verbosity = 'loud'", "watch_struck = 2",
)
AFTER_THE_END = (
    "state = 'lost'", "ended_at = 1.0", "exit_code = 1", "reason = 'killed'", "result = 'x'", "mode = 'receipt'",
    "owner = '{}'",
)


def refused(store: Store, change: str) -> None:
    with pytest.raises(StatementFailed):
        store.core.write(lambda tx: tx.execute(f"UPDATE background_work SET {change}"))


def test_a_running_row_takes_no_change_that_makes_no_sense(store: Store, begin: Callable[..., Process]) -> None:
    process = begin("p")
    for change in SENSELESS:
        refused(store, change)
    assert store.work.processes.get("p") == process


def test_what_has_ended_stays_as_it_ended(store: Store, home: Home, begin: Callable[..., Process]) -> None:
    ended = store.work.processes.exited(begin("p"), home, exit_code=0)
    for change in AFTER_THE_END:
        refused(store, change)
    assert store.work.processes.get("p") == ended
