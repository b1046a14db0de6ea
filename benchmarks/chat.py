"""Conversations for the benchmarks of the native store: the same rows for every side, in one JSON file.

Invariant: the rows follow from the seed alone. A side reads them from the file before anything is timed, so no side
pays for making them.

Not for: hermes-agent's own files (see `store.py`, whose words are used here). Tool output made of random words was
rejected: it compresses 2 times where real output was measured at 3.3, and its index is half as large again.

In turns of four: a user's text, a tool call, its result of about 5 KB and the answer; one system prompt of 12 KB a
session; every eighth chat text is Chinese. Tool results are what tools show of real files: this Python's own library,
read, listed and searched.
"""

from __future__ import annotations

import functools
import json
import random
import sysconfig
from pathlib import Path
from typing import Any

from benchmarks.store import SOURCES, Words

PROMPT_BYTES = 12_000
TOOL_BYTES = (3_000, 7_000)


def rows(*, sessions: int, messages: int, seed: int = 1) -> list[dict[str, Any]]:
    """Message rows in the order of writing: one message a session in turn, as gateways that serve many chats write."""
    words = Words(random.Random(seed))
    chance = words.chance
    made: list[dict[str, Any]] = []
    for index in range(messages):
        for number in range(sessions):
            made.append({"session": f"chat_{number:05}", **_message(words, chance, number, index)})
    return made


def _message(words: Words, chance: random.Random, number: int, index: int) -> dict[str, Any]:
    call = f"call_{number}_{index - index % 4}"
    turn = index % 4
    if turn == 0:
        text = words.cjk(60) if chance.random() < 0.125 else words.latin(chance.randint(8, 80))
        return {"role": "user", "content": text}
    if turn == 1:
        calls = [{"id": call, "type": "function", "function": {"name": "terminal", "arguments": words.latin(5)}}]
        return {"role": "assistant", "content": words.latin(6), "tool_calls": calls}
    if turn == 2:
        output = _tool_output(chance, chance.randint(*TOOL_BYTES))
        return {"role": "tool", "content": output, "tool_name": "terminal", "tool_call_id": call}
    return {"role": "assistant", "content": words.latin(chance.randint(20, 120)), "finish_reason": "stop"}


@functools.cache
def _library() -> list[tuple[str, list[str]]]:
    """Name and lines of the modules of this Python's library that are long enough to look into."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    texts = ((path.name, path.read_text(encoding="utf-8").splitlines()) for path in sorted(folder.glob("*.py")))
    return [(name, lines) for name, lines in texts if len(lines) > 200]


def _tool_output(chance: random.Random, size: int) -> str:
    """A part of a file with line numbers, a search, a listing, or a test run, of about `size` characters."""
    library = _library()
    lines = chance.choice(library)[1]
    at, kind = chance.randrange(len(lines) - 100), chance.randrange(4)
    if kind == 0:
        shown = (f"{number:>6}\t{line}" for number, line in enumerate(lines[at:], at + 1))
    elif kind == 1:
        word = chance.choice(("return", "self.", "import", "raise", "if not", "None"))
        shown = (
            f"Lib/{file}:{number}:{line.strip()}"
            for file, text in chance.sample(library, 12) for number, line in enumerate(text, 1) if word in line
        )
    elif kind == 2:
        shown = (
            f"-rw-r--r-- 1 root root {len(text) * 37:>8} Apr {number % 28 + 1:>2} 10:{number % 60:02} {file}"
            for number, (file, text) in enumerate(chance.sample(library, len(library)))
        )
    else:
        shown = (
            f"tests/test_{file[:-3]}.py::test_{(text[number].split() or ['it'])[0].strip('#(:@').lower()} PASSED"
            for number, (file, text) in enumerate(chance.choices(library, k=200))
        )
    kept: list[str] = []
    for line in shown:
        kept.append(line)
        size -= len(line) + 1
        if size < 0:
            break
    return "\n".join(kept)


def sessions_of(made: list[dict[str, Any]], *, seed: int = 1) -> list[dict[str, Any]]:
    """The sessions of these rows, each with its source and a system prompt that all of them share."""
    prompt = Words(random.Random(seed + 1)).latin(3_000)[:PROMPT_BYTES]
    names = dict.fromkeys(row["session"] for row in made)
    return [
        {"id": name, "source": SOURCES[number % len(SOURCES)], "system_prompt": prompt}
        for number, name in enumerate(names)
    ]


def content_bytes(made: list[dict[str, Any]]) -> int:
    """Bytes of message text in UTF-8, tool calls as JSON included."""
    calls = sum(len(json.dumps(row["tool_calls"])) for row in made if "tool_calls" in row)
    return calls + sum(len(row["content"].encode()) for row in made)


def write_plan(path: Path, made: list[dict[str, Any]]) -> Path:
    """The file that every side reads."""
    path.write_text(json.dumps({"sessions": sessions_of(made), "rows": made}), encoding="utf-8")
    return path
