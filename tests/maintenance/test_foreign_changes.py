"""What the foreign dialect changes: deletes, flags and titles, inside the caller's transaction."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_state.engine import open_write
from hermes_state.errors import InvalidInput, NotFound, Refused
from maintenance.dialects.base import DeleteCounts
from maintenance.dialects.detect import dialect_of
from maintenance.dialects.foreign.titles import sanitize_title
from tests.support.foreign import Foreign

EVERYTHING = """
CREATE TABLE session_model_usage(session_id TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE, model TEXT);
CREATE TABLE telegram_dm_topic_bindings(chat_id TEXT, thread_id TEXT, session_id TEXT REFERENCES sessions(id));
CREATE TABLE compression_locks(session_id TEXT PRIMARY KEY, holder TEXT, acquired_at REAL, expires_at REAL);
CREATE TABLE session_turn_leases(conversation_id TEXT PRIMARY KEY, holder TEXT, acquired_at REAL, expires_at REAL);
CREATE TABLE plugin_notes(session_ref TEXT REFERENCES sessions(id) ON DELETE SET NULL, note TEXT);
CREATE TABLE plugin_marks(message_ref INTEGER REFERENCES messages(id) ON DELETE CASCADE);
CREATE TABLE unrelated(session_id TEXT);
"""


def test_a_delete_takes_everything_that_points_at_the_session_and_nothing_else() -> None:
    store = Foreign(sql=EVERYTHING)
    store.run("PRAGMA foreign_keys = ON")
    store.session("gone", parent_session_id=store.session("parent"))
    store.session("child", parent_session_id="gone")
    for key in ("gone", "parent"):
        message = store.message(key)
        store.message(key, "\x00json:[]")
        store.run("INSERT INTO plugin_marks VALUES (?)", (message,))
        store.run("INSERT INTO session_model_usage VALUES (?, 'm'), (?, 'n')", (key, key))
        store.run("INSERT INTO telegram_dm_topic_bindings VALUES ('c', ?, ?)", (key, key))
        store.run("INSERT INTO compression_locks VALUES (?, 'h', 0, 0)", (key,))
        store.run("INSERT INTO session_turn_leases VALUES (?, 'h', 0, 0)", (key,))
        store.run("INSERT INTO plugin_notes VALUES (?, 'n')", (key,))
        store.run("INSERT INTO unrelated VALUES (?)", (key,))
    counts = dialect_of(store).delete_sessions(store, ["gone", "not there", "gone"])  # type: ignore[arg-type]
    assert counts == DeleteCounts(
        sessions=1,
        messages=2,
        detached=1,
        others={
            "session_model_usage": 2,
            "telegram_dm_topic_bindings": 1,
            "compression_locks": 1,
            "session_turn_leases": 1,
            "plugin_notes": 1,
            "plugin_marks": 1,
        },
    )
    assert store.run("SELECT id, parent_session_id FROM sessions ORDER BY id") == [("child", None), ("parent", None)]
    assert store.run("SELECT count(*), count(session_ref) FROM plugin_notes") == [(2, 1)]
    assert store.run("SELECT count(*) FROM unrelated") == [(2,)]
    assert store.run("SELECT DISTINCT session_id FROM messages") == [("parent",)]
    assert store.run("PRAGMA foreign_key_check") == []


@pytest.mark.parametrize("action", ["ON DELETE RESTRICT", ""])
def test_a_table_that_forbids_the_delete_stops_it_before_the_first_row(action: str) -> None:
    store = Foreign(sql=f"CREATE TABLE plugin(owner TEXT REFERENCES sessions(id) {action})")
    store.session("a")
    store.message("a")
    store.session("b")
    store.run("INSERT INTO plugin VALUES ('b')")
    with pytest.raises(Refused) as caught:
        dialect_of(store).delete_sessions(store, ["a", "b"])  # type: ignore[arg-type]
    assert caught.value.message == (
        "Table plugin has rows that point at a session to be deleted (owner), and its foreign key forbids the delete."
    )
    assert store.run("SELECT (SELECT count(*) FROM sessions), (SELECT count(*) FROM messages)") == [(2, 1)]
    assert dialect_of(store).delete_sessions(store, ["a"]).sessions == 1  # type: ignore[arg-type]


def test_thousands_of_sessions_stay_under_the_bound_values_of_old_builds() -> None:
    store = Foreign()
    ids = [
        store.session(f"s{number}", parent_session_id=None if number == 0 else f"s{number - 1}")
        for number in range(1500)
    ]
    store.connection.limit(9, 999)  # SQLITE_LIMIT_VARIABLE_NUMBER
    counts = dialect_of(store).delete_sessions(store, ids[:1400])  # type: ignore[arg-type]
    assert (counts.sessions, counts.detached) == (1400, 1)
    assert store.run("SELECT count(*) FROM sessions") == [(100,)]


def test_a_large_session_can_be_emptied_in_steps() -> None:
    store = Foreign(sql="CREATE TABLE plugin(m INTEGER REFERENCES messages(id) ON DELETE CASCADE)")
    store.session("s")
    ids = [store.message("s", str(number)) for number in range(5)]
    store.run("INSERT INTO plugin VALUES (?), (?)", (ids[0], ids[4]))
    found = dialect_of(store)
    assert [found.delete_messages(store, "s", 2) for _ in range(4)] == [2, 2, 1, 0]  # type: ignore[arg-type]
    assert store.run("SELECT count(*) FROM plugin") == [(0,)]


def test_flags_change_only_rows_that_differ() -> None:
    store = Foreign(session_extra="pinned INTEGER, auto_archived INTEGER DEFAULT 0")
    for key in ("a", "b"):
        store.session(key, auto_archived=1)
    found: Any = dialect_of(store)
    assert found.set_archived(store, ["a", "b", "gone"], True) == 2
    assert found.set_archived(store, ["a", "b"], True) == 0
    assert store.run("SELECT DISTINCT archived, auto_archived FROM sessions") == [(1, 0)]
    assert (found.set_pinned(store, ["a"], True), found.set_pinned(store, ["a", "b"], False)) == (1, 2)


def test_titles_are_cleaned_unique_and_move_from_an_earlier_segment() -> None:
    store = Foreign(session_extra="title_source TEXT")
    store.session("a", end_reason="compression", ended_at=2.0, title="Plan")
    store.session("b", parent_session_id="a")
    store.session("other")
    found: Any = dialect_of(store)
    with pytest.raises(InvalidInput) as caught:
        found.set_title(store, "other", "Plan")
    assert caught.value.message == "The title 'Plan' already belongs to session a."
    assert found.set_title(store, "b", " Pl\u200ban\n") == "Plan"
    assert store.run("SELECT id, title, title_source FROM sessions ORDER BY id") == [
        ("a", None, None),
        ("b", "Plan", "user"),
        ("other", None, None),
    ]
    with pytest.raises(InvalidInput):
        found.set_title(store, "a", "Plan")
    assert found.set_title(store, "b", "\u202e \x00") is None
    with pytest.raises(NotFound) as missing:
        found.set_title(store, "nope", "x")
    assert missing.value.message == "No session 'nope' in memory.db."
    with pytest.raises(InvalidInput) as long:
        sanitize_title("x" * 101)
    assert long.value.message == "The title has 101 characters; the longest allowed is 100."


@pytest.mark.parametrize("version", ["0.13.0", "0.16.0", "0.19.0"])
def test_real_files_lose_only_what_was_deleted(version: str, store_copy: Any) -> None:
    with open_write(store_copy(version), foreign=True) as store:
        found = dialect_of(store)
        ids = [item.id for item in found.facts(store)]
        counts = found.message_counts(store, ids)
        with store.transaction(durability="power") as tx:
            deleted = found.delete_sessions(tx, ids[:4])
        assert (deleted.sessions, deleted.messages) == (4, sum(counts[key] for key in ids[:4]))
        assert found.message_counts(store, ids) == {key: 0 if key in ids[:4] else counts[key] for key in ids}
        assert store.rows("PRAGMA foreign_key_check") == []


names = st.sampled_from([str(number) for number in range(7)])


@given(
    st.lists(st.tuples(names, st.one_of(st.none(), names), st.booleans()), max_size=7, unique_by=lambda item: item[0]),
    st.lists(names, max_size=7),
)
def test_any_delete_in_any_forest_leaves_no_dangling_row(
    sessions: list[tuple[str, str | None, bool]], chosen: list[str]
) -> None:
    store = Foreign(sql=EVERYTHING)
    for key, _, compressed in sessions:
        store.session(key, end_reason="compression" if compressed else None)
        store.message(key)
        store.run("INSERT INTO session_model_usage VALUES (?, 'm')", (key,))
    present = {key for key, _, _ in sessions}
    for key, parent, _ in sessions:
        if parent in present:
            store.run("UPDATE sessions SET parent_session_id = ? WHERE id = ?", (parent, key))
    store.run("PRAGMA foreign_keys = ON")
    counts = dialect_of(store).delete_sessions(store, chosen)  # type: ignore[arg-type]
    kept = present - set(chosen)
    assert {row[0] for row in store.run("SELECT id FROM sessions")} == kept
    assert counts.sessions == counts.messages == len(present) - len(kept)
    assert store.run("PRAGMA foreign_key_check") == []
    links = dict(store.run("SELECT id, parent_session_id FROM sessions"))
    before = {key: parent for key, parent, _ in sessions if parent in present}
    assert links == {key: before.get(key) if before.get(key) in kept else None for key in kept}
    assert counts.detached == sum(before.get(key) in set(chosen) & present for key in kept)
    store.close()
