"""`host status` and `host decide`: what they say of a host, without changing it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hermes_state.host import MarkerKind, PlatformState, Supervisor
from tests.hermes_state.host.hosts import Party, run
from tests.support.cli import RunCli

pytestmark = pytest.mark.slow


@pytest.fixture(name="folder")
def users_folder(tmp_path: Path) -> Path:
    return tmp_path / "user" / ".local" / "state" / "hermes"


def test_where_nothing_has_run_both_say_so_and_make_nothing(run_cli: RunCli, folder: Path) -> None:
    shown = run_cli("host", "status")
    assert (shown.exit_code, shown.stdout) == (
        0, f"No gateway of this user has run here: there is no {folder / 'host.db'}.\n",
    )
    assert run_cli("host", "status", "--json").json["host"] is None
    decided = run_cli("host", "decide", "--json").json
    assert (decided["verdict"], decided["reason"], decided["exit_code"]) == ("start", "no_owner", None)
    assert not folder.exists()


def test_status_shows_owner_runs_attention_and_markers(run_cli: RunCli, folder: Path) -> None:
    owner, beside = Party(folder), Party(folder)
    first = owner.host.enter(run("/h/a", Supervisor.SYSTEMD, "hermes-a")).member
    assert first is not None
    first.settle(["/h/a"], multiplex=False)
    second = beside.host.enter(run("/h/b", Supervisor.LAUNCHD, "ai.b")).member
    assert second is not None
    owner.host.report(
        first, home="/h/a", platform="telegram", state=PlatformState.FAILED, needs_attention="the token was revoked"
    )
    Party(folder).host.enter(run("/h/b", Supervisor.LAUNCHD, "ai.b.old"))
    owner.host.markers.place(MarkerKind.DRAIN, home="/h/a", reason="an update")
    shown = run_cli("host", "status")
    pid = owner.presence.identity.pid
    assert shown.stdout.splitlines() == [
        f"Owner: PID {pid} of /h/a (fence 1), serves 1 homes.",
        f"{'no'}  {'pid':>{len(str(pid))}}  life   state     agents  started by        home",
        f" 1  {pid}  alive  starting       0  systemd:hermes-a  /h/a",
        f" 2  {pid}  alive  starting       0  launchd:ai.b      /h/b",
        "Attention: telegram of /h/a (failed): the token was revoked",
        "Started twice: /h/b by launchd:ai.b and by launchd:ai.b.old",
        "Marker: drain of /h/a: an update",
    ]
    document = run_cli("host", "status", "--json").json
    assert document["host"]["served"] == ["/h/a"]
    assert [one["served"] for one in document["runs"]] == [["/h/a"], None]
    for member in (second, first):
        member.leave(reason="test over")


def test_decide_exits_0_whatever_the_verdict_and_explains_it(run_cli: RunCli, folder: Path, tmp_path: Path) -> None:
    owner = Party(folder)
    home = tmp_path / "home"
    home.mkdir()
    member = owner.host.enter(run("/h/a"), rescan=lambda: ["/h/a"]).member
    assert member is not None
    member.settle(["/h/a", str(home)], multiplex=True)
    attached = run_cli("host", "decide", "--supervisor", "launchd", "--explain")
    pid = owner.presence.identity.pid
    lines = attached.stdout.splitlines()
    assert (attached.exit_code, lines[0], lines[1]) == (
        0, f"attach: The owner of this host (PID {pid} of /h/a) serves {home}.", "Started by launchd, it exits 75.",
    )
    assert lines[-6:] == [
        "started by  exit  then", "systemd     75    restarted", "s6          75    restarted",
        "launchd     75    restarted", "external    75", "none        0     ended",
    ]
    member.settle(["/h/a"], multiplex=True)
    refused = run_cli("host", "decide", "--explain", "--json")
    assert refused.exit_code == 0
    assert (refused.json["verdict"], refused.json["exit_code"]) == ("refuse_permanent", 78)
    assert refused.json["supervisors"]["s6"] == {"exit_code": 78, "then": ["parked"]}
    assert json.loads(run_cli("host", "decide", "--force", "--json").stdout)["reason"] == "forced"
    member.leave(reason="test over")


def test_a_host_of_another_user_is_unknown_and_not_free(run_cli: RunCli, folder: Path) -> None:
    import os

    if os.geteuid() != 0:
        pytest.skip("giving a file to another user needs root")
    Party(folder).host.close()
    os.chown(folder / "host.db", 4321, 4321)
    decided = run_cli("host", "decide", "--json").json
    assert (decided["verdict"], decided["reason"], decided["beside"]) == ("start", "unknown_owner", True)
    shown = run_cli("host", "status", "--json")
    assert (shown.exit_code, shown.json_error["error"]["code"]) == (1, "host_not_ours")


@pytest.mark.parametrize(
    "verb", [("sessions", "list"), ("sessions", "prune", "--yes"), ("sessions", "adopt", "--dry-run")]
)
def test_the_verbs_of_a_store_refuse_the_hosts_file_by_name(
    run_cli: RunCli, folder: Path, verb: tuple[str, ...]
) -> None:
    Party(folder).host.close()
    refused = run_cli(*verb, "--db", folder / "host.db", "--json")
    assert (refused.exit_code, refused.json_error["error"]["message"]) == (
        1, f"{folder / 'host.db'} holds what arbitrates between the homes of one user; it is no home's store.",
    )
