"""Whatever the lines of a file are: no reader fails, every line is accounted for, growing changes no message."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maintenance.intake.claude import claude_source
from maintenance.intake.codex import codex_source
from maintenance.intake.known import encoded
from maintenance.intake.lines import NESTING, parse_object, read_lines
from maintenance.intake.model import IncomingMessage, Source
from maintenance.intake.records import RecordSource
from tests.maintenance.transcripts import CLAUDE_ID, claude_talk, codex_talk

# Words that the formats use, so that odd values stand where a reader looks.
WORDS = st.sampled_from(
    [
        "type",
        "uuid",
        "parentUuid",
        "sessionId",
        "timestamp",
        "message",
        "role",
        "content",
        "id",
        "payload",
        "user",
        "assistant",
        "system",
        "tool_use",
        "tool_result",
        "thinking",
        "text",
        "response_item",
        "event_msg",
        "session_meta",
        "compacted",
        "reasoning",
        "function_call",
        "function_call_output",
        "summary",
        "leafUuid",
        "isSidechain",
        "agentId",
        "usage",
        "model",
        "messages",
        "session",
        "export",
        "end",
        "format",
        "hermes-state/messages",
        "version",
        "call_id",
        "session_id",
        "parent_session_id",
        "active",
        "client_key",
        "tool_calls",
        "base64",
        "segments",
        "relation",
        "branch",
        "name",
        "input",
        "output",
        "arguments",
        "token_count",
        "info",
        "total_token_usage",
        "num_turns",
        "user_message",
        "thread_rolled_back",
        "compact_boundary",
        "subtype",
        "started_at",
        "state",
        "seq",
        "$original",
        "view_edits",
    ]
)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6) | WORDS
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS | st.text(max_size=3), inner, max_size=6),
    max_leaves=25,
)
OBJECTS = st.dictionaries(WORDS, VALUES, max_size=9)


def swapped(talk: list[dict[str, Any]]) -> st.SearchStrategy[Any]:
    """Real lines with some values replaced, at the top or one level down."""

    @st.composite
    def build(draw: st.DrawFn) -> dict[str, Any]:
        line: dict[str, Any] = json.loads(json.dumps(draw(st.sampled_from(talk))))
        inner = [line, *(value for value in line.values() if isinstance(value, dict))]
        for _ in range(draw(st.integers(0, 3))):
            draw(st.sampled_from(inner))[draw(st.sampled_from(sorted(line)) | WORDS)] = draw(VALUES)
        return line

    return build()


LINES = st.lists(
    swapped(claude_talk())
    | swapped(codex_talk())
    | OBJECTS
    | st.text(max_size=20).filter(lambda text: "\n" not in text),
    max_size=12,
)
READERS: list[tuple[str, Callable[[Path], Source]]] = [
    ("claude", claude_source),
    ("codex", codex_source),
    ("hermes-agent", lambda path: RecordSource(path, "hermes-agent")),
]


def file_of(folder: Path, lines: list[Any]) -> Path:
    path = folder / f"{CLAUDE_ID}.jsonl"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_bytes("".join(f"{text}\n" for text in texts).encode("utf-8", "surrogatepass"))
    return path


@pytest.mark.parametrize(("name", "reader"), READERS)
@pytest.mark.slow
def test_every_line_is_accounted_for_and_every_message_can_be_stored(
    name: str, reader: Callable[[Path], Source], tmp_path: Path
) -> None:
    @settings(max_examples=30)
    @given(lines=LINES)
    def check(lines: list[Any]) -> None:
        source = reader(file_of(tmp_path, lines))
        looked = source.look()
        assert looked.tally.accounted == looked.tally.lines
        found = [event for event in source.events() if isinstance(event, IncomingMessage)]
        assert len(found) == looked.tally.messages == sum(session.messages for session in looked.sessions)
        assert {message.session_id for message in found} <= {session.id for session in looked.sessions}
        for message in found:
            encoded(message, 0.0)
            json.dumps(message.extra, allow_nan=False).encode("utf-8")

    check()


@pytest.mark.parametrize(("name", "reader"), READERS[:2])
@pytest.mark.slow
def test_a_file_that_grew_has_the_same_messages_first(
    name: str, reader: Callable[[Path], Source], tmp_path: Path
) -> None:
    talk = claude_talk() if name == "claude" else codex_talk()
    # Codex writes what a person said as an item before anything else: whether a file has items is known by then.
    first = talk[:2]

    @settings(max_examples=30)
    @given(lines=st.lists(swapped(talk), min_size=1, max_size=14), share=st.integers(0, 14))
    def check(lines: list[Any], share: int) -> None:
        before = by_session(reader(file_of(tmp_path, first + lines[:share])))
        after = by_session(reader(file_of(tmp_path, first + lines)))
        for session_id, messages in before.items():
            assert after[session_id][: len(messages)] == messages

    check()


def by_session(source: Source) -> dict[str, list[IncomingMessage]]:
    found: dict[str, list[IncomingMessage]] = {}
    source.look()
    for event in source.events():
        if isinstance(event, IncomingMessage):
            found.setdefault(event.session_id, []).append(event)
    return found


@given(raw=st.binary(max_size=60))
def test_any_bytes_are_lines_or_named(raw: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("bytes", numbered=True) / "x.jsonl"
    path.write_bytes(raw)
    lines = list(read_lines(path))
    assert len(lines) == raw.count(b"\n") + (1 if raw and not raw.endswith(b"\n") else 0)
    assert [line.number for line in lines] == list(range(1, len(lines) + 1))


def test_what_json_can_say_and_a_store_cannot_is_replaced_or_named() -> None:
    assert parse_object(b'{"a": "x\\ud83dy", "b": [1e999, -1e999, NaN], "\\udc00": 1}') == (
        {"a": "x\ufffdy", "b": ["Infinity", "-Infinity", "NaN"], "\ufffd": 1},
        "",
    )
    assert parse_object(b'{"a": "\\ud83d\\ude00"}') == ({"a": "\U0001f600"}, "")
    assert parse_object(b'{"a": ' + b"[" * (NESTING + 5) + b"]" * (NESTING + 5) + b"}") == (
        None,
        "is nested too deeply",
    )
    assert parse_object(b"[" * 100_000) == (None, "is nested too deeply")
    assert parse_object(b'{"a": ' + b"9" * 5000 + b"}") == (None, "is not JSON")
    assert parse_object(b'{"a": "\xff"}') == (None, "is not UTF-8")


def test_a_line_that_is_too_long_is_named_and_the_next_one_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"a": "' + "x" * 100 + '"}\n{"b": 1}\n')
    long, short = read_lines(path, limit=50)
    assert (long.reason, short.number, short.value) == (
        "is longer than 50 bytes, the longest line that there is memory for", 2, {"b": 1}
    )
