"""The scan over canned process tables: everything that a live machine does not show on demand."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from lockowners import NoSuchStore, holders, lock_owners, verdict
from lockowners.devices import device_numbers, watch
from lockowners.survey import take
from lockowners.vantage import INITIAL_PID_NAMESPACE


class Table:
    """A canned /proc."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        (root / "locks").write_text("")
        self.process(1000)
        (root / "self").symlink_to("1000")
        (root / "1000" / "ns").mkdir()
        (root / "1000" / "ns" / "pid").symlink_to(INITIAL_PID_NAMESPACE)
        (root / "1000" / "uid_map").write_text("0 0 4294967295\n")
        (root / "1000" / "mountinfo").write_text("")

    def process(
        self,
        pid: int,
        *,
        uid: int = 0,
        argv: str = "sleep 1",
        state: str = "S",
        flags: int = 0,
        opened: tuple[tuple[int, str], ...] = (),
        capabilities: int = 0,
    ) -> None:
        place = self.root / str(pid)
        (place / "fd").mkdir(parents=True)
        (place / "stat").write_text(f"{pid} (x) {state} 1 0 0 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 1 0 555 0 0\n")
        (place / "status").write_text(
            f"Uid:\t{uid}\t{uid}\t{uid}\t{uid}\nGid:\t{uid}\t{uid}\t{uid}\t{uid}\nGroups:\t\n"
            f"NSpid:\t{pid}\nCapPrm:\t{capabilities:016x}\nCapEff:\t{capabilities:016x}\n"
        )
        (place / "cmdline").write_text(argv.replace(" ", "\0") + "\0")
        (place / "cgroup").write_text("0::/\n")
        for number, target in opened:
            (place / "fd" / str(number)).symlink_to(target)

    def unreadable(self, pid: int, **facts: int) -> None:
        """A process whose descriptor table gives an error other than "gone"."""
        self.process(pid, **facts)  # type: ignore[arg-type]
        (self.root / str(pid) / "fd").rmdir()
        (self.root / str(pid) / "fd").write_text("")

    def lock(self, text: str) -> None:
        with (self.root / "locks").open("a") as file:
            file.write(text + "\n")


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "proc")


def place_of(path: Path) -> str:
    found = path.stat()
    major, minor = device_numbers(found.st_dev)
    return f"{major:02x}:{minor:02x}:{found.st_ino}"


def test_holder_by_lock_alone_is_found_when_its_descriptors_are_closed_to_us(store: Path, table: Table) -> None:
    table.unreadable(50, uid=7)
    table.lock(f"1: POSIX  ADVISORY  READ 50 {place_of(store)} 1073741826 1073742335")
    scan = holders(store, proc_root=table.root)
    assert [(holder.process.pid, holder.via) for holder in scan.holders] == [(50, frozenset({"lock"}))]
    assert [held.kind for held in scan.holders[0].files] == ["main"]
    assert scan.hidden == ()


def test_row_that_the_lock_table_left_out_is_taken_from_beside_the_descriptor(store: Path, table: Table) -> None:
    # The kernel hands the table out in pieces; a row that moves between two pieces is in neither.
    shm = Path(f"{store}-shm")
    shm.touch()
    table.process(50, opened=((3, str(store)), (5, str(shm))))
    table.process(51, opened=((3, str(store)), (5, str(shm))))  # a forked child: it shows its parent's rows
    table.lock(f"1: POSIX  ADVISORY  READ 50 {place_of(store)} 1073741826 1073742335")
    for pid in (50, 51):
        (table.root / str(pid) / "fdinfo").mkdir()
        (table.root / str(pid) / "fdinfo" / "3").write_text("pos:\t0\nflags:\t02\n")
        (table.root / str(pid) / "fdinfo" / "5").write_text(
            f"pos:\t0\nflags:\t02\nlock:\t1: POSIX  ADVISORY  WRITE 50 {place_of(shm)} 120 120\n"
        )
    report = lock_owners(store, proc_root=table.root)
    assert [(owner.lock, owner.process.pid) for owner in report.owners if owner.process] == [("wal-writer", 50)]


def test_process_that_ended_between_the_readings_is_no_holder(store: Path, table: Table) -> None:
    table.process(50, opened=((3, str(store)),), state="Z")
    assert holders(store, proc_root=table.root).holders == ()


def test_lock_of_a_process_that_is_not_listed_is_a_proved_hidden_holder(store: Path, table: Table) -> None:
    table.lock(f"1: POSIX  ADVISORY  READ 51 {place_of(store)} 1073741826 1073742335")
    scan = holders(store, proc_root=table.root)
    assert [(row.pids, row.holds) for row in scan.hidden] == [((51,), True)]
    assert not verdict(scan, exclusive_obtained=True, replaces_inode=False).allowed
    report = lock_owners(store, proc_root=table.root)
    assert [(owner.lock, owner.process) for owner in report.owners] == [("shared", None)]
    assert not report.complete


