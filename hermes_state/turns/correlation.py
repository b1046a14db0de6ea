"""Which answer belongs to which request, for as long as somebody waits.

Invariant: a request that was begun ends: by its answer, its deadline, the end of its connection, by age, or because its
block was left, whichever comes first; then nothing of it is kept but its id among the last ones, so that a second
answer is called a duplicate and a late one late. Deadlines come from the table of operations.

Not for: what a crash must not lose (see `operations`). One constant for all was rejected: a steer is answered between
two steps of an agent, a start at once. A timer for each request was rejected: one tick for all keeps none alive.
"""

from __future__ import annotations

import threading
import uuid
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from hermes_state.clock import Clock
from hermes_state.errors import ConnectionLost, InvalidInput, RequestAbandoned, RequestTimedOut, Unanswered
from hermes_state.turns.operations import deadline_seconds

# A request older than this has nobody left who waits for it; see `sweep`, to be called every 60 s.
MOST_AGE_SECONDS = 90.0
SWEEP_EVERY_SECONDS = 60.0
# How many ended requests are remembered, to tell a duplicate or late answer from one to nothing.
REMEMBERED = 4_096


class State(StrEnum):
    """Where a request stands. All but the first are terminal."""

    WAITING = "waiting"
    ANSWERED = "answered"
    TIMED_OUT = "timed out"
    LOST = "lost"  # with its connection
    ABANDONED = "abandoned"  # swept by age
    LEFT = "left"  # its block ended without an answer


class Event(StrEnum):
    """What can happen to it."""

    ANSWER = "answer"
    DEADLINE = "deadline"
    LOSE = "lose"
    AGE = "age"
    LEAVE = "leave"


class Reply(StrEnum):
    """What an answer was, each counted."""

    DELIVERED = "delivered"
    DUPLICATE = "duplicate"  # the request was answered before
    LATE = "late"  # it ended without an answer before
    UNKNOWN = "unknown"  # no such request, or too long ago


TRANSITIONS: Mapping[tuple[State, Event], State] = {
    (State.WAITING, Event.ANSWER): State.ANSWERED,
    (State.WAITING, Event.DEADLINE): State.TIMED_OUT,
    (State.WAITING, Event.LOSE): State.LOST,
    (State.WAITING, Event.AGE): State.ABANDONED,
    (State.WAITING, Event.LEAVE): State.LEFT,
}


def to_event(state: State, event: Event) -> State | None:
    """The state that follows, or None: what ended has no events."""
    return TRANSITIONS.get((state, event))


