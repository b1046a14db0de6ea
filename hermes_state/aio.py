"""The store for asyncio: the same groups and names, awaited.

Invariant: no call blocks the event loop: each runs in a thread of the store's own small pool, where it waits for locks
and disks. A cancelled await stops waiting; what its thread has begun is finished or rolled back there, never left half
done. Writes of one task keep their order, because each is awaited before the next begins.

Not for: iterating without end in the loop; long reads are pages. Writing an asynchronous engine was rejected: SQLite's
calls block, and one writer has nothing to overlap.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from hermes_state.errors import StateError

if TYPE_CHECKING:
    from hermes_state.store import Store

THREADS = 5  # one for the writer and one for each pooled reader


class AsyncStore:
    """`store.aio`: `await store.aio.messages.append(...)`, `await store.aio.search(...)`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="hermes-state")
        self.sessions = AsyncGroup(self, "sessions")
        self.messages = AsyncGroup(self, "messages")
        self.usage = AsyncGroup(self, "usage")
        self.titles = AsyncGroup(self, "titles")
        self.changes = AsyncGroup(self, "changes")
        self.leases = AsyncGroup(self, "leases")

    async def search(self, query: str, **options: Any) -> Any:
        """As `Store.search`."""
        return await self.run(lambda: self._store.search(query, **options))

    async def close(self) -> None:
        """Close the store without blocking the loop."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._store.close)

    async def run(self, work: Callable[[], Any]) -> Any:
        """Run any function of the store in a thread of its pool, e.g. several calls as one."""
        try:
            future = asyncio.get_running_loop().run_in_executor(self._threads, work)
        except RuntimeError as error:
            raise StateError(
                f"The store {self._store.path} is closed here.", hint="Open it again.", path=self._store.path
            ) from error
        return await future

    def shut_down(self) -> None:
        """No new work; waits for what runs. Called by `Store.close`."""
        self._threads.shutdown(wait=True)


class AsyncGroup:
    """One group of the store with every method awaited."""

    def __init__(self, aio: AsyncStore, name: str) -> None:
        self._aio = aio
        self._name = name

    def __getattr__(self, name: str) -> Any:
        method = getattr(getattr(self._aio._store, self._name), name)
        if name.startswith("_") or not callable(method):
            raise AttributeError(f"{self._name}.{name} cannot be awaited; read it from the store itself")

        @functools.wraps(method)
        async def awaited(*args: Any, **options: Any) -> Any:
            return await self._aio.run(functools.partial(method, *args, **options))

        return awaited
