"""One rule makes a text of frames, for whoever reads them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_state.conversation.merge import Merged, TextFrame, frame_of, merge
from hermes_state.errors import InvalidInput

FRAMES = st.lists(
    st.builds(
        TextFrame, text=st.text(alphabet="ab語\0\n", max_size=6), operation=st.sampled_from(["append", "replace"]),
        index=st.integers(0, 3),
    ),
    max_size=20,
)


def append(text: str, index: int = 0) -> TextFrame:
    return TextFrame(text=text, index=index)


def replace(text: str, index: int = 0) -> TextFrame:
    return TextFrame(text=text, operation="replace", index=index)


def test_a_revised_text_is_shown_once_t1_49() -> None:
    assert merge([append("Hello world"), replace("Hello, world!")]) == "Hello, world!"


def test_replace_with_empty_text_empties_the_part_t1_51() -> None:
    assert merge([append("draft"), replace("")]) == ""


def test_replace_twice_is_the_second_t1_51() -> None:
    assert merge([append("a"), replace("b"), replace("c")]) == "c"


def test_append_after_replace_goes_after_it_t1_51() -> None:
    assert merge([append("a"), replace("b"), append("c")]) == "bc"


def test_parts_are_joined_by_their_index_whatever_order_they_came_in_t1_51() -> None:
    assert merge([append("third", 2), append("first", 0), append("second", 1), replace("1st", 0)]) == "1stsecondthird"


def test_frames_from_before_there_was_an_operation_replay_unchanged_t1_50() -> None:
    old: list[dict[str, Any]] = [{"text": "Hel"}, {"text": "lo", "operation": None}, {"text": "!", "index": None}]

    assert merge(old) == "Hello!"


@given(FRAMES)
def test_the_streaming_view_is_the_replayed_view_at_every_point_t1_49(frames: list[TextFrame]) -> None:
    live = Merged()
    for number, frame in enumerate(frames, 1):
        live.apply(frame)
        assert live.text == merge(frames[:number])


@given(FRAMES, st.data())
def test_it_does_not_matter_where_the_frames_are_split(frames: list[TextFrame], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(frames)))
    live = Merged()
    for frame in frames[:at]:
        live.apply(frame)
    _ = live.text, live.part(0)
    for frame in frames[at:]:
        live.apply(frame)

    assert live.text == merge(frames)


@given(FRAMES)
def test_the_smallest_frames_of_the_same_effect_make_the_same_text(frames: list[TextFrame]) -> None:
    live = Merged()
    small = [kept for frame in frames if (kept := live.take(frame)) is not None]

    assert merge(small) == merge(frames) == live.text
    assert sum(len(frame.text) for frame in small) <= sum(len(frame.text) for frame in frames)


def test_a_replace_that_goes_on_from_the_text_is_kept_as_what_it_adds() -> None:
    live = Merged()
    live.apply(append("Hello"))

    assert live.take(replace("Hello, world")) == append(", world")
    assert live.take(replace("Hello, world")) is None
    assert live.take(append("")) is None
    assert live.take(replace("Bye")) == replace("Bye")


@given(FRAMES)
def test_a_frame_and_its_fields_are_the_same(frames: list[TextFrame]) -> None:
    assert [frame_of({"text": f.text, "operation": f.operation, "index": f.index}) for f in frames] == frames


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "A frame has a text, not None."),
        ({"text": "a", "operation": "insert"}, "A frame's operation is append or replace, not 'insert'."),
        ({"text": "a", "index": -1}, "A frame's index is a whole number from 0, not -1."),
        ({"text": "a", "index": True}, "A frame's index is a whole number from 0, not True."),
    ],
)
def test_what_is_no_frame_is_refused_and_changes_nothing(fields: dict[str, Any], message: str) -> None:
    live = Merged()
    live.apply(append("kept"))

    with pytest.raises(InvalidInput) as caught:
        live.apply(fields)

    assert str(caught.value) == message
    assert live.text == "kept"
