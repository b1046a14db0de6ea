"""`store.aio.work`: the members of `store.work` with every method awaited.

Invariant: a handler of notices may be asynchronous: it is awaited in the loop of the caller, and its claim is settled
by what it says, as `store.aio.outbox.deliver` does it.

Not for: anything that the groups do themselves. A class for each member was rejected: only notices have handlers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from hermes_state.aio import AsyncGroup

if TYPE_CHECKING:
    from hermes_state.aio import AsyncStore
    from hermes_state.outbox import Claim, Verdict


def member(aio: AsyncStore, name: str) -> AsyncGroup:
    """The member of that name. Raises `AttributeError`."""
    if name.startswith("_") or not hasattr(type(aio._store.work), name):
        raise AttributeError(f"work has no group {name!r}")
    return AsyncNotices(aio, "work.notices") if name == "notices" else AsyncGroup(aio, f"work.{name}")


class AsyncNotices(AsyncGroup):
    """`work.notices`, whose handlers may be asynchronous."""

    async def deliver(
        self, admit: Callable[[Any], Any], transports: Iterable[str], **options: Any
    ) -> list[tuple[Claim, Verdict]]:
        """As `Notices.deliver`."""
        return await self._give(admit, transports, "turn", **options)

    async def tell(
        self, send: Callable[[Any], Any], transports: Iterable[str], **options: Any
    ) -> list[tuple[Claim, Verdict]]:
        """As `Notices.tell`."""
        return await self._give(send, transports, "receipt", **options)

    async def show(
        self, show: Callable[[Any], Any], transports: Iterable[str] | None = None, **options: Any
    ) -> list[tuple[Claim, Verdict]]:
        """As `Notices.show`."""
        return await self._give(show, transports, "display", window_seconds=0.0, **options)

    async def _give(
        self, of: Callable[[Any], Any], transports: Iterable[str] | None, mode: str, *, limit: int = 1, **options: Any
    ) -> list[tuple[Claim, Verdict]]:
        prepare = functools.partial(self._aio._store.work.notices.prepared, of, transports, mode, **options)
        handler, up, kinds, term_seconds = await self._aio.alone(prepare)
        return await self._aio.outbox.deliver(handler, up, kinds=kinds, limit=limit, term_seconds=term_seconds)
