"""Reports 195, 196, 198, 200, 201, 202, 233, and what was reproduced of passes: bounded, told, and nothing lost.

The numbers of reproductions are those of the facts about compaction.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_state import Store, open_store
from hermes_state.clock import FakeClock
from hermes_state.compaction.summary import SummaryRequest
from tests.hermes_state.compaction.passes.talks import lines, rows, talk, turn, words

OPTIONS: dict[str, Any] = {"window": 4_000, "counter": words, "fixed_tokens": 200}
GOOD = "Parts 0 to 6 were looked at. Part 2 listens on port 4002, part 5 on port 4005."


@pytest.fixture
def store(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Store]:
    with open_store(path=tmp_path / "state.db") as opened:
        yield opened


# --- 195: what is in force is what is printed ----------------------------------------------------------------------


@pytest.mark.parametrize("window", [4_096, 8_192, 16_384, 131_072])
def test_the_trigger_that_is_told_is_the_one_that_acts(store: Store, window: int) -> None:
    session = talk(store, 1)
    settings = store.compaction.preview(session, window=window, counter=words).settings
    assert settings is not None and settings.trigger < settings.usable < window
    used = sum(words(content) + 4 for _role, content in rows(store))
    # Up to the trigger nothing is due, and beyond it a pass is.
    store.messages.append(session, role="assistant", content="word " * (settings.trigger - used - 100))
    assert store.compaction.preview(session, window=window, counter=words).why == "room"
    store.messages.append(session, role="user", content="word " * 250)
    assert store.compaction.preview(session, window=window, counter=words).settings == settings
    assert store.compaction.preview(session, window=window, counter=words).why != "room"


# --- 196, repros 5 and 8: a pass that frees half a percent, again and again ----------------------------------------


def test_a_pass_that_would_free_next_to_nothing_is_not_made_and_says_what_fills_the_window(store: Store) -> None:
    session = store.sessions.create(id="one", source="cli").id
    for number in range(6):
        store.messages.append(session, role="user", content=lines(f"n{number}", 5))
    outcome = store.compaction.compact(session, window=4_000, counter=words, trigger="overflow")
    assert (outcome.state, outcome.why, outcome.generation) == ("given_up", "not_worth_it", None)
    assert outcome.fills and outcome.advice
    assert store.compaction.generations(session) == ()


def test_before_and_after_stand_on_one_basis_so_that_nothing_saved_is_never_progress(store: Store) -> None:
    """The fixed prefix is in neither: 96 % "saved" of a pass that saved nothing came from its being in one of them."""
    session = talk(store, 9)
    small = store.compaction.preview(session, window=4_000, counter=words, fixed_tokens=0)
    large = store.compaction.preview(session, window=6_000, counter=words, fixed_tokens=2_000)
    assert small.tokens_before == large.tokens_before
    done = store.compaction.compact(session, window=6_000, counter=words, fixed_tokens=2_000)
    assert done.tokens_after is not None and done.tokens_before - done.tokens_after >= 325
    again = store.compaction.compact(session, window=6_000, counter=words, fixed_tokens=2_000, trigger="manual")
    assert (again.changed, again.tokens_before) == (False, done.tokens_after)


# --- 198, repro 11: a window that is full again after every pass ---------------------------------------------------


@pytest.mark.slow
def test_a_window_that_refills_with_every_message_is_compacted_a_bounded_number_of_times(
    store: Store, fake_clock: FakeClock
) -> None:
    session, made, told = talk(store, 1), 0, 0
    for number in range(40):
        turn(store, session, number, tool_words=300)
        for part in range(4):
            store.messages.append(session, role="assistant", content=lines(f"a{number}p{part}", 30))
        outcome = store.compaction.compact(session, window=1_500, counter=words)
        made, told = made + outcome.changed, told + (outcome.why == "refilled" and bool(outcome.fills))
        fake_clock.advance(30.0)
    # Four in eight messages, and one for each step of the ladder.
    assert made + told == 40 and told and made <= 40 // 8 * 7


# --- 200, 201, repro 33: a summariser that never returns -----------------------------------------------------------


def test_a_summariser_that_never_returns_costs_its_deadline_few_times_and_the_verdict_stays(
    store: Store, fake_clock: FakeClock, tmp_path: Path
) -> None:
    session, gate, asked = talk(store, 9), threading.Event(), []

    def never(request: SummaryRequest) -> str:
        asked.append(fake_clock.now())
        fake_clock.advance(601.0)
        gate.wait(60)
        return GOOD

    for number in range(8):
        with open_store(path=tmp_path / "state.db") as process:
            outcome = process.compaction.compact(session, **OPTIONS, summarizer=never, deadline=600.0)
            assert outcome.changed and outcome.fits
            for more in range(9):
                turn(process, session, 100 * number + more)
    gate.set()
    assert len(asked) <= 4


@pytest.mark.slow
def test_a_pass_that_takes_eleven_minutes_keeps_its_lease_and_its_status_is_seen_from_elsewhere(
    store: Store, fake_clock: FakeClock, tmp_path: Path
) -> None:
    session, seen = talk(store, 9), []

    def slow(request: SummaryRequest) -> str:
        with open_store(path=tmp_path / "state.db", read_only=True) as elsewhere:
            for minute in range(17):
                fake_clock.advance(40.0)
                while True:
                    status = elsewhere.compaction.status(session)
                    assert status.running is not None
                    if status.running.renewals > minute:
                        break
                seen.append(status.running.renewals)
        return GOOD

    outcome = store.compaction.compact(session, **OPTIONS, summarizer=slow, deadline=900.0)
    assert (outcome.state, outcome.form) == ("compacted", "model")
    assert seen == list(range(1, 18))
    newest = store.compaction.status(session).newest
    assert newest is not None and newest.state == "done"


# --- 202, repro 25: a summary that fails -----------------------------------------------------------------------------


def test_when_the_summary_fails_no_message_is_dropped_for_a_marker(store: Store) -> None:
    session = talk(store, 9)
    said = rows(store)

    def fails(request: SummaryRequest) -> str:
        raise ConnectionError("401 unauthorised")

    outcome = store.compaction.compact(session, **OPTIONS, summarizer=fails)
    assert rows(store) == said and outcome.form == "extractive"
    summary = store.compaction.view(session).summary or ""
    assert sum(f"{4000 + number}" in summary for number in range(7)) >= 3
    assert outcome.warnings[0] == "summarizer_failed: ConnectionError: 401 unauthorised"


# --- 233, repro 26: a failed pass and a new start ------------------------------------------------------------------


def test_a_summary_that_was_aborted_does_not_run_again_when_the_session_is_opened_again(
    store: Store, tmp_path: Path
) -> None:
    import _thread

    session, gate, asked = talk(store, 9), threading.Event(), []

    def aborted(request: SummaryRequest) -> str:
        asked.append(request)
        _thread.interrupt_main()
        gate.wait(60)
        return GOOD

    with pytest.raises(KeyboardInterrupt):
        store.compaction.compact(session, **OPTIONS, summarizer=aborted)
    gate.set()
    for _start in range(3):
        with open_store(path=tmp_path / "state.db") as process:
            status = process.compaction.status(session)
            assert status.running is None and status.newest is not None and status.newest.error is not None
            assert (status.newest.state, status.newest.error["code"]) == ("failed", "cancelled")
            assert (len(asked), len(process.compaction.generations(session))) == (1, 1)
    # Only who asks for a pass gets one, and an abort is no failure that it would have to wait for.
    outcome = store.compaction.compact(session, **OPTIONS, summarizer=lambda _request: GOOD)
    assert (outcome.changed, len(asked)) == (True, 1)


# --- repro 10: what is archived is not counted again ---------------------------------------------------------------


def test_what_lies_behind_the_cut_does_not_make_a_pass_due(store: Store) -> None:
    session = talk(store, 40)
    assert store.compaction.compact(session, **OPTIONS).changed
    outcome = store.compaction.compact(session, **OPTIONS)
    assert (outcome.why, outcome.tokens_before) == ("room", store.compaction.generations(session)[0].tokens_after)


# --- repro 20: looked at between the calls of one turn -------------------------------------------------------------


def test_a_turn_of_many_calls_is_compacted_on_its_way(store: Store) -> None:
    session = store.sessions.create(id="one", source="cli").id
    store.messages.append(session, role="user", content="Port the service.")
    largest = 0
    for number in range(16):
        store.messages.append(session, role="assistant", content=None, tool_calls=[
            {"id": f"c{number}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        ])
        store.messages.append(session, role="tool", tool_call_id=f"c{number}", content=lines(f"r{number}", 40))
        outcome = store.compaction.compact(session, **OPTIONS)
        assert outcome.fits and outcome.next == "resend"
        largest = max(largest, outcome.tokens_after or outcome.tokens_before)
    assert largest <= 3_300


# --- repro 35: what to do after a pass -----------------------------------------------------------------------------


def test_a_pass_in_the_middle_of_a_turn_says_that_the_turn_goes_on(store: Store) -> None:
    session = talk(store, 9)
    store.messages.append(session, role="user", content="And the next one?")
    outcome = store.compaction.compact(session, **OPTIONS, trigger="manual")
    assert (outcome.state, outcome.next) == ("compacted", "resend")
