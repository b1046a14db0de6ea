"""The NUL rule of an index is read off the index, without checking all of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_state.engine import NulRule, open_read
from maintenance.doctor.findings import Severity
from maintenance.doctor.fulltext import fulltext_indexes
from maintenance.doctor.nul_rule import Evidence, evidence_of, rule_of_store
from maintenance.recovery.run import recover
from tests.faults.operation import settled
from tests.maintenance.damage import change, examined
from tests.maintenance.external_layout import convert
from tests.support.stores import StoreCopy


def index_rule_of(path: Path) -> NulRule:
    with open_read(path) as reader, reader.snapshot():
        return rule_of_store(reader)


@pytest.mark.parametrize(
    ("release", "rule"),
    [
        ("0.13.0", NulRule.CUT),
        ("0.15.2", NulRule.CUT),
        ("0.16.0", NulRule.CUT),
        ("0.17.0", NulRule.CUT),
        ("0.18.2", NulRule.CUT),
        ("0.19.0", NulRule.NATIVE),  # its file has no text with a NUL, so both rules are the same
    ],
)
def test_each_release_shows_the_rule_of_the_sqlite_it_was_written_with(
    release: str, rule: NulRule, store_copy: StoreCopy
) -> None:
    assert index_rule_of(store_copy(release)) is rule


def test_an_index_rebuilt_by_a_newer_sqlite_shows_the_other_rule(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    change(path, "INSERT INTO messages_fts_trigram(messages_fts_trigram) VALUES ('rebuild')", rule=NulRule.NATIVE)
    assert index_rule_of(path) is NulRule.NATIVE


@pytest.mark.parametrize("rule", list(NulRule))
def test_the_external_layout_shows_its_rule_too(rule: NulRule, store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    convert(path, rule=rule)
    assert index_rule_of(path) is rule


def test_rows_whose_text_behind_the_nul_also_stands_before_it_tell_nothing(store_copy: StoreCopy) -> None:
    path = store_copy("0.19.0")
    change(path, "UPDATE messages SET content = 'abc' || char(0) || 'abc' WHERE id = 1")
    with open_read(path) as reader:
        (index,) = (index for index in fulltext_indexes(reader) if index.name == "messages_fts_trigram")
        assert evidence_of(reader, index) == Evidence(past_nul=0, cut=0)


def test_a_damaged_index_gives_no_evidence_and_no_error(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    change(path, "DELETE FROM messages_fts_trigram_data WHERE id = 10")
    assert index_rule_of(path) is NulRule.NATIVE


def test_of_mixed_evidence_the_rule_of_most_rows_counts() -> None:
    assert Evidence(past_nul=1, cut=2).rule is NulRule.CUT
    assert Evidence(past_nul=2, cut=1).rule is NulRule.NATIVE
    assert Evidence(past_nul=1, cut=1).mixed
    assert Evidence(past_nul=0, cut=0).rule is NulRule.NATIVE


@pytest.mark.slow
@pytest.mark.parametrize("release", ["0.17.0", "0.19.0"])
@pytest.mark.parametrize("content", [b"abc abc\0abc", "abc\0äöü".encode(), b"ab\0cd"])
def test_an_index_that_shows_no_rule_is_right_under_either_for_recover_and_doctor_alike(
    release: str, content: bytes, store_copy: StoreCopy
) -> None:
    """Recover builds as SQLite 3.40 does. With nothing to tell the rules apart doctor tried the newer one alone."""
    path = store_copy(release)
    change(
        path,
        "DELETE FROM messages WHERE instr(CAST(content AS BLOB), x'00') OR instr(CAST(tool_calls AS BLOB), x'00')",
        rule=NulRule.CUT,
    )
    change(
        path, "INSERT INTO messages (session_id, role, content, timestamp)"
        f" SELECT id, 'user', x'{content.hex()}', 1.0 FROM sessions LIMIT 1",
    )
    settled(path)
    made = recover(path).output
    for file in (path, made):
        seen = examined(file, deep=True).findings
        assert [one.sentence for one in seen if one.severity is Severity.DAMAGE] == []
