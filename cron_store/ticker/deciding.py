"""Whether this process ticks a home: what is asked, and the table of answers.

Invariant: every question is about one home, and a question that cannot be answered is answered no, so that in doubt a
home is ticked; two that tick it at once are kept apart by the lease in its store. A process yields only when its own
code is not what lies on disk and a live one that was heard in the last 120 s runs what does; it stands down only for
another process.

Not for: the right to tick, which is the lease. One answer for the whole process was rejected: a stale process that
served ten homes ticked none of them, because one of them had a newer server.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from hermes_state.host.code import sha_on_disk
from hermes_state.host.states import TERMINAL, Kind
from hermes_state.host.ticking import TickerSeen, TickStanding
from hermes_state.owners.presence import is_here

if TYPE_CHECKING:
    from hermes_state.host.status import RunStatus
    from hermes_state.owners import OwnerIdentity

# Who serves a home: it has the lease, or takes it as soon as it is free.
_SERVES = (TickStanding.TICKS, TickStanding.WAITS)


@dataclass(frozen=True, kw_only=True)
class Code:
    """What this process runs, told when it started, and how a person starts it again."""

    sha: str | None = None  # the commit; None: unknown, and it never yields
    root: str | None = None  # the folder of the code
    how: str = ""  # the command of a person
    by_hand: bool = True  # nobody starts it again by itself
    on_disk: Callable[[], str | None] | None = None  # the commit on disk now; None: what git says of `root`

    def disk_sha(self) -> str | None:
        """The commit on disk now; None when that is not known."""
        if self.on_disk is not None:
            return self.on_disk()
        return None if self.root is None else sha_on_disk(self.root)


class Part(StrEnum):
    """What a process does for a home."""

    TICK = "tick"
    YIELD = "yield"
    STAND_DOWN = "stand_down"


# (the home has a gateway of its own, our code is stale, a newer process serves the home)
PARTS: Mapping[tuple[bool, bool, bool], Part] = {
    (False, False, False): Part.TICK,
    (False, False, True): Part.TICK,
    (False, True, False): Part.TICK,  # stale, and nobody else would: late code is better than none
    (False, True, True): Part.YIELD,
    (True, False, False): Part.STAND_DOWN,
    (True, False, True): Part.STAND_DOWN,
    (True, True, False): Part.STAND_DOWN,
    (True, True, True): Part.STAND_DOWN,
}


@dataclass(frozen=True, kw_only=True)
class Around:
    """What is known of other processes of this user at one moment; empty where nothing can be known."""

    pid: int  # ours
    tickers: tuple[TickerSeen, ...] = ()
    runs: tuple[RunStatus, ...] = ()
    boot_sha: str | None = None  # ours
    disk_sha: str | None = None

    @property
    def is_stale(self) -> bool:
        """Whether our code is known to be another than lies on disk."""
        return self.boot_sha is not None and self.disk_sha is not None and self.boot_sha != self.disk_sha

    def live_gateway_ticking(self, home: str) -> TickerSeen | None:
        """Another process that serves this very home, lives and was heard in the last 120 s; the newest code first."""
        return self._serving.get(home)

    def newer(self, home: str) -> TickerSeen | None:
        """The same, when it runs what lies on disk and we do not."""
        other = self.live_gateway_ticking(home)
        if other is None or not self.is_stale or other.ticking.code_sha != self.disk_sha:
            return None
        return other

    def own_gateway(self, home: str) -> RunStatus | None:
        """The live gateway of another process that was started for this very home."""
        return self._gateways.get(home)

    @functools.cached_property
    def _serving(self) -> dict[str, TickerSeen]:
        """Every home that is asked about is asked about at once: 200 homes times 200 rows are too many."""
        found: dict[str, TickerSeen] = {}
        for one in self.tickers:
            said = one.ticking
            others = said.standing in _SERVES and one.is_fresh and not is_us(one.identity, self.pid)
            if others and (said.home not in found or said.code_sha == self.disk_sha):
                found[said.home] = one
        return found

    @functools.cached_property
    def _gateways(self) -> dict[str, RunStatus]:
        found: dict[str, RunStatus] = {}
        for one in self.runs:
            run = one.judged.gateway
            if (
                run.kind is Kind.GATEWAY and run.state not in TERMINAL and one.judged.may_live and one.is_fresh
                and not is_us(run.identity, self.pid)
            ):
                found.setdefault(run.home, one)
        return found

    def part(self, home: str) -> Part:
        """What we do for a home."""
        return PARTS[self.own_gateway(home) is not None, self.is_stale, self.newer(home) is not None]

    def why(self, home: str, code: Code) -> str:
        """Why we do not tick it, a sentence for people."""
        part = self.part(home)
        if part is Part.YIELD:
            return stale_text(self.boot_sha, self.disk_sha, code.how)
        gateway = self.own_gateway(home)
        if part is Part.STAND_DOWN and gateway is not None:
            identity = gateway.judged.gateway.identity
            return f"{home} has a gateway of its own (PID {'?' if identity is None else identity.pid}), which ticks it"
        return ""


def is_us(identity: OwnerIdentity | None, pid: int) -> bool:
    """Whether an identity is of this process. One that cannot be read is nobody's."""
    return identity is not None and (is_here(identity.nonce) or identity.pid == pid)


def serves(homes: Iterable[str], home: str) -> bool:
    """Whether a home is in the ticked set of this cycle."""
    return home in homes


def stale_text(boot_sha: str | None, disk_sha: str | None, how: str) -> str:
    """What is said of a process that yields."""
    again = how or "restart it as it was started"
    return f"STALE CODE, fires nothing: it runs {_short(boot_sha)}, on disk is {_short(disk_sha)}; {again}"


def _short(sha: str | None) -> str:
    return "an unknown revision" if sha is None else sha[:12]
