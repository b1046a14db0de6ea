"""Once the provider has given a new token nothing loses it, and a token that works once is never sent twice."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.errors import CredentialCooling, CredentialExpired, GrantMayBeLost, InvalidInput, RotationFailed
from hermes_state.routing import home_of
from hermes_state.store import open_store
from hermes_state.work.credentials import Ended, Grant, Rotated, SecretFile, Secrets, Shared, Unsure, Verdict
from hermes_state.work.credentials.rotation import Asking
from tests.hermes_state.work.credentials.conftest import Login
from tests.hermes_state.work.credentials.test_rotation import dies_at, threaded


def unsure(grant: Grant) -> Verdict:
    """It sends, and no answer comes."""
    grant.reveal()
    return Unsure(reason="no answer")


@pytest.mark.parametrize(("place", "access"), [("with the token in hand", "another"), ("unsure", None)])
def test_a_copy_of_the_file_with_the_token_that_was_sent_does_not_make_it_be_sent_again(
    login: Login, fake_clock: FakeClock, place: str, access: str | None
) -> None:
    """The file comes back with another access token, or none: what it has is used until its end, the marker stays."""
    first = login.begin()
    if place == "unsure":
        with pytest.raises(GrantMayBeLost):
            login.token(exchange=unsure)
    else:
        dies_at(login, place)
    login.file.store(Secrets(access_token=access, refresh_token=first, expires_at=fake_clock.now() + 900.0))
    if access is not None:
        assert login.token(login.process()).how == "adopted"
        fake_clock.advance(900.0)
    for _ in range(2):
        with pytest.raises(GrantMayBeLost):
            login.token(login.process())
    assert login.server.posts == []
    assert str(login.group.get("nous", "main").rotation) != "whole"


def test_what_the_one_who_sent_it_has_written_is_adopted_although_the_token_goes_on(
    login: Login, fake_clock: FakeClock
) -> None:
    """The answer renews no refresh token, and the sender dies between file and row; also by a clock that went back."""
    first = login.begin()
    login.server.answers.append({"status": 200, "access_token": "new-access", "expires_in": 3600})
    fake_clock.step_wall(-5.0)
    dies_at(login, "before the row")
    assert login.token(login.process()).access_token == "new-access"
    kept = login.file.load()
    assert kept is not None
    assert (kept.refresh_token, str(login.group.get("nous", "main").rotation)) == (first, "whole")


class Failing(SecretFile):
    """A file whose folder is full for so many writes."""

    def __init__(self, path: Path, times: int) -> None:
        super().__init__(path)
        self.times = times

    def store(self, secrets: Secrets) -> None:
        self.times -= 1
        if self.times >= 0:
            raise OSError(28, "No space left on device")
        super().store(secrets)


def test_a_file_that_cannot_be_written_is_written_again_while_the_lease_lasts_and_then_told_by_name(
    login: Login, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = login.begin()
    served = login.token(secrets=Failing(login.file.path, 5))
    kept = login.file.load()
    assert kept is not None
    assert (served.how, kept.access_token) == ("rotated", served.access_token)
    monkeypatch.setattr("hermes_state.work.credentials.sending._FIRST_NAP", 5.0)
    with pytest.raises(GrantMayBeLost) as lost:
        login.token(secrets=Failing(login.file.path, 10_000), rejected=served.access_token)
    assert lost.value.why == "a new token came, and the secret file cannot be written: No space left on device"
    assert isinstance(lost.value.__cause__, OSError)
    with pytest.raises(GrantMayBeLost):
        login.token(rejected=served.access_token)
    assert login.server.posts == [first, kept.refresh_token]


def test_a_full_disk_is_told_before_the_token_is_sent(login: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    login.begin(expires_in=5.0)

    def full(descriptor: int, offset: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(RotationFailed):
        login.token()
    assert login.server.posts == []
    assert str(login.group.get("nous", "main").rotation) == "whole"
    assert [path.name for path in login.file.path.parent.iterdir()] == ["main.json"]


def test_what_happens_to_the_file_while_the_provider_is_asked_does_not_lose_the_answer(login: Login) -> None:
    login.begin(expires_in=5.0)
    old = login.file.load()
    assert old is not None
    last = login.token().access_token
    for harm in (
        lambda: login.file.path.chmod(0o644), lambda: login.file.path.unlink(), lambda: login.file.store(old),
    ):
        def exchange(grant: Grant, harm: Callable[[], None] = harm) -> Verdict:
            verdict = login.exchange(grant)
            harm()
            return verdict

        served = login.token(exchange=exchange, rejected=last)
        kept = login.file.load()
        assert kept is not None
        assert (served.how, kept.access_token) == ("rotated", served.access_token)
        last = served.access_token
    assert login.server.burned == set()


def test_an_answer_is_kept_although_the_lease_cannot_be_had_again(
    login: Login, fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody has it and hangs; the row says that nobody has logged in."""
    login.begin()
    monkeypatch.setattr("hermes_state.work.credentials.rotation.wait_of", lambda timeout_seconds: 0.5)
    other = login.process()

    def exchange(grant: Grant) -> Verdict:
        verdict = login.exchange(grant)
        fake_clock.advance(100.0)
        other.leases.acquire("credential:nous/main", term_seconds=600)
        return verdict

    assert login.token(login.process(), exchange=exchange).how == "rotated"
    assert str(login.group.get("nous", "main").rotation) == "whole"


