"""The index: when it is filled, emptied, swept and merged, and that a search never depends on it."""

from __future__ import annotations

import os
import random
import stat
from pathlib import Path

import apsw
import pytest

from hermes_state import open_store
from hermes_state.clock import FakeClock
from hermes_state.conversation.bodies import compress_rows
from hermes_state.conversation.search import IndexCheck
from hermes_state.conversation.search.layout import APPLICATION_ID, index_path
from hermes_state.engine import open_read
from hermes_state.errors import SearchUnavailable
from hermes_state.store import Store
from tests.hermes_state.conversation.search.support import chat, found, ids


def marks(store: Store) -> tuple[object, ...]:
    with open_read(store.search.path) as index:
        return index.rows("SELECT store_id, incarnation, high_water, deletions_seen FROM marks")[0]


@pytest.mark.parametrize(("name", "index"), [
    ("state.db", "search.db"), ("work.db", "work.search.db"), ("work", "work.search.db"),
    ("work.sqlite", "work.sqlite.search.db"), ("search.db", "search.search.db"),
])
def test_each_store_of_a_folder_has_an_index_of_its_own(name: str, index: str) -> None:
    assert index_path(Path("/home") / name) == Path("/home") / index


def test_the_index_is_a_private_wal_file_with_its_own_mark(store: Store) -> None:
    _, numbers = chat(store, "apple", "pear")
    store.search.index_idle()
    path = store.search.path
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    with open_read(path) as index:
        assert (index.journal_mode, index.application_id) == ("wal", APPLICATION_ID)
        assert index.pragma("auto_vacuum") == 2
    assert marks(store) == (store.store_id, store.incarnation, numbers[-1], 0)
    assert store.search.size() > 0


@pytest.mark.parametrize("table", ["terms_docsize", "terms_content"])
def test_an_entry_without_its_length_or_source_means_a_damaged_index_and_loses_no_hit(store: Store, table: str) -> None:
    _, numbers = chat(store, "apple", "apple pie")
    store.search.index_idle()
    assert found(store, "apple") == set(numbers)
    with store.search._index.writer() as writer:
        assert writer is not None
        with writer.transaction() as tx:
            tx.execute(f"DELETE FROM {table} WHERE id = ?", (numbers[0],))
    result = store.search("apple")
    assert set(ids(result)) == set(numbers)
    assert result.degraded == (
        f"{store.search.path} is damaged: {store.search.path} has no length or no source of entry {numbers[0]}."
    )
    store.search.index_idle()
    assert found(store, "apple") == set(numbers)


def test_idle_steps_index_bounded_batches(store: Store) -> None:
    chat(store, *["apple"] * 500)
    work = [store.search.index_idle(1) for _ in range(4)]
    assert [(step.indexed, step.pending) for step in work] == [(200, 300), (200, 100), (100, 0), (0, 0)]


@pytest.mark.slow
def test_a_batch_is_bounded_by_bytes_too(store: Store) -> None:
    session = store.sessions.create(source="cli").id
    store.messages.append_many(session, [{"role": "user", "content": f"{n} " + "word " * 100_000} for n in range(60)])
    assert store.search.index_idle(1).indexed == 50
    assert store.search.index_idle(1).pending == 0


def test_a_search_adds_what_is_missing_when_it_is_much(store: Store) -> None:
    chat(store, *["apple"] * 63)
    assert store.search("apple").indexed_to == 0
    chat(store, "apple")
    result = store.search("apple", limit=100)
    assert (result.indexed_to, result.scanned, len(result)) == (64, 0, 64)


def test_a_search_without_any_time_says_that_it_is_not_whole(store: Store, fake_clock: FakeClock) -> None:
    chat(store, *["apple"] * 300)
    result = store.search("pear", budget_seconds=0.0)
    assert (result.complete, result.degraded) == (False, "")
    assert result.indexed_to == 200
    assert result.scanned == 64


def test_another_incarnation_empties_the_index(store: Store) -> None:
    """After a restore the old mark would hide new rows and the old terms return wrong ones (measured)."""
    session, numbers = chat(store, *["apple"] * 7)
    store.search.index_idle()

    def restore(tx):  # as restoring an older state does: rows go, ids are given out again, the incarnation is new
        tx.execute("DELETE FROM messages WHERE id > 5")
        tx.execute("UPDATE store SET incarnation = 'restored'")

    store.core.write(restore)
    new = store.messages.append_many(session, [{"role": "user", "content": "pear"}] * 2)
    assert new == numbers[5:]
    assert found(store, "pear") == set(new)
    assert found(store, "apple") == set(numbers[:5])
    store.search.index_idle()
    assert found(store, "apple") == set(numbers[:5])
    assert marks(store)[1:3] == ("restored", 7)


def test_a_mark_above_the_highest_id_empties_the_index(store: Store) -> None:
    session, numbers = chat(store, *["apple"] * 7)
    store.search.index_idle()
    store.core.write(lambda tx: tx.execute("DELETE FROM messages WHERE id > 5"))
    store.messages.append(session, role="user", content="pear")
    assert found(store, "pear") == {6}
    assert found(store, "apple") == set(numbers[:5])


