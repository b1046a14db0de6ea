"""Reports 129 to 137: several gateways of one user, and who may end whom."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from hermes_state.host import Attach, Outcome, Reason, Refuse, RunState, Start, Supervisor, exit_code
from hermes_state.host.units import lint
from tests.hermes_state.host.hosts import Party, folder_of, run
from tests.support.children import Children

HOME = "/h/a"


def no_signal(pid: int, number: int) -> None:
    pytest.fail(f"PID {pid} got signal {number}")


def test_replacing_ends_no_sibling_and_a_second_one_of_a_home_is_told_who_has_it(tmp_path: Path) -> None:
    """Report 129: `--replace` ended the gateway of another profile that shared the home."""
    sibling, ours, second = (Party(folder_of(tmp_path)) for _ in range(3))
    theirs = sibling.host.enter(run("/h/sibling")).member
    assert theirs is not None
    theirs.settle(["/h/sibling"], multiplex=False)
    entered = ours.host.enter(run(HOME), replace=True, signal=no_signal)
    assert isinstance(entered.verdict, Start) and entered.member is not None
    entered.member.settle([HOME], multiplex=False)
    told = second.host.enter(run(HOME), signal=no_signal).verdict
    assert told.sentence == f"PID {ours.presence.identity.pid} of {HOME} serves {HOME}."
    for member in (entered.member, theirs):
        member.leave(reason="test over")


HOLDER = """
import subprocess, sys
from pathlib import Path
import gates
from hermes_state.host import open_host
host = open_host(Path(sys.argv[1]))
host.tokens.acquire("telegram", "one token", profile="first", home="/h/first")
job = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
gates.reach("holds", str(job.pid))
gates.wait("end")
assert job.poll() is None, "its job was ended"
job.communicate(b"done\\n")
sys.exit(job.returncode)
"""
CONTENDER = """
import sys
from pathlib import Path
from hermes_state.errors import LeaseHeld
from hermes_state.host import open_host
host = open_host(Path(sys.argv[1]))
try:
    host.tokens.acquire("telegram", "one token", profile=sys.argv[2])
except LeaseHeld as error:
    print(error.owner.pid, error.note["home"])
"""


@pytest.mark.slow
def test_of_three_gateways_with_one_token_two_are_refused_and_the_jobs_of_the_first_live_on(
    tmp_path: Path, child: Children
) -> None:
    """Report 130: three in one container fought over a token, and half of the daily jobs died."""
    holder = child(HOLDER, folder_of(tmp_path))
    holder.wait_for("holds")
    for name in ("second", "third"):
        contender = child(CONTENDER, folder_of(tmp_path), name)
        assert contender.finish().split() == [str(holder.pid), "/h/first"]
    holder.release("end")
    assert holder.wait() == 0


def test_a_record_that_names_a_living_process_of_another_home_gives_no_identity_to_anybody(tmp_path: Path) -> None:
    """Report 131: after a restart a pid file named a live pid of another home, and its identity was taken over."""
    owner, other = Party(folder_of(tmp_path)), Party(folder_of(tmp_path))
    member = owner.host.enter(run("/h/x")).member
    assert member is not None
    member.settle([HOME, "/h/x"], multiplex=True)
    # The row says that this live process runs another home than it says itself.
    owner.host.core.write(lambda tx: tx.execute("UPDATE gateways SET home = '/h/another'"))
    refused = other.host.enter(run(HOME, Supervisor.SYSTEMD))
    assert (type(refused.verdict), refused.verdict.reason) == (Refuse, Reason.OWNER_SILENT)
    # And a record with the pid of a process that lives, and started at another time, is not dialled at all.
    wrong = replace(owner.presence.identity, pid=os.getpid(), start_ticks=1, nonce="9" * 32)
    owner.host.core.write(lambda tx: tx.execute("UPDATE gateways SET owner = ?", (wrong.to_json(),)))
    before = other.host.probe.dialled
    found = other.host.enter(run(HOME, Supervisor.SYSTEMD)).verdict
    # What lives is believed by its own answer on the socket that bears its nonce, and for what it says of itself.
    assert isinstance(found, Attach) and found.to is not None
    assert (found.to.identity, found.to.home, found.pid) == (None, "/h/x", owner.presence.identity.pid)
    assert other.host.probe.dialled == before


@pytest.mark.parametrize("supervisor", [one for one in Supervisor if one is not Supervisor.NONE])
def test_a_supervised_start_with_the_replace_flag_ends_nobody_however_often_it_comes(
    tmp_path: Path, supervisor: Supervisor
) -> None:
    """Report 132: takeover flag and service stop hook restarted each other, with a hundred chat messages."""
    owner, unit = Party(folder_of(tmp_path)), Party(folder_of(tmp_path))
    member = owner.host.enter(run(HOME, supervisor, "one")).member
    assert member is not None
    member.settle([HOME], multiplex=True)
    for _ in range(12):
        again = unit.host.enter(run(HOME, supervisor, "two"), replace=True, signal=no_signal)
        assert (again.verdict.outcome, exit_code(again.verdict.outcome, supervisor)) == (Outcome.ATTACH, 75)
    assert unit.host.markers.list_open() == []
    member.leave(reason="test over")


def test_a_restart_while_the_old_process_drains_is_tried_again_and_no_failure(tmp_path: Path) -> None:
    """Report 133: it exited 1 and the supervisor looped."""
    old, new = Party(folder_of(tmp_path)), Party(folder_of(tmp_path))
    member = old.host.enter(run(HOME)).member
    assert member is not None
    member.settle([HOME], multiplex=True)
    member.move(RunState.DRAINING)
    refused = new.host.enter(run(HOME, Supervisor.SYSTEMD))
    assert (refused.verdict.reason, exit_code(refused.verdict.outcome, Supervisor.SYSTEMD)) == (
        Reason.OWNER_LEAVING, 75,
    )
    member.leave(reason="drained")
    started = new.host.enter(run(HOME, Supervisor.SYSTEMD))
    assert started.member is not None
    started.member.leave(reason="test over")


def test_a_second_label_that_starts_the_same_home_is_seen(tmp_path: Path) -> None:
    """Report 134: two labels of launchd ended each other's gateway every six to ten seconds."""
    first, second = Party(folder_of(tmp_path)), Party(folder_of(tmp_path))
    member = first.host.enter(run(HOME, Supervisor.LAUNCHD, "ai.hermes.gateway")).member
    assert member is not None
    member.settle([HOME], multiplex=True)
    assert first.host.guards(HOME).labels == ("launchd:ai.hermes.gateway",)
    attached = second.host.enter(run(HOME, Supervisor.LAUNCHD, "ai.hermes.gateway.old"))
    assert isinstance(attached.verdict, Attach)
    assert first.host.guards(HOME).labels == ("launchd:ai.hermes.gateway", "launchd:ai.hermes.gateway.old")
    member.leave(reason="test over")


