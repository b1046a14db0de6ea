"""Delivering: claim one, call its handler, write what it said; the next only then.

Invariant: each claim is made right before its handler is called. No error takes along what a handler said: it is
written, tried again where that may help, or raised with the claim, the verdict and what was delivered before.

Not for: claiming and settling themselves, which are given (see `Outbox`). Claiming all at the start was rejected: the
last would run out while the first is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from hermes_state.errors import StaleFence, StateError
from hermes_state.outbox.records import Claim
from hermes_state.outbox.verdicts import NotAdmitted, NotSent, Verdict, lost_by, not_sent, shown, verdict_of

if TYPE_CHECKING:
    from hermes_state.clock import Clock

# How long it is tried to write a verdict while the store says that trying again may help: half a term, so that the
# claim is still its own. One try waits for the lock at most so long, and they rest so long in between.
SETTLE_SECONDS, SETTLE_TRY_SECONDS, SETTLE_PAUSE_SECONDS = 30.0, 10.0, 0.1
# Why a claim is given back that was made while its delivery was being cancelled.
STOPPED = "its delivery was cancelled before anything was sent"

Delivered = list[tuple[Claim, Verdict]]


class Settle(Protocol):
    """Writes a verdict, waiting so long for the lock. Raises as `Outbox.settle`."""

    def __call__(self, claimed: Claim, verdict: Verdict, *, deadline_seconds: float) -> object: ...


def deliver(
    handler: Callable[[Claim], Verdict | None], *, claim: Callable[[Sequence[int]], list[Claim]], settle: Settle,
    clock: Clock, limit: int, stopped: Callable[[], bool],
) -> Delivered:
    """See `Outbox.deliver_until`. `claim(given)` claims one but for the ids that were given out before."""
    done: Delivered = []
    given: list[int] = []
    while len(done) < limit and not stopped():
        claimed = next(iter(claim(given)), None)
        if claimed is None:
            break
        if stopped():
            _settle_sent(settle, clock, claimed, NotAdmitted(why=STOPPED, retry_after=0), done)
            break
        given += [one.id for one in claimed]
        verdict = _sent(handler, settle, clock, claimed)
        _settle_sent(settle, clock, claimed, verdict, done)
        done.append((claimed, verdict))
    return done


def _sent(handler: Callable[[Claim], Verdict | None], settle: Settle, clock: Clock, claimed: Claim) -> Verdict:
    """What a handler said, in the words of verdicts."""
    try:
        said = handler(claimed)
    except NotSent as error:
        return not_sent(error)
    except BaseException as error:
        try:
            _settle_again(settle, clock, claimed, lost_by(error))
        except StateError as refused:
            error.add_note(f"That it is lost was not written: {refused} {refused.hint}")
        raise
    return verdict_of(said)


def _settle_sent(settle: Settle, clock: Clock, claimed: Claim, verdict: Verdict, done: Delivered) -> None:
    """Settle what a handler has sent, and let no error take its verdict along."""
    facts = {"claim": claimed, "verdict": verdict, "delivered": tuple(done)}
    try:
        _settle_again(settle, clock, claimed, verdict)
    except StaleFence as stale:
        raise StaleFence(
            f"{stale.message} Its handler had said {type(verdict).__name__}.", hint=stale.hint,
            **{**stale.facts, **facts},
        ) from stale
    except StateError as error:
        which = ", ".join(repr(one.dedupe_id) for one in claimed)
        error.add_note(f"Of {which} the handler had said {shown(verdict)}, which was not written.")
        error.facts.update(facts)
        for name, value in facts.items():
            setattr(error, name, value)
        raise


def _settle_again(settle: Settle, clock: Clock, claimed: Claim, verdict: Verdict) -> None:
    """Settle, and try again for a while where the store says that it may pass: the handler cannot be asked again."""
    until = clock.monotonic() + SETTLE_SECONDS
    while True:
        left = until - clock.monotonic()
        try:
            settle(claimed, verdict, deadline_seconds=min(left, SETTLE_TRY_SECONDS))
            return
        except StateError as error:
            left = until - clock.monotonic() - SETTLE_PAUSE_SECONDS
            if not error.retryable or error.facts.get("committed") or left <= 0:
                raise
        clock.sleep(SETTLE_PAUSE_SECONDS)
