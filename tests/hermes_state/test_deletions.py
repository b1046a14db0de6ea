"""The ledger of deletions: written with the deletion, read in pages, never changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_state import deletions
from hermes_state.errors import InvalidInput, StatementFailed
from hermes_state.store import Store
from hermes_state.testing import temporary_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with temporary_store(tmp_path) as opened:
        yield opened


def record(store: Store, *keys: str, kind: str = "session", **facts: object) -> int:
    said = {"actor": "hermes sessions prune", "reason": "older than 90 days", "rows": 1, "at": 5.0} | facts
    return store.core.write(lambda tx: deletions.record(tx, kind=kind, keys=keys, **said))  # type: ignore[arg-type]


def test_entry_says_who_when_why_what_and_how_many(store: Store) -> None:
    number = record(store, "a", "ünï", rows=12, detail={"messages": 10, "sessions": 2})
    with store.core.reader() as reader:
        assert deletions.page(reader) == [
            deletions.Deletion(
                id=number, made_at=5.0, actor="hermes sessions prune", reason="older than 90 days", kind="session",
                keys=("a", "ünï"), rows=12, detail={"messages": 10, "sessions": 2},
            )
        ]


def test_pages_go_back_from_the_newest_and_by_kind(store: Store) -> None:
    for number in range(7):
        record(store, str(number), kind="session" if number % 2 else "message")
    with store.core.reader() as reader:
        first = deletions.page(reader, limit=3)
        second = deletions.page(reader, limit=3, before=first[-1].id)
        assert [entry.keys[0] for entry in (*first, *second)] == ["6", "5", "4", "3", "2", "1"]
        assert [entry.keys[0] for entry in deletions.page(reader, kind="session")] == ["5", "3", "1"]


def test_reader_goes_on_from_the_last_entry_it_saw(store: Store) -> None:
    ids = [record(store, str(number)) for number in range(5)]
    with store.core.reader() as reader:
        assert [entry.id for entry in deletions.since(reader, 0, limit=2)] == ids[:2]
        assert [entry.id for entry in deletions.since(reader, ids[1])] == ids[2:]
        assert deletions.since(reader, ids[-1]) == []


@pytest.mark.parametrize("statement", ["UPDATE deletions SET reason = 'x'", "DELETE FROM deletions"])
def test_nothing_changes_or_removes_an_entry(store: Store, statement: str) -> None:
    record(store, "a")
    with pytest.raises(StatementFailed, match="the ledger of deletions is append-only"):
        store.core.write(lambda tx: tx.execute(statement))
    with store.core.reader() as reader:
        assert len(deletions.page(reader)) == 1


@pytest.mark.parametrize("fact", ["actor", "reason", "kind"])
def test_entry_without_who_why_or_what_is_refused(store: Store, fact: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        record(store, "a", **{fact: " "})  # type: ignore[arg-type]
    assert caught.value.message == f"A deletion in {store.path} was to be recorded without its {fact}."


def test_entry_goes_with_the_transaction_that_deletes(store: Store) -> None:
    def fails(tx) -> None:
        deletions.record(tx, actor="a", reason="b", kind="session", keys=["c"], rows=1, at=0.0)
        raise ValueError

    with pytest.raises(ValueError):
        store.core.write(fails)
    with store.core.reader() as reader:
        assert deletions.page(reader) == []
