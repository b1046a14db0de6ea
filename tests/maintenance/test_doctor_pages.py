"""Damage of the file is found, told apart from damage of a search index, and named by table or index."""

from __future__ import annotations

from pathlib import Path

import pytest

import maintenance.doctor
from maintenance.doctor.findings import Severity
from tests.maintenance.damage import (
    PAGE,
    change,
    examined,
    leaves,
    only,
    opened,
    overwrite,
    overwrite_page,
    worse_than,
)
from tests.support.stores import StoreCopy


@pytest.mark.parametrize("release", ["0.13.0", "0.15.2", "0.16.0", "0.17.0", "0.18.2", "0.19.0"])
def test_an_untouched_file_of_each_release_is_healthy_and_its_nul_rule_is_said(
    release: str, store_copy: StoreCopy
) -> None:
    found = examined(store_copy(release))
    assert worse_than(found, Severity.INFO) == []
    assert (found.exit_code, found.verdict) == (0, "healthy")
    sentences = [finding.sentence for finding in found.findings if finding.object == "messages_fts_trigram"]
    cut = " It stops at the first NUL of a text, as SQLite 3.40 builds it." if release != "0.19.0" else ""
    assert sentences == [f"The search index messages_fts_trigram agrees with its text.{cut}"]


def test_a_zeroed_index_page_names_the_index_and_its_table(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    (page,) = leaves(path, "idx_sessions_source")
    overwrite_page(path, page)
    found = examined(path)
    damage = only(found, "index_damaged")
    assert damage.sentence == (
        f"The index idx_sessions_source of the table sessions is damaged (page {page}); the rows are in the table, "
        "not in it. SQLite refuses changes that touch it."
    )
    assert damage.object == "idx_sessions_source"
    assert (found.exit_code, found.next_command) == (3, f"hermes-state sessions repair --db {path}")


def test_overwritten_cells_of_the_last_message_page_name_the_table_and_count_what_is_readable(
    store_copy: StoreCopy,
) -> None:
    path = store_copy("0.17.0")
    page = leaves(path, "messages")[-1]
    overwrite_page(path, page, b"\xff" * 64, at=8)
    found = examined(path)
    damage = only(found, "table_damaged")
    assert damage.sentence == (
        f"The table messages is damaged (page {page}); 178 of 182 rows can be read by key. A copy made now carries "
        "the same damage; stop Hermes and keep older backups."
    )
    assert (damage.facts["rows_listed"], damage.facts["rows_readable"]) == (182, 178)
    assert (damage.object, found.exit_code) == ("messages", 65)
    assert found.next_command == f"hermes-state sessions recover --source {path}"


def test_overwritten_content_in_a_whole_page_is_found_as_a_missing_value(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    overwrite_page(path, leaves(path, "messages")[-1], b"\xff" * 64, at=PAGE - 64)
    found = examined(path)
    assert only(found, "null_in_required_column").sentence == (
        "1 row of messages has nothing in timestamp, which the schema forbids: the content of a page was overwritten, "
        "or a program skipped the check."
    )
    assert found.exit_code == 65


def test_overwritten_text_that_no_page_check_sees_is_found_by_the_copies_in_the_indexes(
    store_copy: StoreCopy,
) -> None:
    path = store_copy("0.17.0")
    overwrite_page(path, leaves(path, "messages")[-1], b"\xff" * 64, at=2048)
    found = examined(path)
    assert only(found, "pages").severity is Severity.OK
    assert only(found, "message_text_differs").sentence == (
        "1 message (id 181) has another text than all search indexes keep: changed while the triggers were off, or "
        "overwritten by damage. The indexes hold the older text."
    )
    assert found.exit_code == 3


def test_a_zeroed_page_of_a_search_index_is_damage_of_that_index_only(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    page = leaves(path, "messages_fts_data")[-1]
    overwrite_page(path, page)
    found = examined(path)
    damage = only(found, "search_index_pages_damaged")
    assert damage.sentence == (
        f"Pages of the search index messages_fts are damaged in messages_fts_data (page {page}); no conversation is "
        "in them."
    )
    assert (damage.object, damage.derived, found.exit_code, found.verdict) == ("messages_fts", True, 3, "problems")


def test_a_check_that_raises_is_a_finding(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    connection = opened(path)
    root = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'messages'").fetchall()[0][0]
    connection.close()
    overwrite_page(path, root)
    found = examined(path)
    damage = only(found, "table_damaged")
    assert (damage.facts["sqlite_code"], damage.facts["said"]) == (11, [])
    assert (damage.facts["rows_listed"], damage.facts["rows_readable"]) == (182, 0)
    assert found.exit_code == 65


def test_a_damaged_list_of_free_pages_is_not_blamed_on_a_table(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    change(path, "CREATE TABLE filler(x)", "INSERT INTO filler VALUES (zeroblob(40000))", "DROP TABLE filler")
    connection = opened(path)
    trunk = int.from_bytes(connection.read("main", 0, 32, 4)[1], "big")
    connection.close()
    overwrite(path, (trunk - 1) * PAGE, b"\xff" * 64)
    found = examined(path)
    damage = only(found, "freelist_damaged")
    assert damage.sentence == (
        f"The freelist is damaged (page {trunk}); every table and index is whole by itself. SQLite may refuse changes, "
        "or write over pages that are in use."
    )
    assert (damage.object, found.exit_code) == ("freelist", 3)
    assert found.next_command == f"hermes-state sessions repair --db {path}"


def test_damage_of_two_objects_is_reported_for_both_in_one_run(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    overwrite_page(path, leaves(path, "idx_sessions_source")[0])
    overwrite_page(path, leaves(path, "messages_fts_data")[-1])
    found = examined(path)
    assert only(found, "index_damaged").object == "idx_sessions_source"
    assert only(found, "search_index_pages_damaged").object == "messages_fts"


def test_no_check_decides_by_the_words_of_an_sqlite_message() -> None:
    folder = Path(maintenance.doctor.__file__).parent
    for module in folder.glob("*.py"):
        text = module.read_text().lower()
        for phrase in ("malformed", "disk image", "btreeinitpage", '"tree ', "not a database"):
            assert phrase not in text.replace('mapping the "tree 9 page 11"', ""), f"{module.name}: {phrase}"


def test_an_index_entry_that_contradicts_its_row_is_found_by_the_deep_run(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    (page,) = leaves(path, "idx_sessions_source")
    content = path.read_bytes()[(page - 1) * PAGE : page * PAGE]
    overwrite_page(path, page, b"dli", at=content.rindex(b"cli"))
    assert examined(path).exit_code == 0
    found = examined(path, deep=True)
    assert only(found, "index_content_differs").sentence == (
        "The index idx_sessions_source of the table sessions disagrees with its rows, although all pages are whole."
    )
    assert found.exit_code == 3


def test_the_quick_run_says_what_it_left_out(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    overwrite_page(path, leaves(path, "idx_sessions_source")[0])
    found = examined(path, quick=True)
    assert only(found, "skipped").sentence == "Pages, foreign keys and search indexes were not checked (--quick)."
    assert found.exit_code == 0
