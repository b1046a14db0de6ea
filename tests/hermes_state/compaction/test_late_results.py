"""A result that comes after a pass reaches the model, with its call or as a text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes_state import open_store
from hermes_state.compaction.late import as_result, as_text, is_late
from hermes_state.store import Store

FILLER = "The port of the relay is 9000 and it was in the file. "


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(path=tmp_path / "home" / "state.db") as opened:
        yield opened


def call(call_id: str, name: str = "deploy") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}}


def begin(store: Store, session: str, turns: int = 25) -> None:
    """Many turns, then a call whose result takes a while."""
    store.sessions.create(source="cli", id=session)
    talk(store, session, turns)
    store.messages.append(session, role="user", content="start the deployment")
    store.messages.append(session, role="assistant", content=None, tool_calls=[call("DEPLOY")])


def talk(store: Store, session: str, turns: int, times: int = 12) -> None:
    for number in range(turns):
        store.messages.append(session, role="user", content=f"And relay {number}? " + FILLER * times)
        store.messages.append(session, role="assistant", content=f"Relay {number}: " + FILLER * times)


def structure(context: list[dict[str, Any]]) -> list[str]:
    """What a provider refuses: a result that does not follow its call, a call without a result before what follows."""
    wrong, waiting = [], set[str]()
    for message in context:
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                wrong.append(f"result {message['tool_call_id']}")
            waiting.discard(message["tool_call_id"])
            continue
        wrong += [f"call {one}" for one in waiting]
        waiting = {one["id"] for one in message.get("tool_calls") or ()}
    return wrong


@pytest.mark.parametrize("between", [1, 3, 7])
def test_a_call_that_the_model_went_on_without_stays_until_its_result_comes(store: Store, between: int) -> None:
    begin(store, "a")
    talk(store, "a", between)
    assert store.compaction.compact("a", window=4096).state == "compacted"
    assert "DEPLOY" in str(store.messages.context("a")) and not structure(store.messages.context("a"))
    store.messages.append("a", role="tool", tool_call_id="DEPLOY", content="DEPLOYED-42")
    context = store.messages.context("a")
    assert [one["content"] for one in context if one["role"] == "tool"] == ["DEPLOYED-42"]
    assert not structure(context)


def test_a_result_of_a_call_that_was_given_up_is_shown_as_a_text(store: Store) -> None:
    begin(store, "a")
    talk(store, "a", 9)
    store.compaction.compact("a", window=4096)
    assert not any(one.get("tool_calls") for one in store.messages.context("a"))
    store.messages.append("a", role="tool", tool_call_id="DEPLOY", tool_name="deploy", content="DEPLOYED-42")
    *before, last = store.messages.context("a")
    assert last == {"role": "user", "content": (
        "[Late result of a tool call that is in the summary, deploy, id DEPLOY:]\n\nDEPLOYED-42"
    )}
    assert before == store.messages.context("a")[:-1] and not structure(before)
    assert store.compaction.status("a").messages == len(before) + 1
    # It is no word of the user: the next pass does not keep it for one, and has it in its summary as a result.
    talk(store, "a", 10)
    store.compaction.compact("a", window=4096)
    assert "DEPLOYED-42" in str(store.messages.context("a")[0]["content"])
    assert "Late result" not in str(store.messages.context("a"))


def test_a_second_result_that_says_the_same_is_left_out_and_another_is_shown(store: Store) -> None:
    begin(store, "a")
    store.messages.append("a", role="tool", tool_call_id="DEPLOY", content="done")
    store.messages.append("a", role="assistant", content="It is deployed.")
    talk(store, "a", 9)
    store.compaction.compact("a", window=4096)
    for content in ("late", "late", [{"type": "text", "text": "later"}]):
        store.messages.append("a", role="tool", tool_call_id="GONE", content=content)
    shown = [one["content"] for one in store.messages.context("a") if is_late(one)]
    label = "[Late result of a tool call that is in the summary, id GONE:]"
    assert shown == [f"{label}\n\nlate", [{"type": "text", "text": label}, {"type": "text", "text": "later"}]]


def test_a_late_result_that_is_large_is_shortened_and_the_view_fits(store: Store) -> None:
    begin(store, "a")
    talk(store, "a", 2, times=4)
    store.compaction.compact("a", window=4096)
    store.messages.append("a", role="tool", tool_call_id="DEPLOY", content="relay log 17\n" * 4000)
    for trigger in ("overflow", "manual"):
        outcome = store.compaction.compact("a", window=4096, trigger=trigger)
    assert outcome.fits and "relay log 17" in str(store.messages.context("a"))
    assert not structure(store.messages.context("a"))


def test_a_pass_over_a_result_that_came_late_takes_it_with_its_call_and_keeps_what_was_said_before_it(
    store: Store,
) -> None:
    begin(store, "a")
    talk(store, "a", 2)
    store.compaction.compact("a", window=4096)
    store.messages.append("a", role="user", content="KEEP-1 " + FILLER * 8)
    store.messages.append("a", role="tool", tool_call_id="DEPLOY", content="relay log 17\n" * 4000)
    store.messages.append("a", role="assistant", content="KEEP-2 " + FILLER * 30)
    outcome = store.compaction.compact("a", window=4096)
    assert (outcome.state, outcome.why, outcome.fits) == ("compacted", "due", True)
    context = store.messages.context("a")
    assert "KEEP-1" in str(context[1:]) and "KEEP-2" in str(context[1:]) and not structure(context)
    # Beside the call, above what was said before it came; so it is in the summary, and not shown once more.
    assert not any(one.get("tool_calls") or is_late(one) for one in context)
    assert store.compaction.verify("a", 2).ok


def test_a_text_of_a_result_is_that_result_once_more_for_a_summary() -> None:
    for content in ("done :] and more", [{"type": "text", "text": "done"}], ""):
        told = as_result(as_text({"role": "tool", "tool_call_id": "1", "name": "run", "content": content}))
        assert told == {"role": "tool", "content": content}
    said = {"role": "user", "content": "done"}
    assert as_result(said) is said


_STEPS = st.lists(
    st.sampled_from(["user", "assistant", "call", "call", "result", "result", "talk", "pass", "pass"]),
    min_size=5, max_size=30,
)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(_STEPS, st.randoms(use_true_random=False))
def test_no_message_that_is_appended_after_a_pass_is_missing_from_the_context(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], chance: Any
) -> None:
    with open_store(path=tmp_path_factory.mktemp("late") / "state.db") as store:
        store.sessions.create(source="cli", id="a")
        talk(store, "a", 12)
        open_calls: list[str] = []
        since: list[str] = []
        for number, step in enumerate(["call", "talk", *steps]):
            mark = f"MARK-{number}-END"
            if step == "pass":
                outcome = store.compaction.compact("a", window=4096, trigger="manual")
                if outcome.changed:
                    since = []
            elif step == "talk":
                talk(store, "a", chance.randint(1, 9), times=3)
            elif step == "call":
                open_calls.append(f"id{number}")
                store.messages.append("a", role="assistant", content=mark, tool_calls=[call(f"id{number}")])
                since.append(mark)
            elif step == "result":
                if not open_calls:
                    continue
                call_id = open_calls.pop(chance.randrange(len(open_calls)))
                store.messages.append("a", role="tool", tool_call_id=call_id, content=mark)
                since.append(mark)
            else:
                store.messages.append("a", role=step, content=mark)
                since.append(mark)
            context = store.messages.context("a")
            assert [one for one in since if one not in str(context)] == []
            assert not structure(context)
