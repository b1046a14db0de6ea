"""`host status` and `host decide`: what they say of a host, without changing it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hermes_state.host import MarkerKind, PlatformState, RunState, SessionStore, Supervisor
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
    owner.host.markers.place(
        MarkerKind.DRAIN, home="/h/a", target=owner.presence.identity, reason="an update"
    )
    owner.host.report_store(first, home="/h/a", state=SessionStore.RETRYING)
    first.beat(active_agents=2, active_work=3)
    first.request_restart()
    shown = run_cli("host", "status")
    pid = owner.presence.identity.pid
    assert shown.stdout.splitlines() == [
        f"Owner: PID {pid} of /h/a (fence 1), serves 1 homes.",
        f"{'no'}  {'pid':>{len(str(pid))}}  life   state     agents  started by        home",
        f" 1  {pid}  alive  starting       2  systemd:hermes-a  /h/a",
        f" 2  {pid}  alive  starting       0  launchd:ai.b      /h/b",
        "Attention: telegram of /h/a (failed): the token was revoked",
        "Store: /h/a is retrying in gateway 1",
        "Restart: gateway 1 ends to be started again",
        "Started twice: /h/b by launchd:ai.b and by launchd:ai.b.old",
        f"Marker: drain of /h/a for PID {pid}: an update",
    ]
    document = run_cli("host", "status", "--json").json
    assert document["host"]["served"] == ["/h/a"]
    assert [one["served"] for one in document["runs"]] == [["/h/a"], None]
    told = document["runs"][0]
    assert (told["active_agents"], told["active_work"], told["restart_requested"]) == (2, 3, True)
    assert told["stores"] == [{"home": "/h/a", "session_store": "retrying"}]
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


def test_migrate_shows_the_steps_and_does_none_of_them(run_cli: RunCli, folder: Path, tmp_path: Path) -> None:
    root = tmp_path / "home"
    work = root / "profiles" / "work"
    work.mkdir(parents=True)
    empty = run_cli("host", "migrate", "--multiplex", "--json").json
    assert (empty["homes"], [one["do"] for one in empty["steps"]]) == ([str(root), str(work)], ["start"])
    assert not folder.exists()
    parties = {home: Party(folder) for home in (str(root), str(work))}
    members = []
    for home, party in parties.items():
        member = party.host.enter(run(home, Supervisor.SYSTEMD, f"hermes-{Path(home).name}")).member
        assert member is not None
        member.settle([home], multiplex=False)
        member.move(RunState.RUNNING)
        members.append(member)
    shown = run_cli("host", "migrate", "--multiplex")
    assert (shown.exit_code, shown.stdout.splitlines()) == (0, [
        "3 steps to one gateway for 2 homes; none is done here.",
        f"1. multiplex (stops and starts): have gateway 1 ({root}) serve all homes:"
        " systemctl --user restart hermes-home",
        f"     {work}",
        "2. rescan: have the gateway that was started look for homes again; a start of one of them does that as well",
        f"     {work}",
        f"3. drain (stops): drain gateway 2 ({work}), whose homes the owner serves, then stop it for good:"
        " systemctl --user disable --now hermes-work",
        f"     {work}",
    ])
    document = run_cli("host", "migrate", "--multiplex", "--serve", tmp_path / "more", "--json").json
    assert (document["executed"], len(document["homes"])) == (False, 3)
    assert [one.answer.state for one in members] == [RunState.RUNNING] * 2
    members[1].leave(reason="drained")
    members[0].settle([str(root), str(work)], multiplex=True)
    assert run_cli("host", "migrate", "--multiplex").stdout == "Nothing to do: one gateway serves 2 homes.\n"
    refused = run_cli("host", "migrate", "--json")
    assert (refused.exit_code, refused.json_error["error"]["message"]) == (2, "Say to what: --multiplex.")
    members[0].leave(reason="test over")


def test_units_exits_3_with_what_is_wrong_and_0_when_nothing_is(run_cli: RunCli, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.service", tmp_path / "bad.service"
    text = (
        "[Unit]\nStartLimitIntervalSec=0\n[Service]\nExecStart=hermes gateway run\nRestart=always\n"
        "RestartPreventExitStatus=78\n"
    )
    good.write_text(text)
    bad.write_text(text.replace("gateway run", "gateway run --replace"))
    fine = run_cli("host", "units", good)
    assert (fine.exit_code, fine.stdout) == (0, f"{good} (systemd): nothing is wrong\n")
    wrong = run_cli("host", "units", good, bad)
    assert (wrong.exit_code, wrong.stdout.splitlines()[1:]) == (3, [
        f"{bad} (systemd):",
        "  takeover_kept_alive: --replace together with Restart=always: two that are started so by systemd end each"
        " other for ever.",
        "    Take --replace out: a supervised start waits for its turn by itself.",
    ])
    document = run_cli("host", "units", bad, tmp_path / "gone", "--json")
    assert (document.exit_code, document.json["exit_status"]) == (3, 3)
    assert document.json["units"][0]["fates"] == {
        "0": "restarted", "1": "restarted", "75": "restarted", "78": "parked", "killed": "restarted",
    }
    assert [one["findings"][0]["code"] for one in document.json["units"]] == ["takeover_kept_alive", "cannot_read"]
    none = run_cli("host", "units", env={"S6_PROFILE_GATEWAY_SCANDIR": str(tmp_path / "none")})
    assert (none.exit_code, none.stdout) == (
        0, "No service file of a gateway was found; name one, or see --help for where it looks.\n",
    )


def test_a_home_that_is_not_there_is_not_decided_on(run_cli: RunCli, folder: Path, tmp_path: Path) -> None:
    refused = run_cli("host", "decide", "--home", tmp_path / "nope", "--json")
    assert (refused.exit_code, refused.json_error["error"]["message"]) == (1, f"There is no home {tmp_path / 'nope'}.")


def test_status_says_what_helps_with_a_damaged_host(run_cli: RunCli, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "host.db").write_bytes(b"no database at all, but long enough to look at" * 100)
    shown = run_cli("host", "status")
    assert shown.exit_code == 65
    assert f"Stop all gateways of this user, remove {folder / 'host.db'}, host.db-wal and host.db-shm" in (
        " ".join(shown.stderr.split())
    )
    assert "sessions recover" not in shown.stderr


def test_a_takeover_flag_that_comes_from_the_environment_of_a_unit_is_found() -> None:
    from hermes_state.host.units import lint

    text = (
        "[Unit]\nStartLimitIntervalSec=0\n[Service]\nEnvironment=\"MORE=--replace -v\" OTHER=x\n"
        "ExecStart=hermes gateway run ${MORE} $UNKNOWN\nRestart=always\nRestartPreventExitStatus=78\n"
    )
    assert [found.code for found in lint(text)] == ["takeover_kept_alive"]
    assert lint(text.replace("--replace", "--verbose")) == []
