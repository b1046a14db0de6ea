"""T6.6: a frame that does not go on from the one before is refused."""

from __future__ import annotations

import pytest

from hermes_state.errors import InvalidInput, NotAnExtension
from hermes_state.work.frames import Frames


def test_each_frame_gives_what_is_new_in_it() -> None:
    frames = Frames()
    assert [frames.extend(text) for text in ("He", "Hello", "Hello", "Hello, you")] == ["He", "llo", "", ", you"]
    assert frames.text == "Hello, you"


@pytest.mark.parametrize(
    ("frame", "at"),
    [("Hexe", 2), ("H", 1), ("", 0), ("Hello\n```", 5)],
    ids=["another text", "a shorter one", "an empty one", "a fence that was closed for one tick"],
)
def test_a_frame_that_is_no_extension_is_refused_and_changes_nothing(frame: str, at: int) -> None:
    """T6.6."""
    frames = Frames()
    frames.extend("Hello ```")
    with pytest.raises(NotAnExtension) as caught:
        frames.extend(frame)
    assert str(caught.value) == (
        f"A frame of {len(frame)} characters does not go on from the one before it: they differ at character {at} of 9."
    )
    assert caught.value.facts == {"at": at, "length": 9}
    assert frames.text == "Hello ```"
    assert frames.extend("Hello ```x") == "x"


def test_a_frame_is_a_text() -> None:
    with pytest.raises(InvalidInput) as caught:
        Frames().extend(b"Hello")  # type: ignore[arg-type]
    assert str(caught.value) == "A frame is a text, not bytes."
