"""A pass that its caller ended, by a cancelled await or an interrupt, is no failure: the next call works at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from hermes_state import Store, open_store
from hermes_state.clock import FakeClock
from hermes_state.compaction import passes
from hermes_state.compaction.summary import SummaryRequest
from tests.hermes_state.compaction.passes.talks import talk, words

OPTIONS: dict[str, Any] = {"window": 4_000, "counter": words, "fixed_tokens": 200}
GOOD = "Parts 0 to 6 were looked at. Part 2 listens on port 4002, part 5 on port 4005."


def ended(store: Store) -> list[tuple[str, str | None, str | None]]:
    return [
        (one.state, (one.error or {}).get("code"), (one.error or {}).get("type"))
        for one in store.compaction.generations("one")
    ]


def on_a_loop(tmp_path: Path, play: Callable[[Store], Coroutine[Any, Any, None]]) -> None:
    async def all_of_it() -> None:
        with open_store(path=tmp_path / "state.db") as store:
            talk(store, 9)
            await play(store)

    asyncio.run(asyncio.wait_for(all_of_it(), 60))


def test_awaits_that_were_cancelled_are_no_failures_however_many(tmp_path: Path, fake_clock: FakeClock) -> None:
    async def play(store: Store) -> None:
        before = store.messages.context("one")
        for _ in range(6):
            asked = asyncio.Event()

            async def waits(request: SummaryRequest, asked: asyncio.Event = asked) -> str:
                asked.set()
                await asyncio.Event().wait()
                return GOOD

            task = asyncio.create_task(store.aio.compaction.compact("one", **OPTIONS, summarizer=waits))
            await asked.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert ended(store) == [("failed", "cancelled", "CancelledError")] * 6
        assert store.messages.context("one") == before
        assert (await store.aio.compaction.compact("one", **OPTIONS, summarizer=lambda _request: GOOD)).form == "model"

    on_a_loop(tmp_path, play)


def test_a_wait_for_that_runs_out_cancels_the_pass_and_the_next_one_works(
    tmp_path: Path, fake_clock: FakeClock
) -> None:
    async def play(store: Store) -> None:
        async def waits(request: SummaryRequest) -> str:
            await asyncio.Event().wait()
            return GOOD

        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(store.aio.compaction.compact("one", **OPTIONS, summarizer=waits), 0.2)
        assert ended(store) == [("failed", "cancelled", "CancelledError")]
        assert (await store.aio.compaction.compact("one", **OPTIONS)).changed

    on_a_loop(tmp_path, play)


def test_an_await_that_is_cancelled_while_a_plain_summariser_works_leaves_it_behind(
    tmp_path: Path, fake_clock: FakeClock
) -> None:
    async def play(store: Store) -> None:
        loop, asked, gate = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

        def waits(request: SummaryRequest) -> str:
            loop.call_soon_threadsafe(asked.set)
            gate.wait(60)
            return GOOD

        task = asyncio.create_task(store.aio.compaction.compact("one", **OPTIONS, summarizer=waits))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.set()
        assert ended(store) == [("failed", "cancelled", "CancelledError")]
        assert (await store.aio.compaction.compact("one", **OPTIONS)).changed

    on_a_loop(tmp_path, play)


def test_a_plain_summariser_is_left_behind_by_a_loop_at_the_deadline(tmp_path: Path, fake_clock: FakeClock) -> None:
    async def play(store: Store) -> None:
        gate = threading.Event()

        def never(request: SummaryRequest) -> str:
            fake_clock.advance(31.0)
            gate.wait(60)
            return GOOD

        outcome = await store.aio.compaction.compact("one", **OPTIONS, summarizer=never, deadline=30.0)
        gate.set()
        assert (outcome.state, outcome.form) == ("compacted", "extractive")
        assert any("no answer after 30 s" in warning for warning in outcome.warnings)

    on_a_loop(tmp_path, play)


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_an_asynchronous_summariser_that_stops_the_loop_leaves_a_cancelled_pass(
    tmp_path: Path, fake_clock: FakeClock, kind: type[BaseException]
) -> None:
    async def stops(request: SummaryRequest) -> str:
        raise kind("enough")

    async def play(store: Store) -> None:
        await store.aio.compaction.compact("one", **OPTIONS, summarizer=stops)

    with open_store(path=tmp_path / "state.db") as store:
        talk(store, 9)
        before = store.messages.context("one")
        with pytest.raises(kind):
            asyncio.run(play(store))
        assert [(state, code) for state, code, _type in ended(store)] == [("failed", "cancelled")]
        assert store.messages.context("one") == before
        assert store.compaction.compact("one", **OPTIONS).changed


def test_a_plain_summariser_that_stops_the_interpreter_is_replaced_by_the_extract_on_a_loop(
    tmp_path: Path, fake_clock: FakeClock
) -> None:
    async def play(store: Store) -> None:
        outcome = await store.aio.compaction.compact("one", **OPTIONS, summarizer=lambda _request: exit(3))
        assert (outcome.state, outcome.form) == ("compacted", "extractive")
        assert list(outcome.warnings) == ["summarizer_failed: SystemExit: 3"]

    on_a_loop(tmp_path, play)


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_an_interrupt_of_a_pass_is_recorded_as_what_it_was(
    tmp_path: Path, fake_clock: FakeClock, kind: type[BaseException]
) -> None:
    def stopped(*_arguments: object, **_options: object) -> str:
        raise kind("stop")

    with open_store(path=tmp_path / "state.db") as store:
        talk(store, 9)
        for _ in range(4):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(passes, "extractive", stopped)
                with pytest.raises(kind):
                    store.compaction.compact("one", **OPTIONS)
        assert ended(store) == [("failed", "cancelled", kind.__name__)] * 4
        assert store.compaction.compact("one", **OPTIONS).changed
