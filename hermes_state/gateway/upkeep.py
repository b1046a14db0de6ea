"""What a server writes when time passes.

Invariant: one thing that cannot be written stops the others of that call, is raised, and is tried again after some
seconds: in between the server goes on with what needs no write, such as probes.

Not for: what was found (see `server`). Writing at each tick of a full disk was rejected: no call would come to an end
that tells which probes are due, and every connection would be taken for dead.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from hermes_state.turns.correlation import SWEEP_EVERY_SECONDS

if TYPE_CHECKING:
    from hermes_state.clock import Clock

WRITE_AGAIN_SECONDS = 5.0


class Upkeep:
    """The upkeep of one server. Safe for threads."""

    def __init__(
        self, clock: Clock, *, sweeps: tuple[Callable[[], object], ...], always: tuple[Callable[[], object], ...]
    ) -> None:
        """`sweeps` are called once a minute, before `always`, which are called each time."""
        self._clock = clock
        self._sweeps, self._always = sweeps, always
        self._lock = threading.Lock()
        self._swept_at = self._write_from = clock.monotonic()

    def run(self) -> None:
        """Write what is due; nothing for some seconds after a failure. Raises what a write raises."""
        now = self._clock.monotonic()
        with self._lock:
            if now < self._write_from:
                return
            sweep = now - self._swept_at >= SWEEP_EVERY_SECONDS
        try:
            for work in (self._sweeps if sweep else ()) + self._always:
                work()
        except BaseException:
            with self._lock:
                self._write_from = self._clock.monotonic() + WRITE_AGAIN_SECONDS
            raise
        if sweep:
            with self._lock:
                self._swept_at = now
