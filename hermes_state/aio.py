"""The store for asyncio: the same groups and names, awaited.

Invariant: no call blocks the event loop. Work runs in the store's own small pool of threads; what waits for others
(`changes.wait`, `changes.follow`, `leases.acquire`, `turn`, `chat_turn`, `outbox.deliver`) has a thread of its own, so
that any number of waits leaves the pool to the work that would end them. A cancelled await stops waiting: a wait ends
(that for a lease within a quarter of a second), a write that has begun is finished or rolled back by its thread;
`outbox.deliver` waits until what it claimed is settled, and the end of a turn, a lease or a stream is done to its end.
What a method gives that has methods of its own (a stream, a lease) is awaited likewise. Writes of one task keep their
order, because each is awaited before the next begins.

Not for: `Store.close` on the loop, which waits for running work: await `aio.close()`. An asynchronous engine was
rejected: SQLite's calls block, and one writer has nothing to overlap.
"""

from __future__ import annotations

import asyncio
import functools
import operator
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Self, TypeVar

from hermes_state.awaiting import had_or_given_back, in_own_thread, surely
from hermes_state.outbox.delivering import STOPPED
from hermes_state.outbox.verdicts import NotAdmitted

if TYPE_CHECKING:
    from hermes_state.changes import Batch, Position
    from hermes_state.compaction.outcomes import Outcome
    from hermes_state.engine.store import Durability
    from hermes_state.engine.transaction import Transaction
    from hermes_state.gateway.awaited import AsyncServer
    from hermes_state.instances.protocol import VersionRange
    from hermes_state.instances.records import Issued
    from hermes_state.outbox import Claim
    from hermes_state.routing import Inbound, Route
    from hermes_state.store import Store
    from hermes_state.turns.records import Turn as ThreadTurn

THREADS = 5  # one for the writer and one for each pooled reader
MOST_WAITING = 64  # calls that wait for something outside of the store at one time; more wait their turn
Result = TypeVar("Result")


class AsyncStore:
    """`store.aio`: `await store.aio.messages.append(...)`, `await store.aio.search(...)`."""

    def __init__(self, store: Store) -> None:
        from hermes_state.aio_outbox import AsyncOutbox

        self._store = store
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="hermes-state")
        # For what waits for servers and callers' code: none is made before it is needed.
        self._waiting = ThreadPoolExecutor(MOST_WAITING, thread_name_prefix="hermes-state-waiting")
        self.sessions = AsyncGroup(self, "sessions")
        self.messages = AsyncGroup(self, "messages")
        self.usage = AsyncGroup(self, "usage")
        self.titles = AsyncGroup(self, "titles")
        self.spool = AsyncGroup(self, "spool")
        self.changes = AsyncChanges(self, "changes")
        self.leases = AsyncLeases(self, "leases")
        self.compaction = AsyncCompaction(self, "compaction")
        self.instances = AsyncInstances(self, "instances")
        self.turns = AsyncTurns(self, "turns")
        self.gateway = AsyncGateway(self, "gateway")
        self.outbox = AsyncOutbox(self, "outbox")
        self.routing = AsyncRouting(self, "routing")
        self.work = AsyncWork(self)

    async def search(self, query: str, **options: Any) -> Any:
        """As `Store.search`."""
        return await self.run(lambda: self._store.search(query, **options))

    async def turn(self, session_id: str, **options: Any) -> Any:
        """As `Store.turn`: `async with await store.aio.turn(session_id) as turn: await turn.messages.append(...)`.

        It waits in a thread of its own; a turn that comes after its await was cancelled is ended.
        """
        return AsyncTurn(self, await had_or_given_back(
            lambda given_up: self._store.turn(session_id, given_up=given_up, **options), lambda turn: turn.end()
        ))

    async def chat_turn(self, of: Inbound | Route, **options: Any) -> Any:
        """As `Store.chat_turn`, waiting and given back as `turn`."""
        return AsyncTurn(self, await had_or_given_back(
            lambda given_up: self._store.chat_turn(of, given_up=given_up, **options), lambda turn: turn.end()
        ))

    async def write(self, work: Callable[[Transaction], Result], *, durability: Durability = "process") -> Result:
        """Run `work(tx)` in one write transaction, in a thread; nothing in it may await."""
        return await self.run(lambda: self._store.core.write(work, durability=durability))

    async def close(self) -> None:
        """Close the store without blocking the loop. Waits end, work that has begun is finished."""
        await in_own_thread(self._store.close)

    async def run(self, work: Callable[[], Result], *, waits: bool = False) -> Result:
        """Run any function of the store in a thread of its pool, e.g. several calls as one.

        `waits`: it waits for what is outside of the store, and may itself use this pool by way of the loop.
        """
        try:
            future = asyncio.get_running_loop().run_in_executor(self._waiting if waits else self._threads, work)
        except RuntimeError as error:
            from hermes_state.engine.files import closed_here

            raise closed_here(self._store.path) from error
        return await future

    async def alone(self, work: Callable[[], Result]) -> Result:
        """Run `work` in a thread of its own, which nobody waits for when the await is cancelled."""
        return await in_own_thread(work)

    def shut_down(self) -> None:
        """No new work; waits end, and what runs is waited for. Called by `Store.close`."""
        self.changes.stop()
        self._waiting.shutdown(wait=True)  # first: what it runs may still need the other
        self._threads.shutdown(wait=True)

    def wrapped(self, result: Any) -> Any:
        """A result as a caller in the loop may use it: streams and leases get methods that are awaited."""
        from hermes_state.conversation.streams import Stream
        from hermes_state.leases import Lease

        return AsyncObject(self, result) if isinstance(result, (Stream, Lease)) else result


