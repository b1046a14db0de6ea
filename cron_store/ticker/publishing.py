"""What this ticker knows of other processes of its user, and what it says to them.

Invariant: the host's file is asked at most every few seconds and written at most once a minute, unless something
changed; where it cannot be used, nothing is known, nobody yields, and homes are ticked all the same.

Not for: what follows from it (see `deciding`). Asking before each home was rejected: 200 homes ask the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from cron_store.ticker.deciding import Around, Code
from cron_store.ticker.ticking import Problem
from hermes_state.host import ticking
from hermes_state.host.ticking import Ticking
from hermes_state.owners.presence import presence_of

if TYPE_CHECKING:
    from cron_store.ticker.seats import Seat
    from hermes_state.clock import Clock
    from hermes_state.host import Host
    from hermes_state.owners import Presence

# How long an answer of the host counts, and how often this process says again what it said.
ASK_SECONDS, SAY_SECONDS = 15.0, 45.0


class Publishing:
    """The host as one ticker sees it; the ticker's thread uses it."""

    def __init__(
        self, host: Host | None, code: Code, clock: Clock, presence: Presence | None, tell: Callable[[Problem], None]
    ) -> None:
        self.code = code
        self._host = host
        self._clock = clock
        self._presence = presence
        self._tell = tell
        self._around: Around | None = None
        self._asked = 0.0
        self._said: list[Ticking] | None = None
        self._said_at = 0.0

    def around(self, *, anew: bool = False) -> Around:
        """What is known of others now. Nothing where that fails, which is told."""
        now = self._clock.boottime()
        if self._around is None or anew or not 0 <= now - self._asked < ASK_SECONDS:
            self._around, self._asked = self._ask(), now
        return self._around

    def publish(self, seats: Iterable[Seat]) -> None:
        """Say how we stand to each home, when that changed or was said long enough ago."""
        if self._host is None:
            return
        around, now = self.around(), self._clock.boottime()
        rows = [
            Ticking(
                home=seat.home, standing=seat.standing, said=seat.said[:500], code_root=self.code.root,
                code_sha=self.code.sha, disk_sha=around.disk_sha, how=self.code.how, by_hand=self.code.by_hand,
                since=seat.since,
            )
            for seat in seats if not seat.leaving
        ]
        if rows == self._said and 0 <= now - self._said_at < SAY_SECONDS:
            return
        try:
            ticking.record(self._host.core, self._owner(self._host), rows)
        except Exception as error:
            self._tell(Problem(home=str(self._host.folder), error=error))
        else:
            self._said, self._said_at = rows, now

    def retract(self) -> None:
        """Take it back."""
        if self._host is None or self._said is None:
            return
        try:
            ticking.retract(self._host.core, self._owner(self._host))
        except Exception as error:
            self._tell(Problem(home=str(self._host.folder), error=error))
        self._said = None

    def _owner(self, host: Host) -> Presence:
        return self._presence or presence_of(host.folder, clock=host.core.clock)

    def _ask(self) -> Around:
        pid, host = os.getpid(), self._host
        if host is None:
            return Around(pid=pid)
        try:
            return Around(
                pid=pid, tickers=tuple(ticking.tickers(host.core)), runs=tuple(host.statuses()),
                boot_sha=self.code.sha, disk_sha=self.code.disk_sha(),
            )
        except Exception as error:
            self._tell(Problem(home=str(host.folder), error=error))
            return Around(pid=pid)
