"""Whether a connection still answers: a state machine on a clock, and a watch over all connections.

Invariant: a connection that stopped answering is found within 28 s, and before any request on it may run out (the
shortest deadline is 30 s), so that those who wait hear the real reason. A probe is sent 10 s after the last answer; one
that is not answered within 6 s is a miss and is followed by another at once; the third miss in a row retires the
connection. An answer that comes late is an answer: it proves life. Nothing here is ever stored.

Not for: sending probes or closing sockets; `Watch.due` says which. A probe only after a request failed was rejected:
a half-open socket then reads as connected until somebody needs it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from hermes_state.instances.generations import Generation

PROBE_AFTER_SECONDS = 10.0
ANSWER_WITHIN_SECONDS = 6.0
MOST_MISSES = 3
LONGEST_SECONDS = PROBE_AFTER_SECONDS + MOST_MISSES * ANSWER_WITHIN_SECONDS  # 28


class State(StrEnum):
    """Where one connection stands."""

    RESTING = "resting"  # it answered; the next probe is not due
    PROBED = "probed"  # a probe is out
    RETIRED = "retired"  # terminal: it does not answer


class Event(StrEnum):
    """What can happen to it."""

    DUE = "due"  # the time came: to probe, or for the answer to be there
    DUE_LAST = "due for the last time"  # the same, with the last miss
    ANSWER = "answer"  # to a probe that was sent and not answered before
    STRAY_ANSWER = "stray answer"  # to nothing that was asked


class Act(StrEnum):
    """What the server does then."""

    NOTHING = "nothing"
    PROBE = "probe"
    RETIRE = "retire"


TRANSITIONS: Mapping[tuple[State, Event], tuple[State, Act]] = {
    (State.RESTING, Event.DUE): (State.PROBED, Act.PROBE),
    (State.RESTING, Event.ANSWER): (State.RESTING, Act.NOTHING),  # a late one, after a later probe was answered
    (State.RESTING, Event.STRAY_ANSWER): (State.RESTING, Act.NOTHING),
    (State.PROBED, Event.DUE): (State.PROBED, Act.PROBE),
    (State.PROBED, Event.DUE_LAST): (State.RETIRED, Act.RETIRE),
    (State.PROBED, Event.ANSWER): (State.RESTING, Act.NOTHING),
    (State.PROBED, Event.STRAY_ANSWER): (State.PROBED, Act.NOTHING),
}


def to_event(state: State, event: Event) -> tuple[State, Act] | None:
    """What follows, or None where the event cannot happen: a retired connection has no events."""
    return TRANSITIONS.get((state, event))


@dataclass(frozen=True, kw_only=True)
class Liveness:
    """One connection. Times are of a monotonic clock."""

    state: State
    due_at: float  # when the next probe, or the answer to this one, is due
    sent: int  # number of the newest probe, 0 before the first
    answered: frozenset[int]  # probes above `closed_below` that were answered
    misses: int  # probes in a row whose time ran out


def begin(now: float) -> Liveness:
    """A connection that was accepted at `now`: it has just proven that it lives."""
    return Liveness(state=State.RESTING, due_at=now + PROBE_AFTER_SECONDS, sent=0, answered=frozenset(), misses=0)


def tick(one: Liveness, now: float) -> tuple[Liveness, Act]:
    """What the time does to it. At most one act a call; a caller that slept long calls again."""
    if one.state is State.RETIRED or now < one.due_at:
        return one, Act.NOTHING
    misses = one.misses + (one.state is State.PROBED)
    found = to_event(one.state, Event.DUE_LAST if misses >= MOST_MISSES else Event.DUE)
    assert found is not None  # every state but the retired has both, where they can happen
    state, act = found
    if act is Act.RETIRE:
        return replace(one, state=state, misses=misses), act
    # The time for the answer runs from when the probe goes out, so a server that slept retires nobody for it.
    return replace(one, state=state, due_at=now + ANSWER_WITHIN_SECONDS, sent=one.sent + 1, misses=misses), act


def answer(one: Liveness, probe: int, now: float) -> Liveness:
    """A pong that names a probe. What was never sent, or was answered before, counts for nothing."""
    known = 1 <= probe <= one.sent and probe > one.sent - MOST_MISSES and probe not in one.answered
    found = to_event(one.state, Event.ANSWER if known else Event.STRAY_ANSWER)
    if found is None or not known:
        return one
    kept = frozenset(number for number in one.answered if number > one.sent - MOST_MISSES) | {probe}
    return replace(
        one, state=found[0], due_at=now + PROBE_AFTER_SECONDS, answered=kept, misses=0
    )


@dataclass(frozen=True, kw_only=True)
class Due:
    """What the server has to do about one connection now."""

    instance_id: str  # whose
    generation: Generation  # which of its connections
    act: Act  # PROBE or RETIRE
    probe: int  # the number that the probe carries and its answer names


class Watch:
    """All connections of a server. Safe for threads; holds nothing of a connection that ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: dict[str, tuple[Generation, Liveness]] = {}

    def begin(self, instance_id: str, generation: Generation, now: float) -> None:
        """Watch a connection that was just accepted, in the place of the instance's earlier one."""
        with self._lock:
            before = self._watched.get(instance_id)
            if before is None or before[0] < generation:
                self._watched[instance_id] = generation, begin(now)

    def answer(self, instance_id: str, generation: Generation, probe: int, now: float) -> bool:
        """A pong. False when it is of a connection that is not watched (any more)."""
        with self._lock:
            found = self._watched.get(instance_id)
            if found is None or found[0] != generation:
                return False
            self._watched[instance_id] = generation, answer(found[1], probe, now)
            return True

    def due(self, now: float) -> list[Due]:
        """Which probes go out and which connections are retired now. Call it once a second."""
        todo = []
        with self._lock:
            for instance_id, (generation, one) in list(self._watched.items()):
                after, act = tick(one, now)
                if act is Act.NOTHING:
                    continue
                if act is Act.RETIRE:
                    del self._watched[instance_id]
                else:
                    self._watched[instance_id] = generation, after
                todo.append(Due(instance_id=instance_id, generation=generation, act=act, probe=after.sent))
        return todo

    def end(self, instance_id: str, generation: Generation) -> bool:
        """Watch a connection no more. False when another one of the instance is watched, or none."""
        with self._lock:
            found = self._watched.get(instance_id)
            if found is None or found[0] != generation:
                return False
            del self._watched[instance_id]
            return True

    def __len__(self) -> int:
        return len(self._watched)
