"""Starting a turn on a connection: reserved and recorded together, announced, and asked about when nobody knows.

Invariant: the reservation, the record of the operation and the look at generation and epoch are one transaction. An
announcement that failed for certain rolls the turn back; of one without an answer nobody knows whether the gateway
began, so its turn stays and the gateway is asked for its session: the answer names the turn, or it has failed.

Not for: the announcement itself. Rolling back whatever had no answer was rejected: the gateway goes on with a turn that
nobody here knows, and refuses the next one.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING

from hermes_state.errors import IdempotencyConflict, NotConnected, ThreadNotFound, Unanswered
from hermes_state.instances import bindings
from hermes_state.outbox.verdicts import lost_by
from hermes_state.turns import operations

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction
    from hermes_state.engine.core import Core
    from hermes_state.instances.connection_records import Connection, Link
    from hermes_state.turns.records import Turn
    from hermes_state.turns.turns import Turns


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

    def reserve(self, thread_id: str, *, turn_id: str | None = None) -> tuple[Turn, Connection]:
        """Reserve the turn of a thread on the connection of its gateway, and record its start.

        Raises as `Server.start`.
        """
        connection = self._serving(thread_id)
        name, new = connection.instance_id, turn_id or secrets.token_hex(16)

        def within(tx: Transaction) -> None:
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

        turn = self._turns.reserve(
            thread_id, turn_id=new, generation=str(connection.generation), boot_id=connection.boot_id, within=within
        )
        return turn, connection

    def announced(self, turn: Turn) -> Turn:
        """The gateway was told of a reserved turn."""
        return self._turns.announced(
            turn.turn_id,
            within=lambda tx: operations.complete(tx, turn.turn_id, {"started": True}, at=self._core.clock.now()),
        )

    def not_announced(self, turn: Turn, error: BaseException) -> None:
        """Telling the gateway of a reserved turn failed: roll it back, or ask, when nobody knows whether it began."""

        def within(tx: Transaction) -> None:
            operations.lose(tx, turn.turn_id, lost_by(error).why, at=self._core.clock.now())

        if isinstance(error, Unanswered):
            self._core.write(within)
            self._turns.ensure(turn.thread_id)
        else:
            self._turns.withdraw(turn.turn_id, within=within)

    def tidy(self) -> None:
        """Give up what had no answer in its time, forget what was settled a week ago; writes only if there is such."""
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
            raise NotConnected(
                f"Instance {bound.instance_id!r}, which serves thread {thread_id!r} of {self._core.path}, is not"
                " connected to this server.",
                hint="Start its plugin, or wait until it is connected.", path=self._core.path,
                instance_id=bound.instance_id, thread_id=thread_id,
            )
        return connection
