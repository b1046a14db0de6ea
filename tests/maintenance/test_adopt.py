"""What a file of hermes-agent becomes as a native store: every release, and the layouts of the newest ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hermes_state.engine import APPLICATION_ID
from maintenance.marks import set_mark
from tests.maintenance.adopting import adopt_to, newest_layout, query, sha, typed
from tests.maintenance.damage import change
from tests.support.stores import StoreCopy, versions


def native_of(db: Path) -> Path:
    target = db.with_name("native.db")
    adopt_to(db, target)
    return target


def extra(native: Path, sql: str, *params: object) -> dict[str, Any]:
    ((text,),) = query(native, sql, *params)
    return {} if text is None else dict(json.loads(text))


@pytest.mark.parametrize("version", versions())
def test_every_session_and_message_of_a_release_is_there_in_order(version: str, store_copy: StoreCopy) -> None:
    db = store_copy(version)
    before = query(db, "SELECT id, session_id, role, timestamp, CAST(content AS BLOB) FROM messages ORDER BY id")
    report = adopt_to(db, db.with_name("native.db"))
    native = report.result
    marked = "iif(m.content_type = 'json', CAST(x'006A736F6E3A' AS TEXT) || m.content, m.content)"
    after = query(
        native,
        f"SELECT m.id, s.id, m.role, m.created_at, CAST({marked} AS BLOB) FROM messages AS m"
        " JOIN sessions AS s ON s.no = m.session_no ORDER BY m.id",
    )
    assert after == before
    assert query(native, "SELECT id, source, started_at FROM sessions ORDER BY no") == query(
        db, "SELECT id, source, started_at FROM sessions ORDER BY rowid"
    )
    ((sequence,),) = query(db, "SELECT seq FROM sqlite_sequence WHERE name = 'messages'")
    assert query(native, "SELECT message_floor FROM store") == [(sequence,)]
    assert query(native, "PRAGMA application_id") == [(APPLICATION_ID,)]
    assert query(native, "PRAGMA auto_vacuum") == [(2,)]
    assert query(native, "PRAGMA foreign_key_check") == []
    assert report.verified is not None and (report.verified.sessions, report.verified.messages) == (12, len(before))


@pytest.mark.parametrize("version", versions())
def test_numbers_within_a_session_count_from_one_and_calls_add_up(version: str, store_copy: StoreCopy) -> None:
    native = native_of(store_copy(version))
    seen: dict[int, tuple[int, int]] = {}
    rows = query(native, "SELECT session_no, seq, calls, tool_calls FROM messages ORDER BY id")
    for session, seq, calls, text in rows:
        last_seq, last_calls = seen.get(session, (0, 0))
        assert (seq, calls) == (last_seq + 1, last_calls + len(json.loads(text or "[]")))
        seen[session] = (seq, calls)


@pytest.mark.parametrize("version", versions())
def test_compression_makes_a_continuation_and_a_replaced_parent(version: str, store_copy: StoreCopy) -> None:
    native = native_of(store_copy(version))
    rows = query(
        native,
        "SELECT p.state, p.end_reason, s.relation, s.state FROM sessions AS s JOIN sessions AS p ON p.no = s.parent_no",
    )
    assert rows == [("replaced", "compression", "continuation", "open")] * 2


@pytest.mark.parametrize("version", versions())
def test_the_store_is_only_read_and_the_new_file_is_private(version: str, store_copy: StoreCopy) -> None:
    db = store_copy(version)
    before = db.read_bytes()
    native = native_of(db)
    assert db.read_bytes() == before
    assert native.stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in db.parent.iterdir() if path.name.startswith("native")) == ["native.db"]


def test_other_tables_are_kept_cell_by_cell_without_their_rules(store_copy: StoreCopy) -> None:
    db = store_copy()
    change(
        db,
        "CREATE TABLE unknown(a TEXT PRIMARY KEY, rowid INTEGER, b BLOB CHECK (b IS NOT 5), c AS (a || 1))"
        " WITHOUT ROWID",
        "INSERT INTO unknown VALUES ('x', 1.5, x'00ff'), ('y', 'text', NULL)",
        "CREATE TABLE gaps(v)",
        "INSERT INTO gaps(rowid, v) VALUES (-5, CAST(x'ff00fe' AS TEXT)), (9, 9e999), (10, -0.5)",
        "CREATE INDEX gaps_v ON gaps(v)",
        "CREATE TRIGGER noisy AFTER INSERT ON gaps BEGIN DELETE FROM gaps; END",
        "INSERT INTO gateway_routing VALUES ('scope', 'key', '{\"session\": 1}', 5.0)",
        "INSERT INTO state_meta VALUES ('goal:1', 'ship')",
    )
    native = native_of(db)
    for table in ("gaps", "gateway_routing", "state_meta", "compression_locks", "async_delegations"):
        assert typed(native, f"foreign_{table}", "rowid") == typed(db, table, "rowid"), table
    assert query(native, "SELECT rowid FROM foreign_gaps ORDER BY 1") == [(-5,), (9,), (10,)]
    stored = query(
        db, "SELECT typeof(a), hex(a), typeof(rowid), hex(rowid), typeof(b), hex(b) FROM unknown ORDER BY 1, 2"
    )
    assert typed(native, "foreign_unknown", '"a"') == stored
    ((document,),) = query(native, "SELECT adopted_from FROM store")
    adopted = json.loads(document)
    assert adopted["tables"]["unknown"] == "foreign_unknown" and adopted["schema_version"] == 22
    texts = {name: sql for _kind, name, _table, sql in adopted["schema"]}
    assert texts["gaps_v"] == "CREATE INDEX gaps_v ON gaps(v)"
    assert "noisy" in texts and "messages_fts" not in texts
    assert query(native, "SELECT name FROM sqlite_schema WHERE name LIKE '%fts%'") == []


def test_flags_become_ranges_of_view_edits_and_odd_ones_stay_live(store_copy: StoreCopy) -> None:
    db = store_copy()
    ((session, first),) = query(
        db, "SELECT session_id, min(id) FROM messages GROUP BY 1 HAVING count(*) > 11 ORDER BY 1 LIMIT 1"
    )
    ids = [key for (key,) in query(db, "SELECT id FROM messages WHERE session_id = ? ORDER BY id", session)]
    assert first == ids[0]
    flags = ((0, 0, 1), (1, 0, 1), (2, 0, 0), (3, 1, 1), (5, 0, 0), (6, 0, 0), (7, 0, 1), (8, 2, 0))
    for at, active, compacted in flags:
        change(db, f"UPDATE messages SET active = {active}, compacted = {compacted} WHERE id = {ids[at]}")
    native = native_of(db)
    edits = query(
        native, "SELECT e.action, e.from_seq, e.to_seq, e.reason FROM view_edits AS e JOIN sessions AS s"
        " ON s.no = e.session_no WHERE s.id = ? ORDER BY e.from_seq", session,
    )
    assert edits == [
        ("compact", 1, 2, "adopted"), ("rewind", 3, 3, "adopted"), ("rewind", 6, 7, "adopted"),
        ("compact", 8, 8, "adopted"), ("rewind", 9, 9, "adopted"),
    ]
    odd = "SELECT extra FROM messages WHERE id = ?"
    assert extra(native, odd, ids[3]) == {"$original": {"compacted": 1}}
    assert extra(native, odd, ids[8]) == {"$original": {"active": 2}}
    assert extra(native, "SELECT extra FROM sessions WHERE id = ?", session)["$original"]["message_count"] == len(ids)


def test_content_is_typed_by_what_it_is_and_broken_json_stays_text(store_copy: StoreCopy) -> None:
    db = store_copy()
    ids = [key for (key,) in query(db, "SELECT id FROM messages ORDER BY id LIMIT 6")]
    marker = "CAST(x'006A736F6E3A' AS TEXT)"
    values = (
        f"{marker} || '[{{\"type\": \"text\", \"text\": \"hi\"}}]'", f"{marker} || '[broken'", "x'00ff'", "NULL",
        "CAST(x'41ff42' AS TEXT)", "''",
    )
    for key, value in zip(ids, values, strict=True):
        change(db, f"UPDATE messages SET content = {value} WHERE id = {key}")
    native = native_of(db)
    rows = query(
        native, "SELECT content_type, typeof(content), content, extra FROM messages ORDER BY id LIMIT 6"
    )
    assert [row[:3] for row in rows] == [
        ("json", "text", '[{"type": "text", "text": "hi"}]'), ("text", "text", "\x00json:[broken"),
        ("bytes", "blob", b"\x00\xff"), (None, "null", None), ("text", "text", "A\ufffdB"), ("text", "text", ""),
    ]
    assert json.loads(rows[4][3]) == {"$original": {"content": {"$text": "Qf9C"}}}


def test_the_newest_layout_comes_over_with_its_prompts_flags_and_identities(store_copy: StoreCopy) -> None:
    db = newest_layout(store_copy())
    native = native_of(db)
    prompt = "You are the assistant of a newer release."
    rows = query(
        native,
        "SELECT s.no, CAST(p.body AS TEXT), CAST(t.body AS TEXT) FROM sessions AS s LEFT JOIN shared_texts AS p"
        " ON p.no = s.prompt_no LEFT JOIN shared_texts AS t ON t.no = s.tools_no WHERE s.no <= 7 ORDER BY 1",
    )
    assert rows == [
        *((number, prompt, '["read_file","shell"]') for number in (1, 2, 3, 4)),
        (5, "a prompt under a name of its own", None), (6, "the fallback", None), (7, prompt, None),
    ]
    assert query(native, "SELECT count(*) FROM shared_texts WHERE CAST(body AS TEXT) = ?", prompt) == [(1,)]
    flags = query(
        native, "SELECT pinned_at IS NOT NULL, hidden, archived_at IS NOT NULL, auto_archived, title_source, active_at"
        " FROM sessions WHERE no <= 3 ORDER BY no",
    )
    assert [row[:5] for row in flags] == [(1, 0, 0, 0, "llm"), (0, 1, 0, 0, None), (0, 0, 1, 1, None)]
    assert flags[2][5] == 1.9e9
    # What no session refers to by its own hash is kept as it was.
    assert query(native, "SELECT hash FROM foreign_system_prompts ORDER BY 1") == sorted(
        [("not-a-hash",), (sha("nobody uses this"),)]
    )
    for table in ("session_admissions", "runtime_epoch", "gateway_heartbeats", "session_turn_leases"):
        assert typed(native, f"foreign_{table}", "rowid") == typed(db, table, "rowid"), table
    assert typed(native, "foreign_conversation_generations", "1, 2") == typed(db, "conversation_generations", "1, 2")
    ((identity, key),) = query(db, "SELECT hex(display_identity), id FROM messages WHERE id % 2 LIMIT 1")
    kept = extra(native, "SELECT extra FROM messages WHERE id = ?", key)
    assert (kept["message_uid"], kept["display_order"], kept["display_kind"]) == (f"uid-{key}", key * 10, "text")
    assert list(kept["display_identity"]) == ["$bytes"]
    import base64

    assert base64.b64decode(kept["display_identity"]["$bytes"]).hex().upper() == identity
    ((document,),) = query(native, "SELECT adopted_from FROM store")
    assert json.loads(document)["sequences"]["session_admissions"] == 41
    assert json.loads(document)["application_id"] == 305441741


def test_usage_keeps_its_rows_and_seeds_the_days_on_which_it_happened(store_copy: StoreCopy) -> None:
    db = store_copy()
    change(
        db,
        "DELETE FROM session_model_usage",
        "UPDATE sessions SET input_tokens = 0, output_tokens = 0, api_call_count = 0, estimated_cost_usd = NULL,"
        " actual_cost_usd = NULL, cache_read_tokens = 0, cache_write_tokens = 0, reasoning_tokens = 0, model = NULL",
        "INSERT INTO session_model_usage(session_id, model, task, api_call_count, input_tokens, estimated_cost_usd,"
        " cost_status, last_seen) SELECT id, 'm', '', 2, 100, 0.5, 'known', 86400.0 * 20000 + 5 FROM sessions"
        " WHERE rowid = 1",
        "INSERT INTO session_model_usage(session_id, model, task, api_call_count, input_tokens, last_seen)"
        " SELECT id, 'm', 'vision', 1, 7, 86400.0 * 20001 FROM sessions WHERE rowid = 1",
        "INSERT INTO session_model_usage(session_id, model, task, api_call_count, input_tokens)"
        " SELECT id, 'm', x'00', 1, 1 FROM sessions WHERE rowid = 1",
        "UPDATE sessions SET input_tokens = 30, api_call_count = 3, model = 'old', billing_provider = 'p'"
        " WHERE rowid = 2",
    )
    report = adopt_to(db, db.with_name("native.db"))
    native = report.result
    assert report.built is not None
    assert (report.built.usage_rows, report.built.oddities["usage_rows_kept"]) == (2, 1)
    assert query(native, "SELECT model, task, input_tokens, extra FROM session_usage ORDER BY task") == [
        ("m", "", 100, '{"cost_status":"known"}'), ("m", "vision", 7, None),
    ]
    assert query(native, "SELECT count(*) FROM foreign_session_model_usage") == [(1,)]
    days = query(native, "SELECT day, model, provider, task, api_calls, input_tokens FROM daily_usage ORDER BY 2, 4")
    assert days[:2] == [("2024-10-04", "m", "", "", 2, 100), ("2024-10-05", "m", "", "vision", 1, 7)]
    assert days[2][1:] == ("old", "p", "", 3, 30) and len(days) == 3


def test_marks_beside_an_old_file_become_flags(store_copy: StoreCopy) -> None:
    db = store_copy("0.13.0")
    first, second = (key for (key,) in query(db, "SELECT id FROM sessions ORDER BY rowid LIMIT 2"))
    set_mark(db, [first], "pinned", True)
    set_mark(db, [second], "archived", True)
    native = native_of(db)
    rows = query(native, "SELECT id FROM sessions WHERE pinned_at IS NOT NULL UNION ALL"
                         " SELECT id FROM sessions WHERE archived_at IS NOT NULL")
    assert rows == [(first,), (second,)]


def test_the_library_opens_what_was_adopted_and_goes_on_in_it(store_copy: StoreCopy) -> None:
    from hermes_state import open_store

    native = native_of(store_copy())
    ((session, count),) = query(
        native, "SELECT s.id, count(*) FROM sessions AS s JOIN messages AS m ON m.session_no = s.no"
        " WHERE s.state = 'open' GROUP BY 1 ORDER BY 2 DESC LIMIT 1",
    )
    ((highest,),) = query(native, "SELECT max(max(id), (SELECT message_floor FROM store)) FROM messages")
    with open_store(path=native) as store:
        assert len(store.messages.context(session)) == count
        assert store.messages.append(session, role="user", content="and on") == highest + 1
        assert store.messages.context(session)[-1]["content"] == "and on"
