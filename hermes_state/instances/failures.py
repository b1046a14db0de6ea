"""Why a plugin could not connect, whether it tries again, and when: two tables and a state machine.

Invariant: a fatal failure ends the attempts at once, in a state that a person sees and that outlives the process;
anything else, known or not, is tried again after 1, 2, 4, ... 30 s, and one success starts that anew.

Not for: connecting. Trying a revoked credential for ever was rejected: it never helps and hides that somebody has to
act. Judging by the text of an error was rejected: codes are what both ends agree on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from hermes_state.errors import InvalidInput
from hermes_state.instances.close_codes import CloseCode, closing

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction

FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS = 1.0, 30.0


class FailureClass(StrEnum):
    """What a failure means for the next attempt."""

    FATAL = "fatal"  # none: a person has to act
    TRANSIENT = "transient"  # after a delay


# By the code of the rejection. What is not here (any error of a transport, a code of a newer server) is transient.
CLASSES: Mapping[str, FailureClass] = {
    "instance_revoked": FailureClass.FATAL,
    "instance_removed": FailureClass.FATAL,
    "invalid_authentication": FailureClass.FATAL,
    "version_incompatible": FailureClass.FATAL,
    # The server says this to a connection that another one took over from: to go on would take it back.
    "connection_replaced": FailureClass.FATAL,
    # A connection after enrollment uses no token, so this only ends an enrollment, which a person repeats anyway.
    "enrollment_expired": FailureClass.TRANSIENT,
    "internal_error": FailureClass.TRANSIENT,
}
# What a close code says when no rejection came before it.
CLOSED_AS: Mapping[CloseCode, str] = {
    CloseCode.REPLACED: "connection_replaced",
    CloseCode.NO_HELLO: "no_hello",
    CloseCode.REFUSED: "invalid_authentication",
    CloseCode.UPGRADE: "version_incompatible",
    CloseCode.NOT_ANSWERING: "not_answering",
}


def classify(code: str) -> FailureClass:
    """The class of a failure by its code."""
    return CLASSES.get(code, FailureClass.TRANSIENT)


def code_of_close(close_code: int) -> str:
    """The failure that a closed socket stands for; `connection_lost` for every code that is not of the table."""
    known = closing(close_code)
    return "connection_lost" if known is None else CLOSED_AS[known.code]


class State(StrEnum):
    """Where a plugin stands with its server."""

    CONNECTING = "connecting"  # an attempt is under way
    CONNECTED = "connected"
    WAITING = "waiting"  # for the next attempt
    NEEDS_ATTENTION = "needs_attention"  # no attempt until a person acts


class Event(StrEnum):
    """What can happen to it."""

    ACCEPTED = "accepted"
    FAILED = "failed"  # a transient failure, or a dropped socket
    FAILED_FATALLY = "failed fatally"
    DUE = "due"
    ATTENDED = "attended"  # a person acted: enrolled again, updated


TRANSITIONS: Mapping[tuple[State, Event], State] = {
    (State.CONNECTING, Event.ACCEPTED): State.CONNECTED,
    (State.CONNECTING, Event.FAILED): State.WAITING,
    (State.CONNECTING, Event.FAILED_FATALLY): State.NEEDS_ATTENTION,
    (State.CONNECTED, Event.FAILED): State.WAITING,
    (State.CONNECTED, Event.FAILED_FATALLY): State.NEEDS_ATTENTION,
    (State.WAITING, Event.DUE): State.CONNECTING,
    (State.WAITING, Event.ATTENDED): State.CONNECTING,
    (State.NEEDS_ATTENTION, Event.ATTENDED): State.CONNECTING,
}


def to_event(state: State, event: Event) -> State | None:
    """The state that follows, or None where the event means nothing."""
    return TRANSITIONS.get((state, event))


def delay_seconds(failures: int) -> float:
    """How long to wait after so many failures in a row, from 1: 1, 2, 4, 8, 16, 30, 30, ... s."""
    return LONGEST_DELAY_SECONDS if failures > 5 else FIRST_DELAY_SECONDS * 2.0 ** (failures - 1)


@dataclass(frozen=True, kw_only=True)
class Attempts:
    """A plugin's attempts to be connected. Pure: every method gives the next record, or the same one."""

    state: State = State.CONNECTING
    attempts: int = 1  # since the last success or the last act of a person, the present one included
    failures: int = 0  # in a row
    due_at: float | None = None  # when the next attempt is due, on the caller's clock; None unless waiting
    code: str | None = None  # of the last failure; None after a success

    def accepted(self) -> Attempts:
        """The attempt succeeded."""
        return self._on(Event.ACCEPTED, failures=0, due_at=None, code=None)

    def failed(self, code: str, now: float) -> Attempts:
        """The attempt failed, or the connection was lost."""
        if classify(code) is FailureClass.FATAL:
            return self._on(Event.FAILED_FATALLY, failures=self.failures + 1, due_at=None, code=code)
        count = self.failures + 1
        # `attempts` counts to the next success: a lost connection starts anew.
        return self._on(Event.FAILED, failures=count, due_at=now + delay_seconds(count), code=code)

    def tick(self, now: float) -> Attempts:
        """What the time does: CONNECTING once the next attempt is due."""
        if self.state is not State.WAITING or self.due_at is None or now < self.due_at:
            return self
        return self._on(Event.DUE, attempts=self.attempts + 1, failures=self.failures, due_at=None, code=self.code)

    def attended(self) -> Attempts:
        """A person acted: an attempt now."""
        return self._on(Event.ATTENDED, attempts=1, failures=0, due_at=None, code=None)

    def _on(
        self, event: Event, *, failures: int, due_at: float | None, code: str | None, attempts: int | None = None
    ) -> Attempts:
        state = to_event(self.state, event)
        if state is None:
            return self
        count = self.attempts if attempts is None else attempts
        if event is Event.ACCEPTED:
            count = 0
        return Attempts(state=state, attempts=count, failures=failures, due_at=due_at, code=code)


# --- what outlives the process -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Attention:
    """Why an instance needs a person."""

    instance_id: str  # whose plugin stopped
    code: str  # of the fatal failure
    since: float  # epoch seconds UTC
    detail: str  # for people


def need_attention(tx: Transaction, instance_id: str, code: str, *, detail: str = "", at: float) -> None:
    """Record a fatal failure, once: the first one stays until somebody attended to it. Raises `InvalidInput`."""
    if classify(code) is not FailureClass.FATAL:
        raise InvalidInput(
            f"{code!r} is not a fatal failure: it is tried again.", hint="See CLASSES in instances/failures.py.",
            argument="code",
        )
    tx.execute(
        "INSERT INTO gateway_attention (instance_id, code, since, detail) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (instance_id) DO NOTHING",
        (instance_id, code, at, detail[:500]),
    )


def attention(reader: Reader, instance_id: str) -> Attention | None:
    """Why an instance needs a person, or None."""
    row = reader.row("SELECT code, since, detail FROM gateway_attention WHERE instance_id = ?", (instance_id,))
    return None if row is None else Attention(instance_id=instance_id, code=row[0], since=row[1], detail=row[2])


def attended(tx: Transaction, instance_id: str) -> bool:
    """A person acted: the plugin may try again. False when nothing was wrong. Also part of removing an instance."""
    return bool(tx.execute("DELETE FROM gateway_attention WHERE instance_id = ?", (instance_id,)))
