"""The plan and the question."""

from __future__ import annotations

import os
import pty

import pytest

from hermes_state.errors import Refused
from maintenance.plan import Plan, ask, confirm

PLAN = Plan(title="Delete 3 sessions", lines=("12 messages", ""), facts={"sessions": 3})


def test_yes_shows_the_plan_and_does_not_ask(capsys: pytest.CaptureFixture[str]) -> None:
    assert confirm(PLAN, yes=True, question="Delete them?")
    assert capsys.readouterr() == ("", "Delete 3 sessions\n  12 messages\n\n")


def test_quiet_yes_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert confirm(PLAN, yes=True, question="Delete them?", quiet=True)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("quiet", "shown"), [(False, "Delete 3 sessions\n  12 messages\n\n"), (True, "")])
def test_without_a_terminal_it_is_refused_and_quiet_shows_no_plan(
    quiet: bool, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with open(os.devnull) as nothing, pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", nothing)
        with pytest.raises(Refused) as caught:
            confirm(PLAN, yes=False, question="Delete them?", quiet=quiet)
    assert capsys.readouterr() == ("", shown)
    assert caught.value.message == "This needs an answer, and there is no terminal to ask on."
    assert caught.value.hint == "Add --yes, or look first with --dry-run."


@pytest.mark.parametrize(
    ("typed", "answer", "agreed"),
    [
        ("y\n", None, True), ("YES\n", None, True), ("\n", None, False), ("no\n", None, False), ("\x04", None, False),
        ("state\n", "state", True), ("y\n", "state", False),
    ],
)
def test_only_yes_or_the_exact_name_agrees(typed: str, answer: str | None, agreed: bool) -> None:
    leader, follower = pty.openpty()
    os.write(leader, typed.encode())
    with os.fdopen(follower) as terminal, pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", terminal)
        assert ask("Go on?", answer=answer) is agreed
    os.close(leader)
