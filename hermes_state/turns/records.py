"""Threads, turns, interactions, stops and deliveries as they stand, and how they are read.

Invariant: the gateway and the session of a thread are in its binding and nowhere else; what is read of them here is
read there, in one statement.

Not for: changing anything.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from hermes_state.errors import InvalidInput, ThreadNotFound
from hermes_state.turns.states import Decision, InteractionState, StopState, ThreadStatus, TurnState

if TYPE_CHECKING:
    from hermes_state.engine import Reader

ItemType = Literal[
    "user_message", "assistant_message", "reasoning", "command_execution", "file_change", "web_search", "image_view",
    "mcp_tool_call", "status_text",
]


_TRANSPORTS = "gateway/"
# Longest text of somebody else about an error, a question or an outcome that is kept; it is for people.
MOST_TOLD = 4096


def told(text: object, most: int = MOST_TOLD) -> str:
    """Text that somebody else sent, as a row may have it: at most that many code points, no lone surrogates.

    What is none is told as Python shows it, or, where it cannot (too deep, too many digits), by what it is.
    """
    try:
        cut = str(text)[:most]
    except (RecursionError, ValueError):
        cut = f"({type(text).__name__})"
    return cut if cut.isascii() else cut.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def is_id(value: object) -> bool:
    """Whether this can be the id of a turn, a session or a process: a text of 1 to 512 characters as UTF-8 has them."""
    return isinstance(value, str) and 0 < len(value) <= 512 and "\0" not in value and told(value, 512) == value


def refuse_no_id(name: str, value: object) -> None:
    """Raise `InvalidInput` unless `is_id`."""
    if not is_id(value):
        raise InvalidInput(
            f"{name} is a text of 1 to 512 characters without NUL that UTF-8 can say, not {value!r:.80}.",
            argument=name,
        )


_MARK = re.compile(r"\x1f[0-9a-f]{32}\Z")


def in_turn(request_id: str, thread_id: str, turn_id: str | None) -> str:
    """How the id of a question is stored when the plugin used it in another thread or turn before."""
    return f"{request_id}\x1f{hashlib.sha256(repr((thread_id, turn_id)).encode()).hexdigest()[:32]}"


def marked(request_id: str) -> bool:
    """Whether an id looks as `in_turn` gives it."""
    return _MARK.search(request_id) is not None


def plain_id(stored: str) -> str:
    """The plugin's id of a question, from how it is stored."""
    return _MARK.sub("", stored)


def transport_of(instance_id: str) -> str:
    """The outbox transport that is up while that gateway is connected."""
    return f"{_TRANSPORTS}{instance_id}"


def instance_of(transport: str) -> str:
    """Whose transport that is: the other way round."""
    return transport.removeprefix(_TRANSPORTS)


