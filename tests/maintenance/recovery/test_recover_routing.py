"""Routing of a damaged store: nobody may write on a row that is not sure, and no conversation begins anew."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hermes_state import open_store
from maintenance.dialects.native.routed import GENERATION_LEAP, TABLES, later_of
from maintenance.recovery.install import install
from tests.maintenance.adopting import nobody
from tests.maintenance.backups.making import leave_wal, query, tidy
from tests.maintenance.native_stores import new_store
from tests.maintenance.recovery.recovering import little_space
from tests.maintenance.recovery.test_recover_serving import decisions, recovered, unguarded, zero
from tests.support.routes import bound, paired, route
from tests.support.space import context

__all__ = ["little_space"]
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("little_space")]


@pytest.fixture(name="db")
def routing_store(tmp_path: Path) -> Path:
    path = new_store(tmp_path)
    with open_store(path=path) as store:
        route(store)
    return tidy(path)


def states(db: Path) -> list[tuple[str, str, int]]:
    with open_store(path=db, read_only=True) as store:
        return [(one.key.chat_id, str(one.state), one.generation) for one in store.routing.page()]


def test_a_sound_store_comes_back_with_all_its_routing(db: Path) -> None:
    report = recovered(db)
    assert not report.lost and decisions(report, "generations_raised", "person_not_paired", "code_void") == []
    for table in sorted(TABLES):
        assert query(report.output, f"SELECT * FROM {table}") == query(db, f"SELECT * FROM {table}")
        assert report.table(table).rows > 0 and report.table(table).uncertain == 0
    with open_store(path=report.output) as store:
        assert bound(store, "7", "routed").generation == 3


@pytest.mark.parametrize("table", ["routing_entries", "routing_home"])
def test_where_chats_may_be_lost_no_generation_is_given_twice(db: Path, table: str) -> None:
    zero(db, table)
    report = recovered(db)
    (said,) = [one for one in report.decisions if one["what"] == "generations_raised"]
    assert ("removed is not known" in said["sentence"]) is (table == "routing_home")
    assert {generation for _chat, _state, generation in states(report.output)} <= {said["to"] + 1}
    with open_store(path=report.output) as store:
        assert bound(store, "7", "routed").generation > GENERATION_LEAP
    assert query(report.output, "SELECT count(*) FROM pairing_users") == [(1,)]


@pytest.mark.parametrize("table", ["pairing_users", "pairing_requests", "pairing_failures"])
def test_where_anything_about_pairing_is_lost_no_code_opens_anything(db: Path, table: str) -> None:
    with open_store(path=db) as store:
        code = store.routing.pairing.request("telegram", "asked", store.routing.home)
    zero(tidy(db), table)
    report = recovered(db)
    with open_store(path=report.output) as store:
        assert store.routing.pairing.pending() == []
        assert store.routing.pairing.approve("telegram", code, store.routing.home, by="thief") is None
        assert store.routing.pairing.is_paired("telegram", "friend") is (table != "pairing_users")
        store.routing.pairing.request("telegram", "new", store.routing.home)


def test_commits_that_are_gone_may_have_put_somebody_out_and_ended_a_turn(db: Path) -> None:
    leave_wal(db, "DELETE FROM pairing_users", "UPDATE store SET change_floor = change_floor + 1")
    wal = db.with_name("state.db-wal")
    data = bytearray(wal.read_bytes())
    data[32 + 24 + 100] ^= 0xFF  # the first frame does not have its checksum any more
    wal.write_bytes(data)
    report = recovered(db)
    assert query(report.output, "SELECT * FROM pairing_users") == []
    assert decisions(report, "person_not_paired", "route_not_resumed") == [
        ("route_not_resumed", "agent:main:telegram:dm:3"), ("person_not_paired", ["telegram", "friend"]),
    ]
    assert ("3", "active", GENERATION_LEAP + 4) in states(report.output)


def test_what_cannot_be_read_of_an_entry_is_kept_apart_and_the_rest_stays(db: Path) -> None:
    unguarded(
        db, "UPDATE routing_entries SET chat_id = '11' WHERE chat_id = '1'",
        "UPDATE routing_entries SET origin = '[1]' WHERE chat_id = '2'",
    )
    report = recovered(db)
    assert decisions(report, "route_kept_apart") == [
        ("route_kept_apart", "agent:main:telegram:dm:1"), ("route_kept_apart", "agent:main:telegram:dm:2"),
    ]
    assert [chat for chat, _state, _generation in states(report.output)] == ["3", "4", "5", "6", "8"]
    assert report.apart_path is not None
    apart = [json.loads(line) for line in report.apart_path.read_text().splitlines()]
    assert {one["table"] for one in apart} == {"routing_entries"} and len(apart) == 2


def test_an_entry_of_an_index_that_passes_for_a_lock_is_kept_apart(db: Path) -> None:
    unguarded(
        db, "INSERT INTO pairing_failures VALUES ('talk', 0, 7.0, 7.0), ('thread/stops', 1000, 11.0, NULL), "
        "('telegram', 4, 5.0, NULL)",
    )
    report = recovered(db)
    assert decisions(report, "failures_kept_apart") == [
        ("failures_kept_apart", "talk"), ("failures_kept_apart", "thread/stops"),
    ]
    assert query(report.output, "SELECT platform, failures FROM pairing_failures") == [("discord", 5), ("telegram", 4)]


def test_of_two_versions_the_later_stands() -> None:
    one = {"session_key": "k", "generation": 2, "version": 3}
    assert later_of("routing_entries", one, one | {"version": 4}) is True
    assert later_of("routing_entries", one, one | {"generation": 1, "version": 9}) is False
    assert later_of("routing_entries", one, one) is None
    assert later_of("routing_entries", one, one | {"session_key": "other", "version": 9}) is None


def test_what_is_installed_is_as_it_was_recovered(db: Path) -> None:
    with open_store(path=db) as store:
        paired(store, "friend 2")
    zero(tidy(db), "pairing_users")
    before = states(db)
    report = recovered(db)
    installed = install(context(db), report, scanner=nobody)
    assert installed is not None
    assert query(db, "SELECT * FROM pairing_users") == [] and states(db) == before
