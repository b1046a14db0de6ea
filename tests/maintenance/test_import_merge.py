"""Merging into a native store: nothing twice, nothing lost, nothing of this store changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_state.clock import SYSTEM
from hermes_state.store import Store, open_store
from hermes_state.testing import temporary_store
from maintenance.intake.claude import claude_source
from maintenance.intake.codex import codex_source
from maintenance.intake.merge import Merger
from maintenance.intake.model import Source
from maintenance.intake.records import RecordSource
from maintenance.intake.stores import StoreSource
from maintenance.intake.underway import Merged
from tests.maintenance.transcripts import CLAUDE_ID, CODEX_ID, claude, claude_talk, codex_talk, said, write


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(path=tmp_path / "home" / "state.db") as opened:
        yield opened


def merge(store: Store, source: Source, *, write: bool = True, **more: Any) -> Merged:
    return Merger(store.core, source, source.look(), write=write, **more).run()


def texts(store: Store, session_id: str) -> list[Any]:
    return [message.content for message in store.messages.history(session_id, limit=500).messages]


def record(key: str, *contents: Any, **more: Any) -> dict[str, Any]:
    """A session as hermes-agent exports it; a content that is a dict with a role is a whole message."""
    messages = []
    for number, content in enumerate(contents, 1):
        row = content if isinstance(content, dict) and "role" in content else {"role": "user", "content": content}
        messages.append({"id": number, "session_id": key, "timestamp": 1000.0 + number, "active": 1} | row)
    return {"id": key, "source": "telegram", "started_at": 1000.0, "messages": messages} | more


def records(tmp_path: Path, *lines: dict[str, Any], name: str = "x.jsonl") -> RecordSource:
    return RecordSource(write(tmp_path / name, lines), "hermes-agent")


def test_a_second_import_adds_nothing_and_a_grown_file_adds_what_is_new(store: Store, tmp_path: Path) -> None:
    path = tmp_path / f"{CLAUDE_ID}.jsonl"
    source = claude_source(write(path, claude_talk()))
    first = merge(store, source)
    assert (first.sessions_new, first.messages_new, first.messages_known) == (1, 5, 0)
    again = merge(store, source)
    assert (again.sessions_new, again.sessions_known, again.messages_new, again.messages_known) == (0, 1, 0, 5)
    write(path, [*claude_talk(), claude("user", 9, said("user", "Thanks"))])
    grown = merge(store, claude_source(path))
    assert (grown.messages_new, grown.messages_known) == (1, 5)
    assert texts(store, CLAUDE_ID)[-2:] == ["Two files.", "Thanks"]
    session = store.sessions.get(CLAUDE_ID)
    assert (session.title, session.source, session.cwd, session.state) == (
        "Looking at a folder",
        "claude-code",
        "/srv/app",
        "open",
    )
    assert session.extra is not None and session.extra["import"] == {"from": "claude"}
    usage = store.usage.of_session(CLAUDE_ID).total
    assert (usage.api_calls, usage.output_tokens, usage.cache_read_tokens) == (2, 80, 1800)


def test_what_is_imported_can_be_sent_to_a_model(store: Store, tmp_path: Path) -> None:
    merge(store, codex_source(write(tmp_path / "rollout.jsonl", codex_talk())))
    context = store.messages.context(CODEX_ID)
    assert [message["role"] for message in context if message["role"] != "system"] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]


def test_a_plan_writes_nothing_and_says_what_an_import_then_does(store: Store, tmp_path: Path) -> None:
    source = records(tmp_path, record("a", "one", "two"), record("b", "three"))
    planned = merge(store, source, write=False)
    assert (planned.sessions_new, planned.messages_new) == (2, 3)
    assert store.sessions.count() == 0
    done = merge(store, source)
    assert (done.sessions_new, done.messages_new) == (2, 3)
    assert merge(store, source, write=False).messages_new == 0


def test_an_id_of_another_session_gets_a_suffix_that_the_next_import_finds(store: Store, tmp_path: Path) -> None:
    store.sessions.create(id="a", source="cli", started_at=5.0)
    store.messages.append("a", role="user", content="mine")
    source = records(tmp_path, record("a", "theirs"), record("child", "x", parent_session_id="a"))
    done = merge(store, source)
    other = done.renamed["a"]
    assert other.startswith("a~") and len(other) == 10
    assert (texts(store, "a"), texts(store, other)) == (["mine"], ["theirs"])
    assert store.sessions.get("child").parent_id == other
    extra = store.sessions.get(other).extra
    assert extra is not None and extra["import"] == {"from": "hermes-agent", "id": "a"}
    again = merge(store, source)
    assert (again.sessions_new, again.messages_new, again.renamed) == (0, 0, {"a": other})


def test_a_message_under_a_used_key_is_kept_beside_the_other_one(store: Store, tmp_path: Path) -> None:
    merge(store, records(tmp_path, record("a", "one", "two")))
    changed = records(tmp_path, record("a", "one", "TWO"), name="y.jsonl")
    done = merge(store, changed)
    assert (done.messages_new, done.messages_known, done.messages_diverged) == (1, 1, 1)
    assert texts(store, "a") == ["one", "two", "TWO"]
    assert merge(store, changed).messages_new == 0


def test_a_session_that_went_home_again_brings_only_what_was_added_away(store: Store, tmp_path: Path) -> None:
    """From this store to another, two messages there, and back: what began here has no key and is known by content."""
    store.sessions.create(id="a", source="cli", started_at=5.0)
    for text in ("same", "same", "last"):
        store.messages.append("a", role="user", content=text, at=7.0)
    with temporary_store() as away:
        merge(away, StoreSource(store.path, SYSTEM))
        away.messages.append("a", role="assistant", content="from away")
        away.messages.append("a", role="user", content="same", at=7.0)
        back = merge(store, StoreSource(away.path, SYSTEM))
    assert (back.sessions_new, back.messages_new, back.messages_known) == (0, 2, 3)
    assert texts(store, "a") == ["same", "same", "last", "from away", "same"]


def test_hidden_messages_come_hidden_and_what_a_person_took_back_here_stays_so(store: Store, tmp_path: Path) -> None:
    source = records(
        tmp_path,
        record(
            "a",
            {"role": "user", "content": "old", "active": 0, "compacted": 1},
            {"role": "user", "content": "undone", "active": 0},
            {"role": "assistant", "content": "undone too", "active": 0},
            "now",
        ),
    )
    merge(store, source)
    assert [message["content"] for message in store.messages.context("a")] == ["now"]
    assert texts(store, "a") == ["old", "now"]
    assert store.messages.restore("a") > 0
    merge(store, source)
    assert texts(store, "a") == ["old", "undone", "undone too", "now"]


def test_a_platform_id_that_was_sent_again_after_an_edit_is_no_error(store: Store, tmp_path: Path) -> None:
    done = merge(
        store,
        records(
            tmp_path,
            record(
                "a",
                {"role": "user", "content": "first", "platform_message_id": "7", "active": 0},
                {"role": "user", "content": "edited", "platform_message_id": "7"},
            ),
        ),
    )
    assert (done.messages_new, done.messages_refused) == (2, 0)
    assert texts(store, "a") == ["edited"]


def test_ends_titles_flags_and_usage_come_and_what_is_here_stays(store: Store, tmp_path: Path) -> None:
    store.sessions.create(id="mine", source="cli", title="Plan")
    usage = [{"model": "m", "task": "", "billing_provider": "p", "api_call_count": 2, "input_tokens": 9}]
    source = records(
        tmp_path,
        record(
            "a",
            "x",
            ended_at=1100.0,
            end_reason="cli_close",
            title="Plan",
            archived=1,
            pinned=1,
            usage=usage,
            api_call_count=2,
            input_tokens=9,
            odd_column="kept",
            model_config='{"a": 1}',
            system_prompt="Be brief.",
        ),
    )
    done = merge(store, source)
    session = store.sessions.get("a")
    assert (session.state, session.ended_at, session.end_reason) == ("ended", 1100.0, "cli_close")
    assert (session.title, done.titles_changed) == ("Plan #2", {"a": "Plan #2"})
    assert session.archived_at == 1100.0 and session.pinned_at is not None
    assert session.extra == {"odd_column": "kept", "import": {"from": "hermes-agent", "title": "Plan"}}
    assert (store.sessions.prompt("a"), store.sessions.model_config("a")) == ("Be brief.", '{"a": 1}')
    assert store.usage.of_session("a").total.input_tokens == 9
    store.sessions.rename("a", "Renamed here")
    store.sessions.reopen("a")
    store.messages.append("a", role="user", content="and on")
    merge(store, source)
    session = store.sessions.get("a")
    assert (session.title, session.state) == ("Renamed here", "open")
    assert store.usage.of_session("a").total.input_tokens == 9


def test_a_session_that_ended_after_the_first_import_ends_here_too(store: Store, tmp_path: Path) -> None:
    merge(store, records(tmp_path, record("a", "x")))
    assert store.sessions.get("a").state == "open"
    merge(store, records(tmp_path, record("a", "x", "y", ended_at=1100.0, end_reason="idle"), name="y.jsonl"))
    assert (store.sessions.get("a").state, store.sessions.get("a").end_reason) == ("ended", "idle")


def test_a_chain_and_its_delegates_keep_what_they_are_to_each_other(store: Store, tmp_path: Path) -> None:
    delegate = record("d", "work", parent_session_id="a", model_config='{"_delegate_from": "a"}')
    chain = [
        record("c", "third", parent_session_id="b"),
        delegate,
        record("a", "first", ended_at=1100.0, end_reason="compression"),
        record("b", "second", parent_session_id="a", ended_at=1200.0, end_reason="compression", started_at=1100.0),
    ]
    merge(store, records(tmp_path, *chain))
    assert [session.id for session in store.sessions.lineage("c")] == ["a", "b", "c"]
    assert [session.state for session in store.sessions.lineage("c")] == ["replaced", "replaced", "open"]
    assert store.sessions.get("d").relation == "delegate"
    # A message that comes late to a session which goes on elsewhere is refused by name, the rest is imported.
    late = merge(store, records(tmp_path, *chain[2:], record("e", "new"), name="y.jsonl"))
    assert late.messages_refused == 0
    late = merge(store, records(tmp_path, record("a", "first", "late"), record("e", "new"), name="z.jsonl"))
    assert (late.messages_refused, late.problems[0].line) == (1, 1)
    assert late.problems[0].reason == f"Session 'a' of {store.path} was compressed and goes on as 'c'."


def test_a_deleted_session_does_not_come_back(store: Store, tmp_path: Path) -> None:
    source = records(tmp_path, record("a", "x"), record("b", "y"))
    merge(store, source)
    store.sessions.delete("a", actor="test", reason="wanted")
    for write_it in (False, True):
        done = merge(store, source, write=write_it)
        assert (done.sessions_refused, done.messages_refused, done.messages_known) == (1, 1, 1)
        assert done.problems[0].reason.startswith("session a: ")


def test_branches_share_what_they_shared(store: Store) -> None:
    with temporary_store() as away:
        away.sessions.create(id="a", source="cli")
        ids = [away.messages.append("a", role="user", content=text) for text in ("one", "two", "three")]
        away.sessions.branch("a", at_message_id=ids[1], new_id="b")
        away.messages.append("b", role="user", content="other")
        merge(store, StoreSource(away.path, SYSTEM))
        expected = away.messages.context("b")
    assert store.messages.context("b") == expected
    assert [message["content"] for message in expected] == ["one", "two", "other"]


def test_a_branch_does_not_see_what_its_parent_took_back_later(store: Store, tmp_path: Path) -> None:
    with temporary_store() as away:
        away.sessions.create(id="a", source="cli")
        ids = [away.messages.append("a", role="user", content=text) for text in ("one", "two", "three", "four")]
        away.messages.rewind("a", ids[3])
        away.sessions.branch("a", at_message_id=ids[2], new_id="b")
        away.messages.append("b", role="user", content="other")
        away.messages.rewind("a", ids[1])
        away.sessions.branch("b", new_id="c")
        away.messages.append("c", role="user", content="own")
        away.messages.rewind("c", ids[2])
        names = ("a", "b", "c")
        expected = {name: away.messages.context(name) for name in names}
        merge(store, StoreSource(away.path, SYSTEM))
        assert {name: store.messages.context(name) for name in names} == expected
        with temporary_store() as third:
            from maintenance.dialects.detect import dialect_of

            with away.core.reader() as reader:
                dialect = dialect_of(reader)
                lines = [
                    dialect.session_record(reader, name) | {"messages": list(dialect.message_records(reader, name))}  # type: ignore[operator]
                    for name in ("c", "b", "a")
                ]
            merge(third, records(tmp_path, *lines))
            assert {name: third.messages.context(name) for name in names} == expected
    assert [message["content"] for message in expected["c"]] == ["one", "two"]


def test_odd_values_are_kept_where_they_do_not_fit(store: Store, tmp_path: Path) -> None:
    odd = {
        "role": "narrator",
        "content": {"base64": "AAE="},
        "timestamp": "yesterday",
        "token_count": "many",
        "tool_calls": "not a list",
        "observed": 1,
        "reasoning_details": [{"a": 1}],
    }
    done = merge(store, records(tmp_path, record("a" * 300, odd, started_at=-5, ended_at="later", title="x" * 200)))
    assert done.messages_new == 1
    [key] = done.renamed.values()
    [message] = store.messages.history(key, limit=5).messages
    assert (message.role, message.content, message.created_at) == ("system", b"\x00\x01", 0.0)
    assert message.extra == {
        "observed": 1,
        "reasoning_details": [{"a": 1}],
        "$original": {
            "role": "narrator",
            "timestamp": "yesterday",
            "token_count": "many",
            "tool_calls": "not a list",
        },
    }
    session = store.sessions.get(key)
    assert session.extra is not None
    assert session.extra["$original"] == {"started_at": -5, "ended_at": "later"}
    assert (session.title, session.extra["import"]["title"]) == ("x" * 100, "x" * 200)


MESSAGES = st.lists(
    st.tuples(
        st.sampled_from(["user", "assistant"]),
        st.sampled_from(["yes", "no", "on"]),
        st.sampled_from([1.0, 2.0]),
        st.sampled_from([(1, 0), (0, 1), (0, 0)]),
    ),
    max_size=12,
)


@pytest.mark.slow
@settings(max_examples=15)
@given(messages=MESSAGES, cuts=st.lists(st.integers(0, 12), max_size=3))
def test_any_growth_in_any_steps_ends_in_the_same_session(
    messages: list[Any], cuts: list[int], tmp_path_factory: Any
) -> None:
    """Imported whole or piece by piece, with repeats, the session reads the same."""
    folder = tmp_path_factory.mktemp("steps")
    rows = [
        {"id": number, "role": role, "content": text, "timestamp": at, "active": flags[0], "compacted": flags[1]}
        for number, (role, text, at, flags) in enumerate(messages, 1)
    ]
    with temporary_store() as whole, temporary_store() as steps:
        merge(whole, records(folder, record("a", *rows)))
        for cut in [*sorted(cuts), len(rows), len(rows)]:
            merge(steps, records(folder, record("a", *rows[:cut])))
        one, other = (
            [
                (m.role, m.content, m.created_at, m.hidden, m.client_key)
                for m in opened.messages.history("a", limit=500, include_rewound=True).messages
            ]
            for opened in (whole, steps)
        )
    assert one == other and len(one) == len(rows)
    json.dumps(one)
