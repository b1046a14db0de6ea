"""The benchmark of small windows measures what it says: its counting, its facts, and what it tells apart."""

from __future__ import annotations

import ast
import json
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.small_windows import facts_generator, metrics, planting, policies, table, wire, workloads
from benchmarks.small_windows.sides.sampled import misbehaved, sampled
from tests.support.children import PROJECT


@pytest.fixture
def tokens() -> wire.Tokens:
    return wire.Tokens("quarter", lambda texts: [len(text) // 4 + 1 for text in texts])


def test_forty_facts_are_five_of_each_of_eight_types_and_no_value_is_there_twice() -> None:
    for seed in range(1, 11):
        facts = facts_generator.make(seed)
        values = [value for fact in facts for value in (fact.value, *fact.distractors)]
        assert set(Counter(fact.kind for fact in facts).values()) == {5}
        assert len(Counter(fact.kind for fact in facts)) == 8
        assert len(set(values)) == len(values) == 160
        assert all(fact.value in fact.text and fact.place in facts_generator.PLACES for fact in facts)


def test_facts_follow_from_the_seed_alone() -> None:
    assert facts_generator.make(3) == facts_generator.make(3) != facts_generator.make(4)


def test_the_program_knows_nothing_of_the_generator() -> None:
    for path in [*(PROJECT / "hermes_state").rglob("*.py"), *(PROJECT / "maintenance").rglob("*.py")]:
        text = path.read_text(encoding="utf-8")
        assert "facts_generator" not in text, path
        if "benchmarks" in text:
            tree = ast.parse(text)
            named = [getattr(node, "module", "") or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
            assert not any(name.startswith("benchmarks") for name in named), path


@pytest.mark.slow
@pytest.mark.parametrize("around", ["logs", "sources"])
def test_every_fact_is_in_the_conversation_and_no_distractor_is(around: str, tokens: wire.Tokens) -> None:
    facts = facts_generator.make(2)
    messages = planting.planted(facts, 2, tokens, around)
    said = "\n".join(map(wire.text_of, messages))
    assert planting.surviving(facts, said) == facts
    assert not any(planting.holds(said, wrong) for fact in facts for wrong in fact.distractors)
    assert wire.faults(messages) == []
    assert 11_000 < tokens.messages(messages) < 14_500


def test_a_value_counts_as_a_whole_word_only() -> None:
    (fact, *_rest) = [fact for fact in facts_generator.make(1) if fact.kind == "port"]
    assert planting.surviving([fact], f"it is {fact.value}.") == [fact]
    assert planting.surviving([fact], f"it is 1{fact.value}, {fact.value}.5 or {fact.value}0") == []


def test_a_value_that_was_never_said_is_noticed_in_a_summary() -> None:
    source = [{"role": "user", "content": "port 4471, host db-amber-3"}]
    assert planting.invented("port 4471 on db-amber-3", source) == []
    assert planting.invented("port 4472 on db-amber-3", source) == ["4472"]


@pytest.mark.slow
@pytest.mark.parametrize("name", list(workloads.BUILDERS))
def test_every_workload_begins_sound(name: str, tokens: wire.Tokens) -> None:
    load = workloads.made(name, 4096, tokens)
    assert wire.faults(load.messages) == []
    assert load == workloads.made(name, 4096, tokens)


def test_a_fixed_prefix_has_its_share_of_the_window(tokens: wire.Tokens) -> None:
    sizes = [tokens.count(workloads.made(name, 8192, tokens).system) for name in ("S7a", "S7b")]
    assert [size / 8192 for size in sizes] == [pytest.approx(0.7, abs=0.03), pytest.approx(1.1, abs=0.03)]


def test_what_a_provider_would_refuse_is_found() -> None:
    user, answer = {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}
    calls = {"role": "assistant", "content": "", "tool_calls": [workloads.call(1)]}
    result = {"role": "tool", "content": "c", "tool_call_id": "call_1"}
    assert wire.faults([user, calls, result, answer]) == []
    assert wire.faults([user, result]) == ["1: a result without its call"]
    assert wire.faults([user, calls, user]) == ["2: calls without results"]
    assert wire.faults([user, user]) == ["1: two user messages in a row"]
    assert wire.faults([answer]) == ["no user message", "does not begin with a user message"]


def test_requests_share_whole_messages_and_the_beginning_of_one(tokens: wire.Tokens) -> None:
    one, two = {"role": "user", "content": "x" * 400}, {"role": "assistant", "content": "y" * 400}
    changed = {"role": "assistant", "content": "y" * 200 + "z" * 200}
    assert tokens.shared([one, two], [one, two, one]) == tokens.message(one) + tokens.message(two)
    assert tokens.shared([one, two], [one, changed]) == tokens.message(one) + tokens.count("assistant\n" + "y" * 200)
    assert tokens.shared([one], [two]) == tokens.count("")


def test_tail_summary_and_anchor_are_told_apart(tokens: wire.Tokens) -> None:
    history = [{"role": role, "content": f"{role} {number}"} for number in range(6) for role in ("user", "assistant")]
    summary = {"role": "user", "content": "what came before\n\nuser 4"}
    view = [history[0], summary, *history[9:]]
    tail, own, anchors = metrics.parts(view, history, tokens)
    assert tail == sum(map(tokens.message, history[9:])) + tokens.count("user 4")
    assert own == tokens.message(summary) - tokens.count("user 4")
    assert anchors == tokens.message(history[0])


def test_truncation_is_measured_as_it_is(tokens: wire.Tokens) -> None:
    load = workloads.made("S2", 4096, tokens)
    row = metrics.measured(policies.Truncation(), load, 4096, tokens)
    assert (row.fits, len(row.reclaimed)) == (True, 1)
    assert row.request < 2048 + row.fixed and "does not begin with a user message" in row.faults
    none = metrics.measured(policies.Kept(), load, 4096, tokens)
    assert (none.fits, none.reclaimed, none.faults) == (False, [], [])


def test_one_line_of_the_table_holds_the_worst_case(tokens: wire.Tokens) -> None:
    rows = [
        metrics.measured(policy, workloads.made(name, 4096, tokens), 4096, tokens)
        for policy in (policies.Kept(), policies.Truncation()) for name in ("S2", "S7b")
    ]
    lines = table.summarised(rows)
    assert [(line["policy"], line["fits"], line["cases"]) for line in lines] == [("none", 0, 1), ("truncate", 1, 1)]
    assert table.text(lines).count("\n") == 3
    assert table.picture(lines).startswith("<svg ") and json.dumps([row.document() for row in rows])


def test_a_sampled_summary_is_within_its_size() -> None:
    text = "\n".join(f"line {number} of many" for number in range(500))
    assert len(sampled(text, 300)) <= 300 and sampled("short", 300) == "short"
    assert len(misbehaved("twice", text, 300)) > 300 and misbehaved("echo", text, 300) == text


def test_sides_import_nothing_of_this_project() -> None:
    for path in Path(workloads.__file__).with_name("sides").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = node.module if isinstance(node, ast.ImportFrom) else None
            assert not (name or "").startswith(("benchmarks", "hermes_state", "maintenance")), path
