"""Every process with the store open is named, split-off ones first, and descriptor limits are looked at."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from lockowners import HeldFile, Hidden, Holder, Process, Scan, started_at
from maintenance.doctor.findings import Severity
from maintenance.doctor.processes import (
    Budget,
    budget_of,
    holder_findings,
    own_budget_finding,
    split_findings,
    sqlite_library,
)
from maintenance.output.text import human_time, rfc3339
from tests.maintenance.damage import examined, only
from tests.support.children import Children
from tests.support.stores import StoreCopy

LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max cpu time              unlimited            unlimited            seconds
Max open files            {soft}                 4096                 files
"""

READER = """
import sys, gates
from hermes_state.engine import open_read
with open_read(sys.argv[1]) as store:
    store.rows("SELECT count(*) FROM sessions")
    gates.reach("open")
    gates.wait("end")
"""


@pytest.fixture
def proc_root(tmp_path: Path) -> Path:
    """A process 77 with ten descriptors, three of them on the store, and a limit of twelve."""
    folder = tmp_path / "proc" / "77"
    (folder / "fd").mkdir(parents=True)
    for number in range(7):
        os.symlink("/dev/null", folder / "fd" / str(number))
    os.symlink("/home/me/state.db", folder / "fd" / "7")
    os.symlink("/home/me/state.db-wal (deleted)", folder / "fd" / "8")
    os.symlink("/home/me/state.db-shm", folder / "fd" / "9")
    (folder / "limits").write_text(LIMITS.format(soft=12))
    (folder / "maps").write_text(
        "7f00 r-xp 00000000 fe:00 1 /usr/lib/python3/_sqlite3.cpython-311.so\n"
        "7f01 r-xp 00000000 fe:00 2 /usr/lib/x86_64-linux-gnu/libsqlite3.so.0.8.6\n"
        "7f02 rw-p 00000000 00:00 0 [heap]\n"
    )
    return tmp_path / "proc"


def a_scan(*held: Holder, hidden: tuple[Hidden, ...] = ()) -> Scan:
    return Scan(
        path=Path("/home/me/state.db"),
        holders=held,
        hidden=hidden,
        excluded_count=0,
        complete=not hidden,
        method="procfs",
        namespace_note="",
        elapsed_seconds=0.0,
    )


def a_holder(*, stale: bool = False) -> Holder:
    process = Process(pid=77, start_ticks=1, uid=1000, user="me", command="hermes gateway run", role="gateway")
    files = (
        HeldFile(kind="main", deleted=False, device=1, inode=1),
        HeldFile(kind="wal", deleted=stale, device=1, inode=2),
    )
    return Holder(process=process, via=frozenset({"descriptor"}), files=files, stale=stale)


def test_descriptors_are_counted_against_the_limit_and_on_the_store(proc_root: Path) -> None:
    budget = budget_of(proc_root, 77, Path("/home/me/state.db"))
    assert budget == Budget(used=10, limit=12, on_store=3)
    assert budget.tight


def test_an_unlimited_or_unreadable_limit_is_not_tight(proc_root: Path) -> None:
    (proc_root / "77" / "limits").write_text(LIMITS.format(soft="unlimited"))
    assert not budget_of(proc_root, 77, Path("/home/me/state.db")).tight
    assert budget_of(proc_root, 78, Path("/home/me/state.db")) == Budget(used=None, limit=None, on_store=None)


def test_a_holder_close_to_its_limit_is_a_problem_in_one_sentence(proc_root: Path) -> None:
    (finding,) = holder_findings(a_scan(a_holder()), proc_root=proc_root)
    assert finding.sentence == (
        "PID 77 (hermes gateway run) of me has the store open: gateway, 3 descriptors on the store, SQLite "
        "of unknown version from /usr/lib/x86_64-linux-gnu/libsqlite3.so.0.8.6. It uses 10 of 12 descriptors: I/O "
        "errors may be that."
    )
    assert (finding.code, finding.severity) == ("descriptors_running_out", Severity.WARNING)


def test_a_holder_is_said_with_the_time_since_when_it_runs(proc_root: Path, fake_clock: FakeClock) -> None:
    (proc_root / "stat").write_text(f"btime {int(fake_clock.now()) - 3 * 86_400}\n")
    (proc_root / "77" / "limits").write_text(LIMITS.format(soft=1024))
    (finding,) = holder_findings(a_scan(a_holder()), proc_root=proc_root, clock=fake_clock)
    since = finding.facts["started_at"]
    assert since == rfc3339(started_at(1, proc_root=proc_root))
    assert finding.sentence == (
        f"PID 77 (hermes gateway run) of me has the store open: gateway, running since "
        f"{human_time(started_at(1, proc_root=proc_root), fake_clock)}, 3 descriptors on the store, SQLite of "
        "unknown version from /usr/lib/x86_64-linux-gnu/libsqlite3.so.0.8.6."
    )


