"""What the file itself refuses, whoever writes: no obligation is replaced, and what is settled stays as it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hermes_state.engine import Transaction
from hermes_state.errors import InvalidInput, StatementFailed
from hermes_state.outbox import Accepted, Outbox, Recorded
from hermes_state.store import Store
from tests.hermes_state.outbox.conftest import told

Owe = Callable[..., Recorded]
OTHERS = "kind, transport, policy, payload_bytes, payload_check, schedule, made_at, due_at"


def settle(box: Outbox) -> None:
    (claim,) = box.claim(["telegram"])
    box.settle(claim, Accepted())


@pytest.mark.parametrize("verb", ["REPLACE", "INSERT OR REPLACE", "INSERT OR IGNORE", "INSERT"])
@pytest.mark.parametrize(("names", "values"), [("id, dedupe_id", "1, 'other'"), ("dedupe_id", "'one'")])
def test_nothing_takes_the_place_of_an_obligation(
    store: Store, box: Outbox, owe: Owe, verb: str, names: str, values: str
) -> None:
    owe("one")
    before = box.page()
    with pytest.raises(StatementFailed):
        store.core.write(lambda tx: tx.execute(
            f"{verb} INTO outbox ({names}, {OTHERS}) VALUES ({values}, 'x', 't', 'at_most_once', 1, 'c', '{{}}', 1, 1)"
        ))
    assert box.page() == before


@pytest.mark.parametrize("change", ["id = 1", "dedupe_id = 'one'"])
def test_no_update_takes_the_place_of_another(store: Store, box: Outbox, owe: Owe, change: str) -> None:
    owe("one")
    owe("two")
    before = box.page()
    with pytest.raises(StatementFailed):
        store.core.write(lambda tx: tx.execute(f"UPDATE OR REPLACE outbox SET {change} WHERE id = 2"))
    assert box.page() == before


@pytest.mark.parametrize("change", [
    "policy = 'at_most_once'", "dedupe_id = 'x'", "kind = 'x'", "transport = 'x'", "target = 'x'", "lane = 'x'",
    "batch = 'x'", "priority = 7", "payload = '7'", "payload_bytes = 7", "payload_check = 'x'", "schedule = '{}'",
    "made_at = 7.0", "recoveries = 7", "refunds = 7", "attempts = 7", "id = 7", "retry_of = 1",
    "state = 'refused'", "verdict = NULL", "settled_at = 7.0",
])
def test_of_what_is_settled_nothing_changes_but_that_its_payload_is_blanked(
    store: Store, box: Outbox, owe: Owe, change: str
) -> None:
    owe("one")
    settle(box)
    before = box.page()
    with pytest.raises(StatementFailed):
        store.core.write(lambda tx: tx.execute(f"UPDATE outbox SET {change}"))
    assert box.page() == before
    store.core.write(blank)
    assert box.get("one").blanked


def blank(tx: Transaction) -> None:
    tx.execute("UPDATE outbox SET payload = NULL")


def test_a_settled_one_that_was_repeated_is_forgotten_and_the_repetition_too(
    box: Outbox, owe: Owe
) -> None:
    owe("one")
    settle(box)
    box.retry("one")
    settle(box)
    assert box.upkeep(most_settled=1).forgotten_early == 1
    assert box.get("one#retry-1").retry_of is None
    assert box.upkeep(most_settled=0).forgotten_early == 1


def test_a_batch_has_one_policy(store: Store, box: Outbox, owe: Owe) -> None:
    owe("once", "at_most_once", batch="run")
    assert owe("elsewhere", "at_least_once", batch="run", transport="matrix").new
    with pytest.raises(InvalidInput) as caught:
        owe("often", "at_least_once", batch="run")
    assert told(caught.value) == (
        f"Batch 'run' for telegram in {store.path} has obligations that are sent at_most_once, such as 'once'; one that"
        " is sent at_least_once is not of it. Siblings get one verdict, so they have one policy: give the others a"
        " batch of their own."
    )
    settle(box)
    assert owe("often", "at_least_once", batch="run").new


def test_siblings_of_two_policies_that_a_merge_brought_are_claimed_apart(store: Store, box: Outbox, owe: Owe) -> None:
    owe("once", "at_most_once", batch="run")
    owe("often", "at_least_once", batch="other")
    store.core.write(lambda tx: tx.execute("UPDATE outbox SET batch = 'run'"))
    assert [[one.dedupe_id for one in claim] for claim in box.claim(["telegram"], limit=5)] == [["once"], ["often"]]


@pytest.mark.parametrize("change", [
    "lane = 'b' WHERE id = 2", "lane = 'b'", "priority = 9 WHERE id = 3", "priority = -9 WHERE id = 1",
    "lane = NULL WHERE id = 1", "lane = 'b' WHERE id < 3",
])
def test_a_lane_has_one_first_row_whatever_is_changed_of_its_rows(
    store: Store, box: Outbox, owe: Owe, change: str
) -> None:
    for number in range(4):
        owe(f"row {number}", lane="a")
    owe("high", lane="b", priority=5)
    store.core.write(lambda tx: tx.execute(f"UPDATE outbox SET {change}"))
    assert wrong_order(store) == []


def wrong_order(store: Store) -> list[tuple[object, ...]]:
    """Rows that say wrongly whether they follow another of their lane."""
    with store.core.reader() as reader:
        return reader.rows(
            "SELECT id, lane, priority, follows FROM outbox o WHERE settled_at IS NULL AND follows <> EXISTS (SELECT 1"
            " FROM outbox p WHERE p.settled_at IS NULL AND p.lane = o.lane AND (p.priority > o.priority"
            " OR (p.priority = o.priority AND p.id < o.id)))"
        )
