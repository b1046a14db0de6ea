"""Litestream: found by directory, table or process; its cost is the first thing a plan says."""

from __future__ import annotations

from pathlib import Path

from hermes_state.engine import open_read
from lockowners import Holder, Process, Scan
from maintenance.space.litestream import litestream
from maintenance.space.optimize_plan import Choices, look
from tests.support.space import change
from tests.support.stores import StoreCopy


def process(*argv: str) -> Process:
    return Process(
        pid=77, start_ticks=1, uid=0, user="root", command=argv[0].rsplit("/", 1)[-1][:15], argv=argv, role="unknown",
        container=None,
    )


def scan_of(db: Path, *processes: Process) -> Scan:
    found = tuple(
        Holder(process=one, via=frozenset({"descriptor"}), files=(), stale=False) for one in processes
    )
    return Scan(
        path=db, holders=found, hidden=(), excluded_count=0, complete=True, method="procfs", namespace_note="",
        elapsed_seconds=0.0,
    )


def test_a_store_without_signs_has_no_replica(store_copy: StoreCopy) -> None:
    db = store_copy()
    with open_read(db) as store:
        found = litestream(store, scan_of(db, process("/usr/bin/hermes", "gateway", "run")))
    assert not found.found
    assert found.cost_lines(1000) == ()


def test_directory_tables_and_process_are_each_a_sign(store_copy: StoreCopy) -> None:
    db = store_copy()
    (db.parent / ".state.db-litestream").mkdir()
    change(db, "CREATE TABLE _litestream_seq(id INTEGER PRIMARY KEY, seq INTEGER)")
    with open_read(db) as store:
        found = litestream(store, scan_of(db, process("/usr/local/bin/litestream", "replicate"), process("python")))
    assert found.document() == {
        "found": True,
        "directory": str(db.parent / ".state.db-litestream"),
        "pids": [77],
        "tables": ["_litestream_seq"],
    }
    assert found.signs() == (
        ".state.db-litestream is beside the store; process 77 holds it; it has the table _litestream_seq"
    )


def test_a_plan_says_first_what_a_rewrite_costs_the_replica(store_copy: StoreCopy) -> None:
    db = store_copy()
    (db.parent / ".state.db-litestream").mkdir()
    with open_read(db) as store:
        plan = look(store, Choices(reclaim="always"))
    assert plan.shown(online=False).lines[:2] == (
        "Litestream: .state.db-litestream is beside the store. A full rewrite makes it send the whole compact file "
        "(552.0 KiB) to the replica, and holds one long write lock.",
        "`--online` sends about half of that, in small steps, where the file allows them.",
    )
