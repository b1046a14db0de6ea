"""Bodies: large ones once, cold ones small, always read as they were given."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_state import open_store
from hermes_state.conversation import bodies
from hermes_state.conversation.fields import to_json
from hermes_state.conversation.messages import Messages
from hermes_state.conversation.records import CompressResult
from hermes_state.conversation.row_check import digest, row_check
from hermes_state.errors import Corrupt
from hermes_state.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(path=tmp_path / "state.db") as opened:
        opened.sessions.create(id="s", source="cli")
        yield opened


def rows(store: Store, sql: str, *params: Any) -> list[tuple[Any, ...]]:
    with store.core.reader() as reader:
        return reader.rows(sql, params)


def kept(store: Store) -> list[tuple[str, int]]:
    """Codec and size of every body."""
    return [(codec, size) for codec, size in rows(store, "SELECT codec, raw_bytes FROM bodies ORDER BY no")]


def written(store: Store) -> int:
    """Bytes of the store and its WAL."""
    return sum(Path(f"{store.path}{suffix}").stat().st_size for suffix in ("", "-wal"))


def words(size: int, seed: int = 1) -> str:
    source = random.Random(seed)
    return " ".join(f"{source.randrange(10**6):x} tool output line" for _ in range(size // 20))[:size]


def compress(store: Store, *ids: int) -> CompressResult:
    return store.core.write(lambda tx: bodies.compress_rows(tx, ids))


# --- large and repeated ones (reports 222, 223, 239, 242) --------------------------------------------------------


def test_a_body_is_kept_in_its_row_or_once_by_its_size(store: Store) -> None:
    for size in (bodies.SHARE_BYTES - 1, bodies.SHARE_BYTES, bodies.OWN_BYTES - 1, bodies.OWN_BYTES):
        for _twice in range(2):
            store.messages.append("s", role="tool", content="x" * size)

    assert kept(store) == [("plain", bodies.OWN_BYTES)]
    assert [len(message.content) for message in store.messages.history("s").messages] == [
        4095, 4095, 4096, 4096, 16383, 16383, 16384, 16384
    ]


def test_a_middling_body_joins_an_equal_one_that_is_there(store: Store) -> None:
    first = store.messages.append("s", role="user", content=words(8000))
    compress(store, first)
    second = store.messages.append("s", role="user", content=words(8000))

    assert len(kept(store)) == 1
    assert store.messages.get(first).content == store.messages.get(second).content == words(8000)


@pytest.mark.slow
def test_a_hundred_steps_with_the_same_static_state_are_stored_once(store: Store) -> None:
    state = words(1_000_000)
    for step in range(100):
        store.messages.append("s", role="system", content=state)
        store.messages.append("s", role="assistant", content=f"step {step}")

    assert kept(store) == [("plain", 1_000_000)]
    assert written(store) < 4_000_000  # once in the file and once in the WAL, and 100 small rows
    assert store.messages.context("s")[198]["content"] == state


def test_a_row_shows_the_preview_of_a_body_kept_elsewhere(store: Store) -> None:
    text = "a\0\n語" * 10_000
    store.messages.append("s", role="user", content=text)
    store.messages.append("s", role="user", content=[text])
    store.messages.append("s", role="user", content=text.encode())

    assert rows(store, "SELECT content_type, content FROM messages ORDER BY id") == [
        ("text", text[:240]), ("json", to_json("content", [text])[:240]), ("bytes", text[:240]),
    ]
    assert [message["content"] for message in store.messages.context("s")] == [text, [text], text.encode()]


def test_bodies_of_equal_hash_are_compared_in_full(store: Store) -> None:
    body = words(20_000)
    other = b"y" * 20_000
    store.core.write(lambda tx: bodies.insert(tx, digest(body.encode()), other, None))
    message_id = store.messages.append("s", role="user", content=body)

    assert store.messages.get(message_id).content == body
    assert len(kept(store)) == 2


def test_a_body_goes_with_the_last_message_that_uses_it(store: Store) -> None:
    first, second = (store.messages.append("s", role="user", content=words(20_000)) for _ in range(2))
    store.messages.delete("s", [first], reason="test", actor="me")
    assert len(kept(store)) == 1
    store.messages.delete("s", [second], reason="test", actor="me")
    assert kept(store) == []


# --- cold ones ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content", [words(5000), words(40_000), [words(3000), {"a": words(300)}], words(3000).encode(), "語語話" * 1500]
)
def test_a_compressed_body_reads_as_before_and_its_check_holds(store: Store, content: Any) -> None:
    message_id = store.messages.append("s", role="user", content=content)
    before = rows(store, "SELECT row_check FROM messages")
    result = compress(store, message_id)

    assert result.rows == 1
    assert result.stored_bytes < result.raw_bytes
    assert [codec for codec, _size in kept(store)] == ["zstd"]
    assert store.messages.get(message_id).content == content
    found = rows(store, "SELECT content_type, content, body_no, session_no, role, created_at FROM messages")
    with store.core.reader() as reader:
        raw = bodies.read_contents(reader, [found[0]])[0]
    no, role, at = found[0][3:]
    check = row_check(no, role, found[0][0], raw, None, None, None, None, None, None, None, None, at, None)
    assert rows(store, "SELECT row_check FROM messages") == before == [(check,)]
    assert compress(store, message_id).rows == 0


def test_a_body_that_does_not_shrink_by_a_tenth_stays(store: Store) -> None:
    noise = random.Random(1).randbytes(5000)
    ids = [
        store.messages.append("s", role="user", content=content)
        for content in (noise, "short " * 100, 7, None, random.Random(2).randbytes(20_000))
    ]

    assert compress(store, *ids) == CompressResult(rows=0, raw_bytes=0, stored_bytes=0)
    assert kept(store) == [("plain", 20_000)]


def test_equal_cold_bodies_share_a_frame(store: Store) -> None:
    ids = [store.messages.append("s", role="user", content=words(3000)) for _ in range(10)]
    result = compress(store, *ids)

    assert (result.rows, result.raw_bytes) == (10, 30_000)
    assert len(kept(store)) == 1
    assert {message["content"] for message in store.messages.context("s")} == {words(3000)}


def test_always_compresses_at_once_and_never_does_not(store: Store) -> None:
    Messages(store.core, compress="never").append("s", role="user", content=words(3000))
    assert kept(store) == []
    Messages(store.core, compress="always").append("s", role="user", content=words(3000))
    assert [codec for codec, _size in kept(store)] == ["zstd"]
    Messages(store.core, compress="always").append_many("s", [{"role": "user", "content": words(3000)}] * 3)

    assert len(kept(store)) == 1
    assert {message["content"] for message in store.messages.context("s")} == {words(3000)}


# --- damage ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("damage", "how"),
    [
        ("UPDATE bodies SET frame = zeroblob(10)", "is damaged (error determining content size from frame header)"),
        ("UPDATE bodies SET raw_bytes = raw_bytes - 1", "is damaged (a frame of 3000 bytes where 2999 were recorded)"),
        ("UPDATE bodies SET codec = 'plain'", "has {} bytes where 3000 were recorded"),
    ],
)
def test_a_damaged_frame_is_named_and_never_guessed(store: Store, damage: str, how: str) -> None:
    message_id = store.messages.append("s", role="user", content=words(3000))
    compress(store, message_id)
    size = rows(store, "SELECT length(frame) FROM bodies")[0][0]
    store.core.write(lambda tx: tx.execute(damage))

    with pytest.raises(Corrupt) as caught:
        store.messages.get(message_id)

    assert str(caught.value) == f"Message body 1 of {store.path} {how.format(size)}."
    assert caught.value.facts["body_no"] == 1


def test_a_broken_json_cell_is_given_as_the_text_it_is(store: Store) -> None:
    message_id = store.messages.append("s", role="user", content=["a"])
    store.core.write(lambda tx: tx.execute("UPDATE messages SET content = '[\"a'"))

    assert store.messages.get(message_id).content == '["a'