class AsyncGroup:
    """One group of the store with every method awaited."""

    def __init__(self, aio: AsyncStore, name: str) -> None:
        self._aio = aio
        self._name = name

    def __getattr__(self, name: str) -> Any:
        method = getattr(operator.attrgetter(self._name)(self._aio._store), name)
        if name.startswith("_") or not callable(method):
            raise AttributeError(f"{self._name}.{name} cannot be awaited; read it from the store itself")
        return _awaited(self._aio, method)


class AsyncWork:
    """`work`, each member of which is a group."""

    def __init__(self, aio: AsyncStore) -> None:
        self._aio = aio

    def __getattr__(self, name: str) -> Any:
        from hermes_state.work.awaited import member

        return member(self._aio, name)


class AsyncChanges(AsyncGroup):
    """`changes`, whose waits have threads of their own."""

    def __init__(self, aio: AsyncStore, name: str) -> None:
        super().__init__(aio, name)
        self._waiting: set[Any] = set()
        self._stopped = False

    async def wait(self, position: Position, *, timeout_seconds: float | None) -> bool:
        """As `Changes.wait`; a cancelled wait ends its thread at once."""
        from hermes_state.changes import Changes

        changes = Changes(self._aio._store.core)
        self._waiting.add(changes)
        if self._stopped:
            changes.stop()
        try:
            return await in_own_thread(lambda: changes.wait(position, timeout_seconds=timeout_seconds))
        finally:
            changes.stop()
            self._waiting.discard(changes)

    async def follow(self, position: Position, *, limit: int = 500) -> AsyncIterator[Batch]:
        """Batches from `position` on, as they come: `async for batch in store.aio.changes.follow(position)`."""
        while await self.wait(position, timeout_seconds=None):
            batch = await self.since(position, limit=limit)
            position = batch.position
            yield batch

    def stop(self) -> None:
        """End every wait, now and later."""
        self._stopped = True
        for changes in list(self._waiting):
            changes.stop()


class AsyncLeases(AsyncGroup):
    """`leases`, where waiting for one has a thread of its own."""

    async def acquire(self, name: str, **options: Any) -> AsyncObject:
        """As `Leases.acquire`. A lease that comes after its await was cancelled is released by its thread."""
        leases = self._aio._store.leases
        return AsyncObject(self._aio, await had_or_given_back(
            lambda given_up: leases.acquire(name, given_up=given_up, **options), lambda lease: lease.release()
        ))


