"""One process at a time gets the next token (T8.1, T8.3, T8.4, R113, R115): kills at every step, every verdict."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from hermes_state.clock import FakeClock
from hermes_state.errors import (
    CredentialCooling,
    CredentialDead,
    CredentialExpired,
    GrantMayBeLost,
    InvalidInput,
    LeaseHeld,
    Refused,
    RotationFailed,
)
from hermes_state.work.credentials import Ended, Grant, Postponed, Rotated, Secrets, Unsure, Verdict
from hermes_state.work.credentials.rotation import wait_of
from tests.hermes_state.work.credentials.conftest import Login


class Died(BaseException):
    """The process ends here: nothing after it is run."""


def dies_at(login: Login, place: str) -> None:
    """A process that dies at a place of its rotation, as kill -9 leaves it: what it had written stays."""
    group = login.process()
    presence = login.presences[-1]
    store = login.file.store

    def exchange(grant: Grant) -> Verdict:
        if place == "before the marker":
            raise Died
        verdict = None
        if place == "with the token in hand":
            grant.reveal()
        else:
            verdict = login.exchange(grant)
        if place != "before the row":
            group._core = None  # type: ignore[assignment]  # nothing can be written by it any more
            raise Died
        return verdict

    def keep(secrets: Secrets) -> None:
        store(secrets)
        raise Died

    class Dying:
        load = staticmethod(login.file.load)
        store = staticmethod(keep)

    from hermes_state.work.credentials import sending

    with pytest.MonkeyPatch.context() as patch:
        if place != "before the marker":
            patch.setattr(sending.Sending, "_settle", lambda *given: (_ for _ in ()).throw(Died))
        patch.setattr("hermes_state.leases.lease.Lease.release", lambda self: False)
        with pytest.raises(Died):
            login.token(group, exchange=exchange, secrets=Dying())
    presence.end()


def test_t8_1_a_token_that_is_good_is_given_without_a_lease_or_the_provider(login: Login) -> None:
    login.begin(expires_in=3600.0)
    served = login.token()
    assert (served.access_token, served.how, served.fence) == ("old-access-main", "current", 0)
    assert login.server.posts == []
    assert login.store.leases.look("credential:nous/main").fence == 1  # type: ignore[union-attr]  # the login's own


def test_t8_1_a_due_token_is_got_once_and_others_get_the_same(login: Login, fake_clock: FakeClock) -> None:
    first = login.begin()
    served = login.token()
    assert (served.how, login.server.posts) == ("rotated", [first])
    assert served.expires_at == fake_clock.now() + 3600.0
    assert served.window_seconds is not None
    for _ in range(8):
        again = login.token(login.process())
        assert (again.access_token, again.how) == (served.access_token, "current")
    assert login.server.posts == [first]
    row = login.group.get("nous", "main")
    assert (str(row.status), str(row.rotation), row.refreshed_at) == ("ok", "whole", fake_clock.now())


def test_a_token_that_ends_within_120_s_is_due_and_one_more_second_is_not(login: Login) -> None:
    login.begin(expires_in=121.0)
    assert login.token().how == "current"
    login.begin(expires_in=120.0)
    assert login.token().how == "rotated"


def test_a_token_that_the_server_refused_is_not_given_again(login: Login) -> None:
    login.begin(expires_in=3600.0)
    served = login.token(rejected="old-access-main")
    assert served.how == "rotated"
    # Somebody who was refused with the old one gets the new one, and sends nothing.
    assert login.token(login.process(), rejected="old-access-main").access_token == served.access_token
    assert len(login.server.posts) == 1


def test_another_programs_rotation_is_adopted_without_a_post(login: Login, fake_clock: FakeClock) -> None:
    login.begin()
    login.file.store(Secrets(
        access_token="theirs", refresh_token="their next", expires_at=fake_clock.now() + 900.0, extra={"scope": "x"},
    ))
    served = login.token()
    assert (served.access_token, served.how, served.expires_at) == ("theirs", "adopted", fake_clock.now() + 900.0)
    assert login.server.posts == []
    assert login.group.get("nous", "main").extra == {"scope": "x"}


def test_a_kill_before_the_marker_costs_nothing(login: Login) -> None:
    first = login.begin()
    dies_at(login, "before the marker")
    assert login.token(login.process()).how == "rotated"
    assert login.server.posts == [first]


@pytest.mark.parametrize(("place", "posts"), [("with the token in hand", 0), ("with the answer in hand", 1)])
def test_t8_3_a_kill_between_marker_and_file_is_told_and_the_token_is_never_sent_again(
    login: Login, place: str, posts: int, fake_clock: FakeClock
) -> None:
    login.begin()
    dies_at(login, place)
    assert str(login.group.get("nous", "main").rotation) == "rotating"
    for _ in range(3):
        with pytest.raises(GrantMayBeLost) as lost:
            login.token(login.process())
    assert str(lost.value) == (
        f"The grant of nous credential 'main' in {login.store.path} may be lost: its token was sent, and whoever sent"
        " it did not keep what came back. It is not sent again."
    )
    assert lost.value.hint == "Log in anew; a provider that sees one token twice ends the whole login."
    assert lost.value.since == fake_clock.now()
    assert len(login.server.posts) == posts
    assert str(login.group.get("nous", "main").rotation) == "grant_may_be_lost"
    login.begin()  # a new login heals it
    assert login.token().how == "rotated"


def test_t8_3_a_kill_between_file_and_row_loses_nothing(login: Login, fake_clock: FakeClock) -> None:
    first = login.begin(scope="old")
    dies_at(login, "before the row")
    assert str(login.group.get("nous", "main").rotation) == "rotating"
    served = login.token(login.process())
    assert (served.how, served.expires_at) == ("adopted", fake_clock.now() + 3600.0)
    assert login.server.posts == [first]
    row = login.group.get("nous", "main")
    assert (str(row.rotation), row.extra["scope"]) == ("whole", "all")
    fake_clock.advance(3600.0)
    assert login.token().how == "rotated"  # and the chain goes on
    assert login.server.burned == set()


def test_while_one_rotates_the_old_token_serves_until_its_end_and_then_others_wait(login: Login) -> None:
    """The lease is taken by hand, so that nobody is early or late."""
    login.begin(expires_in=3600.0)
    other = login.process().leases.acquire("credential:nous/main", term_seconds=600)
    assert login.token().how == "current"
    other.release()


def test_one_that_holds_the_lease_for_too_long_is_named(
    login: Login, fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After max(15, the exchange's time and 5) seconds; here it is a shorter wait."""
    assert (wait_of(0.5), wait_of(10.0), wait_of(20.0)) == (15.0, 15.0, 25.0)
    monkeypatch.setattr("hermes_state.work.credentials.rotation.wait_of", lambda timeout_seconds: 0.5)
    login.begin()
    other = login.process().leases.acquire("credential:nous/main", term_seconds=600, note={"purpose": "token rotation"})
    began = fake_clock.monotonic()
    with pytest.raises(LeaseHeld) as held:
        login.token()
    assert 0.5 <= fake_clock.monotonic() - began < 0.8
    assert str(held.value).startswith(
        f"Lease 'credential:nous/main' in {login.store.path} is held by {other.owner} (purpose token rotation), not"
    )
    assert login.server.posts == []


