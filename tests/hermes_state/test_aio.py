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
