"""Which entries of a page of an index tree are not where their keys belong.

Invariant: an entry is called a stray only when taking it and few others out leaves the rest in order, one way or the
other; a page that is in neither order says nothing, since its collation is not known here. Equal keys are in order.

Not for: columns of a key beyond the first. Comparing neighbours was rejected: of two that disagree it cannot say which
is wrong.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from maintenance.recovery.format.record import Value

# Of the entries of a page, how many must be in one order for the others to be strays.
_SHARE = 0.75
_LEAST = 4
_Rank = tuple[int, int | float | bytes]


def out_of_order(entries: Sequence[Sequence[Value]]) -> frozenset[int]:
    """Places of strays among the entries of one page, which come in the order of its pointers."""
    ranks = [_rank(values[0]) for values in entries if values]
    if len(ranks) != len(entries) or len(ranks) < _LEAST:
        return frozenset()
    upwards = _longest(ranks)
    # Against the order: the same run, looked for from the end.
    last = len(ranks) - 1
    downwards = frozenset(last - place for place in _longest(ranks[::-1]))
    kept = max(upwards, downwards, key=len)
    if len(kept) < _SHARE * len(ranks):
        return frozenset()
    return frozenset(range(len(ranks))) - kept


def _rank(value: Value) -> _Rank:
    """SQLite's order of values: NULL, numbers, texts by their bytes, blobs."""
    if value is None:
        return (0, 0)
    if isinstance(value, (int, float)):
        return (1, value)
    if isinstance(value, str):
        return (2, value.encode("utf-8", "surrogatepass"))
    if isinstance(value, bytes):
        return (3, value)
    return (2, value.raw)  # a text or number that is not whole: near its place


def _longest(ranks: Sequence[_Rank]) -> frozenset[int]:
    """Places of one longest run that never goes down."""
    ends: list[_Rank] = []
    at: list[int] = []
    before: list[int] = []
    for place, rank in enumerate(ranks):
        length = bisect_right(ends, rank)
        before.append(at[length - 1] if length else -1)
        if length == len(ends):
            ends.append(rank)
            at.append(place)
        else:
            ends[length], at[length] = rank, place
    found = []
    place = at[-1] if at else -1
    while place >= 0:
        found.append(place)
        place = before[place]
    return frozenset(found)
