"""The store for asyncio never blocks the loop."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hermes_state import open_store
from hermes_state.engine import open_write
from hermes_state.errors import StateError


def test_a_write_that_waits_for_the_lock_leaves_the_loop_free(tmp_path: Path) -> None:
    async def play() -> list[str]:
        seen = []
        with open_store(path=tmp_path / "state.db") as store, open_write(tmp_path / "state.db") as other:
            await store.aio.sessions.create(id="one", source="cli")

            async def append() -> None:
                await store.aio.messages.append("one", role="user", content="hello")
                seen.append("appended")

            with other.transaction():
                waiting = asyncio.create_task(append())
                for _ in range(20):  # the loop turns while the thread waits for the lock
                    await asyncio.sleep(0)
                seen.append("the loop turned")
            await waiting
            context = await store.aio.messages.context("one")
            assert [row["content"] for row in context] == ["hello"]
        return seen

    assert asyncio.run(play()) == ["the loop turned", "appended"]


def test_groups_offer_the_same_methods(tmp_path: Path) -> None:
    async def play() -> None:
        with open_store(path=tmp_path / "state.db") as store:
            assert store.aio.messages.append.__name__ == "append"
            with pytest.raises(AttributeError):
                store.aio.messages.no_such_method  # noqa: B018
            assert await store.aio.sessions.count() == 0

    asyncio.run(play())


def test_a_closed_store_refuses_awaits(tmp_path: Path) -> None:
    async def play() -> None:
        store = open_store(path=tmp_path / "state.db")
        aio = store.aio
        await aio.close()
        with pytest.raises(StateError) as caught:
            await aio.run(lambda: None)
        assert str(caught.value) == f"The store {tmp_path / 'state.db'} is closed here."

    asyncio.run(play())


def test_any_number_of_waits_leaves_the_threads_to_the_work_that_ends_them(tmp_path: Path) -> None:
    async def play() -> list[bool]:
        with open_store(path=tmp_path / "state.db") as store:
            await store.aio.sessions.create(id="one", source="cli")
            position = await store.aio.changes.position()
            waits = [
                asyncio.create_task(store.aio.changes.wait(position, timeout_seconds=None)) for _ in range(20)
            ]
            await asyncio.sleep(0)
            await store.aio.messages.append("one", role="user", content="wake up")
            return await asyncio.gather(*waits)

    assert asyncio.run(asyncio.wait_for(play(), 60)) == [True] * 20


def test_a_cancelled_wait_and_a_close_end_their_threads(tmp_path: Path) -> None:
    async def play() -> bool:
        store = open_store(path=tmp_path / "state.db")
        position = await store.aio.changes.position()
        first = asyncio.create_task(store.aio.changes.wait(position, timeout_seconds=None))
        second = asyncio.create_task(store.aio.changes.wait(position, timeout_seconds=None))
        await asyncio.sleep(0)
        first.cancel()
        await store.aio.close()
        return await second

    assert asyncio.run(asyncio.wait_for(play(), 60)) is False


def test_changes_are_followed_by_an_async_iterator(tmp_path: Path) -> None:
    async def play() -> list[int]:
        seen: list[int] = []
        with open_store(path=tmp_path / "state.db") as store:
            await store.aio.sessions.create(id="one", source="cli")
            position = await store.aio.changes.position()
            ids = [await store.aio.messages.append("one", role="user", content=str(n)) for n in range(3)]
            async for batch in store.aio.changes.follow(position, limit=1):
                seen += [change.id for change in batch.changes]
                if len(seen) == 3:
                    break
            assert seen == ids
        return seen

    assert len(asyncio.run(asyncio.wait_for(play(), 60))) == 3


def test_streams_and_leases_are_awaited_like_everything_else(tmp_path: Path) -> None:
    async def play() -> list[object]:
        with open_store(path=tmp_path / "state.db") as store:
            await store.aio.sessions.create(id="one", source="cli")
            async with await store.aio.messages.stream("one") as stream:
                await stream.append("half ")
                await stream.append("and whole")
                await stream.settle()
            async with await store.aio.leases.acquire("turn", term_seconds=60) as lease:
                fence = lease.fence
                await store.aio.write(lambda tx: lease.sync.guard(tx))
            return [fence, [row["content"] for row in await store.aio.messages.context("one")]]

    assert asyncio.run(asyncio.wait_for(play(), 60)) == [1, ["half and whole"]]


def test_a_lease_that_comes_after_its_await_was_cancelled_is_given_back(tmp_path: Path) -> None:
    async def play() -> None:
        with open_store(path=tmp_path / "state.db") as store:
            held = await store.aio.leases.acquire("turn", term_seconds=3_600)
            asking = asyncio.create_task(store.aio.leases.acquire("turn", term_seconds=60, wait_seconds=30))
            await asyncio.sleep(0)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            await held.release()
            again = await store.aio.leases.acquire("turn", term_seconds=60, wait_seconds=30)
            assert again.fence >= 2

    asyncio.run(asyncio.wait_for(play(), 90))
