"""What is had in asyncio is given back, wherever its task is cancelled: no turn and no lease outlives who had it.

The pool is kept busy by threads that a test lets go; nothing waits for a time.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hermes_state.aio import THREADS
from hermes_state.errors import LeaseHeld
from hermes_state.store import Store, open_store

SECONDS = 60


@pytest.fixture(name="store")
def open_one(tmp_path: Path) -> Iterator[Store]:
    with open_store(path=tmp_path / "state.db") as store:
        store.sessions.create(id="one", source="cli")
        yield store


GETS: dict[str, Callable[[Store], Awaitable[Any]]] = {
    "turn:one": lambda store: store.aio.turn("one", wait_seconds=0),
    "cron": lambda store: store.aio.leases.acquire("cron", term_seconds=500),
}


@contextmanager
def busy(store: Store) -> Iterator[None]:
    """Every thread of the pool works until the block ends."""
    go, begun = threading.Event(), threading.Semaphore(0)

    def work() -> None:
        begun.release()
        go.wait(SECONDS)

    for _ in range(THREADS):
        store.aio._threads.submit(work)
    for _ in range(THREADS):
        assert begun.acquire(timeout=SECONDS)
    try:
        yield
    finally:
        go.set()


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(work(), SECONDS)

    asyncio.run(bounded())


def free(store: Store, name: str) -> bool:
    view = store.leases.look(name)
    assert view is not None
    return view.is_free


async def ended(task: asyncio.Task[None]) -> None:
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("name", GETS)
@pytest.mark.parametrize("cancels", [1, 3])
def test_one_that_is_cancelled_in_its_block_is_given_back_however_often_and_busy(
    store: Store, name: str, cancels: int
) -> None:
    async def play() -> None:
        inside = asyncio.Event()

        async def job() -> None:
            async with await GETS[name](store):
                inside.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(job())
        await inside.wait()
        with busy(store):
            for _ in range(cancels):
                task.cancel()
                await asyncio.sleep(0)
            await ended(task)
            assert free(store, name)

    run(play)


@pytest.mark.parametrize("name", GETS)
def test_one_that_is_cancelled_as_its_block_ends_is_given_back(store: Store, name: str) -> None:
    async def play() -> None:
        inside, leave = asyncio.Event(), asyncio.Event()

        async def job() -> None:
            async with await GETS[name](store):
                inside.set()
                await leave.wait()

        task = asyncio.create_task(job())
        await inside.wait()
        with busy(store):
            leave.set()
            await asyncio.sleep(0)  # it is at its end now
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert free(store, name)

    run(play)


@pytest.mark.parametrize("name", GETS)
def test_entering_a_block_awaits_nothing_that_could_be_cancelled(store: Store, name: str) -> None:
    async def play() -> None:
        had = await GETS[name](store)
        inside = asyncio.Event()

        async def job() -> None:
            async with had:
                inside.set()
                await asyncio.Event().wait()

        with busy(store):
            task = asyncio.create_task(job())
            await asyncio.sleep(0)
            assert inside.is_set()
            task.cancel()
            await ended(task)
            assert free(store, name)

    run(play)


@pytest.mark.parametrize(("name", "how"), [("turn:one", "end"), ("cron", "release")])
def test_giving_back_by_hand_is_done_to_its_end_too(store: Store, name: str, how: str) -> None:
    async def play() -> None:
        had = await GETS[name](store)
        with busy(store):
            task = asyncio.create_task(getattr(had, how)())
            await asyncio.sleep(0)
            task.cancel()
            await ended(task)
            assert free(store, name)

    run(play)


def test_the_end_of_a_loop_ends_what_its_tasks_had(store: Store) -> None:
    """`asyncio.run` cancels every task at its end, also those that the ends of others are awaited in."""

    async def forever() -> None:
        async with await store.aio.turn("one"):
            started.set()
            await asyncio.Event().wait()

    async def play() -> None:
        task = asyncio.create_task(forever())
        await asyncio.to_thread(started.wait, SECONDS)
        tasks.append(task)

    started, tasks = threading.Event(), list[asyncio.Task[None]]()
    with busy(store):
        run(play)
        assert tasks[0].cancelled() and free(store, "turn:one")


def test_a_wait_whose_await_was_cancelled_ends_its_thread(store: Store) -> None:
    """And not when the turn ends that it waited for."""

    async def play() -> None:
        with store.turn("one"):
            before = set(threading.enumerate())
            waits = [
                asyncio.create_task(wait)
                for wait in (
                    store.aio.turn("one"), store.aio.turn("one"),
                    store.aio.leases.acquire("turn:one", term_seconds=60, wait_seconds=1_800),
                )
            ]
            while len(threads := set(threading.enumerate()) - before) < len(waits):
                await asyncio.sleep(0)
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
            for thread in threads:
                await asyncio.to_thread(thread.join, SECONDS)
                assert not thread.is_alive()
            with pytest.raises(LeaseHeld):
                await store.aio.turn("one", wait_seconds=0)

    run(play)


def test_pairing_is_awaited_too(store: Store) -> None:
    async def play() -> None:
        home = store.routing.home
        code = await store.aio.routing.pairing.request("telegram", "7", home)
        assert [one.user_id for one in await store.aio.routing.pairing.pending()] == ["7"]
        assert (await store.aio.routing.pairing.approve("telegram", code, home, by="test")).user_id == "7"

    run(play)
