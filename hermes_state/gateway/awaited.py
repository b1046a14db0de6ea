"""A gateway server for asyncio: the same methods, awaited; handlers and announcements are asynchronous.

Invariant: no call blocks the loop, and a call that has begun is waited for, also when its await is cancelled; what it
gave is then undone, or told by the next call: a claim is lost or given back, a turn was not announced, a connection
that was accepted is over, for nobody has its socket.

Not for: a server of its own; it wraps `Server`. Running a handler of the loop in a thread was rejected: sockets belong
to the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from hermes_state.awaiting import surely
from hermes_state.gateway.server import Server
from hermes_state.outbox import NotAdmitted, NotSent
from hermes_state.outbox.verdicts import lost_by, not_sent, verdict_of
from hermes_state.turns import sending

if TYPE_CHECKING:
    from hermes_state.aio import AsyncStore
    from hermes_state.instances.connection_records import Connection
    from hermes_state.instances.generations import Generation
    from hermes_state.outbox import Claim, Verdict
    from hermes_state.turns.correlation import Request
    from hermes_state.turns.records import Turn


class AsyncServer:
    """`server = await store.aio.gateway.serve(versions=...)`, or `async with` that. `sync` is the server itself.

    Methods that are not here are those of `Server`, awaited; its attributes are read as they are.
    """

    def __init__(self, aio: AsyncStore, sync: Server) -> None:
        self._aio = aio
        self.sync = sync
        # What becomes of a call's result that nobody gets, because its await was cancelled.
        self._undo: dict[str, Callable[[Any], object]] = {
            "accept": sync.take_back, "poll": sync.untold.keep_all, "tick": sync.untold.keep_all,
            "claim": self._give_back, "reserve": self._not_announced,
            "close": lambda ended: sync.untold.keep(ended=ended),
        }

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.sync, name)
        if name.startswith("_") or not callable(found):
            return found

        async def awaited(*args: Any, **options: Any) -> Any:
            return await self._surely(lambda: found(*args, **options), self._undo.get(name))

        return awaited

    async def send(
        self, instance_id: str, generation: Generation, handler: Callable[[Claim], Awaitable[Verdict | None]], *,
        most: int = 100,
    ) -> list[tuple[Claim, Verdict]]:
        """As `Server.send`; cancelled while the handler runs, nobody knows whether it sent, so it is sent again."""
        done: list[tuple[Claim, Verdict]] = []
        while len(done) < most:
            claimed = await self._surely(partial(self.sync.claim, instance_id, generation), self._give_back)
            if claimed is None:
                break
            verdict: Verdict
            try:
                verdict = verdict_of(await handler(claimed))
            except NotSent as error:
                verdict = not_sent(error)
            except BaseException as error:
                await self._surely(partial(self.sync.settle, claimed, lost_by(error)))
                raise
            await self._surely(partial(self.sync.settle, claimed, verdict))
            done.append((claimed, verdict))
            if sending.ends_the_round(verdict):
                break
        return done

    async def start(
        self, thread_id: str, announce: Callable[[Turn, Connection], Awaitable[object]], *, turn_id: str | None = None
    ) -> Turn:
        """As `Server.start`."""
        turn, connection = await self._surely(
            lambda: self.sync.reserve(thread_id, turn_id=turn_id), self._not_announced
        )
        try:
            await announce(turn, connection)
        except BaseException as error:
            await self._surely(partial(self.sync.not_announced, turn, error))
            raise
        started: Turn = await self._surely(partial(self.sync.announced, turn))
        return started

    @contextlib.asynccontextmanager
    async def request(
        self, instance_id: str, generation: Generation, method: str, *, thread_id: str | None = None,
        request_id: str | None = None, seconds: float | None = None,
    ) -> AsyncIterator[Request]:
        """As `Server.request`; await `asyncio.wrap_future(request.answer)` in the block."""
        await self._aio.run(lambda: self.sync.refuse_request(instance_id, generation, thread_id))
        with self.sync.begun(instance_id, generation, method, request_id=request_id, seconds=seconds) as request:
            yield request

    async def ask(
        self, instance_id: str, generation: Generation, method: str, send: Callable[[Request], Awaitable[object]], *,
        thread_id: str | None = None, request_id: str | None = None, seconds: float | None = None,
    ) -> Any:
        """Begin a request, send it, and give its answer. Raises as `request` and `Correlator.ask`."""
        async with self.request(
            instance_id, generation, method, thread_id=thread_id, request_id=request_id, seconds=seconds
        ) as begun:
            await send(begun)
            return await asyncio.wrap_future(begun.answer)

    async def wait(self, timeout_seconds: float | None = None) -> bool:
        """As `Server.wait`, in a thread of its own, which ends with the await and with the server."""
        changes = self.sync.new_wait()
        try:
            return await self._aio.alone(lambda: changes.wait(self.sync.position, timeout_seconds=timeout_seconds))
        finally:
            changes.stop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self._surely(self.sync.close)

    def _give_back(self, claimed: Claim | None) -> None:
        if claimed is not None:
            self.sync.settle(claimed, NotAdmitted(why="its sender was cancelled", retry_after=0))

    def _not_announced(self, made: tuple[Turn, Connection]) -> None:
        self.sync.not_announced(made[0], asyncio.CancelledError("it was cancelled before"))

    async def _surely(self, work: Callable[[], Any], undo: Callable[[Any], object] | None = None) -> Any:
        return await surely(self._aio.run, work, undo)
