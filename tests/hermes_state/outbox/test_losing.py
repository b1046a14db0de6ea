"""A dead sender is found, whoever else has how many claims."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hermes_state.clock import FakeClock
from hermes_state.outbox import Accepted, Outbox, Recorded, State, append, losing
from hermes_state.store import Store
from tests.hermes_state.outbox.conftest import Sender

Owe = Callable[..., Recorded]


def owe_many(store: Store, count: int, transport: str) -> None:
    store.core.write(
        lambda tx: [
            append(
                tx, dedupe_id=f"{transport} {number}", kind="final", transport=transport, payload=1,
                policy="at_least_once", at=store.core.clock.now(),
            )
            for number in range(count)
        ]
    )


def test_a_dead_sender_is_found_behind_any_number_of_claims_of_a_living_one(
    store: Store, box: Outbox, owe: Owe, sender: Callable[[], Sender], fake_clock: FakeClock
) -> None:
    owe_many(store, 250, "busy")
    living, *dying = sorted((sender() for _ in range(3)), key=lambda one: one.presence.identity.to_json())
    for number, one in enumerate(dying):
        owe(f"lost {number}")
        assert len(one.box.claim(["telegram"])) == 1
    assert len(living.box.claim(["busy"], limit=1000)) == 250
    assert box.claim(["telegram"]) == []
    for one in dying:
        one.die()
    fake_clock.advance(losing.ALIVE_SECONDS)
    found = box.claim(["telegram"], limit=5)
    assert sorted(one.primary.dedupe_id for one in found) == ["lost 0", "lost 1"]
    assert box.counts().by_state["claimed"] == 252


def test_what_ran_out_is_found_beside_any_number_of_claims_that_did_not(
    store: Store, box: Outbox, owe: Owe, sender: Callable[[], Sender], fake_clock: FakeClock
) -> None:
    owe_many(store, 250, "busy")
    living = sender()
    assert len(living.box.claim(["busy"], limit=1000, term_seconds=600)) == 250
    owe("short")
    living.box.claim(["telegram"], term_seconds=5)
    fake_clock.advance(6)
    (claim,) = box.claim(["telegram"])
    assert claim.primary.recovered


def test_every_owner_has_its_turn_when_there_are_more_than_one_call_looks_at(
    box: Outbox, owe: Owe, sender: Callable[[], Sender], fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(losing, "MOST_OWNERS", 2)
    senders = [sender() for _ in range(7)]
    for number, one in enumerate(senders):
        owe(f"row {number}")
        one.box.claim(["telegram"])
    for dead in senders[::3]:
        dead.die()
    found: list[str] = []
    for _ in range(4):  # 7 owners, 2 a call; each call so late that all looks are forgotten
        fake_clock.advance(losing.ALIVE_SECONDS + 1)
        found += [claim.primary.dedupe_id for claim in box.claim(["telegram"], limit=10)]
    assert sorted(found) == ["row 0", "row 3", "row 6"]


def test_lost_claims_beyond_the_bound_of_a_call_are_for_the_next_one(
    store: Store, box: Outbox, sender: Callable[[], Sender], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(losing, "MOST_LOST", 10)
    owe_many(store, 25, "telegram")
    dying = sender()
    dying.box.claim(["telegram"], limit=25)
    dying.die()
    back = []
    for _ in range(3):
        box.claim(["nothing"])
        back.append(box.counts().by_state["pending"])
    assert back == [10, 20, 25]


def test_silent_senders_of_another_clock_are_found_behind_a_living_one(
    store: Store, box: Outbox, owe: Owe, sender: Callable[[], Sender], fake_clock: FakeClock
) -> None:
    """Under another boot id there is a sender that renews 250 claims, and one that is silent about its only one."""
    owe_many(store, 250, "busy")
    living, silent = sorted((sender(), sender()), key=lambda one: one.presence.identity.to_json())
    living.box.claim(["busy"], limit=1000, term_seconds=30)
    owe("silent")
    silent.box.claim(["telegram"], term_seconds=30)
    store.core.write(lambda tx: tx.execute("UPDATE outbox SET boot_id = 'another boot'"))
    found = []
    for _ in range(12):
        found += box.claim(["telegram"], term_seconds=600)
        fake_clock.advance(10)
        store.core.write(
            lambda tx: tx.execute(
                "UPDATE outbox SET renewals = renewals + 1, expires_boottime = expires_boottime + 10"
                " WHERE transport = 'busy'"
            )
        )
    (claim,) = found
    assert (claim.primary.dedupe_id, claim.primary.recovered) == ("silent", True)
    assert box.counts().by_state["claimed"] == 251
    box.settle(claim, Accepted())
    assert box.get("silent").state is State.ACCEPTED
