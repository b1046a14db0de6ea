"""What a summariser gave, made fit to stand in a view, or replaced.

Invariant: whatever comes in, what goes out is a text about *this* source that is within the budget by the caller's
counter. What cannot be used (nothing, an error, reasoning only, bytes that are no text, an echo, a text that could be
of any conversation, the summary before it once more, one larger than what it stands for) is replaced by the extractive
summary, and a note says why. No message leaves a view for a constant string.

Not for: judging how good a summary is. Asking the model again was rejected: a small local model that failed takes a
minute to fail again, while the replacement takes milliseconds.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from hermes_state.compaction.summary.cleaning import printable, unwrapped, without_reasoning, without_repeats
from hermes_state.compaction.summary.extractive import extractive
from hermes_state.compaction.summary.extractive.tokens_of import tokens_of
from hermes_state.compaction.summary.extractive.units import texts_of
from hermes_state.compaction.summary.prompts import GENERIC_WORDS, INSTRUCTION
from hermes_state.compaction.tokens import as_counter, message_tokens

if TYPE_CHECKING:
    from hermes_state.compaction.tokens import TokenCounter

_MOST_LOOKED_AT = 4_000_000   # characters of a source that an answer is compared with
_WINDOW = 12                  # words; so many in a row are a copy
_WINDOWS = 16                 # places of an answer that are looked for in the source
_LEAST_WORDS = 4              # an answer of fewer words says nothing about a conversation
_WORD = re.compile(r"\w+")
# Percent of an answer that may be no text. Bytes that are none have 10 to 60, however they were decoded; a model that
# breaks off within a character, or writes one that is newer than this Python, has less than one.
_MOST_GARBLED = 5
_NO_TEXT = frozenset({"Cc", "Cn", "Co", "Cs"})
# An answer with so many words and values of its own shares at least one in a hundred of them with its source.
_MANY = 100


@dataclass(frozen=True, kw_only=True)
class Checked:
    """A summary that may stand in a view."""

    text: str                              # within the budget; empty only when the source has no text that fits it
    form: Literal["model", "extractive"]   # extractive: what the summariser gave could not be used
    notes: tuple[str, ...]                 # what was wrong with it, for people: "code: detail"; empty when nothing was


def checked(
    text: object, *, source: Sequence[dict[str, Any]], budget: int,
    counter: TokenCounter | Callable[[str], int] | None = None, previous: str | None = None,
) -> Checked:
    """`text`, which is whatever the summariser returned or the exception it raised, as a summary of `source`.

    `previous` is the summary of what was before `source`, which the new one is to contain; `budget` is a hard limit in
    tokens of `counter`. Raises nothing of its own; errors of the counter are the caller's.
    """
    counting = as_counter(counter)
    notes: list[str] = []
    usable = _usable(text, source, budget, counting, previous, notes)
    if usable is not None:
        return Checked(text=usable, form="model", notes=tuple(notes))
    replacement = extractive(source, budget=budget, counter=counting, previous=previous)
    if not replacement:
        replacement = cut_at_line(previous or _inventory(source), budget, counting.count)
    return Checked(text=replacement, form="extractive", notes=tuple(notes))


def _usable(
    text: object, source: Sequence[dict[str, Any]], budget: int, counting: TokenCounter, previous: str | None,
    notes: list[str],
) -> str | None:
    if isinstance(text, BaseException):
        notes.append(f"summarizer_failed: {type(text).__name__}: {printable(str(text))[:300]}")
        return None
    if not isinstance(text, str):
        notes.append(f"wrong_type: the summariser returned {type(text).__name__}, not text")
        return None
    if not text.strip():
        notes.append("empty: the summariser returned no text")
        return None
    # A text many times the budget is cut anyway: looking at all of it would only take time.
    bare = printable(text[: max(20_000, 64 * budget)])
    bare = unwrapped(without_reasoning(bare))
    if not bare:
        notes.append("reasoning_only: nothing is left without the reasoning")
        return None
    single = without_repeats(bare)
    if len(single) < len(bare) * 0.9:
        notes.append(f"repeated_lines: {len(bare) - len(single)} characters left out")
    why = _wrong(single, source, previous)
    if why is not None:
        notes.append(why)
        return None
    tokens = counting.count(single)
    if tokens > budget:
        whole, single = tokens, cut_at_line(single, budget, counting.count)
        notes.append(f"too_large: {whole} tokens, cut to {budget}")
        if len(_WORD.findall(single)) < _LEAST_WORDS:
            return None
        # What it said about the conversation may have been in what was cut off.
        why = _wrong(single, source, previous)
        if why is not None:
            notes.append(why)
            return None
        tokens = counting.count(single)
    stood_for = sum(message_tokens(message, counting) for message in source) + counting.count(previous or "")
    if tokens > stood_for:
        notes.append(f"larger_than_source: {tokens} tokens for {stood_for}")
        return None
    return single


def _wrong(text: str, source: Sequence[dict[str, Any]], previous: str | None) -> str | None:
    """Why `text` is no summary of `source`; None when it may be one."""
    strange = 0 if text.isascii() else sum(  # printable() has taken out the control characters of ASCII
        mark == "\ufffd" or (not mark.isascii() and unicodedata.category(mark) in _NO_TEXT) for mark in text
    )
    if strange * 100 > len(text) * _MOST_GARBLED:
        return f"garbled: {strange} of {len(text)} characters are no text"
    words = [word.lower() for word in _WORD.findall(text)]
    if len(words) < _LEAST_WORDS and text.isascii():
        return f"too_short: {len(words)} words"
    if len(words) > 100 and len(set(words)) < len(words) * 0.08:
        return "degenerate: the same few words over and over"
    if previous is not None and words == [word.lower() for word in _WORD.findall(previous)]:
        return "unchanged: the summary before it once more"
    spoken = "\n".join(piece.text for piece in texts_of(source))[:_MOST_LOOKED_AT]
    if _echoes(words, spoken):
        return "echo: the conversation or the instruction once more"
    if _is_constant(text, spoken + "\n" + (previous or "")):
        return "constant: nothing in it is about this conversation"
    return None


def _echoes(words: list[str], spoken: str) -> bool:
    """True when most places of the answer are copied from the source, or from the instruction, word for word."""
    if len(words) < _WINDOW:
        return False
    hay = " ".join(_WORD.findall((INSTRUCTION + "\n" + spoken).lower()))
    last = len(words) - _WINDOW
    places = sorted({last * number // (_WINDOWS - 1) for number in range(_WINDOWS)})
    copied = sum(1 for at in places if " ".join(words[at : at + _WINDOW]) in hay)
    return copied >= 0.75 * len(places)


def _is_constant(text: str, spoken: str) -> bool:
    """True when the answer shares no identifier and hardly a word with a source that has some.

    A digit or two is no identifier: noise has them, and so has a sentence about nothing.
    """
    own = set(_specific(spoken))
    if len(own) < 5:
        return False
    said = list(_specific(text))
    again = [key for key in said if key in own and (len(key) > 2 or not key.isascii())]
    if len(said) >= _MANY and len(again) * 100 < len(said):
        return True
    shared = set(again)
    return len(shared) < 2 and not any(any(map(str.isdigit, key)) for key in shared)


def _specific(text: str) -> Iterator[str]:
    """Values, and words that not every conversation has; a run without spaces gives each two characters of it."""
    for line in text.split("\n"):
        for token in tokens_of(line):
            if token.value or (token.key.isascii() and len(token.key) >= 4 and token.key not in GENERIC_WORDS):
                yield token.key
            elif not token.key.isascii():
                yield from (token.key[at : at + 2] for at in range(max(1, len(token.key) - 1)))


def cut_at_line(text: str, budget: int, count: Callable[[str], int]) -> str:
    """The longest beginning of `text` within `budget` tokens: whole lines, or whole words of a first line too long."""
    for parts, joint in ((text.split("\n"), "\n"), (text.split("\n")[0].split(" "), " ")):
        low, high = 0, len(parts)
        while low < high:
            middle = (low + high + 1) // 2
            if count(joint.join(parts[:middle])) <= budget:
                low = middle
            else:
                high = middle - 1
        while low > 0 and count(joint.join(parts[:low]).rstrip()) > budget:
            low -= 1
        kept = joint.join(parts[:low]).rstrip()
        if kept:
            return kept
    return ""


def _inventory(source: Sequence[dict[str, Any]]) -> str:
    """What there was, when no text of it can be kept: images only, or lines longer than the budget."""
    roles: dict[str, int] = {}
    for message in source:
        role = str(message.get("role", "unknown"))
        roles[role] = roles.get(role, 0) + 1
    return f"{len(source)} messages (" + ", ".join(f"{count} {role}" for role, count in roles.items()) + ")"
