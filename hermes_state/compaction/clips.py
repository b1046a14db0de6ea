"""Bodies shown shortened: head, tail, and how to get the whole again.

Invariant: `clipped` is a pure function of a message, a clip and a place, so a clipped row reads the same in every
request until the next pass; the stored row is never touched. What is shown is always shorter or nothing but a mark that
says what is missing, how large it was, and `recover(seq)`. Arguments of a call stay JSON.

A clip holds lengths, not text: applied to a row that an earlier clip already shortened it keeps the same head and tail
as applied to the whole. Storing the shortened text was rejected: it would be a second copy of content that a deletion
has to find.

Not for: choosing lengths (see `planning/trims`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from hermes_state.compaction.blobs import BYTES, marked, size_of, text_in, what_it_is
from hermes_state.errors import InvalidInput

Kind = Literal["blobs", "text", "strings", "mark"]
KINDS: tuple[Kind, ...] = ("blobs", "text", "strings", "mark")
# Parsing what a call was given costs time at every rendering; longer arguments are left out whole.
PARSED_CHARACTERS = 200_000


@dataclass(frozen=True, kw_only=True)
class BodyClip:
    """How one body of a message is shown."""

    path: tuple[str | int, ...]
    """Keys and indexes from the message to the body, as `("content", 0, "text")`."""
    kind: Kind
    """`blobs`: whole, but for encoded data in it. `text`: then its head and tail. `strings`: JSON, each long string in
    it cut to head and tail. `mark`: one line instead of it."""
    head: int = 0
    """Characters kept from the beginning, for `text` and `strings`."""
    tail: int = 0
    """Characters kept from the end."""


@dataclass(frozen=True, kw_only=True)
class Clip:
    """How one message is shown shortened; bodies that are not named stay whole."""

    bodies: tuple[BodyClip, ...]
    """One for each body that is shortened, in the order of the message."""

    def to_json(self) -> str:
        """One line of JSON, the same for equal clips."""
        return json.dumps(
            [[list(body.path), body.kind, body.head, body.tail] for body in self.bodies], separators=(",", ":")
        )

    @classmethod
    def from_json(cls, text: str) -> Clip:
        """The clip that `to_json` wrote; `InvalidInput` for anything else that a caller gives."""
        found = cls.read(text)
        if found is None:
            raise InvalidInput(f"This is no clip of a message: {text[:80]!r}.", argument="text")
        return found

    @classmethod
    def read(cls, text: str) -> Clip | None:
        """The clip that stands in a row; None when the row is damaged, which is nobody's input."""
        try:
            items = json.loads(text)
            bodies = tuple(
                BodyClip(path=_path(path), kind=kind, head=head, tail=tail) for path, kind, head, tail in items
            )
        except (ValueError, TypeError, RecursionError):
            return None
        for body in bodies:
            numbers = all(type(number) is int and number >= 0 for number in (body.head, body.tail))
            if body.kind not in KINDS or not numbers or not body.path:
                return None
        return cls(bodies=bodies)


def clipped(message: Mapping[str, Any], clip: Clip, *, seq: int | None = None) -> dict[str, Any]:
    """A copy of a message as the clip shows it; the message itself is not changed.

    `seq`: the number by which `recover` finds the message; without one the mark says `recover(seq)`. A body that the
    message no longer has, or that is not of the kind that the clip was made for, stays as it is.
    """
    shown: dict[str, Any] = dict(message)
    for body in clip.bodies:
        shown = _replaced(shown, body.path, body, "seq" if seq is None else str(seq))
    return shown


def joined(earlier: Clip | None, later: Clip | None) -> Clip | None:
    """One clip for a row that was shown by `earlier` when `later` was made from what was shown; None for two Nones.

    A body that `later` does not name stays as `earlier` shows it.
    """
    if earlier is None or later is None:
        return later or earlier
    named = {body.path for body in later.bodies}
    bodies = (*(body for body in earlier.bodies if body.path not in named), *later.bodies)
    return Clip(bodies=tuple(sorted(bodies, key=lambda body: [str(key).rjust(12) for key in body.path])))


