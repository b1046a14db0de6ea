"""Files beside a store have one writer, and the program starts where there is no `fcntl`."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from hermes_state.file_lock import _FAR_BYTE, _lock_far_byte, lock_alone

ROOT = Path(__file__).resolve().parents[2]
WITHOUT = """
import importlib, sys
sys.modules.update(dict.fromkeys(("fcntl", "pwd", "grp", "resource", "termios")))
from maintenance.verbs import VERBS
import maintenance.entry, maintenance.cli, maintenance.marks, maintenance.ledger, maintenance.gate
import hermes_state.engine, lockowners
for verb in VERBS.values():
    importlib.import_module(verb.module)
from maintenance.removal import flow, marking
from maintenance.space import optimize, optimize_online
from maintenance.space.storage import flow
from maintenance.doctor import examine
print("started")
"""


@pytest.mark.slow
def test_every_verb_can_be_imported_without_fcntl() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("started\n", "")


def test_a_second_lock_on_the_same_file_waits_until_the_first_is_closed(tmp_path: Path) -> None:
    fcntl = pytest.importorskip("fcntl")
    first = os.open(tmp_path / "one", os.O_RDWR | os.O_CREAT)
    second = os.open(tmp_path / "one", os.O_RDWR)
    try:
        lock_alone(first)
        with pytest.raises(BlockingIOError):
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(first)
        first = -1
        lock_alone(second)
    finally:
        for descriptor in (first, second):
            if descriptor >= 0:
                os.close(descriptor)


class Windows(ModuleType):
    """What `msvcrt` does: it fails with the given errors, then locks; notes where."""

    LK_LOCK = 1

    def __init__(self, *errors: int) -> None:
        super().__init__("msvcrt")
        self.errors = list(errors)
        self.locked: list[int] = []

    def locking(self, descriptor: int, mode: int, count: int) -> None:
        if self.errors:
            raise OSError(self.errors.pop(0), "as told")
        self.locked.append(os.lseek(descriptor, 0, os.SEEK_CUR))


def test_on_windows_a_byte_far_behind_the_content_is_asked_for_until_it_is_free(tmp_path: Path) -> None:
    system = Windows(errno.EDEADLK, errno.EACCES)
    with (tmp_path / "one").open("w+b", buffering=0) as file:
        file.write(b"content")
        _lock_far_byte(file.fileno(), system)
        assert (system.locked, file.tell()) == ([_FAR_BYTE], 7)


def test_on_windows_any_other_failure_of_the_lock_is_an_error(tmp_path: Path) -> None:
    with (tmp_path / "one").open("w+b", buffering=0) as file, pytest.raises(OSError, match="as told") as failed:
        _lock_far_byte(file.fileno(), Windows(errno.EBADF))
    assert failed.value.errno == errno.EBADF
