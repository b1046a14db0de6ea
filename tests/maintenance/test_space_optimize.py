"""`sessions optimize` as a whole: merged, smaller, whole, and refused where it would be unsafe."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_state.engine import open_read, open_write
from hermes_state.errors import Corrupt, InsufficientSpace, LockTimeout
from maintenance.space import optimize as flow
from maintenance.space import optimize_plan
from maintenance.space.disk import Room
from maintenance.space.optimize import OptimizeReport, Times, checked_and_alone, make_plan, optimize
from maintenance.space.optimize_plan import Choices, OptimizePlan
from maintenance.space.verify import check, index_problem, index_problems, page_problems
from tests.support.space import change, content, context, grow, thin
from tests.support.stores import StoreCopy


def run(db: Path, **choices: object) -> OptimizeReport:
    return optimize(context(db), Choices(**choices), announce=lambda _plan: None)  # type: ignore[arg-type]


def schema(db: Path) -> list[tuple[object, ...]]:
    with open_read(db) as store:
        return store.rows("SELECT type, name, sql FROM sqlite_schema ORDER BY type, name")


@pytest.mark.parametrize("version", ["0.13.0", "0.15.2", "0.16.0", "0.17.0", "0.18.2", "0.19.0"])
def test_a_file_of_each_release_is_merged_and_keeps_every_row_and_its_schema(
    store_copy: StoreCopy, version: str
) -> None:
    db = store_copy(version)
    rows, objects, inode = content(db), schema(db), db.stat().st_ino
    report = run(db)
    assert [merged.segments_after for merged in report.merged] == [1, 1]
    assert report.after is not None and report.after.pages == ()
    assert (content(db), schema(db), db.stat().st_ino) == (rows, objects, inode)
    assert report.sizes.wal_bytes == 0
    assert index_problems(context(db)) == {}


def test_half_empty_files_shrink_to_their_content_in_both_ways(store_copy: StoreCopy) -> None:
    sizes = []
    for method in ("vacuum", "copy"):
        db = store_copy()
        grow(db, sessions=8)
        thin(db, keep=2)
        rows, inode = content(db), db.stat().st_ino
        report = run(db, method=method)
        assert report.decision.runs
        assert content(db) == rows
        assert db.stat().st_ino == inode
        assert db.stat().st_size == report.sizes.used_bytes
        sizes.append(report.sizes.file_bytes)
    assert sizes[0] == sizes[1]


def test_a_store_in_rollback_mode_is_optimized_and_stays_in_it(store_copy: StoreCopy) -> None:
    db = store_copy()
    grow(db, sessions=6)
    thin(db, keep=1)
    change(db, "PRAGMA journal_mode = DELETE")
    rows, size = content(db), db.stat().st_size
    report = run(db)
    assert report.decision.runs
    assert content(db) == rows
    assert db.stat().st_size < size
    with open_read(db) as store:
        assert store.journal_mode == "delete"


def test_a_repeat_has_nothing_to_do(store_copy: StoreCopy) -> None:
    db = store_copy()
    run(db)
    report = run(db)
    assert report.already_done
    assert report.after is None
    assert report.lines()[0] == f"Nothing to do: {db} is optimized already."


def test_a_full_file_is_not_rewritten(store_copy: StoreCopy) -> None:
    db = store_copy()
    run(db, reclaim="always")
    grow(db, sessions=1, messages=2)
    report = run(db, above_percent=90)
    assert not report.decision.runs
    assert report.decision.reason.endswith("not above the threshold of 90 %: a rewrite does not pay")


def test_a_damaged_store_is_not_touched(store_copy: StoreCopy) -> None:
    db = store_copy()
    with open_read(db) as store:
        page = store.row("SELECT max(pageno) FROM dbstat WHERE name = 'messages' AND pagetype = 'leaf'")
    assert page is not None
    with db.open("r+b") as file:
        file.seek((page[0] - 1) * 4096)
        file.write(b"\xff" * 64)
    before = db.read_bytes()
    with pytest.raises(Corrupt) as refused:
        run(db)
    assert refused.value.exit_code == 65
    assert str(refused.value).startswith(f"{db} is damaged, found before anything was changed: ")
    assert refused.value.hint == (
        f"Rewriting a damaged file can lose rows. Run `hermes-state doctor --db {db}` first."
    )
    assert db.read_bytes() == before


def test_a_damaged_index_alone_is_said_and_the_rest_is_done(store_copy: StoreCopy) -> None:
    db = store_copy()
    change(db, "DELETE FROM messages_fts_data WHERE id > 10 AND id IN (SELECT id FROM messages_fts_data LIMIT 4)")
    report = run(db)
    assert [(merged.name, merged.skipped) for merged in report.merged] == [
        ("messages_fts", "it is damaged"),
        ("messages_fts_trigram", ""),
    ]
    assert report.warnings == (
        f"The search index messages_fts is damaged and was not merged: run `hermes-state doctor --db {db}`.",
    )


def test_rows_with_nul_content_do_not_make_an_index_look_damaged(store_copy: StoreCopy) -> None:
    db = store_copy("0.17.0")
    verdict, _stamp = check(context(db), quick=False)
    assert (verdict.pages, verdict.indexes) == ((), {})


def test_a_damaged_index_is_no_damage_of_pages(store_copy: StoreCopy) -> None:
    db = store_copy()
    change(db, "DELETE FROM messages_fts_data WHERE id > 10 AND id IN (SELECT id FROM messages_fts_data LIMIT 4)")
    with open_read(db, search_modules=False) as store:
        assert page_problems(store) == ()
    assert list(index_problems(context(db))) == ["messages_fts"]


def test_a_store_that_changes_after_its_check_is_checked_again(
    store_copy: StoreCopy, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = store_copy()
    ctx = context(db)
    real, calls = flow.check, []

    def check_and_then_write(*args: object, **named: object) -> object:
        found = real(*args, **named)  # type: ignore[arg-type]
        calls.append(1)
        if len(calls) < 2:
            with open_write(db, foreign=True) as store, store.transaction() as tx:
                tx.execute("UPDATE sessions SET title = 'x' WHERE rowid = 1")
        return found

    monkeypatch.setattr(flow, "check", check_and_then_write)
    with checked_and_alone(ctx, flow.VERB, Times(), quick=True):
        assert len(calls) == 2


def test_a_store_that_never_stands_still_is_left_alone(
    store_copy: StoreCopy, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = store_copy()
    real, calls = flow.check, []

    def check_and_then_write(*args: object, **named: object) -> object:
        found = real(*args, **named)  # type: ignore[arg-type]
        calls.append(1)
        with open_write(db, foreign=True) as store, store.transaction() as tx:
            tx.execute(f"UPDATE sessions SET title = 'x{len(calls)}' WHERE rowid = 1")
        return found

    monkeypatch.setattr(flow, "check", check_and_then_write)
    ctx = context(db)
    with pytest.raises(LockTimeout) as refused, checked_and_alone(ctx, flow.VERB, Times(), quick=True):
        raise AssertionError("never reached")
    assert str(refused.value) == (
        f"{db} was written to between its check and the exclusive lock, 3 times in a row. Nothing was changed."
    )


def test_too_little_room_is_found_before_anything_is_written(
    store_copy: StoreCopy, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = store_copy()
    before = db.read_bytes()
    full = Room(directory=db.parent, needed_bytes=2 * 1024**3, free_bytes=1024**3)
    monkeypatch.setattr(optimize_plan, "rooms", lambda _needs: (full,))
    with pytest.raises(InsufficientSpace) as refused:
        run(db)
    assert str(refused.value) == (
        f"Optimizing this store needs 2.0 GiB on the file system of {db.parent}, and 1.0 GiB are free. "
        "Nothing was changed."
    )
    assert db.read_bytes() == before


def test_planner_statistics_are_refreshed_only_where_no_table_is_added(store_copy: StoreCopy) -> None:
    db = store_copy()
    assert run(db).statistics == "the file has none, and none are added"
    change(db, "ANALYZE", "DELETE FROM sqlite_stat1", "DELETE FROM sqlite_stat4")
    before = schema(db)
    report = run(db)
    assert report.statistics == "refreshed"
    assert schema(db) == before
    with open_read(db) as store:
        assert store.row("SELECT count(*) > 0 FROM sqlite_stat1") == (1,)
    change(db, "DROP TABLE sqlite_stat4")
    assert run(db).statistics == "left as they are, because refreshing them would add a table to the file"


def test_the_plan_says_sizes_indexes_decision_and_hold_time(store_copy: StoreCopy) -> None:
    db = store_copy()
    plan: OptimizePlan = make_plan(context(db), Choices())
    assert plan.shown(online=False).lines == (
        "File 552.0 KiB, of which 0 B are free pages.",
        "Merge the search index messages_fts: 13 segments, 68.0 KiB.",
        "Merge the search index messages_fts_trigram: 13 segments, 180.0 KiB.",
        "Return no pages: 0.0 % of the file is free (0 B), not above the threshold of 10 %: a rewrite does not pay. "
        "Decided again after the merge.",
        "Planner statistics: the file has none, and none are added.",
        "Holds the store's exclusive lock for about 1 s.",
        "Programs that start meanwhile cannot open the store; hermes-agent gives up after about 2 s.",
    )


def test_a_copy_left_by_a_killed_run_is_named_in_the_plan(store_copy: StoreCopy) -> None:
    db = store_copy()
    left = db.with_name("state.db.compact-copy-20260101T000000Z-1")
    left.touch()
    plan = make_plan(context(db), Choices())
    assert plan.shown(online=False).lines[-1] == f"Left over from a killed run, not used: {left}"
    assert plan.shown(online=False).facts["leftover_copies"] == [str(left)]


def test_an_unfinished_conversion_is_named_in_the_plan(store_copy: StoreCopy) -> None:
    db = store_copy()
    change(db, "CREATE TABLE fts_v22_trash_messages_fts_data(id INTEGER PRIMARY KEY, block BLOB)")
    plan = make_plan(context(db), Choices())
    assert plan.shown(online=False).lines[-1] == (
        "A conversion of the search indexes was not finished: run `hermes-state sessions optimize-storage`."
    )


def test_a_lock_that_was_not_obtained_is_no_finding_of_a_check(tmp_path: Path) -> None:
    class Locked:
        path = tmp_path / "state.db"

        def rows(self, sql: str, params: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
            raise LockTimeout("busy", path=self.path, holders=(), waited_seconds=1.0)

    for look in (page_problems, lambda reader: index_problem(reader, "messages_fts")):
        with pytest.raises(LockTimeout, match=r"^busy$"):
            look(Locked())  # type: ignore[arg-type]


def test_a_damaged_index_is_not_called_optimized_already(store_copy: StoreCopy) -> None:
    db = store_copy()
    run(db)
    with open_write(db, foreign=True) as store, store.transaction() as tx:
        tx.execute("UPDATE messages_fts_data SET block = zeroblob(12) WHERE id > 10")
    report = run(db)
    assert any(merged.skipped for merged in report.merged)
    assert (report.already_done, report.lines()[0]) == (False, f"Nothing could be done for {db}.")