def _replaced(value: Any, path: tuple[str | int, ...], body: BodyClip, place: str) -> Any:
    if not path:
        return shortened(value, body, place)
    key, rest = path[0], path[1:]
    if isinstance(value, Mapping):
        if key == 0 and type(key) is int:
            # A content that is one part: it was planned on where a summary stood before it in a list.
            return _replaced(value, rest, body, place)
        return {**value, key: _replaced(value[key], rest, body, place)} if key in value else value
    if isinstance(value, list) and isinstance(key, int) and key < len(value):
        return [*value[:key], _replaced(value[key], rest, body, place), *value[key + 1 :]]
    return value


def shortened(value: Any, body: BodyClip, place: str) -> Any:
    """One body as the clip of it shows it; `place` stands in the call of `recover`."""
    last = body.path[-1]
    arguments = last in ("arguments", "input")
    kind = body.kind
    if isinstance(value, BYTES) and kind != "mark":
        # Planned on where the bytes stood joined with a summary, as text; what is no text is never shown by itself.
        found = text_in(value)
        kind, value = ("mark", value) if found is None else (kind, found)
    if kind == "mark":
        line = f"[{what_it_is(value)} left out; recover({place}) returns it]"
        if arguments:
            return json.dumps({"left_out": line}) if isinstance(value, str) else {"left_out": line}
        # A part stays a part; a whole content becomes a text, which every provider takes.
        return {"type": "text", "text": line} if type(last) is int and not isinstance(value, str) else line
    if body.kind == "strings" and (arguments or isinstance(value, Mapping)):
        return _short_strings(value, body, place)
    if body.kind == "blobs" and isinstance(value, Mapping):
        return _walk(value, body, place)
    if body.kind == "strings" or not isinstance(value, str):
        return value
    text = marked(value, place)
    return text if body.kind == "blobs" else head_and_tail(text, body.head, body.tail, place, size_of(value))


def head_and_tail(text: str, head: int, tail: int, place: str, size: str) -> str:
    """The first and the last characters of a text, and between them how much is missing; the text when that is longer.

    `size`: what is told of the size of all of it, from before encoded data in it became marks. A beginning without an
    end has a shorter mark, so that it costs hardly more than a mark alone.
    """
    if head and not tail:
        after = f" [... {len(text) - head:,} characters left out; recover({place}) returns all]"
        return text if head + len(after) >= len(text) else text[:head] + after
    between = f"\n[... {len(text) - head - tail:,} characters left out of {size}; recover({place}) returns all ...]\n"
    if head + tail + len(between) >= len(text):
        return text
    return text[:head] + between + text[len(text) - tail :]


def _short_strings(value: Any, body: BodyClip, place: str) -> Any:
    """JSON arguments with long strings shortened, in the form they came in, text or object."""
    if isinstance(value, str):
        if len(value) > PARSED_CHARACTERS:  # no clip of this kind is made for it
            return value
        try:
            return json.dumps(_walk(json.loads(value), body, place), ensure_ascii=False)
        except (ValueError, RecursionError):
            return value
    return _walk(value, body, place)


def _walk(value: Any, body: BodyClip, place: str) -> Any:
    if isinstance(value, str):
        text = marked(value, place)
        return text if body.kind == "blobs" else head_and_tail(text, body.head, body.tail, place, size_of(value))
    if isinstance(value, list):
        return [_walk(item, body, place) for item in value]
    if isinstance(value, Mapping):
        return {key: _walk(item, body, place) for key, item in value.items()}
    return value


def _path(value: Any) -> tuple[str | int, ...]:
    if not isinstance(value, list) or any(type(key) not in (str, int) for key in value):
        raise TypeError("a path is a list of keys and indexes")
    return tuple(value)
