"""Rows of compactions that another program, or a disk, has damaged: views go on, and going back is always possible."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_state import open_store
from hermes_state.compaction.windows import Windows
from hermes_state.store import Store

LONG = "a line of the log that says nothing new\n" * 600
DAMAGE = ["zzz", "", "7", "null", "{", "[[1]]", '[[["content"],"text",-1,0]]', "[" * 5000, '"é"']


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Two generations: the second shows a message shortened and keeps the user's question below its cut."""
    with open_store(path=tmp_path / "home" / "state.db") as opened:
        opened.sessions.create(source="cli", id="a")
        for number in range(30):
            opened.messages.append("a", role="user", content=f"Question {number}: " + "which port is it? " * 12)
            opened.messages.append("a", role="assistant", content=f"Port {9000 + number}. " + "It is in it. " * 18)
        opened.compaction.compact("a", window=4096, trigger="manual")
        opened.messages.append("a", role="user", content="QUESTION: which of them is free?")
        for number in range(6):
            call = {"id": f"c{number}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
            opened.messages.append("a", role="assistant", content=None, tool_calls=[call])
            opened.messages.append("a", role="tool", tool_call_id=f"c{number}", content=f"{number} {LONG}")
        assert opened.compaction.compact("a", window=4096, trigger="manual").fits
        view = opened.compaction.view("a")
        assert view.clips and view.generation is not None and view.generation.anchors
        yield opened


def force(store: Store, statement: str, *values: object) -> None:
    with store.core.writer.transaction() as tx:
        tx.execute(statement, values)


def assert_usable(store: Store) -> None:
    """Everything that reads a view does, and the way back is open."""
    before = store.messages.context("a")
    assert "QUESTION: which of them is free?" in str(before)
    assert store.compaction.status("a").messages == len(before)
    assert len(store.compaction.view("a").messages) == len(before)
    assert len(store.compaction.generations("a")) == 2
    assert store.compaction.compact("a", window=4096).fits
    assert "QUESTION: which of them is free?" in str(store.messages.context("a"))
    assert store.compaction.rollback("a", 0) is None
    assert len(store.messages.context("a")) == 60 + 1 + 12


@pytest.mark.parametrize("clip", DAMAGE)
def test_a_message_whose_clip_is_damaged_is_shown_whole(store: Store, clip: str) -> None:
    force(store, "UPDATE compaction_clips SET clip = ?", clip)
    shown = store.messages.context("a")
    assert LONG in str([one["content"] for one in shown if one["role"] == "tool"][-1])
    assert store.compaction.view("a").clips == {}
    assert_usable(store)


@pytest.mark.parametrize("anchors", [*DAMAGE, '["x"]', "[null]", "[99999]", "[1.5]", "{}", "[true]"])
def test_a_generation_whose_anchors_are_damaged_is_not_used(store: Store, anchors: str) -> None:
    force(store, "UPDATE compactions SET anchors = ? WHERE generation = 2", anchors)
    seen = store.compaction.status("a").generation
    assert seen is not None and seen.generation == 1
    proven = store.compaction.verify("a", 2)
    assert (proven.ok, proven.because) == (False, "the anchors of generation 2 cannot be read")
    assert_usable(store)


@pytest.mark.parametrize("column", ["error", "owner"])
@pytest.mark.parametrize("text", DAMAGE)
def test_a_damaged_error_or_owner_stops_nothing(store: Store, column: str, text: str) -> None:
    before = store.messages.context("a")
    force(store, f"UPDATE compactions SET {column} = ?", text)
    assert store.messages.context("a") == before
    assert store.compaction.verify("a", 2).ok
    assert_usable(store)


@pytest.mark.parametrize("text", DAMAGE)
def test_damaged_evidence_of_a_window_leaves_the_number(store: Store, text: str) -> None:
    windows = Windows(store.core)
    windows.declare("qwen3:8b", "http://localhost:11434", 8192)
    force(store, "UPDATE model_windows SET evidence = ?", text)
    assert windows.resolve("qwen3:8b", "http://localhost:11434").tokens == 8192
    asked = store.compaction.compact("a", model="qwen3:8b", endpoint="http://localhost:11434")
    assert asked.window == 8192
