"""Text of a turn: one rule for what streams, what replays and what is stored. T1.49 to T1.51, R8, R15."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from hermes_state.clock import FakeClock
from hermes_state.conversation.merge import Merged, merge
from hermes_state.store import Store
from hermes_state.testing import temporary_store
from hermes_state.turns import Frame, FrameKind
from hermes_state.turns.frames import revised, text_fields
from tests.hermes_state.turns.conftest import frame

TEXTS = st.text(st.characters(codec="utf-8"), max_size=6)
FRAMES = st.lists(
    st.builds(
        lambda kind, text, index: frame(kind, "t1", text=text, index=index),
        st.sampled_from([FrameKind.CONTENT_DELTA, FrameKind.CONTENT_SNAPSHOT]), TEXTS, st.integers(0, 2),
    ),
    max_size=12,
)


def steps(frames: list[Frame]) -> list[dict[str, object]]:
    return [step for one in frames if (step := text_fields(one)) is not None]


@pytest.fixture(name="one_store", scope="module")
def one_store_for_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, Iterator[int]]]:
    folder: Path = tmp_path_factory.mktemp("texts")
    with temporary_store(folder, clock=FakeClock(folder / "clock.json", now=1_800_000_000.0)) as opened:
        yield opened, itertools.count()


@given(frames=FRAMES, cut=st.integers(0, 12))
@hypothesis_settings(max_examples=60)
def test_t1_49_streaming_view_replay_and_row_are_the_same_text(
    one_store: tuple[Store, Iterator[int]], frames: list[Frame], cut: int
) -> None:
    """T1.49, R15: at every step, after a flush anywhere, and byte for byte at the end."""
    store, numbers = one_store
    session = f"talk {next(numbers)}"
    store.sessions.create(id=session, source="cli")
    stream, view = store.messages.stream(session), Merged()
    stored: list[str] = []
    for number, one in enumerate(frames):
        step = text_fields(one)
        assert step is not None
        view.apply(step)
        stored.append(json.dumps(step))
        if step["operation"] == "replace":
            stream.replace(step["text"], index=step["index"])
        else:
            stream.append(step["text"], index=step["index"])
        if number == cut:
            stream.flush()
        assert view.text == stream.text == merge(json.loads(line) for line in stored)
    if view.text:
        stream.settle()
        (row,) = store.messages.context(session)
        assert str(row["content"]).encode() == view.text.encode()
    else:
        stream.abandon()


def test_t1_50_rows_written_before_there_were_snapshots_replay_as_they_did() -> None:
    """T1.50, R8: no operation, no index."""
    rows = ['{"text": "Hello"}', '{"text": " "}', '{"text": "world"}']
    assert merge(json.loads(row) for row in rows) == "Hello world"
    assert steps([frame(FrameKind.CONTENT_DELTA, "t1", text="a")]) == [{"text": "a", "operation": "append", "index": 0}]
    old = frame(FrameKind.CONTENT_DELTA, "t1", text="b", operation="replace")  # v1 with the optional field
    assert merge(steps([frame(FrameKind.CONTENT_DELTA, "t1", text="a"), old])) == "b"


D, S = FrameKind.CONTENT_DELTA, FrameKind.CONTENT_SNAPSHOT


@pytest.mark.parametrize(
    ("frames", "text"),
    [
        ([(D, "Hello world", 0), (S, "Hello, world!", 0)], "Hello, world!"),  # the case that every client showed twice
        ([(D, "a", 0), (S, "", 0)], ""),
        ([(S, "a", 0), (S, "b", 0)], "b"),
        ([(S, "a", 0), (S, "a", 0)], "a"),
        ([(S, "a", 0), (D, "b", 0)], "ab"),
        ([(S, "", 0), (D, "b", 0)], "b"),
        ([(D, "second", 1), (D, "first ", 0)], "first second"),
        ([(D, "b", 1), (S, "a", 0), (S, "", 1), (D, "c", 2)], "ac"),
        ([(D, "c", 5), (D, "a", 0), (S, "b", 3)], "abc"),
    ],
)
def test_t1_51_the_odd_sequences_have_defined_results(frames: list[tuple[FrameKind, str, int]], text: str) -> None:
    """T1.51."""
    assert merge(steps([frame(kind, "t1", text=part, index=index) for kind, part, index in frames])) == text


@given(texts=st.lists(TEXTS, max_size=8))
@hypothesis_settings(max_examples=100)
def test_what_a_plugin_sends_of_a_cumulative_text_gives_that_text(texts: list[str]) -> None:
    """1.12, the plugin's rule: what it adds, or the whole; the cursor is no part of it."""
    shown, view = "", Merged()
    for text in texts:
        sent = revised(shown, text + "▉", cursor="▉")
        if sent is None:
            assert text == shown
            continue
        step = text_fields(frame(sent[0], "t1", text=sent[1]))
        assert step is not None
        view.apply(step)
        shown = text
        assert view.text == text


def test_frames_that_are_no_text_have_no_step() -> None:
    assert {kind for kind in FrameKind if text_fields(frame(kind, "t1", text="x")) is not None} == {D, S}
