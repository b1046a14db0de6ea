"""Scoped token locks in host.db: one credential, one holder among the homes of a user, who is named and not harmed."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.errors import LeaseHeld
from tests.hermes_state.host.hosts import Party, folder_of

SECRET = "12345:a-bot-token"


def test_the_second_is_refused_with_the_first_ones_home_and_process(tmp_path: Path) -> None:
    first, second = Party(folder_of(tmp_path)), Party(folder_of(tmp_path))
    lease = first.host.tokens.acquire("telegram", SECRET, profile="a", home="/h/a")
    with pytest.raises(LeaseHeld) as refused:
        second.host.tokens.acquire("telegram", SECRET, profile="b", home="/h/b")
    error = refused.value
    assert f"is held by {first.presence.identity} (" in error.message
    assert error.note["home"] == "/h/a"  # type: ignore[attr-defined]
    assert (error.owner, error.exit_code, error.retryable) == (  # type: ignore[attr-defined]
        first.presence.identity, 75, True,
    )
    second.host.tokens.acquire("irc", SECRET, profile="b")  # another scope is another credential
    lease.release()
    assert second.host.tokens.acquire("telegram", SECRET, profile="b").fence == 2


def test_a_dead_holders_goes_on_at_once_and_one_that_is_silent_when_its_term_is_over(
    tmp_path: Path, fake_clock: FakeClock
) -> None:
    first, second, third = (Party(folder_of(tmp_path)) for _ in range(3))
    first.host.tokens.acquire("telegram", SECRET, profile="a", term_seconds=60.0)
    first.die()
    second.host.tokens.acquire("telegram", SECRET, profile="b", term_seconds=60.0)
    with pytest.raises(LeaseHeld):
        third.host.tokens.acquire("telegram", SECRET, profile="c")
    fake_clock.advance(60.1)
    assert third.host.tokens.acquire("telegram", SECRET, profile="c").fence == 3


def test_the_credential_is_nowhere_on_disk(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    party = Party(folder)
    party.host.tokens.acquire("telegram", SECRET, profile="a")
    party.host.close()
    for path in folder.rglob("*"):
        if path.is_file():
            assert SECRET.encode() not in path.read_bytes(), path
