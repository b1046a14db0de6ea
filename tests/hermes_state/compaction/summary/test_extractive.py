"""The summary that needs no model: what it keeps, that it is verbatim, and that it ends."""

# ruff: noqa: RUF001  (the punctuation of Chinese is meant)
from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_state.compaction.summary import extractive
from hermes_state.compaction.summary.chunks import flat
from hermes_state.compaction.summary.extractive.layout import HEADINGS, read
from hermes_state.compaction.summary.extractive.units import plain_turns
from tests.hermes_state.compaction.summary.sources import conversation, fourths, plain, spoken

_MARKS = st.sampled_from(" \n\r\t.:=,;/-_\"'\\{}[]()0123456789abc端口是。")
_TEXT = st.text(alphabet=st.one_of(st.characters(), _MARKS), max_size=300)
_MESSAGE = st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant", "tool"]), "content": _TEXT})


@pytest.mark.parametrize("seed", range(4))
def test_facts_of_eight_kinds_in_eight_forms_survive_among_log_lines(seed: int) -> None:
    messages, facts = conversation(seed)
    text = extractive(messages, budget=850, counter=fourths)
    assert fourths(text) <= 850
    assert sum(value in text for value, _line in facts) >= 0.85 * len(facts)


@pytest.mark.parametrize("seed", range(4))
def test_every_line_is_a_stretch_of_one_text_of_the_source(seed: int) -> None:
    messages, _facts = conversation(seed)
    source = spoken(messages)
    for _kind, line in read(extractive(messages, budget=600, counter=fourths)):
        assert line in source


@settings(max_examples=80, deadline=None)
@given(st.lists(_MESSAGE, max_size=6), st.integers(0, 120), st.integers(1, 5), st.one_of(st.none(), _TEXT))
def test_no_text_and_no_counter_gets_it_above_its_budget(
    messages: list[dict[str, str]], budget: int, size: int, previous: str | None
) -> None:
    def count(text: str) -> int:
        # A counter that is no sum of its parts, as byte-pair counters are not.
        return len(text) // size + text.count("\n") * 3 + len(text) % 7

    text = extractive(messages, budget=budget, counter=count, previous=previous)
    assert count(text) <= budget or text == ""
    assert text == extractive(messages, budget=budget, counter=count, previous=previous)
    source = spoken(messages).replace("\r", "\n") + "\n" + (previous or "")
    for _kind, line in read(text):
        assert line in HEADINGS.values() or " ".join(line.split()) in " ".join(source.split())


_VALUES = ["4471", "v1.2.3", "/srv/a/b.conf", "$1,234.56", "10.2.3.4:8080", "a1b2c3d4e5", "jo@example.org", "x=y:z"]


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.sampled_from(_VALUES), min_size=1, max_size=8),
    st.text(alphabet="abcdef ghij,.:;=()[]\"'", max_size=60), st.text(alphabet="abc de,.)]", max_size=60),
    st.integers(6, 90),
)
def test_no_line_begins_or_ends_within_a_value(values: list[str], before: str, after: str, budget: int) -> None:
    body = "\n".join(f"{before} relay {number} at {value} {after}" for number, value in enumerate(values))
    for _kind, line in read(extractive([{"role": "tool", "content": body}], budget=budget, counter=fourths)):
        whole = re.compile(r"(?<!\w)(?<!\w[.,:/@$=])" + re.escape(line) + r"(?!\w|[.,:/@=]\w)")
        assert whole.search(body), line


def test_what_the_user_asked_first_and_last_is_kept_in_the_users_words() -> None:
    messages, _facts = conversation(1)
    messages.append({"role": "user", "content": "Write the findings to report-7.md, please."})
    kept = read(extractive(messages, budget=700, counter=fourths))
    assert ("goal", "Find out why checkout is slow since the last deploy.") in kept
    assert ("asked", "Write the findings to report-7.md, please.") in kept


def test_conclusions_open_tasks_and_errors_have_shares_of_their_own() -> None:
    messages, _facts = conversation(2, facts=100)
    messages[7]["content"] = "The root cause is the connection pool: it holds 5 sockets."
    messages[11]["content"] = "Still to do: raise pool_size in checkout.toml."
    messages[14]["content"] += "\nTraceback: PoolTimeout after 30 s in acquire()"
    text = extractive(messages, budget=850, counter=fourths)
    assert {"goal", "concluded", "open", "error", "fact"} <= {kind for kind, _line in read(text)}
    assert "The root cause is the connection pool: it holds 5 sockets." in text
    assert "Still to do: raise pool_size in checkout.toml." in text
    assert "PoolTimeout after 30 s" in text


def test_values_of_a_json_body_are_kept_with_their_keys() -> None:
    rows = [{"id": number, "state": "ok"} for number in range(200)]
    body = json.dumps({"rows": rows, "primary_port": 45193, "leader": "node-k"})
    messages = [{"role": "user", "content": "Which port?"}, {"role": "tool", "content": body}]
    text = extractive(messages, budget=120, counter=fourths)
    assert '"primary_port": 45193' in text
    assert '"leader": "node-k"' in text


