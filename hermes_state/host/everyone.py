"""`start --all` and `restart --all` as lists: what is to be done for which home, and nothing is done here.

Invariant: pure: gateways with what each answered just now in, a list out; whom a gateway serves is known by its answer
only. Starting everything ends nobody. A restart names at most one gateway, the one that serves the home of whoever
asks, with all that it serves, so that the next one serves as much. Somebody else's gateway is told of and left alone.

Not for: doing it. Ending whatever looks like a gateway by its command line was rejected: that ended unrelated ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from hermes_state.host.code import restart_words
from hermes_state.host.exits import PERMANENT, TRY_AGAIN
from hermes_state.host.facts import Answer
from hermes_state.host.records import Gateway

MIGRATE = "hermes-state host migrate --multiplex"


class Does(StrEnum):
    """What is to be done for some homes."""

    START = "start"  # nobody serves them: start a gateway for each
    SERVED = "served"  # nothing: that gateway serves them
    RESTART = "restart"  # end that gateway as planned and start it again, serving as much
    WAIT = "wait"  # a gateway is silent, leaving or has not settled: try again
    REFUSE = "refuse"  # another's gateway serves several homes without this one: only a person can change that


EXITS = {Does.START: 0, Does.SERVED: 0, Does.RESTART: 0, Does.WAIT: TRY_AGAIN, Does.REFUSE: PERMANENT}


@dataclass(frozen=True, kw_only=True)
class ForHomes:
    """One line of the list."""

    does: Does
    homes: tuple[str, ...]  # sorted
    gateway: Gateway | None  # None: nobody's
    how: str  # for a person

    @property
    def exit_code(self) -> int:
        """What a command that carries the list out ends with for these homes, when a person gave it."""
        return EXITS[self.does]


Asked = tuple[Gateway, Answer | None]


def start_all(asked: Sequence[Asked], homes: Iterable[str], *, unseen: str = "") -> list[ForHomes]:
    """What starting a gateway for each of these homes means now; each home is in exactly one line.

    `unseen` says why gateways cannot be seen here, "" when they can: then each start decides for itself.
    """
    served: dict[int, list[str]] = {}
    waiting: dict[int, list[str]] = {}
    free = []
    for home in sorted(set(homes)):
        by, may = _server(asked, home), _may_serve(asked, home)
        if by is not None:
            served.setdefault(by.no, []).append(home)
        elif may is not None:
            waiting.setdefault(may.no, []).append(home)
        else:
            free.append(home)
    found = []
    for one, _answer in asked:
        if one.no in served:
            found.append(ForHomes(
                does=Does.SERVED, homes=tuple(served[one.no]), gateway=one, how=f"{one.party()} serves them",
            ))
        if one.no in waiting:
            found.append(ForHomes(
                does=Does.WAIT, homes=tuple(waiting[one.no]), gateway=one,
                how=f"{one.party()} lives and does not say whether it serves them; try again",
            ))
    if free:
        how = f"start a gateway for each; others cannot be seen ({unseen})" if unseen else "start a gateway for each"
        found.append(ForHomes(does=Does.START, homes=tuple(free), gateway=None, how=how))
    return found


def restart_all(asked: Sequence[Asked], home: str, *, unseen: str = "") -> list[ForHomes]:
    """What restarting everything means when the profile of `home` asks for it; the first line is about that home."""
    if unseen:
        how = f"gateways cannot be seen here ({unseen}), so none is ended; try again"
        return [ForHomes(does=Does.WAIT, homes=(home,), gateway=None, how=how)]
    target = _server(asked, home)
    may = _may_serve(asked, home)
    excluding = next((one for one, said in asked if said is not None and said.multiplex), None)
    if target is not None:
        answer = next(said for one, said in asked if one is target)
        assert answer is not None and answer.served is not None  # it serves the home
        how, _by_hand = restart_words(target)
        first = ForHomes(does=Does.RESTART, homes=tuple(sorted(answer.served)), gateway=target, how=how)
    elif may is not None:
        first = ForHomes(
            does=Does.WAIT, homes=(home,), gateway=may,
            how=f"{may.party()} lives and does not say whether it serves {home}; try again",
        )
    elif excluding is not None:
        first = ForHomes(
            does=Does.REFUSE, homes=(home,), gateway=excluding,
            how=f"{excluding.party()} serves several homes and {home} is not one of them; restart it from its own home",
        )
    else:
        first = ForHomes(does=Does.START, homes=(home,), gateway=None, how="start a gateway")
    return [first, *(
        ForHomes(
            does=Does.SERVED, homes=tuple(sorted(said.served)), gateway=one,
            how=f"{one.party()} keeps running; {MIGRATE} says how to have one gateway for all",
        )
        for one, said in asked if said is not None and said.served is not None and one is not first.gateway
    )]


def _server(asked: Sequence[Asked], home: str) -> Gateway | None:
    return next(
        (one for one, said in asked if said is not None and said.serves(home) and not said.is_leaving), None
    )


def _may_serve(asked: Sequence[Asked], home: str) -> Gateway | None:
    """One that may serve the home, or come to."""
    for one, said in asked:
        if said is not None and said.served is not None and not (said.is_leaving and said.serves(home)):
            continue
        # By its record it serves others only, which is no reason to wait for it.
        alone = said is None and one.multiplex is False and one.served is not None and home not in one.served
        if one.home == home or not alone:
            return one
    return None
