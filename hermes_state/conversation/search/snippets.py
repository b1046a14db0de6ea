"""The part of a text that is shown for a hit.

Invariant: a snippet is cut from the canonical text and nothing is added but the caller's markers and an ellipsis where
it was cut; it is one line. Not for: terminals (control characters stay; the command line makes them safe). FTS5's own
`snippet()` was rejected: the index holds no text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hermes_state.conversation.search.query import Term
from hermes_state.conversation.search.text import CJK_RUN, fold, fold_positions

WORDS_BEFORE, WORDS_AFTER = 10, 30
_NEAR = 240  # characters within which matches of several terms are shown together
_REACH = 600  # characters looked at on each side of the match
_TERMS = 12
_WORD = re.compile(f"{CJK_RUN.pattern[:-1]}|(?:(?!{CJK_RUN.pattern[:-1]})\\S)+")  # a CJK character is one


def snippet(text: str, terms: Sequence[Term], markers: tuple[str, str]) -> str:
    """About 40 words of `text` where most of the terms are, each match between the markers."""
    terms = terms[:_TERMS]
    folded = fold(text)
    first = [found[0] for term in terms if (found := term.find(folded)) is not None]
    at = first[0] if len(first) == 1 else max(
        first, key=lambda start: (sum(start <= other < start + _NEAR for other in first), -start), default=0
    )
    if len(folded) != len(text):
        at = fold_positions(text)[at]
    start, end = _window(text, at)
    shown = _mark(text[start:end], terms, markers)
    return ("\u2026" if start > 0 else "") + shown + ("\u2026" if end < len(text) else "")


def _window(text: str, at: int) -> tuple[int, int]:
    """Begin and end of what is shown around position `at`."""
    low, high = max(0, at - _REACH), min(len(text), at + _REACH)
    around = text[low:high]
    if around.isascii() or CJK_RUN.search(around) is None:
        before, after = around[: at - low].rsplit(None, WORDS_BEFORE), around[at - low :].split(None, WORDS_AFTER)
        start = low + len(before[0]) if len(before) > WORDS_BEFORE else low
        end = high - len(after[-1]) if len(after) > WORDS_AFTER else high
    else:
        words = list(_WORD.finditer(around))
        here = next((number for number, word in enumerate(words) if word.end() > at - low), len(words) - 1)
        start = low + words[max(0, here - WORDS_BEFORE)].start()
        end = low + words[min(len(words) - 1, here + WORDS_AFTER)].end()
    # Space at the ends of the text is not worth an ellipsis.
    if start < _REACH and not text[:start].strip():
        start = 0
    if len(text) - end < _REACH and not text[end:].strip():
        end = len(text)
    return start, end


def _mark(text: str, terms: Sequence[Term], markers: tuple[str, str]) -> str:
    folded = fold(text)
    spans = sorted([span for term in terms for span in term.spans(folded)])
    places = range(len(text) + 1) if text.isascii() else fold_positions(text)
    shown: list[str] = []
    done = 0
    for start, end in _joined(spans):
        begin, stop = places[start], places[end]
        shown += [text[done:begin], markers[0], text[begin:stop], markers[1]]
        done = stop
    shown.append(text[done:])
    return " ".join("".join(shown).split())


def _joined(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for start, end in spans:
        if found and start < found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found
