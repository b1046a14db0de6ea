"""`store.aio.outbox`: the same methods awaited, and handlers that are asynchronous."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from hermes_state.outbox import Accepted, Claim, State, Verdict
from hermes_state.store import Store, open_store


def owed(store: Store, *names: str, policy: str = "at_least_once") -> None:
    for name in names:
        store.outbox.append(dedupe_id=name, kind="final", transport="telegram", payload=1, policy=policy)  # type: ignore[arg-type]


def test_an_asynchronous_handler_runs_in_the_loop_which_goes_on_meanwhile(tmp_path: Path) -> None:
    async def play() -> list[object]:
        seen: list[object] = []
        with open_store(path=tmp_path / "state.db") as store:
            await store.aio.outbox.append(
                dedupe_id="one", kind="final", transport="telegram", payload=1, policy="at_most_once"
            )
            owed(store, "two")
            went_on = asyncio.Event()

            async def send(claim: Claim) -> Verdict:
                seen.append((claim.primary.dedupe_id, threading.current_thread() is threading.main_thread()))
                await went_on.wait()
                await store.aio.outbox.renew(claim)
                return Accepted(result={"id": 7})

            async def other() -> None:
                went_on.set()

            delivered, _ = await asyncio.gather(store.aio.outbox.deliver(send, ["telegram"], limit=5), other())
            seen += [verdict for _claim, verdict in delivered]
            seen.append((await store.aio.outbox.get("one")).state)
        return seen

    accepted = Accepted(result={"id": 7})
    assert asyncio.run(play()) == [("one", True), ("two", True), accepted, accepted, State.ACCEPTED]


def test_a_plain_handler_runs_in_a_thread_of_its_own(tmp_path: Path) -> None:
    async def play() -> tuple[bool, State]:
        with open_store(path=tmp_path / "state.db") as store:
            owed(store, "one")
            in_loop: list[bool] = []

            def send(claim: Claim) -> Verdict:
                in_loop.append(threading.current_thread() is threading.main_thread())
                return Accepted()

            await store.aio.outbox.deliver(send, ["telegram"])
            return in_loop[0], store.outbox.get("one").state

    assert asyncio.run(play()) == (False, State.ACCEPTED)


@pytest.mark.parametrize(("policy", "state"), [("at_most_once", State.UNKNOWN), ("at_least_once", State.PENDING)])
def test_a_cancelled_delivery_cancels_its_handler_and_claims_nothing_more(
    tmp_path: Path, policy: str, state: State
) -> None:
    async def play() -> list[State]:
        with open_store(path=tmp_path / "state.db") as store:
            owed(store, "one", "two", policy=policy)
            begun = asyncio.Event()

            async def send(claim: Claim) -> Verdict:
                begun.set()
                await asyncio.Event().wait()
                return Accepted()

            delivering = asyncio.create_task(store.aio.outbox.deliver(send, ["telegram"], limit=2))
            await begun.wait()
            delivering.cancel()
            with pytest.raises(asyncio.CancelledError):
                await delivering
            return [store.outbox.get(name).state for name in ("one", "two")]

    assert asyncio.run(play()) == [state, State.PENDING]


def test_an_error_of_an_asynchronous_handler_is_raised_once_its_claim_is_settled(tmp_path: Path) -> None:
    async def play() -> State:
        with open_store(path=tmp_path / "state.db") as store:
            owed(store, "one", policy="at_most_once")

            async def send(claim: Claim) -> Verdict:
                raise ConnectionResetError("in the middle")

            with pytest.raises(ConnectionResetError):
                await store.aio.outbox.deliver(send, ["telegram"])
            state: State = store.outbox.get("one").state
            return state

    assert asyncio.run(play()) is State.UNKNOWN
