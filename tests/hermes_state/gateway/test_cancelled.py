"""Awaits that are cancelled while the store does what they asked for: nothing is had by nobody."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from hermes_state.errors import InvalidAuthentication
from hermes_state.gateway import Standing
from hermes_state.store import Store, open_store
from tests.hermes_state.gateway.conftest import VERSIONS, Plugin

THREAD = "thread of mac"


@pytest.fixture(name="mac")
def plugin_of_store(tmp_path: Path) -> Plugin:
    store = open_store(path=tmp_path / "state.db")
    mac = Plugin(store)
    store.instances.bind(THREAD, "mac", "session")
    store.turns.open_thread(THREAD)
    return mac


async def cancelled(store: Store, call: Coroutine[Any, Any, Any]) -> None:
    """Cancel a call while it waits for the write lock, which then goes free."""
    held, free = threading.Event(), threading.Event()

    def hold(_tx: object) -> None:
        held.set()
        free.wait(20)

    holding = threading.Thread(target=lambda: store.core.write(hold))
    holding.start()
    held.wait(20)
    running = asyncio.create_task(call)
    for _turn in range(20):  # until its thread has begun
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.sleep(0)
    free.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    holding.join()


def play(mac: Plugin, scene: Callable[[Store, Plugin], Coroutine[Any, Any, None]]) -> None:
    async def played() -> None:
        await scene(mac.store, mac)
        await mac.store.aio.close()

    asyncio.run(asyncio.wait_for(played(), 60))


def test_a_cancelled_accept_leaves_no_connection_and_tells_of_the_one_that_it_displaced(mac: Plugin) -> None:
    """A9: turns were announced on a connection that nobody had a socket for."""

    async def scene(store: Store, mac: Plugin) -> None:
        async with await store.aio.gateway.serve(versions=VERSIONS) as server:
            first = await server.accept(mac.hello())
            mac.boot_id = "boot 2"
            await cancelled(store, server.accept(mac.hello()))
            assert await server.connected() == []
            told = [(one.connection, one.code) for one in (await server.poll()).ended]
            assert told == [(first.connection, 4001)]

    play(mac, scene)


def test_what_a_cancelled_tick_found_is_told_by_the_next(mac: Plugin) -> None:
    """A9."""

    async def scene(store: Store, mac: Plugin) -> None:
        async with await store.aio.gateway.serve(versions=VERSIONS) as server:
            await server.accept(mac.hello())
            store.instances.revoke("mac", actor="test", reason="stolen")
            await cancelled(store, server.tick())
            assert [one.code for one in (await server.tick()).ended] == [4003]

    play(mac, scene)


def test_a_cancelled_reservation_and_claim_are_given_back(mac: Plugin) -> None:
    """A9: by the server, and by the store without one."""

    async def scene(store: Store, mac: Plugin) -> None:
        async with await store.aio.gateway.serve(versions=VERSIONS) as server:
            accepted = await server.accept(mac.hello())
            await cancelled(store, server.reserve(THREAD, turn_id="t1"))
            await cancelled(store, store.aio.turns.reserve(THREAD, turn_id="t2"))
            found = [store.turns.get(name) for name in ("t1", "t2")]
            assert {str(one.state) for one in found if one is not None} == {"withdrawn"}
            store.turns.ensure(THREAD)
            await cancelled(store, server.claim("mac", accepted.generation))
            await cancelled(store, store.aio.turns.claim("mac"))
            owed = [one for one in store.outbox.page() if one.settled_at is None]
            assert [(str(one.state), one.attempts, one.due_at <= store.core.clock.now()) for one in owed] == [
                ("pending", 0, True)
            ]

    play(mac, scene)


def test_a_cancelled_redeem_spends_no_token(mac: Plugin) -> None:
    """A9: the token was spent, and nobody had the credential."""

    async def scene(store: Store, mac: Plugin) -> None:
        token = store.instances.enroll("mac", actor="test").token
        await cancelled(store, store.aio.instances.redeem(token, actor="plugin"))
        with pytest.raises(InvalidAuthentication):
            store.instances.authenticate("mac", mac.credential)
        issued = await store.aio.instances.redeem(token, actor="plugin")
        assert (await store.aio.instances.authenticate("mac", issued.credential)).instance_id == "mac"

    play(mac, scene)


def test_a_cancelled_start_of_a_server_leaves_none(mac: Plugin) -> None:
    """A9: it had the store, and nobody to close it."""

    async def scene(store: Store, _mac: Plugin) -> None:
        await cancelled(store, store.aio.gateway.serve(versions=VERSIONS))
        store.core.write(lambda tx: None)  # whatever waited for the lock before has had it
        holder = store.gateway.holder()
        assert holder is None or holder.standing is Standing.NONE

    play(mac, scene)


def test_a_cancelled_close_has_its_connections_told_by_the_next(mac: Plugin) -> None:
    """A9."""

    async def scene(store: Store, mac: Plugin) -> None:
        server = await store.aio.gateway.serve(versions=VERSIONS)
        await server.accept(mac.hello())
        await cancelled(store, server.close())
        assert [one.code for one in await server.close()] == [1001]

    play(mac, scene)
