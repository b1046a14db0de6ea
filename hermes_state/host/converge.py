"""From one gateway a home to one that serves them all: a plan over rows.

Invariant: pure and idempotent: rows and wishes in, steps out; a host that is as wished gives no steps. Each step names
one run and says what to do with it; the owner stays whoever it is if it can. Nothing is stopped whose home the rest of
the plan would not serve.

Not for: doing it: whoever runs gateways does, step by step, and asks for the plan again. Killing the others in one go
was rejected: a chat in the middle of a turn is drained first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from hermes_state.host.code import restart_words, stop_words
from hermes_state.host.living import Judged
from hermes_state.host.records import Gateway
from hermes_state.host.states import LEAVING, Kind, RunState


class Do(StrEnum):
    """What a step does."""

    START = "start"  # no gateway lives: start one, multiplexing
    MULTIPLEX = "multiplex"  # the owner serves its own home only: start it again as the one for all
    RESCAN = "rescan"  # the owner multiplexes without some homes: have it look again
    WAIT = "wait"  # the owner has not settled, or is leaving
    DRAIN = "drain"  # a gateway whose homes the owner serves: let it finish, then stop it


# Of each step: whether a process ends by it, and whether one begins.
STOPS = frozenset({Do.MULTIPLEX, Do.DRAIN})
STARTS = frozenset({Do.MULTIPLEX, Do.START})


@dataclass(frozen=True, kw_only=True)
class Step:
    """One thing to do."""

    do: Do
    gateway: Gateway | None  # to which run; None for START, and for the run that an earlier step starts
    homes: tuple[str, ...]  # that are gained or handed over by it
    how: str  # for a person

    @property
    def stops(self) -> bool:
        """Whether a process ends by it."""
        return self.do in STOPS

    @property
    def starts(self) -> bool:
        """Whether a process begins by it."""
        return self.do in STARTS


def plan(judged: Iterable[Judged], owner_no: int | None, homes: Iterable[str], *, unseen: str = "") -> list[Step]:
    """The next steps to one gateway that serves `homes`.

    `owner_no` is the row of the host's owner, None when nobody is. `unseen` says why that cannot be told: then there is
    nothing to do but to look again.
    """
    if unseen:
        how = f"who owns the host cannot be seen ({unseen}); look again"
        return [Step(do=Do.WAIT, gateway=None, homes=(), how=how)]
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
    if owner.state is RunState.DRAINING:
        # It does not end by itself: whoever drained it may be gone.
        return [_again(owner, wanted)]
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
        ends = other.state in LEAVING and other.state is not RunState.DRAINING  # by itself
        if other is not owner and not ends and kept <= owner.served:
            steps.append(Step(
                do=Do.DRAIN, gateway=other, homes=tuple(sorted(kept)),
                how=f"drain gateway {other.no} ({other.home}), whose homes the owner serves, then stop it for good:"
                f" {stop_words(other)}",
            ))
    return steps


def plan_whole(
    judged: Iterable[Judged], owner_no: int | None, homes: Iterable[str], *, unseen: str = ""
) -> list[Step]:
    """Every step in its order, if each does what it says and nobody else does anything: `plan`, carried out in thought.

    It ends with a WAIT where nothing can be foreseen. The owner that is started again keeps its row's number in
    thought; steps to it name no gateway from then on.
    """
    rows, wanted = list(judged), frozenset(homes)
    steps: list[Step] = []
    again = False  # whether the owner is one that these steps start
    while found := plan(rows, owner_no, wanted, unseen=unseen):
        # Drains end at once whatever comes first, so they are all done before the plan is made anew.
        for step in found if found[0].do is Do.DRAIN else found[:1]:
            of_ours = again and step.gateway is not None and step.gateway.no == owner_no
            steps.append(replace(step, gateway=None, how=_RESCAN_HOW) if of_ours else step)
            rows = _after(step, rows)
        last = found[0]
        if last.do in (Do.WAIT, Do.START):
            break
        if last.do is Do.MULTIPLEX and last.gateway is not None:
            owner_no, again = last.gateway.no, True
    return steps


_RESCAN_HOW = "have the gateway that was started look for homes again; a start of one of them does that as well"


def _after(step: Step, rows: list[Judged]) -> list[Judged]:
    """The rows when that step is done."""
    run = step.gateway
    if run is None or step.do is Do.WAIT:
        return rows
    if step.do is Do.DRAIN:
        return [one for one in rows if one.gateway.no != run.no]
    served = (run.served or frozenset()) | {run.home}
    if step.do is Do.RESCAN:
        served |= frozenset(step.homes)
    changed = replace(run, multiplex=True, served=served, state=RunState.RUNNING)
    return [replace(one, gateway=changed) if one.gateway.no == run.no else one for one in rows]


def _again(run: Gateway, wanted: frozenset[str]) -> Step:
    how, _by_hand = restart_words(run)
    return Step(
        do=Do.MULTIPLEX, gateway=run, homes=tuple(sorted(wanted - (run.served or frozenset()))),
        how=f"have gateway {run.no} ({run.home}) serve all homes: {how}",
    )
