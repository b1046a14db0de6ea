"""The learned factor: how many real tokens of a model one counted token is.

Invariant: 1.0 to 3.0, and no single report moves it far. Each usable report moves the factor towards what it says, by a
step that shrinks with the number of reports; so a factor follows the middle of what is reported, and one absurd report
costs one step. A report without a number that a request can have, one of a request that was cut, one of a request too
small to tell, and one of more than `MOST_RATIO` times what was counted are not learned from.

Not for: windows. The mean of the ratios was rejected: one reply with a picture in it moved it for weeks. Going below
1.0 was rejected: a counter that is too high wastes room, one that is too low loses the conversation's beginning.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from hermes_state.compaction.tokens.counters import Scaled, TokenCounter
from hermes_state.compaction.windows.endpoints import endpoint_key
from hermes_state.compaction.windows.records import LARGEST as LARGEST_REQUEST
from hermes_state.compaction.windows.records import Truncation
from hermes_state.compaction.windows.shortfall import prompt_tokens, truncated
from hermes_state.engine import Reader, Transaction
from hermes_state.errors import InvalidInput

if TYPE_CHECKING:
    from hermes_state.engine.core import Core

SMALLEST, LARGEST = 1.0, 3.0
# Below it the chat template is a large part of the request, and the ratio says nothing about text.
_LEAST_COUNTED = 256
# More real tokens for one counted are no property of a text: characters by four are 6 times too low on Chinese and 12
# on emoji, the worst that was measured of a counter. It is another request's number, or no number at all.
MOST_RATIO = 16
# The first step is at most times or divided by 1.5, later ones shrink with the root of the number of reports, to 4 %.
_FIRST_STEP, _LAST_STEP = math.log(1.5), math.log(1.04)

Verdict = Literal["learned", "not_reported", "too_small", "truncated", "implausible"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Factor:
    """A factor and what it rests on."""

    # real tokens for one counted
    factor: float
    # reports that it was learned from; 0: none yet
    samples: int
    # epoch seconds of the last one; None before
    updated_at: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Lesson:
    """What became of one report."""

    verdict: Verdict
    factor: Factor
    # tokens of the prompt by the server's count; None: it did not say
    reported: int | None
    # the cut that the report shows, when that is the verdict
    truncation: Truncation | None = None


def stepped(factor: float, samples: int, ratio: float) -> float:
    """The factor after one more report. Pure.

    `ratio`: reported by counted tokens, of any size; `samples`: reports before this one.
    """
    target = math.log(min(max(ratio, SMALLEST), LARGEST))
    step = max(_FIRST_STEP / math.sqrt(samples + 1), _LAST_STEP)
    here = math.log(factor)
    moved = math.exp(here + min(max(target - here, -step), step))
    return min(max(moved, SMALLEST), LARGEST)


def valid_counted(counted: object) -> int:
    """A number of tokens that a request may have been counted to have. Raises `InvalidInput` for anything else."""
    if type(counted) is not int or counted < 0:
        raise InvalidInput(f"counted is a whole number from 0, not {counted!r:.80}.", argument="counted")
    if counted > LARGEST_REQUEST:
        raise InvalidInput(
            f"counted is more tokens than a request can have: at most {LARGEST_REQUEST}.", argument="counted"
        )
    return counted


def factor_of(reader: Reader, model: str, endpoint: str, tokenizer: str) -> Factor:
    """The factor of a tokenizer's counts for a model at an endpoint; 1.0 with no samples when none was learned."""
    if _has_table(reader):
        row = reader.row(
            "SELECT factor, samples, updated_at FROM token_factors WHERE model = ? AND endpoint = ? AND tokenizer = ?",
            (model, endpoint_key(endpoint), tokenizer),
        )
        if row is not None:
            return Factor(factor=row[0], samples=row[1], updated_at=row[2])
    return Factor(factor=1.0, samples=0, updated_at=None)


