"""A delivery in a loop that is cancelled: what was not sent spends nothing, and what the handler says is believed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hermes_state.errors import StaleFence
from hermes_state.outbox import Accepted, Claim, NotSent, Obligation, Refused, State, Verdict
from hermes_state.store import Store, open_store
from tests.hermes_state.outbox.test_outbox_aio import owed

STOPPED = "its delivery was cancelled before anything was sent"


def test_what_was_claimed_while_the_delivery_was_stopped_is_given_back(tmp_path: Path) -> None:
    with open_store(path=tmp_path / "state.db") as store:
        owed(store, "one", "two", policy="at_most_once")
        sent: list[Claim] = []
        asked = iter([False, True])  # before the claim, and after it

        def send(claim: Claim) -> Verdict:
            sent.append(claim)
            return Accepted()

        delivered = store.outbox.deliver_until(
            send, ["telegram"], kinds=None, limit=2, term_seconds=60.0, stopped=lambda: next(asked)
        )
        one = store.outbox.get("one")
        assert (delivered, sent, one.state, one.fence, one.attempts, one.recoveries) == ([], [], State.PENDING, 1, 0, 0)
        assert one.verdict is not None and one.verdict["why"] == STOPPED
        assert len(store.outbox.claim(["telegram"], limit=2)) == 2


def test_a_handler_of_which_no_line_has_run_sent_nothing(tmp_path: Path) -> None:
    async def play() -> tuple[list[Claim], Obligation]:
        with open_store(path=tmp_path / "state.db") as store:
            owed(store, "one", policy="at_most_once")
            sent: list[Claim] = []

            async def send(claim: Claim) -> Verdict:
                sent.append(claim)
                return Accepted()

            delivering = asyncio.create_task(store.aio.outbox.deliver(send, ["telegram"]))
            await asyncio.sleep(0)
            while store.outbox.get("one").state is not State.CLAIMED:
                pass  # the loop stands still meanwhile, so that nothing is awaited before the cancellation
            delivering.cancel()
            with pytest.raises(asyncio.CancelledError):
                await delivering
            return sent, store.outbox.get("one")

    sent, one = asyncio.run(play())
    assert (sent, one.state, one.attempts, one.recoveries) == ([], State.PENDING, 0, 0)
    assert one.verdict is not None and one.verdict["why"] == STOPPED


@pytest.mark.parametrize("policy", ["at_most_once", "at_least_once"])
@pytest.mark.parametrize(
    ("answer", "state", "attempts"),
    [(NotSent("no bytes went out"), State.PENDING, 1), (Accepted(result={"id": 7}), State.ACCEPTED, 0),
     (Refused(why="gone"), State.REFUSED, 0)],
)
def test_what_a_handler_answers_to_its_cancellation_is_believed(
    tmp_path: Path, policy: str, answer: Any, state: State, attempts: int
) -> None:
    async def play(store: Store) -> list[Any]:
        owed(store, "one", policy=policy)
        begun, seen = asyncio.Event(), list[Any]()

        async def send(claim: Claim) -> Verdict:
            begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                # Not settled, and given to nobody, before it has really ended.
                seen.append(len(await store.aio.outbox.claim(["telegram"])))
                seen.append(store.outbox.get("one").state)
                if isinstance(answer, NotSent):
                    raise answer from None
            return answer  # type: ignore[no-any-return]

        delivering = asyncio.create_task(store.aio.outbox.deliver(send, ["telegram"]))
        await begun.wait()
        delivering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await delivering
        return [*seen, store.outbox.get("one").state]

    with open_store(path=tmp_path / "state.db") as store:
        assert asyncio.run(play(store)) == [0, State.CLAIMED, state]
        one = store.outbox.get("one")
        assert (one.attempts, one.recoveries) == (attempts, 0)


def test_a_handler_that_needs_long_to_end_is_waited_for_however_often_it_is_cancelled(tmp_path: Path) -> None:
    async def play() -> tuple[int, State]:
        with open_store(path=tmp_path / "state.db") as store:
            owed(store, "one", policy="at_most_once")
            at = [asyncio.Event() for _ in range(3)]

            async def send(claim: Claim) -> Verdict:
                for event in at:
                    event.set()
                    try:
                        await asyncio.Event().wait()
                    except asyncio.CancelledError:
                        continue
                return Accepted()

            delivering = asyncio.create_task(store.aio.outbox.deliver(send, ["telegram"]))
            asked = 0
            for event in at:
                await event.wait()
                asked += delivering.cancel()
            with pytest.raises(asyncio.CancelledError):
                await delivering
            return asked, store.outbox.get("one").state

    assert asyncio.run(play()) == (3, State.ACCEPTED)


def test_a_verdict_that_could_not_be_written_comes_with_the_cancellation(tmp_path: Path) -> None:
    complaints: list[dict[str, Any]] = []

    async def play() -> BaseException | None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, said: complaints.append(said))
        with open_store(path=tmp_path / "state.db") as store:
            owed(store, "one")
            begun = asyncio.Event()

            async def send(claim: Claim) -> Verdict:
                begun.set()
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    store.outbox.settle(claim, Refused(why="by another"))
                return Accepted()

            delivering = asyncio.create_task(store.aio.outbox.deliver(send, ["telegram"]))
            await begun.wait()
            delivering.cancel()
            with pytest.raises(asyncio.CancelledError) as caught:
                await delivering
            return caught.value.__cause__

    cause = asyncio.run(play())
    assert isinstance(cause, StaleFence) and cause.facts["verdict"] == Accepted()
    assert complaints == []
