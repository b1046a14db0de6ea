"""Which of a provider's credentials is used next.

Invariant: pure; what is dead, rests, or has no token that anybody could get is never chosen.

Not for: reading rows. A counter in memory for the turns was rejected: each process would begin with the same one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, get_args

from hermes_state.errors import InvalidInput
from hermes_state.work.credentials.records import Credential
from hermes_state.work.credentials.states import Rotation, Status

Strategy = Literal["fill_first", "round_robin", "random", "least_used"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)

_BY: Mapping[str, Callable[[Credential], tuple[int, ...]]] = {
    "fill_first": lambda one: (one.priority,),
    "round_robin": lambda one: (one.used_order, one.priority),
    "least_used": lambda one: (one.request_count, one.priority),
}


def usable(row: Credential, now: float) -> bool:
    """Whether a token of it may be had now."""
    if row.status is Status.DEAD or row.cooling(now):
        return False
    return row.rotation is not Rotation.MAY_BE_LOST or not (row.expires_at is None or row.due(now))


def choose(
    rows: Sequence[Credential], strategy: Strategy, *, now: float, chance: random.Random | None = None
) -> Credential | None:
    """The one to use, None when none may be used; the order of `rows` decides between equals. Raises `InvalidInput`.

    fill_first: the one with the least priority; round_robin: the one that was used longest ago; least_used: the one
    with the fewest requests; random: any, by `chance`.
    """
    if strategy not in STRATEGIES:
        raise InvalidInput(
            f"{strategy!r:.80} is no strategy.", hint=f"They are {', '.join(STRATEGIES)}.", argument="strategy"
        )
    found = [row for row in rows if usable(row, now)]
    if not found:
        return None
    if strategy == "random":
        return (chance or random.SystemRandom()).choice(found)
    return min(found, key=_BY[strategy])
