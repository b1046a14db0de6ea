"""One claim from its start to its end, in a thread.

Invariant: on every path the claim ends or stays ours and is tried again: it is not begun before its start is committed;
what the work gives, or raises, becomes its verdict; a verdict that cannot be written now is kept and written later, and
one that can never be is written as a failure that says so. Nothing here needs to know which home is open elsewhere: the
claim names its own.

Not for: deciding what is due (see `ticker`). Ending a claim in the thread that took it was rejected: an error in
between leaked it, and the job stayed "running".
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from cron_store.records import Claim, Delivery, Failed, Interrupted, Outcome, Settled, Succeeded
from hermes_state.errors import HomeRemoved, StaleFence, StateError, StorageError, WrongHome

if TYPE_CHECKING:
    from cron_store.cron import Cron
    from hermes_state.engine import Transaction

# How often a verdict is written anew at once, each time with the store's own patience for a lock (20 s).
TRIES = 3


@dataclass(frozen=True, kw_only=True)
class Done:
    """How a run ended, and what it owes; as the arguments of `Cron.settle`."""

    outcome: Outcome
    deliveries: Sequence[Delivery] = ()
    alert: Delivery | None = None
    session_id: str | None = None
    mirror: Callable[[Transaction], None] | None = None


@dataclass(kw_only=True)
class Running:
    """A run while it goes on, for its work to look at. Safe for threads."""

    claim: Claim
    # Set when it must end: the claim is not ours any more, or the ticker stops and says so.
    stop: threading.Event = field(default_factory=threading.Event)
    stopped_because: str = ""

    def end(self, why: str) -> None:
        """Ask the work to stop; the first reason stays."""
        self.stopped_because = self.stopped_because or why
        self.stop.set()


# What an application does for a claim: gives how it ended. What it raises is a failure.
Work = Callable[[Running], "Done | Outcome | None"]
Opened = Callable[[], AbstractContextManager["Cron"]]


@dataclass(frozen=True, kw_only=True)
class Owed:
    """A verdict that could not be written yet."""

    claim: Claim
    done: Done | None = None  # None: let it go, it was not begun


@dataclass(frozen=True, kw_only=True)
class Ended:
    """What became of a run in its thread."""

    settled: Settled | None = None  # None: no verdict was written by us
    owed: Owed | None = None  # to be written later
    error: Exception | None = None  # why it was not run, or its verdict is not as the work gave it


def run(running: Running, work: Work, opened: Opened) -> Ended:
    """Start, work, settle. Raises nothing."""
    claim = running.claim
    try:
        with opened() as cron:
            cron.start(claim)
    except Exception as error:
        return _not_begun(claim, opened, error)
    try:
        given = work(running)
        done = given if isinstance(given, Done) else Done(outcome=Succeeded() if given is None else given)
    except Exception as error:
        done = Done(outcome=Failed(error=f"{type(error).__name__}: {error}", failure_type=_failure_type(error)))
    except BaseException as error:
        done = Done(outcome=Interrupted(why=f"{type(error).__name__} ended its thread"))
    return settle(Owed(claim=claim, done=done), opened)


def settle(owed: Owed, opened: Opened) -> Ended:
    """Write a verdict; one that may be written later is given back. Raises nothing."""
    claim, done = owed.claim, owed.done
    told: Exception | None = None  # why the verdict is not as the work gave it
    error: Exception | None = None
    for _try in range(TRIES):
        try:
            with opened() as cron:
                if done is None:
                    cron.release(claim, why="it was not begun")
                    return Ended()
                return Ended(error=told, settled=cron.settle(
                    claim, done.outcome, deliveries=done.deliveries, alert=done.alert, session_id=done.session_id,
                    mirror=done.mirror,
                ))
        except (StaleFence, HomeRemoved, WrongHome) as gone:
            return Ended(error=gone)  # it was taken from us, or its home was: there is no row of ours to end
        except Exception as failed:
            error = failed
            if isinstance(failed, StorageError) or (isinstance(failed, StateError) and failed.retryable):
                continue
            if told is not None or done is None:
                break
            # What it gave can never be recorded; that it ran can.
            told = failed
            why = f"its outcome could not be recorded: {type(failed).__name__}: {failed}"
            done = Done(outcome=Failed(error=why[:500], failure_type="script"))
    return Ended(owed=Owed(claim=claim, done=done), error=error)


def _not_begun(claim: Claim, opened: Opened, error: Exception) -> Ended:
    """Its start is not known to be committed, so it was not begun: let it go, and it is due again."""
    if isinstance(error, StaleFence):
        return Ended(error=error)
    return replace(settle(Owed(claim=claim), opened), error=error)


def _failure_type(error: Exception) -> str:
    return "timeout" if isinstance(error, TimeoutError) else "unknown"