def test_deleting_the_newest_messages_keeps_the_index(store: Store) -> None:
    """Ids are not given out again, so a mark above the newest message is no sign of a restore."""
    session, numbers = chat(store, "apple", "pear")
    store.search.index_idle()
    store.messages.delete(session, [numbers[1]], reason="test", actor="test")
    assert store.search("apple").indexed_to == numbers[1]
    assert store.messages.append(session, role="user", content="plum") == numbers[1] + 1
    assert found(store, "plum") == {numbers[1] + 1}


def test_another_layout_empties_the_index(store: Store) -> None:
    _, numbers = chat(store, "apple")
    store.search.index_idle()
    with store.search._index.writer() as writer, writer.transaction() as tx:
        tx.execute("UPDATE marks SET layout = 99")
    assert found(store, "apple") == set(numbers)
    store.search.index_idle()
    assert store.search("apple").indexed_to == numbers[0]


def test_a_sweep_takes_deleted_messages_out_in_idle_time(store: Store) -> None:
    session, numbers = chat(store, *["apple"] * 10)
    other, _ = chat(store, *["apple"] * 3)
    store.search.index_idle()
    store.messages.delete(session, numbers[:4], reason="test", actor="test")
    store.sessions.delete(other, reason="test", actor="test")
    check = store.search.verify()
    assert (check.messages, check.entries, len(check.stale), check.missing, check.sound) == (6, 13, 7, (), True)
    assert store.search.index_idle().removed == 7
    assert store.search.index_idle().removed == 0
    assert store.search.verify() == IndexCheck(
        messages=6, entries=6, missing=(), stale=(), sampled=6, unfound=(), damage=""
    )
    assert found(store, "apple") == set(numbers[4:])


def test_merging_leaves_one_segment_and_everything_findable(store: Store) -> None:
    session = store.sessions.create(source="cli").id
    for start in range(0, 2000, 100):
        store.messages.append_many(
            session, [{"role": "user", "content": f"word{number} common"} for number in range(start, start + 100)]
        )
        store.search.index_idle()
    with open_read(store.search.path) as index:
        before = index.page_count
    work = store.search.optimize_index()
    assert (work.pending, work.degraded) == (0, "")
    assert work.merged_pages > 0
    with open_read(store.search.path) as index:
        assert index.rows("SELECT count(DISTINCT segid) FROM terms_idx") == [(1,)]
        assert index.freelist_count == 0
        assert index.page_count < before
    for number in (0, 77, 1999):
        assert len(store.search(f"word{number}")) == 1
    assert store.search.optimize_index().merged_pages == 0


@pytest.mark.slow
def test_every_token_is_found_hot_and_after_compression(store: Store) -> None:
    """Recall 1.0: tokens sampled from every role, and from names and arguments of tool calls."""
    chance = random.Random(7)
    session = store.sessions.create(source="cli").id
    wanted: list[tuple[str, int]] = []
    for number in range(120):
        words = [f"w{chance.randrange(10**9):x}" for _ in range(chance.choice((5, 40, 400)))]
        runs = ["".join(chr(chance.randint(0x4E00, 0x9FA5)) for _ in range(chance.randint(1, 6))) for _ in range(5)]
        text = " ".join(words) + "\uff0c".join(runs)
        role = ("user", "assistant", "tool", "system")[number % 4]
        extra = {"tool_call_id": f"c{number}", "tool_name": f"tool_{number}x"} if role == "tool" else {}
        if role == "assistant":
            extra["tool_calls"] = [{"id": f"c{number + 1}", "type": "function", "function": {
                "name": "run", "arguments": f'{{"command": "argument{number} \\u8bb0{number}"}}',
            }}]
        made = store.messages.append(session, role=role, content=text, **extra)
        wanted += [(word, made) for word in chance.sample(words, 5)]
        run = chance.choice(runs)
        start = chance.randrange(len(run))
        wanted += [(run[start : start + chance.randint(1, 3)], made), (run[-1], made)]
        wanted += [(f"argument{number}", made)] if role == "assistant" else []
        wanted += [(f"tool_{number}x", made)] if role == "tool" else []
    store.search.index_idle(100)
    sample = chance.sample(wanted, len(wanted))[:1000]
    for _state in ("hot", "compressed"):
        missed = [(token, made) for token, made in sample if made not in ids(store.search(token, limit=1000))]
        assert missed == []
        store.core.write(lambda tx: compress_rows(tx, [number for (number,) in tx.rows("SELECT id FROM messages")]))