def test_kernel_threads_and_zombies_that_cannot_be_read_are_not_counted(store: Path, table: Table) -> None:
    table.unreadable(60, flags=0x00200000)
    table.unreadable(61)
    stat = (table.root / "61" / "stat").read_text()
    (table.root / "61" / "stat").write_text(stat.replace(" S ", " Z "))
    assert holders(store, proc_root=table.root).hidden == ()


def test_hidden_processes_are_counted_by_user_with_root_first(store: Path, table: Table) -> None:
    store.parent.chmod(0o755)
    for file in store.parent.glob("state.db*"):
        file.chmod(0o644)
    for pid in (70, 71):
        table.unreadable(pid, uid=0)
    table.unreadable(72, uid=60123, capabilities=2)
    scan = holders(store, proc_root=table.root)
    assert [(row.user, row.count, row.pids) for row in scan.hidden] == [("root", 2, (70, 71)), ("uid 60123", 1, (72,))]
    assert scan.not_visible == "not visible: 2 processes of root, 1 process of uid 60123"
    assert not scan.complete


def test_process_whose_credentials_are_hidden_too_is_counted_by_the_owner_of_its_folder(
    store: Path, table: Table
) -> None:
    table.unreadable(73)
    (table.root / "73" / "status").unlink()
    scan = holders(store, proc_root=table.root)
    assert [(row.uid, row.count) for row in scan.hidden] == [(os.geteuid(), 1)]


def test_process_that_started_during_the_scan_is_looked_at_too(store: Path, table: Table) -> None:
    table.process(75, opened=((3, str(store)),))
    table.unreadable(76)
    survey = take(watch(store, table.root), table.root, [1000])
    assert (list(survey.tables.found), survey.tables.unreadable) == ([75], [76])


def test_ofd_lock_is_given_to_the_process_whose_descriptor_has_it(store: Path, table: Table) -> None:
    row = f"OFDLCK ADVISORY  READ -1 {place_of(store)} 1073741826 1073742335"
    table.lock(f"1: {row}")
    table.process(80, opened=((5, str(store)),))
    (table.root / "80" / "fdinfo").mkdir()
    (table.root / "80" / "fdinfo" / "5").write_text(f"pos:\t0\nlock:\t1: {row}\n")
    scan = holders(store, proc_root=table.root)
    assert [(holder.process.pid, holder.via) for holder in scan.holders] == [(80, frozenset({"lock", "descriptor"}))]
    assert scan.hidden == ()
    assert [owner.process.pid for owner in lock_owners(store, proc_root=table.root).owners if owner.process] == [80]


def test_ofd_lock_of_nobody_visible_is_a_proved_hidden_holder(store: Path, table: Table) -> None:
    table.lock(f"1: OFDLCK ADVISORY  READ -1 {place_of(store)} 1073741826 1073742335")
    scan = holders(store, proc_root=table.root)
    assert scan.not_visible == "not visible: 1 process that holds an OFD lock through a descriptor that is not visible"
    assert [owner.process for owner in lock_owners(store, proc_root=table.root).owners] == [None]


def test_waiters_and_locks_of_other_kinds_make_holders_but_not_lock_owners(store: Path, table: Table) -> None:
    place = place_of(store)
    for pid in (90, 91, 92):
        table.process(pid)
    table.lock(f"1: FLOCK  ADVISORY  WRITE 90 {place} 0 EOF")
    table.lock(f"2: POSIX  ADVISORY  WRITE 91 {place} 1073741825 1073741825")
    table.lock(f"2: -> POSIX  ADVISORY  WRITE 92 {place} 1073741825 1073741825")
    assert [holder.process.pid for holder in holders(store, proc_root=table.root).holders] == [90, 91, 92]
    report = lock_owners(store, proc_root=table.root)
    assert [(owner.lock, owner.process.pid) for owner in report.owners if owner.process] == [("reserved", 91)]
    assert [(owner.lock, owner.process.pid) for owner in report.waiters if owner.process] == [("reserved", 92)]


