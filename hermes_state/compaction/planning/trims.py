"""How long a body is shown when it may take a certain number of tokens.

Invariant: a body that may take more is never shown shorter, whatever counts the tokens: lengths come from one fixed
ladder, and a rung is out of reach as soon as one below it was too dear. What is shown is within the limit, unless even
the one line that says what is missing is over it.

Not for: sharing a limit out among bodies (see `sizes`). Searching the length by halving was rejected: a tokenizer need
not count more for a longer text, and then a larger limit can end at a shorter one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hermes_state.compaction.blobs import is_json, marked, size_of
from hermes_state.compaction.clips import PARSED_CHARACTERS, BodyClip, head_and_tail, shortened
from hermes_state.compaction.planning.bodies import PLACE, Body, count_of, text_of
from hermes_state.compaction.tokens import TokenCounter

_FIRST_RUNG = 96
# Below it only the beginning is shown: of a result whose part is hardly more than its mark, what it begins with tells
# more than the mark alone.
_HEADS = (24, 48)
# Each rung is a fifth longer than the one before: the text shown is on average a tenth shorter than it might be, and
# all that is counted on the way is six times what is shown.
_GROWTH = (6, 5)


def ladder(longest: int) -> Iterator[int]:
    """Characters kept, ascending, below `longest`."""
    yield from (kept for kept in _HEADS if kept < longest)
    kept = _FIRST_RUNG
    while kept < longest:
        yield kept
        kept = kept * _GROWTH[0] // _GROWTH[1]


def trim(body: Body, limit: int, counter: TokenCounter, *, spare: bool) -> BodyClip | None:
    """How a body is shown within `limit` tokens; None when it stays as it is.

    `spare`: the body is one that the model has just asked for or was asked about, so that a beginning and an end of
    JSON are worth more to it than a line that names the keys.
    """
    as_it_is = BodyClip(path=body.path, kind="blobs") if body.blobs else None
    if body.whole <= limit or body.least >= body.whole:
        return as_it_is
    line = BodyClip(path=body.path, kind="mark")
    if body.sort == "data":
        return line
    if body.sort == "text":
        text = text_of(body.value)
        if not spare and is_json(text) and count_of(shortened(body.value, line, PLACE), counter) <= limit:
            return line
        chosen = BodyClip(path=body.path, kind="text")
        text, size = marked(text, PLACE), size_of(text)
    elif body.length > PARSED_CHARACTERS:
        return line
    else:
        chosen = line
    for kept in ladder(body.length):
        head = kept if kept < _FIRST_RUNG else kept * 2 // 3
        if body.sort == "text":
            following = BodyClip(path=body.path, kind="text", head=head, tail=kept - head)
            shown: Any = head_and_tail(text, head, kept - head, PLACE, size)
        else:
            following = BodyClip(path=body.path, kind="strings", head=head, tail=kept - head)
            shown = shortened(body.value, following, PLACE)
        if count_of(shown, counter) > limit:
            break
        chosen = following
    return chosen
