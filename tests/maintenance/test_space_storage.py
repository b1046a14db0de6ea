"""The conversion: right from the first commit to the last, resumable, and harmless to whoever opens the file midway."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hermes_state.engine import NulRule, Store, open_exclusive, open_read
from hermes_state.errors import Corrupt, NotAStore, SchemaTooNew, SchemaTooOld
from maintenance.space.optimize import Times
from maintenance.space.sizes import by_object
from maintenance.space.storage import convert, flow
from maintenance.space.storage.flow import Conversion, StorageReport, compare, make_plan, optimize_storage
from maintenance.space.storage.layout import ALL_TRIGGERS
from maintenance.space.storage.plan import StorageChoices
from maintenance.space.storage.state import storage_state
from tests.support.space import change, content, context, grow
from tests.support.stores import StoreCopy

CONVERTIBLE = ("0.17.0", "0.18.2", "0.19.0")


def run(db: Path, **choices: Any) -> StorageReport:
    ctx = context(db)
    return optimize_storage(ctx, make_plan(ctx, StorageChoices(**choices)))


def messages(db: Path) -> dict[str, list[tuple[object, ...]]]:
    return {table: rows for table, rows in content(db).items() if table != "state_meta"}


def require_right(store: Store) -> None:
    """Both indexes agree with the text, read as SQLite 3.40 reads it."""
    for index in ("messages_fts", "messages_fts_trigram"):
        with store.transaction() as tx:
            tx.execute(f"INSERT INTO {index}({index}, rank) VALUES ('integrity-check', 1)")


def words(store: Store, word: str) -> list[int]:
    found = store.rows("SELECT rowid FROM messages_fts WHERE messages_fts MATCH ? ORDER BY rowid", (word,))
    return [int(row[0]) for row in found]


@pytest.mark.parametrize("version", CONVERTIBLE)
def test_a_file_is_converted_with_every_row_and_a_third_of_its_search_bytes(
    store_copy: StoreCopy, version: str
) -> None:
    db = store_copy(version)
    rows, inode = messages(db), db.stat().st_ino
    with open_read(db) as reader:
        before = {item.name: item.bytes for item in by_object(reader)}
    report = run(db)
    assert report.state.done and report.state.trigram
    assert messages(db) == rows
    assert db.stat().st_ino == inode
    assert report.indexed_rows["messages_fts"] == len(rows["messages"])
    with open_read(db) as reader:
        after = {item.name: item.bytes for item in by_object(reader)}
    assert after["messages_fts"] + after["messages_fts_trigram"] < 0.4 * (
        before["messages_fts"] + before["messages_fts_trigram"]
    )
    assert report.sizes.file_bytes == pytest.approx(report.plan.estimate_bytes, rel=0.25)


def test_a_repeat_has_nothing_to_do(store_copy: StoreCopy) -> None:
    db = store_copy()
    run(db)
    before = db.read_bytes()
    report = run(db)
    assert report.already_done
    assert report.lines() == (f"Nothing to do: {db} has the smaller search layout already.",)
    assert db.read_bytes() == before


@pytest.mark.parametrize(("version", "schema"), [("0.13.0", 11), ("0.15.2", 13), ("0.16.0", 14)])
def test_an_older_schema_is_refused_with_the_release_to_open_it_with(
    store_copy: StoreCopy, version: str, schema: int
) -> None:
    db = store_copy(version)
    with pytest.raises(SchemaTooOld) as refused:
        make_plan(context(db), StorageChoices())
    assert str(refused.value) == (
        f"{db} has schema version {schema}; the smaller search layout needs 16 or later."
    )
    assert refused.value.hint == (
        "Open it once with hermes-agent 0.17.0 or a later release, then run this again."
    )
    assert refused.value.facts == {"path": db, "found": schema, "needed": 16}


def test_a_schema_newer_than_the_known_layout_is_refused(store_copy: StoreCopy) -> None:
    db = store_copy()
    change(db, "UPDATE schema_version SET version = 32")
    with pytest.raises(SchemaTooNew) as refused:
        make_plan(context(db), StorageChoices())
    assert str(refused.value) == f"{db} has schema version 32; the search layout is known up to 31."


def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    db = tmp_path / "other.db"
    change(db, "CREATE TABLE t(a)")
    with pytest.raises(NotAStore) as refused:
        make_plan(context(db), StorageChoices())
    assert str(refused.value) == f"{db} is no store of hermes-agent: it has no table schema_version."


def test_rows_with_nul_are_indexed_as_the_older_library_reads_them(store_copy: StoreCopy) -> None:
    db = store_copy("0.17.0")
    run(db)
    with open_exclusive(db, foreign=True, nul_rule=NulRule.CUT) as store:
        require_right(store)
        nul = store.rows("SELECT id FROM messages WHERE instr(CAST(content AS BLOB), x'00') AND role <> 'tool'")
        # The word index reads past a NUL in both libraries; the trigram index has nothing of such a row.
        assert nul and all(
            store.rows("SELECT 1 FROM messages_fts_trigram WHERE messages_fts_trigram MATCH 'json' AND rowid = ?", row)
            == []
            for row in nul
        )
        assert set(words(store, "json")) >= {int(row[0]) for row in nul}


def test_at_every_commit_all_trigger_names_exist_and_both_indexes_can_be_written(store_copy: StoreCopy) -> None:
    db = store_copy("0.17.0")
    steps: list[str] = []
    with open_exclusive(db, foreign=True, nul_rule=NulRule.CUT) as store:
        plan = make_plan_of(store)

        def between(step: str) -> None:
            steps.append(step)
            names = store.rows("SELECT name FROM sqlite_schema WHERE type = 'trigger' AND name LIKE 'messages_fts%'")
            assert {str(name) for (name,) in names} == set(ALL_TRIGGERS)
            work_like_hermes_agent(store, len(steps))

        Conversion(context(db), store, plan, between=between).run(Times())
        require_right(store)
        assert [len(words(store, f"halfway{number}")) for number in range(1, len(steps) + 1)] == [1] * len(steps)
    assert steps == [
        "staged", *["some of the old index gone"] * 10, "some rows indexed", "all rows indexed", *["index merged"] * 2,
    ]


def make_plan_of(store: Store) -> Any:
    from maintenance.space.storage.plan import look

    return look(store, StorageChoices())


def work_like_hermes_agent(store: Store, number: int) -> None:
    """Append, flip flags, change and delete rows on both sides of the marks."""
    with store.transaction() as tx:
        tx.execute(
            "INSERT INTO messages(session_id, role, content, timestamp) "
            "SELECT id, 'user', ?, 1.7e9 FROM sessions WHERE source = 'cli' LIMIT 1",
            (f"halfway{number} and some text",),
        )
        tx.execute("UPDATE messages SET token_count = ? WHERE id % 7 = 3", (number,))
        tx.execute("UPDATE messages SET content = content || ' more' WHERE id = ?", (number * 9,))
        tx.execute("DELETE FROM messages WHERE id = ?", (number * 9 + 1,))


@pytest.mark.parametrize("stop_at", ["staged", "some of the old index gone", "some rows indexed", "all rows indexed"])
def test_a_run_goes_on_where_the_last_one_stopped(
    store_copy: StoreCopy, monkeypatch: pytest.MonkeyPatch, stop_at: str
) -> None:
    monkeypatch.setattr(convert, "BACKFILL_ROWS", 50)
    db = store_copy("0.18.2")
    rows = messages(db)

    class Stopped(Exception):
        pass

    def between(step: str) -> None:
        if step == stop_at:
            raise Stopped

    with open_exclusive(db, foreign=True, nul_rule=NulRule.CUT) as store, pytest.raises(Stopped):
        Conversion(context(db), store, make_plan_of(store), between=between).run(Times())
    with open_read(db) as reader:
        state = storage_state(reader)
    assert state.pending == (stop_at != "all rows indexed")
    if stop_at == "some rows indexed":
        assert (state.progress, state.high_water) == (50, 132)
        plan = make_plan(context(db), StorageChoices())
        assert "Go on with a conversion that was begun: 50 of 132 rows are indexed." in plan.shown().lines
    run(db)
    assert messages(db) == rows
    with open_exclusive(db, foreign=True, nul_rule=NulRule.CUT) as store:
        require_right(store)
        assert storage_state(store).done


def test_a_conversion_left_by_hermes_agent_with_its_old_tables_still_there_is_finished(store_copy: StoreCopy) -> None:
    db = store_copy()
    with open_exclusive(db, foreign=True, nul_rule=NulRule.CUT) as store:
        convert.stage(store, trigram=True)
        while convert.backfill_step(store, trigram=True) is not None:
            pass
        with store.transaction() as tx:
            convert.drop_meta(tx, "fts_rebuild_high_water", "fts_rebuild_progress")
        assert len(storage_state(store).trash) == 10
    report = run(db)
    assert report.state.done and report.state.trash == ()


def test_empty_indexes_without_marks_are_filled_not_taken_for_done(store_copy: StoreCopy) -> None:
    db = store_copy()
    with open_exclusive(db, foreign=True, nul_rule=NulRule.CUT) as store:
        convert.stage(store, trigram=True)
        with store.transaction() as tx:
            convert.drop_meta(tx, "fts_rebuild_high_water", "fts_rebuild_progress")
    report = run(db)
    assert report.state.done
    assert report.indexed_rows["messages_fts"] == 72


def test_an_older_external_layout_is_brought_to_version_3(store_copy: StoreCopy) -> None:
    db = store_copy()
    run(db)
    change(
        db,
        "DROP TABLE messages_fts",
        "CREATE VIRTUAL TABLE messages_fts USING fts5("
        "content, tool_name, tool_calls, content='messages', content_rowid='id')",
        "INSERT INTO messages_fts(messages_fts) VALUES ('rebuild')",
        "UPDATE state_meta SET value = '2' WHERE key = 'fts_storage_version'",
    )
    with open_read(db) as reader:
        assert storage_state(reader).layout == "older external"
    assert run(db).state.done


def test_a_missing_trigger_is_a_reason_to_build_the_indexes_anew(store_copy: StoreCopy) -> None:
    db = store_copy()
    run(db)
    change(
        db,
        "DROP TRIGGER messages_fts_insert",
        "INSERT INTO messages(session_id, role, content, timestamp) "
        "SELECT id, 'user', 'unseen', 1 FROM sessions LIMIT 1",
    )
    report = run(db)
    assert report.state.done
    with open_exclusive(db, foreign=True, nul_rule=NulRule.CUT) as store:
        assert len(words(store, "unseen")) == 1


def test_the_file_grows_by_no_more_than_a_few_pages_while_it_is_converted(store_copy: StoreCopy) -> None:
    db = store_copy()
    grow(db, sessions=6)
    change(db, "VACUUM")
    size = db.stat().st_size
    run(db, vacuum=False)
    assert db.stat().st_size <= size + 16 * 4096


def test_without_vacuum_the_freed_pages_stay(store_copy: StoreCopy) -> None:
    db = store_copy()
    report = run(db, vacuum=False)
    assert report.sizes.free_pages > 30
    assert report.plan.shown().lines[-4] == "The freed pages stay in the file (--no-vacuum)."


def test_broken_json_in_a_session_does_not_make_an_append_fail(store_copy: StoreCopy) -> None:
    db = store_copy()
    change(db, "UPDATE sessions SET model_config = '{broken' WHERE rowid = 1")
    run(db)
    change(
        db,
        "INSERT INTO messages(session_id, role, content, timestamp) "
        "SELECT id, 'user', 'afterwards', 1 FROM sessions WHERE rowid = 1",
    )
    with open_read(db) as reader:
        assert reader.rows("SELECT count(*) FROM messages_fts WHERE messages_fts MATCH 'afterwards'") == [(1,)]


def test_trigram_off_and_on_again(store_copy: StoreCopy) -> None:
    db = store_copy("0.18.2")
    rows = messages(db)
    full = run(db).indexed_rows["messages_fts_trigram"]
    off = run(db, trigram="off")
    assert off.indexed_rows["messages_fts_trigram"] == 0
    assert not off.state.trigram and off.state.done
    assert off.sizes.file_bytes < off.plan.sizes.file_bytes
    assert run(db).already_done
    change(
        db,
        "INSERT INTO messages(session_id, role, content, timestamp) "
        "SELECT id, 'user', 'zebrafish', 1 FROM sessions WHERE source = 'cli' LIMIT 1",
    )
    on = run(db, trigram="on")
    assert on.indexed_rows["messages_fts_trigram"] == full + 1
    with open_exclusive(db, foreign=True, nul_rule=NulRule.CUT) as store:
        require_right(store)
        found = store.rows("SELECT content FROM messages_fts_trigram WHERE messages_fts_trigram MATCH 'brafi'")
        assert found == [("zebrafish",)]
    assert len(messages(db)["messages"]) == len(rows["messages"]) + 1


def test_trigram_off_in_one_go_with_the_conversion(store_copy: StoreCopy) -> None:
    db = store_copy()
    report = run(db, trigram="off")
    assert report.state.done and not report.state.trigram
    assert report.lines()[-1] == "The trigram index is off: hermes-agent finds no CJK text and no parts of words."


def test_an_index_that_does_not_agree_with_the_text_is_never_reported_as_done(
    store_copy: StoreCopy, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = store_copy()
    real = flow.convert.finish

    def finish_and_spoil(store: Store) -> None:
        real(store)
        with store.transaction() as tx:
            tx.execute("INSERT INTO messages_fts(messages_fts, rowid, content) VALUES ('delete', 1, 'never there')")

    monkeypatch.setattr(flow.convert, "finish", finish_and_spoil)
    with pytest.raises(Corrupt) as raised:
        run(db)
    assert str(raised.value) in {
        f"The new search index messages_fts of {db} is not right: it holds 71 rows of 72. No message was changed.",
        f"The new search index messages_fts of {db} is not right: it does not agree with the text. "
        "No message was changed.",
    }
    assert raised.value.search_index is True


DAMAGES = (
    "DELETE FROM messages_fts_data WHERE id > 10 AND id IN (SELECT id FROM messages_fts_data LIMIT 4)",
    "DELETE FROM messages_fts_docsize WHERE id % 2",
    "DELETE FROM messages_fts_trigram_config",
    "UPDATE messages_fts_trigram_data SET block = x'00' WHERE id = 10",
)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_inline_index_is_replaced_by_a_right_one(store_copy: StoreCopy, damage: str) -> None:
    db = store_copy()
    rows = messages(db)
    change(db, damage)
    assert run(db).state.done
    assert messages(db) == rows
    with open_exclusive(db, foreign=True, nul_rule=NulRule.CUT) as store:
        require_right(store)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_index_of_the_smaller_layout_is_built_anew_when_asked(store_copy: StoreCopy, damage: str) -> None:
    db = store_copy()
    run(db)
    change(db, damage)
    assert run(db).already_done
    assert run(db, rebuild=True).state.done
    with open_exclusive(db, foreign=True, nul_rule=NulRule.CUT) as store:
        require_right(store)


def test_compare_counts_rows_and_words(store_copy: StoreCopy) -> None:
    db = store_copy()
    run(db)
    with open_exclusive(db, foreign=True, nul_rule=NulRule.CUT) as store:
        assert compare(store, "messages_fts") == 72
