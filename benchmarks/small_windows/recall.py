"""M5: what of the planted facts is still in the next request, by policy, seed and age.

Invariant: the same conversation for every policy; a fact counts by its exact value alone; what a policy sends beyond
the window does not count as kept. Not for: whether a model finds it there (see `reading.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.small_windows.metrics import PASSES, parts
from benchmarks.small_windows.planting import Generator, invented, planted, surviving
from benchmarks.small_windows.policies import Setting
from benchmarks.small_windows.wire import Message, Tokens, text_of
from benchmarks.small_windows.workloads import FIXED, prompt


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What one policy kept of one conversation."""

    policy: str
    seed: int
    around: str
    window: int
    tokenizer: str
    facts: int
    # In the view, of all; 0 when the request does not fit.
    kept: int
    fits: bool
    # In the oldest, the middle and the newest third of the facts.
    by_age: tuple[int, int, int]
    # Facts of what the summary stands for, and how many of those are in it.
    summarised: int
    in_summary: int
    # Tokens of the summary and U.
    summary_tokens: int
    usable: int
    # Tokens of the facts said as shortly as can be.
    fact_tokens: int
    # What looks like a value in the summary and is not in the conversation.
    invented: tuple[str, ...]
    # Form of the missing ones.
    missing: tuple[str, ...]


def kept_by(
    policies: Mapping[str, Any], tokens: Tokens, make: Generator, seeds: Sequence[int], *, window: int, around: str
) -> list[Kept]:
    """Every policy on every seed."""
    system: Message = {"role": "system", "content": prompt(tokens, FIXED)}
    setting = Setting(window=window, system=system, tokens=tokens)
    found = []
    for seed in seeds:
        facts = make(seed)
        messages = planted(facts, seed, tokens, around)
        for policy in policies.values():
            view = sent(policy, setting, messages)
            found.append(_judged(policy.name, seed, around, setting, facts, messages, view))
    return found


def sent(policy: Any, setting: Setting, messages: Sequence[Message]) -> list[Message]:
    """The next request without the system message, after at most two passes."""
    policy.begin(setting)
    policy.extend(messages)
    for _ in range(PASSES):
        if policy.compact() != "done":
            break
    view: list[Message] = policy.request()[1:]
    return view


def _judged(
    name: str, seed: int, around: str, setting: Setting, facts: Sequence[Any], history: Sequence[Message],
    view: Sequence[Message],
) -> Kept:
    tokens = setting.tokens
    fits = tokens.messages(view) + setting.fixed <= setting.window - setting.reserve
    here = surviving(facts, "\n".join(map(text_of, view))) if fits else []
    known = {text_of(message) for message in history}
    summary = "\n".join(text_of(message) for message in view if text_of(message) not in known)
    verbatim = "\n".join(text_of(message) for message in view if text_of(message) in known)
    gone = [fact for fact in facts if fact not in surviving(facts, verbatim)]
    third = len(facts) // 3 + 1
    ages = [sum(fact in here for fact in facts[at : at + third]) for at in range(0, len(facts), third)]
    return Kept(
        policy=name, seed=seed, around=around, window=setting.window, tokenizer=tokens.name, facts=len(facts),
        kept=len(here), fits=fits, by_age=(ages[0], ages[1], ages[2]), summarised=len(gone),
        in_summary=len(surviving(gone, summary)), summary_tokens=parts(view, history, tokens)[1],
        usable=setting.usable, fact_tokens=tokens.count("\n".join(fact.short for fact in facts)),
        invented=tuple(invented(summary, history)),
        missing=tuple(f"{fact.form}/{fact.kind}" for fact in facts if fact not in here),
    )


def totals(found: Sequence[Kept]) -> list[dict[str, Any]]:
    """One line a policy and kind of text around: survival over all seeds."""
    lines = []
    for policy, around in dict.fromkeys((one.policy, one.around) for one in found):
        mine = [one for one in found if (one.policy, one.around) == (policy, around)]
        held, asked = sum(one.kept for one in mine), sum(one.facts for one in mine)
        lines.append({
            "policy": policy, "around": around, "runs": len(mine), "kept": held, "facts": asked, "share": held / asked,
            "least": min(one.kept for one in mine), "most": max(one.kept for one in mine),
            "by_age": [sum(one.by_age[age] for one in mine) for age in range(3)],
            "summary_share": max(one.summary_tokens / one.usable for one in mine),
            "fact_share": max(one.fact_tokens / (0.15 * one.usable) for one in mine),
            "fits": sum(one.fits for one in mine), "invented": sum(len(one.invented) for one in mine),
        })
    return lines


def text(lines: Sequence[dict[str, Any]]) -> str:
    """The same for people."""
    out = [
        "| policy | around | facts kept (M5) | share | least | oldest, middle, newest | summary/U | invented | fits |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    out += [
        f"| {line['policy']} | {line['around']} | {line['kept']} of {line['facts']} | {100 * line['share']:.0f} % "
        f"| {line['least']} | {', '.join(map(str, line['by_age']))} | {100 * line['summary_share']:.1f} % "
        f"| {line['invented']} | {line['fits']} of {line['runs']} |"
        for line in lines
    ]
    return "\n".join(out)
