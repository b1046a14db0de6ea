"""Transcripts of Codex, the present layout and the older bare one."""

from __future__ import annotations

from pathlib import Path

from maintenance.intake.codex import codex_source
from maintenance.intake.model import Hide, IncomingMessage
from tests.maintenance.transcripts import CODEX_ID, codex, codex_talk, write

NAME = f"rollout-2026-05-04T11-00-00-{CODEX_ID}.jsonl"


def messages(path: Path) -> list[IncomingMessage]:
    return [event for event in codex_source(path).events() if isinstance(event, IncomingMessage)]


def test_a_conversation_becomes_a_session_with_its_facts_and_what_it_cost(tmp_path: Path) -> None:
    looked = codex_source(write(tmp_path / NAME, codex_talk())).look()
    [session] = looked.sessions
    assert (session.id, session.source, session.started_at, session.messages) == (CODEX_ID, "codex", 1777892400.25, 4)
    assert dict(session.columns) == {
        "cwd": "/srv/app",
        "git_branch": "main",
        "model": "gpt-5-codex",
        "system_prompt": "Be brief.",
    }
    [usage] = session.usage
    assert (usage.model, usage.api_calls, usage.input_tokens, usage.cache_read_tokens, usage.output_tokens) == (
        "gpt-5-codex",
        2,
        90,
        90,
        10,
    )
    tally = looked.tally
    assert (tally.lines, tally.accounted, tally.messages, tally.messages_from, tally.kept) == (11, 11, 4, 5, 2)
    assert dict(tally.left_out) == {"event user_message": 1, "event agent_message": 1, "event token_count": 2}


def test_items_become_messages_and_reasoning_goes_with_what_it_led_to(tmp_path: Path) -> None:
    question, call, output, answer = messages(write(tmp_path / NAME, codex_talk()))
    assert (question.role, question.content, question.key) == ("user", "List the files", "codex:2")
    assert question.extra == {"codex": {"before": [codex_talk()[0]]}}
    assert (call.role, call.content, call.reasoning) == ("assistant", None, "A listing is enough.")
    assert call.tool_calls == [
        {"id": "c1", "type": "function", "function": {"name": "shell", "arguments": '{"command":["ls"]}'}}
    ]
    assert call.extra == {"codex": {"reasoning": [{"encrypted_content": "b3BhcXVl"}], "before": [codex_talk()[3]]}}
    assert (output.role, output.content, output.tool_call_id, output.tool_name) == ("tool", "a.py", "c1", "shell")
    assert (answer.role, answer.content, answer.at) == ("assistant", "One file.", 1777892405.25)


def test_the_bare_layout_gives_the_same_kinds_of_messages(tmp_path: Path) -> None:
    path = write(
        tmp_path / "rollout-2025-08-20T13-20-47-x.jsonl",
        [
            {
                "id": "old-1",
                "timestamp": "2025-08-20T13:20:47.060Z",
                "instructions": "Be kind.",
                "git": {"branch": "dev"},
            },
            {"record_type": "state"},
            {"type": "message", "id": None, "role": "user", "content": [{"type": "input_text", "text": "hello"}]},
            {"type": "reasoning", "id": "r1", "summary": [], "encrypted_content": "b3BhcXVl"},
            {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": "*** Begin"},
            {"type": "custom_tool_call_output", "call_id": "c1", "output": {"output": "ok", "success": True}},
            {
                "type": "local_shell_call",
                "id": "l1",
                "action": {"type": "exec", "command": ["ls"]},
                "status": "completed",
            },
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hi"}]},
        ],
    )
    looked = codex_source(path).look()
    [session] = looked.sessions
    assert (session.id, session.columns["git_branch"], session.columns["system_prompt"]) == ("old-1", "dev", "Be kind.")
    assert looked.tally.accounted == looked.tally.lines == 8
    found = messages(path)
    assert [(message.role, message.key) for message in found] == [
        ("user", "codex:3"),
        ("assistant", "codex:5"),
        ("tool", "codex:6"),
        ("assistant", "codex:7"),
        ("assistant", "codex:8"),
    ]
    assert {message.at for message in found} == {session.started_at}
    assert found[1].extra == {
        "codex": {
            "kind": "custom_tool_call",
            "reasoning": [{"id": "r1", "summary": [], "encrypted_content": "b3BhcXVl"}],
        }
    }
    assert found[2].content == {"output": "ok", "success": True}
    assert found[3].tool_calls == [
        {
            "id": "l1",
            "type": "function",
            "function": {"name": "local_shell_call", "arguments": '{"type": "exec", "command": ["ls"]}'},
        }
    ]


def test_a_file_with_events_only_is_read_from_its_events(tmp_path: Path) -> None:
    path = write(
        tmp_path / NAME,
        [
            codex("session_meta", 0, {"id": "s1"}),
            codex("event_msg", 1, {"type": "user_message", "message": "hello"}),
            codex("event_msg", 2, {"type": "agent_message", "message": "hi"}),
        ],
    )
    assert [(message.role, message.content) for message in messages(path)] == [("user", "hello"), ("assistant", "hi")]


def test_an_event_that_no_item_repeats_is_kept_with_the_session(tmp_path: Path) -> None:
    lost = codex("event_msg", 6, {"type": "agent_message", "message": "Only in the event."})
    looked = codex_source(write(tmp_path / NAME, [*codex_talk(), lost])).look()
    assert looked.sessions[0].extra == {"codex": {"after": [lost]}}
    assert looked.tally.accounted == looked.tally.lines


def test_compaction_and_rollback_hide_messages(tmp_path: Path) -> None:
    def user(second: int, text: str) -> dict[str, object]:
        return codex("response_item", second, {"type": "message", "role": "user", "content": text})

    path = write(
        tmp_path / NAME,
        [
            user(1, "one"),
            codex("compacted", 2, {"message": "It was about one."}),
            user(3, "two"),
            user(4, "three"),
            codex("event_msg", 5, {"type": "thread_rolled_back", "num_turns": 2}),
        ],
    )
    events = list(codex_source(path).events())
    assert [(hide.kind, hide.first_key, hide.last_key) for hide in events if isinstance(hide, Hide)] == [
        ("compact", "codex:1", "codex:1"),
        ("rewind", "codex:3", "codex:4"),
    ]
    assert [event.content for event in events if isinstance(event, IncomingMessage)] == [
        "one",
        "It was about one.",
        "two",
        "three",
    ]


def test_a_fork_is_a_branch_of_its_parent_and_its_copy_of_the_parents_header_changes_nothing(tmp_path: Path) -> None:
    path = write(
        tmp_path / NAME,
        [
            codex("session_meta", 0, {"id": CODEX_ID, "forked_from_id": "parent-1"}),
            codex("session_meta", 0, {"id": "parent-1", "forked_from_id": "grandparent"}),
            codex("response_item", 1, {"type": "message", "role": "user", "content": "x"}),
        ],
    )
    [session] = codex_source(path).look().sessions
    assert (session.id, session.parent_id, session.relation) == (CODEX_ID, "parent-1", "branch")
