"""Transcripts of Claude Code: which lines become which messages, and that every line is accounted for."""

from __future__ import annotations

from pathlib import Path

from maintenance.intake.claude import claude_source
from maintenance.intake.model import Hide, IncomingMessage
from tests.maintenance.transcripts import CLAUDE_ID, claude, claude_talk, said, write

START = 1777888801.5  # 2026-05-04T10:00:01.5Z


def messages(path: Path) -> list[IncomingMessage]:
    source = claude_source(path)
    source.look()
    return [event for event in source.events() if isinstance(event, IncomingMessage)]


def test_a_conversation_becomes_a_session_with_its_facts_and_what_it_cost(tmp_path: Path) -> None:
    path = write(tmp_path / f"{CLAUDE_ID}.jsonl", claude_talk())
    looked = claude_source(path).look()
    [session] = looked.sessions
    assert (session.id, session.source, session.started_at, session.messages) == (CLAUDE_ID, "claude-code", START, 5)
    assert dict(session.columns) == {
        "cwd": "/srv/app",
        "git_branch": "main",
        "model": "claude-opus-4-6",
        "title": "Looking at a folder",
        "title_source": "llm",
    }
    [usage] = session.usage
    assert (usage.model, usage.provider, usage.api_calls, usage.output_tokens, usage.cache_read_tokens) == (
        "claude-opus-4-6",
        "anthropic",
        2,
        80,
        1800,
    )
    tally = looked.tally
    assert (tally.lines, tally.accounted, tally.messages) == (9, 9, 5)
    assert (tally.messages_from, tally.kept, dict(tally.left_out)) == (6, 2, {"progress": 1})
    assert session.extra["claude"]["after"] == [claude_talk()[-1]]
    assert session.extra["claude"]["constant"]["version"] == "2.1.0"


def test_blocks_become_content_reasoning_calls_and_results(tmp_path: Path) -> None:
    question, thought, call, result, answer = messages(write(tmp_path / f"{CLAUDE_ID}.jsonl", claude_talk()))
    assert (question.role, question.content, question.key) == ("user", "What is in the folder?", "claude:u1")
    assert question.extra == {"claude": {"before": [claude_talk()[0]]}}
    assert (thought.role, thought.content, thought.reasoning, thought.key) == (
        "assistant",
        "Let me look.",
        "I should look.",
        "claude:u3",
    )
    assert thought.extra is not None
    assert thought.extra["claude"]["thinking_line"]["message"]["content"] == [{"type": "thinking", "signature": "c2ln"}]
    assert (call.content, call.finish_reason) == (None, "tool_calls")
    assert call.tool_calls == [
        {"id": "t1", "type": "function", "function": {"name": "Bash", "arguments": '{"command": "ls"}'}}
    ]
    assert (result.role, result.content, result.tool_call_id, result.tool_name) == ("tool", "a.py\nb.py", "t1", "Bash")
    assert result.extra is not None
    assert result.extra["claude"]["toolUseResult"] == {"stdout": "a.py\nb.py", "interrupted": False}
    assert (answer.content, answer.finish_reason) == ("Two files.", "stop")


