"""Served sets converge: a plan over rows, which ends when it is carried out."""

from __future__ import annotations

from pathlib import Path

from hermes_state.host.converge import Do
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
