"""What counts tokens, and how a caller's own way of counting becomes one.

Invariant: a counter has a name, which is recorded with every number it gave, and two counters of one name give the same
number for one text. A count is a whole number from 0.

Not for: messages, which have structure (see `messages`). Taking a bare number of characters per token was rejected: it
is wrong by 2.5 on JSON and by 6 on Chinese, always in the direction that overruns a small window.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from hermes_state.compaction.tokens.estimate import Estimator
from hermes_state.errors import InvalidInput, StateError


@runtime_checkable
class TokenCounter(Protocol):
    """Anything that counts the tokens of a text, under a name that is recorded with the count."""

    @property
    def name(self) -> str:
        """Which tokenizer; the same name means the same counts."""

    def count(self, text: str) -> int:
        """Tokens of a text, from 0."""


def as_counter(count: TokenCounter | Callable[[str], int] | None) -> TokenCounter:
    """A counter: the one that was given, a function in the clothes of one, or the estimator for None.

    A function is named after itself, as `caller:<its name>`. Raises `InvalidInput` for anything else, and for a name
    that is no text. What a caller's counter gives is looked at each time: it raises `InvalidInput`, naming the counter,
    for what is no whole number from 0, for more than `most_tokens`, and for an exception that is not ours.
    """
    if count is None:
        return Estimator()
    if isinstance(count, (Estimator, _Checked)):
        return count
    if isinstance(count, Scaled):
        base = as_counter(count.base)
        return count if base is count.base else Scaled(base=base, factor=count.factor)
    if isinstance(count, TokenCounter):
        name = count.name
        if not isinstance(name, str) or not name:
            raise InvalidInput(f"A token counter has a name, a text, not {name!r:.80}.", argument="count")
        return _Checked(name, count.count)
    if callable(count):
        return _Checked(f"caller:{getattr(count, '__qualname__', type(count).__qualname__)}", count)
    raise InvalidInput(
        f"count is a token counter, a function from text to a number, or None, not {count!r}.", argument="count"
    )


def most_tokens(characters: int) -> int:
    """More tokens than any tokenizer makes of a text of so many characters.

    A character has at most 4 bytes and a byte at most one token; normalisation (NFKC) makes at most 18 characters of
    one, 11 bytes of each byte; the rest is room for what a tokenizer puts around a text.
    """
    return 64 * characters + 1024


def over_of(counter: TokenCounter) -> float:
    """How many times too high a counter may be: above 1.0 for the estimate for which nothing was learned."""
    return counter.over if isinstance(counter, Estimator) else 1.0


class _Checked:
    """A caller's counter; what it gives is looked at before it is used."""

    def __init__(self, name: str, function: Callable[[str], int]) -> None:
        self.name = name
        self._function = function

    def count(self, text: str) -> int:
        """What the counter says. Raises `InvalidInput` when that is no count of this text."""
        try:
            found = self._function(text)
        except StateError:
            raise  # an adapter's own, which says what and where
        except Exception as error:
            raise InvalidInput(
                f"The token counter {self.name} failed on a text of {len(text)} characters: {error!r:.200}",
                hint="Mend the counter, or leave it out: the built-in estimate counts then.", argument="count",
            ) from error
        if type(found) is not int or found < 0:
            raise InvalidInput(
                f"The token counter {self.name} gave {_short(found)} for a text of {len(text)} characters, not a number"
                " from 0.",
                argument="count",
            )
        most = most_tokens(len(text))
        if found > most:
            raise InvalidInput(
                f"The token counter {self.name} gave more tokens for a text of {len(text)} characters than any"
                f" tokenizer makes of it: {_short(found)} instead of at most {most}.",
                argument="count",
            )
        return found


def _short(given: object) -> str:
    # Writing a number of more than 4,300 digits is an error of its own.
    if type(given) is int and abs(given) >= 10**12:
        return "more than 10^12" if given > 0 else "less than -10^12"
    return repr(given)[:80]


@dataclass(frozen=True, kw_only=True)
class Scaled:
    """Another counter times a factor, rounded up; its name says both."""

    # the counter whose numbers are multiplied
    base: TokenCounter
    # real tokens for one counted, 1.0 to 3.0; see `factors`
    factor: float

    def __post_init__(self) -> None:
        """Raises `InvalidInput` for a factor that is no number above 0, or one above 1,000."""
        if type(self.factor) not in (int, float) or not 0 < self.factor <= 1000:
            raise InvalidInput(
                f"factor is a number above 0 and at most 1000, not {self.factor!r:.80}.", argument="factor"
            )

    @property
    def name(self) -> str:
        """The base's name and the factor, as in `estimate*1.37`; the base's name alone when it changes nothing."""
        return self.base.name if self.factor == 1.0 else f"{self.base.name}*{self.factor:.2f}"

    def count(self, text: str) -> int:
        """Tokens of a text."""
        return -int(-self.base.count(text) * self.factor // 1)
