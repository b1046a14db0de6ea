"""How well a message matches: BM25, with its weights given from outside.

Invariant: the cost of a query is that of the candidates looked at, never of all messages that match. FTS5's own
`bm25()` counts every match of every phrase first (measured: 45 ms for a word in a third of 250,000 messages, against
1 ms for the newest candidates here), so weights are estimated from a bounded count instead, and only the
newest `MOST_CANDIDATES` are scored. Of each row SQLite gives counts and length, and Python adds up: asked for one by
one through FTS5's interface, they cost three times as much (measured with 600 rows: 1.7 ms, and 0.55 ms here).

Not for: whose talk comes first (people before machines); that is decided before candidates are drawn, so that a
thousand cron runs never crowd out one person. Recency is the tie-break.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from hermes_state.conversation.search.query import Query, Term
from hermes_state.engine import Reader
from hermes_state.engine.derived import Auxiliary

MOST_CANDIDATES = 200  # or twice the hits wanted, when that is more
COUNTED = 1000  # matches of a term that are counted; beyond that their density is estimated
WEIGHED_TERMS = 12
# BM25 with the usual constants 1.2 and 0.75, as FTS5's own, and a typical length of 120 words to compare with: the true
# average would cost two calls more a row and order almost nothing anew.
_TOP, _SHORTEST, _PER_WORD = 2.2, 1.2 * 0.25, 1.2 * 0.75 / 120.0
FIRST = 1e6  # is added to the scores of what comes first whatever its score


def counts(api: Any, phrases: int) -> bytes:
    """FTS5 auxiliary function: how often each of the query's first `phrases` phrases is in the row, 255 at most."""
    return bytes([min(255, len(api.phrase_locations(number)[0])) for number in range(phrases)])


# `instances`: how often the phrases of the query are in the row, all together. No frame of Python's for each row.
AUXILIARIES: Mapping[str, Auxiliary] = {"counts": counts, "instances": attrgetter("inst_count")}


def relevance(found: bytes | int, size: bytes, weights: Sequence[float]) -> float:
    """The score, to hundredths, of a row that has the terms so often; `size` is FTS5's record of its length."""
    norm = _SHORTEST + _PER_WORD * (size[0] if size[0] < 128 else _words(size))
    if isinstance(found, int):
        return int(_TOP * weights[0] * found / (found + norm) * 100 + 0.5) / 100
    return round(_TOP * sum(weight * count / (count + norm) for weight, count in zip(weights, found, strict=True)), 2)


def _words(size: bytes) -> int:
    """The first number of a record in the index's table of lengths: how many terms the text has."""
    number = 0
    for byte in size:
        number = number << 7 | byte & 127
        if byte < 128:
            break
    return number


def weights(reader: Reader, terms: Sequence[Term], entries: int) -> list[float]:
    """The weight of each term: rare ones count more. A single term needs none."""
    if len(terms) == 1:
        return [1.0]
    found: list[float] = []
    for term in terms[:WEIGHED_TERMS]:
        count, lowest, highest = reader.rows(
            "SELECT count(*), min(rowid), max(rowid) FROM (SELECT rowid FROM terms WHERE terms MATCH ?"
            " ORDER BY rowid DESC LIMIT ?)",
            (term.match, COUNTED),
        )[0]
        if count >= COUNTED:
            count = max(count, count * entries // (highest - lowest + 1))
        found.append(_rarity(count, entries))
    return found + [1.0] * (len(terms) - len(found))


def _rarity(count: int, entries: int) -> float:
    count = min(count, entries)
    return max(0.01, math.log(1 + (entries - count + 0.5) / (count + 0.5)))


def expression(query: Query, facets: Sequence[str]) -> str:
    """The FTS5 expression of an indexable query; its first phrases are the query's positive terms, in order."""
    clauses = [
        clause[0].match if len(clause) == 1 else f"({' OR '.join(term.match for term in clause)})"
        for clause in query.clauses
    ]
    positive = " AND ".join(clauses)
    if query.negatives:
        positive = f"({positive}) NOT ({' OR '.join(term.match for term in query.negatives)})"
    return " AND ".join([f"({positive})", *facets])


def scanned_score(query: Query, folded: str) -> float:
    """The score of a text that was found without the index: the same formula, without rarity."""
    norm = _SHORTEST + _PER_WORD * len(folded) / 6.0
    counts = [sum(1 for _ in term.spans(folded)) for term in query.terms]
    return round(_TOP * sum(count / (count + norm) for count in counts), 2)
