"""Search indexes are judged by the rule they were built with, and each kind of damage is seen by one of four looks."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_state.engine import NulRule
from maintenance.doctor.findings import Severity
from tests.maintenance.damage import change, examined, only, opened, worse_than
from tests.maintenance.external_layout import convert
from tests.support.cli import RunCli
from tests.support.stores import StoreCopy

DATA = "messages_fts_data"


def newest(path: Path) -> int:
    connection = opened(path)
    try:
        return int(connection.execute("SELECT max(id) FROM messages").fetchall()[0][0])
    finally:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        connection.close()


@pytest.mark.parametrize(
    "statement",
    [
        f"UPDATE {DATA} SET block = randomblob(length(block)) WHERE id = (SELECT max(id) FROM {DATA})",
        f"DELETE FROM {DATA} WHERE id > 10",
        f"DELETE FROM {DATA} WHERE id = 10",
    ],
    ids=["block overwritten", "blocks gone", "structure record gone"],
)
def test_damage_inside_an_index_is_found_and_never_taken_for_damage_of_the_store(
    statement: str, store_copy: StoreCopy
) -> None:
    path = store_copy("0.17.0")
    change(path, statement)
    found = examined(path)
    assert only(found, "pages").severity is Severity.OK
    damage = only(found, "search_index_damaged")
    assert damage.sentence == "The search index messages_fts does not agree with its text; no conversation is affected."
    assert (damage.object, damage.derived) == ("messages_fts", True)
    assert (found.exit_code, found.verdict) == (3, "problems")
    assert found.next_command == f"hermes-state sessions repair --db {path}"


@pytest.mark.parametrize("release", ["0.13.0", "0.15.2"])
def test_the_command_that_is_named_helps_files_of_every_release(release: str, store_copy: StoreCopy) -> None:
    path = store_copy(release)
    change(path, f"DELETE FROM {DATA} WHERE id = 10")
    found = examined(path)
    assert only(found, "search_index_damaged").object == "messages_fts"
    assert (found.exit_code, found.next_command) == (3, f"hermes-state sessions repair --db {path}")


@pytest.mark.slow
def test_the_named_command_heals_a_damaged_index(store_copy: StoreCopy, run_cli: RunCli) -> None:
    path = store_copy("0.17.0")
    change(path, f"DELETE FROM {DATA} WHERE id = 10")
    program, *arguments = examined(path).next_command.split()
    assert (program, run_cli(*arguments, "--yes").exit_code) == ("hermes-state", 0)
    assert examined(path, deep=True).exit_code == 0


def test_an_index_whose_list_of_terms_is_gone_is_found_by_searching_although_its_check_is_ok(
    store_copy: StoreCopy,
) -> None:
    path = store_copy("0.17.0")
    change(path, "DELETE FROM messages_fts_idx")
    found = examined(path)
    assert only(found, "search_misses").sentence == (
        "The search index messages_fts does not find 15 messages by words of their text, although its own check is ok."
    )
    assert (only(found, "search_misses").object, found.exit_code) == ("messages_fts", 3)


def test_a_message_that_an_index_lacks_is_found_by_comparing_rows(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    change(path, f"DELETE FROM messages_fts WHERE rowid = {newest(path)}")
    found = examined(path)
    assert only(found, "search_rows_differ").sentence == (
        "The search index messages_fts lacks 1 message; searches miss or show them wrongly."
    )
    assert found.exit_code == 3


def test_entries_for_messages_that_are_gone_are_found_by_comparing_rows(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    change(path, f"DELETE FROM messages WHERE id = {newest(path)}", triggers=False)
    found = examined(path)
    sentences = [finding.sentence for finding in found.findings if finding.code == "search_rows_differ"]
    assert sentences == [
        "The search index messages_fts still holds 1 message that is gone; searches miss or show them wrongly.",
        "The search index messages_fts_trigram still holds 1 message that is gone; searches miss or show them wrongly.",
    ]


def test_text_that_drifted_in_one_index_is_found_although_its_own_check_is_ok(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    change(path, f"UPDATE messages_fts SET content = 'another text' WHERE rowid = {newest(path)}")
    found = examined(path)
    assert only(found, "search_text_differs").sentence == (
        "The search index messages_fts keeps another text than the messages for 1 row; its own check cannot see that."
    )
    assert (only(found, "search_text_differs").object, found.exit_code) == ("messages_fts", 3)


def test_an_index_that_was_rebuilt_past_nul_is_healthy_and_its_rule_is_said(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    change(path, "INSERT INTO messages_fts_trigram(messages_fts_trigram) VALUES ('rebuild')", rule=NulRule.NATIVE)
    found = examined(path)
    assert found.exit_code == 0
    sentences = [finding.sentence for finding in found.findings if finding.object == "messages_fts_trigram"]
    assert sentences == [
        "The search index messages_fts_trigram agrees with its text. It reads past NUL bytes, as SQLite 3.54 builds it."
    ]


def test_an_index_written_under_both_rules_is_called_that(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    one = "(SELECT min(id) FROM messages WHERE instr(content, char(0)))"
    change(path, f"UPDATE messages SET observed = 0 WHERE id = {one}", rule=NulRule.NATIVE)
    found = examined(path)
    assert only(found, "search_index_mixed_rules").sentence == (
        "The search index messages_fts_trigram was written under both NUL rules: 1 row of those looked at stops at the "
        "first NUL, 1 does not."
    )
    assert found.exit_code == 3


def test_missing_triggers_are_a_problem_and_idle_ones_a_note(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    change(
        path,
        "DROP TRIGGER messages_fts_insert",
        "DROP TRIGGER messages_fts_trigram_insert",
        "CREATE TRIGGER messages_fts_trigram_insert AFTER INSERT ON messages BEGIN SELECT 1; END",
    )
    found = examined(path)
    assert only(found, "search_triggers_missing").sentence == (
        "The search index messages_fts lacks 1 trigger (messages_fts_insert): new messages are not indexed, and "
        "hermes-agent 0.19 would rebuild the index at its next start."
    )
    assert only(found, "search_index_off").sentence == (
        "The search index messages_fts_trigram is switched off: its triggers do nothing, so new messages are not in it."
    )
    assert found.exit_code == 3


def test_the_external_layout_is_healthy_and_compared_with_the_messages_under_deep(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    convert(path)
    found = examined(path, deep=True)
    assert worse_than(found, Severity.INFO) == []
    agreed = [finding.sentence for finding in found.findings if finding.code == "search_index_deep"]
    assert agreed == [
        "The search index messages_fts agrees with the messages (compared on a private copy).",
        "The search index messages_fts_trigram agrees with the messages (compared on a private copy).",
    ]


def test_an_external_index_that_drifted_is_seen_only_by_the_deep_comparison(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    convert(path)
    # A row that no sample of the quick searches meets.
    change(path, f"UPDATE messages SET content = 'another text' WHERE id = {newest(path) - 1}", triggers=False)
    before = path.read_bytes()
    assert examined(path).exit_code == 0
    found = examined(path, deep=True)
    damaged = [finding.object for finding in found.findings if finding.code == "search_rows_differ"]
    assert "messages_fts" in damaged
    assert (found.exit_code, path.read_bytes() == before) == (3, True)


def test_rows_that_a_backfill_has_not_reached_are_not_missing(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    convert(path)
    last = newest(path)
    gone = f"SELECT 'delete', id, content, tool_name, tool_calls FROM messages WHERE id = {last}"
    change(
        path,
        f"INSERT INTO messages_fts(messages_fts, rowid, content, tool_name, tool_calls) {gone}",
        "INSERT OR REPLACE INTO state_meta(key, value) VALUES "
        f"('fts_rebuild_progress', '{last - 1}'), ('fts_rebuild_high_water', '{last}')",
    )
    found = examined(path)
    notes = [finding.sentence for finding in found.findings if finding.code == "search_backfill"]
    assert notes[0] == (
        f"The search index messages_fts is still being filled: done up to message {last - 1:,} of {last:,}."
    )
    assert found.exit_code == 0


def test_a_file_without_search_is_not_a_problem(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    names = [f"messages_fts{kind}_{event}" for kind in ("", "_trigram") for event in ("insert", "delete", "update")]
    change(
        path,
        *(f"DROP TRIGGER {name}" for name in names),
        "DROP TABLE messages_fts",
        "DROP TABLE messages_fts_trigram",
    )
    found = examined(path)
    assert only(found, "no_search_index").severity is Severity.INFO
    assert found.exit_code == 0
