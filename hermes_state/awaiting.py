"""Awaiting what runs in threads, so that a cancelled await leaves nothing that nobody has.

Invariant: what a thread got after its await was cancelled is given back: at once and waited for (`surely`), or by the
thread whenever it comes (`had_or_given_back`). What gives something back waits for nobody else's work.

Not for: the store's groups (see `aio`).
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

Result = TypeVar("Result")


async def had_or_given_back(
    get: Callable[[Callable[[], bool]], Result], give_back: Callable[[Result], object]
) -> Result:
    """What `get` waits for, in a thread of its own; when the await is cancelled it is given back, however late.

    `get` is given what says whether somebody still waits, and ends its own wait when nobody does.
    """
    lock, had, given_up = threading.Lock(), list[Result](), threading.Event()

    def wait() -> Result:
        found = get(given_up.is_set)
        with lock:
            had.append(found)
        if given_up.is_set():
            back()
        return found

    def back() -> None:
        with lock:
            mine, had[:] = list(had), []
        for one in mine:
            give_back(one)

    try:
        return await in_own_thread(wait)
    except asyncio.CancelledError:
        given_up.set()
        threading.Thread(target=back, name="hermes-state-back", daemon=True).start()
        raise


async def surely(
    run: Callable[[Callable[[], Any]], Awaitable[Any]], work: Callable[[], Result],
    undo: Callable[[Result], object] | None = None,
) -> Result:
    """Run `work` by `run` to its end also when the await is cancelled, then `undo` what it gave: nobody has it."""
    running = asyncio.ensure_future(run(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        if not await _ended(running) and undo is not None:
            made = running.result()
            # In a thread of its own: what waits for the pool is cancelled with the tasks of a loop that ends.
            await _ended(in_own_thread(lambda: undo(made)))
        raise


async def _ended(running: asyncio.Future[Any]) -> bool:
    """Wait for it, however often the await is cancelled; gives whether it was itself. Raises what it raised."""
    while not running.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([running])  # which, unlike an await of it, does not cancel it
    if not running.cancelled():
        running.result()
    return running.cancelled()


def in_own_thread(work: Callable[[], Result]) -> asyncio.Future[Result]:
    """Begin `work` in a thread of its own, which goes on when the await is cancelled.

    The future is no task, so the end of a loop does not cancel it.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Result] = loop.create_future()

    def deliver(give: Callable[[Any], None], what: Any) -> None:
        if not future.done():
            give(what)

    def run() -> None:
        try:
            result = work()
        except BaseException as error:
            outcome: tuple[Callable[[Any], None], Any] = (future.set_exception, error)
        else:
            outcome = (future.set_result, result)
        if not loop.is_closed():
            loop.call_soon_threadsafe(deliver, *outcome)

    threading.Thread(target=run, name="hermes-state-wait", daemon=True).start()
    return future
