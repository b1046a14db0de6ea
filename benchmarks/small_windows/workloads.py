"""The conversations S1 to S10: what each is made of, in what order, and what is fixed in front of it.

Invariant: a workload follows from its name, the window and the tokenizer alone (sizes that are shares of a window are
real tokens of that tokenizer). Messages are in OpenAI chat shape without a system message; what is fixed is apart.

Not for: facts and what is asked about them (see `recall.py`). Recorded conversations were rejected: none may be
published, and their sizes cannot be set.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.small_windows.wire import Message, Tokens

# System prompt and tool schemas of every workload but S7, in tokens (facts 2e).
FIXED = 1500
HOSTILE = ("empty", "error", "twice", "echo", "thinking")
# Turns of the long replay; one takes about 185 tokens, so that what a pass frees of U at 8K may last for eight.
LONG_TURNS = 300


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One conversation."""

    # S1 to S10.
    name: str
    # What it is, for the table.
    title: str
    # The system prompt, tool schemas included.
    system: str
    # Oldest first.
    messages: tuple[Message, ...]
    # The window it was held under before the one measured, None: the same.
    before: int | None = None
    # How the summariser misbehaves, None: it does not.
    hostile: str | None = None


def made(name: str, window: int, tokens: Tokens, hostile: str | None = None) -> Workload:
    """The workload of one name for one window."""
    title, build = BUILDERS[name]
    share = {"S7a": 0.7, "S7b": 1.1}.get(name)
    system = prompt(tokens, FIXED if share is None else int(window * share))
    messages = build(random.Random(f"{name} 1"), window, tokens)
    return Workload(
        name=name, title=title, system=system, messages=tuple(messages), hostile=hostile,
        before=131_072 if name == "S10" else None,
    )


def prompt(tokens: Tokens, size: int) -> str:
    """Text of at most `size` tokens that reads like instructions and tool schemas."""
    chance = random.Random("prompt")
    lines = [f"Rule {number}: {_words(chance, 14)}." for number in range(1, 41)]
    lines += [
        json.dumps({"name": _word(chance), "description": _words(chance, 9), "parameters": {_word(chance): "string"}})
        for _ in range(40)
    ]
    return grown(tokens, size, lambda number: lines[number % len(lines)])


def grown(tokens: Tokens, size: int, line: Callable[[int], str]) -> str:
    """Lines until the text has `size` tokens, none more; the count is of the whole text."""
    lines, total = [], 0
    while total < size:
        batch = [line(len(lines) + more) for more in range(64)]
        tokens.learn(text + "\n" for text in batch)
        for text in batch:
            total += tokens.count(text + "\n")
            lines.append(text)
            if total >= size:
                break
    while lines and tokens.count("\n".join(lines)) > size:
        lines.pop()
    return "\n".join(lines)


_STEMS = (
    "check", "queue", "worker", "status", "result", "folder", "report", "message", "signal", "window", "cache",
    "parser", "record", "answer", "remote", "local", "stable", "branch", "section", "update", "request", "policy",
    "channel",
)


def _word(chance: random.Random) -> str:
    return chance.choice(_STEMS)


def _words(chance: random.Random, count: int) -> str:
    return " ".join(chance.choices(_STEMS, k=count))


def log_line(chance: random.Random) -> str:
    """One line of a service's log, of the kinds that make up most of them."""
    day, hour, minute, second = (chance.randint(1, 28), *(chance.randint(0, most) for most in (23, 59, 59)))
    clock = f"2026-10-{day:02}T{hour:02}:{minute:02}:{second:02}"
    kind = chance.randrange(5)
    if kind == 0:
        return f"{clock} INFO http GET /v1/{_word(chance)} 200 {chance.randint(1, 90)}ms"
    if kind == 1:
        return f"{clock} DEBUG pool: {chance.randint(1, 9)} of 10 connections in use"
    if kind == 2:
        return f"{clock} INFO {_word(chance)}: {_words(chance, 5)}"
    if kind == 3:
        return f"{clock} INFO gc: freed {chance.randint(100, 999)} objects in {chance.randint(1, 9)}ms"
    return f"{clock} DEBUG heartbeat ok seq={chance.randint(1000, 9999)}"


def call(number: int | str, name: str = "terminal", **arguments: str) -> dict[str, object]:
    """One tool call of an assistant message."""
    return {
        "id": f"call_{number}", "type": "function",
        "function": {"name": name, "arguments": json.dumps(arguments or {"command": f"journalctl -n {number}"})},
    }


def group(number: int | str, body: str, text: str = "") -> list[Message]:
    """A call and its result."""
    return [
        {"role": "assistant", "content": text, "tool_calls": [call(number)]},
        {"role": "tool", "content": body, "tool_call_id": f"call_{number}", "name": "terminal"},
    ]