def test_a_store_opened_for_reading_only_searches_and_never_touches_the_index(
    tmp_path: Path, fake_clock: FakeClock
) -> None:
    path = tmp_path / "state.db"
    with open_store(path=path, clock=fake_clock) as store:
        _, numbers = chat(store, *["apple"] * 100)
    with open_store(path=path, read_only=True, clock=fake_clock) as reading:
        result = reading.search("apple", limit=200)
        assert set(ids(result)) == set(numbers)
        assert (result.complete, result.degraded) == (True, f"{tmp_path / 'search.db'} is not there yet")
        assert not reading.search.path.exists()
        assert reading.search.index_idle().degraded == f"{tmp_path / 'search.db'} is not there yet"
    with open_store(path=path, clock=fake_clock) as store:
        store.search.index_idle()
        store.messages.append(store.sessions.list()[0].id, role="user", content="apple")
    with open_store(path=path, read_only=True, clock=fake_clock) as reading:
        result = reading.search("apple", limit=200)
        assert (len(result), result.degraded, result.indexed_to, result.scanned) == (101, "", numbers[-1], 1)


def test_a_caller_can_ask_for_the_index_or_nothing(tmp_path: Path, fake_clock: FakeClock) -> None:
    path = tmp_path / "state.db"
    with open_store(path=path, clock=fake_clock) as store:
        chat(store, "apple")
    with open_store(path=path, read_only=True, clock=fake_clock) as reading:
        with pytest.raises(SearchUnavailable) as caught:
            reading.search("apple", need_index=True)
        reason = f"{tmp_path / 'search.db'} is not there yet"
        assert caught.value.message == f"The search index of {path} cannot be used now: {reason}."
        with pytest.raises(SearchUnavailable) as caught:
            reading.search.verify()
        assert caught.value.message == f"The search index of {path} cannot be checked: {reason}."


def test_another_programs_file_of_that_name_is_left_alone(store: Store) -> None:
    _, numbers = chat(store, "apple")
    other = apsw.Connection(str(store.search.path))
    other.execute("CREATE TABLE theirs (a); INSERT INTO theirs VALUES (7)").fetchall()
    other.close()
    result = store.search("apple")
    assert set(ids(result)) == set(numbers)
    assert result.degraded == (
        f"{store.search.path} cannot be used: {store.search.path} is another program's database."
    )
    with open_read(store.search.path) as theirs:
        assert theirs.rows("SELECT a FROM theirs") == [(7,)]


def test_a_check_finds_rows_and_words_that_are_missing_and_a_rebuild_brings_them_back(store: Store) -> None:
    _, numbers = chat(store, *[f"apple word{number}" for number in range(50)])
    store.search.index_idle()
    with store.search._index.writer() as writer, writer.transaction() as tx:
        tx.execute("DELETE FROM terms WHERE rowid = ?", (numbers[3],))
        tx.execute("DELETE FROM terms WHERE rowid = ?", (numbers[7],))
        tx.execute("INSERT INTO terms (rowid, text) VALUES (?, 'other words')", (numbers[7],))
    check = store.search.verify()
    assert (check.sound, check.missing, check.unfound) == (False, (numbers[3],), (numbers[3], numbers[7]))
    assert store.search.rebuild().pending == 50
    assert store.search.index_idle().indexed == 50
    assert store.search.verify().sound
    assert found(store, "word7") == {numbers[7]}


def test_damage_that_looks_like_a_wrong_statement_is_damage(store: Store) -> None:
    """FTS5 says "invalid file format" with the code of a syntax error when its configuration is gone."""
    _, numbers = chat(store, "apple")
    store.search.index_idle()
    with store.search._index.writer() as writer, writer.transaction() as tx:
        tx.execute("DELETE FROM terms_config")
    store.search.close()
    assert set(ids(store.search("apple"))) == set(numbers)
    store.search.index_idle()
    assert store.search("apple").indexed_to == numbers[-1]


def test_a_damaged_body_is_searched_by_its_preview_and_named(store: Store) -> None:
    session = store.sessions.create(source="cli").id
    number = store.messages.append(session, role="user", content="apple " + "filler " * 1000 + "needle")
    store.core.write(lambda tx: compress_rows(tx, [number]))
    store.core.write(lambda tx: tx.execute("UPDATE bodies SET frame = x'00' "))
    result = store.search("apple")
    assert (ids(result), result.damaged_messages) == ([number], (number,))
    assert store.search.index_idle().indexed == 1
    assert ids(store.search("apple")) == [number]


@pytest.mark.slow
def test_search_reads_no_more_texts_than_it_shows(store: Store) -> None:
    """Report 186: 60 texts of 512 KiB were read and none of them was returned."""
    session = store.sessions.create(source="cli").id
    store.messages.append_many(
        session, [{"role": "tool", "content": f"apple {n} " + "filler " * 75_000, "tool_call_id": "c",
                   "tool_name": "read"} for n in range(60)]
    )
    store.search.index_idle(100)
    store.search("apple", limit=3)
    before = _bytes_read()
    assert len(store.search("apple", limit=3)) == 3
    assert _bytes_read() - before < 6 * 525_000


def _bytes_read() -> int:
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("rchar")))
