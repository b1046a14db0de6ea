"""The judge of the read-only campaign must be able to say guilty."""

# ruff: noqa: E501 - recorded lines of strace are as long as they are

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support import strace

STORE = Path("/home/someone/.hermes/state.db")
WRITER = """
71  openat(AT_FDCWD</>, "/home/someone/.hermes/state.db", O_RDWR|O_CREAT|O_NOFOLLOW|O_CLOEXEC, 0644) = 3</home/someone/.hermes/state.db>
71  fcntl(3</home/someone/.hermes/state.db>, F_SETLK, {l_type=F_RDLCK, l_whence=SEEK_SET, l_start=1073741826, l_len=510}) = 0
71  fcntl(5</home/someone/.hermes/state.db-shm>, F_SETLK, {l_type=F_WRLCK, l_whence=SEEK_SET, l_start=120, l_len=1}) = 0
71  fcntl(5</home/someone/.hermes/state.db-shm>, F_SETLK, {l_type=F_WRLCK, l_whence=SEEK_SET, l_start=121, l_len=2}) = -1 EAGAIN (Resource temporarily unavailable)
71  pwrite64(4</home/someone/.hermes/state.db-wal>, ""..., 32, 0) = 32
71  fcntl(3</home/someone/.hermes/state.db>, F_SETLK, {l_type=F_WRLCK, l_whence=SEEK_SET, l_start=1073741826, l_len=510}) = 0
71  fcntl(3</home/someone/.hermes/state.db>, F_SETLK, {l_type=F_WRLCK, l_whence=SEEK_SET, l_start=1073741825, l_len=1}) = 0
71  pwrite64(3</home/someone/.hermes/state.db>, ""..., 4096, 0) = 4096
71  ftruncate(3</home/someone/.hermes/state.db>, 565248) = 0
71  unlink("/home/someone/.hermes/state.db-shm") = 0
71  unlinkat(AT_FDCWD</home/someone/.hermes>, "state.db-wal", 0) = 0
71  renameat2(AT_FDCWD</tmp>, "new.db", AT_FDCWD</tmp>, "/home/someone/.hermes/state.db", 0) = 0
71  +++ exited with 0 +++
"""
READER = """
72  openat(AT_FDCWD</>, "/home/someone/.hermes/state.db", O_RDONLY|O_NOFOLLOW|O_CLOEXEC) = 3</home/someone/.hermes/state.db>
72  fcntl(3</home/someone/.hermes/state.db>, F_SETLK, {l_type=F_RDLCK, l_whence=SEEK_SET, l_start=1073741826, l_len=510}) = 0
72  openat(AT_FDCWD</>, "/home/someone/.hermes/state.db-shm", O_RDWR|O_CREAT|O_NOFOLLOW|O_CLOEXEC, 0644) = 4</home/someone/.hermes/state.db-shm>
72  fcntl(4</home/someone/.hermes/state.db-shm>, F_SETLK, {l_type=F_RDLCK, l_whence=SEEK_SET, l_start=128, l_len=1}) = 0
72  fcntl(4</home/someone/.hermes/state.db-shm>, F_SETLK, {l_type=F_WRLCK, l_whence=SEEK_SET, l_start=124, l_len=1}) = 0
72  fcntl(4</home/someone/.hermes/state.db-shm>, F_GETLK, {l_type=F_UNLCK, l_whence=SEEK_SET, l_start=128, l_len=1, l_pid=0}) = 0
72  unlink("/home/someone/other.db-wal") = 0
72  write(1</dev/null>, ""..., 120) = 120
72  --- SIGCHLD {si_signo=SIGCHLD, si_code=CLD_EXITED, si_pid=73, si_uid=0, si_status=0, si_utime=0, si_stime=0} ---
"""


def test_every_write_of_a_writer_is_named() -> None:
    seen = strace.read(WRITER.splitlines(), STORE)

    assert seen.forbidden == (
        "write lock on -shm bytes 120 to 120",
        "write lock on -shm bytes 121 to 122, asked for in vain",
        "pwrite64 to wal",
        "write lock EXCLUSIVE on the main file",
        "write lock RESERVED on the main file",
        "pwrite64 to main",
        "ftruncate of main",
        "unlink of shm",
        "unlinkat of wal",
        "renameat2 of main",
    )
    assert len(seen.writable_opens) == 1


def test_a_reader_with_its_read_mark_is_not_accused() -> None:
    seen = strace.read(READER.splitlines(), STORE)

    assert (seen.forbidden, seen.writable_opens, seen.locks) == ((), (), 3)


def test_a_lock_that_only_covers_the_writer_byte_in_a_longer_range_is_found() -> None:
    line = f"7  fcntl(4<{STORE}-shm>, F_OFD_SETLKW, {{l_type=F_WRLCK, l_whence=SEEK_SET, l_start=100, l_len=0}}) = 0"

    assert strace.read([line], STORE).forbidden[0].startswith("write lock on -shm bytes 100 to ")


def test_a_call_that_strace_split_in_two_is_put_together() -> None:
    lines = [
        f"7  fcntl(4<{STORE}-shm>, F_SETLK, {{l_type=F_WRLCK, l_whence=SEEK_SET, l_start=120, l_len=1}} <unfinished ...>",
        '8  write(1</dev/null>, ""..., 1) = 1',
        "7  <... fcntl resumed>) = 0",
    ]

    assert strace.read(lines, STORE).forbidden == ("write lock on -shm bytes 120 to 120",)


def test_a_line_that_is_not_understood_is_an_error_and_not_innocence() -> None:
    with pytest.raises(strace.NotUnderstood):
        strace.read(["7  fcntl(4</home/someone/.hermes/state.db-shm>, F_SETLK, 0x7ffd) = 0"], STORE)
    with pytest.raises(strace.NotUnderstood):
        strace.read(["something else entirely"], STORE)


@pytest.mark.slow
@pytest.mark.skipif(not strace.available(), reason="strace cannot trace here")
def test_a_real_writer_is_found_guilty(tmp_path: Path) -> None:
    import subprocess

    store, trace = tmp_path / "state.db", tmp_path / "trace"
    program = (
        "import apsw, sys; c = apsw.Connection(sys.argv[1]); c.execute('pragma journal_mode=wal').fetchall();"
        "c.execute('create table t(x)').fetchall(); c.close()"
    )
    subprocess.run(strace.under_strace([sys.executable, "-c", program, str(store)], trace), check=True)

    seen = strace.read(trace.read_text(encoding="utf-8", errors="replace").splitlines(), store)

    assert "write lock on -shm bytes 120 to 120" in seen.forbidden
    assert "unlink of wal" in seen.forbidden
    assert "pwrite64 to main" in seen.forbidden
    assert seen.writable_opens
