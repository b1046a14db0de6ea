"""Renewing the turns of this process while they are open, so that a long call of a model does not lose its answer.

Invariant: a turn is renewed from a third of its term on, by one thread of the process, until it ends, runs out (its
process was away: the next write renews it, if nobody took it), is lost, or nobody wrote through it for the time that
it is kept. Nothing is renewed for a turn that nobody has any more. The thread is there only while a turn is open.

Not for: leases that have a holder who ticks (see `host`). Longer terms were rejected: a turn whose process was stopped,
on a machine that cannot be asked, would hold its chat for all of it. A thread for each turn was rejected: a gateway has
hundreds open.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

from hermes_state.errors import StateError

if TYPE_CHECKING:
    from hermes_state.routing.turns import Turn

# When a turn is renewed, of its term; and how soon again after a failure, of that.
SHARE, AGAIN = 1 / 3, 1 / 4


class Keeper:
    """The open turns of one process. Safe for threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._turns: dict[int, tuple[weakref.ref[Turn[Any]], float]] = {}  # by identity; seconds between two renewals
        self._thread: threading.Thread | None = None

    def add(self, turn: Turn[Any]) -> None:
        """Keep a turn from now on."""
        with self._changed:
            self._turns[id(turn)] = weakref.ref(turn), turn.term_seconds * SHARE
            if self._thread is None or not self._thread.is_alive():
                thread = threading.Thread(target=self._run, name="hermes-state-turns", daemon=True)
                thread.start()
                self._thread = thread
            else:
                self._changed.notify()

    def remove(self, turn: Turn[Any]) -> None:
        """Keep it no more."""
        with self._changed:
            self._turns.pop(id(turn), None)
            self._changed.notify()

    def _run(self) -> None:
        due: dict[int, float] = {}  # by turn, on this thread's own clock
        while True:
            with self._changed:
                if not self._turns:
                    self._thread = None
                    return
                now = time.monotonic()
                due = {key: due.get(key, now + every) for key, (_turn, every) in self._turns.items()}
                first = min(due.values())
                if first > now:
                    self._changed.wait(first - now)
                    continue
                ripe = [(key, *self._turns[key]) for key, at in due.items() if at <= now]
            for key, reference, every in ripe:
                turn = reference()
                if turn is None or not kept(turn):
                    with self._changed:
                        if self._turns.get(key, (None,))[0] is reference:
                            del self._turns[key]
                else:
                    due[key] = time.monotonic() + every * (1.0 if turn.trouble is None else AGAIN)
                del turn  # or this thread would be the one that has it


def kept(turn: Turn[Any]) -> bool:
    """Renew one turn now; whether it is to be kept further. What went wrong is its `trouble`."""
    try:
        return turn.is_kept and turn.renew_in_time()
    except StateError as error:
        turn.trouble = error
        return turn.is_kept


KEEPER = Keeper()


def _new_in_child() -> None:
    """A forked child has no thread of the parent's, and none of its turns."""
    global KEEPER
    KEEPER = Keeper()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_in_child)