def test_this_process_close_to_its_own_limit_is_a_problem(proc_root: Path) -> None:
    os.rename(proc_root / "77", proc_root / "self")
    (finding,) = own_budget_finding(Path("/home/me/state.db"), proc_root=proc_root)
    assert finding.sentence == "This process uses 10 of 12 descriptors; raise the limit (ulimit -n)."


def test_the_library_of_a_holder_is_named_and_never_guessed(proc_root: Path) -> None:
    assert sqlite_library(proc_root, 77) == "/usr/lib/x86_64-linux-gnu/libsqlite3.so.0.8.6"
    assert sqlite_library(proc_root, 78) is None


def test_a_holder_of_a_deleted_wal_is_said_with_what_to_do_and_what_not() -> None:
    (finding,) = split_findings(a_scan(a_holder(stale=True)))
    assert finding.sentence == (
        "PID 77 (hermes gateway run) still works on a deleted or replaced WAL of this store: what it saves does not "
        "reach the file that others see. Do not delete anything; stop it first, then the others."
    )
    assert finding.next_command == "hermes-state locks --db /home/me/state.db"


def test_nobody_is_never_said_when_something_was_hidden(tmp_path: Path) -> None:
    hidden = Hidden(user="root", count=68, uid=0)
    (finding,) = holder_findings(a_scan(hidden=(hidden,)), proc_root=tmp_path)
    assert finding.sentence == "No holder is visible from here; not visible: 68 processes of root."
    (seen,) = holder_findings(a_scan(), proc_root=tmp_path)
    assert seen.sentence == "No other process has the store open."


def test_more_holders_may_hide_behind_those_that_were_seen(proc_root: Path) -> None:
    hidden = Hidden(user="root", count=1, uid=0)
    found = holder_findings(a_scan(a_holder(), hidden=(hidden,)), proc_root=proc_root)
    assert found[1].sentence == "There may be more holders: not visible: 1 process of root."


def test_a_live_holder_is_found_with_its_descriptors(store_copy: StoreCopy, child: Children) -> None:
    path = store_copy("0.17.0")
    holder = child(READER, path)
    holder.wait_for("open")
    finding = only(examined(path), "holder")
    assert finding.facts["pid"] == holder.pid
    assert finding.facts["descriptors_on_store"] == 3
    assert "apsw" in str(finding.facts["sqlite_library"])


def test_a_live_holder_of_an_unlinked_wal_comes_first_and_the_other_checks_still_run(
    store_copy: StoreCopy, child: Children
) -> None:
    path = store_copy("0.17.0")
    holder = child(READER, path)
    holder.wait_for("open")
    for suffix in ("-wal", "-shm"):
        os.unlink(f"{path}{suffix}")
    found = examined(path)
    assert found.findings[0].code == "lost_generation"
    assert found.findings[0].facts["pid"] == holder.pid
    assert found.findings[0].facts["deleted"] == ["shm", "wal"]
    assert only(found, "pages").severity is Severity.OK
    assert found.exit_code == 3
    assert found.next_command == f"hermes-state locks --db {path}"


@pytest.mark.slow
def test_a_stopped_holder_is_a_problem_that_says_how_it_goes_on(store_copy: StoreCopy, child: Children) -> None:
    path = store_copy("0.17.0")
    holder = child(READER, path)
    holder.wait_for("open")
    assert only(examined(path, quick=True), "holder").facts["stopped"] is False
    holder.freeze()
    os.waitpid(holder.pid, os.WUNTRACED)
    seen = examined(path, quick=True)
    stopped = only(seen, "holder_stopped")
    assert stopped.sentence.endswith(
        f" It is stopped (SIGSTOP or Ctrl-Z): it keeps its locks and its place in the WAL, others wait for it, and it "
        f"ends only once it goes on. `kill -CONT {holder.pid}` lets it go on."
    )
    assert (seen.verdict, seen.exit_code, seen.next_command) == ("problems", 3, f"kill -CONT {holder.pid}")
    holder.thaw()
    os.waitpid(holder.pid, os.WCONTINUED)
    assert only(examined(path, quick=True), "holder").facts["stopped"] is False
