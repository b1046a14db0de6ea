"""`store.aio.work`: the members of `store.work` with every method awaited.

Invariant: a handler of notices may be asynchronous: it is awaited in the loop of the caller, and its claim is settled
by what it says, as `store.aio.outbox.deliver` does it. What waits for servers and callers' code has threads of its
own, so that six slow ones keep no read and no write of the store waiting, and may themselves use `store.aio`.

Not for: anything that the groups do themselves. A class for each member was rejected: only notices have handlers.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from hermes_state.aio import AsyncGroup

if TYPE_CHECKING:
    from hermes_state.aio import AsyncStore
    from hermes_state.outbox import Claim, Verdict


# What waits for something outside of the store, by member.
WAITS: Mapping[str, frozenset[str]] = {
    "processes": frozenset({"recover"}),
    "streams": frozenset({"deliver"}),
    "logins": frozenset({"finish", "recover"}),
    "credentials": frozenset({"token", "log_in"}),
    "models": frozenset({"resolve_window"}),
    "usage": frozenset({"fetch"}),
}


def member(aio: AsyncStore, name: str) -> AsyncGroup:
    """The member of that name. Raises `AttributeError`."""
    if name.startswith("_") or not hasattr(type(aio._store.work), name):
        raise AttributeError(f"work has no group {name!r}")
    return AsyncNotices(aio, "work.notices") if name == "notices" else AsyncMember(aio, name)


class AsyncMember(AsyncGroup):
    """A member with every method awaited."""

    def __init__(self, aio: AsyncStore, member: str) -> None:
        super().__init__(aio, f"work.{member}")
        self._waits = WAITS.get(member, frozenset())

    def __getattr__(self, name: str) -> Any:
        awaited = super().__getattr__(name)
        if name not in self._waits:
            return awaited
        method = getattr(operator.attrgetter(self._name)(self._aio._store), name)

        @functools.wraps(method)
        async def waiting(*args: Any, **options: Any) -> Any:
            return self._aio.wrapped(await self._aio.run(functools.partial(method, *args, **options), waits=True))

        return waiting


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
