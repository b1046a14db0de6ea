"""A recovery that ended while it mended goes on: what it decided is said once, and nothing is mended twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hermes_state import open_store
from hermes_state.clock import SystemClock
from maintenance.recovery.records import Report
from maintenance.recovery.run import recover
from tests.maintenance.backups.making import query, tidy
from tests.maintenance.native_stores import add_session
from tests.maintenance.owing import LEAST, owe, states
from tests.maintenance.recovery.recovering import little_space
from tests.maintenance.serving import epoch, serving_store, stands

__all__ = ["little_space"]
pytestmark = pytest.mark.usefixtures("little_space")


class _Ends(BaseException):
    """What ends a run like a signal: nothing of the program catches it."""


class _EndsAt(SystemClock):
    """A clock that ends the run when the time of day is asked for the n-th time."""

    def __init__(self, asked: int) -> None:
        super().__init__()
        self.left = asked

    def now(self) -> float:
        self.left -= 1
        if self.left == 0:
            raise _Ends
        return super().now()


def damaged(folder: Path) -> Path:
    """A store whose recovery has much to decide: claims, a lost registry, leases that are gone, a body that is lost."""
    db = serving_store(folder)
    add_session(db, "long")
    with open_store(path=db) as store:
        store.messages.append("long", role="user", content="a text that needs a body of its own " * 3000)
        owe(store, "stop")
        owe(store, "reply", LEAST)
        store.outbox.claim(["stop", "reply"], limit=2)
    tidy(db)
    for name in ("enrollment_tokens", "leases", "bodies"):
        (root,) = query(db, f"SELECT rootpage FROM sqlite_schema WHERE name = '{name}'")[0]
        with tidy(db).open("r+b") as file:
            file.seek((root - 1) * 4096)
            file.write(bytes(4096))
    return db


def told(report: Report) -> list[dict[str, Any]]:
    """The decisions, without times."""
    return [{name: value for name, value in said.items() if name not in ("to", "at")} for said in report.decisions]


def held(report: Report) -> tuple[Any, ...]:
    """What the result says that a second mending would change."""
    doubts = {one.name: (one.uncertain, one.uncertain_keys) for one in report.tables}
    return states(report.output), stands(report.output), epoch(report.output), doubts, query(
        report.output, "SELECT dedupe_id, fence FROM outbox ORDER BY id"
    )


@pytest.mark.slow
def test_what_a_run_decided_that_ended_while_it_mended_is_said_once_and_not_done_again(tmp_path: Path) -> None:
    db = damaged(tmp_path / "home")
    once = recover(db, tmp_path / "once.db", allow_partial=True)
    assert {"obligation_unknown", "obligation_marked", "instance_revoked", "epoch_raised", "body_lost"} <= {
        said["what"] for said in once.decisions
    }
    asked = 0
    while True:
        asked += 1
        output = tmp_path / f"again {asked}.db"
        clock = _EndsAt(asked)
        try:
            recover(db, output, allow_partial=True, clock=clock)
        except _Ends:
            report = recover(db, output, allow_partial=True)
        else:
            break
        assert (told(report), held(report)) == (told(once), held(once)), asked
    assert asked > 4
