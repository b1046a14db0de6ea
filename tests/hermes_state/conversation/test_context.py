"""What a model is sent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_state import open_store
from hermes_state.conversation.pairing import NOT_RECORDED
from hermes_state.errors import SessionDeleted, SessionNotFound
from hermes_state.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(path=tmp_path / "state.db") as opened:
        opened.sessions.create(id="s", source="cli")
        yield opened


def contents(store: Store, session_id: str = "s") -> list[object]:
    return [message["content"] for message in store.messages.context(session_id)]


def edit(store: Store, action: str, first: int, last: int, session_id: str = "s") -> None:
    store.core.write(lambda tx: tx.execute(
        "INSERT INTO view_edits (session_no, action, from_seq, to_seq, made_at) SELECT no, ?, ?, ?, 0 FROM sessions"
        " WHERE id = ?", (action, first, last, session_id),
    ))


def test_messages_have_openai_chat_shape(store: Store) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
    store.messages.append_many("s", [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "assistant", "tool_calls": [call], "reasoning": "look first", "finish_reason": "tool_calls"},
        {"role": "tool", "content": "a b", "tool_call_id": "call_1|fc_9", "tool_name": "ls"},
        {"role": "assistant", "content": "two files", "token_count": 3, "extra": {"observed": True}},
    ])

    assert store.messages.context("s") == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "assistant", "content": None, "tool_calls": [call], "reasoning": "look first"},
        {"role": "tool", "content": "a b", "tool_call_id": "call_1", "name": "ls"},
        {"role": "assistant", "content": "two files"},
    ]
    with_extras = store.messages.context("s", extras=True)
    assert with_extras[4] == {"role": "assistant", "content": "two files", "observed": True}


def test_a_session_without_messages_has_an_empty_context_and_a_missing_one_is_named(store: Store) -> None:
    assert store.messages.context("s") == []
    with pytest.raises(SessionNotFound):
        store.messages.context("nope")
    store.sessions.delete("s", actor="test", reason="over")
    with pytest.raises(SessionDeleted):
        store.messages.context("s")


def test_a_replaced_session_can_still_be_read(store: Store) -> None:
    store.messages.append("s", role="user", content="before")
    tip = store.sessions.continue_as("s")
    store.messages.append(tip.id, role="user", content="after")

    assert (contents(store), contents(store, tip.id)) == (["before"], ["after"])


def test_what_was_compacted_or_rewound_is_not_sent(store: Store) -> None:
    store.messages.append_many("s", [{"role": "user", "content": number} for number in range(1, 10)])
    edit(store, "compact", 1, 3)
    edit(store, "rewind", 5, 6)
    edit(store, "rewind", 6, 7)

    assert contents(store) == [4, 8, 9]


def test_no_result_is_sent_without_its_call_whatever_a_compaction_cuts_g_2_g_20(store: Store) -> None:
    store.messages.append_many("s", [
        {"role": "user", "content": "go"},
        {"role": "assistant", "tool_calls": [{"id": "1"}, {"id": "2"}]},
        {"role": "tool", "content": "r1", "tool_call_id": "1"},
        {"role": "tool", "content": "r2", "tool_call_id": "2"},
        {"role": "user", "content": "thanks"},
    ])
    for first, last, expected in (
        (1, 2, ["thanks"]), (1, 3, ["thanks"]), (3, 3, ["go", None, NOT_RECORDED, "r2", "thanks"]),
        (4, 5, ["go", None, "r1"]),
    ):
        edit(store, "compact", first, last)
        assert contents(store) == expected
        store.core.write(lambda tx: tx.execute("DELETE FROM view_edits"))


def test_a_deleted_result_leaves_no_open_call_in_the_middle(store: Store) -> None:
    ids = store.messages.append_many("s", [
        {"role": "assistant", "tool_calls": [{"id": "1"}]},
        {"role": "tool", "content": "secret", "tool_call_id": "1"},
        {"role": "user", "content": "on"},
    ])
    store.messages.delete("s", [ids[1]], reason="secret", actor="me")

    assert contents(store) == [None, NOT_RECORDED, "on"]


def test_malformed_tool_calls_of_an_adopted_row_are_no_calls(store: Store) -> None:
    store.core.write(lambda tx: tx.execute(
        "INSERT INTO messages"
        " (id, session_no, seq, role, content_type, content, tool_calls, extra, created_at, row_check)"
        " SELECT 1, no, 1, 'assistant', 'text', 'x', '{broken', '[]', 0, 0 FROM sessions WHERE id = 's'"
    ))

    assert store.messages.context("s", extras=True) == [{"role": "assistant", "content": "x"}]


# --- branches ----------------------------------------------------------------------------------------------------


def test_a_branch_begins_with_what_it_shares_as_it_was_then(store: Store) -> None:
    ids = store.messages.append_many("s", [{"role": "user", "content": number} for number in range(1, 7)])
    first_rewind = store.messages.rewind("s", ids[4])
    store.messages.append("s", role="user", content=7)
    branch = store.sessions.branch("s", at_message_id=ids[2])
    whole = store.sessions.branch("s")
    store.messages.append(branch.id, role="user", content="b1")
    store.messages.append(whole.id, role="user", content="w1")
    # Nothing that happens to the parent later reaches them.
    store.messages.append("s", role="user", content=8)
    store.messages.rewind("s", ids[1])
    store.messages.restore("s", first_rewind.edit_id)
    edit(store, "compact", 1, 3)

    assert contents(store, branch.id) == [1, 2, 3, "b1"]
    assert contents(store, whole.id) == [1, 2, 3, 4, 7, "w1"]
    assert contents(store) == []


def test_a_branch_of_a_branch_shares_from_both(store: Store) -> None:
    store.messages.append_many("s", [{"role": "user", "content": number} for number in range(1, 4)])
    middle = store.sessions.branch("s")
    ids = store.messages.append_many(middle.id, [{"role": "user", "content": f"m{number}"} for number in range(1, 4)])
    last = store.sessions.branch(middle.id, at_message_id=ids[1])
    store.messages.append(last.id, role="user", content="l1")

    assert contents(store, last.id) == [1, 2, 3, "m1", "m2", "l1"]
    assert store.messages.count(last.id) == 6


def test_a_branch_may_rewind_into_what_it_shares_and_its_parent_stays(store: Store) -> None:
    ids = store.messages.append_many("s", [{"role": "user", "content": number} for number in range(1, 5)])
    branch = store.sessions.branch("s")
    store.messages.append(branch.id, role="user", content="b1")
    rewound = store.messages.rewind(branch.id, ids[2])
    store.messages.append(branch.id, role="user", content="b2")

    assert (rewound.hidden, rewound.head_id) == (3, ids[1])
    assert contents(store, branch.id) == [1, 2, "b2"]
    assert contents(store) == [1, 2, 3, 4]
    assert store.messages.restore(branch.id) == 3
    assert contents(store, branch.id) == [1, 2, 3, 4, "b1", "b2"]


def test_the_cost_of_a_context_does_not_grow_with_what_a_compaction_hid(store: Store) -> None:
    store.messages.append_many("s", [{"role": "user", "content": number} for number in range(2000)])
    edit(store, "compact", 1, 1990)
    with store.core.reader() as reader:
        plan = " ".join(row[3] for row in reader.rows(
            "EXPLAIN QUERY PLAN SELECT content FROM messages WHERE session_no = 1 AND seq BETWEEN 8 AND 9 ORDER BY seq"
        ))

    assert contents(store) == list(range(1990, 2000))
    assert plan == "SEARCH messages USING INDEX messages_session (session_no=? AND seq>? AND seq<?)"


def test_content_too_deep_to_be_parsed_is_given_as_its_text(store: Store) -> None:
    """Rows of other programs come by adoption; reading them fails nowhere, however deep the reader's own calls are."""
    store.messages.append("s", role="user", content=[1], extra={"a": 1})
    deep = "[" * 100_000 + "]" * 100_000

    def damage(tx: Any) -> None:
        tx.execute("DROP TRIGGER messages_are_immutable")
        tx.execute("UPDATE messages SET content = ?1, tool_calls = ?1, extra = ?1", (deep,))

    store.core.write(damage)
    assert store.messages.context("s", extras=True) == [{"role": "user", "content": deep}]
    (message,) = store.messages.history("s").messages
    assert (message.content, message.tool_calls, message.extra) == (deep, [], {})


def test_what_can_be_stored_can_be_read_by_deep_callers(store: Store) -> None:
    value: Any = "x"
    for _ in range(100):
        value = [value]
    store.messages.append("s", role="user", content=value)

    def deeper(calls: int) -> Any:
        return deeper(calls - 1) if calls else store.messages.context("s")[0]["content"]

    assert deeper(500) == value
