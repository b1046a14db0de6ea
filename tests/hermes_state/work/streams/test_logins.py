"""Login attempts (T6.1 to T6.5, R87): one a process, irreversible once it is granted, and no code anywhere."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.errors import HomeRemoved, InvalidInput, LoginEnded, LoginNotFound, LoginRefused, StatementFailed
from hermes_state.outbox import Obligation
from hermes_state.owners import Presence
from hermes_state.routing import Home, Route, Source
from hermes_state.store import Store, open_store
from hermes_state.work import login_rows, logins
from hermes_state.work.login_rows import Attempt
from hermes_state.work.login_states import Failure, LoginRefusal, LoginState
from hermes_state.work.sweeping import CachedAgent, GuestModel

from .conftest import Chats

GUEST = GuestModel(provider="nous", model="welcome")
ANN = Source(platform="telegram", chat_type="dm", chat_id="7", user_id="ann")
BOB = Source(platform="telegram", chat_type="dm", chat_id="8", user_id="bob")


def notices(store: Store) -> list[tuple[str, str]]:
    """What is owed to chats: who, and which notice."""
    return [(one.target, one.payload["notice"]) for one in reversed(store.outbox.page(kind="login"))]


def persist(_attempt: Attempt) -> None:
    """The caller's secret file."""


@contextmanager
def another_process(monkeypatch: pytest.MonkeyPatch, store: Store) -> Iterator[Presence]:
    """Who begins an attempt in here is another owner than the process of the test."""
    presence = Presence(store.path.parent, clock=store.core.clock)
    with monkeypatch.context() as patch:
        patch.setattr(logins, "presence_of", lambda _home, *, clock: presence)
        yield presence


def test_a_sign_in_goes_from_its_beginning_to_its_end(store: Store, home: Home) -> None:
    group = store.work.logins
    attempt = group.begin(ANN, home)
    assert (attempt.state, attempt.identity) == (LoginState.STARTED, ("telegram", "7", "ann"))
    assert group.code_shown(attempt.attempt_id, home, expires_at=1_800_000_900.0).state is LoginState.CODE_SHOWN
    assert group.waiting(attempt.attempt_id, home).state is LoginState.WAITING
    assert group.live() is not None
    assert group.is_wanted(attempt.attempt_id)
    assert group.transferred(attempt.attempt_id, home).transferred_at == 1_800_000_000.0
    done = group.finish(attempt.attempt_id, home, persist=persist, guest=GUEST)
    assert (done.attempt.state, done.attempt.kept) == (LoginState.COMPLETED, 0)
    assert notices(store) == [("7", "completed")]
    assert group.live() is None
    assert not group.is_wanted(attempt.attempt_id)


