"""Reports 155 to 162 where they concern state: work that outlives a gateway, and what its end owes."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_state import open_store
from hermes_state.clock import FakeClock
from hermes_state.outbox import Accepted
from hermes_state.routing import Home
from hermes_state.store import Store
from hermes_state.work.background import Process, Tell
from hermes_state.work.notices import Notice
from hermes_state.work.states import DelegationState, Mode, ProcessState
from hermes_state.work.streams import Sending
from tests.support.children import Children

TURN = Tell(mode=Mode.TURN, transport="telegram", target="7")


@pytest.fixture
def store(tmp_path: Path, fake_clock: FakeClock) -> Store:
    return open_store(tmp_path, clock=fake_clock)


@pytest.fixture
def home(store: Store) -> Home:
    return store.routing.home


DYING = """
import os, signal, sys
from hermes_state import open_store
from hermes_state.work.background import Tell
store = open_store(sys.argv[1])
home, work = store.routing.home, store.work
tell = Tell(mode="turn", transport="telegram", target="7")
given = work.delegations.dispatch("d", home, task={"goal": "look"}, tell=tell)
work.delegations.completed(given, home, "found")
work.streams.finish("t", "Hello.", home, transport="telegram", target="7")
def handler(_what):
    os.kill(os.getpid(), signal.SIGKILL)
{"notice": work.notices.deliver, "reply": work.streams.deliver}[sys.argv[2]](handler, ["telegram"])
"""


@pytest.mark.slow
@pytest.mark.parametrize("what", ["notice", "reply"])
def test_a_restart_in_the_middle_of_a_delivery_loses_no_message(child: Children, tmp_path: Path, what: str) -> None:
    """Report 155: killed between the end of a run and the acknowledgement of what it sent."""
    gone = child(DYING, tmp_path, what)
    assert gone.wait() == -9
    told: list[tuple[str, bool]] = []

    def admit(notice: Notice) -> Accepted:
        told.append((notice.text, False))
        return Accepted()

    def send(part: Sending) -> Accepted:
        told.append((str(part.text), part.may_be_shown))
        return Accepted(result={"message_id": "m"})

    with open_store(tmp_path) as store:
        for _again in range(2):
            store.work.notices.deliver(admit, ["telegram"], limit=5)
            store.work.streams.deliver(send, ["telegram"], limit=5)
    assert [text for text, _marked in told if "found" in text] and len(told) == 2
    assert ("Hello.", what == "reply") in told


def test_a_worker_that_ignores_its_interrupt_is_ended_from_outside_and_says_nothing_more(
    store: Store, home: Home, fake_clock: FakeClock
) -> None:
    """Report 156: whoever watches ends the row by its own clock; what the worker says later changes nothing."""
    group = store.work.delegations
    given = group.dispatch("d", home, task="t", tell=TURN)
    fake_clock.advance(900)
    ended = group.stalled(group.stalling(given, home), home, "no answer for 15 minutes")
    late = group.completed(given, home, "after all")
    assert late.state is ended.state is DelegationState.STALLED
    told: list[str] = []
    for _again in range(2):
        store.work.notices.deliver(lambda notice: told.append(notice.text) or Accepted(), ["telegram"])
    assert len(told) == 1 and "no answer for 15 minutes" in told[0]


def test_a_delivery_that_hangs_holds_neither_a_slot_nor_the_store(store: Store, home: Home) -> None:
    """Report 157: the work has ended when its delivery begins, and nothing waits for the receiver."""
    work = store.work
    seen: list[str] = []

    def hangs(notice: Notice) -> Accepted:
        if not seen:
            seen.append("hangs")
            assert work.processes.active() == []
            other = work.processes.running(begun(store, home, "other"), home, 78, scope="sandbox")
            assert work.processes.exited(other, home, exit_code=0).ended
            work.notices.deliver(lambda inner: seen.append(inner.text) or Accepted(), ["telegram"])
        return Accepted()

    first = work.processes.running(begun(store, home, "first"), home, 77, scope="sandbox")
    work.processes.exited(first, home, exit_code=0)
    work.notices.deliver(hangs, ["telegram"])
    assert len(seen) == 2 and "other" in seen[1]


def begun(store: Store, home: Home, name: str) -> Process:
    return store.work.processes.register(name, home, command=name, epoch="e", tell=TURN)


ONE_SHOT = """
import sys
from hermes_state import open_store
from hermes_state.work.background import Tell
store = open_store(sys.argv[1])
tell = Tell(mode="turn", transport="telegram", target="7")
made = store.work.processes.register("job", store.routing.home, command="job", epoch="first", tell=tell)
store.work.processes.running(made, store.routing.home, int(sys.argv[2]), scope="sandbox")
"""


@pytest.mark.slow
def test_a_run_that_died_with_its_caller_is_taken_back_and_the_next_one_begins(
    child: Children, tmp_path: Path
) -> None:
    """Report 159: the row stayed claimed, and every later run was refused."""
    child(ONE_SHOT, tmp_path, 4242).finish()
    with open_store(tmp_path) as store:
        home, group = store.routing.home, store.work.processes
        assert [one.process_id for one in group.active()] == ["job"]
        group.recover(home)
        ended = group.get("job", "first")
        assert ended is not None and ended.state is ProcessState.LOST
        again = group.register("job", home, command="job", epoch="second", tell=TURN)
        assert [one.epoch for one in group.active()] == [again.epoch]
