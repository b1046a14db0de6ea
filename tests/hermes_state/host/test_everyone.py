"""`start --all` and `restart --all` as lists (T2.7, R51): nobody unrelated is named to be ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_state.host import Membership, RunState, Waits
from hermes_state.host.everyone import Does, ForHomes
from tests.hermes_state.host.hosts import Party, folder_of, run

HOMES = [f"/h/{name}" for name in "abcd"]


def gateway(folder: Path, home: str, served: list[str] | None, *, multiplex: bool = False) -> Membership:
    member = Party(folder).host.enter(run(home), force=True).member
    assert member is not None
    if served is not None:
        member.settle(served, multiplex=multiplex)
        member.move(RunState.RUNNING)
    return member


def told(lines: list[ForHomes]) -> list[tuple[str, str | None, tuple[str, ...], int]]:
    return [(one.does, one.gateway and one.gateway.home, one.homes, one.exit_code) for one in lines]


def test_t2_7_starting_all_beside_a_multiplexer_starts_nobody_whom_it_serves(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    viewer = Party(folder)
    assert told(viewer.host.start_all(HOMES)) == [(Does.START, None, tuple(HOMES), 0)]
    owner, alone = gateway(folder, "/h/a", HOMES[:2], multiplex=True), gateway(folder, "/h/c", ["/h/c"])
    before = viewer.host.probe.dialled
    assert told(viewer.host.start_all(HOMES)) == [
        (Does.SERVED, "/h/a", ("/h/a", "/h/b"), 0), (Does.SERVED, "/h/c", ("/h/c",), 0),
        (Does.START, None, ("/h/d",), 0),
    ]
    assert viewer.host.probe.dialled - before <= 3  # each gateway once, and the owner; not once a home
    owner.move(RunState.DRAINING)
    assert told(viewer.host.start_all(HOMES))[0] == (Does.WAIT, "/h/a", ("/h/a", "/h/b"), 75)
    for member in (owner, alone):
        member.leave(reason="test over")


def test_t2_7_restarting_all_names_the_one_that_serves_the_caller_with_all_that_it_serves(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    viewer = Party(folder)
    owner, alone = gateway(folder, "/h/a", HOMES[:2], multiplex=True), gateway(folder, "/h/c", ["/h/c"])
    lines = viewer.host.restart_all("/h/b")
    assert told(lines) == [
        (Does.RESTART, "/h/a", ("/h/a", "/h/b"), 0), (Does.SERVED, "/h/c", ("/h/c",), 0),
    ]
    assert lines[1].how == (
        f"PID {alone.identity.pid} of /h/c keeps running; hermes-state host migrate --multiplex says how to have one"
        " gateway for all"
    )
    assert told(viewer.host.restart_all("/h/c"))[0] == (Does.RESTART, "/h/c", ("/h/c",), 0)
    for member in (owner, alone):
        member.leave(reason="test over")


def test_t2_7_restarting_all_beside_anothers_multiplexer_is_refused_for_good(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    owner = gateway(folder, "/h/a", HOMES[:2], multiplex=True)
    (line,) = Party(folder).host.restart_all("/h/d")
    assert (line.does, line.exit_code) == (Does.REFUSE, 78)
    assert line.how == (
        f"PID {owner.identity.pid} of /h/a serves several homes and /h/d is not one of them; restart it from its own"
        " home"
    )
    owner.leave(reason="test over")
    assert told(Party(folder).host.restart_all("/h/d")) == [(Does.START, None, ("/h/d",), 0)]


@pytest.mark.parametrize("home", ["/h/a", "/h/d"])
def test_a_gateway_that_has_not_settled_is_waited_for_and_not_ended(tmp_path: Path, home: str) -> None:
    folder = folder_of(tmp_path)
    owner = gateway(folder, "/h/a", None)
    viewer = Party(folder)
    assert told(viewer.host.restart_all(home)) == [(Does.WAIT, "/h/a", (home,), 75)]
    assert told(viewer.host.start_all([home])) == [(Does.WAIT, "/h/a", (home,), 75)]
    owner.leave(reason="test over")


def test_where_gateways_cannot_be_seen_none_is_ended(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    owner = gateway(folder, "/h/a", ["/h/a"])
    (folder / "gateway.lock").rename(folder / "moved")
    (folder / "gateway.lock").mkdir()
    viewer = Party(folder, waits=Waits())
    assert [one.does for one in viewer.host.restart_all("/h/a")] == [Does.WAIT]
    owner.leave(reason="test over")
    (line,) = viewer.host.start_all(["/h/b"])
    assert (line.does, "cannot be seen" in line.how) == (Does.START, True)