def test_a_token_that_may_be_sent_again_is_sent_again_after_a_crash(login: Login) -> None:
    first = login.begin(single_use=False)
    dies_at(login, "with the token in hand")
    assert login.token(login.process()).how == "rotated"
    assert login.server.posts == [first]


def test_an_old_copy_of_the_secret_file_is_known_and_its_token_is_not_sent(login: Login, fake_clock: FakeClock) -> None:
    login.begin()
    old = login.file.load()
    assert old is not None
    login.token()
    login.file.store(old)  # somebody restored a backup of the folder
    with pytest.raises(GrantMayBeLost) as lost:
        login.token()
    assert lost.value.why == "the secret file has a token that is spent, as an old copy of it would"
    with pytest.raises(GrantMayBeLost, match="one that was sent before"):
        login.group.log_in("nous", "main", login.home, secrets=login.file, auth_type="oauth")
    assert len(login.server.posts) == 1


def test_t8_4_a_dead_grant_is_sent_once_ever_and_says_so(login: Login) -> None:
    login.begin()
    login.server.answers.append({"status": 400, "error": "invalid_grant"})
    for _ in range(3):
        with pytest.raises(CredentialDead) as dead:
            login.token(login.process())
    assert str(dead.value) == (
        f"The grant of nous credential 'main' in {login.store.path} is over: HTTP 400 invalid_grant."
    )
    assert dead.value.hint == "Log in anew; until then it is not used."
    assert len(login.server.posts) == 1
    login.begin()
    assert login.token().how == "rotated"


