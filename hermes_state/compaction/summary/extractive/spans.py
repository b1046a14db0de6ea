"""The short stretch of a line that is worth its tokens.

Invariant: a span is one verbatim stretch of its line and both its ends are at white space, or at a mark that no value
goes on after, so no value is cut. What repeats at the beginning of log lines (time, level, component) is left off.

Not for: lines of people's own text, which are kept as whole sentences while they are short.
"""

# ruff: noqa: RUF001  (the punctuation of Chinese and Japanese is meant)
from __future__ import annotations

from hermes_state.compaction.summary.extractive.novelty import Line
from hermes_state.compaction.summary.extractive.tokens_of import Token

LONGEST_SPAN = 170      # characters: about 45 tokens of prose
WHOLE_SENTENCE = 150    # a sentence of a person or of the assistant up to this is kept as it is
_LEFT, _RIGHT = 3, 3    # tokens of the same clause that go along for the sense
SHORT_LINE = 90         # a line, or what follows its repeated beginning, up to this is kept as it is
_STALE = 0.15           # novelty of what every line begins with
_CORE = 0.55            # of the highest novelty of the line: what a span must hold
_BREAKS = frozenset("]|);>{}")
_NO_VALUE = frozenset(" \t\"'`()[]{}<>|;，。；：！？、“”「」『』（）【】")


def span_of(line: Line) -> tuple[int, int]:
    """Where the span of `line` begins and ends."""
    text, tokens = line.unit.text, line.tokens
    if not tokens:
        return (0, len(text)) if len(text) <= LONGEST_SPAN else (0, 0)
    if line.unit.json and len(text) <= LONGEST_SPAN:
        return 0, len(text)
    if line.unit.kind in ("user", "assistant", "previous") and len(text) <= WHOLE_SENTENCE:
        return 0, len(text)
    top = max(line.novelty)
    core = [at for at, novelty in enumerate(line.novelty) if novelty >= _CORE * top and novelty > 0]
    if not core:
        core = [0]
    first, last = core[0], core[-1]
    if len(text.strip()) <= SHORT_LINE and not any(n < _STALE for n in line.novelty[:first]):
        first = 0
    if tokens[-1].end - tokens[first].start <= SHORT_LINE:
        last = len(tokens) - 1
    while tokens[last].end - tokens[first].start > LONGEST_SPAN and first < last:
        if line.novelty[first] < line.novelty[last]:
            first = next(at for at in [*core, last] if at > first)
        else:
            last = next(at for at in [*reversed(core), first] if at < last)
    first, last = _with_clause(line, first, last)
    while first > 0 and _glued(text, tokens[first - 1], tokens[first]):
        first -= 1
    while last + 1 < len(tokens) and _glued(text, tokens[last], tokens[last + 1]):
        last += 1
    return _to_edges(text, tokens[first].start, tokens[last].end)


def _glued(text: str, one: Token, two: Token) -> bool:
    """True for two tokens that may be one value: "3 May 2026", "12 GB", "EUR 40", "Ann Lee", "1,234"."""
    gap = text[one.end : two.start]
    if gap not in (" ", ", ", ","):
        return False
    first, second = text[one.start : one.end], text[two.start : two.end]
    digits = any(map(str.isdigit, first)), any(map(str.isdigit, second))
    if gap == ",":
        return digits == (True, True)
    if all(digits):
        return True
    other = second if digits[0] else first
    if any(digits):
        return other[0].isupper() or (digits[0] and len(other) <= 8 and gap == " ")
    return gap == " " and first[0].isupper() and second[0].isupper() and not first.isupper()


def _with_clause(line: Line, first: int, last: int) -> tuple[int, int]:
    text, tokens = line.unit.text, line.tokens
    for _ in range(_LEFT):
        if first == 0 or _broken(text, tokens[first - 1], tokens[first], left=True):
            break
        if tokens[last].end - tokens[first - 1].start > LONGEST_SPAN:
            break
        if tokens[first - 1].value and line.novelty[first - 1] < 0.2:
            break
        first -= 1
    for _ in range(_RIGHT):
        if last + 1 == len(tokens) or _broken(text, tokens[last], tokens[last + 1], left=False):
            break
        if tokens[last + 1].end - tokens[first].start > LONGEST_SPAN:
            break
        last += 1
    return first, last


def _broken(text: str, one: Token, two: Token, *, left: bool) -> bool:
    """True when a clause ends between two tokens."""
    gap = text[one.end : two.start]
    if not gap:
        return False
    if any(mark in _BREAKS for mark in gap) or gap.strip() in ("-", "--", "—", "–", "#", "//"):
        return True
    if left:
        return gap.strip() in (":", ".") or gap.startswith(": ")
    return gap.strip() in (".", ",") or gap.startswith((". ", ", "))


def _to_edges(text: str, start: int, end: int) -> tuple[int, int]:
    """The same stretch, out to marks that no value has within it."""
    for _ in range(60):
        if start == 0 or text[start - 1] in _NO_VALUE or _between(text, start):
            break
        start -= 1
    else:
        while start < end and not text[start - 1].isspace():
            start += 1
    for _ in range(60):
        if end == len(text) or text[end] in _NO_VALUE or _between(text, end):
            break
        end += 1
    else:
        while end > start and not text[end].isspace():
            end -= 1
    while end > start and text[end - 1] in ",;":
        end -= 1
    # A bracket or a quotation mark that the stretch has one half of.
    if start > 0 and text[start - 1] in _PAIRS and _PAIRS[text[start - 1]] in text[start:end]:
        start -= 1
    inside = text[start:end]
    if end < len(text) and any(text[end] == closing and opening in inside for opening, closing in _PAIRS.items()):
        end += 1
    return start, end


_PAIRS = {"(": ")", "[": "]", "<": ">", "「": "」", "（": "）", '"': '"', "'": "'", "`": "`"}


def _between(text: str, at: int) -> bool:
    """True where a run of letters without spaces meets something else, or a comma two words."""
    one, two = text[at - 1], text[at]
    if one in ",=:" and not (two.isdigit() and at > 1 and text[at - 2].isdigit()):
        return one == "," and not two.isdigit()
    return _unspaced(one) != _unspaced(two) or (_unspaced(one) and _unspaced(two))


def _unspaced(mark: str) -> bool:
    return mark > "\u3000" and any(low <= mark <= high for low, high in _RANGES)


_RANGES = [tuple(pair.split("-")) for pair in ("\u3040-\u30ff", "\u3400-\u4dbf", "\u4e00-\u9fff", "\uac00-\ud7af")]
