"""One run from a script's side: steps, cancelling, going on, files that it makes, what is partial."""

from __future__ import annotations

import json
import shutil
import stat
from pathlib import Path

import pytest

from hermes_state.errors import RecoveryStopped
from hermes_state.testing.page_damage import zero_leaves
from hermes_state.testing.reference import reference_database
from maintenance.recovery import recover
from maintenance.recovery.records import Step
from tests.maintenance.recovery.recovering import everything, foreign_store, little_space

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("little_space")]
__all__ = ["little_space"]


def damaged(folder: Path) -> Path:
    db = foreign_store(folder, "0.19.0", grown=8)
    zero_leaves(db, "messages", 2, seed=3)
    return db


def test_steps_are_told_with_what_is_done_and_how_much_there_is(tmp_path: Path) -> None:
    steps: list[Step] = []
    recover(damaged(tmp_path), tmp_path / "out.db", allow_partial=True, progress=steps.append)
    doing = list(dict.fromkeys(step.doing for step in steps))
    assert doing[0] == "checking pages" and doing[-2:] == ["building indexes", "verifying"]
    assert {"reading pages", "comparing messages", "comparing with the search index"} <= set(doing)
    assert [step for step in steps if step.total is not None and step.done > step.total] == []


def test_a_cancelled_run_keeps_its_work_and_the_same_call_goes_on(tmp_path: Path) -> None:
    db = damaged(tmp_path)
    straight = recover(db, tmp_path / "straight.db", allow_partial=True)
    calls = 0
    for most in (1, 4, 7):
        calls = 0

        def stop() -> bool:
            nonlocal calls
            calls += 1
            return calls > most  # noqa: B023  read at once

        with pytest.raises(RecoveryStopped) as caught:
            recover(db, tmp_path / "out.db", allow_partial=True, cancel=stop)
        folder = tmp_path / "out.db.recovering"
        assert str(caught.value) == (
            f"The recovery of {db} was stopped. What was done so far is kept in {folder}."
        )
        assert caught.value.hint == (
            "Run the same command again: it goes on from there. To give up, remove that folder."
        )
        assert folder.is_dir() and not (tmp_path / "out.db").exists()
    report = recover(db, tmp_path / "out.db", allow_partial=True)
    assert report.resumed and not straight.resumed
    assert everything(report.output) == everything(straight.output)
    assert not (tmp_path / "out.db.recovering").exists()
    for one, other in zip(report.tables, straight.tables, strict=True):
        assert {**one.document(), "seconds": None} == {**other.document(), "seconds": None}


def test_a_source_that_changed_meanwhile_is_begun_anew(tmp_path: Path) -> None:
    db = damaged(tmp_path)
    calls = 0

    def stop() -> bool:
        nonlocal calls
        calls += 1
        return calls > 5

    with pytest.raises(RecoveryStopped):
        recover(db, tmp_path / "out.db", cancel=stop)
    shutil.copy(foreign_store(tmp_path / "other", "0.16.0"), db)
    report = recover(db, tmp_path / "out.db")
    assert not report.resumed
    assert report.table("messages").rows == 118


def test_lost_rows_make_the_result_partial_unless_that_is_allowed(tmp_path: Path) -> None:
    db = damaged(tmp_path)
    report = recover(db, tmp_path / "out.db")
    assert report.partial and report.lost
    assert report.output == tmp_path / "out.db.partial" and report.output.exists()
    assert not (tmp_path / "out.db").exists()
    allowed = recover(db, tmp_path / "second.db", allow_partial=True)
    assert (allowed.partial, allowed.lost, allowed.output) == (False, True, tmp_path / "second.db")


def test_lost_keys_are_listed_with_what_an_index_says_of_them(tmp_path: Path) -> None:
    db = tmp_path / "state.db"
    rows = {row[0]: row for row in reference_database(db, rows=900)}
    zero_leaves(db, "messages", 2, seed=3)
    report = recover(db, tmp_path / "out.db", allow_partial=True)
    messages = report.table("messages")
    found = {key for table, key in everything(report.output) if table == "messages"}
    assert {said["key"] for said in messages.lost} == set(rows) - found
    assert messages.lost_keys == len(messages.lost) > 0
    for said in messages.lost:
        assert (said["session"], said["created_at"]) == (rows[said["key"]][1], rows[said["key"]][4])
    assert not messages.complete and messages.lost_ranges == []
    lost_in_gaps = sum(gap["ids"] for gap in report.time_gaps)
    assert lost_in_gaps >= messages.lost_keys


def test_every_file_is_private_and_the_report_holds_the_document(tmp_path: Path) -> None:
    report = recover(damaged(tmp_path), tmp_path / "out.db", allow_partial=True)
    assert report.apart_path is not None
    for path in (report.output, report.report_path, report.apart_path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    lines = report.apart_path.read_text(encoding="utf-8").splitlines()
    assert len(lines) == sum(table.apart for table in report.tables)
    assert {json.loads(line)["reason"] for line in lines} == {"only its text is left, in the search index"}
    assert json.loads(report.report_path.read_text())["tables"] == report.document()["tables"]


def test_a_store_without_damage_comes_back_whole_with_every_row_certain(tmp_path: Path) -> None:
    db = foreign_store(tmp_path, "0.17.0")
    report = recover(db)
    assert everything(report.output) == everything(db)
    assert all(table.complete and table.certain == table.rows for table in report.tables)
    assert report.verified == {
        "rows_equal_to_source": 195, "rows_not_reachable_in_source": 0, "pages": "ok", "references": "ok",
        "counts": "as reported",
    }
    assert (report.partial, report.apart_path, report.decisions) == (False, None, [])
