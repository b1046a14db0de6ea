"""Asking a summariser: by a deadline, with the lease of the pass renewed meanwhile, from threads or from a loop.

Invariant: whoever waits here stops waiting at the deadline, at an interrupt and when the lease is lost; an answer that
comes later is thrown away with the thread or task that was left behind. What the summariser raises is an answer too: it
comes back as a value, and the pass decides. The pass itself is a generator that yields one `Ask` at a time, so that
there is one pass and two ways to wait, not two passes.

Not for: what is asked (see `summary`) nor what is done with it (see `passes`). Stopping the thread was rejected: Python
has no safe way, and the answer of a stopped model is worth nothing.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import queue
import threading
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from hermes_state.clock import Clock
from hermes_state.errors import StateError

if TYPE_CHECKING:
    from hermes_state.compaction.summary import Summarizer, SummaryRequest

Result = TypeVar("Result")
# Seconds between two looks at the clock and at the answer; doubles. An answer itself is seen at once.
_FIRST_LOOK, _LONGEST_LOOK = 0.005, 0.1


class Threads(Protocol):
    """Where a loop has work done: `store.aio`."""

    async def run(self, work: Callable[[], Any]) -> Any:
        """In a thread of a pool."""

    async def alone(self, work: Callable[[], Any]) -> Any:
        """In a thread of its own, which nobody waits for when the await is cancelled."""


@dataclass(frozen=True, kw_only=True)
class Ask:
    """One request to a summariser, as a pass yields it. Sent back: its answer, the exception there was, or `Lost`."""

    summarizer: Summarizer
    request: SummaryRequest
    # when to stop waiting, on the clock's monotonic time; and what the whole pass was given, for the message
    until: float
    seconds: float
    clock: Clock
    # called every `renew_seconds`; what it raises ends the wait, unless it may be tried again: a term has room for
    # several renewals, and the commit looks whether the last one came in time
    renew: Callable[[], None]
    renew_seconds: float

    def too_slow(self) -> TimeoutError:
        """The answer that stands for none."""
        return TimeoutError(f"The summariser had no answer after {self.seconds:g} s.")


@dataclass(frozen=True, kw_only=True)
class Lost:
    """What is sent back when the wait ended because the lease of the pass could not be renewed."""

    error: StateError


Steps = Generator[Ask, object, Result]


def run_steps(steps: Steps[Result]) -> Result:
    """Run a pass in this thread; each answer is waited for while a thread of its own asks for it."""
    answer: object = None
    try:
        while True:
            answer = _answer(steps.send(answer))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    except BaseException as error:
        _stop(steps, error)  # an interrupt while waiting: the pass settles its row before the interrupt goes on
        raise


async def run_steps_async(steps: Steps[Result], threads: Threads) -> Result:
    """Run a pass from a loop: its work in the store's threads, an asynchronous summariser on the loop itself."""
    turn = threading.Lock()

    def step(answer: object) -> Ask | _End:
        with turn:
            try:
                return steps.send(answer)
            except StopIteration as end:
                return _End(end.value)

    def stop() -> None:
        with turn:
            _stop(steps, ended_by)

    answer: object = None
    ended_by: BaseException | None = None
    try:
        while True:
            asked = await threads.run(functools.partial(step, answer))
            if isinstance(asked, _End):
                return asked.value  # type: ignore[no-any-return]
            answer = await _answer_async(asked, threads)
    except BaseException as error:
        ended_by = error
        raise
    finally:
        # After a cancelled await a step may be at work still: it ends first, then the pass settles its row.
        await asyncio.shield(threads.alone(stop))


def _stop(steps: Steps[Any], error: BaseException | None) -> None:
    """End a pass that waits, by what ended its wait, so that its row says what that was. One that is over stays so."""
    try:
        if error is not None:
            steps.throw(error)
    except StopIteration:
        pass  # it made an outcome of it, which nobody waits for any more
    except BaseException as again:
        if again is not error:
            raise
    finally:
        steps.close()


@dataclass(frozen=True)
class _End:
    value: Any


def _answer(ask: Ask) -> object:
    answers: queue.SimpleQueue[object] = queue.SimpleQueue()

    def work() -> None:
        try:
            given = ask.summarizer(ask.request)
            answers.put(asyncio.run(_awaited(given)) if inspect.isawaitable(given) else given)
        except BaseException as error:
            answers.put(error)

    look, renew_at = _FIRST_LOOK, ask.clock.monotonic() + ask.renew_seconds
    threading.Thread(target=work, name="hermes-state-summary", daemon=True).start()
    while True:
        try:
            return answers.get(timeout=look)
        except queue.Empty:
            pass
        now = ask.clock.monotonic()
        if now >= ask.until:
            return ask.too_slow()
        if now >= renew_at:
            try:
                ask.renew()
            except StateError as error:
                if not error.retryable:
                    return Lost(error=error)
            renew_at = now + ask.renew_seconds
        look = min(2 * look, _LONGEST_LOOK)


async def _answer_async(ask: Ask, threads: Threads) -> object:
    def plain() -> object:
        # What it raises is an answer, also where it would stop a loop: `exit()` in a thread ends nothing.
        try:
            return ask.summarizer(ask.request)
        except BaseException as error:
            return error

    async def work() -> object:
        if _is_async(ask.summarizer):
            given: object = ask.summarizer(ask.request)
        else:
            given = await threads.alone(plain)
        return await given if inspect.isawaitable(given) else given

    asked = asyncio.ensure_future(work())
    look, renew_at = _FIRST_LOOK, ask.clock.monotonic() + ask.renew_seconds
    try:
        while True:
            done, _ = await asyncio.wait({asked}, timeout=look)
            if done:
                if asked.cancelled():
                    return asyncio.CancelledError("the summariser cancelled itself")
                return asked.exception() or asked.result()
            now = ask.clock.monotonic()
            if now >= ask.until:
                return ask.too_slow()
            if now >= renew_at:
                try:
                    await threads.run(ask.renew)
                except StateError as error:
                    if not error.retryable:
                        return Lost(error=error)
                renew_at = now + ask.renew_seconds
            look = min(2 * look, _LONGEST_LOOK)
    finally:
        asked.cancel()


def _is_async(summarizer: Summarizer) -> bool:
    return inspect.iscoroutinefunction(summarizer) or inspect.iscoroutinefunction(
        getattr(summarizer, "__call__", None)  # noqa: B004 - an object whose call is a coroutine function
    )


async def _awaited(given: Awaitable[Any]) -> Any:
    return await given
