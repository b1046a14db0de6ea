"""Pairing by code. R99 under its number: the numbers are hermes-agent's, the counts are in the rows."""

from __future__ import annotations

import pytest

from hermes_state.clock import FakeClock
from hermes_state.errors import InvalidInput, PairingRefused
from hermes_state.routing import Home
from hermes_state.routing.pairing import (
    ALPHABET,
    CODE_CHARACTERS,
    CODE_SECONDS,
    LOCKED_SECONDS,
    MOST_PENDING,
    REQUEST_SECONDS,
    Pairing,
)
from hermes_state.store import Store
from tests.hermes_state.routing.conftest import Host

WRONG = "AAAAAAAA"


@pytest.fixture(name="pairing")
def store_pairing(store: Store) -> Pairing:
    return store.routing.pairing


def test_a_code_lets_in_who_was_shown_it_once(pairing: Pairing, home: Home, fake_clock: FakeClock) -> None:
    code = pairing.request("telegram", "7", home, user_name="Ann")
    assert len(code) == CODE_CHARACTERS
    assert set(code) <= set(ALPHABET)
    assert not pairing.is_paired("telegram", "7")
    found = pairing.approve("telegram", f" {code.lower()} ", home, by="me")
    assert found is not None
    assert (found.user_id, found.user_name, found.approved_by) == ("7", "Ann", "me")
    assert pairing.is_paired("telegram", "7")
    assert not pairing.is_paired("discord", "7")
    assert pairing.paired() == [found]
    assert pairing.pending() == []
    assert pairing.approve("telegram", code, home, by="me") is None
    assert pairing.revoke("telegram", "7", home)
    assert not pairing.revoke("telegram", "7", home)
    assert not pairing.is_paired("telegram", "7")


def test_a_code_is_of_its_platform_and_lasts_an_hour(pairing: Pairing, home: Home, fake_clock: FakeClock) -> None:
    code = pairing.request("telegram", "7", home)
    assert pairing.approve("discord", code, home, by="me") is None
    fake_clock.advance(CODE_SECONDS - 1)
    assert len(pairing.pending()) == 1
    fake_clock.advance(1)
    assert pairing.pending() == []
    assert pairing.approve("telegram", code, home, by="me") is None


def test_r99_guessing_stops_at_five_and_not_even_the_right_code_is_looked_at(
    store: Store, pairing: Pairing, home: Home, fake_clock: FakeClock
) -> None:
    code = pairing.request("telegram", "7", home)
    # Each try comes from another process's object: the count is in the store.
    tries = 0
    with pytest.raises(PairingRefused) as caught:
        while True:
            Pairing(store.core).approve("telegram", WRONG, home, by="guesser")
            tries += 1
    assert tries == 5
    assert caught.value.message == (
        f"No pairing on telegram in {store.path} before 2027-01-15T09:00:00Z: 5 wrong codes were tried."
    )
    with pytest.raises(PairingRefused):
        pairing.approve("telegram", code, home, by="me")
    with pytest.raises(PairingRefused):
        pairing.request("telegram", "8", home)
    pairing.request("discord", "8", home)  # another platform is not locked
    fake_clock.advance(LOCKED_SECONDS)
    assert pairing.approve("telegram", code, home, by="me") is None  # the code is too old by now
    fresh = pairing.request("telegram", "7", home)
    assert pairing.approve("telegram", fresh, home, by="me") is not None


def test_failures_of_more_than_an_hour_ago_do_not_count(pairing: Pairing, home: Home, fake_clock: FakeClock) -> None:
    for _ in range(4):
        pairing.approve("telegram", WRONG, home, by="me")
    fake_clock.advance(LOCKED_SECONDS)
    for _ in range(5):
        assert pairing.approve("telegram", WRONG, home, by="me") is None
    with pytest.raises(PairingRefused):
        pairing.approve("telegram", WRONG, home, by="me")


