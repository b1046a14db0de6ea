"""A new token is kept whatever else the answer says, and nothing of it that may be a secret is in a row."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest

from hermes_state.clock import FakeClock
from hermes_state.errors import CredentialExpired, GrantMayBeLost, InvalidInput, RotationFailed
from hermes_state.work.credentials import Ended, Grant, Postponed, Rotated, Secrets, Unsure, Verdict, verdict_of
from hermes_state.work.credentials.answers import merged
from hermes_state.work.credentials.secrets import split
from tests.hermes_state.work.credentials.conftest import Login

NOW = 1_800_000_000.0


def nested(levels: int) -> Any:
    """So many lists in one another."""
    found: Any = []
    for _ in range(levels):
        found = [found]
    return found


ODD: list[dict[Any, Any]] = [
    {"expires_in": "soon"}, {"expires_in": ""}, {"expires_in": [3600]}, {"expires_in": 1e13}, {"expires_in": -1e12},
    {"expires_in": math.nan}, {"expires_in": 10**400}, {"expires_in": True}, {"expires_at": "soon"},
    {"expires_at": -1}, {"expires_at": {}}, {"agent_key_expires_at": "x"}, {"agent_key": ""}, {"agent_key": 5},
    {"base_url": ""}, {"base_url": "https://x/" + "a" * 3_000}, {"base_url": 7}, {"base_url": "https://u:pw@x"},
    {"models": "m" * 70_000}, {"name": "\ud800"}, {"id_token": "\ud800abc"}, {"name": "a\0b"}, {"x": nested(200)},
    {"x": nested(5_000)}, {"id_token": nested(200)}, {"x": math.nan}, {"id_token": "i" * 1_100_000},
    {"x": {1: 1, "1": 2}}, {5: "x"}, {"x": object()}, {"x" * 300: 1}, {"id_token": b"x"},
]


def test_no_odd_field_beside_a_new_token_takes_it_away() -> None:
    for odd in ODD:
        found = verdict_of(200, {"access_token": "new-access", "refresh_token": "new-refresh", **odd}, now=NOW)
        assert isinstance(found, Rotated), odd
        assert (found.access_token, found.refresh_token) == ("new-access", "new-refresh")


def test_such_answers_are_kept_and_served_and_the_next_rotation_goes_on_from_them(
    login: Login, fake_clock: FakeClock
) -> None:
    login.begin()
    for number, odd in enumerate(ODD[::7]):
        answer = {"access_token": f"access-{number}", "refresh_token": f"refresh-{number}", **odd}
        served = login.token(
            rejected=f"access-{number - 1}" if number else "old-access-main",
            exchange=lambda grant, answer=answer: (grant.reveal(), verdict_of(200, answer, now=fake_clock.now()))[1],
        )
        kept = login.file.load()
        assert kept is not None
        assert (served.how, kept.access_token, kept.refresh_token) == (
            "rotated", f"access-{number}", f"refresh-{number}"
        ), odd
        assert str(login.group.get("nous", "main").rotation) == "whole"
        fake_clock.advance(1.0)


def test_a_time_that_can_be_read_is_read_and_another_is_unknown() -> None:
    table: list[tuple[Mapping[str, Any], float | None]] = [
        ({"expires_in": 60}, NOW + 60.0), ({"expires_in": "60"}, NOW + 60.0), ({"expires_at": NOW * 1000}, NOW),
        ({"expires_at": "2027-01-15T08:00:00Z"}, NOW), ({"expires_at": "2027-01-15T08:00:00"}, None),
        ({"expires_at": "soon", "expires_in": 60}, NOW + 60.0), ({}, None), ({"expires_in": "soon"}, None),
    ]
    for said, until in table:
        found = Rotated.of({"access_token": "new-access", **said}, now=NOW)
        assert found is not None
        assert found.expires_at == until, said


def test_no_access_token_is_no_new_token_and_a_next_one_that_is_no_text_ends_the_old_one() -> None:
    for none in (None, "", 5, "a\0b", "\ud800", "a" * 300_000):
        assert Rotated.of({"access_token": none, "refresh_token": "r"}, now=NOW) is None
    with pytest.raises(InvalidInput) as refused:
        Rotated(access_token="")
    assert str(refused.value) == "access_token of Rotated is a text of 1 to 262,144 characters without NUL."
    for said, ended in (("", False), (None, False), ("next", False), (5, True), ("a\0b", True)):
        found = Rotated.of({"access_token": "new-access", "refresh_token": said}, now=NOW)
        assert found is not None
        assert found.ended_refresh is ended


def test_a_refresh_token_that_was_ended_is_not_sent_again(login: Login, fake_clock: FakeClock) -> None:
    """And an exchange that gives the answer itself, which is no verdict, loses nothing of it."""
    first = login.begin()

    def exchange(grant: Grant) -> Any:
        login.server.posts.append(grant.reveal())
        return {"access_token": "new-access", "refresh_token": 5, "expires_in": 3600}

    assert login.token(exchange=exchange).access_token == "new-access"
    kept = login.file.load()
    assert kept is not None
    assert kept.refresh_token is None
    fake_clock.advance(3600.0)
    with pytest.raises(CredentialExpired):
        login.token()
    assert login.server.posts == [first]


VERDICTS: list[tuple[int, Mapping[str, Any] | None, type]] = [
    (200, {"access_token": "new-access"}, Rotated), (429, {"access_token": "new-access"}, Rotated),
    (200, {}, Unsure), (200, None, Unsure), (204, None, Unsure), (200, {"error": "invalid_grant"}, Ended),
    (400, {"error": "invalid_grant"}, Ended), (401, {"error": {"code": "refresh_token_reused"}}, Ended),
    (400, {"error": "slow_down"}, Postponed), (401, None, Postponed), (404, None, Postponed), (429, None, Postponed),
    (408, None, Unsure), (301, None, Unsure), (302, None, Unsure), (500, None, Unsure), (502, None, Unsure),
    (503, None, Unsure), (504, None, Unsure), (500, {"error": "server_error"}, Unsure),
    (503, {"error": "overloaded"}, Postponed), (504, {"error": "invalid_grant"}, Unsure), (0, None, Unsure),
]


def test_only_an_answer_of_the_endpoint_itself_says_that_the_token_was_not_taken() -> None:
    said = [(status, answer, type(verdict_of(status, answer, now=NOW))) for status, answer, _ in VERDICTS]
    assert said == VERDICTS


def test_a_proxy_that_gave_up_does_not_make_the_token_be_sent_again(login: Login, fake_clock: FakeClock) -> None:
    first = login.begin()

    def exchange(grant: Grant) -> Verdict:
        login.exchange(grant)  # the server behind it took the token
        return verdict_of(504, None, now=fake_clock.now())

    for _ in range(2):
        with pytest.raises(GrantMayBeLost):
            login.token(exchange=exchange)
        fake_clock.advance(3601.0)
    assert login.server.posts == [first]


def test_a_time_of_the_providers_that_is_none_is_the_usual_rest(login: Login, fake_clock: FakeClock) -> None:
    login.begin()
    table: list[tuple[Any, float]] = [
        ((NOW + 60.0) * 1000, 60.0), ("soon", 3600.0), (math.inf, 3600.0), (math.nan, 3600.0), ([], 3600.0),
    ]
    for reset_at, rests in table:
        fake_clock.step_wall(NOW - fake_clock.now())
        login.group.report("nous", "main", login.home)  # a request succeeded: it rests no more
        with pytest.raises(RotationFailed) as failed:
            login.token(rejected="old-access-main", exchange=lambda grant, reset_at=reset_at: (
                grant.reveal(), Postponed(reason="limited", code="429", reset_at=reset_at)
            )[1])
        assert failed.value.retry_at == pytest.approx(NOW + rests), reset_at
        assert str(login.group.get("nous", "main").rotation) == "whole"


def test_extras_of_many_answers_never_make_a_credential_useless(login: Login) -> None:
    """The newest stay; what had no room any more is the oldest. What may have to be sent keeps its place instead."""
    login.begin(plan="pro")
    for number in range(4):
        extra = {f"trace_{number}": {"label": "x" * 30_000}, "label": f"answer {number}"}
        login.token(
            rejected=f"access-{number - 1}" if number else "old-access-main",
            exchange=lambda grant, number=number, extra=extra: (grant.reveal(), Rotated(
                access_token=f"access-{number}", refresh_token=f"refresh-{number}", extra=extra
            ))[1],
        )
    kept = login.group.get("nous", "main").extra
    assert (list(kept), kept["label"]) == (["plan", "label", "trace_2", "trace_3"], "answer 3")
    assert merged({"a": "x" * 50, "b": 1}, {"b": 2, "c": "y" * 50}, 80, newest_first=False) == {"a": "x" * 50, "b": 2}


HIDDEN: list[dict[str, object]] = [
    {"bearer": "b-secret-9"}, {"refresh": "second-one"}, {"session": {"sid": "sid-secret"}}, {"previous": "some-old-1"},
    {"sent": {"old-access-main": 1}}, {"scopes": "a old-access-main"}, {"whatever": ["a-text-of-theirs"]},
    {"scopes": "\ud800\ud800\ud800"}, {"count": {"12345 67": 1}},
]


def test_only_texts_of_known_names_are_extras() -> None:
    told = {"scope": "openid profile", "expires_in": 3600, "plan": "professional", "limits": {"per_day": 3}}
    known = Secrets(access_token="old-access-main")
    assert [split({**told, **hidden}, known) for hidden in HIDDEN] == [(told, hidden) for hidden in HIDDEN]


QUOTED = [
    ('no JSON {"access_token":"ACCESS3-new","refresh_token": "REFRESH3"',
     'no JSON {"access_token":"[secret]","refresh_token": "[secret]"'),
    ("Authorization: Bearer abc.def-ghi", "Authorization: Bearer [secret]"),
    ("api_key=sk-1234567 is over", "api_key=[secret] is over"), ("got eyJhbGciOiJIUzI1NiIsInR5cCI6", "got [secret]"),
    ("HTTP 401 invalid_grant, no route to host", "HTTP 401 invalid_grant, no route to host"),
    ("the exchange ended with ConnectionRefusedError", "the exchange ended with ConnectionRefusedError"),
]


def test_a_reason_that_quotes_a_token_nobody_knows_yet_is_kept_without_it() -> None:
    known = Secrets(access_token="old-access-main")
    assert [known.without(said) for said, _ in QUOTED] == [left for _, left in QUOTED]


def test_no_way_into_the_row_takes_a_secret_with_it(login: Login, fake_clock: FakeClock) -> None:
    """A login with what the file has, an adoption, a verdict made by hand, an address, a reason."""
    words = ["file-secret-1", "file-secret-2", "made-secret-3", "new-access-4", "new-refresh-5"]
    login.file.store(Secrets(access_token="old-access-main", refresh_token="r-1", extra={"id_token": words[0]}))
    login.group.log_in("nous", "main", login.home, secrets=login.file, auth_type="oauth")
    login.file.store(Secrets(
        access_token="theirs", refresh_token="r-2", expires_at=fake_clock.now() + 9.0, extra={"client_secret": words[1]}
    ))
    login.token(exchange=lambda grant: (grant.reveal(), Rotated(
        access_token=words[3], refresh_token="r-3", extra={"id_token": words[2]},
        base_url=f"https://provider/?k={words[3]}", expires_at=fake_clock.now() + 9.0,
    ))[1])
    with pytest.raises(GrantMayBeLost) as lost:
        login.token(exchange=lambda grant: (grant.reveal(), Unsure(reason=f'no JSON: "refresh_token":"{words[4]}"'))[1])
    assert lost.value.why == 'no JSON: "refresh_token":"[secret]"'
    kept = login.file.load()
    assert kept is not None
    assert kept.others == {"id_token": words[2], "client_secret": words[1], "base_url": f"https://provider/?k={words[3]}"}
    for address in (f"https://provider/?k={words[3]}", "https://user:word@provider"):
        with pytest.raises(InvalidInput, match="an address without a password or token"):
            login.group.log_in(
                "nous", "other", login.home, secrets=login.file, auth_type="oauth", base_url=address,
                new=Secrets(access_token=words[3]),
            )
    home = login.store.path.parent
    login.store.close()
    everything = b"".join(path.read_bytes() for path in home.glob("state.db*"))
    assert [word for word in words if word.encode() in everything] == []
