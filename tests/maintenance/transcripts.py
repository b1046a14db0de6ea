"""Small transcripts of other programs, written line by line after their formats. Not for: real conversations."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

CLAUDE_ID = "5f3c2a10-0000-4000-8000-00000000000a"
CODEX_ID = "0199aaaa-bbbb-7ccc-8ddd-0000000000ff"


def write(path: Path, lines: Iterable[Any], *, end: str = "\n") -> Path:
    """A JSONL file; a line that is text stays as it is."""
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(texts) + end, encoding="utf-8")
    return path


def claude(kind: str, number: int, message: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """One line of a Claude Code transcript, the `number`-th second of its session."""
    line = {
        "parentUuid": f"u{number - 1}" if number > 1 else None,
        "isSidechain": False,
        "userType": "external",
        "cwd": "/srv/app",
        "sessionId": CLAUDE_ID,
        "version": "2.1.0",
        "gitBranch": "main",
        "type": kind,
        "uuid": f"u{number}",
        "timestamp": f"2026-05-04T10:00:{number:02d}.500Z",
    }
    return line | ({"message": message} if message is not None else {}) | more


def said(role: str, content: Any, **more: Any) -> dict[str, Any]:
    """The inner message of a line."""
    return {"role": role, "content": content} | more


def claude_talk() -> list[dict[str, Any]]:
    """A question, thoughts, a tool call, its result, an answer; and lines that are no messages."""
    model = {"model": "claude-opus-4-6", "type": "message"}
    usage = {"input_tokens": 5, "output_tokens": 40, "cache_read_input_tokens": 900, "cache_creation_input_tokens": 20}
    return [
        {"type": "file-history-snapshot", "messageId": "u1", "snapshot": {"trackedFileBackups": {}}},
        claude("user", 1, said("user", "What is in the folder?")),
        claude(
            "assistant",
            2,
            said(
                "assistant", [{"type": "thinking", "thinking": "I should look.", "signature": "c2ln"}], id="m1", **model
            ),
        ),
        claude(
            "assistant", 3, said("assistant", [{"type": "text", "text": "Let me look."}], id="m1", usage=usage, **model)
        ),
        claude(
            "assistant",
            4,
            said(
                "assistant",
                [{"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}],
                id="m1",
                usage=usage,
                stop_reason="tool_use",
                **model,
            ),
        ),
        claude(
            "user",
            5,
            said("user", [{"type": "tool_result", "tool_use_id": "t1", "content": "a.py\nb.py"}]),
            toolUseResult={"stdout": "a.py\nb.py", "interrupted": False},
        ),
        {"type": "progress", "data": {"type": "hook_progress"}, "uuid": "p1", "sessionId": CLAUDE_ID},
        claude(
            "assistant",
            6,
            said(
                "assistant",
                [{"type": "text", "text": "Two files."}],
                id="m2",
                usage=usage,
                stop_reason="end_turn",
                **model,
            ),
        ),
        {"type": "summary", "summary": "Looking at a folder", "leafUuid": "u6"},
    ]


def codex(kind: str, second: int, payload: dict[str, Any]) -> dict[str, Any]:
    """One line of a Codex rollout."""
    return {"timestamp": f"2026-05-04T11:00:{second:02d}.250Z", "type": kind, "payload": payload}


def codex_talk() -> list[dict[str, Any]]:
    """A question, reasoning, a call, its output, an answer; events that repeat them; token counts."""

    def text(role: str, kind: str, words: str) -> dict[str, Any]:
        return {"type": "message", "role": role, "content": [{"type": kind, "text": words}]}

    def tokens(total: int) -> dict[str, Any]:
        return {
            "type": "token_count",
            "info": {
                "total_token_usage": {
                    "input_tokens": total,
                    "cached_input_tokens": total // 2,
                    "output_tokens": 10,
                    "reasoning_output_tokens": 4,
                }
            },
        }

    return [
        codex(
            "session_meta",
            0,
            {
                "id": CODEX_ID,
                "timestamp": "2026-05-04T11:00:00Z",
                "cwd": "/srv/app",
                "cli_version": "0.90.0",
                "git": {"branch": "main", "commit_hash": "abc"},
                "base_instructions": {"text": "Be brief."},
            },
        ),
        codex("response_item", 1, text("user", "input_text", "List the files")),
        codex("event_msg", 1, {"type": "user_message", "message": "List the files", "kind": "plain"}),
        codex("turn_context", 1, {"cwd": "/srv/app", "model": "gpt-5-codex", "effort": "high"}),
        codex(
            "response_item",
            2,
            {
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": "A listing is enough."}],
                "encrypted_content": "b3BhcXVl",
            },
        ),
        codex(
            "response_item",
            3,
            {"type": "function_call", "name": "shell", "arguments": '{"command":["ls"]}', "call_id": "c1"},
        ),
        codex("response_item", 4, {"type": "function_call_output", "call_id": "c1", "output": "a.py"}),
        codex("event_msg", 4, tokens(100)),
        codex("event_msg", 5, {"type": "agent_message", "message": "One file."}),
        codex("response_item", 5, text("assistant", "output_text", "One file.")),
        codex("event_msg", 5, tokens(180)),
    ]
