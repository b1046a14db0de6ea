"""A store into which nothing can be written any more is not called healthy, whatever its pages say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_state.engine import open_read
from hermes_state.engine.private import open_private
from tests.support.cli import RunCli

pytestmark = pytest.mark.slow


def test_triggers_of_a_search_index_that_is_gone_are_a_finding_and_recovery_ends_it(
    store_copy: Callable[[str], Path], run_cli: RunCli, tmp_path: Path
) -> None:
    db = store_copy("0.19.0")
    with open_private(db) as store:
        store.rows("DROP TABLE messages_fts")
    with open_read(db) as reader:
        messages = reader.rows("SELECT count(*) FROM messages")

    ran = run_cli("doctor", "--db", db, "--json")
    (finding,) = [one for one in ran.json["findings"] if one["code"] == "trigger_broken"]
    assert ran.exit_code == 3
    assert finding["sentence"] == (
        "Nothing can be inserted into the table messages: a trigger of it refers to something that is not there "
        "(no such table: main.messages_fts). The rows are whole."
    )
    assert finding["next_command"] == f"hermes-state sessions recover --source {db}"

    out = tmp_path / "recovered.db"
    assert run_cli("sessions", "recover", "--source", db, "--output", out).exit_code == 0
    again = run_cli("doctor", "--db", out, "--json")
    assert [one for one in again.json["findings"] if one["severity"] in ("warning", "damage")] == []
    with open_read(out) as reader:
        assert reader.rows("SELECT count(*) FROM messages") == messages


@pytest.mark.parametrize("version", ["0.13.0", "0.15.2", "0.16.0", "0.17.0", "0.18.2", "0.19.0"])
def test_the_triggers_of_every_release_are_whole(
    version: str, store_copy: Callable[[str], Path], run_cli: RunCli
) -> None:
    ran = run_cli("doctor", "--quick", "--db", store_copy(version), "--json")
    assert [one for one in ran.json["findings"] if one["code"] == "trigger_broken"] == []
