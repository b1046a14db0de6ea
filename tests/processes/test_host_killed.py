"""Owners that are killed, frozen, replaced and asked, as processes of their own."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from hermes_state.host import Answer, Attach, Reason, Refuse, Seen, Start, Supervisor, Waits, exit_code, open_host
from hermes_state.host import Party as Named
from hermes_state.host.asking import Question, ask
from hermes_state.host.probe import Asker
from tests.hermes_state.host.hosts import Party, folder_of, run
from tests.support.children import Child, Children

# Counts statements and dies before the one that it is told; what it was doing is a whole life of an owner.
DIES = """
import os, signal, sys
from pathlib import Path
from hermes_state.engine.transaction import Transaction
from hermes_state.host import Run, RunState, open_host

folder, dies_at = Path(sys.argv[1]), int(sys.argv[2])
count = 0

def counting(name):
    plain = getattr(Transaction, name)
    def call(self, *given, **named):
        global count
        count += 1
        if count == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return plain(self, *given, **named)
    setattr(Transaction, name, call)

for name in ("execute", "executemany", "rows", "row"):
    counting(name)
host = open_host(folder)
member = host.enter(Run(home="/h/a")).member
member.settle(["/h/a", "/h/b"], multiplex=True)
member.move(RunState.RUNNING)
member.beat(active_agents=1)
member.leave(reason="done")
"""


def lives(child: Children, folder: Path, places: range) -> int:
    """One owner killed at each place, and a successor after each; gives how many were killed."""
    killed = 0
    fence = 0
    for place in places:
        owner = child(DIES, folder, place)
        status = owner.wait()
        assert status in (0, -signal.SIGKILL), owner.output
        killed += status == -signal.SIGKILL
        party = Party(folder)
        entered = party.host.enter(run("/h/b", Supervisor.SYSTEMD))
        member = entered.member
        assert member is not None and member.owns_host and member.fence is not None, (place, entered.verdict)
        assert member.fence > fence
        fence = member.fence
        alive = [one.gateway.no for one in party.host.gateways() if one.may_live]
        assert alive == [member.gateway_no], place
        member.leave(reason="next")
        party.host.close()
        party.die()
        if status == 0:
            break
    return killed


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1, 6))
def test_an_owner_killed_at_any_statement_leaves_the_host_to_the_next(
    tmp_path: Path, child: Children, first: int
) -> None:
    """Every fifth statement in each of five runs: all of them together."""
    killed = lives(child, folder_of(tmp_path), range(first, 100, 5))
    assert killed >= 5


OWNER = """
import json, signal, sys
from pathlib import Path
import gates
from hermes_state.host import MarkerKind, Run, RunState, Supervisor, open_host, stop_code
folder, home, served, multiplex, leaves = sys.argv[1:]
# Waited for below: a handler could come just before the wait.
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
host = open_host(Path(folder))
member = host.enter(Run(home=home), rescan=lambda: json.loads(served)).member

def stop():
    if leaves == "no":
        return
    planned = host.markers.take(MarkerKind.TAKEOVER)
    member.leave(reason="taken over" if planned else "terminated")
    sys.exit(stop_code(planned and planned.kind, Supervisor.NONE))

member.settle(json.loads(served), multiplex=multiplex == "on")
member.move(RunState.RUNNING)
gates.reach("serves", str(member.fence))
while True:
    signal.sigwait({signal.SIGTERM})
    stop()
