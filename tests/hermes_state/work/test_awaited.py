"""`store.aio.work`: what waits for servers and for callers' code keeps no read and no write of the store waiting."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from hermes_state.store import open_store
from hermes_state.work.awaited import WAITS
from hermes_state.work.usage_windows import UsageWindow

MORE_THAN_THE_POOL = 8


def test_slow_servers_keep_no_write_waiting(tmp_path: Path) -> None:
    begun, answered = threading.Semaphore(0), threading.Event()

    def fetch() -> list[UsageWindow]:
        begun.release()
        assert answered.wait(60.0)
        return []

    async def main() -> None:
        with open_store(tmp_path) as store:
            usage, home = store.aio.work.usage, store.routing.home
            slow = [
                asyncio.create_task(usage.fetch("nous", f"a{number}", home, fetch, deadline_seconds=60.0))
                for number in range(MORE_THAN_THE_POOL)
            ]
            await asyncio.to_thread(lambda: [begun.acquire(timeout=60.0) for _ in slow])
            assert (await asyncio.wait_for(store.aio.sessions.create(source="cli"), 60.0)).source == "cli"
            answered.set()
            assert all(found is not None for found in await asyncio.gather(*slow))

    asyncio.run(main())


def test_what_waits_may_itself_await_the_store(tmp_path: Path) -> None:
    """A deadlock, as soon as so many wait as the pool has threads."""

    async def main() -> None:
        with open_store(tmp_path) as store:
            usage, home, loop = store.aio.work.usage, store.routing.home, asyncio.get_running_loop()

            def fetch() -> list[UsageWindow]:
                asyncio.run_coroutine_threadsafe(store.aio.sessions.create(source="cli"), loop).result(60.0)
                return []

            found = await asyncio.gather(*(
                usage.fetch("nous", f"a{number}", home, fetch, deadline_seconds=30.0)
                for number in range(MORE_THAN_THE_POOL)
            ))
            assert all(one is not None for one in found)
            assert len(await store.aio.sessions.list()) == MORE_THAN_THE_POOL
            for member, names in WAITS.items():
                assert all(callable(getattr(getattr(store.work, member), name)) for name in names), member

    asyncio.run(main())
