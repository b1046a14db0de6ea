"""Summarisers that are useless, slow, hostile or interrupted: the pass is bounded, told, and loses nothing."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_state import Store, open_store
from hermes_state.clock import FakeClock
from hermes_state.compaction.summary import SummaryRequest
from tests.hermes_state.compaction.passes.talks import rows, talk, turn, words

OPTIONS: dict[str, Any] = {"window": 4_000, "counter": words, "fixed_tokens": 200}


@pytest.fixture
def store(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Store]:
    with open_store(path=tmp_path / "state.db") as opened:
        yield opened


def good(request: SummaryRequest) -> str:
    """A summary that a model might write."""
    return "Parts 0 to 6 were looked at. Part 2 listens on port 4002, part 5 on port 4005."


def raises(request: SummaryRequest) -> str:
    raise RuntimeError("model crashed")


def echoes(request: SummaryRequest) -> str:
    return "\n".join(str(message.get("content")) for message in request.messages)


HOSTILE: dict[str, Callable[[SummaryRequest], Any]] = {
    "empty": lambda _request: "",
    "blank": lambda _request: " \n\t ",
    "raises": raises,
    "stops the interpreter": lambda _request: exit(3),
    "echoes": echoes,
    "thinks only": lambda _request: "<think>" + "Let me think about part 2. " * 50 + "</think>",
    "twice the size": lambda _request: "Part 2 listens on port 4002 and more. " * 2_000,
    "nothing": lambda _request: None,
    "a number": lambda _request: 7,
    "bytes": lambda _request: b"\xff\xfe",
    "a constant": lambda _request: "Previous conversation was too long to summarize.",
}


@pytest.mark.parametrize("summarizer", HOSTILE.values(), ids=HOSTILE)
def test_whatever_a_summariser_gives_the_view_shrinks_and_the_facts_stay(
    store: Store, summarizer: Callable[[SummaryRequest], Any]
) -> None:
    session = talk(store, 9)
    said = rows(store)
    outcome = store.compaction.compact(session, **OPTIONS, summarizer=summarizer)
    assert (outcome.state, outcome.fits) == ("compacted", True)
    assert outcome.tokens_after is not None and outcome.tokens_after <= outcome.tokens_before - 330
    assert rows(store) == said
    summary = store.compaction.view(session).summary or ""
    assert "too long to summarize" not in summary and "<think>" not in summary
    assert "4002" in summary
    assert words(summary) <= 495
    assert outcome.warnings


def test_a_good_summary_stands_in_the_view_under_the_name_of_its_maker(store: Store) -> None:
    session = talk(store, 9)
    outcome = store.compaction.compact(session, **OPTIONS, summarizer=good)
    assert (outcome.form, list(outcome.warnings)) == ("model", [])
    assert "Part 2 listens on port 4002" in store.messages.context(session)[0]["content"]
    assert store.compaction.generations(session)[-1].summarizer == "good"


def test_an_asynchronous_summariser_works_without_a_loop(store: Store) -> None:
    async def later(request: SummaryRequest) -> str:
        return good(request)

    outcome = store.compaction.compact(talk(store, 9), **OPTIONS, summarizer=later)
    assert outcome.form == "model"


def test_a_summariser_that_never_returns_is_left_behind_at_the_deadline(store: Store, fake_clock: FakeClock) -> None:
    session, gate, ended = talk(store, 9), threading.Event(), threading.Event()

    def never(request: SummaryRequest) -> str:
        fake_clock.advance(31.0)
        gate.wait(60)
        ended.set()
        return good(request)

    outcome = store.compaction.compact(session, **OPTIONS, summarizer=never, deadline=30.0)
    assert (outcome.state, outcome.form, outcome.fits) == ("compacted", "extractive", True)
    assert any("no answer after 30 s" in warning for warning in outcome.warnings)
    before = store.messages.context(session)
    gate.set()
    assert ended.wait(60)
    assert store.messages.context(session) == before


def test_a_summariser_that_keeps_failing_is_left_out_and_asked_again_when_told(
    store: Store, fake_clock: FakeClock
) -> None:
    session, asked = talk(store, 9), []

    def failing(request: SummaryRequest) -> str:
        asked.append(request)
        raise RuntimeError("no route to host")

    for number in range(6):
        outcome = store.compaction.compact(session, **OPTIONS, summarizer=failing)
        assert outcome.changed and outcome.form == "extractive"
        for more in range(9):
            turn(store, session, 100 * number + more)
        fake_clock.advance(3_600.0)
    assert len(asked) == 4
    assert list(outcome.warnings) == [
        "summarizer_left_out: The summariser failing gave nothing usable 4 times in a row; it is not tried again before"
        " something changes."
    ]
    store.compaction.compact(session, **OPTIONS, summarizer=failing, trigger="manual")
    assert len(asked) == 5


def test_the_lease_is_renewed_while_the_summariser_works(store: Store, fake_clock: FakeClock) -> None:
    session, looked = talk(store, 9), []

    def slow(request: SummaryRequest) -> str:
        for _ in range(4):
            fake_clock.advance(25.0)
            deadline = threading.Event()
            for _look in range(200):
                running = store.compaction.status(session).running
                assert running is not None
                if running.renewals > len(looked):
                    looked.append(running.renewals)
                    break
                deadline.wait(0.01)
        return good(request)

    outcome = store.compaction.compact(session, **OPTIONS, summarizer=slow)
    assert (outcome.state, outcome.form) == ("compacted", "model")
    assert looked == [1, 2, 3, 4]


def test_what_is_said_during_the_summary_stays_in_order(store: Store) -> None:
    session = talk(store, 9)

    def talkative(request: SummaryRequest) -> str:
        for number in range(5):
            store.messages.append(session, role="user", content=f"URGENT {number}")
        return good(request)

    outcome = store.compaction.compact(session, **OPTIONS, summarizer=talkative)
    assert outcome.state == "compacted"
    assert [message["content"] for message in store.messages.context(session)][-5:] == [
        f"URGENT {number}" for number in range(5)
    ]
    assert rows(store)[-5:] == [("user", f"URGENT {number}") for number in range(5)]


def test_a_rewind_during_the_summary_supersedes_the_pass(store: Store) -> None:
    session = talk(store, 9)
    asked = [message for message in store.messages.history(session, limit=100).messages if message.role == "user"]

    def overtaken(request: SummaryRequest) -> str:
        store.messages.rewind(session, asked[6].id)
        return good(request)

    outcome = store.compaction.compact(session, **OPTIONS, summarizer=overtaken)
    assert (outcome.state, outcome.why) == ("superseded", "view_edited")
    assert len(store.messages.context(session)) == 6 * 4
    made = store.compaction.generations(session)[-1]
    assert made.state == "superseded" and made.summary is not None and "Part 2 listens on port 4002" in made.summary


def test_an_interrupt_during_the_summary_leaves_the_old_view_and_settles_the_row(store: Store) -> None:
    session = talk(store, 9)
    before, gate = store.messages.context(session), threading.Event()

    def interrupting(request: SummaryRequest) -> str:
        _thread.interrupt_main()
        gate.wait(60)
        return good(request)

    with pytest.raises(KeyboardInterrupt):
        store.compaction.compact(session, **OPTIONS, summarizer=interrupting)
    gate.set()
    status = store.compaction.status(session)
    assert store.messages.context(session) == before
    assert status.running is None and status.newest is not None and status.newest.state == "failed"
    assert store.compaction.compact(session, **OPTIONS, summarizer=good).form == "model"


def test_of_many_turns_at_once_one_makes_the_pass(store: Store) -> None:
    session, gate, outcomes = talk(store, 9), threading.Event(), []
    asked: list[SummaryRequest] = []

    def slow(request: SummaryRequest) -> str:
        asked.append(request)
        gate.wait(60)
        return good(request)

    def one_turn() -> None:
        outcomes.append(store.compaction.compact(session, **OPTIONS, summarizer=slow))
        if len(outcomes) == 5:
            gate.set()

    threads = [threading.Thread(target=one_turn) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(outcome.why for outcome in outcomes) == ["due"] + 5 * ["running"]
    assert {outcome.state for outcome in outcomes} == {"compacted", "not_compacted"}
    assert len(asked) == 1 and len(store.compaction.generations(session)) == 1


def test_identical_output_again_and_again_is_kept_only_while_it_frees(store: Store) -> None:
    session = talk(store, 9)
    states = []
    for number in range(12):
        states.append(store.compaction.compact(session, **OPTIONS, summarizer=good).state)
        turn(store, session, 50 + number)
    made = [one for one in store.compaction.generations(session) if one.state == "done"]
    assert states[0] == "compacted" and len(made) < 6
    assert all(one.tokens_after is not None and one.tokens_after <= one.tokens_before - 330 for one in made)


def test_a_summariser_with_a_small_window_is_asked_in_parts(store: Store) -> None:
    session, asked = talk(store, 9), []

    def small(request: SummaryRequest) -> str:
        asked.append((request.kind, request.part, request.parts))
        return f"Until part {request.part}: part 2 listens on port 4002, and part 5 listens on port 4005 as well."

    outcome = store.compaction.compact(session, **OPTIONS, summarizer=small, summarizer_window=2_000)
    assert outcome.form == "model" and len(asked) > 1
    assert asked == [("chunk", part, len(asked)) for part in range(1, len(asked) + 1)]
    assert f"Until part {len(asked)}" in store.messages.context(session)[0]["content"]
