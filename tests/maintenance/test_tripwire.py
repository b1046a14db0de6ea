"""The index that stops hermes-agent: it is in every native store, and its absence or an intruder is a finding."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from hermes_state.engine import open_read
from hermes_state.testing import temporary_store
from maintenance.interop.tripwire import INTRUDERS, TRIPWIRES, tripwire_problem
from tests.maintenance.adopting import adopt_in_place, query
from tests.maintenance.damage import change
from tests.support.stores import StoreCopy

# The first statements of any release, reduced to the one that matters.
FIRST_STATEMENT = "CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL)"


def problem_of(db: Path) -> str:
    with open_read(db) as store:
        return tripwire_problem(store)


def test_a_new_store_and_an_adopted_one_have_the_tripwire(store_copy: StoreCopy) -> None:
    with temporary_store() as store:
        assert problem_of(store.path) == ""
    db = store_copy()
    adopt_in_place(db)
    assert problem_of(db) == ""


def test_the_first_statement_of_hermes_agent_fails_and_writes_nothing(store_copy: StoreCopy) -> None:
    db = store_copy()
    adopt_in_place(db)
    before = db.read_bytes()
    connection = apsw.Connection(str(db))
    with pytest.raises(apsw.SQLError, match=r"^there is already an index named schema_version$"):
        connection.execute(FIRST_STATEMENT).fetchall()
    connection.close()
    assert db.read_bytes() == before


def test_a_dropped_tripwire_is_a_finding(store_copy: StoreCopy) -> None:
    db = store_copy()
    adopt_in_place(db)
    change(db, "DROP INDEX schema_version")
    assert problem_of(db) == "its index schema_version, at which hermes-agent stops, is missing"


@pytest.mark.parametrize("name", ["async_delegations", "delivery_obligations"])
def test_the_modules_that_open_the_file_by_themselves_are_stopped_too(name: str, store_copy: StoreCopy) -> None:
    db = store_copy()
    adopt_in_place(db)
    with pytest.raises(apsw.SQLError):
        change(db, f"CREATE TABLE IF NOT EXISTS {name}(a)")
    change(db, f"DROP INDEX {name}")
    assert problem_of(db) == f"its index {name}, at which hermes-agent stops, is missing"


@pytest.mark.parametrize("name", INTRUDERS)
def test_a_table_of_hermes_agent_in_a_native_store_is_a_finding(name: str, store_copy: StoreCopy) -> None:
    db = store_copy()
    adopt_in_place(db)
    change(db, *(f"DROP INDEX {index}" for index in TRIPWIRES), f"CREATE TABLE {name}(a)")
    assert problem_of(db) == f"hermes-agent has made tables of its own in it ({name})"


def test_tables_kept_of_hermes_agent_are_no_intruders(store_copy: StoreCopy) -> None:
    db = store_copy()
    adopt_in_place(db)
    kept = {name for (name,) in query(db, "SELECT name FROM sqlite_schema WHERE name LIKE 'foreign\\_%' ESCAPE '\\'")}
    assert {"foreign_schema_version", "foreign_state_meta", "foreign_gateway_routing"} <= kept
    assert problem_of(db) == ""
