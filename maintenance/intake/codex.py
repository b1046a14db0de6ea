"""Session transcripts of Codex: `~/.codex/sessions/YYYY/MM/DD/rollout-<time>-<id>.jsonl`, and the older bare layout.

Invariant: a response item that says or does something becomes one message, keyed by its line number, because the file
is only ever appended to; reasoning becomes the `reasoning` of the message after it; every other line is kept beside
the next message. Events repeat what response items say, so they are messages only in a file that has no message items.

Not for: encrypted reasoning, which is kept as it is. Keys from the items' own ids were rejected: many have none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from maintenance.intake.lines import read_lines
from maintenance.intake.model import Event, IncomingMessage, IncomingUsage, SourceName
from maintenance.intake.transcript import (
    Chain,
    ChainReader,
    TranscriptSource,
    content_of,
    rest_of,
    time_of,
    uuid_of_name,
    whole_number,
)

NAME: Final = "codex"
# How many lines are looked at to tell whether a file has message items: its first turn comes long before.
_FIRST_LINES = 500
_ENVELOPE = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
# A call is whatever ends in _call; what carries its arguments differs.
_ARGUMENTS = ("arguments", "input", "action", "query", "execution")
_SPOKEN = {"user_message": "user", "agent_message": "assistant"}


def codex_source(path: Path) -> TranscriptSource:
    """A transcript of Codex."""
    return TranscriptSource(path, NAME, NAME, CodexReader)


class CodexReader(ChainReader):
    """One pass over one file."""

    name: SourceName = NAME

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._id = ""
        self._items = _has_message_items(path)
        self._tools: dict[str, str] = {}  # id of a call -> name of the tool
        self._thinking: list[dict[str, Any]] = []  # reasoning lines that wait for what they led to
        self._turns: list[str] = []  # keys of the messages that began a turn
        # Hashes of what message items said, and events that no item has repeated yet.
        self._said: set[int] = set()
        self._mirrors: dict[int, tuple[dict[str, Any], str]] = {}
        self._model = ""
        self._spent: dict[str, int] = {}  # token totals as last told

    def feed(self, number: int, line: dict[str, Any]) -> Iterator[Event]:
        """The events of one line."""
        kind, payload = line.get("type"), line.get("payload")
        if kind in _ENVELOPE and isinstance(payload, dict):
            chain = self._chain(payload if kind == "session_meta" else {})
            at = chain.see(time_of(line.get("timestamp")))
            outer = rest_of(line, ("timestamp", "type", "payload"))
            if kind == "response_item":
                yield from self._item(chain, number, at, line, payload, outer)
            elif kind == "event_msg":
                yield from self._event(chain, number, at, line, payload, outer)
            elif kind == "compacted":
                yield from self._compacted(chain, number, at, line, payload, outer)
            else:
                self._facts(chain, payload)
                self.keep(chain, line)
            return
        header = "id" in line and "timestamp" in line and kind is None
        chain = self._chain(line if header else {})
        at = chain.see(time_of(line.get("timestamp")))
        if kind == "compacted":
            yield from self._compacted(chain, number, at, line, line, {})
        elif isinstance(kind, str) and not header:
            yield from self._item(chain, number, at, line, line, {})
        else:
            if header:
                self._facts(chain, line)
            self.keep(chain, line)

    def finish(self) -> Iterator[Event]:
        """Reasoning that led to nothing, and events whose text no item says, are kept with the session."""
        chain = self._chain({})
        self._flush(chain)
        for line, _ in self._mirrors.values():
            self.keep(chain, line)
        return iter(())

    def _mirror(self, text: int, line: dict[str, Any], name: str) -> None:
        """An event that repeats an item, before it or after it."""
        if text in self._said:
            self.tally.left_out[name] += 1
        elif text in self._mirrors:
            self.tally.repeated += 1
        else:
            self._mirrors[text] = line, name

    def _heard(self, content: Any) -> None:
        """An item said this."""
        parts = content if isinstance(content, list) else [{"text": content}]
        for part in parts:
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                text = hash(part["text"])
                self._said.add(text)
                if text in self._mirrors:
                    self.tally.left_out[self._mirrors.pop(text)[1]] += 1

    def _chain(self, meta: dict[str, Any]) -> Chain:
        if not self._id:
            said = meta.get("id")
            self._id = said if isinstance(said, str) and said else uuid_of_name(self.path) or self.path.stem
        return self.chain(self._id)

    def _facts(self, chain: Chain, meta: dict[str, Any]) -> None:
        chain.once("cwd", meta.get("cwd"))
        if isinstance(meta.get("model"), str):
            self._model = meta["model"]
            chain.once("model", self._model)
        git = meta.get("git")
        if isinstance(git, dict):
            chain.once("git_branch", git.get("branch"))
        base = meta.get("base_instructions")
        chain.once("system_prompt", base.get("text") if isinstance(base, dict) else meta.get("instructions"))
        parent = meta.get("forked_from_id")
        # A fork repeats the lines of its parent, the parent's own session_meta among them.
        if isinstance(parent, str) and parent and chain.parent_id is None and meta.get("id") == chain.session_id:
            chain.parent_id, chain.relation = parent, "branch"

    # --- messages ----------------------------------------------------------------------------------------------

    def _item(
        self, chain: Chain, number: int, at: float, line: dict[str, Any], item: dict[str, Any], outer: dict[str, Any]
    ) -> Iterator[Event]:
        kind = str(item.get("type") or "")
        key = f"{NAME}:{number}"
        # The bare layout has its time in the item.
        taken = ("type", "timestamp") if item is line else ("type",)
        if kind == "message" and isinstance(item.get("role"), str) and item["role"]:
            role = item["role"]
            rest, content = rest_of(item, (*taken, "role", "content")), _content(item.get("content"))
            self._heard(content)
            yield self._row(chain, key, role, content, at, number, rest, outer)
            if role == "user":
                self._turns.append(key)
        elif kind == "reasoning":
            self._thinking.append(line)
        elif kind.endswith("_call_output"):
            yield self._output(chain, key, at, number, item, taken, outer)
        elif kind.endswith("_call"):
            call, name = item.get("call_id") or item.get("id"), item.get("name")
            tool = name if isinstance(name, str) and name else kind
            field = next((word for word in _ARGUMENTS if item.get(word) is not None), "")
            given = item.get(field)
            arguments = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
            if isinstance(call, str):
                self._tools[call] = tool
            rest = rest_of(item, (*taken, "name", "call_id", field))
            called = {"id": str(call or key), "type": "function", "function": {"name": tool, "arguments": arguments}}
            if kind != "function_call":
                rest["kind"] = kind
            yield self._row(chain, key, "assistant", None, at, number, rest, outer, tool_calls=[called])
        else:
            self.keep(chain, line)

    def _output(
        self, chain: Chain, key: str, at: float, number: int, item: dict[str, Any], taken: tuple[str, ...],
        outer: dict[str, Any],
    ) -> Event:
        self._flush(chain)
        value, call = item.get("output"), item.get("call_id")
        rest = rest_of(item, (*taken, "output", "call_id"))
        if item.get("type") != "function_call_output":
            rest["kind"] = item["type"]
        if isinstance(value, list):
            value = _content(value)
        elif not isinstance(value, (str, dict)) and value is not None:
            value = str(value)
        self.tally.messages_from += 1
        return self.message(
            chain,
            IncomingMessage(
                session_id=chain.session_id, key=key, role="tool", content=value, at=at, line=number,
                tool_call_id=call if isinstance(call, str) else None,
                tool_name=self._tools.get(call) if isinstance(call, str) else None, extra=_extra(rest, outer),
            ),
        )

    def _row(
        self, chain: Chain, key: str, role: str, content: Any, at: float, number: int, rest: dict[str, Any],
        outer: dict[str, Any], tool_calls: list[Any] | None = None,
    ) -> IncomingMessage:
        reasoning = None
        self.tally.messages_from += 1
        if role == "assistant" and self._thinking:
            lines, self._thinking = self._thinking, []
            self.tally.messages_from += len(lines)
            told = [_thoughts(line) for line in lines]
            reasoning = "\n\n".join(text for text, _ in told if text) or None
            rest = {**rest, "reasoning": [others for _, others in told]}
        else:
            self._flush(chain)
        return self.message(
            chain,
            IncomingMessage(
                session_id=chain.session_id, key=key, role=role, content=content, at=at, tool_calls=tool_calls,
                reasoning=reasoning, extra=_extra(rest, outer), line=number,
            ),
        )

    def _event(
        self, chain: Chain, number: int, at: float, line: dict[str, Any], event: dict[str, Any], outer: dict[str, Any]
    ) -> Iterator[Event]:
        kind = event.get("type")
        role = _SPOKEN.get(kind) if isinstance(kind, str) else None
        if role is not None and isinstance(event.get("message"), str):
            if self._items:
                self._mirror(hash(event["message"]), line, f"event {kind}")
                return
            key = f"{NAME}:{number}"
            rest = {**rest_of(event, ("type", "message")), "kind": kind}
            yield self._row(chain, key, role, event["message"], at, number, rest, outer)
            if role == "user":
                self._turns.append(key)
        elif kind == "agent_reasoning" and self._items:
            self.tally.left_out["event agent_reasoning"] += 1
        elif kind == "token_count":
            self.tally.left_out["event token_count"] += 1
            self._spend(chain, event.get("info"))
        else:
            self.keep(chain, line)
            if kind == "thread_rolled_back":
                turns = whole_number(event.get("num_turns"))
                if 0 < turns <= len(self._turns):
                    first = self._turns[-turns]
                    del self._turns[-turns:]
                    yield from self.hide(chain, "rewind", at, first)

    def _compacted(
        self, chain: Chain, number: int, at: float, line: dict[str, Any], item: dict[str, Any], outer: dict[str, Any]
    ) -> Iterator[Event]:
        """What came before leaves the context; the summary is a message that takes its place."""
        self._flush(chain)
        yield from self.hide(chain, "compact", at)
        text = item.get("message")
        if isinstance(text, str) and text:
            rest = {**rest_of(item, ("message", "type", "timestamp")), "kind": "compacted"}
            yield self._row(chain, f"{NAME}:{number}", "user", text, at, number, rest, outer)
        else:
            self.keep(chain, line)

    def _spend(self, chain: Chain, info: Any) -> None:
        """Token counts are totals of the session; the difference to the last one belongs to the model of now."""
        total = info.get("total_token_usage") if isinstance(info, dict) else None
        if not isinstance(total, dict):
            return
        names = ("input_tokens", "cached_input_tokens", "output_tokens", "reasoning_output_tokens")
        now = {name: whole_number(total.get(name)) for name in names}
        step = {name: max(0, now[name] - self._spent.get(name, 0)) for name in names}
        if not any(step.values()):
            return
        self._spent = now
        cached = min(step["cached_input_tokens"], step["input_tokens"])
        self.spend(
            chain,
            IncomingUsage(
                model=self._model or "unknown", provider="openai", api_calls=1,
                input_tokens=step["input_tokens"] - cached, cache_read_tokens=cached,
                output_tokens=step["output_tokens"], reasoning_tokens=step["reasoning_output_tokens"],
            ),
        )

    def _flush(self, chain: Chain) -> None:
        for line in self._thinking:
            self.keep(chain, line)
        self._thinking = []


def _has_message_items(path: Path) -> bool:
    for line in read_lines(path):
        if line.number > _FIRST_LINES:
            return False
        value = line.value or {}
        if value.get("type") == "response_item" and isinstance(value.get("payload"), dict):
            value = value["payload"]
        if value.get("type") == "message":
            return True
    return False


def _content(value: Any) -> Any:
    if isinstance(value, list):
        return content_of([_part(part) for part in value])
    return value if isinstance(value, (str, dict)) or value is None else str(value)


def _part(part: Any) -> Any:
    """A content part in OpenAI's chat shape: the text kinds are one kind, an image is a URL."""
    if isinstance(part, dict):
        kind = part.get("type")
        if kind in ("input_text", "output_text") and isinstance(part.get("text"), str):
            return {**part, "type": "text"}
        if kind == "input_image" and isinstance(part.get("image_url"), str):
            return {**part, "type": "image_url", "image_url": {"url": part["image_url"]}}
    return part


def _thoughts(line: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The readable text of a reasoning line, and what else it has."""
    payload = line.get("payload")
    item = payload if isinstance(payload, dict) else line
    parts: list[str] = []
    for name in ("summary", "content"):
        told = item.get(name)
        for part in told if isinstance(told, list) else ():
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                parts.append(part["text"])
    rest = rest_of(item, ("type",)) if not parts else rest_of(item, ("type", "summary", "content"))
    return "\n\n".join(parts), rest


def _extra(rest: dict[str, Any], outer: dict[str, Any]) -> dict[str, Any] | None:
    inner = {**rest, **({"line": outer} if outer else {})}
    return {NAME: inner} if inner else None
