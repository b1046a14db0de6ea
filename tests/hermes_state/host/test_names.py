"""Homes by one spelling, and what must not be kept: credentials, texts without end, words on homes of others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hermes_state.errors import InvalidInput
from hermes_state.host import Attach, PlatformState, Request
from hermes_state.host.names import MOST_CHARACTERS, path_without_secrets, plain, without_secrets
from hermes_state.host.status import served_twice
from tests.hermes_state.host.hosts import Party, folder_of, run


def test_a_home_has_one_spelling_whoever_names_it(tmp_path: Path) -> None:
    home, link = tmp_path / "home", tmp_path / "link"
    home.mkdir()
    link.symlink_to(home)
    first, second = Party(folder_of(tmp_path)), Party(folder_of(tmp_path))
    member = first.host.enter(run(f"{home}/")).member
    assert member is not None and member.run.home == str(home)
    member.settle([str(link)], multiplex=False)
    for spelled in (str(link), f"{home}/", f"{tmp_path}/other/../home", str(home)):
        assert isinstance(second.host.enter(run(spelled)).verdict, Attach), spelled
    member.leave(reason="test over")


@pytest.mark.parametrize("home", ["", "home", "./home", "/h\0a", None, 7])
def test_what_is_no_absolute_path_is_no_home(home: object) -> None:
    for makes in (lambda: run(home), lambda: Request(home=home)):  # type: ignore[arg-type]
        with pytest.raises(InvalidInput) as refused:
            makes()
        assert refused.value.message == f"A home is the absolute path of a folder, not {home!r}."


def test_one_path_is_no_list_of_homes(tmp_path: Path) -> None:
    member = Party(folder_of(tmp_path)).host.enter(run("/h/a")).member
    assert member is not None
    with pytest.raises(InvalidInput) as refused:
        member.settle("/home/x", multiplex=False)
    assert refused.value.message == "Homes come as a list, not as the one path '/home/x'."
    assert member.answer.served is None
    member.leave(reason="test over")


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("GET https://example.org/bot123456:AAE-x_y/getMe failed", "GET https://example.org/bot***/getMe failed"),
        ("token 987654321:AAbbCCddEEff_-x is used", "token *** is used"),
        ("https://me:word@example.org/x", "https://***@example.org/x"),
        ("run --api-key abcdef --home /h", "run --api-key *** --home /h"),
        ("TELEGRAM_BOT_TOKEN=abc hermes gateway run", "TELEGRAM_BOT_TOKEN=*** hermes gateway run"),
        ("Authorization: Bearer abcdefghijklmnopqrst", "Authorization: Bearer ***"),
        ("key sk-abcdefghijkl is wrong", "key *** is wrong"),
        ("connection refused by 10.0.0.1:8443 after 3 tries", "connection refused by 10.0.0.1:8443 after 3 tries"),
        ("hermes --profile work gateway run", "hermes --profile work gateway run"),
    ],
)
def test_what_looks_like_a_credential_is_not_kept(text: str, kept: str) -> None:
    assert without_secrets(text) == kept


def test_a_report_keeps_no_secret_no_endless_text_and_nothing_of_homes_that_are_not_served(tmp_path: Path) -> None:
    party = Party(folder_of(tmp_path))
    member = party.host.enter(run("/h/a")).member
    assert member is not None
    member.settle(["/h/a"], multiplex=False)
    party.host.report(
        member, home="/h/a", platform="telegram", state=PlatformState.FAILED, error_code="x\0" * 3_000_000,
        error_message="https://api.telegram.org/bot123456:AAEsecret/getUpdates timed out",
        needs_attention="give 123456:AAEsecret anew",
    )
    party.host.report(
        member, home="/h/a", platform="slack", state=PlatformState.CONNECTED,
        ingress_url="https://example.org/hooks/T0A1B2C3D4E5F6G7H8I9J0/in",
    )
    (status,) = party.host.statuses()
    slack, telegram = status.platforms
    assert slack.ingress_url == "https://example.org/hooks/***/in"
    assert telegram.error_code is not None and len(telegram.error_code) == MOST_CHARACTERS
    assert "\0" not in telegram.error_code
    assert telegram.error_message == "https://api.telegram.org/bot***/getUpdates timed out"
    assert telegram.needs_attention == "give *** anew"
    with pytest.raises(InvalidInput) as refused:
        party.host.report(member, home="/h/b", platform="telegram", state=PlatformState.CONNECTED)
    assert refused.value.message == (
        f"Gateway 1 in {party.host.path} does not serve /h/b, so it says nothing of its platforms."
    )
    party.host.report(member, home="/h/b", platform="telegram", state=PlatformState.UNSERVED)
    for platform in ("", "t\0", "t" * 101):
        with pytest.raises(InvalidInput):
            party.host.report(member, home="/h/a", platform=platform, state=PlatformState.CONNECTED)
    member.leave(reason="test over")


def test_two_live_runs_of_one_home_are_named(tmp_path: Path) -> None:
    first, second = Party(folder_of(tmp_path)), Party(folder_of(tmp_path))
    one = first.host.enter(run("/h/a")).member
    two = second.host.enter(run("/h/a"), force=True).member
    assert one is not None and two is not None
    one.settle(["/h/a", "/h/b"], multiplex=True)
    found = served_twice(first.host.statuses())
    assert {home: [gateway.no for gateway in runs] for home, runs in found.items()} == {"/h/a": [1, 2]}
    two.leave(reason="test over")
    assert served_twice(first.host.statuses()) == {}
    one.leave(reason="test over")


def test_a_path_keeps_its_words_and_a_text_its_length() -> None:
    assert path_without_secrets("/gateway/telegram/webhook-of-the-house") == "/gateway/telegram/webhook-of-the-house"
    assert plain(None) is None and plain("short") == "short"
    assert os.fspath(Path("/h/a")) == run("/h/a").home
