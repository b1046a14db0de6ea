"""Homes with cron jobs for the tests of maintenance, ticked by the library on a clock that is moved by hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cron_store.cron import Cron
from cron_store.records import Claim, Failed, Job, Policies, Succeeded
from cron_store.schedule import Interval
from hermes_state.clock import Clock
from hermes_state.engine import open_read
from hermes_state.store import open_store
from maintenance.dialects.native.scheduled import Kept
from maintenance.replacement.prepare import old_facts, prepare
from tests.cron_store.conftest import HandClock

NOW = 1_800_000_000
MINUTE = 60


@contextmanager
def cron_of(db: Path, clock: Clock) -> Iterator[Cron]:
    """The cron of a store, which is closed afterwards."""
    with open_store(path=db, clock=clock, durability="process") as store:
        yield Cron(store)


def every(
    cron: Cron, job_id: str, seconds: int = MINUTE, *, fields: dict[str, Any] | None = None, **policies: Any
) -> Job:
    """A job whose first slot is one interval from now."""
    schedule = Interval(seconds=seconds, anchor=int(cron.now()))
    return cron.add(job_id, schedule, fields=fields or {"prompt": f"do {job_id}"}, policies=Policies(**policies))


def take(cron: Cron, clock: HandClock, seconds: float = MINUTE) -> list[Claim]:
    """Let time pass, and claim what is due."""
    clock.advance(seconds)
    return list(cron.take(None, room=10).claims)


def run(cron: Cron, claim: Claim) -> int:
    """Run it well; the slot."""
    cron.start(claim)
    cron.settle(claim, Succeeded(result={"said": "done"}))
    assert claim.slot is not None
    return claim.slot


def fail(cron: Cron, claim: Claim, error: str = "no such host") -> None:
    """Run it badly."""
    cron.start(claim)
    cron.settle(claim, Failed(error=error))


def fired(cron: Cron, clock: HandClock, times: int = 1) -> list[tuple[str, int]]:
    """Let minutes pass and run what is due in each; job and slot of every run, from the beginning of the clock."""
    return [
        (claim.job_id, run(cron, claim) - NOW) for _minute in range(times) for claim in take(cron, clock)
    ]


def states(cron: Cron, job_id: str) -> list[tuple[int, str, str]]:
    """Of each record of a job its first slot, from the beginning of the clock, its state and its reason."""
    return [(one.slot - NOW, str(one.state), one.reason) for one in cron.slots(job_id)]


def replaced(copy: Path, db: Path, clock: Clock, *, hidden: bool = False) -> Kept:
    """Put older content in the place of a store's, as a restore prepares it; `copy` goes. What became of cron."""
    with open_read(db, clock=clock) as reader:
        old = old_facts(SimpleNamespace(old=reader.rows), hidden=hidden)  # type: ignore[arg-type]
        prepared = prepare(db, copy, old, clock=clock, private=True, page_size=None)
    for ending in ("-wal", "-shm"):
        Path(f"{db}{ending}").unlink(missing_ok=True)
    prepared.path.replace(db)
    return prepared.cron


def copied(db: Path, clock: Clock, name: str = "copy") -> Path:
    """The store as it is now, as a file of its own."""
    copy = db.with_name(f"{name}.db")
    with open_read(db, clock=clock) as reader:
        reader.backup_to(copy)
    return copy