def turn(number: int, body: str, asked: str, answered: str) -> list[Message]:
    """A user's text, one call with its result, and the answer."""
    return [{"role": "user", "content": asked}, *group(number, body), {"role": "assistant", "content": answered}]


def probe(_chance: random.Random, _window: int, _tokens: Tokens) -> list[Message]:
    """S1: 12 turns whose tool bodies are 4,000 characters of nothing."""
    return [
        message for number in range(12)
        for message in turn(number, "x" * 4000, f"please do step {number} of the task", f"step {number} is done")
    ]


def logs(chance: random.Random, _window: int, tokens: Tokens, turns: int = 12) -> list[Message]:
    """S2: turns of about 1,065 tokens, nearly all of it log lines."""
    return [
        message for number in range(turns)
        for message in turn(
            number, grown(tokens, 1000, lambda _: log_line(chance)), f"Look at {_words(chance, 8)}.",
            f"I looked: {_words(chance, 14)}.",
        )
    ]


def single_task(chance: random.Random, _window: int, tokens: Tokens) -> list[Message]:
    """S3: one user message, then 40 tool groups of about 1,000 tokens."""
    made: list[Message] = [{"role": "user", "content": f"Migrate everything. {_words(chance, 20)}."}]
    for number in range(40):
        made += group(number, grown(tokens, 960, lambda _: log_line(chance)), f"Step {number}: {_words(chance, 6)}.")
    return made


def fan_out(chance: random.Random, _window: int, tokens: Tokens) -> list[Message]:
    """S4: four parallel calls a turn, 12 turns."""
    made: list[Message] = []
    for number in range(12):
        names = [f"{number}_{part}" for part in range(4)]
        made.append({"role": "user", "content": f"Compare the four {_word(chance)}s."})
        made.append({"role": "assistant", "content": "", "tool_calls": [call(name) for name in names]})
        made += [
            {
                "role": "tool", "content": grown(tokens, 240, lambda _: log_line(chance)),
                "tool_call_id": f"call_{name}", "name": "terminal",
            }
            for name in names
        ]
        made.append({"role": "assistant", "content": f"They differ: {_words(chance, 14)}."})
    return made


def giant(chance: random.Random, window: int, tokens: Tokens) -> list[Message]:
    """S5: S2 whose ninth result alone is twice the window."""
    made = logs(chance, window, tokens)
    made[8 * 4 + 2]["content"] = grown(tokens, 2 * window, lambda _: log_line(chance))
    return made


_HAN = "系统检查数据配置错误连接服务器更新任务完成文件目录日志报告结果处理请求用户时间内容分析问题修改"


def mixed(chance: random.Random, _window: int, tokens: Tokens) -> list[Message]:
    """S6: what people write is Chinese, what tools give is JSON dense with hexadecimal numbers."""

    def record(_: int) -> str:
        return json.dumps({
            "id": f"{chance.getrandbits(64):016x}", "at": chance.randint(10**9, 2 * 10**9), "ok": chance.random() < 0.9,
            "crc": f"{chance.getrandbits(32):08x}", "n": [chance.randint(0, 255) for _ in range(6)],
        })

    def text(size: int) -> str:
        return "".join(chance.choices(_HAN, k=size)) + "。"

    return [
        message for number in range(12)
        for message in turn(number, grown(tokens, 800, record), text(60), text(120))
    ]


def replay(chance: random.Random, _window: int, tokens: Tokens) -> list[Message]:
    """S8: 300 turns of a chat, every third with a short tool call."""
    made: list[Message] = []
    for number in range(LONG_TURNS):
        asked = f"Question {number}: {_words(chance, chance.randint(12, 40))}?"
        answered = f"{_words(chance, chance.randint(40, 130))}."
        if number % 3:
            made += [{"role": "user", "content": asked}, {"role": "assistant", "content": answered}]
        else:
            body = grown(tokens, chance.randint(60, 180), lambda _: log_line(chance))
            made += turn(number, body, asked, answered)
    return made


BUILDERS: dict[str, tuple[str, Callable[[random.Random, int, Tokens], Sequence[Message]]]] = {
    "S1": ("seed probe", probe),
    "S2": ("logs", logs),
    "S3": ("one user message, 40 tool groups", single_task),
    "S4": ("four parallel calls a turn", fan_out),
    "S5": ("one result of twice the window", giant),
    "S6": ("Chinese and JSON", mixed),
    "S7a": ("fixed prefix of 0.7 windows", logs),
    "S7b": ("fixed prefix of 1.1 windows", logs),
    "S8": ("300 turns", replay),
    "S9": ("summariser that misbehaves", logs),
    "S10": ("switch from 128K", lambda chance, window, tokens: logs(chance, window, tokens, turns=36)),
}