def factors_of(reader: Reader, model: str, endpoint: str) -> tuple[tuple[str, Factor], ...]:
    """All factors learned for a model at an endpoint, by tokenizer, the best supported first."""
    if not _has_table(reader):
        return ()
    return tuple(
        (tokenizer, Factor(factor=factor, samples=samples, updated_at=updated_at))
        for tokenizer, factor, samples, updated_at in reader.rows(
            "SELECT tokenizer, factor, samples, updated_at FROM token_factors WHERE model = ? AND endpoint = ?"
            " ORDER BY samples DESC, tokenizer", (model, endpoint_key(endpoint)),
        )
    )


def learn(
    tx: Transaction, model: str, endpoint: str, tokenizer: str, counted: int, usage: Mapping[str, Any] | int | None, *,
    at: float, window: int | None = None,
) -> Lesson:
    """Learn from one answered request, or say why nothing can be learned from it.

    `tokenizer`: the name of the counter without any factor. `counted`: the whole request by it (system prompt, tools,
    messages). `usage`: the server's, in any of the shapes of `prompt_tokens`, or the number itself. `window`: what was
    thought to be the window, which makes a cut easier to see. `at`: epoch seconds. Raises `InvalidInput`.
    """
    valid_counted(counted)
    if not model or not tokenizer:
        raise InvalidInput("A factor belongs to a model and a tokenizer; one of them has no name.", argument="model")
    key = endpoint_key(endpoint)
    before = factor_of(tx, model, key, tokenizer)
    reported = (usage if usage > 0 else None) if type(usage) is int else prompt_tokens(
        usage if isinstance(usage, Mapping) else None
    )
    if reported is None or reported > LARGEST_REQUEST:
        return Lesson(verdict="not_reported", factor=before, reported=None)
    cut = truncated(math.ceil(counted * before.factor), reported, window=window)
    if cut is not None:
        return Lesson(verdict="truncated", factor=before, reported=reported, truncation=cut)
    if counted < _LEAST_COUNTED:
        return Lesson(verdict="too_small", factor=before, reported=reported)
    if reported > MOST_RATIO * counted:
        return Lesson(verdict="implausible", factor=before, reported=reported)
    after = Factor(
        factor=stepped(before.factor, before.samples, reported / counted), samples=before.samples + 1,
        updated_at=float(at),
    )
    tx.execute(
        "INSERT INTO token_factors (model, endpoint, tokenizer, factor, samples, updated_at) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (model, endpoint, tokenizer) DO UPDATE SET factor = excluded.factor, samples = excluded.samples,"
        " updated_at = excluded.updated_at",
        (model, key, tokenizer, after.factor, after.samples, after.updated_at),
    )
    return Lesson(verdict="learned", factor=after, reported=reported)


def _has_table(reader: Reader) -> bool:
    """False in a store that an older version made and nobody has opened for writing since."""
    return reader.row("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'token_factors'") is not None


class Factors:
    """The factors of a store. Safe for threads."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def of(self, model: str, endpoint: str = "", *, tokenizer: str = "estimate") -> Factor:
        """The factor of a tokenizer's counts. Raises `InvalidInput` for an endpoint that is none."""
        with self._core.reader() as reader:
            return factor_of(reader, model, endpoint, tokenizer)

    def counter(self, base: TokenCounter, model: str, endpoint: str = "") -> TokenCounter:
        """The counter with what was learned for it: `base` itself while that is nothing."""
        if isinstance(base, Scaled):
            base = base.base
        factor = self.of(model, endpoint, tokenizer=base.name).factor
        return base if factor == 1.0 else Scaled(base=base, factor=factor)

    def learn(
        self, model: str, endpoint: str, counter: TokenCounter | str, counted: int,
        usage: Mapping[str, Any] | int | None, *, window: int | None = None,
    ) -> Lesson:
        """Learn from one answered request, in one small transaction; see `learn`.

        `counter`: the one that counted, or the name of its tokenizer. `counted` is always without the factor.
        """
        base = counter.base if isinstance(counter, Scaled) else counter
        name = base if isinstance(base, str) else base.name
        return self._core.write(
            lambda tx: learn(
                tx, model, endpoint, name, counted, usage, at=self._core.clock.now(), window=window
            )
        )
