"""The comparison before an adopted store is used: any difference stops the adoption, and says where."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_state.engine import open_read
from hermes_state.errors import Corrupt
from maintenance.interop.adopt.source import read_source
from maintenance.interop.adopt.verify import verify_adopted
from tests.maintenance.adopting import adopt_to, newest_layout
from tests.maintenance.damage import change
from tests.support.stores import StoreCopy

pytestmark = pytest.mark.slow

# What goes wrong in the native store -> what the refusal says.
DIFFERENCES = {
    "UPDATE sessions SET cwd = 'elsewhere' WHERE no = 3": "row 3 of sessions differs in cwd",
    "UPDATE sessions SET extra = NULL WHERE no = 6": "row 6 of sessions differs in system_prompt, system_prompt_hash",
    "UPDATE session_totals SET input_tokens = input_tokens + 1 WHERE session_no = 2":
        "row 2 of sessions differs in input_tokens",
    "UPDATE sessions SET parent_no = 1, relation = 'other' WHERE no = 2":
        "row 2 of sessions differs in parent_session_id",
    "UPDATE shared_texts SET body = CAST('another' AS BLOB) WHERE no = (SELECT prompt_no FROM sessions WHERE no = 1)":
        "row 1 of sessions differs in system_prompt_hash",
    "DELETE FROM messages WHERE id = (SELECT max(id) FROM messages)":
        "messages has rows that are not in it, from number 72",
    "INSERT INTO view_edits (session_no, action, from_seq, to_seq, made_at) SELECT session_no, 'rewind', 1, 1, 0"
    " FROM messages WHERE id = (SELECT min(id) FROM messages)": "row 1 of messages differs in active",
    "DELETE FROM foreign_state_meta WHERE key = 'db_file_generation'": None,
    "UPDATE foreign_runtime_epoch SET epoch = '3'":
        "runtime_epoch has 1 rows, foreign_runtime_epoch has 1, and their content differs",
    "DELETE FROM foreign_system_prompts WHERE hash = 'not-a-hash'": None,
    "UPDATE session_usage SET input_tokens = input_tokens + 1": "the usage of models differs",
    "UPDATE store SET message_floor = 0": "its highest message id is not recorded",
    "DROP INDEX schema_version": "its index schema_version, at which hermes-agent stops, is missing",
    "CREATE TABLE state_meta(a)": "hermes-agent has made tables of its own in it (state_meta)",
    "PRAGMA foreign_keys = OFF; DELETE FROM sessions WHERE no = 1": "a row in it refers to a row that is not there",
}


@pytest.fixture
def pair(store_copy: StoreCopy) -> tuple[Path, Path]:
    db = newest_layout(store_copy())
    change(db, "INSERT OR IGNORE INTO session_model_usage(session_id, model, input_tokens)"
               " SELECT id, 'm', 5 FROM sessions WHERE rowid = 1")
    native = db.with_name("native.db")
    adopt_to(db, native)
    return db, native


def compare(db: Path, native: Path) -> str:
    with open_read(db) as store, store.snapshot():
        try:
            verify_adopted(store, read_source(store), native)
        except Corrupt as refusal:
            return refusal.message
    return ""


@pytest.mark.parametrize("statement", DIFFERENCES)
def test_a_store_that_differs_is_refused_with_the_place(statement: str, pair: tuple[Path, Path]) -> None:
    db, native = pair
    assert compare(db, native) == ""
    change(native, *statement.split("; "))
    said = compare(db, native)
    what = DIFFERENCES[statement]
    start = f"The copy made from {db} is not the same: "
    end = f". It was thrown away; {db} was not changed."
    assert said.startswith(start) and said.endswith(end)
    if what is not None:
        assert said == f"{start}{what}{end}"


def test_a_message_whose_text_changed_is_refused_by_its_own_check(pair: tuple[Path, Path]) -> None:
    db, native = pair
    change(native, "DROP TRIGGER messages_are_immutable",
           "UPDATE messages SET content = 'x' || content WHERE id = 5")
    assert compare(db, native) == f"Message 5 of {native} is not what was written: its check differs."


def test_a_message_whose_check_was_forged_as_well_is_refused_by_the_comparison(pair: tuple[Path, Path]) -> None:
    from hermes_state.conversation.row_check import row_check
    from tests.maintenance.adopting import query

    db, native = pair
    columns = ("session_no, role, content_type, 'forged', tool_name, tool_call_id, tool_calls, finish_reason,"
               " token_count, reasoning, platform_message_id, client_key, created_at, extra")
    ((*values,),) = query(native, f"SELECT {columns} FROM messages WHERE id = 5")
    change(native, "DROP TRIGGER messages_are_immutable",
           f"UPDATE messages SET content = 'forged', row_check = {row_check(*values)} WHERE id = 5")
    with open_read(native) as store:
        kind = store.rows("SELECT content_type FROM messages WHERE id = 5")
    assert kind == [("text",)]
    assert compare(db, native) == (
        f"The copy made from {db} is not the same: row 5 of messages differs in content. It was thrown away; {db}"
        " was not changed."
    )
