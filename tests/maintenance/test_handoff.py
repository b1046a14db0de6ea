"""Which `hermes` calls are ours, and how hermes-agent gets the others."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from maintenance import handoff

OURS = [
    "sessions", "sessions --help", "sessions list", "sessions list --help", "-p work sessions list", "doctor", "locks",
    "--profile=work sessions --json prune --dry-run", "--home /x --json doctor", "install-shim", "locks --watch",
    "sessions export out.jsonl --source browse",
]
THEIRS = [
    "", "--help", "-h", "--version", "gateway run", "-p work gateway run", "sessions browse", "--tui",
    "-p work sessions browse", "doctor --fix", "doctor --ack=X", "-m model sessions list", "chat -q sessions",
    "sessions --bogus list", "sessions browse --no-such-flag", "-- sessions",
]


@pytest.mark.parametrize("call", OURS)
def test_our_verbs_are_ours(call: str) -> None:
    assert handoff.is_ours(call.split())


@pytest.mark.parametrize("call", THEIRS)
def test_everything_else_is_handed_on(call: str) -> None:
    assert not handoff.is_ours(call.split())


PEER_MAIN = """
import json, sys
def main():
    packages = ("maintenance", "hermes_state", "click", "apsw")
    ours = sorted(name for name in sys.modules if name.partition(".")[0] in packages)
    print(json.dumps({"argv": sys.argv, "ours": ours, "path0": sys.path[0]}))
    return 7 if "fail" in sys.argv else None
"""


@pytest.fixture
def peer_site(tmp_path: Path) -> Path:
    """A site directory with a stand-in of hermes-agent, as an installer would leave it."""
    site = tmp_path / "site"
    info = site / "hermes_agent-0.19.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hermes-agent\nVersion: 0.19.0\n")
    (info / "entry_points.txt").write_text("[console_scripts]\nhermes = stand_in_cli.main:main\n")
    (site / "stand_in_cli").mkdir()
    (site / "stand_in_cli" / "__init__.py").touch()
    (site / "stand_in_cli" / "main.py").write_text(PEER_MAIN)
    return site


@pytest.fixture
def hermes(run_cli, peer_site: Path, tmp_path: Path):
    """Run `hermes` with the stand-in installed beside us."""

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        environment = run_cli.environment()
        environment["PYTHONPATH"] += f":{peer_site}"
        command = run_cli.command(*args, program="hermes")
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, cwd=tmp_path)

    return run


CALLS = [["gateway", "run", "--flag", "a b", ""], ["-p", "work", "sessions", "browse"], ["--help"], []]


@pytest.mark.parametrize("args", CALLS)
def test_arguments_reach_the_peer_unchanged_in_a_clean_process(hermes, args: list[str], tmp_path: Path) -> None:
    ended = hermes(*args)
    said = json.loads(ended.stdout)
    assert ended.returncode == 0
    assert said["argv"] == ["hermes", *args]
    assert said["ours"] == ["maintenance"]
    assert said["path0"] != str(tmp_path)


def test_the_peers_exit_status_is_kept(hermes) -> None:
    assert hermes("gateway", "fail").returncode == 7


def test_our_verbs_do_not_reach_the_peer(hermes) -> None:
    ended = hermes("sessions", "--help")
    assert ended.returncode == 0 and ended.stdout.startswith("Usage: hermes sessions ")
    assert "Any other verb of `hermes sessions` is handed to hermes-agent 0.19.0, unchanged." in ended.stdout


def test_hermes_state_hands_nothing_on(run_cli) -> None:
    assert run_cli("gateway", "run").exit_code == 2


def test_without_the_peer_its_commands_are_a_clear_error(run_cli) -> None:
    ended = run_cli("gateway", "run", program="hermes")
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert ended.stderr == (
        "Error: `hermes gateway` is not a command of hermes-state.\n"
        "Why: Such commands belong to hermes-agent, which is not installed in this environment.\n"
        "Try: `hermes --help` lists the commands.\n"
    )


def test_without_the_peer_hermes_is_our_help(run_cli) -> None:
    assert run_cli(program="hermes").stdout.startswith("Usage: hermes ")
    wrong = run_cli("sessions", "lsit", program="hermes")
    assert wrong.stderr.startswith("Error: There is no verb 'lsit'. Did you mean list?")
    wrong = run_cli("doctor", "--fix", program="hermes")
    assert wrong.exit_code == 2 and wrong.stderr.startswith("Error: No such option '--fix'.")


def test_the_peer_finds_its_gateways_by_their_command_line() -> None:
    peer = handoff.Peer("0.19.0", "hermes_cli.main", "main")
    command = handoff.peer_command(peer, ["gateway", "run"], script="/venv/bin/hermes")
    assert " ".join(command).endswith("-P -m maintenance.run_peer /venv/bin/hermes main hermes_cli.main gateway run")
