"""The outbox stays small without ever losing what is owed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hermes_state.clock import FakeClock
from hermes_state.errors import NotFound, Refused, StatementFailed
from hermes_state.outbox import Accepted, Failed, Outbox, Recorded, State
from hermes_state.outbox.append import HORIZON_SECONDS
from hermes_state.outbox.upkeep import BLANK_AFTER_SECONDS
from hermes_state.store import Store
from tests.hermes_state.outbox.conftest import told

Owe = Callable[..., Recorded]


def settle_all(box: Outbox) -> None:
    while claims := box.claim(["telegram"], limit=100):
        for claim in claims:
            box.settle(claim, Accepted())


def test_t5_7_undelivered_rows_are_never_pruned_however_many_and_old(
    box: Outbox, owe: Owe, fake_clock: FakeClock
) -> None:
    """Measured in hermes-agent 0.19: of 60 undelivered results 10 were deleted by the next dispatch."""
    for number in range(60):
        owe(f"undelivered {number}", kind="completion")
    fake_clock.advance(400 * 86_400.0)
    owe("one more")
    done = box.upkeep(most_settled=0)
    assert (done.blanked, done.forgotten, done.forgotten_early, done.more) == (0, 0, 0, False)
    assert box.counts().by_state["pending"] == 61
    assert all(one.payload == {"text": one.dedupe_id} for one in box.page(limit=100))


def test_a_settled_payload_is_blanked_after_a_day_and_its_id_is_remembered(
    box: Outbox, owe: Owe, fake_clock: FakeClock
) -> None:
    owe("one")
    settle_all(box)
    assert box.upkeep().blanked == 0
    fake_clock.advance(BLANK_AFTER_SECONDS)
    assert box.upkeep().blanked == 1
    row = box.get("one")
    assert (row.payload, row.payload_bytes, row.state) == (None, 14, State.ACCEPTED)
    assert not owe("one").new


def test_a_cap_drops_only_settled_rows_says_so_and_makes_their_ids_too_old(
    box: Outbox, owe: Owe, fake_clock: FakeClock
) -> None:
    for number in range(10):
        owe(f"old {number}")
        fake_clock.advance(1.0)
    settle_all(box)
    owe("pending")
    done = box.upkeep(most_settled=4)
    assert (done.forgotten, done.forgotten_early) == (0, 6)
    assert sorted(one.dedupe_id for one in box.page()) == ["old 6", "old 7", "old 8", "old 9", "pending"]
    assert box.counts().remembered_from == fake_clock.now() - 5.0


def test_upkeep_goes_in_bounded_steps(store: Store, box: Outbox, owe: Owe, fake_clock: FakeClock) -> None:
    for number in range(30):
        owe(f"{number}")
    settle_all(box)
    fake_clock.advance(HORIZON_SECONDS + 1)
    from hermes_state.outbox.upkeep import step

    first = store.core.write(lambda tx: step(tx, at=fake_clock.now(), limit=20))
    assert (first.blanked, first.forgotten, first.more) == (20, 20, True)
    second = store.core.write(lambda tx: step(tx, at=fake_clock.now(), limit=20))
    assert (second.forgotten, second.more) == (10, False)


def test_the_file_itself_refuses_to_delete_what_is_owed_and_to_change_what_is_settled(
    store: Store, box: Outbox, owe: Owe
) -> None:
    owe("one")
    with pytest.raises(StatementFailed):
        store.core.write(lambda tx: tx.execute("DELETE FROM outbox"))
    settle_all(box)
    for change in ("state = 'pending', settled_at = NULL", "attempts = 0 + 7", "verdict = NULL"):
        with pytest.raises(StatementFailed):
            store.core.write(lambda tx, change=change: tx.execute(f"UPDATE outbox SET {change}"))


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
