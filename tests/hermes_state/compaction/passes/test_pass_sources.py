"""What a summary is made of, how it stands in the view, and what is recorded of the request for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_state import Store, open_store
from hermes_state.clock import FakeClock
from hermes_state.compaction.sources import LABEL
from hermes_state.compaction.summary import SummaryRequest
from hermes_state.errors import InvalidInput
from tests.hermes_state.compaction.passes.talks import call, talk, words

OPTIONS: dict[str, Any] = {"window": 4_000, "counter": words, "fixed_tokens": 200}
GOOD = "Parts 0 to 6 were looked at. Part 2 listens on port 4002, part 5 on port 4005."


@pytest.fixture
def store(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Store]:
    with open_store(path=tmp_path / "state.db") as opened:
        yield opened


def test_what_was_shown_shortened_is_summarised_whole_and_no_notice_of_ours_becomes_a_fact(store: Store) -> None:
    """The place of the fact is the middle of a result that one pass shows shortened and the next one summarises."""
    talk(store, 7)
    add = store.messages.append
    long = [f"row {number} was checked and nothing was to be seen in it today" for number in range(400)]
    long[200] = "row 200 says that the licence key of the billing service is KX-7714-QQ"
    add("one", role="user", content="Read the long file.")
    add("one", role="assistant", content=None, tool_calls=[call("long")])
    add("one", role="tool", tool_call_id="long", content="\n".join(long))
    first = store.compaction.compact("one", trigger="manual", **OPTIONS)
    assert first.state == "compacted"
    shown = [str(message["content"]) for message in store.messages.context("one") if message["role"] == "tool"]
    assert any("left out" in text and "KX-7714-QQ" not in text for text in shown)
    for number in range(9):
        add("one", role="assistant", content=f"Step {number} is done. " + f"word{number} " * 300)
        add("one", role="user", content=f"Go on with {number}.")
    second = store.compaction.compact("one", trigger="manual", **OPTIONS)
    assert second.state == "compacted"
    summary = str(store.messages.context("one")[0]["content"])
    assert "KX-7714-QQ" in summary
    assert "left out" not in summary and "recover(" not in summary


def test_a_summary_says_what_it_is_once_however_many_passes_there_were(store: Store) -> None:
    talk(store, 9)
    for number in range(3):
        assert store.compaction.compact("one", trigger="manual", **OPTIONS).state == "compacted", number
        talk(store, 9, session=f"other {number}")
        for at in range(12):
            store.messages.append("one", role="assistant", content=f"More {number} {at}. " + f"w{number}x{at} " * 200)
            store.messages.append("one", role="user", content=f"And {at}?")
    content = str(store.messages.context("one")[0]["content"])
    assert content.startswith(LABEL)
    assert content.count(LABEL.strip()) == 1


def test_the_row_of_a_pass_has_the_digest_of_the_request_that_was_put_to_the_summariser(store: Store) -> None:
    asked: list[SummaryRequest] = []

    def summarizer(request: SummaryRequest) -> str:
        asked.append(request)
        return GOOD

    talk(store, 9)
    assert store.compaction.compact("one", summarizer=summarizer, **OPTIONS).state == "compacted"
    (generation,) = store.compaction.generations("one")
    assert generation.prompt_digest == asked[-1].prompt_digest()


@pytest.mark.parametrize(("options", "says"), [
    ({"window": "8192"}, "window is a whole number of tokens or a Window, not '8192'."),
    ({"window": float("nan")}, "window is a whole number of tokens or a Window, not nan."),
    ({"window": True}, "window is a whole number of tokens or a Window, not True."),
    ({"window": 8192, "limits": 3}, "limits is a Limits, not 3."),
])
def test_options_of_no_meaning_are_refused_by_name(store: Store, options: dict[str, Any], says: str) -> None:
    talk(store, 1)
    with pytest.raises(InvalidInput) as refused:
        store.compaction.compact("one", **options)
    assert str(refused.value) == says
