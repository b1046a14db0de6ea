"""Report 208: secrets are redacted in logs and stored plainly in rows, indexes and free pages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hermes_state.engine import open_read, open_write
from tests.support.cli import RunCli
from tests.support.stores import StoreCopy

pytestmark = pytest.mark.slow

KEY = "ghp_" + "0aB1cD2eF3" * 3 + "gH4iJ5"


def test_a_key_in_rows_tool_arguments_index_and_free_pages_is_found_and_taken_out_with_proof(
    store_copy: StoreCopy, run_cli: RunCli
) -> None:
    db = store_copy()
    with open_write(db, foreign=True, deadline_seconds=5.0) as store:
        (session,) = store.rows("SELECT id FROM sessions LIMIT 1")[0]
        with store.transaction() as tx:
            for content in (f"export GITHUB_TOKEN={KEY}", "deleted later: " + KEY):
                tx.execute(
                    "INSERT INTO messages (session_id, role, content, tool_calls, timestamp)"
                    " VALUES (?, 'tool', ?, ?, 1)",
                    (session, content, json.dumps([{"function": {"arguments": json.dumps({"token": KEY})}}])),
                )
        with store.transaction() as tx:
            tx.execute("DELETE FROM messages WHERE content LIKE 'deleted later%'")
    assert KEY.encode() in db.read_bytes()
    with open_read(db) as reader:
        assert reader.rows("SELECT count(*) FROM messages_fts WHERE messages_fts MATCH ?", (f'"{KEY}"',)) == [(1,)]

    audit = run_cli("sessions", "scrub", "--preset", "secrets", "--dry-run", "--db", db, "--json")
    assert audit.json["rules"] == {"github-token": 2} and audit.json["rows"] == {"messages": 1}
    done = run_cli("sessions", "scrub", "--preset", "secrets", "--yes", "--db", db)
    assert done.exit_code == 0
    assert done.stdout.splitlines()[0] == f"Redacted 2 matches in 1 row of {db}."
    assert done.stdout.splitlines()[1].startswith("Proven: none of it is in the bytes of state.db")
    assert [path for path in Path(db.parent).iterdir() if path.is_file() and KEY.encode() in path.read_bytes()] == []
    with open_read(db) as reader:
        content, calls = reader.rows("SELECT content, tool_calls FROM messages WHERE content LIKE 'export%'")[0]
        assert reader.rows("SELECT count(*) FROM messages_fts WHERE messages_fts MATCH 'GITHUB_TOKEN'") == [(1,)]
    # The call itself stays: only the key in its arguments went.
    mark = content.removeprefix("export GITHUB_TOKEN=")
    assert json.loads(json.loads(calls)[0]["function"]["arguments"]) == {"token": mark}
