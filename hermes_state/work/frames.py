"""The frames of one streamed reply, in memory: each is the whole text so far, and goes on from the one before.

Invariant: frame N is a beginning of frame N+1, so that what a platform appends is exactly what is new. A frame that is
no such extension is refused and changes nothing; one that says the same again has nothing new. Nothing of a frame is
stored: after a restart the platform's message is edited instead (see `streams`).

Not for: the final, which may be another text and is declared with `Streams.finish`. Sending the whole frame again when
it does not fit was rejected: platforms that append show it twice.
"""

from __future__ import annotations

from hermes_state.errors import InvalidInput, NotAnExtension


class Frames:
    """The frames of one reply. For one thread."""

    def __init__(self) -> None:
        self._text = ""

    @property
    def text(self) -> str:
        """All of the newest frame; "" before the first."""
        return self._text

    def extend(self, frame: str) -> str:
        """Take the next frame; gives what is new in it, "" when nothing is. Raises `NotAnExtension`, `InvalidInput`.

        What makes a frame no extension: a fence that is closed for every tick, a cursor at the end, markup that is
        converted anew, text that begins again after a tool. None of it belongs into a frame.
        """
        if not isinstance(frame, str):
            raise InvalidInput(f"A frame is a text, not {type(frame).__name__}.", argument="frame")
        if not frame.startswith(self._text):
            at = next(
                (place for place, (old, new) in enumerate(zip(self._text, frame, strict=False)) if old != new),
                len(frame),
            )
            raise NotAnExtension(
                f"A frame of {len(frame):,} characters does not go on from the one before it: they differ at character"
                f" {at:,} of {len(self._text):,}.",
                hint="Send what the model said so far, unchanged; what is to look different belongs into the final.",
                at=at, length=len(self._text),
            )
        new = frame[len(self._text):]
        self._text = frame
        return new
