"""What is no summary in a model's answer, taken out: reasoning, fences, wrappers, stray marks, repeated lines.

Invariant: what stays is verbatim and in order. Reasoning without an end is reasoning to the end of the text.

Not for: judging what is left (see `checked`). Every pattern is searched for in one pass without nesting.
"""

from __future__ import annotations

import re

_NAMES = r"think|thinking|thought|thoughts|reasoning|reflection|scratchpad|analysis"
_OPENS = re.compile(
    rf"(?i)<(?:{_NAMES})(?:\s[^<>]{{0,80}})?>|\[think\]|◁think▷|<\|begin_of_thought\|>"
    r"|<\|channel\|>(?:analysis|commentary)"
)
_CLOSES = re.compile(
    rf"(?i)</(?:{_NAMES})\s{{0,8}}>|\[/think\]|◁/think▷|<\|end_of_thought\|>|<\|channel\|>final(?:<\|message\|>)?"
)
_SPECIAL = re.compile(r"<\|[a-z_]{2,24}\|>")
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
_FENCE = re.compile(r"^```[a-z]{0,12}\r?\n|\r?\n```$")
_SUMMARY = re.compile(r"(?i)</?(?:summary|state_snapshot|context_summary|output|answer)>")


def without_reasoning(text: str) -> str:
    """`text` less every stretch of marked reasoning."""
    kept: list[str] = []
    at = 0
    while True:
        opened, closed = _OPENS.search(text, at), _CLOSES.search(text, at)
        if closed is not None and (opened is None or closed.start() < opened.start()):
            # An end without a beginning: servers leave the opening tag in the prompt. What stands before it is
            # reasoning.
            kept.clear()
            at = closed.end()
        elif opened is None:
            kept.append(text[at:])
            return "".join(kept)
        else:
            kept.append(text[at : opened.start()])
            if closed is None:
                return "".join(kept)
            at = closed.end()


def printable(text: str) -> str:
    """`text` less NUL, control marks and halves of surrogate pairs, none of which SQLite or JSON takes everywhere."""
    return _UNPRINTABLE.sub("", text)


def unwrapped(text: str) -> str:
    """`text` less the fence or the tags around all of it, and less a model's own control tokens."""
    text = _SPECIAL.sub("", _SUMMARY.sub("", text)).strip()
    if text.startswith("```") and text.endswith("```") and text.count("```") == 2:
        text = _FENCE.sub("", text)
    return text.strip()


def without_repeats(text: str) -> str:
    """`text` with each line once (empty ones aside): small models fall into loops."""
    seen: set[str] = set()
    lines = []
    for line in text.split("\n"):
        bare = line.strip()
        if len(bare) > 3 and bare in seen:
            continue
        seen.add(bare)
        lines.append(line.rstrip())
    return "\n".join(lines).strip()
