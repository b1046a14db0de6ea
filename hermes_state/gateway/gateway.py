"""`store.gateway`: start a server, and who has the store.

Invariant: a server is had only from `serve`, which raised the epoch; so of all servers of one store one acts.

Not for: registering instances (`store.instances`) and turns by themselves (`store.turns`). Letting each program put
connections, credentials and recovery together was rejected: one of them forgets the recovery.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING

from hermes_state.errors import GatewayRunning, ReadOnlyStore
from hermes_state.gateway.records import Holder, Standing
from hermes_state.gateway.server import Server
from hermes_state.instances.generations import SERVER_LEASE
from hermes_state.leases import rows as lease_rows
from hermes_state.owners import provably_dead

if TYPE_CHECKING:
    from hermes_state.engine import Reader
    from hermes_state.engine.core import Core
    from hermes_state.instances.protocol import VersionRange


class Gateway:
    """Gateway servers of one store. Safe for threads."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._lock = threading.Lock()
        self._servers: weakref.WeakSet[Server] = weakref.WeakSet()

    def serve(self, *, versions: VersionRange, take_over: bool = True) -> Server:
        """Start a server: it takes the store over, at `power`; every server that was started before is refused.

        `versions`: of the protocol that it speaks. `take_over=False`: not from one whose process provably runs; such a
        start raises `GatewayRunning` and changes nothing. The default takes over, as a new release is started before
        the old one ends; what is started again and again by a supervisor gives False, or two of them take turns. Use it
        with `with`: at its end it lets go of the store. Raises `ReadOnlyStore`, `CannotOpen` (no lock file can be made
        here), and what a write raises.
        """
        core = self._core
        core.refuse_close_inside()  # of a closed store: nothing of it may begin
        if core.read_only:
            raise ReadOnlyStore(
                f"{core.path} was opened for reading only, so no gateway server can be started on it here.",
                hint="Open it with read_only=False.", path=core.path,
            )
        server = Server(core, versions=versions, before=None if take_over else self._refuse_running)
        with self._lock:
            self._servers.add(server)
        return server

    def close(self) -> None:
        """End every server that was started here and still serves. Called by `Store.close`.

        One whose end cannot be written keeps no other from ending; then raises what the first such write raised.
        """
        with self._lock:
            servers = list(self._servers)
        failures: list[Exception] = []
        for server in servers:
            try:
                server.close()
            except Exception as error:
                failures.append(error)
        if failures:
            for other in failures[1:]:
                failures[0].add_note(f"Another server of this store was not let go of either: {other}")
            raise failures[0]

    def holder(self) -> Holder | None:
        """Which server was started last, and whether its process runs. None when there never was one. Reads only."""
        with self._core.reader() as reader:
            return self._holder(reader)

    def _refuse_running(self, reader: Reader) -> None:
        holder = self._holder(reader)
        if holder is None or holder.standing is not Standing.RUNNING or holder.owner is None:
            return
        raise GatewayRunning(
            f"A gateway server (epoch {holder.epoch}) runs on {self._core.path}: PID {holder.owner.pid} on"
            f" {holder.owner.host} ({holder.because}).",
            hint="End that one first, or take the store over on purpose with serve(take_over=True).",
            path=self._core.path, epoch=holder.epoch, pid=holder.owner.pid, host=holder.owner.host, since=holder.since,
        )

    def _holder(self, reader: Reader) -> Holder | None:
        row = lease_rows.read(reader, SERVER_LEASE)
        if row is None:
            return None
        if row.owner is None:
            return Holder(epoch=row.fence, standing=Standing.NONE, owner=None, since=None, because="it let go")
        owner = row.identity
        if owner is None:
            return Holder(
                epoch=row.fence, standing=Standing.UNKNOWN, owner=None, since=row.acquired_at,
                because="it was written by something that this version cannot read",
            )
        verdict = provably_dead(owner, self._core.path.parent, clock=self._core.clock)
        standing = Standing.ENDED if verdict.dead else Standing.RUNNING if verdict.runs else Standing.UNKNOWN
        return Holder(
            epoch=row.fence, standing=standing, owner=owner, since=row.acquired_at, because=verdict.because
        )
