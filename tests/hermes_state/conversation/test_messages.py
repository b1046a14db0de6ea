"""The public face: every call by its name, from threads and in read-only stores."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from hermes_state import open_store
from hermes_state.conversation.messages import Messages
from hermes_state.errors import ReadOnlyStore

NAMES = {
    "append", "append_many", "stream", "context", "history", "around", "rewind", "restore", "count", "find_platform_id",
    "get", "delete", "settle", "unsettled", "settle_interrupted",
}


def test_the_public_names_are_the_promised_ones_and_all_are_documented() -> None:
    public = {name: member for name, member in inspect.getmembers(Messages, inspect.isfunction) if name[0] != "_"}

    assert set(public) == NAMES
    assert [name for name, member in public.items() if not inspect.getdoc(member)] == []


def test_the_signature_that_other_code_calls_is_the_promised_one() -> None:
    promised = [
        "session_id", "role", "content", "tool_calls", "tool_call_id", "tool_name", "finish_reason", "token_count",
        "reasoning", "platform_message_id", "client_key", "at",
    ]
    parameters = inspect.signature(Messages.append).parameters

    assert [name for name in parameters if name in promised] == promised
    assert all(parameters[name].kind is inspect.Parameter.KEYWORD_ONLY for name in promised[1:])


def test_a_store_that_is_only_read_shows_everything_and_takes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with open_store(path=path) as store:
        store.sessions.create(id="s", source="cli")
        message_id = store.messages.append("s", role="user", content="hi", platform_message_id="p")
    with open_store(path=path, read_only=True) as reading:
        assert reading.messages.context("s") == [{"role": "user", "content": "hi"}]
        assert reading.messages.history("s").messages == (reading.messages.get(message_id),)
        assert reading.messages.around("s", message_id).anchor == 0
        assert (reading.messages.count("s"), reading.messages.find_platform_id("s", "p")) == (1, message_id)
        assert reading.messages.unsettled() == []
        for write in (
            lambda: reading.messages.append("s", role="user", content="x"),
            lambda: reading.messages.rewind("s", message_id),
            lambda: reading.messages.settle("s"),
        ):
            with pytest.raises(ReadOnlyStore):
                write()
