"""Conversations for the tests of summaries: tool logs with planted facts, all from a seed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

Message = dict[str, Any]
Fact = tuple[str, str]  # the value, and the line that states it

_THINGS = [
    "billing", "staging", "legacy", "nightly", "public", "internal", "edge", "primary", "backup", "archive", "metrics",
    "payroll",
]
_PARTS = ["gateway", "broker", "worker", "bucket", "index", "cluster", "vault", "ledger", "replica", "pipeline"]
_PEOPLE = ["Priya Raman", "Tomas Novak", "Ingrid Halvorsen", "Kofi Mensah", "Yuki Tanaka", "Luca Moretti"]

_VALUES: dict[str, Callable[[random.Random], str]] = {
    "port": lambda r: str(r.randint(1025, 65000)),
    "path": lambda r: f"/srv/{r.choice(_THINGS)}/{r.choice(_PARTS)}-{r.randint(1, 99)}.conf",
    "commit": lambda r: f"{r.getrandbits(40):010x}",
    "owner": lambda r: f"{r.choice(_PEOPLE)} {'ABCDEFGHK'[r.randint(0, 8)]}.",
    "cutover date": lambda r: f"{r.randint(1, 28)} May 20{r.randint(24, 29)}",
    "pinned version": lambda r: f"v{r.randint(0, 19)}.{r.randint(0, 30)}.{r.randint(0, 20)}",
    "limit": lambda r: f"${r.randint(1, 99)},{r.randint(100, 999)}.{r.randint(10, 99)}",
    "host": lambda r: f"{r.choice(_THINGS)}-{r.randint(1, 99)}.corp.example",
}
_FORMS: tuple[Callable[[str, str, str], str], ...] = (
    lambda thing, label, value: f"The {thing} uses {label} {value} from now on",
    lambda thing, label, value: f"{value} is the {label} of the {thing}",
    lambda thing, label, value: f"# {thing} {label} -> {value}",
    lambda thing, label, value: f"{thing.replace(' ', '_')}_{label.replace(' ', '_')}: {value}",
    lambda thing, label, value: json.dumps({"component": thing, label: value}),
    lambda thing, label, value: f"| {thing} | {label} | {value} |",
    lambda thing, label, value: f"2026-09-21T10:00:07Z WARN {thing.replace(' ', '-')}: {label}={value} by hand",
    lambda thing, label, value: f"{thing} 的 {label} 已改为 {value}。",
)


def noise(r: random.Random) -> str:
    """One line of a log in which only what is new on every line is new."""
    return (
        f"2026-09-21T{r.randint(10, 23)}:{r.randint(10, 59)}:{r.randint(10, 59)}Z"
        f" {r.choice(['INFO', 'DEBUG', 'ERROR'])}"
        f" svc.{r.choice(['auth', 'api', 'db'])} {r.choice(['request served', 'cache miss', 'lease renewed'])}"
        f" id={r.getrandbits(32):08x} dur={r.randint(1, 900)}ms seq={r.randint(1000, 99999)}"
    )


def conversation(seed: int, *, facts: int = 40, turns: int = 12, lines: int = 24) -> tuple[list[Message], list[Fact]]:
    """Messages in OpenAI shape with `facts` planted in tool bodies, and the facts."""
    r = random.Random(seed)
    things = [f"{thing} {part}" for thing in _THINGS for part in _PARTS]
    r.shuffle(things)
    planted: list[Fact] = []
    while len(planted) < facts:
        label = list(_VALUES)[len(planted) % len(_VALUES)]
        value = _VALUES[label](r)
        if not any(value in other or other in value for other, _line in planted):
            planted.append((value, r.choice(_FORMS)(things[len(planted)], label, value)))
    messages: list[Message] = []
    for turn in range(turns):
        asked = f"Look at the log of node {turn}." if turn else "Find out why checkout is slow since the last deploy."
        body = [noise(r) for _ in range(lines)]
        for _value, line in planted[turn::turns]:
            body.insert(r.randint(0, len(body)), line)
        arguments = json.dumps({"command": f"tail /var/log/app-{turn}.log"})
        call = {"id": f"c{turn}", "type": "function", "function": {"name": "terminal", "arguments": arguments}}
        messages += [
            {"role": "user", "content": asked},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{turn}", "content": "\n".join(body)},
            {"role": "assistant", "content": f"Nothing unusual in part {turn}."},
        ]
    return messages, planted


def fourths(text: str) -> int:
    """A counter: a token for each four characters."""
    return (len(text) + 3) // 4


def spoken(messages: list[Message]) -> str:
    """All text of a source, for looking whether something is in it."""
    parts: list[str] = []
    for message in messages:
        content = message.get("content")
        for part in content if isinstance(content, list) else [content]:
            parts.append(part if isinstance(part, str) else str((part or {}).get("text", "")))
        parts += [call["function"]["arguments"] for call in message.get("tool_calls", ())]
    return "\n".join(parts)


NAMES = (
    "Helsinki", "Marlowe", "Nimbus", "Osaka", "Turing", "Basil", "Quartz", "Vega", "Zephyr", "Lisbon", "Falcon",
    "Amber", "Juniper", "Cobalt", "Hazel", "Indigo", "Saffron", "Delta", "Onyx", "Orchid", "Pelican", "Raven",
    "Sequoia", "Tundra", "Willow", "Yarrow", "Zinnia", "Cedar", "Maple", "Aspen",
)
_TOPICS = ("billing", "search", "import", "export", "login", "mail", "cache", "queue", "report", "backup", "theme")
_AROUND = (
    "That is how it has been set up for some time, and nothing else depends on it.",
    "I compared it with what the notes say and they agree with one another.",
    "There are a few ways to look at this, and most of them lead to the same place.",
    "It helps to keep in mind what was said before about the whole of the plan.",
)


def plain(form: str, seed: int, turns: int = 30) -> tuple[list[dict[str, str]], list[str], list[str]]:
    """Questions and answers without tools, a value in each; the messages, the values asked about, those answered.

    `form` of the answer: `chat` (a short sentence that is always the same), `named` (a name, in the last of five
    sentences), `first` (in the first sentence), `list` (the last line of a list).
    """
    chance = random.Random(f"{form} {seed}")
    messages, asked, told = [], [], []
    for name in chance.sample(NAMES, turns):
        topic, mine = chance.choice(_TOPICS), f"v{chance.randint(1, 9)}.{chance.randint(0, 99)}.{chance.randint(0, 9)}"
        yours = name if form == "named" else str(chance.randint(1000, 9999))
        around = chance.sample(_AROUND, 3)
        messages.append({"role": "user", "content": f"And what about the {topic}, {mine} or not?"})
        messages.append({"role": "assistant", "content": {
            "chat": f"{around[0]} I would take {yours}. {around[1]}",
            "named": f"{' '.join(around)} So the choice for the {topic} is {yours}.",
            "first": f"It is {yours} for the {topic}. {' '.join(around)}",
            "list": "".join(f"- {line}\n" for line in around) + f"\n**Result:** {topic} = {yours}\n",
        }[form]})
        asked.append(mine)
        told.append(yours)
    return messages, asked, told
