"""The connections of a gateway server: who is connected, as which generation, and what a new one has to recover.

Invariant: `accept` is the only way to a generation, and always gives what to recover with it, so a reconnect cannot be
taken for something else. Whoever connects is authenticated before anything changes. Everything after it compares the
generation inside the update: what an earlier connection says or does means nothing to the present one. A connect
commits nothing, unless the negotiated version or the plugin's boot id is another than the last time, or there is
something to recover; what there is was stored before `accept` returns, and another boot id is remembered in that same
commit, so a crash in between recovers again. One instance never waits for another.

Not for: sockets (the caller keeps them by generation), credentials and turns, which are given as functions. A delivery
role that registers was rejected: an out-of-process send would push the live connection out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from hermes_state.errors import InvalidInput, ServerReplaced, StaleGeneration, VersionIncompatible
from hermes_state.instances import remembered
from hermes_state.instances.connection_records import (
    Accepted,
    Connection,
    DeliveryAccepted,
    Hello,
    Link,
    Plan,
    UpgradeRequired,
    refuse_odd,
)
from hermes_state.instances.connection_states import LinkEvent, LinkState, PublicStatus, public_status, to_event
from hermes_state.instances.generations import Generation, current_epoch, raise_epoch, refuse_no_generation
from hermes_state.instances.protocol import VersionRange, negotiate

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction
    from hermes_state.engine.core import Core
    from hermes_state.owners import OwnerIdentity

PlanOut = TypeVar("PlanOut", covariant=True)


class Authenticate(Protocol):
    """Raises (`InvalidAuthentication`, `InstanceRevoked`, ...) unless the credential is that of the instance now."""

    def __call__(self, reader: Reader, instance_id: str, credential: str) -> object: ...


class PlanRecovery(Protocol[PlanOut]):
    """What a new connection has to recover, as data. Reads only."""

    def __call__(self, reader: Reader, instance_id: str, *, boot_id: str, boot_id_changed: bool) -> PlanOut: ...


class Connections(Generic[Plan]):
    """The connections of one server on one store. Safe for threads; calls are short, none waits for a peer."""

    def __init__(
        self, core: Core, *, versions: VersionRange, authenticate: Authenticate, plan: PlanRecovery[Plan],
        apply: Callable[[Transaction, Plan], object], changes_nothing: Callable[[Plan], bool],
        owner: OwnerIdentity | None = None, started: Callable[[Transaction, int], object] | None = None,
        before: Callable[[Reader], object] | None = None,
    ) -> None:
        """Start a server: raises the epoch, at `power`. Servers that were started before accept nothing from then on.

        `plan` says what a new connection has to recover. `apply` stores it, idempotently; `changes_nothing`
        says of a plan that there is nothing to store, so that such a connect commits nothing. `owner` is the process
        that serves; `before(reader)`, which may refuse it, and `started(tx, epoch)` take part in the transaction.
        Raises what a write raises.
        """
        self._core = core
        self._versions = versions
        self._authenticate = authenticate
        self._plan = plan
        self._apply = apply
        self._changes_nothing = changes_nothing
        self._lock = threading.Lock()
        self._links: dict[str, Link] = {}
        self._number = 0
        self._connecting: dict[str, int] = {}
        self._turns: dict[str, tuple[threading.Lock, int]] = {}

        def start(tx: Transaction) -> int:
            if before is not None:
                before(tx)
            epoch = raise_epoch(tx, owner=owner, clock=core.clock)
            if started is not None:
                started(tx, epoch)
            return epoch

        self.epoch = core.write(start, durability="power")

    # --- a new connection ------------------------------------------------------------------------------------

    def accept(self, hello: Hello) -> Accepted[Plan]:
        """Authenticate, negotiate, register; the instance's earlier connection is displaced.

        Raises `InvalidInput`, what `authenticate` raises (nothing changed), `ServerReplaced`, what a write raises
        (nothing changed), and `VersionIncompatible`: the instance then needs an upgrade, and its earlier connection,
        named by the fact `displaced`, is over (close code 4004).
        """
        refuse_odd(hello)
        name = hello.instance_id
        with self._one_at_a_time(name):
            with self._core.reader() as reader:
                self.refuse_replaced(reader)
                self._authenticate(reader, name, hello.credential)
            # Readers are few, and what follows may wait for the write lock: it has none.
            with self._shown_as_connecting(name):
                version = self._version(hello)
                plan, changed = self._recovery(hello, version)
                connection, displaced = self._register(hello, version)
        return Accepted(connection=connection, displaced=displaced, recovery_plan=plan, boot_id_changed=changed)

    def admit_delivery(self, hello: Hello) -> DeliveryAccepted:
        """Authenticate a socket that only delivers home. Changes nothing, whatever comes of it.

        Raises `InvalidInput`, what `authenticate` raises, `ServerReplaced`, `VersionIncompatible`.
        """
        refuse_odd(hello)
        with self._core.reader() as reader:
            self.refuse_replaced(reader)
            self._authenticate(reader, hello.instance_id, hello.credential)
        version = negotiate(self._versions, hello.versions, instance_id=hello.instance_id)
        return DeliveryAccepted(instance_id=hello.instance_id, protocol_version=version)

    def _version(self, hello: Hello) -> int:
        try:
            return negotiate(self._versions, hello.versions, instance_id=hello.instance_id)
        except VersionIncompatible as error:
            needed = UpgradeRequired(
                versions=hello.versions, plugin_version=hello.plugin_version, hermes_version=hello.hermes_version,
                refused_at=self._core.clock.now(),
            )
            ended = self._change(hello.instance_id, LinkEvent.UPGRADE, upgrade=needed)
            displaced = None if ended is None else str(ended.generation)
            raise VersionIncompatible(
                error.message, hint=error.hint, **{**error.facts, "displaced": displaced}
            ) from None

    def _recovery(self, hello: Hello, version: int) -> tuple[Plan, bool]:
        """The plan of a new connection, stored where it changes something, and whether the boot id is another."""
        with self._core.reader() as reader:
            before = remembered.read(reader, hello.instance_id)
            changed = before is None or before.boot_id != hello.boot_id
            remember = changed or before is None or before.protocol_version != version
            if not remember:
                plan = self._plan(reader, hello.instance_id, boot_id=hello.boot_id, boot_id_changed=False)
                if self._changes_nothing(plan):
                    return plan, False

        def work(tx: Transaction) -> Plan:
            self.refuse_replaced(tx)
            # Again: what is stored here would be owed to an instance that was revoked since.
            self._authenticate(tx, hello.instance_id, hello.credential)
            if remember:
                remembered.write(
                    tx, hello.instance_id, protocol_version=version, boot_id=hello.boot_id, at=self._core.clock.now()
                )
            plan = self._plan(tx, hello.instance_id, boot_id=hello.boot_id, boot_id_changed=changed)
            self._apply(tx, plan)
            return plan

        return self._core.write(work, durability="power"), changed

    def _register(self, hello: Hello, version: int) -> tuple[Connection, Connection | None]:
        connected_at = self._core.clock.now()
        with self._lock:
            self._number += 1
            connection = Connection(
                generation=Generation(self.epoch, self._number), instance_id=hello.instance_id,
                protocol_version=version, boot_id=hello.boot_id, plugin_version=hello.plugin_version,
                hermes_version=hello.hermes_version, capabilities=tuple(hello.capabilities), model=hello.model,
                connected_at=connected_at, session_count=None,
            )
            return connection, self._change_locked(hello.instance_id, LinkEvent.ACCEPT, connection=connection)

    def refuse_replaced(self, reader: Reader) -> None:
        """Raise `ServerReplaced` when another server was started since; first thing in what this one writes."""
        current = current_epoch(reader)
        if current != self.epoch:
            raise ServerReplaced(
                f"Another gateway server was started on {reader.path}: this one is of epoch {self.epoch},"
                f" that one of {current}.",
                hint="Close every connection and end this server; the other one takes over.",
                path=reader.path, epoch=self.epoch, current=current,
            )

    # --- what happens to one later ---------------------------------------------------------------------------

    def record_session_count(self, instance_id: str, generation: Generation, count: int) -> bool:
        """How many sessions a connection says that it has. False, and nothing changed, for an earlier connection.

        Raises `InvalidInput`.
        """
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count < 2**31:
            raise InvalidInput(f"A connection has 0 or more sessions, not {count!r:.40}.", argument="count")
        with self._lock:
            connection = self._present(instance_id, generation)
            if connection is None:
                return False
            self._change_locked(instance_id, LinkEvent.COUNT, connection=replace(connection, session_count=count))
            return True

    def disconnect(self, instance_id: str, generation: Generation) -> bool:
        """A connection ended, or is retired for not answering. False, and nothing changed, for an earlier one."""
        with self._lock:
            if self._present(instance_id, generation) is None:
                return False
            self._change_locked(instance_id, LinkEvent.END)
            return True

    def clear(self, instance_id: str) -> Connection | None:
        """After a revoke (close code 4003), a removal (4003) or another enrollment (4001) was committed.

        Gives the connection that is over, None when there was none. A connect that was under way with the old
        credential is waited for and is over as well.
        """
        with self._one_at_a_time(instance_id):
            return self._change(instance_id, LinkEvent.CLEAR)

    # --- looking ---------------------------------------------------------------------------------------------

    def link(self, instance_id: str) -> Link:
        """How an instance stands with this server."""
        with self._lock:
            return self._links.get(instance_id, Link())

    def connected(self) -> list[Connection]:
        """Every live connection, the oldest first."""
        with self._lock:
            live = [link.connection for link in self._links.values() if link.connection is not None]
        return sorted(live, key=lambda one: one.generation)

    def status(self, instance_id: str, *, revoked: bool) -> PublicStatus:
        """The one word for people. `revoked` is what the registry says."""
        with self._lock:
            link, connecting = self._links.get(instance_id, Link()), instance_id in self._connecting
        return public_status(link.state, revoked=revoked, connecting=connecting)

    def refuse_stale(self, instance_id: str, generation: Generation) -> Connection:
        """The live connection of this generation. Raises `StaleGeneration`: for whatever a frame is stamped with."""
        refuse_no_generation(generation)
        with self._lock:
            current = self._links.get(instance_id, Link()).connection
        if current is None or current.generation != generation:
            stands = "is not connected" if current is None else f"is connected as {current.generation}"
            raise StaleGeneration(
                f"Instance {instance_id!r} of {self._core.path} {stands}; this is of connection {generation}.",
                hint="Drop it: its connection is over.", path=self._core.path, instance_id=instance_id,
                generation=str(generation), current=None if current is None else str(current.generation),
            )
        return current

    # --- inside ----------------------------------------------------------------------------------------------

    def _present(self, instance_id: str, generation: Generation) -> Connection | None:
        refuse_no_generation(generation)
        connection = self._links.get(instance_id, Link()).connection
        return connection if connection is not None and connection.generation == generation else None

    def _change(
        self, instance_id: str, event: LinkEvent, *, upgrade: UpgradeRequired | None = None
    ) -> Connection | None:
        with self._lock:
            return self._change_locked(instance_id, event, upgrade=upgrade)

    def _change_locked(
        self, instance_id: str, event: LinkEvent, *, connection: Connection | None = None,
        upgrade: UpgradeRequired | None = None,
    ) -> Connection | None:
        """Let an event happen; gives the connection that it ended, if any."""
        before = self._links.get(instance_id, Link())
        state = to_event(before.state, event)
        if state is None:
            return None
        if state is LinkState.OFFLINE:
            self._links.pop(instance_id, None)
        else:
            self._links[instance_id] = Link(state=state, connection=connection, upgrade=upgrade)
        return None if event is LinkEvent.COUNT else before.connection

    @contextmanager
    def _one_at_a_time(self, instance_id: str) -> Iterator[None]:
        """Connects of one instance are in order, so that its row tells of the connection that stays."""
        with self._lock:
            turn, users = self._turns.get(instance_id, (threading.Lock(), 0))
            self._turns[instance_id] = turn, users + 1
        try:
            with turn:
                yield
        finally:
            with self._lock:
                users = self._turns[instance_id][1] - 1
                if users:
                    self._turns[instance_id] = turn, users
                else:
                    del self._turns[instance_id]

    @contextmanager
    def _shown_as_connecting(self, instance_id: str) -> Iterator[None]:
        with self._lock:
            self._connecting[instance_id] = self._connecting.get(instance_id, 0) + 1
        try:
            yield
        finally:
            with self._lock:
                self._connecting[instance_id] -= 1
                if not self._connecting[instance_id]:
                    del self._connecting[instance_id]
