"""How well a message matches: BM25, with its weights given from outside.

Invariant: the cost of a query is that of the candidates looked at, never of all messages that match. FTS5's own
`bm25()` counts every match of every phrase first (measured: 45 ms for a word in a third of 250,000 messages, against
1 ms for the newest candidates here), so weights are estimated from a bounded count instead, and only the
newest `MOST_CANDIDATES` are scored.

Not for: whose talk comes first (people before machines); that is decided before candidates are drawn, so that a
thousand cron runs never crowd out one person. Recency is the tie-break.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from hermes_state.conversation.search.query import Query, Term
from hermes_state.engine import Reader
from hermes_state.engine.derived import Auxiliary

MOST_CANDIDATES = 600
MOST_PHRASES = 250  # of a query with a phrase, whose candidates are dearer to find
COUNTED = 1000  # matches of a term that are counted; beyond that their density is estimated
WEIGHED_TERMS = 12
# BM25 with the usual constants 1.2 and 0.75, as FTS5's own, and a typical length of 120 words to compare with: the true
# average would cost two calls more a row and order almost nothing anew.
_TOP, _SHORTEST, _PER_WORD = 2.2, 1.2 * 0.25, 1.2 * 0.75 / 120.0
FIRST = 1e6  # is added to the scores of what comes first whatever its score


def relevance(api: Any, *weights: float) -> float:
    """FTS5 auxiliary function: the score of the current row, for the first len(weights) phrases of the query."""
    norm = _SHORTEST + _PER_WORD * api.column_size(0)
    score = 0.0
    for number, weight in enumerate(weights):
        found = len(api.phrase_locations(number)[0])
        score += weight * found / (found + norm)
    return round(_TOP * score, 2)


AUXILIARIES: Mapping[str, Auxiliary] = {"relevance": relevance}


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
