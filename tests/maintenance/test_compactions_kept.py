"""What carries sessions from store to store carries their compactions: export, import, the way to hermes-agent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_state.engine import open_read
from hermes_state.store import Store, open_store
from maintenance.dialects.detect import dialect_of
from maintenance.dialects.native.compactions import PASS_COLUMNS, TABLES, compactions_lacking
from maintenance.dialects.native.guards import find_guards
from maintenance.dialects.native.shape import KNOWN_TABLES
from maintenance.intake.merge import Merger
from maintenance.intake.records import RecordSource
from maintenance.intake.stores import StoreSource
from maintenance.interop.to_hermes_agent import Record, Tally, records
from tests.maintenance.transcripts import write
from tests.support.compacting import view_of
from tests.support.generations import SHORT, SUMMARY, compacted, failed, started, superseded

LONG = "a result of many words " * 40


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(path=tmp_path / "home" / "state.db") as opened:
        talk(opened)
        yield opened


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Store]:
    with open_store(path=tmp_path / "other" / "state.db") as opened:
        yield opened


def talk(store: Store, session_id: str = "talk", rows: int = 12) -> None:
    store.sessions.create(id=session_id, source="cli")
    for number in range(1, rows + 1):
        role = "user" if number % 2 else "assistant"
        store.messages.append(session_id, role=role, content=f"{number} of {session_id}" if number != 8 else LONG)


def exported(store: Store, *ids: str) -> list[dict[str, Any]]:
    """Records as an export writes them, parsed from their JSON."""
    with store.core.reader() as reader, reader.snapshot():
        dialect = dialect_of(reader)
        return [
            json.loads(json.dumps({
                **(dialect.session_record(reader, key) or {}), "messages": list(dialect.message_records(reader, key)),
            }))
            for key in ids
        ]


def imported(store: Store, tmp_path: Path, *lines: dict[str, Any]) -> None:
    source = RecordSource(write(tmp_path / "in.jsonl", list(lines)), "hermes-state")
    Merger(store.core, source, source.look(), write=True).run()


def rows(store: Store, sql: str) -> list[tuple[Any, ...]]:
    with store.core.reader() as reader:
        return reader.rows(sql)


def states(store: Store) -> list[tuple[Any, ...]]:
    return rows(store, "SELECT s.id, generation, c.state FROM compactions c JOIN sessions s ON s.no = c.session_no"
                       " ORDER BY s.id, generation")


def handed_over(store: Store, *ids: str) -> tuple[list[Record], Tally]:
    tally = Tally()
    with store.core.reader() as reader, reader.snapshot():
        return list(records(reader, dialect_of(reader), ids, tally=tally)), tally


def test_every_column_of_a_compaction_is_told_or_a_key_or_a_part_of_its_lease(store: Store) -> None:
    names = {name for (name,) in rows(store, "SELECT name FROM pragma_table_info('compactions')")}
    lease = {"renewals", "boot_id", "time_namespace", "expires_boottime", "term_seconds"}
    assert names == {"id", "session_no", "parent_id"} | lease | set(PASS_COLUMNS)
    assert set(TABLES) <= KNOWN_TABLES


def test_an_export_and_an_import_give_the_same_view_and_every_generation(
    store: Store, other: Store, tmp_path: Path
) -> None:
    talk(other, "before", 3)  # so that numbers of rows differ
    compacted(store, "talk", cut_at=5, anchors=(1,))
    compacted(store, "talk", cut_at=5, anchors=(1,), summary=None, clips={8: SHORT})
    failed(store, "talk", cut_at=9)
    superseded(store, "talk", cut_at=9)
    started(store, "talk", cut_at=9)
    before = view_of(store, "talk")
    assert before.generation is not None and before.clips and before.messages[0]["content"].startswith(SUMMARY)
    lines = exported(store, "talk")
    imported(other, tmp_path, *lines)
    assert view_of(other, "talk").messages == before.messages
    assert states(other) == [
        ("talk", 1, "done"), ("talk", 2, "done"), ("talk", 3, "failed"), ("talk", 4, "superseded"),
        ("talk", 5, "failed"),
    ]
    assert rows(other, "SELECT moves FROM compaction_heads") == rows(store, "SELECT moves FROM compaction_heads")
    told, again = lines[0]["compactions"], exported(other, "talk")[0]["compactions"]
    for one, two in zip(told["generations"][:4], again["generations"][:4], strict=True):
        differ = {name for name in one if one[name] != two[name]}
        assert differ <= {"source_digest", "edit_mark"}
    imported(other, tmp_path, *lines)
    assert len(states(other)) == 5


def test_a_branch_comes_with_the_generation_that_it_inherited(store: Store, other: Store, tmp_path: Path) -> None:
    compacted(store, "talk", cut_at=5)
    store.sessions.branch("talk", new_id="side")
    store.messages.append("side", role="user", content="another way")
    compacted(store, "side", cut_at=1)
    with_parent, alone = exported(store, "talk", "side"), view_of(store, "side")
    imported(other, tmp_path, *with_parent)
    assert view_of(other, "side").messages == alone.messages
    assert view_of(other, "talk").messages == view_of(store, "talk").messages


def test_what_a_branch_inherited_of_a_deleted_session_is_its_own_in_an_export(
    store: Store, other: Store, tmp_path: Path
) -> None:
    compacted(store, "talk", cut_at=5, anchors=(2,))
    store.sessions.branch("talk", new_id="side")
    store.messages.append("side", role="user", content="another way")
    store.sessions.delete("talk", actor="test", reason="to leave the branch")
    before = view_of(store, "side")
    assert before.messages[0]["content"].startswith(SUMMARY)
    imported(other, tmp_path, *exported(store, "side"))
    assert view_of(other, "side").messages == before.messages


def test_a_generation_of_which_messages_did_not_come_is_superseded_and_the_history_is_seen(
    store: Store, other: Store, tmp_path: Path
) -> None:
    compacted(store, "talk", cut_at=5)
    (line,) = exported(store, "talk")
    del line["messages"][1]
    imported(other, tmp_path, line)
    assert states(other) == [("talk", 1, "superseded")]
    assert len(view_of(other, "talk").messages) == 11


def test_lines_without_compactions_and_spoiled_ones_are_imported_as_before(
    store: Store, other: Store, tmp_path: Path
) -> None:
    compacted(store, "talk", cut_at=5)
    (line,) = exported(store, "talk")
    for spoiled in ([], {"head": 7, "moves": "x", "generations": [None, {"generation": -1}, {"generation": 1}]}):
        imported(other, tmp_path, {**line, "id": f"as {spoiled!r}"[:20], "compactions": spoiled})
    imported(other, tmp_path, {name: value for name, value in line.items() if name != "compactions"})
    assert states(other) == []
    assert len(view_of(other, "talk").messages) == 12
    assert all(message.extra == {} for message in other.messages.history("talk").messages)


def test_a_store_that_is_imported_brings_its_compactions(store: Store, other: Store) -> None:
    compacted(store, "talk", cut_at=5)
    source = StoreSource(store.core.path, store.core.clock)
    Merger(other.core, source, source.look(), write=True).run()
    assert view_of(other, "talk").messages == view_of(store, "talk").messages


def test_hermes_agent_gets_the_summary_and_the_tail_and_is_told_of_nothing_twice(store: Store) -> None:
    compacted(store, "talk", cut_at=8, anchors=(2,), clips={8: SHORT})
    view = view_of(store, "talk")
    (record,), tally = handed_over(store, "talk")
    assert [(one["role"], one["content"]) for one in record["messages"]] == [
        (one["role"], one["content"]) for one in view.messages
    ]
    assert record["messages"][0]["content"] == SUMMARY
    assert (record["message_count"], tally.hidden) == (len(view.messages), 6)


def test_a_summary_that_is_joined_with_a_user_message_stays_one_message_there(store: Store) -> None:
    compacted(store, "talk", cut_at=5)
    (record,), _tally = handed_over(store, "talk")
    assert record["messages"][0]["content"] == f"{SUMMARY}\n\n5 of talk"
    assert record["messages"][0]["token_count"] is None
    assert len(record["messages"]) == 8


def test_a_search_hit_is_there_once_and_says_which_generation_hides_it(store: Store) -> None:
    compacted(store, "talk", cut_at=5, anchors=(1,))
    compacted(store, "talk", cut_at=9, anchors=(1,))
    found = {hit.seq: hit.compacted_by for hit in store.search("talk")}
    assert found == {1: None, 2: 1, 3: 1, 4: 1, 5: 2, 6: 2, 7: 2, 9: None, 10: None, 11: None, 12: None}
    assert all(hit.hidden is None for hit in store.search("talk"))


def test_messages_that_a_generation_summarises_are_shown_as_compacted_and_exported_as_active(store: Store) -> None:
    compacted(store, "talk", cut_at=5, anchors=(1,))
    with store.core.reader() as reader, reader.snapshot():
        dialect = dialect_of(reader)
        told = [(row.live, row.compacted) for row in dialect.messages(reader, dialect.message_ids(reader, "talk"))]
        lines = list(dialect.message_records(reader, "talk"))
    assert told[:5] == [(True, False), (False, True), (False, True), (False, True), (True, False)]
    assert [(line["active"], line.get("compacted_by")) for line in lines][:5] == [
        (1, None), (1, 1), (1, 1), (1, 1), (1, None)
    ]


def test_a_delete_counts_compactions_before_and_after(store: Store) -> None:
    compacted(store, "talk", cut_at=5)
    failed(store, "talk", cut_at=7)
    with store.core.reader() as reader:
        assert dialect_of(reader).compaction_count(reader, ["talk", "nobody"]) == 2
    counts = store.core.write(lambda tx: dialect_of(tx).delete_sessions(tx, ["talk"]))
    assert (counts.sessions, counts.messages, dict(counts.others)) == (1, 12, {"compactions": 2})
    assert states(store) == []


def test_a_session_that_is_being_compacted_is_guarded(store: Store) -> None:
    started(store, "talk", cut_at=5)
    with store.core.reader() as reader:
        (reason,) = find_guards(reader, ["talk", "side"]).values()
    assert reason.startswith("it is being compacted (by ")


def test_a_store_of_an_earlier_step_is_read_as_never_compacted(tmp_path: Path) -> None:
    import gzip

    from tests.support.native_release import FOLDER

    path = tmp_path / "old" / "state.db"
    path.parent.mkdir()
    path.write_bytes(gzip.decompress((FOLDER / "0.3.0-filled.db.gz").read_bytes()))
    with open_read(path) as reader, reader.snapshot():
        dialect = dialect_of(reader)
        record = dialect.session_record(reader, "talk")
        assert record is not None and "compactions" not in record
        assert all(row.live for row in dialect.messages(reader, dialect.message_ids(reader, "talk")[:4]))
        assert dialect.compaction_count(reader, ["talk"]) == 0
        assert find_guards(reader, ["talk"]) == {}
        tally = Tally()
        assert len(list(records(reader, dialect, ["talk"], tally=tally))) == 1


def test_lines_by_message_id_bring_what_a_later_file_adds(store: Store, other: Store, tmp_path: Path) -> None:
    compacted(store, "talk", cut_at=5)
    (first,) = exported(store, "talk")
    feed = {"type": "export", "format": "hermes-state/messages", "version": 1, "since_id": 0, "high_id": 12}

    def file(name: str, session: dict[str, Any], messages: list[dict[str, Any]]) -> RecordSource:
        lines = [feed, {"type": "session", "session": session},
                 *({"type": "message", "message": one} for one in messages), {"type": "end"}]
        return RecordSource(write(tmp_path / name, lines), "hermes-state")

    plain = {name: value for name, value in first.items() if name != "messages"}
    Merger(other.core, one := file("a", plain, first["messages"]), one.look(), write=True).run()
    store.messages.append("talk", role="user", content="13 of talk")
    compacted(store, "talk", cut_at=9, anchors=(5,))
    (grown,) = exported(store, "talk")
    plain = {name: value for name, value in grown.items() if name != "messages"}
    Merger(other.core, two := file("b", plain, grown["messages"][12:]), two.look(), write=True).run()
    assert states(other) == [("talk", 1, "done"), ("talk", 2, "done")]
    assert view_of(other, "talk").messages == view_of(store, "talk").messages


def test_a_session_that_was_compacted_here_in_another_way_keeps_what_it_has(
    store: Store, other: Store, tmp_path: Path
) -> None:
    (line,) = exported(store, "talk")
    imported(other, tmp_path, line)
    compacted(other, "talk", cut_at=7, summary="Made here.")
    compacted(store, "talk", cut_at=5)
    imported(other, tmp_path, *exported(store, "talk"))
    assert states(other) == [("talk", 1, "done")]
    assert view_of(other, "talk").summary == "Made here."


def test_a_copy_with_a_summary_that_the_store_lacks_is_no_copy_to_drop(store: Store, tmp_path: Path) -> None:
    compacted(store, "talk", cut_at=5)
    with store.core.reader() as reader:
        assert compactions_lacking(reader, reader, ()) == 0
        with open_store(path=tmp_path / "none" / "state.db") as bare, bare.core.reader() as live:
            assert compactions_lacking(reader, live, ()) == 1
            assert compactions_lacking(reader, live, {"talk"}) == 0


def test_rewinds_before_and_after_a_compaction_come_with_it(store: Store, other: Store, tmp_path: Path) -> None:
    talk(other, "before", 4)
    other.messages.rewind("before", 3)
    early = store.messages.append("talk", role="user", content="taken back early")
    store.messages.rewind("talk", early)
    compacted(store, "talk", cut_at=5)
    store.messages.rewind("talk", store.messages.append("talk", role="user", content="taken back late"))
    imported(other, tmp_path, *exported(store, "talk"))
    assert states(other) == [("talk", 1, "done")]
    assert view_of(other, "talk").messages == view_of(store, "talk").messages
    ids = [message.id for message in store.messages.history("talk").messages]
    store.messages.rewind("talk", ids[2])  # into what is summarised: the whole history is seen
    with open_store(path=tmp_path / "third" / "state.db") as third:
        imported(third, tmp_path, *exported(store, "talk"))
        assert view_of(third, "talk").generation is None
        assert view_of(third, "talk").messages == view_of(store, "talk").messages