class AsyncRouting(AsyncGroup):
    """`routing`, whose `pairing` is awaited too."""

    @property
    def pairing(self) -> AsyncObject:
        """As `Routing.pairing`: `await store.aio.routing.pairing.pending()`."""
        return AsyncObject(self._aio, self._aio._store.routing.pairing)


class AsyncCompaction(AsyncGroup):
    """`compaction`, whose summarisers may be asynchronous."""

    async def compact(self, session_id: str, **options: Any) -> Outcome:
        """As `Compaction.compact`; cancelling it leaves the view as it was."""
        return await self._aio._store.compaction.acompact(session_id, threads=self._aio, **options)


class AsyncInstances(AsyncGroup):
    """`instances`, where a token is not spent for nobody."""

    async def redeem(self, token: str, *, actor: str) -> Issued:
        """As `Instances.redeem`; cancelled, the token is good again and the credential, which nobody has, is none."""
        instances = self._aio._store.instances
        return await surely(
            self._aio.run, lambda: instances.redeem(token, actor=actor),
            lambda issued: instances.take_back(token, issued),
        )


class AsyncTurns(AsyncGroup):
    """`turns`, where what was reserved or claimed for nobody is given back."""

    async def reserve(self, thread_id: str, **options: Any) -> ThreadTurn:
        """As `Turns.reserve`; cancelled, the reservation is rolled back."""
        turns = self._aio._store.turns
        return await surely(
            self._aio.run, lambda: turns.reserve(thread_id, **options), lambda turn: turns.withdraw(turn.turn_id)
        )

    async def claim(self, instance_id: str, **options: Any) -> list[Claim]:
        """As `Turns.claim`; cancelled, what was claimed is given back at once."""
        turns = self._aio._store.turns

        def give_back(claims: list[Claim]) -> None:
            for one in claims:
                turns.settle(one, NotAdmitted(why=STOPPED, retry_after=0))

        return await surely(self._aio.run, lambda: turns.claim(instance_id, **options), give_back)


class AsyncGateway(AsyncGroup):
    """`gateway`, whose server has asynchronous handlers."""

    async def serve(self, *, versions: VersionRange, take_over: bool = True) -> AsyncServer:
        """As `Gateway.serve`: `async with await store.aio.gateway.serve(versions=...) as server`."""
        from hermes_state.gateway.awaited import AsyncServer

        gateway = self._aio._store.gateway
        server = await surely(
            self._aio.run, lambda: gateway.serve(versions=versions, take_over=take_over), lambda made: made.close()
        )
        return AsyncServer(self._aio, server)


class AsyncObject:
    """A stream or a lease whose methods are awaited; its plain facts are read as they are.

    `sync` is the object itself, for `lease.sync.guard(tx)` inside a write.
    """

    def __init__(self, aio: AsyncStore, sync: Any) -> None:
        self._aio = aio
        self.sync = sync

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.sync, name)
        if not callable(found):
            return found
        return _ending(found) if name in _ENDS else _awaited(self._aio, found)

    async def __aenter__(self) -> Self:
        self.sync.__enter__()  # which only gives itself: an await here could be cancelled, with nobody left to end it
        return self

    async def __aexit__(self, *failure: Any) -> None:
        """Ends it also when the await is cancelled, however often, and however busy the pool is."""
        await surely(in_own_thread, lambda: self.sync.__exit__(*failure))


# What gives a turn or a lease back: done to its end as the end of a block is.
_ENDS = frozenset({"end", "release"})


class AsyncTurn(AsyncObject):
    """A turn whose methods, and those of its messages, are awaited."""

    @property
    def messages(self) -> AsyncObject:
        """As `Turn.messages`."""
        return AsyncObject(self._aio, self.sync.messages)


def _ending(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    async def awaited(*args: Any, **options: Any) -> Any:
        return await surely(in_own_thread, functools.partial(method, *args, **options))

    return awaited


def _awaited(aio: AsyncStore, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    async def awaited(*args: Any, **options: Any) -> Any:
        return aio.wrapped(await aio.run(functools.partial(method, *args, **options)))

    return awaited