def test_one_line_with_several_results_and_a_text_becomes_several_messages(tmp_path: Path) -> None:
    blocks = [
        {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "one"}], "is_error": True},
        {"type": "tool_result", "tool_use_id": "t2", "content": "two"},
        {"type": "text", "text": "go on"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
    ]
    path = write(tmp_path / f"{CLAUDE_ID}.jsonl", [claude("user", 1, said("user", blocks))])
    one, two, text = messages(path)
    assert [message.key for message in (one, two, text)] == ["claude:u1", "claude:u1/1", "claude:u1/2"]
    assert (one.content, one.extra) == ("one", {"claude": {"result": {"is_error": True}}})
    assert (two.role, two.content, two.tool_call_id) == ("tool", "two", "t2")
    assert text.content == [
        {"type": "text", "text": "go on"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    ]


def test_a_thought_without_a_text_is_kept_and_is_no_message(tmp_path: Path) -> None:
    thinking = claude("assistant", 2, said("assistant", [{"type": "thinking", "thinking": "hm"}], id="m1"))
    path = write(
        tmp_path / f"{CLAUDE_ID}.jsonl",
        [claude("user", 1, said("user", "a")), thinking, claude("user", 3, said("user", "b"))],
    )
    _, second = messages(path)
    assert second.extra == {"claude": {"parentUuid": "u2", "before": [thinking]}}


def test_work_of_subagents_is_a_session_of_its_own(tmp_path: Path) -> None:
    inline = claude("user", 2, said("user", "do this"), isSidechain=True)
    reply = claude("assistant", 3, said("assistant", "done", id="m"), isSidechain=True)
    agent = claude("user", 4, said("user", "and that"), isSidechain=True, agentId="ab12")
    path = write(tmp_path / f"{CLAUDE_ID}.jsonl", [claude("user", 1, said("user", "a")), inline, reply, agent])
    sessions = claude_source(path).look().sessions
    assert [(session.id, session.parent_id, session.relation, session.messages) for session in sessions] == [
        (CLAUDE_ID, None, None, 1),
        (f"{CLAUDE_ID}.side-u2", CLAUDE_ID, "delegate", 2),
        (f"{CLAUDE_ID}.agent-ab12", CLAUDE_ID, "delegate", 1),
    ]
    own_file = write(tmp_path / "agent-ab12.jsonl", [agent])
    [alone] = claude_source(own_file).look().sessions
    assert (alone.id, alone.parent_id) == (f"{CLAUDE_ID}.agent-ab12", CLAUDE_ID)


def test_a_compaction_hides_what_came_before_it_from_the_context(tmp_path: Path) -> None:
    boundary = claude("system", 3, subtype="compact_boundary", content="Conversation compacted")
    path = write(
        tmp_path / f"{CLAUDE_ID}.jsonl",
        [
            claude("user", 1, said("user", "a")),
            claude("assistant", 2, said("assistant", "b", id="m")),
            boundary,
            claude("user", 4, said("user", "summary of it"), isCompactSummary=True),
            boundary | {"uuid": "u5"},
        ],
    )
    source = claude_source(path)
    source.look()
    hides = [event for event in source.events() if isinstance(event, Hide)]
    assert [(hide.kind, hide.first_key, hide.last_key) for hide in hides] == [
        ("compact", "claude:u1", "claude:u2"),
        ("compact", "claude:u4", "claude:u4"),
    ]


def test_a_line_that_comes_twice_is_one_message_and_a_changed_one_is_two(tmp_path: Path) -> None:
    first = claude("user", 1, said("user", "a"))
    path = write(tmp_path / f"{CLAUDE_ID}.jsonl", [first, first, first | {"message": said("user", "b")}])
    looked = claude_source(path).look()
    assert (looked.tally.repeated, looked.tally.messages) == (1, 2)
    keys = [message.key for message in messages(path)]
    assert keys[0] == "claude:u1" and keys[1].startswith("claude:u1.") and len(keys[1]) == len("claude:u1.") + 16


def test_a_torn_last_line_waits_and_a_bad_one_is_named(tmp_path: Path) -> None:
    path = write(
        tmp_path / f"{CLAUDE_ID}.jsonl",
        [claude("user", 1, said("user", "a")), "{broken", "", '["no object"]', '{"type":"user","uuid":"u2'],
        end="",
    )
    tally = claude_source(path).look().tally
    assert (tally.lines, tally.accounted, tally.messages, tally.blank, tally.unfinished) == (5, 5, 1, 1, 1)
    assert [(problem.line, problem.reason) for problem in tally.problems] == [
        (2, "is not JSON"),
        (4, "is not a JSON object"),
    ]


def test_a_title_of_a_person_stays_above_one_of_a_model(tmp_path: Path) -> None:
    path = write(
        tmp_path / f"{CLAUDE_ID}.jsonl",
        [
            claude("user", 1, said("user", "a")),
            {"type": "custom-title", "customTitle": "Mine", "sessionId": CLAUDE_ID},
            {"type": "ai-title", "aiTitle": "Theirs", "sessionId": CLAUDE_ID},
            {"type": "summary", "summary": "Of another file", "leafUuid": "elsewhere"},
        ],
    )
    [session] = claude_source(path).look().sessions
    assert (session.columns["title"], session.columns["title_source"]) == ("Mine", "user")


def test_a_file_that_grows_while_it_is_read_is_read_as_far_as_it_was_looked_at(tmp_path: Path) -> None:
    path = write(tmp_path / f"{CLAUDE_ID}.jsonl", [claude("user", 1, said("user", "a"))])
    source = claude_source(path)
    source.look()
    with path.open("a") as more:
        more.write('{"type":"user"')
    assert len(list(source.events())) == 1


def test_a_file_without_any_message_is_no_session_and_its_lines_are_counted(tmp_path: Path) -> None:
    looked = claude_source(write(tmp_path / "x.jsonl", [{"type": "summary", "summary": "s", "leafUuid": "l"}])).look()
    assert looked.sessions == () and dict(looked.tally.left_out) == {"no conversation": 1}
    assert looked.tally.accounted == looked.tally.lines == 1


def test_a_summary_on_the_first_line_hides_neither_the_id_nor_itself(tmp_path: Path) -> None:
    summary = {"type": "summary", "summary": "About a", "leafUuid": "u1"}
    path = write(tmp_path / "copy.jsonl", [summary, claude("user", 1, said("user", "a"))])
    looked = claude_source(path).look()
    [session] = looked.sessions
    assert (session.id, session.columns["title"], session.columns["title_source"]) == (CLAUDE_ID, "About a", "llm")
    assert looked.tally.accounted == looked.tally.lines == 2
    [message] = messages(path)
    assert message.extra == {"claude": {"before": [summary]}}


def test_a_conversation_that_never_says_its_session_has_the_name_of_its_file(tmp_path: Path) -> None:
    line = {"type": "user", "uuid": "u1", "parentUuid": None, "message": said("user", "a")}
    summary = {"type": "summary", "summary": "Elsewhere", "leafUuid": "x"}
    [session] = claude_source(write(tmp_path / "talk.jsonl", [summary, line])).look().sessions
    assert (session.id, "title" in session.columns) == ("talk", False)
