"""The server for asyncio: handlers of the loop, and nothing left claimed or reserved by a cancelled await."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hermes_state.errors import ThreadStopped
from hermes_state.gateway import CloseCode, VersionRange
from hermes_state.outbox import Claim, Verdict
from hermes_state.store import Store, open_store
from hermes_state.turns import TurnState
from tests.hermes_state.gateway.conftest import VERSIONS, Plugin

THREAD = "thread of mac"


@pytest.fixture(name="mac")
def plugin_of_store(tmp_path: Path) -> Plugin:
    store = open_store(path=tmp_path / "state.db")
    mac = Plugin(store)
    store.instances.bind(THREAD, "mac", "session")
    store.turns.open_thread(THREAD)
    return mac


async def announce(_turn: object, _connection: object) -> None:
    await asyncio.sleep(0)


def test_the_groups_and_the_server_are_awaited(mac: Plugin) -> None:
    store = mac.store

    async def take(claim: Claim) -> Verdict:
        await asyncio.sleep(0)
        return mac.take(claim)

    async def play() -> None:
        assert (await store.aio.instances.get("mac")).instance_id == "mac"
        async with await store.aio.gateway.serve(versions=VERSIONS) as server:
            assert (await store.aio.gateway.holder()).epoch == server.epoch
            accepted = await server.accept(mac.hello())
            turn = await server.start(THREAD, announce)
            assert turn.state is TurnState.RUNNING

            async def answering(request: object) -> None:
                server.requests.answer(request.id, "queued")  # type: ignore[attr-defined]

            said = await server.ask("mac", accepted.generation, "turn.steer", answering, thread_id=THREAD)
            assert said == "queued"
            await store.aio.turns.stop(THREAD)
            with pytest.raises(ThreadStopped):
                await server.ask("mac", accepted.generation, "turn.steer", answering, thread_id=THREAD)
            await server.send("mac", accepted.generation, take)
            assert mac.heard == ["stop"]
            assert [one.instance_id for one in await server.connected()] == ["mac"]
        assert (await store.aio.turns.get(turn.turn_id)).state is TurnState.STOPPED
        await store.aio.close()

    asyncio.run(play())


def test_a_wait_ends_with_a_revocation_and_with_the_server(mac: Plugin) -> None:
    store = mac.store

    async def play() -> tuple[list[int], bool]:
        async with await store.aio.gateway.serve(versions=VersionRange(1, 3)) as server:
            await server.accept(mac.hello())
            await server.poll()
            waiting = asyncio.create_task(server.wait())
            await asyncio.sleep(0)
            await store.aio.instances.revoke("mac", actor="test", reason="stolen")
            assert await waiting
            codes = [one.code for one in (await server.poll()).ended]
            cancelled = asyncio.create_task(server.wait())
            await asyncio.sleep(0)
            cancelled.cancel()
            last = asyncio.create_task(server.wait())
            await asyncio.sleep(0)
        came = await last
        await store.aio.close()
        return codes, came

    assert asyncio.run(asyncio.wait_for(play(), 60)) == ([CloseCode.REFUSED], False)


def test_a_cancelled_sender_gives_its_claim_back_and_a_cancelled_start_its_turn(mac: Plugin) -> None:
    store = mac.store

    async def play(store: Store) -> list[str]:
        async with await store.aio.gateway.serve(versions=VERSIONS) as server:
            accepted = await server.accept(mac.hello())
            begun = asyncio.Event()

            async def hanging(*_given: object) -> Verdict:
                begun.set()
                await asyncio.Event().wait()
                raise AssertionError

            starting = asyncio.create_task(server.start(THREAD, hanging, turn_id="t1"))
            await begun.wait()
            starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await starting
            found = [str((await store.aio.turns.get("t1")).state)]
            begun.clear()
            await store.aio.turns.ensure(THREAD)
            sending = asyncio.create_task(server.send("mac", accepted.generation, hanging))
            await begun.wait()
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending

            async def take(claim: Claim) -> Verdict:
                return mac.take(claim)

            await server.send("mac", accepted.generation, take)
        await store.aio.close()
        return found + mac.heard

    assert asyncio.run(asyncio.wait_for(play(store), 60)) == ["withdrawn", "ensure"]


def test_a_sender_that_is_cancelled_again_and_again_gives_its_claim_back(mac: Plugin) -> None:
    """Also while what it claimed is being given back."""
    store = mac.store

    async def play() -> list[str]:
        async with await store.aio.gateway.serve(versions=VERSIONS) as server:
            accepted = await server.accept(mac.hello())
            await store.aio.turns.ensure(THREAD)
            begun = asyncio.Event()

            async def hanging(*_given: object) -> Verdict:
                begun.set()
                await asyncio.Event().wait()
                raise AssertionError

            sending = asyncio.create_task(server.send("mac", accepted.generation, hanging))
            await begun.wait()
            while not sending.done():
                sending.cancel()
                await asyncio.sleep(0)
            assert sending.cancelled()
            states = [str(one.state) for one in await store.aio.outbox.page()]
        await store.aio.close()
        return states

    assert asyncio.run(asyncio.wait_for(play(), 60)) == ["pending"]