def test_a_late_word_about_nothing_sent_is_not_written_over_anothers_new_grant(
    login: Login, fake_clock: FakeClock
) -> None:
    login.begin()
    last = "old-access-main"
    for verdict in (OSError("no route"), Ended(reason="client is unknown"), None):
        def exchange(grant: Grant, verdict: Verdict | OSError = verdict, last: str = last) -> Verdict:
            fake_clock.advance(100.0)  # beyond the lease
            threaded(lambda: login.token(login.process(), rejected=last))
            if isinstance(verdict, OSError):
                raise verdict
            return verdict

        served = login.token(login.process(), exchange=exchange, rejected=last)
        row = login.group.get("nous", "main")
        assert (served.how, str(row.status), row.reset_at) == ("current", "ok", None)
        last = served.access_token
    assert len(login.server.posts) == 3


def test_a_line_that_is_down_costs_half_a_minute_and_not_the_token_that_still_works(
    login: Login, fake_clock: FakeClock
) -> None:
    def down(grant: Grant) -> Verdict:
        raise ConnectionError("no route")

    login.begin(expires_in=100.0)
    served = login.token(exchange=down)
    assert (served.access_token, served.how) == ("old-access-main", "current")
    row = login.group.get("nous", "main")
    assert (str(row.status), row.error_reason) == ("ok", "the exchange ended with ConnectionError")
    fake_clock.advance(29.0)
    assert login.token().how == "current"  # nobody is asked meanwhile
    fake_clock.advance(1.0)
    assert login.token(exchange=down).how == "current"
    fake_clock.advance(61.0)
    with pytest.raises(RotationFailed) as failed:  # 9 s are too few
        login.token(exchange=down)
    assert failed.value.retry_at == fake_clock.now() + 30.0
    with pytest.raises(CredentialCooling):
        login.token()
    fake_clock.advance(30.0)
    assert login.token().how == "rotated"


def test_tokens_that_last_shorter_than_the_margin_are_used_for_half_of_their_life(
    login: Login, fake_clock: FakeClock
) -> None:
    """And one that was over when it came, by a clock that is ahead, is not asked for again at once."""
    login.server.lasts_seconds = 100.0
    login.begin()
    ways = []
    for _ in range(10):
        ways.append(login.token().how)
        fake_clock.advance(10.0)
    assert ways == ["rotated", "current", "current", "current", "current"] * 2
    login.server.lasts_seconds = -3600.0
    with pytest.raises(CredentialExpired):
        login.token()
    for _ in range(3):
        with pytest.raises(CredentialCooling) as resting:
            login.token()
    assert resting.value.retry_at == fake_clock.now() + 300.0
    assert len(login.server.posts) == 3


