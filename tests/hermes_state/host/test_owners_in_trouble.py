"""Owners that cannot look, lost their lock file, are replaced in a race, or stand still."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from hermes_state.errors import HostLost
from hermes_state.host import Attach, Reason, Refuse, Supervisor, Waits
from tests.hermes_state.host.hosts import Party, folder_of, run

LAUNCHD = Supervisor.LAUNCHD


@pytest.fixture(name="folder")
def host_folder(tmp_path: Path) -> Path:
    return folder_of(tmp_path)


def test_an_owner_that_cannot_look_for_homes_is_no_refusal_for_good(folder: Path) -> None:
    first, second = Party(folder), Party(folder)
    member = first.host.enter(run("/h/a")).member  # without rescan
    assert member is not None
    member.settle(["/h/a", "/h/b"], multiplex=True)
    refused = second.host.enter(run("/h/new", LAUNCHD)).verdict
    assert isinstance(refused, Refuse)
    assert (refused.reason, refused.permanent) == (Reason.NOT_RESCANNED, False)
    member.leave(reason="test over")


def test_an_owner_whose_lock_file_was_deleted_may_do_what_only_the_owner_may(folder: Path) -> None:
    first, second = Party(folder), Party(folder)
    member = first.host.enter(run("/h/a")).member
    assert member is not None
    member.settle(["/h/a"], multiplex=False)
    (folder / "gateway.lock").unlink()
    first.host.core.write(member.guard)  # nobody else gets a fence while it lives
    view = second.host.host_gateway()
    assert view.lock_lost and view.owner is not None
    member.leave(reason="test over")
    with pytest.raises(HostLost):
        first.host.core.write(member.guard)


def test_a_replaced_owner_is_gone_also_when_somebody_else_has_its_lock_by_then(folder: Path) -> None:
    first, second, third = Party(folder), Party(folder), Party(folder)
    member = first.host.enter(run("/h/a")).member
    assert member is not None
    member.settle(["/h/a"], multiplex=True)
    taken = []

    def leaves(pid: int, number: int) -> None:
        member.leave(reason="asked to")
        late = third.host.enter(run("/h/b")).member
        assert late is not None and late.owns_host
        late.settle(["/h/a", "/h/b"], multiplex=True)
        taken.append(late)

    verdict = second.host.enter(run("/h/a"), replace=True, signal=leaves).verdict
    assert isinstance(verdict, Attach) and verdict.pid == third.presence.identity.pid
    taken[0].leave(reason="test over")


def test_a_stopped_owner_is_asked_nothing_that_it_would_do_when_nobody_is_there(folder: Path) -> None:
    first, second = Party(folder), Party(folder, waits=Waits(identify=0.0, settle=0.0, poll=0.0, leave=0.0))
    member = first.host.enter(run("/h/a"), answers=False).member
    assert member is not None
    stopped = subprocess.Popen(["sleep", "60"])
    try:
        os.kill(stopped.pid, signal.SIGSTOP)
        os.waitpid(stopped.pid, os.WUNTRACED)
        with open(f"/proc/{stopped.pid}/stat", encoding="utf-8") as stat:
            ticks = int(stat.read().rpartition(")")[2].split()[19])
        identity = replace(first.presence.identity, pid=stopped.pid, start_ticks=ticks)
        first.host.core.write(lambda tx: tx.execute("UPDATE gateways SET owner = ?", (identity.to_json(),)))
        refused = second.host.enter(
            run("/h/a"), replace=True, signal=lambda pid, number: pytest.fail("a stopped process got a signal")
        ).verdict
        assert isinstance(refused, Refuse) and refused.sentence == (
            f"PID {stopped.pid} of /h/a is stopped (SIGSTOP or a debugger), so it cannot leave: have it go on, or"
            " kill it."
        )
        assert second.host.markers.list_open() == []
    finally:
        stopped.kill()
        stopped.wait()
