"""Served sets converge: a plan over rows, which ends when it is carried out."""

from __future__ import annotations

import os
from pathlib import Path

from hermes_state.host import Membership, RunState, Supervisor
from hermes_state.host.converge import Do, Step
from tests.hermes_state.host.hosts import Party, folder_of, run

HOMES = ["/h/a", "/h/b", "/h/c"]


def test_from_a_gateway_a_home_to_one_for_all_of_them(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    viewer = Party(folder)
    plan = viewer.host.plan_multiplex
    assert [step.do for step in plan(HOMES)] == [Do.START]
    parties = {home: Party(folder) for home in HOMES}
    members = {}
    for home, party in parties.items():
        entered = party.host.enter(run(home))
        assert entered.member is not None
        entered.member.settle([home], multiplex=False)
        members[home] = entered.member
    steps = plan(HOMES)
    assert [(step.do, step.gateway and step.gateway.home, step.homes) for step in steps] == [
        (Do.MULTIPLEX, "/h/a", ("/h/b", "/h/c")),
    ]
    # Carried out: the owner is started again, first without the others' homes.
    members["/h/a"].leave(reason="starts again")
    again = Party(folder)
    entered = again.host.enter(run("/h/a"))
    assert entered.member is not None and entered.member.owns_host
    assert [step.do for step in plan(HOMES)] == [Do.WAIT]
    entered.member.settle(["/h/a"], multiplex=True)
    assert [(step.do, step.homes) for step in plan(HOMES)] == [(Do.RESCAN, ("/h/b", "/h/c"))]
    entered.member.settle(["/h/a", "/h/b"], multiplex=True)
    assert [(step.do, step.homes) for step in plan(HOMES)] == [(Do.RESCAN, ("/h/c",)), (Do.DRAIN, ("/h/b",))]
    entered.member.settle(HOMES, multiplex=True)
    for home in ("/h/b", "/h/c"):
        assert (Do.DRAIN, (home,)) in [(step.do, step.homes) for step in plan(HOMES)]
        members[home].leave(reason="drained")
    assert plan(HOMES) == []
    entered.member.leave(reason="test over")


def test_nobody_is_drained_whose_homes_the_owner_does_not_serve(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    owner, other = Party(folder), Party(folder)
    first = owner.host.enter(run("/h/a")).member
    assert first is not None
    first.settle(["/h/a"], multiplex=False)
    second = other.host.enter(run("/h/b")).member
    assert second is not None
    second.settle(["/h/b", "/h/x"], multiplex=True)
    first.settle(["/h/a", "/h/b"], multiplex=True)
    assert owner.host.plan_multiplex(["/h/a", "/h/b"]) == []
    for member in (first, second):
        member.leave(reason="test over")


def gateway_for(folder: Path, home: str, supervisor: Supervisor = Supervisor.NONE, label: str = "") -> Membership:
    member = Party(folder).host.enter(run(home, supervisor, label)).member
    assert member is not None
    member.settle([home], multiplex=False)
    member.move(RunState.RUNNING)
    return member


def told(steps: list[Step]) -> list[tuple[str, str | None, bool, bool]]:
    return [(step.do, step.gateway and step.gateway.home, step.stops, step.starts) for step in steps]


def test_the_whole_plan_names_what_is_stopped_and_started_in_order_with_the_words_for_each(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    members = [
        gateway_for(folder, "/h/a", Supervisor.SYSTEMD, "hermes-a"),
        gateway_for(folder, "/h/b", Supervisor.LAUNCHD, "ai.b"),
        gateway_for(folder, "/h/c", Supervisor.S6, "/run/service/gateway-c"), gateway_for(folder, "/h/d"),
        gateway_for(folder, "/h/x"),
    ]
    viewer = Party(folder)
    steps = viewer.host.plan_multiplex([*HOMES, "/h/d"], whole=True)
    assert told(steps) == [
        (Do.MULTIPLEX, "/h/a", True, True), (Do.RESCAN, None, False, False), (Do.DRAIN, "/h/b", True, False),
        (Do.DRAIN, "/h/c", True, False), (Do.DRAIN, "/h/d", True, False),  # and /h/x, which nobody else serves, stays
    ]
    uid, pid = os.geteuid(), members[3].identity.pid
    assert [step.how.rpartition(": ")[2] for step in steps if step.stops] == [
        "systemctl --user restart hermes-a",
        f"launchctl disable gui/{uid}/ai.b && launchctl bootout gui/{uid}/ai.b",
        "touch /run/service/gateway-c/down && s6-svc -d /run/service/gateway-c", f"kill -TERM {pid}",
    ]
    assert viewer.host.plan_multiplex([*HOMES, "/h/d"], whole=True) == steps  # nothing was done by asking
    for member in members:
        member.leave(reason="test over")
    assert told(viewer.host.plan_multiplex(HOMES, whole=True)) == [(Do.START, None, False, True)]


def test_a_host_whose_owner_cannot_be_seen_gives_a_plan_to_look_again_and_stops_nobody(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    members = [gateway_for(folder, "/h/a"), gateway_for(folder, "/h/b")]
    (folder / "gateway.lock").rename(folder / "moved")
    (folder / "gateway.lock").mkdir()
    for whole in (False, True):
        (step,) = Party(folder).host.plan_multiplex(HOMES, whole=whole)
        assert (step.do, step.gateway) == (Do.WAIT, None)
        assert step.how == f"who owns the host cannot be seen ({folder / 'gateway.lock'} is no file); look again"
    for member in members:
        member.leave(reason="test over")


def test_a_lock_without_a_record_stops_nobody(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    owner, other = gateway_for(folder, "/h/a"), gateway_for(folder, "/h/b")
    viewer = Party(folder)
    viewer.host.core.write(lambda tx: tx.execute("UPDATE host SET gateway_no = NULL"))
    assert [step.do for step in viewer.host.plan_multiplex(HOMES, whole=True)] == [Do.WAIT]
    for member in (owner, other):
        member.leave(reason="test over")


def test_the_plan_waits_for_an_owner_that_ends_by_itself(tmp_path: Path) -> None:
    owner = gateway_for(folder_of(tmp_path), "/h/a")
    owner.move(RunState.STOPPING)
    assert told(Party(folder_of(tmp_path)).host.plan_multiplex(HOMES, whole=True)) == [(Do.WAIT, "/h/a", False, False)]
    owner.leave(reason="test over")


def test_what_somebody_drained_and_left_so_is_ended_all_the_same(tmp_path: Path) -> None:
    """A plan that was given up between two steps: a gateway that drains does not end by itself."""
    folder = folder_of(tmp_path)
    owner, other = gateway_for(folder, "/h/a"), gateway_for(folder, "/h/b")
    for member in (owner, other):
        member.move(RunState.DRAINING)
    viewer = Party(folder)
    assert told(viewer.host.plan_multiplex(["/h/a", "/h/b"], whole=True)) == [
        (Do.MULTIPLEX, "/h/a", True, True), (Do.RESCAN, None, False, False), (Do.DRAIN, "/h/b", True, False),
    ]
    owner.settle(["/h/a", "/h/b"], multiplex=True)
    owner.move(RunState.RUNNING)
    assert told(viewer.host.plan_multiplex(["/h/a", "/h/b"])) == [(Do.DRAIN, "/h/b", True, False)]
    for member in (owner, other):
        member.leave(reason="test over")


def test_nobody_is_drained_for_an_owner_that_does_not_answer(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    owner, other = gateway_for(folder, "/h/a"), gateway_for(folder, "/h/b")
    owner.settle(["/h/a", "/h/b"], multiplex=True)
    viewer = Party(folder, asker=lambda party, question, seconds: None)
    (step,) = viewer.host.plan_multiplex(["/h/a", "/h/b"], whole=True)
    assert (step.do, step.how) == (
        Do.WAIT,
        f"who owns the host cannot be seen (PID {owner.identity.pid} of /h/a owns it and does not answer); look again",
    )
    # What the record says and the owner does not is not believed either.
    viewer = Party(folder)
    viewer.host.core.write(lambda tx: tx.execute("INSERT INTO served (gateway_no, home) VALUES (1, '/h/c')"))
    assert (Do.RESCAN, ("/h/c",)) in [(step.do, step.homes) for step in viewer.host.plan_multiplex(HOMES)]
    for member in (owner, other):
        member.leave(reason="test over")
