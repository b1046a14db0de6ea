"""From one gateway a home to one that serves them all: a plan over rows.

Invariant: pure and idempotent: rows and wishes in, steps out; a host that is as wished gives no steps. Each step names
one run and says what to do with it; the owner stays whoever it is if it can. Nothing is stopped whose home the rest of
the plan would not serve.

Not for: doing it: whoever runs gateways does, step by step, and asks for the plan again. Killing the others in one go
was rejected: a chat in the middle of a turn is drained first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from hermes_state.host.code import restart_words
from hermes_state.host.living import Judged
from hermes_state.host.records import Gateway
from hermes_state.host.states import LEAVING, Kind


class Do(StrEnum):
    """What a step does."""

    START = "start"  # no gateway lives: start one, multiplexing
    MULTIPLEX = "multiplex"  # the owner serves its own home only: start it again as the one for all
    RESCAN = "rescan"  # the owner multiplexes without some homes: have it look again
    WAIT = "wait"  # the owner has not settled, or is leaving
    DRAIN = "drain"  # a gateway whose homes the owner serves: let it finish, then stop it


@dataclass(frozen=True, kw_only=True)
class Step:
    """One thing to do."""

    do: Do
    gateway: Gateway | None  # to which run; None for START
    homes: tuple[str, ...]  # that are gained or handed over by it
    how: str  # for a person


def plan(judged: Iterable[Judged], owner_no: int | None, homes: Iterable[str]) -> list[Step]:
    """The steps to one gateway that serves `homes`. `owner_no` is the row of the host's owner, None when nobody is."""
    wanted = frozenset(homes)
    live = [one.gateway for one in judged if one.may_live and one.gateway.kind is Kind.GATEWAY]
    owner = next((one for one in live if one.no == owner_no), None)
    if owner is None:
        if not live:
            return [Step(do=Do.START, gateway=None, homes=tuple(sorted(wanted)), how="start one gateway")] if (
                wanted
            ) else []
        # Nobody owns the host: the oldest that stays may become the owner by starting again.
        return [_again(live[0], wanted)]
    if owner.state in LEAVING or owner.multiplex is None or owner.served is None:
        return [Step(do=Do.WAIT, gateway=owner, homes=(), how=f"gateway {owner.no} is {owner.state}; look again")]
    if not owner.multiplex:
        return [] if wanted <= owner.served and len(live) == 1 else [_again(owner, wanted)]
    missing = wanted - owner.served
    steps = []
    if missing:
        steps.append(Step(
            do=Do.RESCAN, gateway=owner, homes=tuple(sorted(missing)),
            how=f"have gateway {owner.no} look for homes again",
        ))
    for other in live:
        kept = other.served if other.served is not None else frozenset({other.home})
        if other is not owner and other.state not in LEAVING and kept <= owner.served:
            steps.append(Step(
                do=Do.DRAIN, gateway=other, homes=tuple(sorted(kept)),
                how=f"drain gateway {other.no} ({other.home}), then stop it: the owner serves its homes",
            ))
    return steps


def _again(run: Gateway, wanted: frozenset[str]) -> Step:
    how, _by_hand = restart_words(run)
    return Step(
        do=Do.MULTIPLEX, gateway=run, homes=tuple(sorted(wanted - (run.served or frozenset()))),
        how=f"have gateway {run.no} ({run.home}) serve all homes: {how}",
    )