def test_a_clock_that_is_set_back_leaves_at_most_an_hour_to_wait(
    pairing: Pairing, home: Home, fake_clock: FakeClock
) -> None:
    for _ in range(5):
        pairing.approve("telegram", WRONG, home, by="me")
    fake_clock.step_wall(-86_400)
    with pytest.raises(PairingRefused) as caught:
        pairing.approve("telegram", WRONG, home, by="me")
    assert caught.value.retry_at == fake_clock.now() + LOCKED_SECONDS  # type: ignore[attr-defined]
    fake_clock.advance(LOCKED_SECONDS)
    assert pairing.approve("telegram", WRONG, home, by="me") is None


def test_one_person_asks_every_ten_minutes_and_the_newest_code_counts(
    pairing: Pairing, home: Home, fake_clock: FakeClock
) -> None:
    old = pairing.request("telegram", "7", home)
    fake_clock.advance(REQUEST_SECONDS - 1)
    with pytest.raises(PairingRefused) as caught:
        pairing.request("telegram", "7", home)
    assert caught.value.reason == "that person asked a moment ago"  # type: ignore[attr-defined]
    fake_clock.advance(1)
    new = pairing.request("telegram", "7", home)
    assert len(pairing.pending()) == 1
    assert pairing.approve("telegram", old, home, by="me") is None
    assert pairing.approve("telegram", new, home, by="me") is not None


def test_three_people_wait_on_a_platform_at_most(pairing: Pairing, home: Home, fake_clock: FakeClock) -> None:
    for user in range(MOST_PENDING):
        pairing.request("telegram", str(user), home)
    with pytest.raises(PairingRefused) as caught:
        pairing.request("telegram", "9", home)
    assert caught.value.reason == "3 people wait there already"  # type: ignore[attr-defined]
    pairing.request("discord", "9", home)
    fake_clock.advance(CODE_SECONDS)
    pairing.request("telegram", "9", home)


def test_r99_a_profile_lists_its_own_with_and_without_a_platform(host: Host) -> None:
    work = host.stores["work"].routing.pairing
    work.request("telegram", "7", host.home("work"))
    assert [one.user_id for one in work.pending()] == ["7"]
    assert [one.user_id for one in work.pending("telegram")] == ["7"]
    assert work.pending("discord") == []
    assert host.stores["default"].routing.pairing.pending() == []


def test_a_code_is_in_no_row(store: Store, pairing: Pairing, home: Home) -> None:
    code = pairing.request("telegram", "7", home)
    with store.core.reader() as reader:
        stored = reader.rows("SELECT * FROM pairing_requests") + reader.rows("SELECT * FROM changes")
    assert code not in repr(stored)
    assert code.encode() not in b"".join(value for row in stored for value in row if isinstance(value, bytes))


def test_arguments_that_are_none_are_refused(pairing: Pairing, home: Home) -> None:
    for wrong in (lambda: pairing.request("", "7", home), lambda: pairing.approve("telegram", "x", home, by="")):
        with pytest.raises(InvalidInput):
            wrong()


def test_no_hour_has_more_than_five_wrong_codes(store: Store, home: Home, fake_clock: FakeClock) -> None:
    """Not around the end of the first hour either: four before it, and the fifth just after it."""
    for wait in (0, 3_590, 1, 1, 10):
        fake_clock.advance(wait)
        assert store.routing.pairing.approve("telegram", "WRONG", home, by="guesser") is None
    with pytest.raises(PairingRefused):
        store.routing.pairing.approve("telegram", "WRONG", home, by="guesser")


def test_a_code_does_not_work_again_when_the_clock_is_set_back(
    store: Store, home: Home, fake_clock: FakeClock
) -> None:
    code = store.routing.pairing.request("telegram", "7", home)
    fake_clock.step_wall(-30 * 86_400)
    assert store.routing.pairing.pending() == []
    assert store.routing.pairing.approve("telegram", code, home, by="late") is None


def test_a_code_is_in_no_error(store: Store, home: Home) -> None:
    code = store.routing.pairing.request("telegram", "7", home)
    for wrong in (f"{code}\0", f"{code}\ud800"):
        assert store.routing.pairing.approve("telegram", wrong, home, by="typo") is None
    with pytest.raises(InvalidInput) as caught:
        store.routing.pairing.approve("telegram", code.encode(), home, by="typo")  # type: ignore[arg-type]
    assert caught.value.message == "code is a text."
