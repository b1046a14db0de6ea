"""What happens to a session while a pass is made: counted anew, named, and with the next thing to do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_state import Store, open_store
from hermes_state.clock import FakeClock
from hermes_state.compaction.guards import Limits
from hermes_state.compaction.summary import SummaryRequest
from hermes_state.compaction.tokens import as_counter, request_tokens
from tests.hermes_state.compaction.passes.talks import lines, talk, turn, words
from tests.support.children import Children

OPTIONS: dict[str, Any] = {"window": 4_000, "counter": words, "fixed_tokens": 200}
GOOD = "Parts 0 to 6 were looked at. Part 2 listens on port 4002, part 5 on port 4005."


@pytest.fixture
def store(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Store]:
    with open_store(path=tmp_path / "state.db") as opened:
        talk(opened, 9)
        yield opened


def counted(store: Store) -> int:
    return request_tokens(store.messages.context("one"), as_counter(words))


def test_what_came_while_the_summariser_worked_is_counted_in_the_outcome(store: Store) -> None:
    def slow(request: SummaryRequest) -> str:
        for number in range(9, 18):
            turn(store, "one", number)
        store.messages.append("one", role="user", content="And now?")
        return GOOD

    outcome = store.compaction.compact("one", **OPTIONS, summarizer=slow)
    real = counted(store)
    assert (outcome.state, outcome.why, outcome.fits, outcome.tokens_after) == (
        "compacted", "still_too_large", False, real,
    )
    made = store.compaction.generations("one")[-1]
    assert made.tokens_after is not None and made.tokens_after < real
    assert outcome.detail == (
        f"{outcome.tokens_before} tokens became {made.tokens_after}, and messages of {real - made.tokens_after} tokens"
        f" came meanwhile: {real} of 3300 do not fit yet. Compact once more."
    )
    assert outcome.next == "resend"
    again = store.compaction.compact("one", **OPTIONS)
    assert (again.state, again.fits, again.tokens_after) == ("compacted", True, counted(store))


def test_what_came_meanwhile_and_fits_is_counted_too(store: Store) -> None:
    def slow(request: SummaryRequest) -> str:
        turn(store, "one", 9)
        return GOOD

    outcome = store.compaction.compact("one", **OPTIONS, summarizer=slow)
    assert (outcome.why, outcome.fits, outcome.tokens_after) == ("due", True, counted(store))


@pytest.mark.slow
def test_what_another_process_said_meanwhile_is_counted_too(store: Store, child: Children) -> None:
    maker = child(f"""
        import gates
        from hermes_state import open_store
        from tests.hermes_state.compaction.passes.talks import words
        def summarizer(request):
            gates.reach("asked")
            gates.wait("go")
            return {GOOD!r}
        with open_store(path={str(store.path)!r}) as store:
            outcome = store.compaction.compact("one", window=4_000, counter=words, fixed_tokens=200,
                summarizer=summarizer)
            print(outcome.state, outcome.why, outcome.fits, outcome.tokens_after)
    """)
    maker.wait_for("asked")
    for number in range(9, 18):
        turn(store, "one", number)
    maker.release("go")
    assert maker.finish().split() == ["compacted", "still_too_large", "False", str(counted(store))]


def test_still_too_large_says_so_and_what_fills_the_window_when_no_further_pass_would_help(store: Store) -> None:
    def slow(request: SummaryRequest) -> str:
        for number in range(12):
            store.messages.append("one", role="assistant", content=lines(f"more{number}", 40))
        return GOOD

    once = Limits(burst=1, ladder=())
    outcome = store.compaction.compact("one", **OPTIONS, summarizer=slow, limits=once)
    again = store.compaction.preview("one", **OPTIONS, limits=once)
    assert (outcome.state, outcome.why, outcome.fits) == ("compacted", "still_too_large", False)
    assert (again.state, again.why) == ("given_up", "refilled")
    assert outcome.detail.endswith(f"do not fit yet. No further pass helps: {again.detail}")
    assert outcome.fills == again.fills and outcome.advice == again.advice


def test_a_pass_that_was_overtaken_says_whether_the_view_fits_now(store: Store) -> None:
    asked = [message for message in store.messages.history("one", limit=100).messages if message.role == "user"]

    def overtaken(request: SummaryRequest) -> str:
        store.messages.rewind("one", asked[3].id)
        return GOOD

    outcome = store.compaction.compact("one", **OPTIONS, summarizer=overtaken)
    assert (outcome.state, outcome.why, outcome.fits) == ("superseded", "view_edited", True)


def test_a_message_that_is_deleted_during_a_pass_is_the_reason_by_its_word(store: Store) -> None:
    first = store.messages.history("one", limit=100).messages[0].id

    def slow(request: SummaryRequest) -> str:
        store.messages.delete("one", [first], actor="test", reason="a secret")
        return GOOD

    outcome = store.compaction.compact("one", **OPTIONS, summarizer=slow)
    assert (outcome.state, outcome.why) == ("superseded", "message_deleted")
    assert store.compaction.compact("one", **OPTIONS).changed


def test_a_pass_that_a_rotation_overtook_names_the_session_that_goes_on(store: Store) -> None:
    def slow(request: SummaryRequest) -> str:
        store.compaction.rotate("one", "two")
        return GOOD

    outcome = store.compaction.compact("one", **OPTIONS, summarizer=slow)
    assert (outcome.state, outcome.why) == ("superseded", "session_replaced")
    assert list(outcome.advice) == ["Use session 'two'."]
    later = store.compaction.compact("one", **OPTIONS)
    assert (later.state, later.why, list(later.advice)) == ("superseded", "session_replaced", ["Use session 'two'."])
