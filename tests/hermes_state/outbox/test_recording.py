"""Recording what is owed: once an id, with its change, and never after it may have been forgotten."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hermes_state.clock import FakeClock
from hermes_state.engine import Transaction
from hermes_state.errors import IdempotencyConflict, InvalidInput, TooOld
from hermes_state.outbox import Accepted, Outbox, Recorded, Schedule, State, append
from hermes_state.outbox.append import HORIZON_SECONDS
from hermes_state.store import Store
from tests.hermes_state.outbox.conftest import told

Owe = Callable[..., Recorded]


def test_an_obligation_is_recorded_with_the_change_that_makes_it_or_not_at_all(store: Store) -> None:
    store.sessions.create(id="talk", source="cli")

    class Stop(Exception):
        pass

    def work(tx: Transaction, *, fail: bool) -> None:
        tx.execute("UPDATE sessions SET model = 'new' WHERE id = 'talk'")
        append(
            tx, dedupe_id="told", kind="final", transport="telegram", payload="hello", policy="at_least_once", at=1.0
        )
        if fail:
            raise Stop

    with pytest.raises(Stop):
        store.core.write(lambda tx: work(tx, fail=True))
    assert store.outbox.page() == []
    store.core.write(lambda tx: work(tx, fail=False))
    assert [one.dedupe_id for one in store.outbox.page()] == ["told"]


def test_recording_the_same_obligation_again_changes_nothing_also_after_it_was_delivered(box: Outbox, owe: Owe) -> None:
    """Measured in hermes-agent 0.19: recorded again after delivery, a row is pending with 0 attempts."""
    first = owe("one")
    assert (first.new, owe("one").new) == (True, False)
    (claim,) = box.claim(["telegram"])
    box.settle(claim, Accepted(result={"message": 7}))
    settled = box.get("one")
    again = owe("one")
    assert not again.new
    assert again.obligation == settled == box.get(first.obligation.id)
    assert settled.state is State.ACCEPTED
    assert box.claim(["telegram"]) == []


def test_an_id_that_was_used_for_something_else_is_refused(store: Store, owe: Owe) -> None:
    owe("one")
    with pytest.raises(IdempotencyConflict) as caught:
        owe("one", payload="another")
    assert told(caught.value) == (
        f"Obligation 'one' in {store.path} was recorded before, for something else. Give every obligation an id of its"
        " own, and a repeated one the same content."
    )


def test_an_id_older_than_the_horizon_is_too_old_and_not_new(
    store: Store, box: Outbox, owe: Owe, fake_clock: FakeClock
) -> None:
    made = fake_clock.now()
    owe("one", made_at=made)
    (claim,) = box.claim(["telegram"])
    box.settle(claim, Accepted())
    fake_clock.advance(HORIZON_SECONDS + 1)
    assert not owe("one", made_at=made).new  # its row is still here
    assert box.upkeep().forgotten == 1
    with pytest.raises(TooOld) as caught:
        owe("one", made_at=made)
    assert told(caught.value) == (
        f"Obligation 'one' was made 604801 s ago; {store.path} remembers ids for 604800 s, so it cannot tell whether it"
        " was sent. Decide by what the receiver shows; record it under a new id if it is still owed."
    )
    with pytest.raises(TooOld):
        owe("another", made_at=made)
    assert owe("one", made_at=fake_clock.now()).new


def test_a_clock_that_goes_back_brings_no_forgotten_id_back(box: Outbox, owe: Owe, fake_clock: FakeClock) -> None:
    made = fake_clock.now()
    owe("one", made_at=made)
    (claim,) = box.claim(["telegram"])
    box.settle(claim, Accepted())
    fake_clock.advance(HORIZON_SECONDS + 1)
    box.upkeep()
    fake_clock.step_wall(-HORIZON_SECONDS)
    with pytest.raises(TooOld):
        owe("one", made_at=made)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"dedupe_id": ""}, "dedupe_id of an obligation is a text of at most 512 characters without NUL and lone"
                            " surrogates, not empty, not ''."),
        ({"kind": "a\0b"}, "kind of an obligation is a text of at most 512 characters without NUL and lone"
                           " surrogates, not empty, not 'a\\x00b'."),
        ({"lane": 7}, "lane of an obligation is a text of at most 512 characters without NUL and lone surrogates, not"
                      " 7."),
        ({"priority": True}, "priority is a whole number from -1000 to 1000, not True."),
        ({"priority": 2**64}, "priority is a whole number from -1000 to 1000, not 18446744073709551616."),
        ({"schedule": (1.0,)}, "schedule is a Schedule, not (1.0,)."),
        *(({field: "a\ud800"}, f"{field} of an obligation is a text of at most 512 characters without NUL and lone"
           f" surrogates{', not empty' if field in ('dedupe_id', 'kind', 'transport') else ''}, not 'a\\ud800'.")
          for field in ("dedupe_id", "kind", "transport", "target", "lane", "batch")),
        ({"payload": {"a": "\ud800"}}, "The payload of an obligation has a lone surrogate, '\\ud800', which no file can"
                                       " hold. Decode texts with errors='replace', or send them as bytes in base64."),
        *(({field: value}, f"{field} is a time in epoch seconds UTC, from 1970 to 9999, not {value!r}.")
          for field in ("due_at", "made_at") for value in (float("nan"), float("inf"), -1, "x", True, 1e300)),
        ({"policy": "exactly_once"}, "policy is 'at_most_once' or 'at_least_once', not 'exactly_once'. There is no"
                                     " default: say what a crash while sending may lead to."),
        ({"payload": float("nan")}, "The payload of an obligation is JSON: Out of range float values are not JSON"
                                    " compliant."),
        ({"payload": "x" * 1_048_577}, "The payload of obligation 'one' has 1,048,579 bytes; 1,048,576 is the most."
                                       " Store the text as a message and name it in the payload."),
        ({"schedule": Schedule(delays=(86_400.0,) * 8)}, None),
    ],
)
def test_what_cannot_be_recorded_is_refused_and_changes_nothing(
    box: Outbox, fields: dict[str, Any], says: str | None
) -> None:
    given: dict[str, Any] = {
        "dedupe_id": "one", "kind": "final", "transport": "telegram", "payload": 1, "policy": "at_most_once"
    }
    with pytest.raises(InvalidInput) as caught:
        box.append(**given | fields)
    if says is not None:
        assert told(caught.value) == says
    assert box.page() == []


@pytest.mark.parametrize(
    "delays", [(-1.0,), (5.0, 1.0), (1.0,) * 100, (float("nan"),), (float("inf"),), (True,), ("1",), [1.0], None]
)
def test_a_schedule_that_makes_no_sense_is_refused(delays: Any) -> None:
    with pytest.raises(InvalidInput):
        Schedule(delays=delays)


@pytest.mark.parametrize("rest", [-1.0, float("nan"), True, None])
def test_a_rest_that_makes_no_sense_is_refused(rest: Any) -> None:
    with pytest.raises(InvalidInput):
        Schedule(delays=(), rest=rest)
