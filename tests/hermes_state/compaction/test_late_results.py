"""A result that comes after a pass reaches the model, with its call or as a text."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes_state import open_store
from hermes_state.compaction.late import as_result, as_sent, as_text, is_late, with_late_results
from hermes_state.compaction.render import Live, render
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


def uses(call_id: str) -> list[dict[str, Any]]:
    """A call in Anthropic's shape."""
    return [{"type": "tool_use", "id": call_id, "name": "deploy", "input": {}}]


def gives(call_id: str, content: Any) -> dict[str, Any]:
    """Its result, a block."""
    return {"type": "tool_result", "tool_use_id": call_id, "content": content}


def blocks(message: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    content = message["content"]
    return [one for one in content if one.get("type") == kind] if isinstance(content, list) else []


def spoken(message: dict[str, Any]) -> list[str]:
    content = message["content"]
    parts = content if isinstance(content, list) else [{"text": content or ""}]
    return "\n\n".join(one.get("text", "") for one in parts).split("\n\n")


def structure(context: list[dict[str, Any]]) -> list[str]:
    """What a provider refuses: a result that does not follow its call, a call without a result before what follows, a
    late result that makes two user messages in a row.
    """
    wrong, waiting, used = [], set[str](), set[str]()
    for before, message in pairwise(context):
        # The last but one of what stands before is the label of a late result that nothing was said after.
        late = [spoken(message)[0], *spoken(before)[-2:-1]]
        if before["role"] == message["role"] == "user" and any(text.startswith("[Late result") for text in late):
            wrong.append("two of a user")
    for message in context:
        used |= {one["id"] for one in blocks(message, "tool_use")}
        found = blocks(message, "tool_result")
        wrong += [f"result {one['tool_use_id']}" for one in found if one["tool_use_id"] not in used]
        if found and message["content"][: len(found)] != found:
            wrong.append("a text before a result")
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
    shown = [one["content"] for one in store.compaction.view("a").messages if is_late(one)]
    label = "[Late result of a tool call that is in the summary, id GONE:]"
    assert shown == [f"{label}\n\nlate", [{"type": "text", "text": label}, {"type": "text", "text": "later"}]]
    # Both are user messages, which strict templates take one of.
    assert store.messages.context("a")[-1] == {"role": "user", "content": [
        {"type": "text", "text": one} for one in (f"{label}\n\nlate", label, "later")
    ]}


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


@pytest.mark.parametrize("content", ["DEPLOYED-42", [{"type": "text", "text": "DEPLOYED-42"}]])
def test_a_late_result_that_is_a_block_is_shown_as_a_text(store: Store, content: Any) -> None:
    store.sessions.create(source="cli", id="a")
    talk(store, "a", 25)
    store.messages.append("a", role="assistant", content=uses("DEPLOY"))
    talk(store, "a", 9)
    store.compaction.compact("a", window=4096)
    before = store.messages.context("a")
    store.messages.append("a", role="user", content=[gives("DEPLOY", content)])
    label = "[Late result of a tool call that is in the summary, id DEPLOY:]"
    texts = [f"{label}\n\nDEPLOYED-42"] if isinstance(content, str) else [label, "DEPLOYED-42"]
    late = {"role": "user", "content": [{"type": "text", "text": text} for text in texts]}
    assert store.messages.context("a") == [*before, late]
    # As any other, it is no word of the user, and a result in the summary of the next pass.
    talk(store, "a", 10)
    store.compaction.compact("a", window=4096)
    assert "DEPLOYED-42" in str(store.messages.context("a")[0]["content"])
    assert "Late result" not in str(store.messages.context("a"))


def test_a_block_that_came_late_stands_after_results_with_a_call_and_after_what_was_said_with_it(store: Store) -> None:
    begin(store, "a")
    talk(store, "a", 9)
    store.compaction.compact("a", window=4096)
    store.messages.append("a", role="assistant", content=uses("NEW"))
    said = {"type": "text", "text": "Both came."}
    store.messages.append("a", role="user", content=[gives("GONE", "late"), gives("NEW", "new"), said])
    label = "[Late result of a tool call that is in the summary, id GONE:]"
    told = {"type": "text", "text": f"{label}\n\nlate"}
    last = store.messages.context("a")[-1]
    assert last == {"role": "user", "content": [gives("NEW", "new"), said, told]} and not is_late(last)
    assert is_late({"role": "user", "content": [gives("NEW", "new"), told]})
    assert as_result({"role": "user", "content": [gives("NEW", "new"), told]}) == {
        "role": "tool", "content": [gives("NEW", "new"), {"type": "text", "text": "late"}],
    }


def test_late_results_are_one_message_with_the_user_messages_around_them(store: Store) -> None:
    begin(store, "a")
    talk(store, "a", 9)
    store.compaction.compact("a", window=4096)
    before = store.messages.context("a")
    store.messages.append("a", role="user", content="one", extra={"api_content": "ONE"})
    store.messages.append("a", role="tool", tool_call_id="DEPLOY", content="two")
    store.messages.append("a", role="user", content="three")
    label = "[Late result of a tool call that is in the summary, id DEPLOY:]"
    whole = {"role": "user", "content": f"one\n\n{label}\n\ntwo\n\nthree"}
    assert store.messages.context("a", extras=True) == [*before, whole]
    assert [one["content"] for one in store.compaction.view("a").messages[-3:]] == [
        "one", f"{label}\n\ntwo", "three",
    ]
    # What two people said is two messages, as it was.
    store.messages.append("a", role="assistant", content="four")
    for text in ("five", "six"):
        store.messages.append("a", role="user", content=text)
    assert [one["content"] for one in store.messages.context("a")[-2:]] == ["five", "six"]


def test_a_late_result_right_after_the_summary_is_one_message_with_it_and_with_what_is_said_next() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "tool", "tool_call_id": "1", "content": "done"}, {"role": "user", "content": [gives("2", "done")]},
        {"role": "user", "content": "Go on."}, {"role": "assistant", "content": "Yes."},
    ]
    rows = [Live(message=message, position=at) for at, message in enumerate(messages)]
    view = render(with_late_results(rows), summary="SUMMARY")
    label = "[Late result of a tool call that is in the summary, id"
    texts = [f"SUMMARY\n\n{label} 1:]\n\ndone", f"{label} 2:]\n\ndone", "Go on."]
    assert as_sent(view, "SUMMARY") == [
        {"role": "user", "content": [{"type": "text", "text": text} for text in texts]}, view[-1],
    ]


def test_a_text_of_a_result_is_that_result_once_more_for_a_summary() -> None:
    for content in ("done :] and more", [{"type": "text", "text": "done"}], ""):
        told = as_result(as_text({"role": "tool", "tool_call_id": "1", "name": "run", "content": content}))
        assert told == {"role": "tool", "content": content}
    said = {"role": "user", "content": "done"}
    assert as_result(said) is said


_STEPS = st.lists(
    st.sampled_from([
        "user", "assistant", "call", "call", "result", "result", "use", "block", "talk", "pass", "pass",
    ]),
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
        open_uses: list[str] = []
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
            elif step == "use":
                open_uses.append(f"id{number}")
                store.messages.append("a", role="assistant", content=[
                    {"type": "text", "text": mark}, *uses(f"id{number}"),
                ])
                since.append(mark)
            elif step == "block":
                if not open_uses:
                    continue
                call_id = open_uses.pop(chance.randrange(len(open_uses)))
                store.messages.append("a", role="user", content=[gives(call_id, mark)])
                since.append(mark)
            else:
                store.messages.append("a", role=step, content=mark)
                since.append(mark)
            context = store.messages.context("a")
            assert [one for one in since if one not in str(context)] == []
            assert not structure(context)
