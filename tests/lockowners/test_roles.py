"""Roles from command lines."""

from __future__ import annotations

import pytest

from lockowners.roles import role_of


@pytest.mark.parametrize(
    ("command", "role"),
    [
        ("/usr/bin/python3 -m hermes_cli.main gateway run", "gateway"),
        ("python -m hermes_cli.main --profile work gateway run --replace", "gateway"),
        ("/opt/v/bin/python /opt/v/bin/hermes gateway run", "gateway"),
        ("hermes -p work cron tick", "cron"),
        ("hermes-state cron run", "cron"),
        ("python -m cron.scheduler", "cron"),
        ("python -m gateway.run", "gateway"),
        ("python /src/gateway/run.py", "gateway"),
        ("hermes dashboard --port 1", "desktop"),
        ("hermes desktop", "desktop"),
        ("python -m tui_gateway.compute_host", "desktop"),
        ("hermes", "cli"),
        ("hermes --tui", "cli"),
        ("hermes sessions list", "cli"),
        ("python -m maintenance sessions optimize", "cli"),
        ("python /x/hermes_cli/main.py chat", "cli"),
        ("/home/u/.local/bin/hermes-acp", "cli"),
        ("python3 -u /v/bin/hermes-agent --query x", "cli"),
        ("C:\\v\\Scripts\\hermes.exe gateway run", "gateway"),
        ("vim gateway/run.py", "unknown"),
        ("python -c import_hermes_gateway", "unknown"),
        ("python script.py gateway", "unknown"),
        ("grep hermes gateway", "unknown"),
        ("python", "unknown"),
        ("litestream replicate state.db", "unknown"),
    ],
)
def test_role_is_read_from_the_command_and_never_guessed(command: str, role: str) -> None:
    assert role_of(tuple(command.split())) == role


def test_process_title_set_as_one_string_is_read_too() -> None:
    assert role_of(("hermes gateway run",)) == "gateway"


def test_no_arguments_is_unknown() -> None:
    assert role_of(()) == "unknown"