def test_t8_4_a_transient_failure_is_tried_again_after_its_rest(login: Login, fake_clock: FakeClock) -> None:
    first = login.begin()
    login.server.answers.append({"status": 503, "error": "overloaded"})
    with pytest.raises(RotationFailed) as failed:
        login.token()
    assert failed.value.retry_at == fake_clock.now() + 3600.0
    with pytest.raises(CredentialCooling) as resting:
        login.token()
    assert resting.value.retry_at == failed.value.retry_at
    assert login.server.posts == [first]
    fake_clock.advance(3600.0)
    assert login.token().how == "rotated"
    assert login.server.posts == [first, first]  # the server had said that it did not take it


@pytest.mark.parametrize(("code", "reset", "rests"), [
    ("401", None, 300.0), ("429", 50.0, 50.0),
])
def test_rests_are_5_minutes_after_401_an_hour_after_all_else_and_the_providers_word_wins(
    login: Login, fake_clock: FakeClock, code: str | None, reset: float | None, rests: float
) -> None:
    login.begin()
    at = fake_clock.now()
    with pytest.raises(RotationFailed) as failed:
        login.token(exchange=lambda grant: Postponed(
            reason="no", code=code, reset_at=None if reset is None else at + reset
        ))
    assert failed.value.retry_at == at + rests


def reveals_and(verdict: Verdict | BaseException) -> Callable[[Grant], Verdict]:
    def exchange(grant: Grant) -> Verdict:
        grant.reveal()
        if isinstance(verdict, BaseException):
            raise verdict
        return verdict

    return exchange


@pytest.mark.parametrize("verdict", [Unsure(reason="timed out"), None, OSError("reset by peer")])
def test_an_answer_that_nobody_can_read_after_sending_is_a_grant_that_may_be_lost(
    login: Login, verdict: Verdict | Exception
) -> None:
    login.begin()
    with pytest.raises(GrantMayBeLost) as lost:
        login.token(exchange=reveals_and(verdict))
    assert lost.value.__cause__ is (verdict if isinstance(verdict, Exception) else None)
    row = login.group.get("nous", "main")
    assert (str(row.status), str(row.rotation)) == ("exhausted", "grant_may_be_lost")  # benched, never ok


def test_the_same_before_sending_is_tried_again(login: Login, fake_clock: FakeClock) -> None:
    login.begin(expires_in=10.0)
    for verdict in (Unsure(reason="timed out"), None, OSError("reset by peer")):
        def exchange(grant: Grant, verdict: Verdict | OSError = verdict) -> Verdict:
            if isinstance(verdict, OSError):
                raise verdict
            return verdict

        with pytest.raises(RotationFailed) as failed:
            login.token(exchange=exchange)
        assert failed.value.retry_at == fake_clock.now() + 30.0
        row = login.group.get("nous", "main")
        assert (str(row.status), str(row.rotation)) == ("exhausted", "whole")
        fake_clock.advance(30.0)


def test_an_interrupt_with_the_token_in_hand_leaves_the_word_that_it_may_be_lost(login: Login) -> None:
    login.begin()
    with pytest.raises(KeyboardInterrupt):
        login.token(exchange=reveals_and(KeyboardInterrupt()))
    assert str(login.group.get("nous", "main").rotation) == "grant_may_be_lost"


