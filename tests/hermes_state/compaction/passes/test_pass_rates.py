"""How often passes are made, over real stores: the guards read rows, so restarts and other processes agree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from hermes_state import Store, open_store
from hermes_state.clock import FakeClock
from hermes_state.compaction import passes
from hermes_state.compaction.guards import Limits
from tests.hermes_state.compaction.passes.talks import lines, rows, talk, turn, words

OPTIONS: dict[str, Any] = {"window": 4_000, "counter": words, "fixed_tokens": 200}


@pytest.fixture
def store(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Store]:
    with open_store(path=tmp_path / "state.db") as opened:
        yield opened


SMALL: dict[str, Any] = {"window": 1_500, "counter": words}


def refill(store: Store, number: int) -> None:
    """As much as the small window takes, in one turn that goes on."""
    for part in range(4):
        call_id = f"refill{number}-{part}"
        store.messages.append("one", role="assistant", content=None, tool_calls=[
            {"id": call_id, "type": "function", "function": {"name": "read", "arguments": "{}"}}
        ])
        store.messages.append("one", role="tool", tool_call_id=call_id, content=lines(f"f{number}p{part}", 35))


@pytest.mark.slow
def test_108_refills_of_one_turn_make_few_passes_and_every_other_call_reports(
    store: Store, fake_clock: FakeClock
) -> None:
    session = talk(store, 2)
    made, reported = 0, []
    for number in range(108):
        refill(store, number)
        outcome = store.compaction.compact(session, **SMALL)
        if outcome.changed:
            made += 1
        else:
            reported.append(outcome)
        fake_clock.advance(367.0)  # 108 in eleven hours
    limits = Limits()
    assert made <= limits.burst + len(limits.ladder)
    assert {one.why for one in reported} == {"refilled"} and made + len(reported) == 108
    last = reported[-1]
    assert (last.state, last.next, last.fits) == ("given_up", "await_user", False)
    # Everything that is in the window is in the report.
    assert sum(one.tokens for one in last.fills) == last.tokens_before + last.tokens_reserved
    assert last.retry_turn is not None and "Serve the model with a larger window" in last.advice[-1]
    assert len(rows(store)) == 8 + 108 * 8


@pytest.mark.slow
def test_eight_turns_later_a_pass_is_made_again(store: Store) -> None:
    session = talk(store, 2)
    outcome = None
    for number in range(20):
        refill(store, number)
        outcome = store.compaction.compact(session, **SMALL)
    assert outcome is not None and outcome.why == "refilled" and outcome.retry_after_seconds is not None
    for number in range(8):
        turn(store, session, 100 + number, tool_words=100)
    assert store.compaction.compact(session, **SMALL).changed


@pytest.mark.slow
def test_while_the_view_fits_passes_are_eight_turns_apart(store: Store) -> None:
    session = talk(store, 0)
    turns_of_passes = []
    for number in range(60):
        turn(store, session, number, tool_words=250)
        outcome = store.compaction.compact(session, **OPTIONS)
        assert outcome.fits, number
        if outcome.changed:
            turns_of_passes.append(number)
    gaps = [later - earlier for earlier, later in pairwise(turns_of_passes)]
    assert len(turns_of_passes) >= 4 and min(gaps) >= 8


@pytest.mark.slow
def test_another_process_and_a_restart_see_the_same_verdict(store: Store, child, tmp_path: Path) -> None:
    session = talk(store, 2)
    outcome = None
    for number in range(20):
        refill(store, number)
        outcome = store.compaction.compact(session, **SMALL)
    assert outcome is not None and outcome.state == "given_up"
    said = child(
        f"""
        from hermes_state import open_store
        from tests.hermes_state.compaction.passes.talks import words
        with open_store(path={str(tmp_path / 'state.db')!r}) as store:
            outcome = store.compaction.compact("one", window=1_500, counter=words)
            print(outcome.state, outcome.why, outcome.retry_after_seconds, outcome.generation)
        """
    ).finish()
    assert said.split() == [
        outcome.state, outcome.why, str(outcome.retry_after_seconds), str(outcome.generation),
    ]


def test_a_failed_pass_is_not_made_again_at_once_on_resume(store: Store, tmp_path: Path, fake_clock: FakeClock) -> None:
    """A pass that broke waits its step of the ladder, also when the session is opened again."""
    session = talk(store, 9)

    def stopped(*_arguments: object, **_options: object) -> str:
        raise ValueError("broken")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passes, "extractive", stopped)
        with pytest.raises(ValueError, match="broken"):
            store.compaction.compact(session, **OPTIONS)
    before = store.messages.context(session)
    with open_store(path=tmp_path / "state.db") as again:
        outcome = again.compaction.compact(session, **OPTIONS)
        assert (outcome.state, outcome.why, outcome.retry_after_seconds) == ("given_up", "cooldown", 60.0)
        assert again.messages.context(session) == before
        fake_clock.advance(60.0)
        assert again.compaction.compact(session, **OPTIONS).changed


def test_limits_are_the_callers(store: Store) -> None:
    session = talk(store, 9)
    assert store.compaction.compact(session, **OPTIONS).changed
    for number in range(9, 15):
        turn(store, session, number, tool_words=330)
    assert store.compaction.compact(session, **OPTIONS).why == "too_soon"
    limits = replace(Limits(), turns_between=4)
    assert store.compaction.compact(session, **OPTIONS, limits=limits).changed


@pytest.mark.slow
def test_fifty_passes_leave_every_message_once(store: Store) -> None:
    session = talk(store, 2)
    for number in range(50):
        turn(store, session, number)
        for part in range(4):
            store.messages.append(session, role="user", content=lines(f"note{number}p{part}", 30))
        store.compaction.compact(session, **OPTIONS, trigger="manual")
    made = [one for one in store.compaction.generations(session) if one.state == "done"]
    assert len(made) == 50
    assert len(rows(store)) == 8 + 50 * 8
    assert len(store.search("note17p2")) == 1
    assert store.compaction.verify(session, 50).ok
