"""Session transcripts of Claude Code: `~/.claude/projects/<folder>/<session>.jsonl` and its `agent-*.jsonl` files.

Invariant: a `user` or `assistant` line becomes messages whose key is the line's uuid; a thinking line, which Claude
Code writes before the text it belongs to, becomes the `reasoning` of that text; every other line is kept beside the
next message. Work of subagents (`isSidechain`) is a session of its own, a delegate of the main one.

Not for: hiding abandoned branches. `parentUuid` is kept and not followed: the results of parallel tool calls are
siblings in that tree, so following it from the newest line loses results that the model saw.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from maintenance.intake.model import Event, IncomingMessage, IncomingUsage, SourceName
from maintenance.intake.transcript import (
    Chain,
    ChainReader,
    TranscriptSource,
    content_of,
    rest_of,
    short_hash,
    time_of,
    uuid_of_name,
    whole_number,
)

NAME: Final = "claude"
# Lines that report on the work of a subagent while it runs; its messages are in a file of their own.
_LEFT_OUT = ("progress",)
_FINISH = {"tool_use": "tool_calls", "end_turn": "stop", "max_tokens": "length"}
# Fields that are the same on most lines: kept once, with the session.
_CONSTANT = ("cwd", "gitBranch", "version", "userType", "sessionId", "entrypoint", "slug", "agentId", "isSidechain")
_TAKEN = ("type", "uuid", "timestamp", "message")


def claude_source(path: Path) -> TranscriptSource:
    """A transcript of Claude Code."""
    return TranscriptSource(path, NAME, "claude-code", ClaudeReader)


class ClaudeReader(ChainReader):
    """One pass over one file."""

    name: SourceName = NAME

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._main = uuid_of_name(path)
        self._seen: dict[str, str] = {}  # uuid of a line -> hash of it
        self._tools: dict[str, str] = {}  # id of a tool call -> name of the tool
        self._branch: dict[str, str] = {}  # uuid of a line of a subagent -> its session
        self._thinking: dict[str, dict[str, Any]] = {}  # session -> a thinking line that waits for its text
        self._counted: set[str] = set()  # model calls whose usage is counted: each of their lines repeats it
        self._models: dict[str, str] = {}  # session -> the model whose name is not repeated in every message
        self._early: list[tuple[int, dict[str, Any]]] = []  # lines from before it is known which session they are of
        self._titles: list[tuple[Chain, dict[str, Any]]] = []  # a summary may come before the line that it names

    def feed(self, number: int, line: dict[str, Any]) -> Iterator[Event]:
        """The events of one line, and of those before it that waited for the session's id."""
        if not self._main:
            said = line.get("sessionId")
            if isinstance(said, str) and said and not line.get("agentId"):
                self._main = said
            elif line.get("type") in ("user", "assistant"):
                self._main = self.path.stem
            else:
                self._early.append((number, line))
                return
            yield from self._settle_early()
        yield from self._events(number, line)

    def _settle_early(self) -> Iterator[Event]:
        early, self._early = self._early, []
        for number, line in early:
            yield from self._events(number, line)

    def _events(self, number: int, line: dict[str, Any]) -> Iterator[Event]:
        kind = line.get("type")
        if kind in _LEFT_OUT:
            self.tally.left_out[str(kind)] += 1
            return
        uuid = line.get("uuid") if isinstance(line.get("uuid"), str) else ""
        content = line.get("message")
        if kind in ("user", "assistant") and isinstance(content, dict):
            key = str(uuid) or f"line-{number}"
            if uuid:
                digest = short_hash(line)
                if self._seen.get(key) == digest:
                    self.tally.repeated += 1
                    return
                if key in self._seen:
                    key = f"{key}.{digest}"
                self._seen.setdefault(str(uuid), digest)
            chain = self._chain_of(line, str(uuid))
            at = chain.see(time_of(line.get("timestamp")))
            self._facts(chain, line)
            if kind == "user":
                yield from self._user(chain, key, at, number, line, content)
            else:
                yield from self._assistant(chain, key, at, number, line, content)
            return
        chain = self._chain_of(line, str(uuid))
        at = chain.see(time_of(line.get("timestamp"))) if uuid else chain.at or 0.0
        self.keep(chain, line)
        if kind in ("custom-title", "ai-title", "summary"):
            self._titles.append((chain, line))
        if kind == "system" and line.get("subtype") == "compact_boundary":
            yield from self.hide(chain, "compact", at)

    def finish(self) -> Iterator[Event]:
        """Titles, now that every line was seen; a thinking line whose text never came is kept with the session."""
        self._main = self._main or self.path.stem
        yield from self._settle_early()
        for chain, line in self._titles:
            self._title(chain, line)
        for chain in self.chains.values():
            self._flush(chain)

    # --- which session -----------------------------------------------------------------------------------------

    def _chain_of(self, line: dict[str, Any], uuid: str) -> Chain:
        main = self._main
        if line.get("isSidechain") is not True:
            return self.chain(main)
        owner = line.get("sessionId")
        parent = owner if isinstance(owner, str) and owner else main
        agent, before = line.get("agentId"), line.get("parentUuid")
        if isinstance(agent, str) and agent:
            own = f"{parent}.agent-{agent}"
        elif isinstance(before, str) and before in self._branch:
            own = self._branch[before]
        else:
            own = f"{parent}.side-{uuid[:8] or 'first'}"
        if uuid:
            self._branch[uuid] = own
        chain = self.chain(own)
        chain.parent_id, chain.relation = parent, "delegate"
        return chain

    def _facts(self, chain: Chain, line: dict[str, Any]) -> None:
        chain.once("cwd", line.get("cwd"))
        chain.once("git_branch", line.get("gitBranch"))
        constant = chain.extra.setdefault("constant", {})
        for name in _CONSTANT:
            if line.get(name) is not None:
                constant.setdefault(name, line[name])

    def _title(self, chain: Chain, line: dict[str, Any]) -> None:
        kind = line.get("type")
        if kind == "custom-title" and isinstance(line.get("customTitle"), str):
            chain.columns["title"], chain.columns["title_source"] = line["customTitle"], "user"
        elif chain.columns.get("title_source") != "user":
            found = line.get("aiTitle") if kind == "ai-title" else line.get("summary") if kind == "summary" else None
            # A summary line names the last line of the conversation that it sums up; often that is another file's.
            if isinstance(found, str) and (kind == "ai-title" or str(line.get("leafUuid")) in self._seen):
                chain.columns["title"], chain.columns["title_source"] = found, "llm"

    # --- messages ----------------------------------------------------------------------------------------------

    def _user(
        self, chain: Chain, key: str, at: float, number: int, line: dict[str, Any], message: dict[str, Any]
    ) -> Iterator[Event]:
        self._flush(chain)
        self.tally.messages_from += 1
        content = message.get("content")
        extra = self._extra(chain, line, message, ("role", "content"))
        if not isinstance(content, list):
            value = content if isinstance(content, (str, dict)) or content is None else str(content)
            yield self._row(chain, key, "user", value, at, number, extra)
            return
        groups: list[list[Any]] = []
        for block in content:
            alone = _kind(block) == "tool_result"
            if alone or not groups or _kind(groups[-1][0]) == "tool_result":
                groups.append([])
            groups[-1].append(block)
        for place, blocks in enumerate(groups or [[]]):
            own = key if place == 0 else f"{key}/{place}"
            rest = extra if place == 0 else None
            if blocks and _kind(blocks[0]) == "tool_result":
                yield self._result(chain, own, at, number, blocks[0], rest)
            else:
                yield self._row(chain, own, "user", content_of([_part(block) for block in blocks]), at, number, rest)

    def _result(
        self, chain: Chain, key: str, at: float, number: int, block: dict[str, Any], extra: dict[str, Any] | None
    ) -> IncomingMessage:
        value = block.get("content")
        if isinstance(value, list):
            value = content_of([_part(part) for part in value])
        elif not isinstance(value, (str, dict)) and value is not None:
            value = str(value)
        call = block.get("tool_use_id")
        rest = rest_of(block, ("type", "tool_use_id", "content") if isinstance(call, str) else ("type", "content"))
        if rest:
            extra = {NAME: {**(extra or {}).get(NAME, {}), "result": rest}}
        return self.message(
            chain,
            IncomingMessage(
                session_id=chain.session_id, key=f"{NAME}:{key}", role="tool", content=value, at=at, line=number,
                tool_call_id=call if isinstance(call, str) else None,
                tool_name=self._tools.get(call) if isinstance(call, str) else None, extra=extra,
            ),
        )

    def _assistant(
        self, chain: Chain, key: str, at: float, number: int, line: dict[str, Any], message: dict[str, Any]
    ) -> Iterator[Event]:
        content = message.get("content")
        blocks = content if isinstance(content, list) else _as_blocks(content)
        kinds = [_kind(block) for block in blocks]
        self._count(chain, message)
        waiting = self._thinking.get(chain.session_id)
        if waiting is not None and waiting["message"].get("id") != message.get("id"):
            self._flush(chain)
            waiting = None
        if kinds == ["thinking"] and isinstance(message.get("id"), str) and waiting is None:
            self._thinking[chain.session_id] = line
            return
        self._thinking.pop(chain.session_id, None)
        self.tally.messages_from += 1 if waiting is None else 2
        extra = self._extra(chain, line, message, ("role", "content", "stop_reason", "type"))
        own = dict((extra or {}).get(NAME, {}))
        thoughts: list[str] = []
        if waiting is not None:
            block = waiting["message"]["content"][0]
            thoughts.append(str(block.get("thinking", "")))
            own["thinking_line"] = {
                **waiting, "message": {**waiting["message"], "content": [rest_of(block, ("thinking",))]}
            }
        thinking = [block for block in blocks if _kind(block) == "thinking"]
        thoughts += [str(block.get("thinking", "")) for block in thinking]
        if rests := [rest for block in thinking if (rest := rest_of(block, ("type", "thinking")))]:
            own["thinking"] = rests
        uses = [block for block in blocks if _kind(block) == "tool_use"]
        if rests := [rest for block in uses if (rest := rest_of(block, ("type", "id", "name", "input")))]:
            own["tool_use"] = rests
        parts = [_part(block) for block in blocks if _kind(block) not in ("thinking", "tool_use")]
        expected = ["thinking"] * len(thinking) + ["text"] * len(parts) + ["tool_use"] * len(uses)
        if kinds != expected:
            own["order"] = kinds
        stop = message.get("stop_reason")
        yield self.message(
            chain,
            IncomingMessage(
                session_id=chain.session_id, key=f"{NAME}:{key}", role="assistant", content=content_of(parts), at=at,
                tool_calls=[self._call(block) for block in uses] or None, line=number,
                reasoning="\n\n".join(text for text in thoughts if text) or None,
                finish_reason=_FINISH.get(stop, stop) if isinstance(stop, str) else None,
                extra={NAME: own} if own else None,
            ),
        )

    def _call(self, block: dict[str, Any]) -> dict[str, Any]:
        name, call = str(block.get("name") or ""), str(block.get("id") or "")
        self._tools[call] = name
        arguments = json.dumps(block.get("input"), ensure_ascii=False)
        return {"id": call, "type": "function", "function": {"name": name, "arguments": arguments}}

    def _row(
        self, chain: Chain, key: str, role: str, content: Any, at: float, number: int, extra: dict[str, Any] | None
    ) -> IncomingMessage:
        return self.message(
            chain,
            IncomingMessage(
                session_id=chain.session_id, key=f"{NAME}:{key}", role=role, content=content, at=at, line=number,
                extra=extra,
            ),
        )

    def _extra(
        self, chain: Chain, line: dict[str, Any], message: dict[str, Any], taken: tuple[str, ...]
    ) -> dict[str, Any] | None:
        constant = chain.extra.get("constant", {})
        rest = {name: value for name, value in rest_of(line, _TAKEN).items() if constant.get(name) != value}
        model = self._models.get(chain.session_id)
        inner = {
            name: value for name, value in rest_of(message, taken).items() if not (name == "model" and value == model)
        }
        if inner:
            rest["message"] = inner
        return {NAME: rest} if rest else None

    def _count(self, chain: Chain, message: dict[str, Any]) -> None:
        model, usage, call = message.get("model"), message.get("usage"), message.get("id")
        if isinstance(model, str) and model and not model.startswith("<"):
            chain.once("model", model)
            self._models.setdefault(chain.session_id, model)
        if not isinstance(usage, dict) or not isinstance(model, str) or not isinstance(call, str):
            return
        if call in self._counted:
            return
        self._counted.add(call)
        self.spend(
            chain,
            IncomingUsage(
                model=model, provider="anthropic", api_calls=1,
                input_tokens=whole_number(usage.get("input_tokens")),
                output_tokens=whole_number(usage.get("output_tokens")),
                cache_read_tokens=whole_number(usage.get("cache_read_input_tokens")),
                cache_write_tokens=whole_number(usage.get("cache_creation_input_tokens")),
            ),
        )

    def _flush(self, chain: Chain) -> None:
        """A thinking line that no text followed is kept as it is."""
        if (line := self._thinking.pop(chain.session_id, None)) is not None:
            self.keep(chain, line)


def _as_blocks(content: Any) -> list[Any]:
    return [] if content is None else [{"type": "text", "text": content if isinstance(content, str) else str(content)}]


def _kind(block: Any) -> str:
    return str(block.get("type", "")) if isinstance(block, dict) else ""


def _part(block: Any) -> Any:
    """A content part in OpenAI's shape where there is one: base64 images become data URLs."""
    source = block.get("source") if _kind(block) == "image" and block.keys() == {"type", "source"} else None
    if isinstance(source, dict) and source.keys() == {"type", "media_type", "data"} and source["type"] == "base64":
        url = f"data:{source['media_type']};base64,{source['data']}"
        return {"type": "image_url", "image_url": {"url": url}}
    return block
