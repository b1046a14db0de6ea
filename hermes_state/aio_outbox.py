"""`store.aio.outbox`: deliveries whose handlers may be asynchronous.

Invariant: an awaitable that a handler gives is awaited in the loop of the caller, and its claim is settled by what it
says; the await of a cancelled delivery returns once that is written.

Not for: what a verdict means (see `verdicts`). Settling in the loop was rejected: SQLite's calls block.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

from hermes_state.aio import AsyncGroup
from hermes_state.awaiting import in_own_thread
from hermes_state.outbox.delivering import STOPPED
from hermes_state.outbox.outbox import TERM_SECONDS
from hermes_state.outbox.verdicts import NotAdmitted

if TYPE_CHECKING:
    from hermes_state.outbox import Claim, Verdict


class AsyncOutbox(AsyncGroup):
    """`outbox`, whose handlers may be asynchronous."""

    async def deliver(
        self, handler: Callable[[Claim], Any], transports: Iterable[str], *, kinds: Iterable[str] | None = None,
        limit: int = 1, term_seconds: float = TERM_SECONDS,
    ) -> list[tuple[Claim, Verdict]]:
        """As `Outbox.deliver`. It claims and settles in a thread of its own, where a plain handler runs too; one that
        gives an awaitable is awaited in this loop, while the others of it go on.

        When the await is cancelled, nothing more is claimed, and a handler in this loop is cancelled with it. What it
        then says is believed: a verdict that it returns, or `NotSent`; only one that ends as cancelled has lost its
        claim. A plain handler ends by itself. The await returns once the handler has ended and its claim is settled,
        so await it before the store is closed; a failure to settle is the cause of its `CancelledError`.
        """
        outbox, stopped = self._aio._store.outbox, threading.Event()
        handling = _Handling(handler, asyncio.get_running_loop(), stopped)

        def work() -> list[tuple[Claim, Verdict]]:
            return outbox.deliver_until(
                handling.send, transports, kinds=kinds, limit=limit, term_seconds=term_seconds, stopped=stopped.is_set
            )

        settled = in_own_thread(work)
        try:
            return await asyncio.shield(settled)
        except asyncio.CancelledError as cancelled:
            stopped.set()
            handling.cancel()
            while not settled.done():
                try:
                    await asyncio.wait([settled])
                except asyncio.CancelledError:  # asked again: the handler is, and its claim is still to be settled
                    handling.cancel()
            failure = settled.exception()
            if failure is not None and not isinstance(failure, asyncio.CancelledError):
                raise cancelled from failure
            raise


class _Handling:
    """The handler of one delivery: called in the thread that claims; what it gives to be awaited runs in the loop.

    The thread goes on only when the handler has really ended, also after a cancellation that it answers slowly.
    """

    def __init__(
        self, handler: Callable[[Claim], Any], loop: asyncio.AbstractEventLoop, stopped: threading.Event
    ) -> None:
        self._handler, self._loop, self._stopped = handler, loop, stopped
        self._task: asyncio.Task[Any] | None = None

    def send(self, claim: Claim) -> Any:
        """For the thread: what the handler says, once it has ended."""
        said = self._handler(claim)
        if not inspect.isawaitable(said):
            return said
        ended: concurrent.futures.Future[Any] = concurrent.futures.Future()
        try:
            self._loop.call_soon_threadsafe(self._begin, said, ended)
        except RuntimeError:  # the loop is closed
            if inspect.iscoroutine(said):
                said.close()
            raise
        return ended.result()

    def cancel(self) -> None:
        """For the loop: cancel what runs in it, if anything does."""
        if self._task is not None:
            self._task.cancel()

    def _begin(self, said: Awaitable[Any], ended: concurrent.futures.Future[Any]) -> None:
        self._task = self._loop.create_task(_awaited_as_task(said))
        self._task.add_done_callback(lambda task: self._end(task, said, ended))
        if self._stopped.is_set():  # cancelled before this was there to be cancelled with it
            self._task.cancel()

    def _end(self, task: asyncio.Task[Any], said: Awaitable[Any], ended: concurrent.futures.Future[Any]) -> None:
        self._task = None
        begun = not inspect.iscoroutine(said) or inspect.getcoroutinestate(said) != inspect.CORO_CREATED
        if not begun and inspect.iscoroutine(said):
            said.close()
        if task.cancelled() and not begun and _is_asynchronous(self._handler):  # not a line of it has run
            ended.set_result(NotAdmitted(why=STOPPED, retry_after=0))
        elif task.cancelled():
            ended.set_exception(asyncio.CancelledError("its delivery was cancelled while it was being sent"))
        elif (error := task.exception()) is not None:
            ended.set_exception(error)
        else:
            ended.set_result(task.result())


def _is_asynchronous(handler: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__)


async def _awaited_as_task(waiting: Awaitable[Any]) -> Any:
    return await waiting
