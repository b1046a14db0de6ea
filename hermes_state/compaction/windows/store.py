"""The windows that a store knows: asking, declaring, learning.

Invariant: a server is asked outside of any transaction, and what it said is written in one.

Not for: choosing (see `rows`). Probing whenever a window is asked for was rejected: a turn would wait for a server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_state.compaction.windows import rows
from hermes_state.compaction.windows.records import Kind, Refusal, Truncation, Window

if TYPE_CHECKING:
    from hermes_state.compaction.windows.servers import Probe
    from hermes_state.engine.core import Core


class Windows:
    """What a store knows of models' windows. Safe for threads."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def known(self, model: str, endpoint: str = "") -> tuple[Window, ...]:
        """All that is known, best first."""
        with self._core.reader() as reader:
            return rows.known(reader, model, endpoint)

    def resolve(self, model: str, endpoint: str = "") -> Window:
        """The window that counts. Raises `NotFound` when nothing is known."""
        with self._core.reader() as reader:
            return rows.resolve(reader, model, endpoint)

    def declare(self, model: str, endpoint: str, tokens: int, *, by: str = "caller") -> Window:
        """Say what the window is. An empty endpoint: wherever the model is served."""
        return self._core.write(lambda tx: rows.declare(tx, model, endpoint, tokens, at=self._core.clock.now(), by=by))

    def learn(self, model: str, endpoint: str, said: Refusal | Truncation | int) -> Window | None:
        """Keep what a refusal, a cut or a filled window teaches; None when it names no window."""
        return self._core.write(lambda tx: rows.learn(tx, model, endpoint, said, at=self._core.clock.now()))

    def observe(self, found: Probe) -> tuple[Window, ...]:
        """Keep what a probe found: nothing, what is served, what the model was trained for, or both."""
        return self._core.write(lambda tx: tuple(
            rows.put(tx, fact.kind, found.model, found.endpoint, fact.tokens, at=self._core.clock.now(),
                     evidence=fact.evidence)
            for fact in found.facts
        ))

    def probe(
        self, model: str, endpoint: str, *, timeout: float = 3.0, api_key: str | None = None
    ) -> Probe:
        """Ask the server, keep what it says, and return it. Raises `EndpointUnreachable`, `InvalidInput`."""
        from hermes_state.compaction.windows.servers import probe

        found = probe(endpoint, model, timeout=timeout, api_key=api_key)
        if found.facts:
            self.observe(found)
        return found

    def forget(self, model: str, endpoint: str, kind: Kind) -> bool:
        """Take one fact away; False when there was none."""
        return self._core.write(lambda tx: rows.forget(tx, model, endpoint, kind))