@pytest.mark.parametrize("revealed", [False, True])
def test_an_exchange_that_gives_no_verdict_is_the_callers_fault(login: Login, revealed: bool) -> None:
    """An asynchronous one has sent nothing yet, so nothing rests; one that has sent the token may have lost it."""
    login.begin()

    async def later() -> None:
        raise AssertionError

    def exchange(grant: Grant) -> Any:
        return grant.reveal()[:0] if revealed else later()

    with pytest.raises(InvalidInput) as refused:
        login.token(exchange=exchange)
    kind = "str" if revealed else "coroutine"
    assert str(refused.value) == f"An exchange of nous gave {kind}, which is no verdict."
    row = login.group.get("nous", "main")
    assert (str(row.status), str(row.rotation)) == (
        ("exhausted", "grant_may_be_lost") if revealed else ("ok", "whole")
    )


def test_a_token_is_handed_out_once(login: Login) -> None:
    login.begin()

    def exchange(grant: Grant) -> Verdict:
        grant.reveal()
        with pytest.raises(Refused, match=r"was handed out already\.$"):
            grant.reveal()
        return Ended(reason="done")

    with pytest.raises(CredentialDead):
        login.token(exchange=exchange)


def test_a_new_token_that_is_over_already_is_kept_and_not_used(login: Login, fake_clock: FakeClock) -> None:
    login.begin()
    over = fake_clock.now() - 1.0
    with pytest.raises(CredentialExpired) as expired:
        login.token(exchange=reveals_and(Rotated(access_token="new", refresh_token="next", expires_at=over)))
    assert expired.value.expired_at == over
    kept = login.file.load()
    assert kept is not None
    assert kept.refresh_token == "next"


def test_an_answer_without_an_expiry_clears_the_old_one_and_keeps_the_refresh_token_it_did_not_renew(
    login: Login
) -> None:
    first = login.begin(single_use=False)
    served = login.token(exchange=reveals_and(Rotated(access_token="new")))
    assert served.expires_at is None
    kept = login.file.load()
    assert kept is not None
    assert (kept.access_token, kept.refresh_token, kept.expires_at) == ("new", first, None)
    assert login.token().how == "current"


def test_a_slow_answer_is_kept_although_the_lease_ran_out_and_another_gave_the_grant_up(
    login: Login, fake_clock: FakeClock
) -> None:
    login.begin()

    def exchange(grant: Grant) -> Verdict:
        verdict = login.exchange(grant)
        fake_clock.advance(100.0)  # beyond the term of 25 s
        with pytest.raises(GrantMayBeLost):
            raise threaded(lambda: refused(login))
        return verdict

    served = threaded(lambda: login.token(login.process(), exchange=exchange))
    assert served.how == "rotated"
    assert str(login.group.get("nous", "main").rotation) == "whole"
    assert login.token().access_token == served.access_token
    assert len(login.server.posts) == 1


def test_a_slow_answer_does_not_replace_a_login_that_came_meanwhile(login: Login, fake_clock: FakeClock) -> None:
    login.begin()

    def exchange(grant: Grant) -> Verdict:
        verdict = login.exchange(grant)
        fake_clock.advance(100.0)
        threaded(lambda: login.begin(expires_in=3600.0))
        return verdict

    served = login.token(login.process(), exchange=exchange)
    assert served.access_token == "old-access-main"  # the login's own
    assert str(login.group.get("nous", "main").rotation) == "whole"


def test_a_second_token_is_not_asked_for_within_an_exchange(
    login: Login, logins: Callable[[str], Login]
) -> None:
    login.begin()
    other = logins("other")
    other.begin()

    def exchange(grant: Grant) -> Verdict:
        with pytest.raises(InvalidInput) as refused:
            other.token()
        assert str(refused.value) == (
            "This thread asked for credential:nous/other while it rotates another credential."
        )
        return login.exchange(grant)

    assert login.token(exchange=exchange).how == "rotated"


def refused(login: Login) -> Exception:
    """What another process is told."""
    with pytest.raises(GrantMayBeLost) as lost:
        login.token(login.process())
    return lost.value


def threaded(work: Callable[[], Any]) -> Any:
    """Run it in a thread of its own: the order of leases is each thread's."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]
