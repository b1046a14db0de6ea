"""Large repeated texts: once by content, gone with the last use, damaged ones named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_state.conversation import shared_texts
from hermes_state.engine import frames
from hermes_state.errors import Corrupt
from hermes_state.store import Store
from hermes_state.testing import temporary_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with temporary_store(tmp_path) as opened:
        yield opened


def intern(store: Store, text: str) -> int | None:
    return store.core.write(lambda tx: shared_texts.intern(tx, text))


def test_equal_texts_are_one_row_and_different_ones_are_not(store: Store) -> None:
    first = intern(store, "prompt 提示" * 1000)
    assert intern(store, "prompt 提示" * 1000) == first
    assert intern(store, "prompt") != first
    with store.core.reader() as reader:
        assert shared_texts.text_of(reader, first) == "prompt 提示" * 1000
        assert shared_texts.text_of(reader, None) is None


def test_texts_of_equal_hash_are_compared_in_full(store: Store) -> None:
    first = intern(store, "one")

    def collide(tx) -> None:  # type: ignore[no-untyped-def]
        tx.execute("UPDATE shared_texts SET body = ? WHERE no = ?", (b"two", first))

    store.core.write(collide)
    assert intern(store, "one") != first


def test_a_compressed_text_is_read_and_found_again(store: Store) -> None:
    text = "prompt " * 1000
    no = intern(store, text)
    store.core.write(
        lambda tx: tx.execute(
            "UPDATE shared_texts SET codec = 'zstd', body = ? WHERE no = ?", (frames.compress(text.encode()), no)
        )
    )
    assert intern(store, text) == no
    with store.core.reader() as reader:
        assert shared_texts.text_of(reader, no) == text


def test_a_text_stays_as_long_as_one_session_uses_it_in_any_way(store: Store) -> None:
    store.sessions.create(id="a", source="cli", system_prompt="[]")
    store.sessions.create(id="b", source="cli", tools="[]")
    store.sessions.create(id="c", source="cli", model_config="[]")
    for gone in ("a", "c", "b"):
        with store.core.reader() as reader:
            assert reader.rows("SELECT count(*) FROM shared_texts") == [(1,)]
        store.sessions.delete(gone, actor="test", reason="test")
    with store.core.reader() as reader:
        assert reader.rows("SELECT count(*) FROM shared_texts") == [(0,)]


def test_a_damaged_text_is_an_error_that_names_it(store: Store) -> None:
    store.sessions.create(id="a", source="cli", system_prompt="x" * 5000)
    store.core.write(lambda tx: tx.execute("UPDATE shared_texts SET codec = 'zstd', body = x'00112233'"))
    with pytest.raises(Corrupt) as damaged:
        store.sessions.prompt("a")
    assert str(damaged.value).startswith(f"Shared text 1 of {store.path} is damaged (")
    store.core.write(lambda tx: tx.execute("UPDATE shared_texts SET codec = 'plain', body = x'ff'"))
    with pytest.raises(Corrupt) as not_text:
        store.sessions.prompt("a")
    assert str(not_text.value) == f"Shared text 1 of {store.path} is not UTF-8 (invalid start byte)."
