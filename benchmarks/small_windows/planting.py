"""A conversation of S2's size with facts in it, and which of them a text still holds.

Invariant: the generator is the caller's (any function from a seed to facts); where a fact stands is drawn with the same
seed; a value counts as there only as a whole word, exactly as it was planted, and the noise around holds none of them.

Not for: making facts (see `facts_generator.py`). Asking a model for what is in plain sight was rejected for M5: what a
summary dropped cannot be recalled, and whether it is there is a matter of reading.
"""

from __future__ import annotations

import functools
import importlib
import json
import random
import re
import sysconfig
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.small_windows.wire import Message, Tokens, text_of
from benchmarks.small_windows.workloads import call, grown, log_line

TURNS = 12
BODY = 960
Generator = Callable[[int], Sequence[Any]]


def generator(name: str) -> Generator:
    """The function that `module:function` names."""
    module, _, function = name.partition(":")
    found: Generator = getattr(importlib.import_module(module), function or "make")
    return found


def planted(facts: Sequence[Any], seed: int, tokens: Tokens, around: str = "logs") -> list[Message]:
    """Twelve turns of reading with the facts in them, spread evenly from the first turn to the last.

    `around`: what the tools show: `logs` as in S2, or `sources`: a different kind each turn of source text with line
    numbers, search results and listings of this Python's library, where nothing repeats.
    """
    chance = random.Random(f"planted {seed}")
    noise = random.Random(f"noise {seed}")
    bodies = {
        "logs": lambda: grown(tokens, BODY, lambda _: log_line(noise)), "sources": lambda: _sources(noise, tokens),
    }
    messages: list[Message] = []
    for number in range(TURNS):
        here = facts[number * len(facts) // TURNS : (number + 1) * len(facts) // TURNS]
        by_place: dict[str, list[str]] = {"tool": [], "user": [], "assistant": [], "call": []}
        for fact in here:
            by_place[fact.place].append(fact.text)
        lines = _without(facts, bodies[around]()).split("\n")
        for text in by_place["tool"]:
            lines.insert(chance.randrange(len(lines)), text)
        set_too = {f"set{at}": text for at, text in enumerate(by_place["call"])}
        arguments = {"command": f"tail -n 400 part{number}.log", **set_too}
        messages += [
            {"role": "user", "content": " ".join([f"Please look at part {number} of the log.", *by_place["user"]])},
            {"role": "assistant", "content": "", "tool_calls": [call(number, **arguments)]},
            {"role": "tool", "content": "\n".join(lines), "tool_call_id": f"call_{number}", "name": "terminal"},
            {"role": "assistant", "content": "\n".join([f"Part {number} looks normal.", *by_place["assistant"]])},
        ]
    return messages


@functools.cache
def _library() -> list[tuple[str, list[str]]]:
    folder = Path(sysconfig.get_paths()["stdlib"])
    texts = ((path.name, path.read_text(encoding="utf-8").splitlines()) for path in sorted(folder.glob("*.py")))
    return [(name, lines) for name, lines in texts if len(lines) > 300]


def _sources(chance: random.Random, tokens: Tokens) -> str:
    name, lines = chance.choice(_library())
    kind, at = chance.randrange(3), chance.randrange(len(lines) - 200)
    shown = [f"{number:>6}\t{line[:100]}" for number, line in enumerate(lines[at:], at + 1)]
    if kind == 1:
        shown = [f"Lib/{name}:{number}:{line.strip()[:90]}" for number, line in enumerate(lines, 1) if "self" in line]
    if kind == 2 or not shown:
        shown = [
            f"-rw-r--r-- 1 root root {chance.randint(900, 90000):>6} Apr {chance.randint(1, 28):>2} 10:14 {file}"
            for file, _ in _library()
        ]
    return grown(tokens, BODY, lambda number: shown[number % len(shown)])


def _without(facts: Sequence[Any], text: str) -> str:
    """The noise without lines that hold a fact's value or a distractor."""
    words = [word for fact in facts for word in (fact.value, *fact.distractors)]
    pattern = re.compile("|".join(map(re.escape, words)))
    return "\n".join(line for line in text.split("\n") if pattern.search(line) is None)


def holds(text: str, value: str) -> bool:
    """Whether a text has a value that is no part of a longer word or number; a full stop may follow."""
    return re.search(rf"(?<![A-Za-z0-9.]){re.escape(value)}(?![A-Za-z0-9]|\.\d)", text) is not None


def surviving(facts: Iterable[Any], text: str) -> list[Any]:
    """The facts whose exact value is in the text."""
    return [fact for fact in facts if holds(text, fact.value)]


def invented(summary: str, source: Sequence[Message]) -> list[str]:
    """Words of a summary that look like values (a digit and three more characters) and are nowhere in its source."""
    said = "\n".join(text_of(message) for message in source)
    said += "\n" + "\n".join(json.dumps(message, ensure_ascii=False) for message in source)
    found = re.findall(r"[A-Za-z0-9_][\w./:+-]*\d[\w./:-]*", summary)
    return sorted({word.rstrip(".:-/,") for word in found if len(word.rstrip(".:-/,")) > 3} - set(_known(found, said)))


def _known(words: Iterable[str], said: str) -> list[str]:
    return [word.rstrip(".:-/,") for word in words if word.rstrip(".:-/,") in said]
