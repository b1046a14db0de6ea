"""One credential, one holder, named on refusal. T4.7 and R89 under their numbers; races in tests/processes."""

from __future__ import annotations

import re

import pytest

from hermes_state.clock import FakeClock
from hermes_state.errors import InvalidInput, LeaseHeld, LeaseLost
from hermes_state.leases import TokenLocks
from hermes_state.owners import Presence
from hermes_state.store import Store, open_store
from tests.hermes_state.routing.conftest import Host

TOKEN = "123456:AAF-secret-of-a-bot"


@pytest.fixture(name="locks")
def store_locks(store: Store) -> TokenLocks:
    return TokenLocks(store.core)


def test_t4_7_a_second_profile_with_the_same_token_is_refused_and_told_who_has_it(
    store: Store, locks: TokenLocks
) -> None:
    """Also when both profiles are of one process, as under one multiplexer."""
    held = locks.acquire("telegram", TOKEN, profile="work", home="/h/profiles/work")
    with pytest.raises(LeaseHeld) as caught:
        locks.acquire("telegram", TOKEN, profile="side", home="/h/profiles/side")
    assert caught.value.message == (
        f"Lease {held.name!r} in {store.path} is held by {held.owner} (home /h/profiles/work, kind gateway, profile"
        " work), not proven dead (it is this process); it runs out in 300.0 s unless it is renewed."
    )
    assert caught.value.note == {  # type: ignore[attr-defined]
        "profile": "work", "home": "/h/profiles/work", "kind": "gateway"
    }
    held.release()
    assert locks.acquire("telegram", TOKEN, profile="side").fence == 2


def test_other_tokens_and_other_scopes_are_other_locks(locks: TokenLocks) -> None:
    for scope, token in (("telegram", TOKEN), ("telegram", "other"), ("discord", TOKEN)):
        locks.acquire(scope, token, profile="work")
    assert len(locks.all()) == 3


@pytest.mark.parametrize(
    ("scope", "token"),
    [("telegram", f"{TOKEN}\n"), ("telegram", f" {TOKEN}"), ("Telegram", TOKEN), ("telegram ", TOKEN)],
)
def test_what_is_added_to_a_token_without_meaning_it_makes_no_other_lock(
    locks: TokenLocks, scope: str, token: str
) -> None:
    """A token that was read from a file with the end of its line, a platform that was written with a capital."""
    held = locks.acquire("telegram", TOKEN, profile="work")
    with pytest.raises(LeaseHeld):
        locks.acquire(scope, token, profile="side")
    assert locks.name(scope, token) == held.name


def test_r89_the_holder_that_died_is_replaced_at_once_and_its_lock_writes_nothing_more(
    store: Store, locks: TokenLocks
) -> None:
    presence = Presence(store.path.parent, clock=store.core.clock)
    dead = TokenLocks(store.core, presence=presence).acquire("telegram", TOKEN, profile="work")
    with pytest.raises(LeaseHeld):
        locks.acquire("telegram", TOKEN, profile="side")
    presence.end()
    ours = locks.acquire("telegram", TOKEN, profile="side")
    assert ours.fence == dead.fence + 1
    with pytest.raises(LeaseLost):
        dead.renew()
    assert not dead.release()
    view = locks.look("telegram", TOKEN)
    assert view is not None
    assert (view.is_free, dict(view.note)) == (False, {"profile": "side", "kind": "gateway"})


def test_a_holder_that_does_not_renew_loses_it_after_its_term(
    store: Store, locks: TokenLocks, fake_clock: FakeClock
) -> None:
    presence = Presence(store.path.parent, clock=store.core.clock)
    hung = TokenLocks(store.core, presence=presence).acquire("telegram", TOKEN, profile="work", term_seconds=60)
    fake_clock.advance(59)
    with pytest.raises(LeaseHeld):
        locks.acquire("telegram", TOKEN, profile="side")
    fake_clock.advance(1)
    locks.acquire("telegram", TOKEN, profile="side")
    with pytest.raises(LeaseLost):
        hung.renew()


def test_the_token_is_in_no_row_no_message_and_no_other_store(host: Host, locks: TokenLocks, store: Store) -> None:
    held = locks.acquire("telegram", TOKEN, profile="work")
    assert re.fullmatch(r"token:telegram:[0-9a-f]{32}", held.name)
    other = TokenLocks(host.stores["work"].core).acquire("telegram", TOKEN, profile="work")
    assert other.name != held.name  # keyed: one list of digests fits one store
    with store.core.reader() as reader:
        assert TOKEN not in repr(reader.rows("SELECT * FROM leases"))
    with pytest.raises(LeaseHeld) as caught:
        locks.acquire("telegram", TOKEN, profile="side")
    assert TOKEN not in str(caught.value) + caught.value.hint + repr(caught.value.facts)
    for scope, token in (("telegram", ""), ("telegram", "a\0b"), ("", TOKEN), ("a:b", TOKEN), ("telegram", 7)):
        with pytest.raises(InvalidInput) as refused:
            locks.acquire(scope, token, profile="work")  # type: ignore[arg-type]
        assert TOKEN not in str(refused.value)


def test_a_lone_surrogate_and_long_tokens_are_credentials_too(locks: TokenLocks) -> None:
    for token in ("\udc80", "x" * 100_000):
        locks.acquire("telegram", token, profile="work")


def test_every_lock_is_seen_and_none_says_whose_credential_it_is(
    store: Store, locks: TokenLocks, fake_clock: FakeClock
) -> None:
    store.leases.acquire("tick", term_seconds=60)
    first = locks.acquire("discord", TOKEN, profile="work")
    second = locks.acquire("telegram", TOKEN, profile="side")
    second.release()
    with open_store(path=store.path, read_only=True, clock=fake_clock) as reader:
        seen = TokenLocks(reader.core).all()
    assert [(one.name, one.is_free, dict(one.note)) for one in seen] == [
        (first.name, False, {"profile": "work", "kind": "gateway"}), (second.name, True, {})
    ]


def test_a_note_does_not_hide_the_owner_from_those_who_judge_it(store: Store, locks: TokenLocks) -> None:
    held = locks.acquire("telegram", TOKEN, profile="work")
    view = store.leases.look(held.name)
    assert view is not None and view.owner == held.owner
    held.renew()
    with store.core.reader() as reader:
        held.guard(reader)  # type: ignore[arg-type]
