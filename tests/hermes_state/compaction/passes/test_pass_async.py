"""Passes from a loop: the same pass, an asynchronous summariser on the loop, and a cancelled await."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from hermes_state import open_store
from hermes_state.clock import FakeClock
from hermes_state.compaction.outcomes import Outcome
from hermes_state.compaction.summary import SummaryRequest
from tests.hermes_state.compaction.passes.talks import talk, words

OPTIONS: dict[str, Any] = {"window": 4_000, "counter": words, "fixed_tokens": 200}
GOOD = "Parts 0 to 6 were looked at. Part 2 listens on port 4002, part 5 on port 4005."


def play(tmp_path: Path, summarizer: Any, **options: Any) -> tuple[Outcome, list[dict[str, Any]]]:
    async def all_of_it() -> tuple[Outcome, list[dict[str, Any]]]:
        with open_store(path=tmp_path / "state.db") as store:
            session = talk(store, 9)
            outcome = await store.aio.compaction.compact(session, **OPTIONS, summarizer=summarizer, **options)
            return outcome, await store.aio.messages.context(session)

    return asyncio.run(all_of_it())


def test_an_asynchronous_summariser_is_awaited_on_the_loop(tmp_path: Path, fake_clock: FakeClock) -> None:
    where = []

    async def summarizer(request: SummaryRequest) -> str:
        where.append(threading.current_thread() is threading.main_thread())
        await asyncio.sleep(0)
        return GOOD

    outcome, context = play(tmp_path, summarizer)
    assert (outcome.state, outcome.form, where) == ("compacted", "model", [True])
    assert context[0]["content"].startswith(f"Summary of the conversation so far:\n{GOOD}")


def test_a_plain_summariser_leaves_the_loop_free(tmp_path: Path, fake_clock: FakeClock) -> None:
    where = []

    def summarizer(request: SummaryRequest) -> str:
        where.append(threading.current_thread() is threading.main_thread())
        return GOOD

    outcome, _context = play(tmp_path, summarizer)
    assert (outcome.form, where) == ("model", [False])


def test_what_an_asynchronous_summariser_raises_is_replaced_by_the_extract(
    tmp_path: Path, fake_clock: FakeClock
) -> None:
    async def summarizer(request: SummaryRequest) -> str:
        raise ConnectionError("no route to host")

    outcome, context = play(tmp_path, summarizer)
    assert (outcome.state, outcome.form) == ("compacted", "extractive")
    assert "4002" in context[0]["content"] and outcome.warnings


def test_an_asynchronous_summariser_is_cancelled_at_the_deadline(tmp_path: Path, fake_clock: FakeClock) -> None:
    ended = []

    async def summarizer(request: SummaryRequest) -> str:
        fake_clock.advance(31.0)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        return GOOD

    outcome, _context = play(tmp_path, summarizer, deadline=30.0)
    assert (outcome.form, ended) == ("extractive", ["cancelled"])


def test_a_cancelled_await_leaves_the_old_view_and_settles_the_row(tmp_path: Path, fake_clock: FakeClock) -> None:
    async def all_of_it() -> None:
        with open_store(path=tmp_path / "state.db") as store:
            session, asked = talk(store, 9), asyncio.Event()
            before = store.messages.context(session)

            async def summarizer(request: SummaryRequest) -> str:
                asked.set()
                await asyncio.Event().wait()
                return GOOD

            task = asyncio.create_task(store.aio.compaction.compact(session, **OPTIONS, summarizer=summarizer))
            await asked.wait()
            assert store.compaction.status(session).running is not None
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            status = await store.aio.compaction.status(session)
            assert status.running is None and status.newest.state == "failed"
            assert await store.aio.messages.context(session) == before
            again = await store.aio.compaction.compact(session, **OPTIONS)
            assert again.changed

    asyncio.run(all_of_it())


def test_the_other_methods_are_awaited_as_in_every_group(tmp_path: Path, fake_clock: FakeClock) -> None:
    async def all_of_it() -> None:
        with open_store(path=tmp_path / "state.db") as store:
            session = talk(store, 9)
            assert (await store.aio.compaction.preview(session, **OPTIONS)).changed
            await store.aio.compaction.compact(session, **OPTIONS)
            assert len(await store.aio.compaction.generations(session)) == 1
            assert await store.aio.compaction.rollback(session, 0) is None

    asyncio.run(all_of_it())
