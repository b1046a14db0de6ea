"""What text a sequence of frames is: the one rule for writer, reader, replay and clients.

Invariant: the text is a function of the frames alone. Applying them one by one, all at once, or in groups gives the
same text, and so does replaying the frames that were made durable (see `streams`). Each content part (`index`) is a
text of its own; the parts in the order of their index, joined without anything between, are the message.

    append   adds its text to the end of its part
    replace  makes its text the part, the empty text too; twice is the second; what is appended after goes after it

A character that is cut in two by the end of an append is one again with the next of its part; until then, and for ever
when it does not come, its half is U+FFFD, as every lone surrogate is.

Frames may come for any part at any time. A frame written before there was an operation or an index is an append to
part 0, and replays as it always did.

Not for: diffs inside a text. A rule in each consumer was rejected: three copies of it disagreed about `replace` in one
gateway, and every client showed the text twice until it was reloaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from hermes_state.conversation.session_rows import scrub
from hermes_state.errors import InvalidInput

Operation = Literal["append", "replace"]


@dataclass(frozen=True, kw_only=True, slots=True)
class TextFrame:
    """One step of a text that is being received."""

    text: str
    # "append": after what the part has; "replace": instead of it
    operation: Operation = "append"
    # which part of the content, from 0
    index: int = 0


class Merged:
    """The text so far. Not safe for threads."""

    def __init__(self) -> None:
        self._parts: dict[int, list[str]] = {}
        # the first half of a character at the end of a part; no frame that can be stored has it
        self._half: dict[int, str] = {}

    def apply(self, frame: TextFrame | Mapping[str, Any]) -> None:
        """Take one frame; a mapping is one as it was stored or sent. Raises `InvalidInput`, and nothing changes."""
        self.take(frame)

    def take(self, frame: TextFrame | Mapping[str, Any]) -> TextFrame | None:
        """Take one frame and give the smallest frame of the same effect, None when it has none.

        That of a `replace` which goes on from the present text is an append of what it adds. Half of a character at
        its end is in the frame that brings the other half.
        """
        frame = frame_of(frame)
        index, half = frame.index, self._half.pop(frame.index, "")
        text = frame.text if frame.operation == "replace" else half + frame.text
        if text and "\ud800" <= text[-1] <= "\udbff":
            self._half[index], text = text[-1], text[:-1]
        text = scrub(text)
        if frame.operation == "append":
            if not text:
                return None
            self._parts.setdefault(index, []).append(text)
            return TextFrame(text=text, index=index)
        present = self._joined(index)
        self._parts[index] = [text]
        if text == present:
            return None
        if present and text.startswith(present):
            return TextFrame(text=text[len(present) :], index=index)
        return TextFrame(text=text, operation="replace", index=index)

    def part(self, index: int) -> str:
        """The text of one part, empty when it has none."""
        return self._joined(index) + ("\ufffd" if index in self._half else "")

    def _joined(self, index: int) -> str:
        pieces = self._parts.get(index)
        if not pieces:
            return ""
        if len(pieces) > 1:
            pieces[:] = ["".join(pieces)]  # so that reading again costs nothing
        return pieces[0]

    @property
    def text(self) -> str:
        """The text of all parts in the order of their index."""
        return "".join([self.part(index) for index in sorted(self._parts.keys() | self._half.keys())])


def merge(frames: Iterable[TextFrame | Mapping[str, Any]]) -> str:
    """The text that the frames make. Raises `InvalidInput` for what is no frame."""
    merged = Merged()
    for frame in frames:
        merged.apply(frame)
    return merged.text


def frame_of(fields: TextFrame | Mapping[str, Any]) -> TextFrame:
    """A frame from its fields `text`, `operation` and `index`, of which only `text` must be there."""
    if isinstance(fields, TextFrame):
        return _checked(fields.text, fields.operation, fields.index)
    return _checked(fields.get("text"), fields.get("operation") or "append", fields.get("index") or 0)


def _checked(text: Any, operation: Any, index: Any) -> TextFrame:
    if not isinstance(text, str):
        raise InvalidInput(f"A frame has a text, not {text!r}.", argument="text")
    if operation not in ("append", "replace"):
        raise InvalidInput(f"A frame's operation is append or replace, not {operation!r}.", argument="operation")
    if isinstance(index, bool) or not isinstance(index, int) or index < 0:
        raise InvalidInput(f"A frame's index is a whole number from 0, not {index!r}.", argument="index")
    return TextFrame(text=text, operation=operation, index=index)
