"""Service files: what a supervisor makes of our exit codes by its file, and what is wrong with that (R46)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hermes_state.host import FATES, Fate, Reading, Supervisor
from hermes_state.host.systemd import parse, start_limit
from hermes_state.host.unit_files import find, read_all
from hermes_state.host.units import CODES, KILLED, lint, read

R, P = Fate.RESTARTED, Fate.PARKED
RELEASED = """[Unit]
StartLimitIntervalSec=0

[Service]
ExecStart=/venv/bin/python -m hermes_cli.main gateway run
Environment="PATH=/usr/bin:/bin"
Environment="HERMES_HOME=/h/a"
Restart=always
RestartSec=5
RestartForceExitStatus=75
RestartPreventExitStatus=78
"""
FINISH = '#!/command/with-contenv sh\n# $1 = exit code\nif [ "$1" = "78" ]; then\n  exit 125\nfi\nexit 0\n'
RUN = "#!/bin/sh\n# not --replace\nexport HERMES_HOME='/h/a'\nexec hermes gateway run\n"


def service(*lines: str) -> str:
    return "\n".join(["[Unit]", "StartLimitIntervalSec=0", "[Service]", "ExecStart=hermes gateway run", *lines])


def plist(alive: str, command: str = "hermes") -> str:
    return (
        '<?xml version="1.0"?><plist version="1.0"><dict><key>ProgramArguments</key><array>'
        f"<string>{command}</string><string>gateway</string></array><key>EnvironmentVariables</key><dict>"
        f"<key>HERMES_HOME</key><string>/h/a</string></dict><key>KeepAlive</key>{alive}</dict></plist>"
    )


UNSUCCESSFUL = "<dict><key>SuccessfulExit</key><false/></dict>"


@pytest.mark.parametrize(
    ("text", "finish", "fates"),
    [
        (RELEASED, None, (R, R, R, P, R)),
        (service("Restart=no"), None, (P, P, P, P, P)),
        (service("Restart=no", "RestartForceExitStatus=TEMPFAIL"), None, (P, P, R, P, P)),
        (service("Restart=on-failure"), None, (P, R, R, R, R)),
        (service("Restart=on-failure", "SuccessExitStatus=75 78"), None, (P, R, P, P, R)),
        (service("Restart=on-failure", "RestartPreventExitStatus=CONFIG"), None, (P, R, R, P, R)),
        (service("Restart=on-abnormal"), None, (P, P, P, P, R)),
        (service("Restart=on-success"), None, (R, P, P, P, P)),
        (service("Restart=always", "RestartPreventExitStatus=78", "RestartPreventExitStatus="), None, (R, R, R, R, R)),
        (service("Restart=always", "RestartPreventExitStatus=1", "RestartPreventExitStatus=78"), None, (R, P, R, P, R)),
        (service("Restart=always", "RestartPreventExitStatus=\\", "  78 SIGKILL"), None, (R, R, R, P, P)),
        (plist("<true/>"), None, (R, R, R, R, R)),
        (plist("<false/>"), None, (P, P, P, P, P)),
        (plist(UNSUCCESSFUL), None, (P, R, R, R, R)),
        (plist(UNSUCCESSFUL, "/venv/bin/stderr_timestamp"), None, (P, R, R, P, R)),
        (plist("<true/>", "stderr_timestamp"), None, (R, R, R, R, R)),
        (plist("<dict><key>SuccessfulExit</key><true/></dict>"), None, (R, P, P, P, P)),
        (plist("<dict><key>Crashed</key><true/></dict>"), None, (P, P, P, P, None)),
        (plist("<dict><key>Crashed</key><false/></dict>"), None, (R, R, R, R, P)),
        (plist("<dict><key>NetworkState</key><true/></dict>"), None, (None, None, None, None, None)),
        (RUN, None, (None, None, R, None, None)),
        (RUN, "", (R, R, R, R, R)),
        (RUN, FINISH, (R, R, R, P, R)),
        (RUN, "#!/bin/sh\nif [ $1 -eq 78 ]; then exit 125; fi; exit 0; # 75\n", (R, R, None, None, R)),
        (RUN, "#!/bin/sh\n[ $1 -eq 78 ] && exit 125 || exit 0;\n", (R, R, R, P, R)),
        (RUN, "#!/bin/sh\nexit 125\n", (P, P, P, P, P)),
        (RUN, "#!/bin/sh\nexit 0\n", (R, R, R, R, R)),
        (RUN, "#!/bin/sh\ncase $1 in 0|78) exit 125;; esac\n", (None, R, R, None, R)),
    ],
)
def test_what_becomes_of_a_unit_is_read_from_its_file(
    text: str, finish: str | None, fates: tuple[Fate | None, ...]
) -> None:
    found = read(text, finish=finish)
    assert CODES == (0, 1, 75, 78, KILLED)
    assert tuple(found.fates[code] for code in CODES) == fates


@pytest.mark.parametrize(
    ("text", "finish", "codes"),
    [
        (RELEASED, None, []),
        (service("Restart=no"), None, ["transient_not_restarted", "crash_not_restarted"]),
        (service("Restart=on-failure"), None, ["permanent_not_parked"]),
        (service("Restart=on-failure", "SuccessExitStatus=75 78"), None, ["transient_not_restarted"]),
        (service("Restart=on-abnormal"), None, ["transient_not_restarted", "crash_not_restarted"]),
        (RELEASED.replace("StartLimitIntervalSec=0", "").replace("RestartSec=5", ""), None, ["start_limit"]),
        (RELEASED.replace("IntervalSec=0", "IntervalSec=1min"), None, ["start_limit"]),
        (RELEASED.replace("StartLimitIntervalSec=0", ""), None, []),
        (RELEASED.replace("gateway run", "gateway run --force --replace"), None, ["takeover_kept_alive"] * 2),
        (plist("<true/>"), None, ["permanent_not_parked"]),
        (plist(UNSUCCESSFUL, "stderr_timestamp"), None, []),
        (plist("<dict><key>NetworkState</key><true/></dict>"), None, []),
        ("<?xml version='1.0'?><plist version='1.0'><array/></plist>", None, ["unreadable"]),
        (RUN, FINISH, []),
        (RUN.replace("run\n", "run --replace\n"), FINISH, ["takeover_kept_alive"]),
        (RUN, "", ["permanent_not_parked"]),
        (RUN, "#!/bin/sh\nexit 125\n", ["transient_not_restarted", "crash_not_restarted"]),
    ],
)
def test_what_is_wrong_with_it_is_found(text: str, finish: str | None, codes: list[str]) -> None:
    assert [one.code for one in lint(text, finish=finish)] == codes


def test_a_finding_says_what_happens_and_what_to_change() -> None:
    (found,) = lint(service("Restart=on-failure", "SuccessExitStatus=75 78"))
    assert (found.sentence, found.fix) == (
        "With Restart=on-failure a start that has to be tried again (75) is not: its home stays unserved when the"
        " gateway that serves it ends.", "Set Restart=always, with RestartForceExitStatus=75.",
    )
    (found,) = lint(RELEASED.replace("StartLimitIntervalSec=0", "").replace("RestartSec=5", ""))
    assert found.sentence == (
        "A start that has to be tried again comes every 0.1 s, and systemd gives up after 5 starts in 10 s."
    )


@pytest.mark.parametrize(
    ("supervisor", "text", "finish"),
    [
        (Supervisor.SYSTEMD, RELEASED, None), (Supervisor.S6, RUN, FINISH),
        (Supervisor.LAUNCHD, plist(UNSUCCESSFUL, "stderr_timestamp"), None),
    ],
)
def test_a_file_without_findings_does_what_the_table_of_fates_says(
    supervisor: Supervisor, text: str, finish: str | None
) -> None:
    """R46: the table and the lint are two views of one contract; 0 is where the sources differ."""
    found = read(text, finish=finish)
    assert found.supervisor is supervisor and found.home == "/h/a" and found.findings == ()
    for code in (75, 78):
        assert {found.fates[code]} == {FATES[reading][supervisor, code] for reading in Reading}
    assert found.fates[0] in {FATES[reading][supervisor, 0] for reading in Reading}


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        ("[Unit]\n", (10.0, 5, 0.1)), ("[Unit]\nStartLimitIntervalSec=1min 30s\nStartLimitBurst=2\n", (90.0, 2, 0.1)),
        ("[Service]\nStartLimitInterval=500ms\nRestartSec=2\n", (0.5, 5, 2.0)),
        ("[Unit]\nStartLimitIntervalSec=0\n", None), ("[Unit]\nStartLimitBurst=0\n", None),
        ("[Unit]\nStartLimitIntervalSec=infinity\n", None), ("[Service]\nRestartSec=5 parsecs\n", None),
    ],
)
def test_the_start_limit_is_what_systemd_makes_of_it(lines: str, wanted: tuple[float, int, float] | None) -> None:
    found = start_limit(parse(lines))
    assert (None if found is None else (found.interval, found.burst, found.delay)) == wanted


def test_files_are_found_by_name_with_their_drop_ins_and_finish_scripts(tmp_path: Path) -> None:
    user = tmp_path / "user" / ".config" / "systemd" / "user"
    agents, s6 = tmp_path / "user" / "Library" / "LaunchAgents", tmp_path / "run" / "service"
    for folder in (user / "hermes-gateway.service.d", agents, s6 / "gateway-work", s6 / "other", tmp_path / "etc"):
        folder.mkdir(parents=True)
    (user / "hermes-gateway.service").write_text(RELEASED)
    (user / "hermes-gateway.service.d" / "no-force.conf").write_text("[Service]\nRestartPreventExitStatus=75\n")
    (user / "unrelated.service").write_text("[Service]\nRestart=no\n")
    os.symlink(os.devnull, user / "hermes-gateway-old.service")
    os.symlink(tmp_path / "gone", user / "hermes-gone.service")
    os.mkfifo(user / "hermes-pipe.service")
    (agents / "ai.hermes.gateway.plist").write_text(plist(UNSUCCESSFUL, "stderr_timestamp"))
    (s6 / "gateway-work" / "run").write_text(RUN.replace("/h/a", "/h/work"))
    (s6 / "gateway-work" / "finish").write_text(FINISH)
    (s6 / "other" / "run").write_text("#!/bin/sh\nexec --replace\n")
    paths, failed = find({"HOME": str(tmp_path / "user")}, root=tmp_path)
    assert failed == []
    found = {one.path.relative_to(tmp_path): one for one in read_all(paths)}
    codes = {
        str(path.parent.name if path.name == "run" else path.name): [one.code for one in unit.unit.findings]
        for path, unit in found.items()
    }
    assert codes == {
        "hermes-gateway.service": ["transient_not_restarted", "same_home"], "hermes-gateway-old.service": [],
        "hermes-gone.service": ["cannot_read"], "hermes-pipe.service": ["cannot_read"],
        "ai.hermes.gateway.plist": ["same_home"], "gateway-work": [],
    }
    assert [str(path) for path, one in found.items() if one.masked] == [
        "user/.config/systemd/user/hermes-gateway-old.service"
    ]


def test_a_folder_that_cannot_be_listed_is_said_and_not_taken_for_empty(tmp_path: Path) -> None:
    loop = tmp_path / "user" / ".config" / "systemd"
    loop.mkdir(parents=True)
    os.symlink("user", loop / "user")  # leads to itself, also for root
    paths, failed = find({"HOME": str(tmp_path / "user")}, root=tmp_path)
    assert paths == []
    assert [(one.path, one.unit.findings[0].sentence) for one in failed] == [
        (loop / "user", "The folder cannot be listed (Too many levels of symbolic links).")
    ]
