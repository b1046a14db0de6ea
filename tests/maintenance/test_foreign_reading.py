"""What the foreign dialect reads, garbage included."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from hermes_state.engine import open_read
from hermes_state.errors import NotAStore
from maintenance.dialects.base import Dialect
from maintenance.dialects.cells import Blob
from maintenance.dialects.detect import dialect_of
from maintenance.dialects.foreign.content import content_sizes, decode_content
from maintenance.dialects.readable import preview_of, readable_text
from maintenance.lineage import Forest
from tests.support.foreign import Foreign

VERSIONS = ["0.13.0", "0.15.2", "0.16.0", "0.17.0", "0.18.2", "0.19.0"]
PNG = "data:image/png;base64," + "A" * 5000


def dialect(store: Foreign) -> Dialect:
    return dialect_of(store)


def test_a_file_without_the_tables_is_not_a_store() -> None:
    store = Foreign()
    store.run("DROP TABLE messages")
    with pytest.raises(NotAStore) as caught:
        dialect_of(store)
    assert caught.value.message == (
        "memory.db is not a session store: it has no messages.content, messages.id, messages.role,"
        " messages.session_id, messages.timestamp."
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_files_of_every_release_are_read_whole(version: str, store_copy: Any) -> None:
    with open_read(store_copy(version)) as store:
        found = dialect_of(store)
        facts = list(found.facts(store))
        ids = [item.id for item in facts]
        rows = found.sessions(store, ids)
        assert [rows[key].facts for key in ids] == facts and len(ids) == 12
        assert found.message_counts(store, ids) == {key: len(found.message_ids(store, key)) for key in ids}
        assert set(found.previews(store, ids)) == set(ids)
        for key in ids:
            record = found.session_record(store, key)
            assert record is not None and list(record) == list(found.shape.session_columns)
            messages = list(found.message_records(store, key))
            shown = list(found.messages(store, found.message_ids(store, key)))
            assert [item["id"] for item in messages] == [item.id for item in shown]
            assert [item["content"] for item in messages] == [item.content for item in shown]
        indexes = found.search_indexes(store)
        assert [(item.name, item.layout, item.tokenizer) for item in indexes] == [
            ("messages_fts", "inline", "unicode61"),
            ("messages_fts_trigram", "inline", "trigram"),
        ]
        assert {state for item in indexes for state in item.triggers.values()} == {"present"}
        assert found.shape.unknown_tables == ()


def test_garbage_in_any_cell_never_breaks_a_row() -> None:
    store = Foreign(session_extra="pinned INTEGER, last_activity_at REAL")
    store.session("inf", started_at=math.inf, ended_at=-math.inf, title="x", message_count="many", pinned="yes")
    store.session("text", started_at="yesterday", ended_at=b"\x00", title=b"\xff\xfe", archived=b"1")
    store.session("utf8", source="c", started_at=1e300, input_tokens=math.inf, estimated_cost_usd="free")
    store.run("UPDATE sessions SET title = CAST(X'ff41' AS TEXT), source = CAST(X'c328' AS TEXT) WHERE id = 'utf8'")
    store.session("long", title="t" * 300_000, started_at=-5.0)
    store.run("INSERT INTO sessions(id, source, started_at) VALUES (NULL, 'cli', 1), (X'00ff', 'cli', 1)")
    store.run("INSERT INTO sessions(id, source, started_at) VALUES (CAST(X'6261ff64' AS TEXT), 'cli', 1)")
    found = dialect(store)
    facts = {item.id: item for item in found.facts(store)}
    # Rows whose id is no text cannot be named, so nothing selects them; the count still has them.
    assert set(facts) == {"inf", "text", "utf8", "long", "ba\udcffd"}
    assert found.counts(store).sessions == 7
    rows = found.sessions(store, list(facts))
    inf, text = rows["inf"], rows["text"]
    assert (inf.facts.started_at, inf.facts.ended_at, inf.facts.ended, inf.facts.message_count) == (None, None, True, 0)
    assert (text.title, text.facts.ended, text.facts.archived) == ("<blob 2 bytes>", True, False)
    assert (rows["utf8"].title, rows["utf8"].facts.source) == ("\ufffdA", "\ufffd(")
    assert (rows["utf8"].cost_usd, rows["utf8"].input_tokens) == (None, 0)
    assert rows["long"].title is not None and len(rows["long"].title) == 2000
    assert rows["ba\udcffd"].id == "ba\udcffd"
    assert found.ids_with_prefix(store, "ba", 5) == ["ba\udcffd"]


def test_structured_content_is_decoded_and_broken_content_stays_text() -> None:
    cells = ['\x00json:[{"a": 1}]', "\x00json:{broken", "plain", b"raw", 7, 1.5, None]
    store = Foreign()
    store.session("s")
    for content in cells:
        store.message("s", content)
    store.run("UPDATE messages SET content = CAST(X'61ff' AS TEXT) WHERE id = 3")
    found = dialect(store)
    contents = [row.content for row in found.messages(store, found.message_ids(store, "s"))]
    assert contents == [[{"a": 1}], "\x00json:{broken", "a\ufffd", Blob(data=b"raw"), "7", "1.5", None]
    records = [row["content"] for row in found.message_records(store, "s")]
    assert records[3] == {"base64": "cmF3"}
    assert decode_content("integer", 7) == 7


def test_a_preview_shows_text_parts_and_names_the_rest_but_never_base64() -> None:
    parts = [
        {"type": "text", "text": "look  at\nthis"},
        {"type": "image_url", "image_url": {"url": PNG}},
        "tail",
        None,
        {"type": "input_audio"},
        {"type": "tool_result", "content": [{"type": "text", "text": "done"}]},
        5,
        {},
    ]
    assert preview_of(parts, 100) == "look at this [image] tail [audio] done 5 [structured content]"
    assert readable_text(f"see {PNG} end") == "see [image] end"
    assert preview_of("x" * 300_000, 10) == "xxxxxxxxx…"
    assert preview_of("a\x00b\x1b[31m", 20) == "a b [31m"


def test_the_preview_is_the_first_live_user_message_and_null_flags_are_live() -> None:
    store = Foreign()
    store.session("s")
    store.message("s", "hidden by compaction", active=0, compacted=1)
    store.message("s", "assistant speaks", role="assistant")
    store.message(
        "s",
        "\x00json:" + json.dumps([{"type": "text", "text": "the question"}, {"image_url": {"url": PNG}}]),
        active=None,
    )
    store.message("s", "later")
    store.session("empty")
    store.session("assistant only")
    store.message("assistant only", role="assistant")
    store.session("blob")
    store.message("blob", b"\x00\x01")
    previews = dialect(store).previews(store, ["s", "empty", "assistant only", "blob"])
    assert previews == {"s": "the question [image]", "blob": "<blob 2 bytes>"}


def test_a_page_takes_the_ends_of_a_session_in_order_of_insertion() -> None:
    store = Foreign()
    store.session("s")
    ids = [store.message("s", str(number), timestamp=1000.0 - number) for number in range(10)]
    found = dialect(store)
    assert found.message_ids(store, "s") == ids
    assert found.message_ids(store, "s", first=2, last=3) == [*ids[:2], *ids[-3:]]
    assert found.message_ids(store, "s", first=20, last=20) == ids
    assert found.message_ids(store, "s", last=1) == ids[-1:]


def test_newer_columns_are_used_when_the_file_has_them() -> None:
    store = Foreign(
        session_extra="pinned INTEGER NOT NULL DEFAULT 0, hidden INTEGER DEFAULT 0, auto_archived INTEGER DEFAULT 0,"
        " last_activity_at REAL, system_prompt_hash TEXT, from_a_fork TEXT",
        sql="CREATE TABLE system_prompts(hash TEXT PRIMARY KEY, prompt TEXT NOT NULL);"
        "INSERT INTO system_prompts VALUES ('h', 'be kind'); CREATE TABLE somebody_else(x);"
        "CREATE TABLE state_meta(key TEXT PRIMARY KEY, value TEXT);"
        "INSERT INTO state_meta VALUES ('fts_storage_version', '3')",
    )
    store.session(
        "s", pinned=1, hidden=1, auto_archived=1, last_activity_at=5000.0, system_prompt_hash="h", from_a_fork="f"
    )
    found = dialect(store)
    row = found.sessions(store, ["s"])["s"]
    assert (row.facts.pinned, row.facts.hidden, row.auto_archived, row.facts.last_activity_at) == (
        True,
        True,
        True,
        5000.0,
    )
    record = found.session_record(store, "s")
    assert record is not None and (record["system_prompt"], record["from_a_fork"]) == ("be kind", "f")
    assert (found.has_pinned, found.shape.unknown_tables, found.shape.search_storage_version) == (
        True,
        ("somebody_else",),
        3,
    )
    assert not dialect(Foreign()).has_pinned


def test_search_layouts_and_trigger_states_are_told_from_the_stored_text() -> None:
    store = Foreign(
        sql="""
        CREATE VIEW messages_fts_src AS SELECT id, content, tool_name, tool_calls FROM messages;
        CREATE VIRTUAL TABLE messages_fts USING fts5(content, tool_name, tool_calls, -- a comment, with a comma
            content='messages_fts_src', content_rowid='id');
        CREATE VIRTUAL TABLE messages_fts_trigram USING fts5("content", tokenize="trigram case_sensitive 0");
        CREATE VIRTUAL TABLE bare USING fts5(content, content='');
        CREATE TRIGGER messages_fts_insert AFTER INSERT ON messages BEGIN
            INSERT INTO messages_fts(rowid, content) VALUES (new.id, new.content); END;
        CREATE TRIGGER messages_fts_delete AFTER DELETE ON messages BEGIN SELECT 'INTO messages_fts_trigram'; END;
        CREATE TRIGGER messages_fts_trigram_insert AFTER INSERT ON messages BEGIN SELECT 1; END;
    """
    )
    by_name = {item.name: item for item in dialect(store).search_indexes(store)}
    word = by_name["messages_fts"]
    assert (word.layout, word.content_source, word.columns) == (
        "external",
        "messages_fts_src",
        ("content", "tool_name", "tool_calls"),
    )
    assert word.triggers == {
        "messages_fts_insert": "present",
        "messages_fts_delete": "noop",
        "messages_fts_update": "missing",
    }
    trigram = by_name["messages_fts_trigram"]
    assert (trigram.layout, trigram.tokenizer, trigram.columns) == ("inline", "trigram case_sensitive 0", ("content",))
    assert trigram.triggers["messages_fts_trigram_insert"] == "noop"
    assert by_name["bare"].layout == "contentless"


def test_without_the_index_on_message_times_activity_is_still_right() -> None:
    store = Foreign(indexes=False)
    store.session("s")
    store.message("s", timestamp=5000.0)
    store.message("s", timestamp=math.inf)
    assert [item.last_activity_at for item in dialect(store).facts(store)] == [5000.0]


def test_listing_facts_never_reads_the_messages_table() -> None:
    store = Foreign(sql="CREATE INDEX idx_messages_session_active ON messages(session_id, active, timestamp)")
    plans = []
    found = dialect(store)

    class Recording:
        path = store.path

        def iterate(self, sql: str, params: Any = (), *, batch: int = 500) -> Any:
            plans.extend(row[3] for row in store.run("EXPLAIN QUERY PLAN " + sql, params))
            return store.iterate(sql, params)

        def rows(self, sql: str, params: Any = ()) -> Any:
            plans.extend(row[3] for row in store.run("EXPLAIN QUERY PLAN " + sql, params))
            return store.rows(sql, params)

        row = store.row

    reader: Any = Recording()
    store.session("s")
    store.message("s")
    list(found.facts(reader))
    found.lineage(reader)
    found.sessions(reader, ["s"])
    found.message_ids(reader, "s", first=1)
    found.message_counts(reader, ["s"])
    on_messages = [plan for plan in plans if "messages" in plan or " m " in f"{plan} "]
    assert on_messages and all("COVERING INDEX" in plan for plan in on_messages)


def test_images_are_measured_by_their_bytes_though_like_and_length_see_nothing() -> None:
    store = Foreign()
    store.session("s")
    image = "\x00json:" + json.dumps([{"type": "image_url", "image_url": {"url": PNG}}])
    for content in (image, image, image + " ", "plain", None, b"\x00json:[]"):
        store.message("s", content)
    assert store.run("SELECT count(*) FROM messages WHERE content LIKE '%base64%'") == [(0,)]
    sizes = content_sizes(store)
    assert (sizes.structured_messages, sizes.structured_bytes, sizes.structured_repeated_bytes) == (
        3,
        3 * len(image) + 1,
        len(image),
    )


def test_guards_follow_a_lease_on_the_first_segment_without_reading_the_lineage_of_the_whole_store() -> None:
    store = Foreign(
        sql="CREATE TABLE session_turn_leases(conversation_id TEXT, holder TEXT, acquired_at REAL, expires_at REAL);"
    )
    store.session("0", end_reason="compression", ended_at=2.0)
    for number in range(1, 120):
        store.session(str(number), parent_session_id=str(number - 1), end_reason="compression", ended_at=2.0)
    store.session("other", ended_at=2.0)
    store.run("INSERT INTO session_turn_leases VALUES ('0', 'gw', 0, 100)")
    found = dialect(store)
    assert found.guards(store, ["119", "other"], 5.0) == {"119": "a turn is running (lease of gw)"}
    asked = ["119", "60", "other", "gone"]
    near = Forest(found._ancestry(store, asked))  # type: ignore[attr-defined]
    whole = Forest(found.lineage(store))
    assert [near.root(key) for key in asked] == [whole.root(key) for key in asked] == ["0", "0", "other", "gone"]