def test_two_rows_that_name_one_file_do_not_both_send_its_token(login: Login, logins: Callable[[str], Login]) -> None:
    """By the file, which names who rotates it; and by the store, where a file of the caller's own does not."""
    first = login.begin()
    kept = login.file.load()
    assert kept is not None
    login.group.log_in("nous", "twin", login.home, secrets=login.file, auth_type="oauth")
    with pytest.raises(InvalidInput) as refused:
        login.group.token("nous", "twin", login.home, secrets=login.file, exchange=login.exchange)
    assert str(refused.value) == (
        f"The secrets in {login.file!r} are rotated by {login.home.store_id}/nous/main and not by nous credential"
        f" 'twin' of {login.store.path}."
    )
    plain = SecretFile(login.file.path.with_name("plain.json"))  # as of a caller's own store, which names nobody
    plain.store(Secrets(access_token="old-access-main", refresh_token=first, expires_at=kept.expires_at))
    login.token()
    with pytest.raises(GrantMayBeLost, match="its token is one that nous credential 'main' has sent"):
        login.group.token("nous", "twin", login.home, secrets=plain, exchange=login.exchange)
    assert login.server.posts == [first]
    now = login.file.load()
    assert now is not None
    login.group.remove("nous", "main", login.home, actor="test", reason="it is called twin now")
    assert login.group.token(
        "nous", "twin", login.home, secrets=login.file, exchange=login.exchange, rejected=now.access_token
    ).how == "rotated"
    assert login.server.burned == set()


@pytest.mark.parametrize("keeps_times", [True, False])
def test_the_same_tokens_with_a_later_end_reach_the_homes_that_share_them(
    login: Login, tmp_path: Path, fake_clock: FakeClock, keeps_times: bool
) -> None:
    class Plain(SecretFile):
        def load(self) -> Secrets | None:
            found = super().load()
            return None if found is None else Secrets(
                access_token=found.access_token, refresh_token=found.refresh_token
            )

    login.begin(single_use=False)
    file = login.file if keeps_times else Plain(login.file.path)
    posts: list[str] = []

    def same(grant: Grant) -> Verdict:
        posts.append(grant.reveal())
        return Rotated(access_token="old-access-main", expires_at=fake_clock.now() + 3600.0)

    with open_store(tmp_path / "shared", clock=fake_clock) as other:
        group, home = other.work.credentials, home_of(other.core)
        group.log_in("nous", "main", home, secrets=login.file, auth_type="oauth", source="shared", single_use=False)
        for _ in range(2):
            served = login.token(secrets=file, exchange=same, shared=Shared(credentials=group, home=home))
            assert (served.access_token, served.expires_at) == ("old-access-main", fake_clock.now() + 3600.0)
    assert len(posts) == 1


def test_a_login_in_one_home_waits_for_the_rotation_of_the_store_that_homes_share(
    login: Login, tmp_path: Path, fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = Secrets(access_token="new-login", refresh_token="login-next", expires_at=fake_clock.now() + 3600.0)
    with open_store(tmp_path / "shared", clock=fake_clock) as other:
        group, home = other.work.credentials, home_of(other.core)
        shared = Shared(credentials=group, home=home)
        group.log_in(
            "nous", "main", home, secrets=login.file, auth_type="oauth", source="shared",
            new=Secrets(access_token="one", refresh_token=login.server.log_in("main"), expires_at=fake_clock.now()),
        )
        login.group.log_in("nous", "main", login.home, secrets=login.file, auth_type="oauth")
        with pytest.raises(InvalidInput) as refused:
            login.group.log_in("nous", "main", login.home, secrets=login.file, auth_type="oauth", new=new)
        assert str(refused.value) == (
            f"The secrets in {login.file!r} are rotated by shared:{home.store_id}/nous/main, and this login is of"
            f" {login.home.store_id}/nous/main."
        )
        monkeypatch.setattr("hermes_state.work.credentials.credentials.wait_of", lambda timeout_seconds: 0.5)
        running = group.leases.acquire("credential:nous/main", term_seconds=600)  # of another home's rotation
        with pytest.raises(Exception, match="is held by"):
            threaded(lambda: caught(lambda: login.group.log_in(
                "nous", "main", login.home, secrets=login.file, auth_type="oauth", new=new, shared=shared
            )))()
        running.release()
        login.group.log_in(
            "nous", "main", login.home, secrets=login.file, auth_type="oauth", new=new, shared=shared
        )
        assert login.token(shared=shared).access_token == "new-login"
        assert group.token("nous", "main", home, secrets=login.file, exchange=login.exchange).how == "adopted"
    assert login.server.posts == []


def test_no_repr_shows_the_token_that_was_refused() -> None:
    given = dict.fromkeys(Asking.__dataclass_fields__) | {"rejected": "a-refused-token"}
    assert "a-refused-token" not in repr(Asking(**given))  # type: ignore[arg-type]


def caught(work: Callable[[], object]) -> Callable[[], object]:
    """What was raised, to be raised again in another thread."""
    try:
        found = work()
    except Exception as error:  # given on
        raised = error

        def again() -> object:
            raise raised

        return again
    return lambda: found
