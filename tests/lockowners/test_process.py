"""Process identity from canned /proc files and from live processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lockowners.process import (
    command_text,
    parse_stat,
    parse_status,
    portable_processes,
    read_process,
    read_stat,
    split_arguments,
    started_at,
    user_name,
)
from tests.lockowners.holding import needs_linux, running

TAIL = " ".join(str(number) for number in range(23, 53))
STATUS = """\
Name:\tpython
Uid:\t1000\t1001\t1002\t1003
Gid:\t100\t101\t102\t103
Groups:\t4 27 1000
NSpid:\t900\t7
CapPrm:\t0000000000000004
CapEff:\t0000000000000002
"""


@pytest.mark.parametrize("name", ["cat", "a b", "weird) S 1 (", ")", "(sd-pam)", ""])
def test_name_with_spaces_and_parentheses_does_not_shift_the_fields(name: str) -> None:
    stat = parse_stat(f"42 ({name}) S 7 42 42 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 987654 {TAIL}")
    assert stat is not None
    assert (stat.name, stat.state, stat.parent, stat.start_ticks) == (name, "S", 7, 987654)
    assert not stat.is_kernel_thread


def test_the_start_of_a_process_is_its_ticks_after_the_start_of_the_machine(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("cpu  1 2 3\nctxt 5\nbtime 1700000000\nprocesses 9\n")
    assert started_at(250 * os.sysconf("SC_CLK_TCK"), proc_root=tmp_path) == 1_700_000_250.0


def test_a_start_that_nothing_tells_is_not_guessed(tmp_path: Path) -> None:
    assert started_at(9, proc_root=tmp_path) is None
    assert started_at(0, proc_root=tmp_path / "none") is None


def test_without_a_process_table_the_start_is_what_psutil_said(tmp_path: Path) -> None:
    assert started_at(1_700_000_000_250, proc_root=tmp_path / "none") == 1_700_000_000.25


@needs_linux
def test_this_process_started_before_now_and_after_the_machine() -> None:
    stat = read_stat(Path("/proc"), os.getpid())
    assert stat is not None
    started = started_at(stat.start_ticks)
    assert started is not None
    # The kernel gives the machine's start in whole seconds.
    assert time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) - 1 < started < time.time() + 1


def test_kernel_threads_are_known_by_flag_and_by_parent() -> None:
    kthreadd = parse_stat("2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 25 0 0 0 0")
    worker = parse_stat("9 (kworker/0:1) I 2 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 25 0 0 0 0")
    assert kthreadd is not None and kthreadd.is_kernel_thread
    assert worker is not None and worker.is_kernel_thread


@pytest.mark.parametrize(
    "text", ["", "42", "42 (x", "42 (x) S 1", "42 (x) S a 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0"]
)
def test_stat_of_another_form_is_not_guessed(text: str) -> None:
    assert parse_stat(text) is None


def test_credentials_have_all_four_ids_groups_and_both_capability_sets() -> None:
    who = parse_status(STATUS)
    assert who is not None
    assert (who.uids, who.gids, who.effective_uid) == ((1000, 1001, 1002, 1003), (100, 101, 102, 103), 1001)
    assert who.groups == {4, 27, 1000}
    assert who.capabilities == 6
    assert who.pid_depth == 1


@pytest.mark.parametrize("missing", ["Uid", "Gid", "Groups", "CapEff", "CapPrm"])
def test_credentials_without_a_deciding_line_are_none(missing: str) -> None:
    text = "\n".join(line for line in STATUS.splitlines() if not line.startswith(missing))
    assert parse_status(text) is None


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", ()),
        (b"\0\0", ()),
        (b"python\0-m\0x\0", ("python", "-m", "x")),
        (b"python\0-c\0\0", ("python", "-c")),
        (b"title of its own\0\0\0\0", ("title of its own",)),
        (b"\xff\0", ("\ufffd",)),
    ],
)
def test_command_line_is_split(data: bytes, expected: tuple[str, ...]) -> None:
    assert split_arguments(data) == expected


def test_command_is_one_printable_line() -> None:
    assert command_text(("a", "b\nc\x1b[31m"), "x") == "a b?c?[31m"
    assert command_text((), "kthread") == "[kthread]"


def test_user_without_a_name_is_shown_by_number() -> None:
    assert user_name(4_000_123) == "uid 4000123"


@needs_linux
def test_live_child_has_the_identity_the_kernel_gives_it() -> None:
    program = "import sys; print('ready', flush=True); sys.stdin.read()"
    with running([sys.executable, "-c", program, "an argument"]) as child:
        child.wait_for("ready")
        process = read_process(Path("/proc"), child.pid)
        again = read_process(Path("/proc"), child.pid)
    assert process is not None
    assert process == again
    assert process.uid == os.geteuid()
    assert process.argv == (sys.executable, "-c", program, "an argument")
    assert process.start_ticks > 0
    assert process.container is None
    assert read_process(Path("/proc"), child.pid) is None


@needs_linux
def test_zombie_is_dead() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.read()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    stat = read_stat(Path("/proc"), child.pid)
    assert stat is not None
    assert stat.is_dead
    child.stdout.close()
    child.wait()


def test_portable_list_has_this_process_and_its_open_file(tmp_path: Path) -> None:
    place = tmp_path / "open.txt"
    with place.open("w"):
        mine = next(entry for entry in portable_processes() if entry.process.pid == os.getpid())
    assert mine.paths is not None
    assert str(place) in mine.paths