def test_chinese_and_japanese_lines_are_kept_without_being_cut_in_a_value() -> None:
    log = "\n".join(f"2026-09-21 10:00:{n:02} INFO 请求已处理 编号={n * 7919}" for n in range(60))
    body = log + "\n数据库端口改为45193，由李雷批准。\n" + log
    text = extractive([{"role": "tool", "content": body}], budget=60, counter=lambda text: len(text))
    assert "数据库端口改为45193" in text


def test_parts_and_anthropic_blocks_are_read_and_images_are_not() -> None:
    messages = [
        {"role": "user", "content": [
            {"type": "text", "text": "Use port 4471 for the relay."},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        ]},
        {"role": "assistant", "content": [
            {"type": "tool_use", "id": "t", "name": "run", "input": {"command": "ss -ltn sport = 4471"}},
        ]},
        {"role": "user", "content": [{
            "type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "relay bound by 90211"}],
        }]},
    ]
    text = extractive(messages, budget=200, counter=fourths)
    assert "Use port 4471 for the relay." in text
    assert "relay bound by 90211" in text
    assert "AAAA" not in text


def test_facts_live_through_ten_generations_while_they_fit() -> None:
    previous, planted = None, []
    for generation in range(10):
        messages, facts = conversation(100 + generation, facts=3, turns=3, lines=30)
        planted += facts
        previous = extractive(messages, budget=850, counter=fourths, previous=previous)
        assert fourths(previous) <= 850
    assert previous is not None
    assert sum(value in previous for value, _line in planted) >= 0.8 * len(planted)
    assert sum(value in previous for value, _line in planted[:6]) >= 4
    assert previous.count("Asked first:") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    ["a" * 300_000, "abcdef" * 50_000, '"' * 300_000, "{" + '\\"' * 150_000, "{[" * 150_000, ". " * 150_000,
     "1 " * 150_000, "端口" * 100_000, "a:" * 150_000, "/a" * 150_000, "12:34:56 " * 40_000, "a=b " * 80_000,
     "\n" * 300_000],
    ids=["letters", "hex", "quotes", "escaped", "brackets", "dots", "digits", "ideographs", "colons", "slashes",
         "times", "pairs", "lines"],
)
def test_hostile_text_takes_linear_time(body: str) -> None:
    started = time.process_time()
    messages = [{"role": "tool", "content": body}, {"role": "user", "content": body}]
    text = extractive(messages, budget=100, counter=fourths)
    assert time.process_time() - started < 5
    assert fourths(text) <= 100


@pytest.mark.slow
def test_fifty_megabytes_take_seconds() -> None:
    lines = (f"2026-09-21 INFO job {n} took {n * 7 % 997} ms id={n * 2654435761 % 2**32:08x}\n" for n in range(40_000))
    body = "".join(lines) * 22
    started = time.process_time()
    text = extractive([{"role": "tool", "content": body}], budget=850, counter=fourths)
    assert time.process_time() - started < 10
    assert fourths(text) <= 850


@pytest.mark.parametrize("form", ["chat", "named", "first", "list"])
@pytest.mark.parametrize(("budget", "least"), [(300, 0.3), (600, 0.8)])
def test_of_plain_turns_answers_are_kept_as_well_as_questions(form: str, budget: int, least: float) -> None:
    asked = told = total = 0
    for seed in range(5):
        messages, questions, answers = plain(form, seed)
        text = extractive(messages, budget=budget, counter=fourths)
        assert fourths(text) <= budget
        asked += sum(value in text for value in questions)
        told += sum(value in text for value in answers)
        total += len(answers)
    assert told >= asked * 0.9 and told >= least * total, (asked, told, total)


def test_tools_in_a_turn_leave_its_answer_to_what_the_tools_gave() -> None:
    messages, _asked, _told = plain("chat", 1)
    assert plain_turns(messages) == frozenset(range(60))
    with_tool = [*messages[:1], {"role": "tool", "content": "x", "tool_call_id": "1"}, *messages[1:]]
    assert plain_turns(with_tool) == frozenset(range(3, 61))
    anthropic = [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "x"}]}]
    assert plain_turns([*messages[:1], *anthropic, *messages[1:2]]) == frozenset()


@pytest.mark.parametrize("content", [
    b"The relay listens on port 48213.", bytearray(b"The relay listens on port 48213."),
    {"status": "ok", "stdout": "The relay listens on port 48213."},
    [{"type": "resource", "resource": {"text": "The relay listens on port 48213."}}],
    [{"type": "tool_result", "tool_use_id": "1", "content": {"stdout": "The relay listens on port 48213."}}],
    [b"The relay listens on port 48213."],
], ids=["bytes", "bytearray", "object", "resource", "object in a result", "bytes among parts"])
def test_text_that_is_no_str_is_summarised_as_well(content: Any) -> None:
    messages = [{"role": "user", "content": "Where is it?"}, {"role": "tool", "tool_call_id": "1", "content": content}]
    assert "48213" in extractive(messages, budget=200, counter=fourths)
    assert "48213" in flat(messages[1])


def test_data_without_text_is_left_out_of_a_summary() -> None:
    messages = [
        {"role": "user", "content": "Where is it?"}, {"role": "user", "content": b"\xff\xfe48213"},
        {"role": "user", "content": [{"type": "image", "source": {"type": "base64", "data": "a48213"}}]},
    ]
    assert "48213" not in extractive(messages, budget=200, counter=fourths)
    assert [flat(message) for message in messages[1:]] == ["", "[user: a part of type image]"]
