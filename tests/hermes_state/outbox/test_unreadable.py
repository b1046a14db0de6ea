"""JSON that is too deep is not taken; rows that hold what cannot be read stop nobody else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hermes_state.errors import InvalidInput, Refused
from hermes_state.outbox import Accepted, Failed, Outbox, Recorded, State
from hermes_state.store import Store
from tests.hermes_state.outbox.conftest import told

Owe = Callable[..., Recorded]
DEEP = "[" * 100_000 + "]" * 100_000


def nested(levels: int) -> Any:
    value: Any = []
    for _ in range(levels - 1):
        value = [value] if levels % 2 else {"in": value}
    return value


def spoil(store: Store, name: str, **columns: str) -> None:
    """What damage, another program or an earlier release left in a row."""
    sets = ", ".join(f"{column} = ?" for column in columns)
    store.core.write(lambda tx: tx.execute(f"UPDATE outbox SET {sets} WHERE dedupe_id = ?", (*columns.values(), name)))


def test_a_payload_is_at_most_100_levels_deep(box: Outbox, owe: Owe) -> None:
    for levels in (99, 100):
        owe(f"deep {levels}", payload=nested(levels))
    assert [len(claim) for claim in box.claim(["telegram"], limit=9)] == [1, 1]
    for levels in (101, 985):
        with pytest.raises(InvalidInput) as caught:
            owe("deeper", payload=nested(levels))
        assert told(caught.value) == (
            "The payload of an obligation cannot be written as JSON: it is more than 100 levels deep."
            " Store what is deeper as text within it."
        )
        assert caught.value.facts["argument"] == "payload"


def test_a_payload_that_holds_itself_is_refused_however_often(owe: Owe) -> None:
    ring: list[Any] = []
    ring += [ring, ring]
    with pytest.raises(InvalidInput):
        owe("ring", payload=ring)


def test_a_result_is_at_most_100_levels_deep_and_refused_when_the_verdict_is_made() -> None:
    assert Accepted(result={"a": nested(99)}).result == {"a": nested(99)}
    for levels in (100, 985, 5000):
        with pytest.raises(InvalidInput) as caught:
            Accepted(result={"a": nested(levels)})
        assert str(caught.value) == "The result of Accepted cannot be written as JSON: it is more than 100 levels deep."


def test_a_value_that_would_lose_a_key_is_refused(owe: Owe) -> None:
    with pytest.raises(InvalidInput) as caught:
        owe("keys", payload={1: "a", "1": "b"})
    assert str(caught.value) == "The payload of an obligation cannot be written as JSON: two of its keys become '1'."
    with pytest.raises(InvalidInput) as caught:
        Accepted(result={1: "a", "1": "b"})
    assert str(caught.value) == "The result of Accepted cannot be written as JSON: two of its keys become '1'."


@pytest.mark.parametrize("columns", [{"payload": DEEP}, {"payload": "{"}, {"schedule": "7"}])
def test_what_cannot_be_read_stops_nobody_else_and_can_be_dropped(
    store: Store, box: Outbox, owe: Owe, columns: dict[str, str]
) -> None:
    for name in ("bad", "worse", "good"):
        owe(name)
    owe("sibling", batch="b")
    owe("bad sibling", batch="b")
    for name in ("bad", "worse", "bad sibling"):
        spoil(store, name, **columns)
    claims = box.claim(["telegram"], limit=2)
    assert [[one.dedupe_id for one in claim] for claim in claims] == [["good"], ["sibling"]]
    assert [one.dedupe_id for one in box.page() if not one.sendable] == ["bad sibling", "worse", "bad"]
    bad = box.get("bad")
    assert (bad.state, bad.unreadable) == (State.PENDING, tuple(columns))
    with pytest.raises(Refused) as caught:
        box.retry("bad")
    assert told(caught.value) == (
        f"The {next(iter(columns))} of obligation 'bad' in {store.path} cannot be read, so nobody can send it."
        " Take it back with `hermes outbox drop`, and record it anew from its source."
    )
    assert box.drop("bad", reason="cannot be read").state is State.DROPPED
    assert box.counts().by_state["dropped"] == 1


def test_a_verdict_that_cannot_be_read_keeps_nothing_from_being_sent(store: Store, box: Outbox, owe: Owe) -> None:
    owe("one")
    spoil(store, "one", verdict="no JSON")
    assert box.get("one").verdict is None
    (delivered,) = box.deliver(lambda claim: Failed(why="no route"), ["telegram"])
    assert delivered[0].primary.unreadable == ("verdict",)
    said = box.get("one").verdict
    assert said is not None and said["why"] == "no route"
