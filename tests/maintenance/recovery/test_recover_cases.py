"""Every case of the corruption library over files of every release and native stores: what comes back, what is said.

For each: every row that the damage did not touch comes back as it was, nothing is invented, and a row that is another
one than before is called so. The percentages of the reference are held on the database that they were measured on.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from hermes_state.errors import NotFound
from hermes_state.testing.damage_cases import CASES
from hermes_state.testing.reference import reference_database
from tests.maintenance.backups.making import query
from tests.maintenance.recovery.recovering import (
    Outcome,
    damaged_and_recovered,
    everything,
    foreign_store,
    leave_wal,
    little_space,
    native_store,
    untouched,
)

__all__ = ["little_space"]
VERSIONS = ("0.13.0", "0.15.2", "0.16.0", "0.17.0", "0.18.2", "0.19.0")
# One bit of a text may be another one, and SQLite sees nothing: only a check or a copy can tell.
SINGLE_BITS = "two_hundred_bits_flipped"
# Tables of a native store whose rows have a check or a hash of their own; the content of an obligation has one too.
CHECKED = ("messages", "bodies", "shared_texts")
# Columns of hermes-agent's messages of which a search index keeps a copy, or an index an entry.
COVERED = ("id", "session_id", "content", "tool_name", "tool_calls", "timestamp", "active")


def store(kind: str, folder: Path) -> Path:
    if kind == "native":
        return native_store(folder)
    return foreign_store(folder, kind, grown=8)


def outcome_of(kind: str, case: str, tmp_path: Path, seed: int) -> Outcome:
    db = store(kind, tmp_path / "home")
    if "wal" in CASES[case].needs:
        leave_wal(db)
    before = db.read_bytes()
    try:
        outcome = damaged_and_recovered(db, case, seed=seed)
    except NotFound:
        pytest.skip("the file has nothing that this case damages")
    require_what_was_not_touched(outcome, tmp_path, before)
    return outcome


def require_what_was_not_touched(outcome: Outcome, tmp_path: Path, before: bytes) -> None:
    damage = outcome.damage
    if damage is None or "wal" in damage.kind:
        return
    whole = tmp_path / "whole-main.db"
    whole.write_bytes(before)
    # The rows of the schema are needed to know that a table is there; its own statement may be gone.
    missing = untouched(whole, "messages", set(damage.pages)) - outcome.equal
    kept_apart_for_a_body = {key for key in missing if outcome.report.dialect == "native" and outcome.flagged(key)}
    assert missing - kept_apart_for_a_body == set()


def require_flags(outcome: Outcome, case: str) -> None:
    if case != SINGLE_BITS:
        assert outcome.unflagged == []
        return
    if outcome.report.dialect == "native":
        # Changed, not invented, nothing that has a check of its own, and only where no index has a copy.
        assert [key for key in outcome.unflagged if key in outcome.invented or key[0] in CHECKED] == []
        copied = indexed(outcome)
        for key in outcome.unflagged:
            changed = zip(columns(outcome, key[0]), outcome.before[key], outcome.after[key], strict=True)
            assert [name for name, was, now in changed if was != now and name in copied.get(key[0], ())] == [], key
        return
    names = {name: place for place, name in enumerate(columns(outcome))}
    for key in outcome.unflagged:
        assert key in outcome.wrong  # changed, not invented
        if key[0] == "messages":
            was, now = outcome.before[key], outcome.after[key]
            assert [name for name in COVERED if name in names and was[names[name]] != now[names[name]]] == []


def columns(outcome: Outcome, table: str = "messages") -> list[str]:
    return [str(name) for (name,) in query(outcome.report.output, f"SELECT name FROM pragma_table_info('{table}')")]


def indexed(outcome: Outcome) -> dict[str, set[str]]:
    """By table, the columns that an index has a copy of for every row."""
    found: dict[str, set[str]] = {}
    for table, name in query(
        outcome.report.output, "SELECT m.name, c.name FROM sqlite_schema AS m, pragma_index_list(m.name) AS l,"
        " pragma_index_xinfo(l.name) AS c WHERE m.type = 'table' AND NOT l.partial AND c.key AND c.name IS NOT NULL",
    ):
        found.setdefault(str(table), set()).add(str(name))
    return found


@pytest.mark.slow
@pytest.mark.usefixtures("little_space")
@pytest.mark.parametrize("case", CASES)
def test_every_case_on_a_native_store(tmp_path: Path, case: str) -> None:
    outcome = outcome_of("native", case, tmp_path, 1)
    require_flags(outcome, case)
    assert outcome.invented == {key for key in outcome.invented if outcome.flagged(key)}


@pytest.mark.slow
@pytest.mark.usefixtures("little_space")
@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=() if n % 3 == 0 else pytest.mark.campaign) for n, case in enumerate(CASES)]
)
def test_every_case_on_a_file_of_hermes_agent(tmp_path: Path, case: str) -> None:
    version = VERSIONS[list(CASES).index(case) % len(VERSIONS)]
    require_flags(outcome_of(version, case, tmp_path, 1), case)


@pytest.mark.campaign
@pytest.mark.slow
@pytest.mark.usefixtures("little_space")
@pytest.mark.parametrize("version", [*VERSIONS, "native"])
@pytest.mark.parametrize("case", CASES)
def test_every_case_on_every_release_with_other_seeds(tmp_path: Path, case: str, version: str) -> None:
    for seed in (2, 3):
        folder = tmp_path / str(seed)
        folder.mkdir()
        require_flags(outcome_of(version, case, folder, seed), case)


def reference_outcome(case: str, tmp_path: Path, rows: int) -> Outcome:
    wal = "wal" in CASES[case].needs
    db = tmp_path / "state.db"
    reference_database(db, rows=rows, wal_rows=rows * 12 // 100 if wal else 0)
    try:
        return damaged_and_recovered(db, case)
    except NotFound:
        pytest.skip("the file has nothing that this case damages")


def found_percent(outcome: Outcome) -> float:
    """Rows that came back, those included that fit no known table: the reference counts its lost_and_found."""
    if outcome.percent or outcome.report.apart_path is None:
        return outcome.percent
    rows = {json.dumps(row) for (_table, _key), row in outcome.before.items()}
    found = set()
    for line in outcome.report.apart_path.read_text(encoding="utf-8").splitlines():
        said = json.loads(line)
        found.add(json.dumps((said["key"], *list(said["values"].values())[1:])))
    return 100 * len(found & rows) / len(rows)


def attainable_percent(outcome: Outcome, tmp_path: Path) -> float:
    """Rows that the damage left: those on other pages, or of a damaged WAL those that SQLite itself still reads."""
    source = outcome.report.source.name
    if outcome.damage is None or not outcome.damage.pages:
        return 100.0
    if "wal" in outcome.damage.kind:
        (tmp_path / "seen").mkdir()
        for path in (source, Path(f"{source}-wal")):
            if path.exists():
                shutil.copy(path, tmp_path / "seen" / path.name)
        return 100 * len(everything(tmp_path / "seen" / source.name)) / len(outcome.before)
    left = untouched(source.with_name("whole.db"), "messages", set(outcome.damage.pages))
    return 100 * len(left) / len(outcome.before)


@pytest.mark.slow
@pytest.mark.usefixtures("little_space")
@pytest.mark.parametrize("case", ["header_zeroed", "interior_zeroed", "twenty_overflow_zeroed", "wal_header_zeroed"])
def test_a_small_reference_database_comes_back(tmp_path: Path, case: str) -> None:
    outcome = reference_outcome(case, tmp_path, 1500)
    assert outcome.unflagged == []
    assert outcome.percent >= 98.5


@pytest.mark.campaign
@pytest.mark.slow
@pytest.mark.usefixtures("little_space")
@pytest.mark.parametrize("case", [name for name, case in CASES.items() if case.reference is not None])
def test_the_reference_database_comes_back_as_far_as_recover_brings_it(tmp_path: Path, case: str) -> None:
    reference = CASES[case].reference
    assert reference is not None
    outcome = reference_outcome(case, tmp_path, 18_928)
    # The measured file had its pages in another order: what is cut off, or hit by chance, is another share of it.
    wanted = min(round(reference.recover, 1) - 0.1, attainable_percent(outcome, tmp_path))
    assert found_percent(outcome) >= wanted
    if case != SINGLE_BITS:
        assert outcome.unflagged == []