def reply_to(state: State | None) -> Reply:
    """What an answer to a request in this state is; None for one that nobody knows."""
    if state is None:
        return Reply.UNKNOWN
    if state is State.WAITING:
        return Reply.DELIVERED
    return Reply.DUPLICATE if state is State.ANSWERED else Reply.LATE


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request that somebody waits for."""

    id: str  # correlation id: the answer names it
    owner: str  # the instance that it was sent to
    connection: str  # generation of the connection that it was sent on, as text
    method: str  # of the table of deadlines
    begun_at: float  # of the monotonic clock
    deadline_at: float  # of the monotonic clock
    answer: Future[Any] = field(repr=False, compare=False)  # for asyncio: asyncio.wrap_future(request.answer)


class Correlator:
    """The requests of one server that wait for an answer. Safe for threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: dict[str, Request] = {}
        # ids of what waits, by connection: the end of one looks at its own requests only
        self._on: dict[tuple[str, str], set[str]] = {}
        self._ended: OrderedDict[str, State] = OrderedDict()
        # answers since the start, by what they were
        self.replies: Counter[Reply] = Counter()

    @contextmanager
    def request(
        self, owner: str, connection: str, method: str, *, request_id: str | None = None,
        seconds: float | None = None,
    ) -> Iterator[Request]:
        """Begin a request, for the `with` block in which it is sent and waited for; it is over when the block is left.

        `seconds` is another deadline than the table's, at most 90. Raises `InvalidInput`.
        """
        begun = self.begin(owner, connection, method, request_id=request_id, seconds=seconds)
        try:
            yield begun
        finally:
            self.leave(begun.id)

    async def ask(
        self, owner: str, connection: str, method: str, send: Callable[[Request], Awaitable[object]], *,
        request_id: str | None = None, seconds: float | None = None,
    ) -> Any:
        """Begin a request, send it, and give its answer. Cancelled anywhere, it is over at once.

        Raises what `send` raises, `RequestTimedOut`, `ConnectionLost`, `RequestAbandoned`, and what `refuse` was given.
        The deadline is kept by `end_overdue`: there is no timer for each request.
        """
        import asyncio

        with self.request(owner, connection, method, request_id=request_id, seconds=seconds) as request:
            await send(request)
            return await asyncio.wrap_future(request.answer)

    def begin(
        self, owner: str, connection: str, method: str, *, request_id: str | None = None,
        seconds: float | None = None,
    ) -> Request:
        """Begin a request without a block; whoever calls this calls `leave` on every way out."""
        allowed = deadline_seconds(method) if seconds is None else seconds
        if not 0 < allowed <= MOST_AGE_SECONDS:
            raise InvalidInput(
                f"A request may take up to {MOST_AGE_SECONDS:.0f} s, not {allowed!r}.", argument="seconds"
            )
        now = self._clock.monotonic()
        begun = Request(
            id=request_id or uuid.uuid4().hex, owner=owner, connection=connection, method=method, begun_at=now,
            deadline_at=now + allowed, answer=Future(),
        )
        with self._lock:
            if begun.id in self._waiting or begun.id in self._ended:
                raise InvalidInput(f"Request {begun.id!r} was begun before.", argument="request_id")
            self._waiting[begun.id] = begun
            self._on.setdefault((owner, connection), set()).add(begun.id)
        return begun

    def answer(
        self, request_id: str, result: Any, *, owner: str | None = None, connection: str | None = None
    ) -> Reply:
        """An answer came. Only a first one before the deadline is given to who waits; the others are counted.

        `owner` and `connection`: on whose connection it came; where they are given, a request that was sent to another
        one is none. What several peers can reach gives them, as `Server.answer` does. Raises `InvalidInput` for an id
        that is no text.
        """
        return self._answer(request_id, (owner, connection), lambda request: request.answer.set_result(result))

    def refuse(
        self, request_id: str, error: Exception, *, owner: str | None = None, connection: str | None = None
    ) -> Reply:
        """An answer came that refuses: who waits gets the error. As `answer`."""
        return self._answer(request_id, (owner, connection), lambda request: request.answer.set_exception(error))

    def _answer(
        self, request_id: str, sender: tuple[str | None, str | None], give: Callable[[Request], None]
    ) -> Reply:
        if not isinstance(request_id, str):
            raise InvalidInput(f"The id of a request is a text, not {request_id!r:.80}.", argument="request_id")
        self._end_overdue(only=request_id)
        with self._lock:
            state = State.WAITING if request_id in self._waiting else self._ended.get(request_id)
            waiting = self._waiting.get(request_id)
            if waiting is not None and any(
                given not in (None, asked)
                for given, asked in zip(sender, (waiting.owner, waiting.connection), strict=True)
            ):
                state = None
            reply = reply_to(state)
            self.replies[reply] += 1
            request = self._end_locked(request_id, Event.ANSWER) if reply is Reply.DELIVERED else None
        if request is not None:
            _tell(request, give)
        return reply

    def leave(self, request_id: str) -> None:
        """Nobody waits any more. Nothing happens to a request that is over."""
        with self._lock:
            request = self._end_locked(request_id, Event.LEAVE)
        if request is not None:
            request.answer.cancel()

    def end_overdue(self) -> int:
        """End what is past its deadline with `RequestTimedOut`; gives how many. To be called once a second."""
        return self._end_overdue(only=None)

    def _end_overdue(self, *, only: str | None) -> int:
        now = self._clock.monotonic()
        with self._lock:
            some = self._waiting.values() if only is None else filter(None, [self._waiting.get(only)])
            over = [one for one in some if now > one.deadline_at]
            for one in over:
                self._end_locked(one.id, Event.DEADLINE)
        for one in over:
            seconds = one.deadline_at - one.begun_at
            _fail(one, RequestTimedOut(
                f"Instance {one.owner!r} did not answer {one.method} within {seconds:.0f} s.",
                hint="Whether it was carried out is not known.", **_facts(one), deadline_seconds=seconds,
            ))
        return len(over)

    def end_connection(self, owner: str, connection: str, *, close_code: int, reason: str) -> int:
        """Fail what waits on a connection that ended, all in one step; gives how many.

        Call it before the socket is closed, so that those who wait hear `reason` and not that a socket closed.
        """
        with self._lock:
            lost = [self._waiting[name] for name in self._on.get((owner, connection), ())]
            for one in lost:
                self._end_locked(one.id, Event.LOSE)
        for one in lost:
            _fail(one, ConnectionLost(
                f"The connection of instance {owner!r} ended before it answered {one.method}: {reason}.",
                hint="Whether it was carried out is not known.", **_facts(one), close_code=close_code, reason=reason,
            ))
        return len(lost)

    def sweep(self) -> int:
        """End with `RequestAbandoned` what is older than 90 s; gives how many. To be called every 60 s."""
        now = self._clock.monotonic()
        with self._lock:
            old = [one for one in self._waiting.values() if now - one.begun_at >= MOST_AGE_SECONDS]
            for one in old:
                self._end_locked(one.id, Event.AGE)
        for one in old:
            age = now - one.begun_at
            _fail(one, RequestAbandoned(
                f"Request {one.method} to instance {one.owner!r} was abandoned: nobody ended it for {age:.0f} s.",
                hint="Whether it was carried out is not known.", **_facts(one), age_seconds=age,
            ))
        return len(old)

    def _end_locked(self, request_id: str, event: Event) -> Request | None:
        """Let an event happen to a request; gives it when that ended it."""
        if request_id not in self._waiting:
            return None
        state = to_event(State.WAITING, event)
        assert state is not None  # every event ends what waits
        self._ended[request_id] = state
        if len(self._ended) > REMEMBERED:
            self._ended.popitem(last=False)
        ended = self._waiting.pop(request_id)
        others = self._on[ended.owner, ended.connection]
        others.remove(request_id)
        if not others:
            del self._on[ended.owner, ended.connection]
        return ended

    def __len__(self) -> int:
        return len(self._waiting)


def _facts(one: Request) -> dict[str, Any]:
    return {"request_id": one.id, "owner": one.owner, "method": one.method}


def _fail(one: Request, error: Unanswered) -> None:
    _tell(one, lambda request: request.answer.set_exception(error))


def _tell(one: Request, give: Callable[[Request], None]) -> None:
    try:
        give(one)
    except InvalidStateError:
        # Whoever waited cancelled it in the same moment: there is nobody to tell, and the request is over either way.
        return