PLIST = """<?xml version="1.0" encoding="UTF-8"?>
<plist version="1.0"><dict>
<key>Label</key><string>ai.hermes.gateway</string>
<key>ProgramArguments</key><array><string>hermes</string><string>gateway</string><string>run</string>{flag}</array>
<key>KeepAlive</key>{alive}
</dict></plist>
"""
REPLACES = "<string>--replace</string>"
UNIT = "[Service]\nExecStart=/usr/bin/hermes gateway run{flag}\nRestart={again}\nRestartSec=5\n{rest}"


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        (PLIST.format(flag=REPLACES, alive="<true/>"), ["takeover_kept_alive", "permanent_not_parked"]),
        (PLIST.format(flag="", alive="<true/>"), ["permanent_not_parked"]),
        (PLIST.format(flag=REPLACES, alive="<false/>"), ["transient_not_restarted", "crash_not_restarted"]),
        (UNIT.format(flag=" --replace", again="always", rest="RestartPreventExitStatus=78\n"), ["takeover_kept_alive"]),
        (UNIT.format(flag="", again="always", rest="RestartPreventExitStatus=78\n"), []),
        (UNIT.format(flag="", again="always", rest=""), ["permanent_not_parked"]),
        (UNIT.format(flag=" --replace", again="no", rest=""), ["transient_not_restarted", "crash_not_restarted"]),
        ("#!/bin/sh\nexec hermes gateway run --replace\n", ["takeover_kept_alive"]),
        ("#!/bin/sh\nexec hermes gateway run\n", []),
        ("<?xml version='1.0'?><plist><dict>", ["unreadable"]),
        ("anything else", ["unknown_kind"]),
    ],
)
def test_a_service_file_with_a_takeover_flag_that_is_kept_alive_is_found(text: str, codes: list[str]) -> None:
    """Report 135: after an update all gateways of a Mac restarted every five minutes."""
    assert [finding.code for finding in lint(text)] == codes


def test_a_web_interface_that_replaces_and_a_service_that_would_end_with_one_owner(tmp_path: Path) -> None:
    """Report 136: each of both ran a replacing gateway."""
    folder = folder_of(tmp_path)
    service, web = Party(folder), Party(folder)
    member = service.host.enter(run(HOME, Supervisor.SYSTEMD, "hermes"), replace=True, signal=no_signal).member
    assert member is not None
    member.settle([HOME], multiplex=True)
    sent: list[int] = []

    def leaves(pid: int, number: int) -> None:
        sent.append(pid)
        member.leave(reason="taken over")

    taken = web.host.enter(run(HOME), replace=True, signal=leaves)
    assert taken.member is not None
    taken.member.settle([HOME], multiplex=True)
    # The service's supervisor starts it again, with its flag, a dozen times a minute.
    for _ in range(12):
        again = Party(folder).host.enter(run(HOME, Supervisor.SYSTEMD, "hermes"), replace=True, signal=no_signal)
        assert again.verdict.outcome is Outcome.ATTACH
    assert len(sent) == 1
    with web.host.core.reader() as reader:
        rows = reader.rows("SELECT verdict, repeats FROM starts WHERE home = ? ORDER BY id", (HOME,))
    assert rows == [("start", 0), ("start", 0), ("attach", 11)]
    taken.member.leave(reason="test over")


def test_a_gateway_that_answers_nowhere_is_found_and_the_start_says_why_it_does_not_attach(tmp_path: Path) -> None:
    """Report 137: discovery never saw a gateway without a port, and always started a second one."""
    gateway, desktop = Party(folder_of(tmp_path)), Party(folder_of(tmp_path))
    entered = gateway.host.enter(run(HOME), answers=False)
    assert entered.member is not None
    found = desktop.host.gateways()
    assert [(one.gateway.home, one.gateway.answers, one.may_live) for one in found] == [(HOME, "", True)]
    refused = desktop.host.enter(run(HOME))
    pid = gateway.presence.identity.pid
    assert refused.verdict.sentence == (
        f"The owner of this host (PID {pid} of {HOME}) lives and does not say whom it serves."
    )
    entered.member.leave(reason="test over")