def test_row_on_btrfs_counts_only_when_the_descriptors_say_so(store: Path, table: Table, tmp_path: Path) -> None:
    (table.root / "1000" / "mountinfo").write_text(f"40 1 0:40 / {tmp_path} rw - btrfs /dev/vdb rw\n")
    inode = store.stat().st_ino
    for pid in (100, 101):
        table.lock(f"1: POSIX  ADVISORY  READ {pid} 00:28:{inode} 1073741826 1073742335")
    table.process(100)
    table.process(101, opened=((3, str(store)),))
    table.unreadable(102)
    table.lock(f"1: POSIX  ADVISORY  READ 102 00:28:{inode} 1073741826 1073742335")
    assert [holder.process.pid for holder in holders(store, proc_root=table.root).holders] == [101, 102]


def test_deleted_sidecar_is_matched_by_the_kernels_name_and_device(store: Path, table: Table) -> None:
    ghost = Path(f"{store}-wal (deleted)")
    ghost.touch()
    table.process(110, opened=((3, str(store)), (4, str(ghost))))
    holder = holders(store, proc_root=table.root).holders[0]
    assert holder.stale
    assert {(held.kind, held.deleted) for held in holder.files} == {("main", False), ("wal", True)}


def test_lines_that_are_not_understood_make_the_scan_incomplete(store: Path, table: Table) -> None:
    table.lock("9: POSIX  SOMETHING NEW")
    scan = holders(store, proc_root=table.root)
    assert scan.namespace_note == f"1 lines of {table.root}/locks are not understood"
    assert not scan.complete


def test_complete_scan_says_so(store: Path, table: Table) -> None:
    scan = holders(store, proc_root=table.root)
    assert (scan.complete, scan.method, scan.hidden, scan.not_visible) == (True, "procfs", (), "")


def test_child_namespace_is_known_by_its_inode_and_by_the_missing_kernel_threads(store: Path, table: Table) -> None:
    (table.root / "1000" / "ns" / "pid").unlink()
    (table.root / "1000" / "ns" / "pid").symlink_to("pid:[4026532000]")
    assert holders(store, proc_root=table.root).namespace_note == "processes outside this PID namespace"
    table.process(2)
    (table.root / "2" / "stat").write_text("2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 25 0 0\n")
    assert holders(store, proc_root=table.root).namespace_note == ""


@pytest.mark.parametrize("option", ["hidepid=2", "hidepid=invisible", "hidepid=noaccess", "hidepid=ptraceable"])
def test_hidepid_is_said_unless_the_right_to_trace_overrides_it(store: Path, table: Table, option: str) -> None:
    (table.root / "1000" / "mountinfo").write_text(f"22 1 0:21 / {table.root} rw - proc proc rw,{option}\n")
    note = f"processes of other users ({table.root} is mounted with hidepid)"
    assert holders(store, proc_root=table.root).namespace_note == note
    status = (table.root / "1000" / "status").read_text()
    (table.root / "1000" / "status").write_text(status.replace("CapEff:\t" + "0" * 16, "CapEff:\t" + f"{1 << 19:016x}"))
    assert holders(store, proc_root=table.root).namespace_note == ""


def test_system_without_a_lock_table_gives_an_honest_unknown(store: Path, tmp_path: Path) -> None:
    scan = holders(store, proc_root=tmp_path / "none")
    assert (scan.method, scan.complete, scan.holders) == ("none", False, ())
    assert scan.not_visible == ("not visible: all other processes (this system has no process table that can be read)")
    assert not verdict(scan, exclusive_obtained=True, replaces_inode=True).allowed
    report = lock_owners(store, proc_root=tmp_path / "none")
    assert (report.method, report.complete) == ("none", False)


def test_path_that_names_nothing_is_an_error_and_not_an_empty_scan(tmp_path: Path) -> None:
    with pytest.raises(NoSuchStore) as caught:
        holders(tmp_path / "typo.db")
    message = f"{tmp_path}/typo.db does not exist, and no process has a deleted file of that name open"
    assert str(caught.value) == message
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), again.path, str(again)) == (NoSuchStore, f"{tmp_path}/typo.db", message)


def test_importing_the_package_loads_no_third_party_module() -> None:
    program = (
        "import sys, lockowners; print([m for m in ('psutil', 'apsw', 'click', 'rich', 'sqlite3') if m in sys.modules])"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_deleted_file_of_the_same_name_in_another_folder_is_another_store(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    opened = []
    for folder in (ours, theirs):
        folder.mkdir()
        for name in ("state.db", "state.db-wal"):
            (folder / name).write_bytes(b"x")
    opened.append((ours / "state.db").open("rb"))
    opened.append((theirs / "state.db-wal").open("rb"))
    (theirs / "state.db-wal").unlink()
    try:
        scan = holders(ours / "state.db", include_self=True)
        assert [holder.stale for holder in scan.holders if holder.process.pid == os.getpid()] == [False]
    finally:
        for file in opened:
            file.close()