def test_of_two_people_that_race_one_has_an_attempt(store: Store, home: Home) -> None:
    """T6.1."""
    group, barrier, said = store.work.logins, threading.Barrier(2), []

    def begin(source: Source) -> None:
        barrier.wait()
        try:
            said.append(group.begin(source, home).user_id)
        except LoginRefused as refused:
            said.append(str(refused.reason))  # type: ignore[attr-defined]

    threads = [threading.Thread(target=begin, args=(one,)) for one in (ANN, BOB)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "busy" in said
    assert len({"ann", "bob"} & set(said)) == 1
    assert len(group.page()) == 1


def test_another_person_is_refused_and_told_nothing_of_who(store: Store, home: Home) -> None:
    store.work.logins.begin(ANN, home)
    with pytest.raises(LoginRefused) as caught:
        store.work.logins.begin(BOB, home)
    assert str(caught.value) == f"No login is begun in {store.path}: an attempt of somebody else waits."
    assert caught.value.facts["reason"] is LoginRefusal.BUSY


def test_an_attempt_whose_worker_is_silent_keeps_nobody_out_for_longer_than_its_code(store: Store, home: Home) -> None:
    group = store.work.logins
    silent = group.begin(ANN, home)
    group.code_shown(silent.attempt_id, home, expires_at=1_800_000_900.0)
    store.core.clock.advance(960.0)  # type: ignore[attr-defined]
    with pytest.raises(LoginRefused):
        group.begin(BOB, home)
    store.core.clock.advance(1.0)  # type: ignore[attr-defined]
    group.begin(BOB, home)
    assert group.expired(silent.attempt_id, home).state is LoginState.SUPERSEDED


def test_the_same_person_supersedes_and_each_attempt_ends_with_one_notice(store: Store, home: Home) -> None:
    """T6.2."""
    group = store.work.logins
    first = group.begin(ANN, home)
    group.code_shown(first.attempt_id, home, expires_at=1_800_000_900.0)
    second = group.begin(ANN, home)
    assert not group.is_wanted(first.attempt_id)
    assert group.is_wanted(second.attempt_id)
    assert notices(store) == []  # its worker may just have been granted it
    assert group.ended(first.attempt_id, home).state is LoginState.SUPERSEDED
    with pytest.raises(LoginEnded) as caught:
        group.ended(first.attempt_id, home)
    assert str(caught.value) == (
        f"Login attempt {first.attempt_id!r} in {store.path} is superseded: it cannot end."
    )
    assert group.expired(second.attempt_id, home).state is LoginState.EXPIRED
    assert notices(store) == [("7", "superseded"), ("7", "expired")]


def test_a_superseded_attempt_that_the_server_granted_is_completed(store: Store, home: Home) -> None:
    group = store.work.logins
    first = group.begin(ANN, home)
    second = group.begin(ANN, home)
    assert group.transferred(first.attempt_id, home).state is LoginState.TRANSFERRED
    now = group.get(second.attempt_id)
    assert (now.state, now.reason) == (LoginState.FAILED, Failure.SIGNED_IN)
    with pytest.raises(LoginRefused) as caught:
        group.begin(ANN, home)
    assert str(caught.value) == (
        f"No login is begun in {store.path}: attempt {first.attempt_id!r} was granted and is not completed yet."
    )
    group.finish(first.attempt_id, home, persist=persist, guest=GUEST)
    assert notices(store) == [("7", "failed"), ("7", "completed")]


def test_a_shutdown_pushes_nothing(store: Store, home: Home) -> None:
    group = store.work.logins
    attempt = group.begin(ANN, home)
    (cancelled,) = group.shutdown(home)
    assert (cancelled.state, cancelled.quiet) == (LoginState.CANCELLING, True)
    assert not group.is_wanted(attempt.attempt_id)
    assert group.ended(attempt.attempt_id, home).state is LoginState.CANCELLED
    assert notices(store) == []


def test_a_shutdown_after_the_server_granted_it_persists_and_pushes_nothing(store: Store, home: Home) -> None:
    group, kept = store.work.logins, []
    attempt = group.begin(ANN, home)
    group.shutdown(home)
    group.transferred(attempt.attempt_id, home)
    group.finish(attempt.attempt_id, home, persist=lambda one: kept.append(one.attempt_id), guest=GUEST)
    assert kept == [attempt.attempt_id]
    assert group.get(attempt.attempt_id).state is LoginState.COMPLETED
    assert notices(store) == []


def test_a_shutdown_cancels_only_the_attempts_of_its_process(
    store: Store, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    with another_process(monkeypatch, store):
        theirs = store.work.logins.begin(ANN, home)
    assert store.work.logins.shutdown(home) == []
    assert store.work.logins.is_wanted(theirs.attempt_id)


def test_a_transfer_is_never_undone(store: Store, home: Home) -> None:
    group = store.work.logins
    attempt = group.begin(ANN, home)
    group.transferred(attempt.attempt_id, home)
    for end in (group.ended, group.expired, group.waiting):
        with pytest.raises(LoginEnded):
            end(attempt.attempt_id, home)
    with pytest.raises(LoginEnded):
        group.failed(attempt.attempt_id, home, Failure.NETWORK)
    assert group.shutdown(home) == []
    for change in ("state = 'failed', reason = 'other', ended_at = 1", "transferred_at = 5", "state = 'waiting'"):
        with pytest.raises(StatementFailed):
            store.core.write(lambda tx, change=change: tx.execute(f"UPDATE login_attempts SET {change}"))  # type: ignore[misc]
    assert group.get(attempt.attempt_id).state is LoginState.TRANSFERRED


def test_the_next_boot_completes_what_was_transferred(
    store: Store, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T6.3: killed after the transfer was written here, before the account was."""
    group = store.work.logins
    with another_process(monkeypatch, store) as presence:
        attempt = group.begin(ANN, home)
        group.transferred(attempt.attempt_id, home)
    assert group.recover(home, never_asked) == []  # its process lives
    presence.end()
    (found,) = group.recover(home, never_asked)
    assert found.attempt_id == attempt.attempt_id
    group.finish(found.attempt_id, home, persist=persist, guest=GUEST)
    assert group.recover(home, never_asked) == []
    assert notices(store) == [("7", "completed")]


def test_what_could_not_be_persisted_is_given_to_finish_again_by_the_same_process(store: Store, home: Home) -> None:
    group, kept = store.work.logins, []
    attempt = group.begin(ANN, home)
    group.transferred(attempt.attempt_id, home)

    def full(_attempt: Attempt) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        group.finish(attempt.attempt_id, home, persist=full, guest=GUEST)
    with pytest.raises(LoginRefused) as caught:
        group.begin(BOB, home)
    assert caught.value.hint == "Complete it with finish(); store.work.logins.recover() gives it again, at any time."
    (found,) = group.recover(home, never_asked)
    group.finish(found.attempt_id, home, persist=lambda one: kept.append(one.attempt_id), guest=GUEST)
    assert kept == [attempt.attempt_id]
    assert group.begin(BOB, home).state is LoginState.STARTED


def test_what_would_have_to_be_awaited_persists_evicts_and_grants_nothing(
    store: Store, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = store.work.logins

    async def coroutine(*_given: object) -> bool:
        raise AssertionError

    class Called:
        async def __call__(self, *_given: object) -> bool:
            raise AssertionError

    with another_process(monkeypatch, store) as presence:
        asked = group.begin(ANN, home)
    presence.end()
    for ask in (coroutine, Called(), functools.partial(coroutine), lambda one: coroutine(one), lambda _one: "yes"):
        with pytest.raises(InvalidInput):
            group.recover(home, ask)  # type: ignore[arg-type]
    assert group.get(asked.attempt_id).state is LoginState.STARTED
    attempt = group.begin(ANN, home)
    group.transferred(attempt.attempt_id, home)
    for wrong in (coroutine, Called(), lambda one: coroutine(one)):
        with pytest.raises(InvalidInput):
            group.finish(attempt.attempt_id, home, persist=wrong, guest=GUEST)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput) as caught:
        group.finish(attempt.attempt_id, home, persist=persist, guest=GUEST, evict=coroutine)  # type: ignore[arg-type]
    assert str(caught.value) == "evict is a plain function, not a coroutine function."
    assert group.get(attempt.attempt_id).state is LoginState.TRANSFERRED
    agent = CachedAgent(session_key="chat", provider=GUEST.provider, model=GUEST.model)
    done = group.finish(
        attempt.attempt_id, home, persist=persist, guest=GUEST, cached=[agent], evict=lambda key: coroutine(key)  # type: ignore[arg-type,return-value]
    )
    assert done.swept.evicted == ()
    assert str(done.swept.not_evicted["chat"]) == (
        "evict gave something to be awaited (coroutine), and nothing of it was run."
    )


def never_asked(attempt: Attempt) -> bool:
    raise AssertionError(attempt)


@pytest.mark.parametrize(
    ("said", "state", "notice"),
    [(True, LoginState.TRANSFERRED, []), (False, LoginState.FAILED, [("7", "failed")]), (None, LoginState.WAITING, [])],
)
def test_the_next_boot_asks_the_server_what_became_of_an_attempt(
    store: Store, home: Home, monkeypatch: pytest.MonkeyPatch, said: bool | None, state: LoginState,
    notice: list[tuple[str, str]],
) -> None:
    """T6.3: killed after the server granted it, before that was written here."""
    group = store.work.logins
    with another_process(monkeypatch, store) as presence:
        attempt = group.begin(ANN, home)
        group.code_shown(attempt.attempt_id, home, expires_at=1_800_000_900.0)
        group.waiting(attempt.attempt_id, home)
    presence.end()
    granted = group.recover(home, lambda _attempt: said)
    assert [one.attempt_id for one in granted] == ([attempt.attempt_id] if said else [])
    assert group.get(attempt.attempt_id).state is state
    assert notices(store) == notice
    if said is None:  # it can be asked later, and keeps nobody from signing in
        other = group.begin(BOB, home)
        assert group.get(attempt.attempt_id).state is LoginState.SUPERSEDING
        group.recover(home, lambda _attempt: False)
        assert group.get(attempt.attempt_id).state is LoginState.SUPERSEDED
        assert group.is_wanted(other.attempt_id)


def test_an_attempt_whose_code_ran_out_with_its_process_is_expired(
    store: Store, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    with another_process(monkeypatch, store) as presence:
        attempt = store.work.logins.begin(ANN, home)
        store.work.logins.code_shown(attempt.attempt_id, home, expires_at=1_800_000_000.0)
    presence.end()
    store.work.logins.recover(home, lambda _attempt: False)
    assert store.work.logins.get(attempt.attempt_id).state is LoginState.EXPIRED


def test_a_process_has_one_attempt_in_all_its_homes(tmp_path: Path, store: Store, home: Home) -> None:
    attempt = store.work.logins.begin(ANN, home)
    with open_store(tmp_path / "other", clock=store.core.clock) as other:
        there = other.routing.home
        with pytest.raises(LoginRefused) as caught:
            other.work.logins.begin(ANN, there)
        assert caught.value.facts["reason"] is LoginRefusal.BUSY_ELSEWHERE
        store.work.logins.ended(attempt.attempt_id, home)
        other.work.logins.begin(ANN, there)


def test_an_attempt_of_a_store_that_was_closed_here_blocks_no_other(tmp_path: Path, fake_clock: FakeClock) -> None:
    with open_store(tmp_path / "one", clock=fake_clock) as one:
        group = one.work.logins
        group.begin(ANN, one.routing.home)
    with open_store(tmp_path / "two", clock=fake_clock) as two:
        assert two.work.logins.begin(ANN, two.routing.home).state is LoginState.STARTED
    assert group is not None


def test_a_link_is_not_published(store: Store, home: Home) -> None:
    with pytest.raises(LoginRefused) as caught:
        store.work.logins.begin(Source(platform="ntfy", chat_type="dm", chat_id="topic"), home)
    assert str(caught.value) == (
        f"No login is begun in {store.path}: it is no direct conversation of two people."
    )
    with pytest.raises(LoginRefused) as caught:
        store.work.logins.begin(ANN, home, admins=["bob"])
    assert str(caught.value) == (
        f"No login is begun in {store.path}: the person is not one of its administrators."
    )
    assert store.work.logins.page() == []


def test_why_it_failed_is_a_word_and_never_repeated_when_it_is_none(store: Store, home: Home) -> None:
    attempt = store.work.logins.begin(ANN, home)
    with pytest.raises(InvalidInput) as caught:
        store.work.logins.failed(attempt.attempt_id, home, "code WXYZ-1234 was declined")  # type: ignore[arg-type]
    assert str(caught.value) == "Why a login failed is one of the words of Failure."
    assert "WXYZ" not in repr(caught.value.facts)
    assert store.work.logins.failed(attempt.attempt_id, home, Failure.DECLINED).reason is Failure.DECLINED
    (notice,) = store.outbox.page(kind="login")
    assert notice.payload == {
        "attempt_id": attempt.attempt_id, "notice": "failed", "user_id": "ann", "reason": "declined", "kept": None,
    }


def test_what_persist_raises_leaves_it_transferred(store: Store, home: Home) -> None:
    group = store.work.logins
    attempt = group.begin(ANN, home)
    group.transferred(attempt.attempt_id, home)

    def full(_attempt: Attempt) -> None:
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        group.finish(attempt.attempt_id, home, persist=full, guest=GUEST)
    assert group.get(attempt.attempt_id).state is LoginState.TRANSFERRED
    group.finish(attempt.attempt_id, home, persist=persist, guest=GUEST)
    with pytest.raises(LoginEnded):
        group.finish(attempt.attempt_id, home, persist=full, guest=GUEST)
    with pytest.raises(LoginNotFound) as caught:
        group.get("x")
    assert str(caught.value) == f"There is no login attempt 'x' in {store.path}."


def test_attempts_are_forgotten_when_they_ended_long_ago(store: Store, home: Home) -> None:
    group = store.work.logins
    group.ended(group.begin(ANN, home).attempt_id, home)
    left = group.begin(ANN, home)
    store.core.clock.advance(31 * 86_400.0)  # type: ignore[attr-defined]
    assert group.forget() == 1
    assert [one.attempt_id for one in group.page()] == [left.attempt_id]


def test_a_removed_home_begins_no_login(store: Store, home: Home) -> None:
    store.routing.remove_home(home, actor="test", reason="test")
    with pytest.raises(HomeRemoved):
        store.work.logins.begin(ANN, home)


def test_no_column_could_have_a_code(store: Store) -> None:
    """T6.4: what the rows have, by name; the bytes are looked at in tests/processes/test_streams_killed.py."""
    with store.core.reader() as reader:
        columns = {row[1] for row in reader.rows("PRAGMA table_info(login_attempts)")}
    assert columns == set(login_rows.COLUMNS.split(", "))
    assert not [name for name in columns for word in ("code", "link", "url", "token") if word in name]


# --- the model of guests (T6.5) ----------------------------------------------------------------------------------


def guests(store: Store, home: Home, chats: Chats, *chat_ids: str) -> list[Route]:
    return [
        store.routing.choose_model(chats.bound(one), home, {"provider": "nous", "model": "welcome"})
        for one in chat_ids
    ]


def granted(store: Store, home: Home) -> str:
    attempt = store.work.logins.begin(ANN, home)
    return store.work.logins.transferred(attempt.attempt_id, home).attempt_id


def test_the_override_is_cleared_before_the_agent_is_evicted(store: Store, home: Home, chats: Chats) -> None:
    """T6.5: of chats with a cached agent and of those without; others keep theirs."""
    cached_one, other = guests(store, home, chats, "1", "2")
    chosen = store.routing.choose_model(chats.bound("3"), home, {"provider": "nous", "model": "hermes"})
    plain = chats.bound("4")
    seen: list[tuple[str, object]] = []

    def evict(key: str) -> None:
        route = store.routing.get(key)
        assert route is not None
        seen.append((key, route.model_override))

    done = store.work.logins.finish(
        granted(store, home), home, persist=persist, guest=GUEST, evict=evict,
        cached=[
            CachedAgent(session_key=cached_one.session_key, provider="nous", model="welcome"),
            CachedAgent(session_key=plain.session_key, provider="nous", model="welcome"),
            CachedAgent(session_key=chosen.session_key, provider="nous", model="hermes"),
        ],
    )
    assert seen == [(cached_one.session_key, None), (plain.session_key, None)]
    assert done.swept.cleared == (cached_one.session_key, other.session_key)
    assert done.attempt.kept == 0
    now = store.routing.get(chosen.session_key)
    assert now is not None
    assert now.model_override == {"provider": "nous", "model": "hermes"}


def test_an_override_that_cannot_be_cleared_twice_keeps_its_agent_and_is_counted(
    store: Store, home: Home, chats: Chats, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T6.5: both sides stay as they were."""
    stuck, moved, fine = guests(store, home, chats, "1", "2", "3")
    from hermes_state.routing.routing import Routing

    plain, tried = Routing.choose_model, []

    def rivalled(self: Routing, route: Route, at_home: Home, override: dict[str, str] | None) -> Route:
        tried.append(route.session_key)
        if route.session_key == stuck.session_key or tried == [stuck.session_key] * 2 + [moved.session_key]:
            address = {"base_url": f"http://host{len(tried)}"}  # somebody changes the row meanwhile
            plain(self, route, at_home, {"provider": "nous", "model": "welcome", **address})
        return plain(self, route, at_home, override)

    monkeypatch.setattr(Routing, "choose_model", rivalled)
    evicted: list[str] = []
    done = store.work.logins.finish(
        granted(store, home), home, persist=persist, guest=GUEST, evict=evicted.append,
        cached=[
            CachedAgent(session_key=one.session_key, provider="nous", model="welcome") for one in (stuck, moved, fine)
        ],
    )
    assert [tried.count(one.session_key) for one in (stuck, moved, fine)] == [2, 2, 1]
    assert evicted == [moved.session_key, fine.session_key]
    assert list(done.swept.kept) == [stuck.session_key]
    assert done.swept.kept[stuck.session_key].code == "route_moved"
    assert (done.attempt.state, done.attempt.kept) == (LoginState.COMPLETED, 1)
    (notice,) = store.outbox.page(kind="login")
    assert isinstance(notice, Obligation)
    assert notice.payload["kept"] == 1
    now = store.routing.get(stuck.session_key)
    assert now is not None
    assert now.model_override is not None
    assert now.model_override["model"] == "welcome"


def test_an_agent_that_cannot_be_evicted_keeps_no_other(store: Store, home: Home, chats: Chats) -> None:
    one, two = guests(store, home, chats, "1", "2")
    evicted: list[str] = []

    def evict(key: str) -> None:
        if key == one.session_key:
            raise RuntimeError("it is running")
        evicted.append(key)

    done = store.work.logins.finish(
        granted(store, home), home, persist=persist, guest=GUEST, evict=evict,
        cached=[CachedAgent(session_key=each.session_key, provider="nous", model="welcome") for each in (one, two)],
    )
    assert evicted == [two.session_key]
    assert {key: str(error) for key, error in done.swept.not_evicted.items()} == {one.session_key: "it is running"}
    assert done.attempt.state is LoginState.COMPLETED
