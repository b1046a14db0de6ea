"""Starting a turn on a connection: reserved and recorded together, announced, and asked about when nobody knows.

Invariant: the reservation, the record of the operation and the look at binding, generation and epoch are one
transaction. An announcement that failed for certain rolls the turn back, as soon as that can be written; of one without
an answer nobody knows whether the gateway began, so its turn stays and the gateway is asked for its session: the answer
names the turn, or it has failed. What was stopped meanwhile is not asked for.

Not for: the announcement itself. Rolling back whatever had no answer was rejected: the gateway goes on with a turn that
nobody here knows, and refuses the next one.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from hermes_state.errors import IdempotencyConflict, NotConnected, StateError, ThreadNotFound, Unanswered
from hermes_state.instances import bindings
from hermes_state.outbox.verdicts import lost_by
from hermes_state.turns import operations, recovery, settling, threads
from hermes_state.turns.records import find_thread, find_turn, need_thread
from hermes_state.turns.states import TurnEvent, TurnState

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction
    from hermes_state.engine.core import Core
    from hermes_state.instances.connection_records import Connection, Link
    from hermes_state.turns.records import Turn
    from hermes_state.turns.turns import Turns


class _Moved(Exception):
    """The thread was bound to another instance since its connection was looked up."""


class Starts:
    """The starts of turns of one server. Safe for threads."""

    def __init__(
        self, core: Core, turns: Turns, *, epoch: int, guard: Callable[[Reader, Connection], object],
        link: Callable[[str], Link],
    ) -> None:
        """`guard(reader, connection)` raises when the connection, or the server, is not the present one.

        `link(instance_id)` says how an instance stands with the server.
        """
        self._core = core
        self._turns = turns
        self._epoch = epoch
        self._guard = guard
        self._link = link
        self._lock = threading.Lock()
        self._undone: dict[str, tuple[Turn, BaseException]] = {}  # by turn: what could not be rolled back yet

    def reserve(self, thread_id: str, *, turn_id: str | None = None) -> tuple[Turn, Connection]:
        """Reserve the turn of a thread on the connection of its gateway, and record its start.

        Raises as `Server.start`.
        """
        self._roll_back_again(thread_id)
        new = turn_id or secrets.token_hex(16)
        while True:
            connection = self._serving(thread_id)
            try:
                return self._reserve(thread_id, new, connection), connection
            except _Moved:
                continue

    def _reserve(self, thread_id: str, new: str, connection: Connection) -> Turn:
        name = connection.instance_id

        def within(tx: Transaction) -> None:
            bound = bindings.find(tx, thread_id)
            if bound is None or bound.instance_id != name:
                raise _Moved
            self._guard(tx, connection)
            admitted = operations.admit(
                tx, new, "turn.start", instance_id=name, thread_id=thread_id, request={}, epoch=self._epoch,
                at=self._core.clock.now(),
            )
            if not admitted.new:
                raise IdempotencyConflict(
                    f"Turn {new!r} of thread {thread_id!r} in {tx.path} was started before.",
                    hint="Look at that one; give another turn another id.", path=tx.path, key=new,
                )

        return self._turns.reserve(
            thread_id, turn_id=new, generation=str(connection.generation), boot_id=connection.boot_id, within=within
        )

    def announced(self, turn: Turn) -> Turn:
        """The gateway was told of a reserved turn."""
        return self._turns.announced(
            turn.turn_id,
            within=lambda tx: operations.complete(tx, turn.turn_id, {"started": True}, at=self._core.clock.now()),
        )

    def not_announced(self, turn: Turn, error: BaseException) -> None:
        """Telling the gateway of a reserved turn failed: roll it back, or ask, when nobody knows whether it began.

        When that cannot be written, `error` gets a note, and it is tried again.
        """
        try:
            self._roll_back(turn, error)
        except StateError as failure:
            with self._lock:
                self._undone[turn.turn_id] = turn, error
            error.add_note(f"The reservation of turn {turn.turn_id!r} was not rolled back yet: {failure}")

    def _roll_back(self, turn: Turn, error: BaseException) -> None:
        def work(tx: Transaction) -> None:
            at = self._core.clock.now()
            if operations.read(tx, turn.turn_id) is not None:
                operations.lose(tx, turn.turn_id, lost_by(error).why, at=at)
            found = find_turn(tx, turn.turn_id)
            if found is None:
                return  # it went with its binding
            if not isinstance(error, Unanswered):
                settling.step(
                    tx, need_thread(tx, turn.thread_id), found, TurnEvent.WITHDRAW, at=at,
                    error="its announcement failed",
                )
            elif found.state in (TurnState.STARTING, TurnState.RUNNING):  # of one that is stopped the stop is owed
                recovery.ask(tx, turn.thread_id, at=at)

        self._core.write(work, durability="power")

    def _roll_back_again(self, thread_id: str | None = None) -> None:
        """Roll back what could not be before, of one thread or of all. Raises what a write raises."""
        with self._lock:
            undone = [one for one in self._undone.values() if thread_id in (None, one[0].thread_id)]
        for turn, error in undone:
            self._roll_back(turn, error)
            with self._lock:
                self._undone.pop(turn.turn_id, None)

    def tidy(self) -> None:
        """Give up what had no answer in its time, forget what was settled a week ago, roll back what could not be.

        Writes only if there is such.
        """
        self._roll_back_again()
        at = self._core.clock.now()
        with self._core.reader() as reader:
            due = operations.any_due(reader, at=at)

        def work(tx: Transaction) -> None:
            operations.give_up_overdue(tx, at=at)
            operations.forget_settled(tx, at=at)

        if due:
            self._core.write(work)

    def _serving(self, thread_id: str) -> Connection:
        with self._core.reader() as reader:
            bound = bindings.find(reader, thread_id)
        if bound is None:
            raise ThreadNotFound(
                f"No gateway serves thread {thread_id!r} in {self._core.path}.", hint="Bind it to an instance first.",
                path=self._core.path, thread_id=thread_id,
            )
        connection = self._link(bound.instance_id).connection
        if connection is None:
            with self._core.reader() as reader:
                if (thread := find_thread(reader, thread_id)) is not None:
                    threads.refuse_out(reader, thread)
            raise NotConnected(
                f"Instance {bound.instance_id!r}, which serves thread {thread_id!r} of {self._core.path}, is not"
                " connected to this server.",
                hint="Start its plugin, or wait until it is connected.", path=self._core.path,
                instance_id=bound.instance_id, thread_id=thread_id,
            )
        return connection