@dataclass(frozen=True, kw_only=True)
class Thread:
    """A bound thread as it stands with its gateway."""

    thread_id: str
    instance_id: str  # the gateway that serves it
    session_id: str  # the gateway's id of its session
    status: ThreadStatus
    turn_ids: bool  # whether its provider knows ids of turns
    active_turn_id: str | None  # set exactly while `status` is running
    boot_id: str | None  # the plugin process that was last known to have its session
    resumed: bool | None  # whether that plugin's history had as many rows as ours; None: it was never asked
    history_rows: int  # settled turns of this session, ever
    ensures: int  # how often the gateway was asked for its session
    rejected: int  # ends of turns that came for another turn than the active one
    error: str | None  # why it is in error


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One turn."""

    no: int  # the order of starting
    turn_id: str  # minted here
    thread_id: str
    session_id: str  # the gateway's session it runs in
    generation: str | None  # connection it was started on, 'epoch.n'
    state: TurnState
    exit_class: Literal["graceful", "error"] | None  # None until it ends, and of one that never began
    started_at: float  # epoch seconds UTC
    settled_at: float | None  # epoch seconds UTC
    error: str | None  # why it failed or was given up
    items: int  # how many it ever had; the last ones are kept


@dataclass(frozen=True, kw_only=True)
class Item:
    """One thing that happened in a turn."""

    number: int  # within the turn, from 1
    item_type: ItemType
    fields: Mapping[str, Any]  # whitelisted and bounded
    at: float  # epoch seconds UTC


@dataclass(frozen=True, kw_only=True)
class Interaction:
    """One question of a gateway to a person."""

    id: int  # what it is answered by
    instance_id: str
    boot_id: str | None  # the plugin process that waits for the answer
    request_id: str  # the plugin's id of it
    thread_id: str
    session_id: str
    turn_id: str | None
    kind: Literal["approval", "user_input"]
    request_type: str  # what is asked for
    args: Mapping[str, Any]  # whitelisted and bounded
    detail: str | None
    questions: tuple[Any, ...]  # of user_input
    opened_at: float  # epoch seconds UTC
    expires_at: float | None  # epoch seconds UTC; None: it does not expire by itself
    state: InteractionState
    decision: Decision | None
    answers: Mapping[str, Any] | None
    settled_at: float | None  # epoch seconds UTC
    reason: str | None  # why it was cancelled
    sent_at: float | None  # epoch seconds UTC; when the gateway acknowledged the decision
    late: int  # answers that came after its end


@dataclass(frozen=True, kw_only=True)
class Stop:
    """One stop that was asked for."""

    no: int  # the order of asking
    stop_id: str  # what the gateway knows a repeat by
    instance_id: str
    thread_id: str
    session_id: str
    turn_id: str | None  # what was active
    state: StopState
    obligation: str  # dedupe id of its outbox row
    asked_at: float  # epoch seconds UTC
    settled_at: float | None  # epoch seconds UTC
    outcome: str | None  # what the gateway said, or what made it void


@dataclass(frozen=True, kw_only=True)
class HomeDelivery:
    """Something a gateway delivered home: visible once."""

    no: int  # the order in which they became visible
    instance_id: str
    delivery_id: str  # the sender's
    thread_id: str  # where it is shown; resolved here, never what the sender says
    payload: Any  # {"unreadable": why} for one that was stored too deep to be read, by an earlier release
    made_at: float | None  # epoch seconds UTC, as the sender says
    received_at: float  # epoch seconds UTC


THREAD_COLUMNS = (
    "s.thread_id, b.instance_id, b.session_id, s.status, s.turn_ids, s.active_turn_id, s.boot_id, s.resumed,"
    " s.history_rows, s.ensures, s.rejected, s.error"
)
THREADS = "thread_states s JOIN thread_bindings b ON b.thread_id = s.thread_id"
TURN_COLUMNS = (
    "no, turn_id, thread_id, session_id, generation, state, exit_class, started_at, settled_at, error, items"
)
INTERACTION_COLUMNS = (
    "id, instance_id, boot_id, request_id, thread_id, session_id, turn_id, kind, request_type, args, detail, questions,"
    " opened_at, expires_at, state, decision, answers, settled_at, reason, sent_at, late"
)
STOP_COLUMNS = (
    "no, stop_id, instance_id, thread_id, session_id, turn_id, state, obligation, asked_at, settled_at, outcome"
)
ACTIVE = "state IN ('starting', 'running', 'stopping')"


def thread_of(row: Sequence[Any]) -> Thread:
    """A row of `THREAD_COLUMNS`."""
    (
        thread_id, instance_id, session_id, status, turn_ids, active, boot_id, resumed, history, ensures, rejected,
        error,
    ) = row
    return Thread(
        thread_id=thread_id, instance_id=instance_id, session_id=session_id, status=ThreadStatus(status),
        turn_ids=bool(turn_ids), active_turn_id=active, boot_id=boot_id,
        resumed=None if resumed is None else bool(resumed), history_rows=history, ensures=ensures, rejected=rejected,
        error=error,
    )


def find_thread(reader: Reader, thread_id: str) -> Thread | None:
    """A thread that has a state, None for one that is not bound or was never used."""
    row = reader.row(f"SELECT {THREAD_COLUMNS} FROM {THREADS} WHERE s.thread_id = ?", (thread_id,))
    return None if row is None else thread_of(row)


def need_thread(reader: Reader, thread_id: str) -> Thread:
    """As `find_thread`. Raises `ThreadNotFound`."""
    found = find_thread(reader, thread_id)
    if found is None:
        raise ThreadNotFound(
            f"No gateway serves thread {thread_id!r} in {reader.path}.",
            hint="Bind it to an instance, then start a turn in it.", path=reader.path, thread_id=thread_id,
        )
    return found


def turn_of(row: Sequence[Any]) -> Turn:
    """A row of `TURN_COLUMNS`."""
    no, turn_id, thread_id, session_id, generation, state, exit_class, started_at, settled_at, error, items = row
    return Turn(
        no=no, turn_id=turn_id, thread_id=thread_id, session_id=session_id, generation=generation,
        state=TurnState(state), exit_class=exit_class, started_at=started_at, settled_at=settled_at, error=error,
        items=items,
    )


def find_turn(reader: Reader, turn_id: str) -> Turn | None:
    """One turn by its id."""
    row = reader.row(f"SELECT {TURN_COLUMNS} FROM turns WHERE turn_id = ?", (turn_id,))
    return None if row is None else turn_of(row)


def active_turn(reader: Reader, thread_id: str) -> Turn | None:
    """The turn of a thread that has not ended."""
    row = reader.row(f"SELECT {TURN_COLUMNS} FROM turns WHERE thread_id = ? AND {ACTIVE}", (thread_id,))
    return None if row is None else turn_of(row)


def interaction_of(row: Sequence[Any]) -> Interaction:
    """A row of `INTERACTION_COLUMNS`."""
    (
        number, instance_id, boot_id, request_id, thread_id, session_id, turn_id, kind, request_type, args, detail,
        questions, opened_at, expires_at, state, decision, answers, settled_at, reason, sent_at, late,
    ) = row
    return Interaction(
        id=number, instance_id=instance_id, boot_id=boot_id, request_id=plain_id(request_id), thread_id=thread_id,
        session_id=session_id, turn_id=turn_id, kind=kind, request_type=request_type, args=json.loads(args),
        detail=detail, questions=() if questions is None else tuple(json.loads(questions)), opened_at=opened_at,
        expires_at=expires_at, state=InteractionState(state), decision=None if decision is None else Decision(decision),
        answers=None if answers is None else json.loads(answers), settled_at=settled_at, reason=reason,
        sent_at=sent_at, late=late,
    )


def stop_of(row: Sequence[Any]) -> Stop:
    """A row of `STOP_COLUMNS`."""
    (
        no, stop_id, instance_id, thread_id, session_id, turn_id, state, obligation, asked_at, settled_at, outcome,
    ) = row
    return Stop(
        no=no, stop_id=stop_id, instance_id=instance_id, thread_id=thread_id, session_id=session_id, turn_id=turn_id,
        state=StopState(state), obligation=obligation, asked_at=asked_at, settled_at=settled_at, outcome=outcome,
    )


def find_stop(reader: Reader, stop_id: str) -> Stop | None:
    """One stop by its id."""
    row = reader.row(f"SELECT {STOP_COLUMNS} FROM stops WHERE stop_id = ?", (stop_id,))
    return None if row is None else stop_of(row)
