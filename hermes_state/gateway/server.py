"""One start of a gateway server: who is connected, what they are owed, and what others did to them meanwhile.

Invariant: `accept` is the only way to a generation; when it returns, what there is to recover is stored and owed, the
displaced connection's requests have failed, and the credential was good after the connection was there, so whoever
revokes it in that moment is either seen by `accept` or by the next `poll`. Everything that goes out for a thread goes
through `send`, `start` or `request`: the first sends stops before anything else of it, the others refuse while one is
owed. Everything compares the generation, the epoch, and whether the instance is still let in, inside the transaction
that it writes. What was found and could not be told is told by the next call.

Not for: sockets (the caller keeps them by generation) and frames on the wire. A thread of its own was rejected: the
caller has a loop, and says when a second has passed.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from hermes_state.changes import Changes, feed
from hermes_state.errors import InvalidInput, StateError, VersionIncompatible
from hermes_state.gateway.asking import Asking
from hermes_state.gateway.let_in import EveryoneLetIn, LetIn
from hermes_state.gateway.records import GOING_AWAY, Ended, Noticed, Ticked, ended_with, reason_of
from hermes_state.gateway.starts import Starts
from hermes_state.gateway.untold import Untold
from hermes_state.gateway.upkeep import Upkeep
from hermes_state.instances import credentials, registry
from hermes_state.instances.close_codes import CloseCode
from hermes_state.instances.connection_records import Accepted, Connection, DeliveryAccepted, Hello, Link, refuse_odd
from hermes_state.instances.connections import Connections
from hermes_state.instances.generations import Generation, current_epoch, let_go, parse, refuse_no_generation
from hermes_state.instances.last_seen import LastSeen
from hermes_state.instances.liveness import Act, Watch
from hermes_state.instances.sanitising import sanitised
from hermes_state.instances.states import State
from hermes_state.outbox import NotAdmitted
from hermes_state.owners.presence import presence_of
from hermes_state.turns import operations, owing, sending
from hermes_state.turns.correlation import Correlator
from hermes_state.turns.records import instance_of, told
from hermes_state.turns.recovery import RecoveryPlan, apply_recovery, plan_recovery
from hermes_state.turns.turns import Turns

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction
    from hermes_state.engine.core import Core
    from hermes_state.instances.connection_states import PublicStatus
    from hermes_state.instances.protocol import VersionRange
    from hermes_state.outbox import Claim, Verdict
    from hermes_state.turns.frames import Frame
    from hermes_state.turns.receiving import Received
    from hermes_state.turns.records import Turn


class Server(Asking):
    """One start of a gateway server on one store. Safe for threads; calls are short, none waits for a peer."""

    def __init__(
        self, core: Core, *, versions: VersionRange, before: Callable[[Reader], object] | None = None
    ) -> None:
        """See `Gateway.serve`. `before(reader)` takes part in the transaction of the start, and may refuse it."""
        self._core = core
        self._turns = Turns(core, sanitise=sanitised)
        self._waits: weakref.WeakSet[Changes] = weakref.WeakSet()
        self._watch = Watch()
        self._last_seen = LastSeen(core)
        self._lock = threading.Lock()
        self._looking = threading.Lock()
        self._let_in = EveryoneLetIn()
        self.untold = Untold()  # told by the next `poll`, `tick` or `close`
        self._closed, self._holds = False, True
        self._pid = os.getpid()
        # Who waits for an answer on a connection.
        self.requests = Correlator(core.clock)
        self.replaced = False  # by another server, as far as the last `poll` saw: end this one
        with core.reader() as reader:  # of the change feed, up to which `poll` has looked
            self.position = feed.position_of(reader)
        self._connections: Connections[RecoveryPlan] = Connections(
            core, versions=versions, authenticate=credentials.authenticate, plan=plan_recovery,
            apply=lambda tx, plan: apply_recovery(tx, plan, at=core.clock.now()),
            changes_nothing=lambda plan: plan.changes_nothing,
            owner=presence_of(core.path.parent, clock=core.clock).identity,
            started=self._started, before=before,
        )
        self.epoch = self._connections.epoch
        self._starts = Starts(core, self._turns, epoch=self.epoch, guard=self._guard, link=self._connections.link)
        self._upkeep = Upkeep(
            core.clock, sweeps=(self._turns.sweep,), always=(self._last_seen.write, self._starts.tidy)
        )

    # --- who comes and goes ----------------------------------------------------------------------------------

    def accept(self, hello: Hello) -> Accepted[RecoveryPlan]:
        """Let a plugin in, in the place of its earlier connection, and store what it has to recover.

        Send the plugin its acceptance, close the socket of `displaced` with 4001, then call `send`. Raises
        `InvalidInput`, `InvalidAuthentication`, `InstanceRevoked`, `VersionIncompatible` (close with 4004; its
        fact `displaced` names a connection that is over for it), `ServerReplaced`, and what a write raises.
        """
        name = hello.instance_id
        self._refuse_ended()
        refuse_odd(hello)
        with self._core.reader() as reader:
            digest = credentials.digest(reader, "credential", hello.credential, of=name)
        try:
            accepted = self._connections.accept(hello)
        except VersionIncompatible as error:
            if error.facts["displaced"] is not None:
                self._forget(name, parse(error.facts["displaced"]), CloseCode.UPGRADE)
            raise
        assert digest is not None  # it was authenticated
        let_in = LetIn(connection=accepted.connection, digest=digest)
        if accepted.displaced is not None:
            self._forget(name, accepted.displaced.generation, CloseCode.REPLACED)
        self._let_in.add(let_in)
        try:
            # Again, now that `poll` would find it: what was revoked while it was let in is seen here or there.
            with self._core.reader() as reader:
                instance = credentials.authenticate(reader, name, hello.credential)
        except BaseException:
            self.take_back(accepted, code=CloseCode.REFUSED)
            raise
        self._let_in.add(replace(let_in, nickname=instance.nickname))
        self._watch.begin(name, accepted.generation, self._core.clock.monotonic())
        self._last_seen.note(name)
        now = self._connections.link(name).connection
        if now is None or now.generation != accepted.generation:  # ended meanwhile, before all of it was known here
            self._forget(name, accepted.generation, CloseCode.REPLACED)
        if self._closed:  # whoever closed it has seen this connection, or is seen here
            self.take_back(accepted, code=GOING_AWAY)
            self._refuse_ended()
        return accepted

    def take_back(self, accepted: Accepted[RecoveryPlan], *, code: int = 1006) -> None:
        """Nobody has a socket for what was accepted: end it; of the connection that it displaced `poll` tells."""
        self.disconnect(accepted.connection.instance_id, accepted.generation, code=code)
        if accepted.displaced is not None:
            self.untold.keep(ended=[ended_with(accepted.displaced, CloseCode.REPLACED)])

    def admit_delivery(self, hello: Hello) -> DeliveryAccepted:
        """Authenticate a socket that only delivers home; it displaces nobody. Raises as `accept`."""
        self._refuse_ended()
        return self._connections.admit_delivery(hello)

    def disconnect(self, instance_id: str, generation: Generation, *, code: int = 1006) -> bool:
        """A socket ended: fail what waits on it, with the reason of `code`. False for an earlier connection."""
        # In this order: what begins on it after its requests were ended finds that it is over.
        was_live = self._connections.disconnect(instance_id, generation)
        self._forget(instance_id, generation, code)
        return was_live

    # --- what goes out ---------------------------------------------------------------------------------------

    def send(
        self, instance_id: str, generation: Generation, handler: Callable[[Claim], Verdict | None], *,
        most: int = 100,
    ) -> list[tuple[Claim, Verdict]]:
        """Give a connected gateway what is owed to it: stops first, then ensures, then decisions.

        `handler(claim)` sends `claim.primary` and gives the verdict: `answer_of(claim, result)` of what the plugin
        answered, `refusal_of(reason)`, `NotAdmitted`, `Failed`; see `Turns.send`. Call it after `accept`, and for
        whatever `poll` says is `owed`. Raises `StaleGeneration`, `InstanceRevoked`, `ServerReplaced`, and what the
        handler raises.
        """
        return self._turns.send(instance_id, handler, most=most, claim=lambda: self.claim(instance_id, generation))

    def claim(self, instance_id: str, generation: Generation) -> Claim | None:
        """The next of what `send` would send, to be settled by `settle`; for loops of their own."""
        self.refuse_stale(instance_id, generation)
        claimed = next(iter(self._turns.claim(instance_id)), None)
        if claimed is not None:
            try:
                self.refuse_stale(instance_id, generation)  # claiming may have waited for the lock
            except BaseException:
                self.settle(claimed, NotAdmitted(why="its connection ended before it was sent", retry_after=0))
                raise
        return claimed

    def settle(self, claimed: Claim, verdict: Verdict) -> None:
        """Write what became of a claim, and what follows. Raises `StaleFence`."""
        self._turns.settle(claimed, verdict)

    def start(
        self, thread_id: str, announce: Callable[[Turn, Connection], object], *, turn_id: str | None = None
    ) -> Turn:
        """Reserve the turn of a thread, tell its gateway by `announce(turn, connection)`, and have it run.

        What `announce` raises is raised, after the reservation was rolled back; when it was `Unanswered`, nobody
        knows whether the gateway began, so the turn stays and the gateway is asked for its session. A rollback that
        fails is noted on that error, and tried again by `tick`, and by the next start of the thread. Raises
        `ThreadNotFound`, `NotConnected`, `InstanceRevoked`, `ThreadStopped`, `TurnActive`, `IdempotencyConflict`,
        `StaleGeneration`, `ServerReplaced`.
        """
        turn, connection = self.reserve(thread_id, turn_id=turn_id)
        try:
            announce(turn, connection)
        except BaseException as error:
            self.not_announced(turn, error)
            raise
        return self.announced(turn)

    def reserve(self, thread_id: str, *, turn_id: str | None = None) -> tuple[Turn, Connection]:
        """The first half of `start`; follow with `announced` or `not_announced`."""
        self._refuse_ended()
        return self._starts.reserve(thread_id, turn_id=turn_id)

    def announced(self, turn: Turn) -> Turn:
        """The gateway was told of a reserved turn."""
        return self._starts.announced(turn)

    def not_announced(self, turn: Turn, error: BaseException) -> None:
        """Telling the gateway of a reserved turn failed with this error; see `start`. Raises no `StateError`."""
        self._starts.not_announced(turn, error)

    # --- what comes in ---------------------------------------------------------------------------------------

    def receive(self, instance_id: str, generation: Generation, frame: Frame) -> Received:
        """Take a frame about a thread; see `Turns.receive`. Raises as `refuse_stale`."""
        if frame.instance_id != instance_id:
            raise InvalidInput(
                f"A frame came on the connection of {instance_id!r} and says {frame.instance_id!r}.",
                hint="Make frames with the instance of their connection.", argument="frame",
            )
        connection = self.refuse_stale(instance_id, generation)
        self._last_seen.note(instance_id)
        return self._turns.receive(frame, boot_id=connection.boot_id, within=lambda tx: self._guard(tx, connection))

    def record_session_count(self, instance_id: str, generation: Generation, count: int) -> bool:
        """How many sessions a connection says that it has; in memory. False for an earlier connection."""
        return self._connections.record_session_count(instance_id, generation, count)

    def pong(self, instance_id: str, generation: Generation, probe: int) -> bool:
        """A probe was answered; in memory. False for an earlier connection. Raises `InvalidInput`."""
        refuse_no_generation(generation)
        if isinstance(probe, bool) or not isinstance(probe, int):
            raise InvalidInput(f"A pong has the number of its probe, not {told(probe, 80)!r}.", argument="probe")
        counts = self._watch.answer(instance_id, generation, probe, self._core.clock.monotonic())
        if counts:
            self._last_seen.note(instance_id)
        return counts

    # --- what others did, and the time -----------------------------------------------------------------------

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Block until the store changed since the last `poll`; False when the time passed, or at `close`."""
        return self.new_wait().wait(self.position, timeout_seconds=timeout_seconds)

    def new_wait(self) -> Changes:
        """What `wait` waits with; its `stop` ends that one, and so does `close`."""
        changes = Changes(self._core)
        with self._lock:
            self._waits.add(changes)
        if self._closed:
            changes.stop()
        return changes

    def poll(self) -> Noticed:
        """Look at what others did: close the sockets of `ended`, `send` to whom something is `owed`.

        Without a change this is three short reads.
        """
        self._refuse_ended()
        with self._looking:
            with self._core.reader() as reader:
                changed, position = feed.keys_since(reader, self.position, registry.TABLE)
                replaced = current_epoch(reader) != self.epoch
                out, renamed = self._let_in.judge(reader, changed)
                transports = sending.waiting(reader, at=self._core.clock.now())
            # Nothing that follows can fail: what was found is told.
            self.position, self.replaced = position, self.replaced or replaced
            self._let_in.renamed(renamed)
            renamed = self.untold.renamed() + renamed
        ended = self.untold.ended() + self._end(out)
        if self.replaced:
            ended += self._end((one, GOING_AWAY) for one in self._connections.connected())
        here = (self._connections.link(instance_of(transport)).connection for transport in transports)
        owed = sorted((one for one in here if one is not None), key=lambda one: one.generation.number)
        return Noticed(ended=tuple(ended), renamed=tuple(renamed), owed=tuple(owed))

    def tick(self) -> Ticked:
        """`poll`, and what the time brings; to be called about once a second.

        Probes that are due, connections that do not answer (4008), deadlines of requests and questions, stops that
        ran out of attempts, records that are kept no longer, and when instances were last heard of. Raises what a
        write raises; then the next call, which writes nothing for some seconds, tells what this one found.
        """
        noticed = self.poll()
        now = self._core.clock.monotonic()
        probes, ended = self.untold.probes(), list(noticed.ended)
        for due in self._watch.due(now):
            if due.act is Act.PROBE:
                probes.append(due)
            elif (live := self._connections.link(due.instance_id).connection) and live.generation == due.generation:
                ended += self._end([(live, CloseCode.NOT_ANSWERING)])
        self.requests.end_overdue()
        self.requests.sweep()
        found = Ticked(ended=tuple(ended), renamed=noticed.renamed, owed=noticed.owed, probes=tuple(probes))
        try:
            if not self.replaced:
                self._upkeep.run()
        except BaseException:
            self.untold.keep_all(found)
            raise
        return found

    # --- looking ---------------------------------------------------------------------------------------------

    def status(self, instance_id: str) -> PublicStatus:
        """The one word for people about an instance. Raises `InstanceNotFound`."""
        with self._core.reader() as reader:
            found = registry.get(reader, instance_id)
        revoked = found.state in (State.REVOKED, State.REMOVED)
        return self._connections.status(instance_id, revoked=revoked)

    def connected(self) -> list[Connection]:
        """Every live connection, the oldest first."""
        return self._connections.connected()

    def link(self, instance_id: str) -> Link:
        """How an instance stands with this server."""
        return self._connections.link(instance_id)

    def refuse_stale(self, instance_id: str, generation: Generation) -> Connection:
        """The live connection of this generation, whose instance is let in as it was then.

        Raises `StaleGeneration`, `InstanceRevoked`, `ServerReplaced`.
        """
        self._refuse_ended()
        found = self._connections.refuse_stale(instance_id, generation)
        with self._core.reader() as reader:
            self._connections.refuse_replaced(reader)
            self._let_in.refuse(reader, found)
        return found

    # --- its end ---------------------------------------------------------------------------------------------

    def close(self) -> list[Ended]:
        """End this server: it lets go of the store; nothing is stopped. Gives the connections to close, with 1001.

        Raises what a write raises; the next call tries again, and gives them then.
        """
        with self._lock:
            self._closed, waits = True, list(self._waits)
        for wait in waits:
            wait.stop()
        ended = self.untold.ended() + self._end((one, GOING_AWAY) for one in self._connections.connected())
        if self._holds and self._pid == os.getpid():  # a forked child's copy holds nothing
            try:
                self._core.write(lambda tx: let_go(tx, self.epoch))
            except BaseException:
                self.untold.keep(ended=ended)
                raise
            self._holds = False  # not before: a write that failed is tried again by the next call
        return ended

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<gateway Server epoch {self.epoch} on {self._core.path}>"

    # --- inside ----------------------------------------------------------------------------------------------

    def _refuse_ended(self) -> None:
        if self._closed:
            raise StateError(
                f"The gateway server of epoch {self.epoch} on {self._core.path} was ended.",
                hint="Start another one with store.gateway.serve(...).", path=self._core.path, epoch=self.epoch,
            )

    def _guard(self, reader: Reader, connection: Connection) -> None:
        self._connections.refuse_replaced(reader)
        self._connections.refuse_stale(connection.instance_id, connection.generation)
        self._let_in.refuse(reader, connection)

    def _started(self, tx: Transaction, epoch: int) -> None:
        """Part of the start."""
        at = self._core.clock.now()
        operations.give_up_earlier(tx, epoch, at=at)
        owing.move_old(tx, at=at)

    def _forget(self, instance_id: str, generation: Generation, code: int) -> None:
        """Let go of one connection in memory; who waits on it hears the reason of `code`."""
        self.requests.end_connection(instance_id, str(generation), close_code=code, reason=reason_of(code))
        self._watch.end(instance_id, generation)
        self._let_in.drop(instance_id, generation)

    def _end(self, over: Iterable[tuple[Connection, int]]) -> list[Ended]:
        """End connections; gives those that nobody else ended in the same moment. With no lock: callbacks run here."""
        return [
            ended_with(one, code)
            for one, code in over if self.disconnect(one.instance_id, one.generation, code=code)
        ]
