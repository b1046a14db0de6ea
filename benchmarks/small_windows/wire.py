"""A request as a server counts it, and what must hold for it.

Invariant: a message costs its tokens alone plus three, because chat templates put special tokens between messages and
no token reaches over them; so a request is the sum of its messages, and two requests share whole messages and then the
beginning of one. Counting is independent of `hermes_state.compaction.tokens`, which is one of the things measured.

Not for: sending anything. Encoding whole requests was rejected: 300 turns of a 128K window are hours.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

Message = dict[str, Any]
# ChatML: <|im_start|>, <|im_end|> and the line break between messages.
AROUND = 3
# What a vision model commonly takes for one picture at low detail (OpenAI's 85).
IMAGE = 85


def text_of(message: Message) -> str:
    """The text a chat template makes of a message, without its special tokens: as Qwen's does, so without call ids."""
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(part.get("text", "") for part in content)
    if message["role"] == "tool":
        return f"user\n<tool_response>\n{content or ''}\n</tool_response>"
    lines = [f"{message['role']}\n{content or ''}"]
    for call in message.get("tool_calls") or ():
        function = call["function"]
        arguments = function["arguments"]
        shown = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        lines.append(f'<tool_call>\n{{"name": "{function["name"]}", "arguments": {shown}}}\n</tool_call>')
    return "\n".join(lines)


class Tokens:
    """One tokenizer, with a memory of what it counted."""

    def __init__(self, name: str, counts: Callable[[Sequence[str]], Sequence[int]]) -> None:
        """`counts` gives the number of tokens of each text."""
        self.name = name
        self._counts = counts
        self._known: dict[str, int] = {}

    def learn(self, texts: Iterable[str]) -> None:
        """Count many texts in one go."""
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        self._known.update(zip(new, self._counts(new), strict=True) if new else ())

    def count(self, text: str) -> int:
        """Tokens of a text."""
        if text not in self._known:
            (self._known[text],) = self._counts([text])
        return self._known[text]

    def message(self, message: Message) -> int:
        """Tokens of one message of a request."""
        parts = message.get("content")
        pictures = sum(part.get("type") == "image_url" for part in parts) if isinstance(parts, list) else 0
        return self.count(text_of(message)) + AROUND + pictures * IMAGE

    def messages(self, messages: Sequence[Message]) -> int:
        """Tokens of the messages of a request, without what is fixed."""
        self.learn(map(text_of, messages))
        return sum(map(self.message, messages))

    def shared(self, before: Sequence[Message], after: Sequence[Message]) -> int:
        """Tokens from the beginning of `after` on that a server which has just read `before` need not read again."""
        total = 0
        for old, new in zip(before, after, strict=False):
            if old == new:
                total += self.message(new)
                continue
            pairs = zip(text_of(old), text_of(new), strict=False)
            same = itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)
            return total + self.count("".join(one for one, _ in same))
        return total


def faults(messages: Sequence[Message]) -> list[str]:
    """What a provider would refuse (metric M10); empty when the structure holds."""
    found: list[str] = []
    open_calls: set[str] = set()
    before = ""
    for at, message in enumerate(messages):
        role = message["role"]
        if role == "tool":
            if message.get("tool_call_id") not in open_calls:
                found.append(f"{at}: a result without its call")
            open_calls.discard(message.get("tool_call_id", ""))
            continue
        if open_calls:
            found.append(f"{at}: calls without results")
            open_calls = set()
        if role == before == "user":
            found.append(f"{at}: two user messages in a row")
        if role == "assistant" and before == "assistant" and messages[at - 1]["role"] != "tool":
            found.append(f"{at}: two assistant messages in a row")
        open_calls = {call["id"] for call in message.get("tool_calls") or ()}
        before = role
    if not any(message["role"] == "user" for message in messages):
        found.append("no user message")
    if messages and messages[0]["role"] not in ("user", "system"):
        found.append("does not begin with a user message")
    return found
