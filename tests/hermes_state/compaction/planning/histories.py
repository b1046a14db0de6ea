"""Random conversations for the planner, and the checks that every plan has to pass."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from hermes_state.compaction import Plan
from hermes_state.compaction.clips import Clip, clipped
from hermes_state.compaction.tokens import as_counter, request_tokens

Message = dict[str, Any]
ENCODED = base64.b64encode(random.Random(7).randbytes(4800)).decode()


def quarter(text: str) -> int:
    """Characters / 4."""
    return len(text) // 4


def fickle(text: str) -> int:
    """A counter that is not monotone in the length of a text, as tokenizers and classes of content are not."""
    return len(text) // 4 + (len(text) * 7919 + text.count("e")) % 9 + (len(text) if text[:1] in "{[" else 0)


def call(call_id: str, arguments: Any = "{}", name: str = "run") -> Message:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def asks(*ids: str, text: str = "", arguments: Any = "{}") -> Message:
    return {"role": "assistant", "content": text, "tool_calls": [call(each, arguments) for each in ids]}


def gives(call_id: str, content: Any = "done") -> Message:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def says(text: Any) -> Message:
    return {"role": "user", "content": text}


def replies(text: str) -> Message:
    return {"role": "assistant", "content": text}


def one_task(groups: int, body: str = "a line of the log\n" * 250) -> list[Message]:
    """One user row and `groups` tool groups: P7 of the facts."""
    rows = [{"role": "system", "content": "You are an agent."}, says("Find the fault in the build.")]
    for number in range(groups):
        rows += [asks(f"call_{number}"), gives(f"call_{number}", body)]
    return rows


def seed_probe(
    *,
    asked: str = "task {}",
    done: str = "ready",
    name: str = "terminal",
    arguments: str = "{{}}",
    call_id: str = "c{}",
) -> list[Message]:
    """S1: a system row and 12 times user, call, result of 4,000 "x", answer; 12,766 tokens in hermes-agent's unit."""
    rows: list[Message] = [{"role": "system", "content": "You"}]
    for turn in range(12):
        key = call_id.format(turn)
        rows += [
            says(asked.format(turn)),
            {"role": "assistant", "content": "", "tool_calls": [call(key, arguments.format(turn), name)]},
            gives(key, "x" * 4000),
            replies(done.format(turn)),
        ]
    return rows


_WORDS = st.sampled_from(["ok", "read the file", "error: exit 1 in /srv/app.py\n" * 8, "é漢字" * 40, ""])
_LONG = st.builds(
    lambda unit, times: unit * times,
    st.sampled_from(["log line 17\n", "x", "漢", '{"a": 1}, ', "word and word "]),
    st.integers(0, 3000),
)
_JSON = st.builds(lambda n: json.dumps([{"id": k, "name": f"row {k}"} for k in range(n)]), st.integers(0, 400))
_BLOB = st.just("data:image/png;base64," + ENCODED)
_BODY: st.SearchStrategy[str] = st.one_of(_WORDS, _WORDS, _LONG, _JSON, _BLOB)
_PARTS = st.lists(
    st.one_of(
        st.builds(lambda text: {"type": "text", "text": text}, _BODY),
        st.just({"type": "image_url", "image_url": {"url": "data:image/png;base64," + ENCODED}}),
    ),
    min_size=1,
    max_size=3,
)


@st.composite
def histories(draw: st.DrawFn, turns: int = 8) -> list[Message]:
    """Conversations with giants, parallel calls, pictures, missing, late and lone results, in both shapes."""
    rows: list[Message] = [{"role": "system", "content": "Be brief."}] if draw(st.booleans()) else []
    number = 0
    for _ in range(draw(st.integers(1, turns))):
        rows.append(says(draw(st.one_of(_BODY, _BODY, _PARTS))))
        for _ in range(draw(st.integers(0, 4))):
            ids = [f"call_{number + k}" for k in range(draw(st.integers(1, 3)))]
            number += len(ids) if draw(st.booleans()) else 0
            if draw(st.integers(0, 4)) == 0:
                rows.append({"role": "assistant", "content": [
                    {"type": "tool_use", "id": each, "name": "run", "input": {"text": draw(_BODY)}} for each in ids
                ]})
                rows.append(says([
                    {"type": "tool_result", "tool_use_id": each, "content": draw(_BODY)} for each in ids
                ]))
                continue
            rows.append(asks(*ids, text=draw(_WORDS), arguments=json.dumps({"text": draw(_BODY)})))
            answered = [f"{each}|fc_1" for each in draw(st.permutations(ids)) if draw(st.integers(0, 9))]
            rows += [gives(each, draw(_BODY)) for each in answered]
        if draw(st.integers(0, 9)) == 0:
            rows.append(gives("nobody", draw(_BODY)))
        if draw(st.booleans()):
            rows.append(replies(draw(_BODY)))
    return rows


def shown(messages: Sequence[Message], plan: Plan) -> list[Message]:
    """The rows that a plan keeps, as it shows them, without a summary."""
    kept = [*range(plan.start), *plan.anchors, *range(plan.end, len(messages))]
    return [clipped(messages[row], plan.clips.get(row, Clip(bodies=())), seq=row) for row in kept]


def orphans(messages: Sequence[Message]) -> list[str]:
    """Ids of results whose call is not among the rows."""
    calls: set[str] = set()
    missing = []
    for message in messages:
        for each in message.get("tool_calls") or ():
            calls.add(each["id"].partition("|")[0])
        parts = message["content"] if isinstance(message["content"], list) else []
        for part in parts:
            if part.get("type") == "tool_use":
                calls.add(part["id"])
            if part.get("type") == "tool_result" and part["tool_use_id"] not in calls:
                missing.append(part["tool_use_id"])
        if message["role"] == "tool" and message["tool_call_id"].partition("|")[0] not in calls:
            missing.append(message["tool_call_id"])
    return missing


WHOLE = 1 << 60


def kept_size(plan: Plan, row: int) -> dict[tuple[str | int, ...], int]:
    """Characters that a plan keeps of each body of a row that it clips; of any other `WHOLE`, or -1 if the row goes."""
    if plan.start <= row < plan.end and row not in plan.anchors:
        return {(): -1}
    clip = plan.clips.get(row, Clip(bodies=()))
    return {body.path: WHOLE - 1 if body.kind == "blobs" else body.head + body.tail for body in clip.bodies}


def never_less(small: Plan, large: Plan, row: int) -> bool:
    """True when no body of a row is shorter by `large` than by `small`."""
    before, now = kept_size(small, row), kept_size(large, row)
    if () in before:
        return True
    return () not in now and all(now[path] >= before.get(path, WHOLE) for path in now)


def after(messages: Sequence[Message], plan: Plan, count: Any, fixed: int) -> int:
    """Tokens of the next request, counted anew, with a summary of the whole budget."""
    return fixed + request_tokens(shown(messages, plan), as_counter(count)) + plan.summary_budget


def limits(plan: Plan) -> Mapping[str, bool]:
    """The promised limits, by name; each has to hold unless an anchor reason is recorded."""
    usable = plan.budget.usable
    return {
        "tail": 100 * plan.tail_tokens <= 25 * usable,
        "summary": 100 * plan.summary_budget <= 15 * usable,
        "after": 100 * (plan.tokens_after_at_most - plan.budget.fixed) <= 70 * usable,
    }
