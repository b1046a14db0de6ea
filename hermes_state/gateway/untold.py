"""What a server found, and could not give to its caller.

Invariant: who ended, who was renamed and which probes are due is told once, by the call that found it or, when that one
failed or was cancelled afterwards, by the next. In memory.

Not for: finding anything (see `server`). Finding it again was rejected: a connection ends once, and the change feed was
read.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from hermes_state.gateway.records import Noticed, Ticked

if TYPE_CHECKING:
    from hermes_state.gateway.records import Ended
    from hermes_state.instances.liveness import Due
    from hermes_state.instances.records import Instance


class Untold:
    """What one server has yet to tell. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended: list[Ended] = []
        self._renamed: list[Instance] = []
        self._probes: list[Due] = []

    def keep(
        self, *, ended: Iterable[Ended] = (), renamed: Iterable[Instance] = (), probes: Iterable[Due] = ()
    ) -> None:
        """Have it told by the next call."""
        with self._lock:
            self._ended += ended
            self._renamed += renamed
            self._probes += probes

    def keep_all(self, found: Noticed) -> None:
        """Have all of it told by the next call; who is owed something is looked up each time."""
        probes = found.probes if isinstance(found, Ticked) else ()
        self.keep(ended=found.ended, renamed=found.renamed, probes=probes)

    def ended(self) -> list[Ended]:
        """Who ended and was not told of yet; the caller tells it now."""
        with self._lock:
            told, self._ended = self._ended, []
        return told

    def renamed(self) -> list[Instance]:
        """Who was renamed and not told of yet; the caller tells it now."""
        with self._lock:
            told, self._renamed = self._renamed, []
        return told

    def probes(self) -> list[Due]:
        """Probes that nobody was asked to send yet; the caller has them sent now."""
        with self._lock:
            told, self._probes = self._probes, []
        return told
