"""What goes on after a takeover: processes that nobody polls, zombies, pids that were gone, probes that fail."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from hermes_state.errors import InvalidInput
from hermes_state.routing import Home
from hermes_state.store import Store
from hermes_state.work.background import Process
from hermes_state.work.processes import Recovered, Seen
from hermes_state.work.states import ProcessState, Reason
from tests.hermes_state.work.background.conftest import TURN, Admitting, Gateway

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


@pytest.fixture(name="theirs")
def registered_elsewhere(home: Home, gateway: Gateway) -> Callable[..., Process]:
    def theirs(process_id: str, pid: int | None = None, scope: str = "host") -> Process:
        process = gateway.processes.register(process_id, home, command="make", tell=TURN)
        return process if pid is None else gateway.processes.running(process, home, pid, scope=scope)

    return theirs


@pytest.fixture(name="child_process")
def waiting_child() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    yield child
    child.communicate()


def test_t5_8_the_end_of_a_process_that_was_taken_over_is_told(
    store: Store, home: Home, theirs: Callable[..., Process], gateway: Gateway, chat: Admitting,
    child_process: subprocess.Popen[bytes],
) -> None:
    """Reports 161, 162: it goes on over a restart, and its end was told to nobody."""
    runs = theirs("runs", child_process.pid)
    gateway.die()
    assert [one.key for one in store.work.processes.recover(home).taken_over] == [runs.key]
    assert store.work.processes.recover(home) == Recovered()  # it runs
    child_process.communicate()
    assert [one.reason for one in store.work.processes.recover(home).exited] == [Reason.ALREADY_EXITED]
    assert store.work.processes.recover(home) == Recovered()
    assert chat.deliver() == [runs.key]


def test_what_was_taken_over_in_a_sandbox_is_asked_for_again_and_stays_without_an_answer(
    store: Store, home: Home, theirs: Callable[..., Process], gateway: Gateway
) -> None:
    sandboxed, group = theirs("sandboxed", 7, "sandbox"), store.work.processes
    gateway.die()
    assert len(group.recover(home, probe=lambda _one: Seen(running=True)).taken_over) == 1
    assert group.recover(home, probe=lambda _one: None) == Recovered()
    assert group.recover(home) == Recovered()
    found = group.recover(home, probe=lambda _one: Seen(running=False, exit_code=3, output="done"))
    assert [(one.key, one.exit_code, one.output) for one in found.exited] == [(sandboxed.key, 3, "done")]


def test_what_a_process_registered_itself_is_ended_by_nobody_else_while_it_lives(
    store: Store, home: Home, begin: Callable[..., Process], child_process: subprocess.Popen[bytes]
) -> None:
    """Its exit code and its output are still to be said."""
    store.work.processes.running(begin("own"), home, child_process.pid)
    child_process.communicate()
    assert store.work.processes.recover(home) == Recovered()


@linux
def test_a_zombie_has_ended(
    store: Store, home: Home, theirs: Callable[..., Process], gateway: Gateway
) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    process = theirs("zombie", child.pid)
    wait_unreaped(child)
    gateway.die()
    assert [one.key for one in store.work.processes.recover(home).exited] == [process.key]
    child.wait()


def wait_unreaped(child: subprocess.Popen[bytes]) -> None:
    """Until it has ended; its exit code stays unread."""
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)


@linux
def test_one_that_was_said_to_run_after_it_was_gone_has_exited_and_is_not_lost(
    store: Store, home: Home, theirs: Callable[..., Process], gateway: Gateway
) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    process = theirs("late", child.pid)
    assert process.state is ProcessState.RUNNING
    gateway.die()
    found = store.work.processes.recover(home)
    assert [(one.key, one.state, one.reason) for one in found.exited] == [
        (process.key, ProcessState.EXITED, Reason.ALREADY_EXITED)
    ]


def test_a_probe_that_raises_keeps_no_other_process_waiting(
    store: Store, home: Home, theirs: Callable[..., Process], gateway: Gateway
) -> None:
    for name in ("a", "b", "c"):
        theirs(name)
    gateway.die()

    def probe(process: Process) -> Seen:
        if process.process_id != "b":
            raise RuntimeError(f"{process.process_id} does not answer")
        return Seen(running=False, exit_code=0)

    with pytest.raises(RuntimeError, match="a does not answer") as caught:
        store.work.processes.recover(home, probe=probe)
    assert caught.value.__notes__ == ["probe raised for 2 of 3 processes; the rest is done."]
    assert [one.state for one in store.work.processes.page()] == [
        ProcessState.REGISTERED, ProcessState.EXITED, ProcessState.REGISTERED
    ]


def test_a_probe_that_would_have_to_be_awaited_is_refused(
    store: Store, home: Home, theirs: Callable[..., Process], gateway: Gateway
) -> None:
    async def probe(_process: Process) -> Seen:
        raise AssertionError

    theirs("p")
    gateway.die()
    for wrong in (probe, lambda one: probe(one), lambda _one: True):
        with pytest.raises(InvalidInput):
            store.work.processes.recover(home, probe=wrong)  # type: ignore[arg-type]
    assert [one.state for one in store.work.processes.page()] == [ProcessState.REGISTERED]
