"""Writers of one home's cron in several processes: nobody's change is lost, and nobody goes on without the lock."""

from __future__ import annotations

from pathlib import Path

import pytest

from cron_store.cron import Cron
from cron_store.schedule import Interval
from hermes_state.clock import FakeClock
from hermes_state.errors import LockTimeout
from hermes_state.store import open_store
from tests.support.children import Children

HOLDER = """
import sys
import gates
from hermes_state.store import open_store

with open_store(sys.argv[1]) as store:
    def work(tx):
        tx.execute("UPDATE cron_jobs SET name = 'named by the holder'")
        gates.reach("holding")
        gates.wait("holding")
    store.core.write(work)
"""
EDITOR = """
import sys
from cron_store.cron import Cron
from hermes_state.errors import LockTimeout
from hermes_state.store import open_store

with open_store(sys.argv[1]) as store:
    cron = Cron(store)
    for number in range(int(sys.argv[3])):
        while True:
            try:
                cron.edit("job", fields={f"{sys.argv[2]} {number}": number})
                break
            except LockTimeout:
                pass
"""


class Hurried(FakeClock):
    """Each wait is half a second, so that a minute of them is soon over."""

    def sleep(self, seconds: float) -> None:
        self.advance(max(seconds, 0.5))


@pytest.mark.slow
@pytest.mark.parametrize("waits", [1, pytest.param(3, marks=pytest.mark.campaign)])
def test_a_lock_that_is_held_for_a_minute_loses_no_update(
    tmp_path: Path, fake_clock: FakeClock, child: Children, waits: int
) -> None:
    """T3.24, R78: there is no mode without the lock. Who waits too long is told who holds it, and tries again."""
    with open_store(tmp_path / "home", clock=Hurried(fake_clock.path)) as store:
        cron = Cron(store)
        cron.add("job", Interval(seconds=60, anchor=int(fake_clock.now())), fields={"model": "m"})
        holder = child(HOLDER, tmp_path / "home")
        holder.wait_for("holding")
        began = fake_clock.monotonic()
        for _ in range(waits):
            with pytest.raises(LockTimeout) as waited:
                cron.edit("job", fields={"prompt": "go"})
            assert f"PID {holder.pid}" in str(waited.value)
        assert fake_clock.monotonic() - began >= waits * 20
        assert cron.job("job").version == 1
        holder.release("holding")
        holder.finish()
        job = cron.edit("job", fields={"prompt": "go"})
        assert (job.name, job.fields, job.version) == ("named by the holder", {"model": "m", "prompt": "go"}, 2)


@pytest.mark.slow
@pytest.mark.parametrize("edits", [20, pytest.param(200, marks=pytest.mark.campaign)])
def test_two_processes_that_edit_one_job_lose_nothing(
    tmp_path: Path, fake_clock: FakeClock, child: Children, edits: int
) -> None:
    """Report 164: load, change and save, in two processes at once: 0 lost edits."""
    with open_store(tmp_path / "home", clock=fake_clock) as store:
        cron = Cron(store)
        cron.add("job", Interval(seconds=60, anchor=int(fake_clock.now())))
        editors = [child(EDITOR, tmp_path / "home", name, edits) for name in ("one", "two")]
        for editor in editors:
            editor.finish(120.0)
        job = cron.job("job")
    assert len(job.fields) == 2 * edits
    assert job.version == 2 * edits + 1
