"""The file's schema: its steps give its shape, its CHECKs hold the words of the code, what ended stays ended."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path

import apsw
import pytest

from hermes_state.errors import SchemaTooNew, StatementFailed
from hermes_state.host import open_host
from hermes_state.host.exits import Outcome, Supervisor
from hermes_state.host.layout import HOST
from hermes_state.host.states import (
    TERMINAL,
    TRANSITIONS,
    Kind,
    MarkerEnd,
    MarkerKind,
    PlatformState,
    RunState,
    SessionStore,
)
from tests.hermes_state.host.hosts import Party, folder_of, run


def schema_of(sql: str) -> list[tuple[str, str]]:
    with apsw.Connection(":memory:") as connection:
        connection.execute(sql).fetchall()
        return connection.execute("SELECT name, sql FROM sqlite_schema ORDER BY name").fetchall()


def test_all_steps_together_give_the_schema() -> None:
    assert schema_of("".join(step.sql for step in HOST.steps)) == schema_of(HOST.sql)
    assert [step.number for step in HOST.steps] == list(range(1, len(HOST.steps) + 1))


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ("kind TEXT NOT NULL CHECK (kind IN", Kind), ("supervisor TEXT NOT NULL CHECK (supervisor IN", Supervisor),
        ("state TEXT NOT NULL CHECK (state IN ('starting'", RunState),
        ("state TEXT NOT NULL CHECK (state IN ('connecting'", PlatformState),
        ("verdict TEXT NOT NULL CHECK (verdict IN", Outcome),
        ("kind TEXT NOT NULL CHECK (kind IN ('takeover'", MarkerKind), ("ended TEXT CHECK (ended IN", MarkerEnd),
        ("CHECK (session_store IN", SessionStore),
    ],
)
def test_the_checks_hold_the_words_of_the_code(column: str, words: type[StrEnum]) -> None:
    line = HOST.sql[HOST.sql.index(column) :].partition("\n")[0]
    assert set(re.findall(r"'(\w+)'", line)) == set(words)


def test_the_table_of_states_is_closed() -> None:
    assert set(TRANSITIONS) == set(RunState)
    assert {state for state, following in TRANSITIONS.items() if not following} == TERMINAL


def test_what_ended_never_changes_and_no_fence_falls(tmp_path: Path) -> None:
    party = Party(folder_of(tmp_path))
    member = party.host.enter(run("/h/a")).member
    assert member is not None
    member.leave(reason="test")
    for statement, said in (
        ("UPDATE gateways SET state = 'running', ended_at = NULL", "a run that ended never changes"),
        ("UPDATE host SET fence = 0", "the fence only rises"),
    ):
        with pytest.raises(StatementFailed) as refused:
            party.host.core.write(lambda tx, sql=statement: tx.execute(sql))
        assert said in refused.value.message


def test_a_newer_file_is_refused_by_name(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    with open_host(folder) as host:
        host.core.write(
            lambda tx: tx.execute("INSERT INTO migrations VALUES (900, '0900_pre_x', 'x', 1.0, 'later')")
        )
    with pytest.raises(SchemaTooNew):
        open_host(folder)