"""


def owner_of(child: Children, folder: Path, served: str, multiplex: str, leaves: str = "yes") -> Child:
    owner = child(OWNER, folder, "/h/owner", served, multiplex, leaves)
    owner.wait_for("serves")
    return owner


@pytest.mark.slow
@pytest.mark.parametrize("supervisor", list(Supervisor))
def test_t2_1_beside_a_real_standalone_owner_a_home_starts_and_a_real_multiplexer_without_it_refuses(
    tmp_path: Path, child: Children, supervisor: Supervisor
) -> None:
    owner_of(child, tmp_path / "one" / "hermes", '["/h/owner"]', "off")
    started = Party(tmp_path / "one" / "hermes").host.enter(run("/h/us", supervisor))
    assert isinstance(started.verdict, Start) and started.verdict.beside and started.member is not None
    owner_of(child, tmp_path / "two" / "hermes", '["/h/owner"]', "on")
    refused = Party(tmp_path / "two" / "hermes").host.enter(run("/h/us", supervisor))
    assert (refused.verdict.reason, exit_code(refused.verdict.outcome, supervisor)) == (Reason.EXCLUDED, 78)
    started.member.leave(reason="test over")


@pytest.mark.slow
def test_t2_4_replace_ends_the_real_owner_which_knows_that_it_was_planned(tmp_path: Path, child: Children) -> None:
    folder = folder_of(tmp_path)
    owner = owner_of(child, folder, '["/h/owner", "/h/us"]', "on")
    party = Party(folder, waits=Waits(settle=0.0, poll=0.01, leave=30.0))
    entered = party.host.enter(run("/h/us"), replace=True)
    assert entered.member is not None and entered.member.owns_host and entered.member.fence == 2
    assert owner.wait() == 0  # and not 1, as after a SIGTERM that nobody announced
    entered.member.leave(reason="test over")


@pytest.mark.slow
def test_a_sigterm_that_nobody_announced_exits_1(tmp_path: Path, child: Children) -> None:
    owner = owner_of(child, folder_of(tmp_path), '["/h/owner"]', "off")
    os.kill(owner.pid, signal.SIGTERM)
    assert owner.wait() == 1


@pytest.mark.slow
def test_an_owner_that_ignores_sigterm_is_asked_once_and_the_start_is_tried_again_later(
    tmp_path: Path, child: Children
) -> None:
    folder = folder_of(tmp_path)
    owner = owner_of(child, folder, '["/h/owner", "/h/us"]', "on", "no")
    party = Party(folder, waits=Waits(settle=0.0, poll=0.01, leave=0.2))
    refused = party.host.enter(run("/h/us"), replace=True)
    assert (refused.verdict.reason, exit_code(refused.verdict.outcome, Supervisor.NONE)) == (Reason.OWNER_LEAVING, 75)
    assert refused.verdict.evidence[-1] == f"PID {owner.pid} was asked to leave"
    assert owner.process.poll() is None


@pytest.mark.slow
def test_a_frozen_owner_is_neither_attached_to_nor_replaced_by_a_second_one(tmp_path: Path, child: Children) -> None:
    folder = folder_of(tmp_path)
    owner = owner_of(child, folder, '["/h/owner", "/h/us"]', "on")
    party = Party(folder, waits=Waits(identify=30.0))
    assert isinstance(party.host.enter(run("/h/us")).verdict, Attach)
    owner.freeze()
    party.host.probe.waits = Waits(identify=0.2, settle=0.3, poll=0.05, rescan=0.2)  # nobody answers in any time
    refused = party.host.enter(run("/h/us", Supervisor.S6))
    assert isinstance(refused.verdict, Refuse)
    assert (refused.verdict.reason, refused.verdict.permanent) == (Reason.OWNER_SILENT, False)
    owner.thaw()
    party.host.probe.waits = Waits(identify=30.0)
    assert isinstance(party.host.enter(run("/h/us", Supervisor.S6)).verdict, Attach)


@pytest.mark.slow
@pytest.mark.parametrize(("multiplex", "starts"), [("off", True), ("on", False)])
def test_a_frozen_gateway_beside_keeps_others_away_only_if_it_may_serve_their_homes(
    tmp_path: Path, child: Children, multiplex: str, starts: bool
) -> None:
    folder = folder_of(tmp_path)
    owner = Party(folder)
    first = owner.host.enter(run("/h/first")).member
    assert first is not None
    first.settle(["/h/first"], multiplex=False)
    beside = owner_of(child, folder, '["/h/owner"]', multiplex)
    beside.freeze()
    waits = Waits(identify=0.3, settle=0.0, poll=0.0, rescan=0.3)
    entered = Party(folder, waits=waits, asker=patient_with(first.identity.pid)).host.enter(run("/h/us"))
    if starts:
        assert isinstance(entered.verdict, Start) and entered.member is not None
        entered.member.leave(reason="test over")
    else:
        assert entered.verdict.reason is Reason.OTHERS_SILENT
    first.leave(reason="test over")


def patient_with(pid: int) -> Asker:
    """Asks this process for as long as it takes, and others as long as it is told."""

    def asker(party: Named, question: Question, seconds: float) -> Answer | None:
        ours = party.identity is not None and party.identity.pid == pid
        return ask(party, question, 30.0 if ours else seconds)

    return asker


@pytest.mark.slow
def test_a_host_that_is_not_shared_is_unknown_or_separate_and_never_free_by_mistake(
    tmp_path: Path, child: Children
) -> None:
    """Of another folder nothing is known; of a folder that cannot be entered it is said."""
    owner_of(child, tmp_path / "one" / "hermes", '["/h/owner"]', "on")
    with open_host(tmp_path / "one" / "hermes") as host:
        assert host.host_gateway().seen is Seen.LIVE
    blocked = tmp_path / "two" / "hermes"
    blocked.mkdir(parents=True)
    (blocked / "gateway.lock").mkdir()
    with open_host(blocked) as host:
        entered = host.enter(run("/h/us"))
        assert entered.verdict.reason is Reason.UNKNOWN_OWNER
        assert entered.member is not None and not entered.member.owns_host
        entered.member.leave(reason="test over")
