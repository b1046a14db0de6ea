"""`locks` names who holds which lock, who only has the store open, and what it cannot see."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from lockowners import Hidden, Holder, LockOwner, LockReport, Process, Scan, started_at
from maintenance.commands.locks import document, hidden_lines, show
from maintenance.output.text import human_time, rfc3339
from tests.support.children import Children
from tests.support.cli import RunCli
from tests.support.stores import StoreCopy

PATH = Path("/home/me/state.db")
GATEWAY = Process(pid=77, start_ticks=9, uid=1000, user="me", command="hermes gateway run", role="gateway")
WRITER = """
import sys, gates
from hermes_state.engine import open_write
with open_write(sys.argv[1], foreign=True) as store, store.transaction(durability="process") as tx:
    tx.execute("UPDATE sessions SET title = title")
    gates.reach("writing")
    gates.wait("end")
"""


def a_report(*owners: LockOwner, waiters: tuple[LockOwner, ...] = (), hidden: tuple[Hidden, ...] = ()) -> LockReport:
    return LockReport(path=PATH, owners=owners, waiters=waiters, hidden=hidden, complete=not hidden, method="procfs")


def a_scan(*held: Holder, hidden: tuple[Hidden, ...] = (), note: str = "") -> Scan:
    return Scan(
        path=PATH,
        holders=held,
        hidden=hidden,
        excluded_count=0,
        complete=not hidden and not note,
        method="procfs",
        namespace_note=note,
        elapsed_seconds=0.0,
    )


def held(*, stale: bool = False) -> Holder:
    return Holder(process=GATEWAY, via=frozenset({"descriptor"}), stale=stale)


# 2026-09-14 10:22:05 UTC
STARTED = 1_789_381_325.25


def start(_process: Process) -> float:
    return STARTED


def test_locks_are_a_table_with_the_time_they_were_seen_held_and_the_start_of_each_process(
    capsys: pytest.CaptureFixture[str], fake_clock: FakeClock
) -> None:
    since = human_time(STARTED, fake_clock)
    owners = (
        LockOwner(lock="wal-writer", mode="write", process=GATEWAY, age_seconds=2.5),
        LockOwner(lock="reader", mode="read", process=None, slot=3),
    )
    show(a_report(*owners), a_scan(held()), clock=fake_clock, start=start)
    assert capsys.readouterr().out.splitlines() == [
        "Store: /home/me/state.db",
        "lock        mode   pid  user  role     running since      held  command",
        f"wal-writer  write   77  me    gateway  {since}  2.5 s  hermes gateway run",
        "reader 3    read     ?  ?     ?        ?                        not visible",
    ]


def test_a_process_that_waits_and_one_that_only_has_the_store_open_are_said(
    capsys: pytest.CaptureFixture[str], fake_clock: FakeClock
) -> None:
    waiter = LockOwner(lock="pending", mode="write", process=GATEWAY)
    show(a_report(waiters=(waiter,)), a_scan(held(stale=True)), clock=fake_clock, start=start)
    assert capsys.readouterr().out.splitlines() == [
        "Store: /home/me/state.db",
        "No lock is held.",
        "Waits in the kernel for pending: PID 77 (hermes gateway run)",
        "Open without a lock: PID 77 (hermes gateway run), user me, gateway, running since "
        f"{human_time(STARTED, fake_clock)}",
        "PID 77 works on deleted or replaced files of this store: `hermes-state doctor` says more.",
    ]


def test_nobody_is_only_said_when_everything_was_seen(capsys: pytest.CaptureFixture[str]) -> None:
    show(a_report(), a_scan())
    assert capsys.readouterr().out.splitlines()[-1] == "No other process has the store open."
    hidden = Hidden(user="root", count=68, uid=0)
    show(a_report(hidden=(hidden,)), a_scan(hidden=(hidden,), note="this is a child PID namespace"))
    assert capsys.readouterr().out.splitlines() == [
        "Store: /home/me/state.db",
        "No lock is held that is visible from here.",
        "No holder is visible from here.",
        "not visible: 68 processes of root",
        "not visible: this is a child PID namespace",
    ]


def test_what_both_looks_could_not_see_is_said_once() -> None:
    hidden = Hidden(user="root", count=1, uid=0)
    assert hidden_lines(a_report(hidden=(hidden,)), a_scan(hidden=(hidden,))) == ["not visible: 1 process of root"]


def test_a_lock_that_was_seen_once_has_no_age(capsys: pytest.CaptureFixture[str]) -> None:
    owner = LockOwner(lock="wal-writer", mode="write", process=GATEWAY, age_seconds=0.0)
    assert document(a_report(owner), a_scan(held()))["locks"][0]["seen_held_seconds"] is None
    show(a_report(owner), a_scan(held()))
    assert "0.0 s" not in capsys.readouterr().out


def test_the_document_keeps_raw_numbers_and_how_to_stop_each_holder() -> None:
    owner = LockOwner(lock="wal-writer", mode="write", process=GATEWAY, age_seconds=2.5)
    said = document(a_report(owner), a_scan(held()), start=start)
    assert said["locks"] == [
        {
            "lock": "wal-writer",
            "mode": "write",
            "slot": None,
            "seen_held_seconds": 2.5,
            "stale": False,
            "process": {
                "pid": 77,
                "start_ticks": 9,
                "started_at": "2026-09-14T10:22:05.250Z",
                "user": "me",
                "uid": 1000,
                "role": "gateway",
                "command": "hermes gateway run",
                "container": None,
            },
        }
    ]
    assert said["holders"][0]["how_to_stop"].startswith("stop it with ")
    assert said["complete"] is True


@pytest.mark.slow
def test_a_live_writer_is_named_and_the_command_succeeds(
    store_copy: StoreCopy, child: Children, run_cli: RunCli
) -> None:
    writer = child(WRITER, store_copy("0.17.0"))
    writer.wait_for("writing")
    result = run_cli("locks", "--json")
    assert result.exit_code == 0
    writing = [lock for lock in result.json["locks"] if lock["lock"] == "wal-writer"]
    assert [lock["process"]["pid"] for lock in writing] == [writer.pid]
    assert writer.pid in [holder["process"]["pid"] for holder in result.json["holders"]]
    process = writing[0]["process"]
    assert process["started_at"] == rfc3339(started_at(process["start_ticks"]))


@pytest.mark.slow
def test_watching_shows_for_how_long_a_lock_was_seen(
    store_copy: StoreCopy, child: Children, run_cli: RunCli, fake_clock: FakeClock
) -> None:
    writer = child(WRITER, store_copy("0.17.0"))
    writer.wait_for("writing")
    result = run_cli("locks", "--watch", "--interval", "60", "--count", "2")
    assert result.exit_code == 0
    rows = [line.split() for line in result.stdout.splitlines() if line.startswith("wal-writer")]
    assert [(row[2], "60.0" in row, "0.0" in row) for row in rows] == [
        (str(writer.pid), False, False),
        (str(writer.pid), True, False),
    ]


@pytest.mark.slow
def test_a_missing_store_is_an_error_and_not_an_empty_list(run_cli: RunCli, tmp_path: Path) -> None:
    result = run_cli("locks", "--db", tmp_path / "none.db")
    assert result.exit_code == 1
    assert result.stdout == ""
