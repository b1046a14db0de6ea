"""Merging: one segment at the end, no search result changed, short steps beside others."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_state.clock import SYSTEM, FakeClock
from hermes_state.engine import Store, open_exclusive, open_read, open_write
from hermes_state.errors import Corrupt
from maintenance.space.merge import ONLINE_SECONDS, merge_alone, merge_online
from maintenance.space.segments import index_state
from tests.support.space import change, grow
from tests.support.stores import StoreCopy


def hits(store: Store, word: str) -> list[tuple[object, ...]]:
    return store.rows("SELECT rowid FROM messages_fts WHERE messages_fts MATCH ? ORDER BY rowid", (word,))


def test_alone_an_index_becomes_one_segment_and_finds_what_it_found(store_copy: StoreCopy) -> None:
    db = store_copy()
    grow(db, sessions=5)
    with open_exclusive(db, foreign=True) as store:
        before = hits(store, "wordf")
        pages: list[int] = []
        merged = merge_alone(store, index_state(store, "messages_fts"), SYSTEM, pages.append)
        after = hits(store, "wordf")
        store.rows("PRAGMA quick_check(messages_fts)")
    assert before == after != []
    assert merged.segments_before is not None and merged.segments_before > 1
    assert (merged.segments_after, merged.transactions, merged.skipped) == (1, 1, "")
    assert pages


def test_a_merged_index_has_nothing_more_to_do(store_copy: StoreCopy) -> None:
    db = store_copy()
    with open_exclusive(db, foreign=True) as store:
        merge_alone(store, index_state(store, "messages_fts"), SYSTEM)
        state = index_state(store, "messages_fts")
    assert state.merged


def test_online_many_short_transactions_reach_the_same_end(store_copy: StoreCopy) -> None:
    db = store_copy()
    grow(db, sessions=8)
    with open_write(db, foreign=True) as store:
        before = hits(store, "wordf")
        merged = merge_online(store, index_state(store, "messages_fts_trigram"), SYSTEM)
        assert hits(store, "wordf") == before
    assert merged.segments_after == 1
    assert merged.transactions > 3
    # Twice the aim: the machine may be busy with other work.
    assert merged.longest_seconds < 10 * ONLINE_SECONDS


def test_online_a_pause_as_long_as_the_step_lies_between_two_steps(
    store_copy: StoreCopy, fake_clock: FakeClock
) -> None:
    db = store_copy()
    started = fake_clock.monotonic()
    with open_write(db, foreign=True, clock=fake_clock) as store:
        merged = merge_online(store, index_state(store, "messages_fts"), fake_clock)
    assert fake_clock.monotonic() - started == pytest.approx(0.002 * (merged.transactions - 1))


def damage_index(db: Path) -> None:
    """Make the first leaf of an index contradict its structure."""
    change(db, "DELETE FROM messages_fts_data WHERE id > 10 AND id IN (SELECT id FROM messages_fts_data LIMIT 4)")


def test_a_damaged_index_raises_index_damage_and_leaves_the_store_usable(store_copy: StoreCopy) -> None:
    db = store_copy()
    damage_index(db)
    with open_exclusive(db, foreign=True) as store:
        with pytest.raises(Corrupt) as raised:
            merge_alone(store, index_state(store, "messages_fts"), SYSTEM)
        assert raised.value.search_index is True
        with store.transaction() as tx:
            tx.execute("UPDATE sessions SET title = 'still writable' WHERE rowid = 1")
    with open_read(db) as reader:
        assert reader.row("SELECT title FROM sessions WHERE rowid = 1") == ("still writable",)
