"""How much of a line is news in its own source.

Invariant: what counts is only the source itself. A word is as rare as the share of lines that have it; a value is news
when it is rare *and* what stands before it is not followed by ever new values elsewhere: that is a counter, a time
stamp or an id of a log, whatever it looks like. No list of words that announce a fact is used.

Not for: choosing (see `choose`). Mining templates line by line was rejected: one random name in a line makes a template
of its own, while the words around it stay frequent.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import log

from hermes_state.compaction.summary.extractive.tokens_of import Token, tokens_of
from hermes_state.compaction.summary.extractive.units import Unit

MOST_LINES = 40_000  # distinct lines that are looked into; more are only counted
NEW_VALUE, NEW_WORD = 0.3, 0.55  # novelty from which a token counts as something that a line brings
_EXAMPLES = 3        # lines of one mask that stay candidates; the others differ from them in digits only
_MASK = re.compile(r"[0-9A-Fa-f]{0,40}\d[0-9A-Za-z]{0,40}")
_STEEP = 1.25        # with 400 lines, what more than 120 of them have is no news at all
_RUN = re.compile(r"[^\W_]+")
_HEX = re.compile(r"[0-9a-f]+")
_START = "\n"        # what stands before the first token of a line


@dataclass(slots=True)
class Line:
    """A unit with its tokens and what is new in it."""

    unit: Unit
    tokens: list[Token]
    copies: int               # units of the source with the same mask
    novelty: list[float]      # of each token, 0..1
    last: bool                # the last of those with the same mask
    plain: bool = False       # of a turn without tools
    ends: bool = False        # the first or the last of the assistant's sentences in such a turn
    score: float = 0.0


class Source:
    """What is counted of one source."""

    def __init__(self, units: Iterable[Unit], plain: Collection[int] = ()) -> None:
        """`plain`: places of the messages of turns without tools."""
        masks: Counter[str] = Counter()
        kept: list[tuple[Unit, str]] = []
        seen: set[str] = set()
        self.count = 0
        for unit in units:
            mask = _MASK.sub("0", unit.text)
            masks[mask] += 1
            self.count += 1
            answer = unit.kind == "assistant" and unit.message in plain
            example = masks[mask] <= _EXAMPLES or answer or unit.kind in ("user", "previous")
            if example and len(kept) < MOST_LINES and unit.text not in seen:
                seen.add(unit.text)
                kept.append((unit, mask))
        examples = Counter(mask for _unit, mask in kept)
        newest = {mask: unit.order for unit, mask in kept}
        self.lines = [
            Line(unit, tokens_of(unit.text), masks[mask], [], newest[mask] == unit.order, unit.message in plain)
            for unit, mask in kept
        ]
        final = {line.unit.message: line.unit.position for line in self.lines if line.unit.kind == "assistant"}
        for line in self.lines:
            unit = line.unit
            line.ends = line.plain and unit.kind == "assistant" and unit.position in (0, final[unit.message])
        self.rows: Counter[str] = Counter()     # weighted lines that have a token
        # Weighted values and words of one line that follow a token, by their shape; and those that follow two tokens.
        self.after: Counter[tuple[str, str]] = Counter()
        self.after_two: Counter[tuple[str, str, str]] = Counter()
        weights = [masks[mask] / examples[mask] for _unit, mask in kept]
        for line, weight in zip(self.lines, weights, strict=True):
            for key in {key for token in line.tokens for key in _grams(token)}:
                self.rows[key] += weight if _lasting(key) else 1  # type: ignore[assignment]
        for line, weight in zip(self.lines, weights, strict=True):
            for token, before, earlier in self._contexts(line):
                self.after[before, shape_of(token.key)] += weight  # type: ignore[assignment]
                self.after_two[earlier, before, shape_of(token.key)] += weight  # type: ignore[assignment]
        # The forms of lines: words and values by their shape only. Columns stay the same whatever stands in them.
        self.forms: Counter[str] = Counter()
        for line in self.lines:
            self.forms[form_of(line)] += 1
        for line, weight in zip(self.lines, weights, strict=True):
            if weight > 1:
                self.forms[form_of(line)] += weight - 1  # type: ignore[assignment]
        self.scale = log(max(self.count, 12))

    def rarity(self, count: float) -> float:
        """1.0 for what one line has, falling to 0.0 for what every line has."""
        return max(0.0, 1.0 - _STEEP * log(max(count, 1.0)) / self.scale)

    def weigh(self, line: Line) -> None:
        """Fill in the novelty of each token of `line`."""
        line.novelty = [max(self.rarity(self.rows[key]) for key in _grams(token)) for token in line.tokens]
        if line.plain and line.unit.kind == "assistant":
            return  # what is new after words that were said before is the answer, no counter
        at = 0
        for token, before, earlier in self._contexts(line):
            while line.tokens[at] is not token:
                at += 1
            shape = shape_of(token.key)
            one, two = self.rarity(self.after[before, shape]), self.rarity(self.after_two[earlier, before, shape])
            line.novelty[at] *= 0.5 * one + 0.5 * two

    def _contexts(self, line: Line) -> Iterator[tuple[Token, str, str]]:
        """Each value and each word that only this line has, with what stands before it and before that."""
        before, earlier = _START, _START
        for token in line.tokens:
            if token.value or self.rows[token.key] <= 1:
                yield token, before, earlier
            # A value is no context by itself: what follows "job 17" is as what follows "job 18".
            earlier, before = before, shape_of(token.key) if token.value else token.key


def form_of(line: Line) -> str:
    """The form of a line: its tokens by shape, at most sixteen of them."""
    return " ".join(shape_of(token.key) if token.value else "a" for token in line.tokens[:16])


@lru_cache(maxsize=65_536)
def shape_of(key: str) -> str:
    """What stays of a token when its letters and digits may be any: 10.0.3.4 is 0.0.0.0, a hash is x."""
    return _RUN.sub(_run_of, key[:64])


def _run_of(match: re.Match[str]) -> str:
    run = match[0]
    if run.isalpha():
        return "x" if len(run) >= 6 and _HEX.fullmatch(run) else "a"
    return "0" if run.isdigit() and len(run) < 12 else "x"


def _grams(token: Token) -> list[str]:
    """What is counted of a token: itself, or each two characters of a run without spaces."""
    if token.key.isascii() or len(token.key) < 3 or token.value:
        return [token.key]
    return [token.key[at : at + 2] for at in range(len(token.key) - 1)]


def _lasting(key: str) -> bool:
    """True for a token that the other lines of the same mask have too."""
    return not any(map(str.isdigit, key))
