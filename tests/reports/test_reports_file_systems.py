"""Reports 17 and 41 to 46: journal mode and file system are reported and never switched; a failing system is named.

File systems that this machine does not have are shown to the program as the kernel would show them: by a mount table
put over its own in a mount namespace. Failing system calls are failed by strace, so SQLite and the program are real.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import apsw
import pytest

from hermes_state.engine.filesystem import check_wal_allowed
from hermes_state.errors import Refused
from tests.support import strace
from tests.support.children import Children
from tests.support.cli import Result, RunCli
from tests.support.stores import StoreCopy

pytestmark = pytest.mark.slow

SESSION = "20260121_000009_f2bd79"
READING = (("sessions", "list"), ("sessions", "stats"), ("sessions", "show", SESSION), ("sessions", "export", "-"))
needs_strace = pytest.mark.skipif(not strace.available(), reason="strace cannot trace here")


def mount_table(folder: Path, kind: str) -> Path:
    """A mount table in which `folder` lies on a file system of this kind, inside a local one."""
    table = folder.parent / "mountinfo"
    table.write_text(
        f"22 1 254:0 / / rw - ext4 /dev/vda rw\n30 22 0:50 / {folder} rw,relatime shared:1 - {kind} share0 rw\n"
    )
    return table


def seeing(table: Path) -> tuple[str, ...]:
    """Start a command that sees `table` as its mount table."""
    return ("unshare", "--mount", "sh", "-c", 'mount --bind "$0" /proc/$$/mountinfo && exec "$@"', str(table))


@cache
def cannot_cover() -> str:
    try:
        command = [*seeing(Path("/etc/hostname")), sys.executable, "-c", "open('/proc/self/mountinfo').read()"]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"this machine does not let a mount table be covered: {error}"
    return ""


class Elsewhere:
    """A store that the program sees on another file system: `on("nfs4", "doctor")`."""

    def __init__(self, db: Path, run_cli: RunCli) -> None:
        # A name of its own: seen from a mount namespace of its own, deleted files of that name may be this store's.
        self.db = db.rename(db.with_name(f"moved-{os.getpid()}.db"))
        self._run_cli = run_cli

    def __call__(self, kind: str, *verb: str) -> Result:
        return self._run_cli(*verb, "--db", self.db, wrapper=seeing(mount_table(self.db.parent, kind)))


@pytest.fixture
def on(store_copy: StoreCopy, run_cli: RunCli) -> Elsewhere:
    if cannot_cover():
        pytest.skip(cannot_cover())
    return Elsewhere(store_copy(), run_cli)


def header_mode(db: Path) -> bytes:
    """Bytes 18 and 19 of the file, which nobody has open: 1 is rollback, 2 is WAL."""
    return db.read_bytes()[18:20]


# --- 17: the operator's rollback mode silently went back to WAL --------------------------------------------------


@pytest.mark.parametrize("verb", [
    *READING, ("doctor",), ("sessions", "archive", SESSION), ("sessions", "rename", SESSION, "title"),
    ("sessions", "delete", SESSION, "--yes"), ("sessions", "prune", "--older-than", "1d", "--yes", "--allow-large"),
    ("sessions", "optimize", "--reclaim", "always"), ("sessions", "optimize", "--via-copy", "--reclaim", "always"),
    ("sessions", "optimize", "--online"), ("sessions", "optimize-storage"),
], ids=" ".join)
def test_a_store_that_was_set_to_rollback_mode_stays_in_it(
    store_copy: StoreCopy, run_cli: RunCli, verb: tuple[str, ...]
) -> None:
    db = store_copy()
    in_mode(db, "delete")
    (db.parent / "config.yaml").write_text("database:\n  journal_mode: delete\n")
    done = run_cli(*verb)
    assert done.exit_code == 0, done.stderr
    assert header_mode(db) == b"\x01\x01"
    assert [path.name for path in db.parent.iterdir() if path.name.endswith(("-wal", "-shm"))] == []


def test_a_mode_that_an_upgrade_switched_is_shown_beside_the_configured_one(
    store_copy: StoreCopy, run_cli: RunCli
) -> None:
    db = store_copy()
    in_mode(db, "delete")
    config = db.parent / "config.yaml"
    config.write_text("database:\n  journal_mode: delete\n")
    before = run_cli("doctor")
    assert f"ok       The journal mode in force is delete; as {config} asks." in before.stdout.splitlines()
    in_mode(db, "wal")
    after = run_cli("doctor")
    assert (before.exit_code, after.exit_code) == (0, 3)
    assert (
        f"problem  {config} asks for the journal mode delete, and wal is in force. Nothing is switched by itself; "
        "hermes-agent may do so at its next start."
    ) in after.stdout.splitlines()
    assert header_mode(db) == b"\x02\x02"


def in_mode(db: Path, mode: str) -> None:
    connection = apsw.Connection(str(db))
    assert connection.execute(f"PRAGMA journal_mode = {mode}").fetchall() == [(mode,)]
    connection.close()


# --- 41: virtiofs and 9p: refuse WAL, say why, offer a volume ----------------------------------------------------


@pytest.mark.parametrize("kind", ["virtiofs", "9p"])
def test_wal_is_refused_across_a_virtual_machines_border_with_the_way_out(kind: str, tmp_path: Path) -> None:
    home = tmp_path / "proc" / "self" / "home"
    home.mkdir(parents=True)
    mount_table(home, kind)
    with pytest.raises(Refused) as refused:
        check_wal_allowed(home / "state.db", proc_root=tmp_path / "proc")
    assert refused.value.message == (
        f"{home}/state.db lies on {kind} (share0 on {home}), where WAL cannot be used safely."
    )
    assert refused.value.hint == (
        f"{kind} crosses a virtual machine's border, so processes on both sides share no memory. "
        "Keep the store on a local disk or a named volume, or in rollback-journal mode."
    )


@pytest.mark.parametrize("kind", ["virtiofs", "9p"])
def test_a_wal_store_on_such_a_mount_is_a_problem_that_names_the_way_out(
    on: Elsewhere, kind: str, tmp_path: Path
) -> None:
    done = on(kind, "doctor")
    home = tmp_path / "home"
    assert done.exit_code == 3
    assert [line for line in done.stdout.splitlines() if line.startswith("problem")] == [
        f"problem  The store is in WAL mode on {kind} (share0 on {home}). {kind} crosses a virtual machine's border, "
        "so processes on both sides share no memory. Move it to a local disk or a named volume while no Hermes runs."
    ]


# --- 42: an existing WAL store on a network file system, without a warning ---------------------------------------


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "fuse.sshfs"])
def test_a_wal_store_on_a_network_file_system_is_flagged_once(on: Elsewhere, kind: str, tmp_path: Path) -> None:
    done = on(kind, "doctor", "--json")
    flagged = [finding for finding in done.json["findings"] if finding["code"] == "wal_on_unsafe_file_system"]
    assert (done.exit_code, len(flagged)) == (3, 1)
    assert flagged[0]["sentence"] == (
        f"The store is in WAL mode on {kind} (share0 on {tmp_path / 'home'}). {kind} reaches other machines, so its "
        "users share no memory and its locks may not hold. Move it to a local disk or a named volume while no Hermes "
        "runs."
    )
    assert (flagged[0]["facts"]["type"], flagged[0]["facts"]["journal_mode"]) == (kind, "wal")
    assert header_mode(on.db) == b"\x02\x02"


# --- 43: locks that do not work were told as "not available" -----------------------------------------------------


def failing(call: str, error: str, path: str, *, when: str = "1+") -> tuple[str, ...]:
    """Start a command for which the kernel fails `call` on `path`."""
    return ("strace", "-f", "-o", "/dev/null", "-P", path, "-e", f"inject={call}:error={error}:when={when}")


@needs_strace
@pytest.mark.parametrize("verb", [*READING, ("sessions", "rename", SESSION, "title")], ids=lambda verb: verb[1])
def test_a_file_system_without_locks_is_one_clear_error_in_every_verb(
    store_copy: StoreCopy, run_cli: RunCli, verb: tuple[str, ...]
) -> None:
    db = store_copy()
    run_cli("sessions", "list")  # makes the -wal and -shm that strace is to watch
    done = run_cli(*verb, wrapper=failing("fcntl", "ENOLCK", f"{db}-shm", when="3+"))
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.splitlines()[0] == (
        f"Error: The operating system failed opening {db} (ENOLCK: No locks available). SQLite said: disk I/O error "
        "(code 10, extended 3850)."
    )
    assert "not available" not in done.stderr


# --- 44: ZFS: "disk I/O error" after a reconnect storm -----------------------------------------------------------


@needs_strace
@pytest.mark.parametrize("verb", READING, ids=lambda verb: verb[1])
def test_an_io_error_of_the_wal_index_is_told_with_its_errno_and_the_next_open_works(
    store_copy: StoreCopy, run_cli: RunCli, verb: tuple[str, ...]
) -> None:
    db = store_copy()
    assert run_cli(*verb).exit_code == 0
    done = run_cli(*verb, wrapper=failing("mmap", "EIO", f"{db}-shm"))
    assert (done.exit_code, done.stdout) == (1, "")
    # 5386 is SQLITE_IOERR_SHMMAP: it is the -shm that failed.
    assert done.stderr.splitlines()[0] == (
        f"Error: The operating system failed opening {db}-shm (EIO: Input/output error). SQLite said: disk I/O error "
        "(code 10, extended 5386)."
    )
    assert run_cli(*verb).exit_code == 0


@needs_strace
def test_the_doctor_reports_such_an_error_and_never_takes_it_for_damage(
    store_copy: StoreCopy, run_cli: RunCli
) -> None:
    db = store_copy()
    run_cli("sessions", "list")
    done = run_cli("doctor", wrapper=failing("mmap", "EIO", f"{db}-shm"))
    assert done.exit_code == 3
    assert (
        "problem  The store could not be opened, so nothing in it was checked. The operating system failed opening "
        f"{db}-shm (EIO: Input/output error). SQLite said: disk I/O error (code 10, extended 5386)."
    ) in done.stdout.splitlines()


# --- 45: btrfs: advice, no silent change -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        (
            "btrfs",
            "I/O errors under WAL were reported on btrfs; set the folder to no copy-on-write (chattr +C).",
        ),
        ("zfs", "Under many opens at once ZFS has answered with I/O errors until a restart; keep opens few."),
    ],
)
def test_btrfs_and_zfs_get_advice_and_the_mode_stays(on: Elsewhere, kind: str, advice: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    done = on(kind, "doctor")
    assert done.exit_code == 0
    assert f"note     The store lies on {kind} (share0 on {home}). {advice}" in done.stdout.splitlines()
    assert header_mode(on.db) == b"\x02\x02"


# --- 46: "disk I/O error" from the sixteenth call on: descriptors first ------------------------------------------


def test_exhausted_descriptors_are_named_before_the_file_system(store_copy: StoreCopy, run_cli: RunCli) -> None:
    db = store_copy()
    told = []
    for limit in range(4, 12):
        done = run_cli("sessions", "list", wrapper=("prlimit", f"--nofile={limit}:{limit}"), audited=False)
        if done.stderr.startswith("Error: "):  # below that the interpreter itself does not start
            assert (done.exit_code, done.stdout) == (1, "")
            assert "open-file limit" in done.stderr.splitlines()[-1], done.stderr
            told.append(done.stderr.splitlines()[0])
    sentence = f"This process has run out of file descriptors, so opening {db} failed (EMFILE: Too many open files)."
    assert any(line.startswith(f"Error: {sentence}") for line in told), told
    assert done.exit_code == 0, done.stderr


def test_a_holder_that_runs_out_of_descriptors_is_told_before_its_io_errors_are_blamed_on_the_disk(
    store_copy: StoreCopy, run_cli: RunCli, child: Children
) -> None:
    db = store_copy()
    leaking = child(
        """
        import os, resource, sqlite3, sys, gates
        opened = []
        spare = os.open("/dev/null", os.O_RDONLY)
        resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))
        try:
            while True:
                opened.append(sqlite3.connect(sys.argv[1]))
                opened[-1].execute("SELECT count(*) FROM sessions").fetchall()
        except sqlite3.OperationalError as problem:
            os.close(spare)
            gates.reach("full", problem)
        gates.wait("end")
        """,
        db,
    )
    assert leaking.wait_for("full") in ("disk I/O error", "unable to open database file")
    done = run_cli("doctor", "--json")
    [finding] = [finding for finding in done.json["findings"] if finding["code"] == "descriptors_running_out"]
    assert (done.exit_code, finding["facts"]["pid"]) == (3, leaking.pid)
    assert finding["sentence"].endswith("of 60 descriptors: I/O errors may be that.")
