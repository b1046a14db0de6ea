"""What people decide: send it now, owe it again, take it back; and how they look at it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from hermes_state.clock import FakeClock
from hermes_state.errors import IdempotencyConflict, InvalidInput, NotFound, Refused
from hermes_state.outbox import Accepted, Failed, Outbox, Recorded, State
from hermes_state.outbox.upkeep import BLANK_AFTER_SECONDS
from tests.hermes_state.outbox.conftest import told

Owe = Callable[..., Recorded]


def accept(box: Outbox) -> None:
    for claim in box.claim(["telegram"], limit=100):
        box.settle(claim, Accepted())


def test_a_retry_of_a_settled_row_is_a_new_obligation_that_names_it(
    box: Outbox, owe: Owe, fake_clock: FakeClock
) -> None:
    owe("one", lane="a", target="chat 7")
    (claim,) = box.claim(["telegram"])
    box.settle(claim, Failed(why="token revoked", for_good=True))
    again = box.retry("one")
    assert (again.dedupe_id, again.retry_of, again.state) == ("one#retry-1", box.get("one").id, State.PENDING)
    assert (again.payload, again.target, again.lane) == ({"text": "one"}, "chat 7", "a")
    assert box.get("one").state is State.FAILED
    (claim,) = box.claim(["telegram"])
    box.settle(claim, Accepted())
    fake_clock.advance(BLANK_AFTER_SECONDS)
    box.upkeep()
    with pytest.raises(Refused) as caught:
        box.retry("one")
    assert told(caught.value) == (
        f"The payload of obligation 'one' in {box._core.path} was blanked after it was settled. Record it anew from its"
        " source."
    )


def test_a_retry_makes_a_pending_row_due_and_leaves_a_claimed_one_alone(
    box: Outbox, owe: Owe, fake_clock: FakeClock
) -> None:
    owe("one", due_at=fake_clock.now() + 1000)
    assert box.retry("one").due_at == fake_clock.now()
    (claim,) = box.claim(["telegram"])
    with pytest.raises(Refused) as caught:
        box.retry("one")
    assert told(caught.value) == f"Obligation 'one' in {box._core.path} is being sent. Wait for its verdict."
    with pytest.raises(Refused):
        box.drop("one", reason="no")
    box.settle(claim, Accepted())
    with pytest.raises(Refused) as caught:
        box.drop("one", reason="no")
    assert told(caught.value) == (
        f"Obligation 'one' in {box._core.path} is accepted: only a pending one can be taken back. What is claimed is"
        " being sent; what is settled stays as it is."
    )


def test_a_person_drops_what_is_pending_with_a_reason(box: Outbox, owe: Owe) -> None:
    owe("one")
    dropped = box.drop("one", reason="the chat is closed")
    assert dropped.state is State.DROPPED
    assert dropped.verdict is not None
    assert (dropped.verdict["verdict"], dropped.verdict["why"]) == ("drop", "the chat is closed")
    assert box.claim(["telegram"]) == []
    with pytest.raises(NotFound) as caught:
        box.drop("two", reason="no")
    assert told(caught.value) == (
        f"There is no obligation 'two' in {box._core.path}. `hermes outbox list` shows them."
    )


def test_a_retry_keeps_everything_but_its_id_and_its_time(box: Outbox, owe: Owe, fake_clock: FakeClock) -> None:
    one = owe("one", "at_most_once", batch="run", lane="a", priority=3, target="chat 7").obligation
    accept(box)
    fake_clock.advance(50.0)
    again = box.retry("one")
    kept = ("kind", "transport", "target", "lane", "batch", "priority", "policy", "payload", "schedule")
    assert [getattr(again, name) for name in kept] == [getattr(one, name) for name in kept]
    assert (again.made_at, again.due_at) == (fake_clock.now(), fake_clock.now())


def test_a_retry_under_the_old_id_is_refused(box: Outbox, owe: Owe) -> None:
    owe("one")
    accept(box)
    with pytest.raises(InvalidInput) as caught:
        box.retry("one", dedupe_id="one")
    assert told(caught.value) == (
        f"Obligation 'one' in {box._core.path} is accepted; owed again it needs another id. Give another dedupe_id, or"
        " none: one is made then."
    )


def test_a_payload_that_is_null_is_not_a_blanked_one(box: Outbox, owe: Owe, fake_clock: FakeClock) -> None:
    owe("null", payload=None)
    accept(box)
    assert (box.get("null").payload, box.get("null").blanked) == (None, False)
    assert box.retry("null").payload is None
    accept(box)
    fake_clock.advance(BLANK_AFTER_SECONDS)
    box.upkeep()
    assert (box.get("null").payload, box.get("null").blanked) == (None, True)
    with pytest.raises(Refused):
        box.retry("null")


def test_retrying_twice_makes_one_until_it_is_settled_and_then_the_next(box: Outbox, owe: Owe) -> None:
    owe("one")
    accept(box)
    first = box.retry("one")
    assert box.retry("one") == first
    (claim,) = box.claim(["telegram"])
    with pytest.raises(Refused) as caught:
        box.retry("one")
    assert told(caught.value) == f"Obligation 'one#retry-1' in {box._core.path} is being sent. Wait for its verdict."
    box.settle(claim, Accepted())
    assert box.retry("one").dedupe_id == "one#retry-2"
    accept(box)
    assert box.retry("one#retry-2").dedupe_id == "one#retry-2#retry-1"


def test_threads_that_retry_at_the_same_time_make_one(box: Outbox, owe: Owe) -> None:
    owe("one")
    accept(box)
    start, made = threading.Barrier(8), []

    def press() -> None:
        start.wait()
        made.append(box.retry("one").id)

    threads = [threading.Thread(target=press) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 1
    assert len(made) == 8
    assert box.counts().by_state["pending"] == 1


def test_a_retry_with_a_key_is_made_once_for_each_key(box: Outbox, owe: Owe) -> None:
    owe("one")
    owe("two")
    accept(box)
    first = box.retry("one", dedupe_id="again")
    assert box.retry("one", dedupe_id="again") == first
    assert box.retry("one", dedupe_id="and again").id != first.id
    accept(box)
    assert box.retry("one", dedupe_id="again").state is State.ACCEPTED
    with pytest.raises(IdempotencyConflict) as caught:
        box.retry("one", dedupe_id="two")
    assert caught.value.code == "idempotency_conflict"


def test_a_retry_under_the_id_of_another_one_with_the_same_content_is_refused(box: Outbox, owe: Owe) -> None:
    owe("one", payload=1)
    owe("two", payload=1)
    accept(box)
    with pytest.raises(IdempotencyConflict) as caught:
        box.retry("one", dedupe_id="two")
    assert told(caught.value) == (
        f"Obligation 'two' in {box._core.path} is there and repeats another one than 'one'. Give another dedupe_id, or"
        " none: one is made then."
    )


def test_an_id_that_was_made_up_is_free_and_not_too_long(box: Outbox, owe: Owe) -> None:
    owe("one")
    owe("one#retry-1", payload="somebody else's")
    owe("x" * 512)
    accept(box)
    assert box.retry("one").dedupe_id == "one#retry-2"
    long = box.retry("x" * 512).dedupe_id
    assert (long[:432], len(long), long.endswith("#retry-1")) == ("x" * 432, 473, True)


@pytest.mark.parametrize("key", [True, None, 1.0, b"one", "\ud800"])
def test_an_obligation_is_named_by_a_number_or_a_text(box: Outbox, owe: Owe, key: Any) -> None:
    owe("one")
    for call in (box.get, box.retry, lambda key: box.drop(key, reason="no")):
        with pytest.raises(InvalidInput) as caught:
            call(key)
        assert told(caught.value) == f"An obligation is named by its number or its dedupe id, not by {key!r}."


@pytest.mark.parametrize("key", [0, -1, 2**63, 2**70, "nosuch"])
def test_what_is_not_there_is_not_found(box: Outbox, key: int | str) -> None:
    with pytest.raises(NotFound):
        box.get(key)


@pytest.mark.parametrize("reason", [None, "", " ", 7, "\ud800", "x" * 4001])
def test_a_reason_is_a_text(box: Outbox, owe: Owe, reason: Any) -> None:
    owe("one")
    for call in (box.drop, box.suppress):
        with pytest.raises(InvalidInput) as caught:
            call("one", reason=reason)
        assert told(caught.value) == (
            "reason is a text of at most 4,000 characters without NUL and lone surrogates, not empty, not"
            f" {reason!r:.80}."
        )
    assert box.get("one").state is State.PENDING


STATES = "The states are pending, claimed, accepted, refused, failed, unknown, dropped, suppressed."


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"states": ["nope"]}, f"'nope' is no state of an obligation. {STATES}"),
        ({"states": [None]}, f"None is no state of an obligation. {STATES}"),
        ({"states": "pending"}, "states is a list of states, not 'pending'."),
        *(({"limit": value}, f"limit is a whole number from 1 to 1000, not {value!r}.")
          for value in (0, -1, 1001, 10**30, True, "5")),
        *(({"before": value}, f"before is a whole number from 1 to 9223372036854775807, not {value!r}.")
          for value in (0, -1, 2**63, True, "5")),
        ({"kind": "\ud800"}, "kind of an obligation is a text of at most 512 characters without NUL and lone"
                             " surrogates, not empty, not '\\ud800'."),
    ],
)
def test_a_page_of_no_sense_is_refused(box: Outbox, given: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        box.page(**given)
    assert told(caught.value) == says


def test_a_state_may_be_named_by_its_text(box: Outbox, owe: Owe) -> None:
    owe("one")
    assert [one.dedupe_id for one in box.page(states=["pending"])] == ["one"]  # type: ignore[list-item]
