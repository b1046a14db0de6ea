"""The rows: login, use, reports, pruning, homes (R114, R119, T8.2); and no secret in any byte of the store."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.errors import (
    CredentialCooling,
    CredentialDead,
    CredentialNotFound,
    GrantMayBeLost,
    InvalidInput,
    SecretMissing,
    WrongHome,
)
from hermes_state.routing import home_of
from hermes_state.store import Store, open_store
from hermes_state.work.credentials import (
    Credential,
    Ended,
    Grant,
    Rotated,
    SecretFile,
    Secrets,
    Unsure,
    Verdict,
    choose,
)
from hermes_state.work.credentials.secrets import split
from tests.hermes_state.work.credentials.conftest import Login


def never(grant: Grant) -> Verdict:
    """An exchange that must not be reached."""
    raise AssertionError(f"the provider was asked for {grant}")


def test_t8_2_extra_keys_survive_and_a_stray_provider_is_dropped(login: Login) -> None:
    """R114: `expires_in`, `token_type` and `scope` of a token endpoint are no fields; the row survives them."""
    login.begin(plan="pro", nested={"a": [1, None, "ü"]})
    answer = {
        "access_token": "new-access", "refresh_token": "new-refresh", "expires_in": 60, "token_type": "Bearer",
        "scope": "a b", "provider": "stray", "id_token": "new-identity", "limits": {"per_day": 3},
    }
    now = login.store.core.clock.now()

    def exchange(grant: Grant) -> Verdict:
        grant.reveal()
        return Rotated.of(answer, now=now)

    login.token(exchange=exchange)
    row = login.group.get("nous", "main")
    kept = {"expires_in": 60, "token_type": "Bearer", "scope": "a b", "limits": {"per_day": 3}}
    assert row.extra == {"plan": "pro", "nested": {"a": [1, None, "ü"]}, **kept}
    assert row.expires_at == now + 60.0
    # Load, save, load: nothing is lost on the way.
    loaded = login.file.load()
    assert loaded is not None
    assert loaded.others == {"id_token": "new-identity"}
    login.file.store(loaded)
    again = login.file.load()
    assert again is not None
    assert [getattr(again, name) for name in vars(again)] == [getattr(loaded, name) for name in vars(loaded)]
    login.group.log_in("nous", "main", login.home, secrets=login.file, auth_type="oauth")
    assert login.group.get("nous", "main").extra == row.extra


@pytest.mark.parametrize("hidden", [
    {"id_token": "x"}, {"client_secret": "x"}, {"deep": {"sessionCookie": "x"}}, {"list": [{"api_key": "x"}]},
    {"url": "https://a/?t=old-access-main"},
])
def test_what_sounds_like_a_secret_or_has_one_in_it_is_no_extra(hidden: dict[str, object]) -> None:
    known = Secrets(access_token="old-access-main")
    kept, secret = split({"plan": "pro", "provider": "x", "none": None, **hidden}, known)
    assert (kept, secret) == ({"plan": "pro"}, hidden)


def test_secret_extras_of_a_login_are_in_the_file_and_the_others_in_the_row(login: Login) -> None:
    login.begin(plan="pro", id_token="x")
    assert login.group.get("nous", "main").extra == {"plan": "pro"}
    kept = login.file.load()
    assert kept is not None
    assert kept.others == {"id_token": "x"}


def test_no_secret_is_in_any_byte_of_the_store_nor_in_any_repr(login: Login, fake_clock: FakeClock) -> None:
    """T8.3 beside R113: after a login, a rotation, a failure that quotes the token, and a report that does."""
    first = login.begin()
    served = login.token()
    fake_clock.advance(3600.0)
    kept = login.file.load()
    assert kept is not None
    assert kept.refresh_token is not None

    def exchange(grant: Grant) -> Verdict:
        return Ended(reason=f"{grant.reveal()} is over", code="invalid_grant")

    with pytest.raises(CredentialDead) as dead:
        login.token(exchange=exchange)
    login.begin()
    login.group.report(
        "nous", "main", login.home, code=429, message="old-access-main is limited", access_token="old-access-main",
    )
    row = login.group.get("nous", "main")
    assert row.error_message == "[secret] is limited"
    assert dead.value.reason == "[secret] is over invalid_grant"
    shown = f"{served!r}{kept!r}{row!r}{login.file!r}{dead.value!r}"
    tokens = [first, served.access_token, kept.refresh_token, "old-access-main"]
    assert [token for token in tokens if token in shown] == []
    home = login.store.path.parent
    login.store.close()
    everything = b"".join(path.read_bytes() for path in home.glob("state.db*"))
    assert [token for token in tokens if token.encode() in everything] == []


def test_r119_a_then_b_without_a_credential_then_a(tmp_path: Path, login: Login) -> None:
    """B is refused before anybody is asked, whatever file it names; A is as before."""
    login.begin()
    assert login.token().how == "rotated"
    with open_store(tmp_path / "b", clock=login.store.core.clock) as other:
        group, home = other.work.credentials, home_of(other.core)
        with pytest.raises(CredentialNotFound) as refused:
            group.token("nous", "main", home, secrets=login.file, exchange=never)
        assert str(refused.value) == (
            f"{other.path} has no credential 'main' of nous; the provider was not asked."
        )
        with pytest.raises(CredentialNotFound):
            group.pick("nous", home)
        with pytest.raises(WrongHome):
            group.token("nous", "main", login.home, secrets=login.file, exchange=never)
        assert group.all() == []
    assert login.token().how == "current"
    assert len(login.server.posts) == 1


def test_a_row_that_came_with_a_copied_store_is_not_there(login: Login) -> None:
    """Two homes with one token that works once would burn it: the row is that of the store that it was made in."""
    login.begin()
    login.store.core.write(lambda tx: tx.execute("UPDATE credentials SET home = 'another store'"))
    with pytest.raises(CredentialNotFound):
        login.token(exchange=never)
    assert login.group.all() == []


def test_a_credential_without_secrets_is_refused_before_anybody_is_asked(login: Login) -> None:
    login.begin()
    login.file.path.unlink()
    with pytest.raises(SecretMissing) as missing:
        login.token(exchange=never)
    assert str(missing.value) == (
        f"nous credential 'main' of {login.store.path} has no secrets: <SecretFile {login.file.path}> is empty."
    )
    with pytest.raises(SecretMissing, match="There is no token to log in"):
        login.group.log_in("nous", "x", login.home, secrets=login.file, auth_type="oauth")


def row(name: str, **fields: object) -> Credential:
    """A row as `choose` sees it."""
    plain: dict[str, object] = dict.fromkeys(Credential.__dataclass_fields__)
    return Credential(**{  # type: ignore[arg-type]
        **plain, "id": name, "priority": 0, "request_count": 0, "used_order": 0, "status_at": 0.0, "status": "ok",
        "rotation": "whole", "spent": b"", **fields,
    })


def test_the_four_strategies_choose_by_priority_turn_count_or_chance() -> None:
    found = [row("a", priority=0, used_order=9, request_count=5), row("b", priority=1, used_order=3, request_count=9),
             row("c", priority=2, used_order=7, request_count=1)]
    names = {
        strategy: getattr(choose(found, strategy, now=0.0), "id", None)  # type: ignore[arg-type]
        for strategy in ("fill_first", "round_robin", "least_used")
    }
    assert names == {"fill_first": "a", "round_robin": "b", "least_used": "c"}
    seen = {choose(found, "random", now=0.0, chance=random.Random(seed)).id for seed in range(20)}  # type: ignore[union-attr]
    assert seen == {"a", "b", "c"}
    with pytest.raises(InvalidInput, match=r"^'best' is no strategy\.$"):
        choose(found, "best", now=0.0)  # type: ignore[arg-type]


def test_pick_goes_round_counts_and_says_why_there_is_none(
    store: Store, logins: Callable[[str], Login], fake_clock: FakeClock
) -> None:
    all_of = [logins(name) for name in "abc"]
    for one in all_of:
        one.begin(expires_in=3600.0)
    group, home = store.work.credentials, home_of(store.core)
    assert [group.pick("nous", home, strategy="round_robin").id for _ in range(7)] == list("abcabca")
    assert [one.request_count for one in group.all("nous")] == [3, 2, 2]
    assert group.pick("nous", home).id == "a"
    for seconds, name in zip((300.0, 60.0, 900.0), "abc", strict=True):
        group.report("nous", name, home, code=429, reset_at=fake_clock.now() + seconds)
    with pytest.raises(CredentialCooling) as resting:
        group.pick("nous", home)
    assert (resting.value.credential, resting.value.retry_at) == ("b", fake_clock.now() + 60.0)
    fake_clock.advance(60.0)
    assert group.pick("nous", home).id == "b"
    with pytest.raises(CredentialDead):
        logins("b").token(exchange=lambda grant: Ended(reason="over"), rejected="old-access-b")
    fake_clock.advance(-30.0)
    with pytest.raises(CredentialCooling):
        group.pick("nous", home)
    fake_clock.advance(86_400.0)
    for name in "ac":
        with pytest.raises(CredentialDead):
            logins(name).token(exchange=lambda grant: Ended(reason="over"))
    with pytest.raises(CredentialDead):
        group.pick("nous", home)


def test_pick_passes_over_a_grant_that_may_be_lost_unless_its_token_still_works(
    login: Login, fake_clock: FakeClock
) -> None:
    login.begin(expires_in=1000.0)

    def exchange(grant: Grant) -> Verdict:
        grant.reveal()
        return Unsure(reason="no answer")

    with pytest.raises(GrantMayBeLost):
        login.token(exchange=exchange, rejected="old-access-main")
    login.group.report("nous", "main", login.home)  # a request with the old token succeeded: it does not rest
    assert login.group.pick("nous", login.home).id == "main"
    assert login.token().how == "current"
    fake_clock.advance(900.0)
    with pytest.raises(GrantMayBeLost):
        login.group.pick("nous", login.home)


def test_a_report_about_a_token_that_was_replaced_changes_nothing(login: Login) -> None:
    login.begin()
    served = login.token()
    login.group.report("nous", "main", login.home, code=401, access_token="old-access-main")
    assert str(login.group.get("nous", "main").status) == "ok"
    login.group.report("nous", "main", login.home, code=401, access_token=served.access_token)
    assert str(login.group.get("nous", "main").status) == "exhausted"
    login.group.report("nous", "main", login.home, access_token=served.access_token)
    now = login.group.get("nous", "main")
    assert (str(now.status), now.error_code, now.reset_at) == ("ok", None, None)


def test_dead_manual_rows_go_after_a_day_and_others_stay(
    store: Store, logins: Callable[[str], Login], fake_clock: FakeClock
) -> None:
    home, group = home_of(store.core), store.work.credentials
    for name in ("gone", "alive", "brought"):
        logins(name).begin()
    group.log_in(
        "nous", "brought", home, secrets=logins("brought").file, auth_type="oauth", source="plugin x"
    )
    for name in ("gone", "brought"):
        with pytest.raises(CredentialDead):
            logins(name).token(exchange=lambda grant: Ended(reason="over"))
    fake_clock.advance(86_399.0)
    assert group.prune(home, actor="test") == []
    fake_clock.advance(1.0)
    assert [one.id for one in group.prune(home, actor="test")] == ["gone"]
    assert [one.id for one in group.all()] == ["alive", "brought"]
    group.remove("nous", "alive", home, actor="test", reason="asked to")
    with store.core.reader() as reader:
        said = reader.rows("SELECT actor, reason, kind, keys, rows FROM deletions ORDER BY id")
    assert said == [
        ("test", "dead for a day", "credential", '["nous/gone"]', 1),
        ("test", "asked to", "credential", '["nous/alive"]', 1),
    ]


@pytest.mark.parametrize(("field", "value", "message"), [
    ("access_token", "", "access_token of a credential is a text of 1 to 262,144 characters without NUL."),
    ("refresh_token", "a\0b", "refresh_token of a credential is a text of 1 to 262,144 characters without NUL."),
    ("expires_at", float("nan"), "expires_at is a time in epoch seconds UTC or None, not nan."),
    ("others", {"x": object()}, "others of a credential is JSON."),
])
def test_secrets_that_cannot_be_kept_are_refused_without_their_value(field: str, value: object, message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        Secrets(**{field: value})  # type: ignore[arg-type]
    assert str(refused.value) == message


def test_the_group_is_that_of_the_store_and_of_asyncio(store: Store, tmp_path: Path) -> None:
    import asyncio

    file = SecretFile(tmp_path / "a.json")
    file.store(Secrets(access_token="one"))
    store.work.credentials.log_in("x", "a", home_of(store.core), secrets=file, auth_type="api_key")

    async def served() -> str:
        found = await store.aio.work.credentials.token(
            "x", "a", home_of(store.core), secrets=file, exchange=never
        )
        return str(found.access_token)

    assert asyncio.run(served()) == "one"
