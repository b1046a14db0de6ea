"""What docs/compaction.md promises to list is listed there: policies, answers, reasons."""

from __future__ import annotations

import re
from pathlib import Path

from hermes_state.compaction import plan
from hermes_state.compaction.planning.plans import POLICIES
from maintenance.commands.compact import command
from tests.hermes_state.compaction.planning.histories import asks, one_task, replies, says, seed_probe

PROJECT = Path(__file__).parents[3]
TEXT = re.sub(r"```.*?```", "", (PROJECT / "docs" / "compaction.md").read_text(encoding="utf-8"), flags=re.DOTALL)


def test_every_policy_is_an_option_and_documented() -> None:
    option = next(each for each in command.params if each.name == "policy")
    assert tuple(option.type.choices) == POLICIES  # type: ignore[attr-defined]
    assert [each for each in POLICIES if f"`{each}`" not in TEXT] == []


def test_every_answer_that_the_code_gives_is_in_the_table() -> None:
    known = set(re.findall(r"`([a-z_]+)`", TEXT))
    found: set[str] = set()
    for path in sorted((PROJECT / "hermes_state" / "compaction").rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        found |= set(re.findall(r'Verdict\(\s*go=False, why="([a-z_]+)"', source))
        found |= set(re.findall(r'(?:return|because =) "([a-z]+_[a-z_]+)", [f"]', source))
        found |= set(re.findall(r'error_json\("([a-z_]+)"', source))
    assert {"view_edited", "head_moved", "lease_lost", "maker_gone", "not_worth_it", "same_again"} <= found
    assert sorted(found - known) == []


def test_every_reason_of_a_plan_is_documented() -> None:
    words = [re.escape(each) for each in re.findall(r"`([^`]+)`", TEXT)]
    known = [re.compile(re.sub(r"\b[A-Z]\b", r"\\d+", each)) for each in words]
    talks = [one_task(40), seed_probe(), [*seed_probe(), asks("late"), says("and?"), replies("It runs.")] * 2]
    for rows in talks:
        for policy in POLICIES:
            for window in (1200, 4096, 16_384, 60_000, 200_000):
                for reason in plan(rows, window=window, policy=policy, reply_reserve=window // 2).reasons:
                    assert any(each.fullmatch(reason) for each in known), reason
