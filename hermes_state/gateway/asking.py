"""Requests to a connected gateway, and its answers to them.

Invariant: a request begins on a live connection only, never for a thread whose stop is owed or done; its answer counts
only when it comes on that connection.

Not for: what a crash must not lose, which is owed (see `server.Server.send`). Taking an answer from whoever names its
request was rejected: one plugin could answer for another.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hermes_state.turns import threads
from hermes_state.turns.records import find_thread

if TYPE_CHECKING:
    from hermes_state.engine.core import Core
    from hermes_state.instances.connection_records import Connection
    from hermes_state.instances.connections import Connections
    from hermes_state.instances.generations import Generation
    from hermes_state.turns.correlation import Correlator, Reply, Request
    from hermes_state.turns.recovery import RecoveryPlan


class Asking:
    """The part of a server that asks."""

    _core: Core
    _connections: Connections[RecoveryPlan]
    requests: Correlator

    def refuse_stale(self, instance_id: str, generation: Generation) -> Connection:
        """See `Server`."""
        raise NotImplementedError

    @contextmanager
    def request(
        self, instance_id: str, generation: Generation, method: str, *, thread_id: str | None = None,
        request_id: str | None = None, seconds: float | None = None,
    ) -> Iterator[Request]:
        """Begin a request for the `with` block in which it is sent and waited for; see `Correlator.request`.

        Raises `StaleGeneration`, `InstanceRevoked`, `ServerReplaced`, and, of a thread whose stop is owed or done,
        `ThreadStopped`.
        """
        self.refuse_request(instance_id, generation, thread_id)
        with self.begun(instance_id, generation, method, request_id=request_id, seconds=seconds) as request:
            yield request

    @contextmanager
    def begun(
        self, instance_id: str, generation: Generation, method: str, *, request_id: str | None, seconds: float | None
    ) -> Iterator[Request]:
        """The second half of `request`, in memory: of a connection that ended meanwhile it is refused at once."""
        with self.requests.request(
            instance_id, str(generation), method, request_id=request_id, seconds=seconds
        ) as request:
            self._connections.refuse_stale(instance_id, generation)
            yield request

    def refuse_request(self, instance_id: str, generation: Generation, thread_id: str | None) -> None:
        """Raise what `request` raises before it begins."""
        self.refuse_stale(instance_id, generation)
        if thread_id is not None:
            with self._core.reader() as reader:
                thread = find_thread(reader, thread_id)
                if thread is not None:
                    threads.refuse_stopped(reader, thread)

    def answer(self, instance_id: str, generation: Generation, request_id: str, result: Any) -> Reply:
        """An answer came on a connection; that to a request of another one is to nothing. Raises `InvalidInput`."""
        return self.requests.answer(request_id, result, owner=instance_id, connection=str(generation))

    def refuse(self, instance_id: str, generation: Generation, request_id: str, error: Exception) -> Reply:
        """An answer came that refuses: who waits gets the error. As `answer`."""
        return self.requests.refuse(request_id, error, owner=instance_id, connection=str(generation))
