"""After a restart: whose watcher is gone, and what is done about what it watched over."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from hermes_state.clock import FakeClock
from hermes_state.routing import Home
from hermes_state.store import Store
from hermes_state.work.background import Process
from hermes_state.work.processes import Recovered, Seen
from hermes_state.work.states import DelegationState, ProcessState, Reason
from tests.hermes_state.work.background.conftest import TURN, Admitting, Gateway, obligations


@pytest.fixture(name="theirs")
def registered_elsewhere(home: Home, gateway: Gateway) -> Callable[..., Process]:
    def theirs(process_id: str, pid: int | None = None, scope: str = "host") -> Process:
        process = gateway.processes.register(process_id, home, command="make", tell=TURN)
        return process if pid is None else gateway.processes.running(process, home, pid, scope=scope)

    return theirs


def ended_pid() -> int:
    """The pid of a process that ran and is gone."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return ended.pid


def test_a_watcher_that_lives_keeps_its_rows_however_late_it_renews(
    store: Store, home: Home, theirs: Callable[..., Process], gateway: Gateway, fake_clock: FakeClock
) -> None:
    theirs("p", os.getpid())
    gateway.delegations.dispatch("d", home, task="t", tell=TURN)
    fake_clock.advance(86_400.0)
    assert store.work.processes.recover(home) == Recovered()
    assert store.work.delegations.recover(home) == ()
    assert obligations(store) == {}


def test_t5_8_across_a_restart_each_end_is_told_once(
    store: Store, home: Home, theirs: Callable[..., Process], gateway: Gateway, chat: Admitting
) -> None:
    """The gateway dies: one process is not started, one runs, one was seen to be gone, one is in a sandbox."""
    never, runs, sandboxed = theirs("never"), theirs("runs", os.getpid()), theirs("sandboxed", 7, "sandbox")
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    gone = theirs("gone", child.pid)
    child.communicate()
    gateway.die()
    found = store.work.processes.recover(home)
    assert [one.key for one in found.taken_over] == [runs.key]
    assert [(one.key, one.reason, one.exit_code) for one in found.exited] == [(gone.key, Reason.ALREADY_EXITED, None)]
    assert [(one.key, one.state, one.error) for one in found.lost] == [
        (key, ProcessState.LOST, "whoever watched over it is gone: nobody holds its lock file")
        for key in (never.key, sandboxed.key)
    ]
    assert store.work.processes.recover(home) == Recovered()
    store.work.processes.exited(store.work.processes.get("runs"), home, exit_code=0)  # type: ignore[arg-type]
    assert obligations(store) == dict.fromkeys((runs.key, gone.key, never.key, sandboxed.key), "pending")
    assert sorted(chat.deliver()) == sorted((runs.key, gone.key, never.key, sandboxed.key))


def test_t5_8_an_end_that_the_dying_gateway_still_wrote_is_told_by_the_next(
    store: Store, home: Home, theirs: Callable[..., Process], gateway: Gateway, chat: Admitting
) -> None:
    """During a stop: the row has ended, and nobody was there to tell."""
    process = theirs("p", os.getpid())
    gateway.processes.exited(process, home, exit_code=0)
    gateway.die()
    assert store.work.processes.recover(home) == Recovered()
    assert chat.deliver() == [process.key]


def test_report_158_a_process_outlives_its_caller_and_says_its_own_end(
    store: Store, home: Home, theirs: Callable[..., Process], gateway: Gateway, chat: Admitting
) -> None:
    """The row is the receipt: the caller is killed at 120 s, the process ends well at 200 s."""
    process = theirs("p", os.getpid())
    gateway.die()
    assert [one.key for one in store.work.processes.recover(home).taken_over] == [process.key]
    ended = store.work.processes.exited(process, home, exit_code=0, output="done")
    assert (ended.state, ended.exit_code) == (ProcessState.EXITED, 0)
    assert chat.deliver() == [process.key]


def test_report_161_a_result_of_a_dead_owner_is_told_without_a_restart(
    store: Store, home: Home, gateway: Gateway, chat: Admitting
) -> None:
    gateway.delegations.completed(gateway.delegations.dispatch("done", home, task="t", tell=TURN), home, "r")
    gateway.delegations.dispatch("open", home, task="t", tell=TURN)
    gateway.die()
    (lost,) = store.work.delegations.recover(home)
    assert (lost.state, lost.error) == (
        DelegationState.UNKNOWN, "whoever ran it is gone: nobody holds its lock file"
    )
    assert chat.deliver() == ["delegation/done", "delegation/open"]
    assert store.work.delegations.recover(home) == ()


def test_report_162_a_row_of_a_dead_process_does_not_run_for_ever(
    store: Store, home: Home, theirs: Callable[..., Process], gateway: Gateway
) -> None:
    theirs("p", ended_pid())
    gateway.die()
    assert not store.work.processes.recover(home).taken_over
    assert store.work.processes.active() == []


def test_report_160_a_slot_is_free_once_the_end_could_be_written(
    store: Store, home: Home, begin: Callable[..., Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first write of an end fails; the same call again writes it, and nothing counts as running any more."""
    process = begin("p")
    plain = store.core.write
    monkeypatch.setattr(store.core, "write", lambda *_given, **_named: (_ for _ in ()).throw(OSError("disk")))
    with pytest.raises(OSError, match="disk"):
        store.work.processes.exited(process, home, exit_code=0)
    monkeypatch.setattr(store.core, "write", plain)
    assert store.work.processes.exited(process, home, exit_code=0).ended
    assert (store.work.processes.active(), obligations(store)) == ([], {process.key: "pending"})


def test_a_probe_answers_for_what_cannot_be_judged_from_here(
    store: Store, home: Home, theirs: Callable[..., Process], gateway: Gateway
) -> None:
    for number in range(3):
        theirs(f"p{number}", 7, "sandbox")
    gateway.die()
    answers = {"p0": Seen(running=True), "p1": Seen(running=False, exit_code=3, output="end"), "p2": None}
    found = store.work.processes.recover(home, probe=lambda process: answers[process.process_id])
    assert [one.process_id for one in found.taken_over] == ["p0"]
    assert [(one.process_id, one.exit_code, one.output) for one in found.exited] == [("p1", 3, "end")]
    assert [one.process_id for one in found.lost] == ["p2"]


def test_a_watcher_of_another_boot_is_believed_until_it_was_silent_for_long_enough(
    store: Store, home: Home, theirs: Callable[..., Process], gateway: Gateway, fake_clock: FakeClock
) -> None:
    theirs("p", os.getpid())
    gateway.die()
    fake_clock.reboot(boot_id="another boot")
    assert store.work.processes.recover(home) == Recovered()
    fake_clock.advance(301.0)
    assert store.work.processes.recover(home) == Recovered()
    fake_clock.advance(600.0)
    (lost,) = store.work.processes.recover(home).lost
    assert lost.error == "whoever watched over it is gone: nothing was heard of it for its term"


def test_what_is_renewed_meanwhile_is_not_taken(
    store: Store, home: Home, theirs: Callable[..., Process], gateway: Gateway
) -> None:
    process = theirs("p", 7, "sandbox")
    gateway.die()

    def probe(_process: Process) -> None:
        assert gateway.processes.renew(home) == 1

    assert store.work.processes.recover(home, probe=probe) == Recovered()
    assert not store.work.processes.get("p", process.epoch).ended  # type: ignore[union-attr]
