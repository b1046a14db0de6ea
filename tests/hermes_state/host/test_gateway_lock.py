"""The lock of the host: three results, no leak to children, and never a lock on a file that is not there any more."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hermes_state.host.gateway_lock import Outcome, acquire, look
from tests.support.children import Children

SCRIPT_HOLDS = """
import sys
from pathlib import Path
import gates
from hermes_state.host.gateway_lock import acquire
attempt = acquire(Path(sys.argv[1]))
gates.reach("tried", attempt.outcome)
gates.wait("end")
"""


def test_a_lock_that_is_held_is_seen_and_not_taken_and_free_once_its_holder_is_killed(
    tmp_path: Path, child: Children
) -> None:
    assert look(tmp_path).outcome is Outcome.FREE
    assert list(tmp_path.iterdir()) == []  # a look leaves nothing behind
    holder = child(SCRIPT_HOLDS, tmp_path)
    assert holder.wait_for("tried") == "acquired"
    assert (look(tmp_path).outcome, acquire(tmp_path).outcome) == (Outcome.HELD, Outcome.HELD)
    holder.kill()
    assert look(tmp_path).outcome is Outcome.FREE
    attempt = acquire(tmp_path)
    assert attempt.lock is not None and attempt.lock.still_counts()
    attempt.lock.release()
    attempt.lock.release()
    assert (tmp_path / "gateway.lock").exists()


def test_many_looks_never_keep_somebody_from_the_lock(tmp_path: Path) -> None:
    import fcntl

    (tmp_path / "gateway.lock").touch(mode=0o600)
    looking = os.open(tmp_path / "gateway.lock", os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)  # a look that was stopped in the middle
    attempt = acquire(tmp_path)
    assert attempt.outcome is Outcome.COULD_NOT_OPEN  # and never "held": nobody owns it
    os.close(looking)
    again = acquire(tmp_path)
    assert again.lock is not None
    again.lock.release()


def test_a_forked_child_closes_it_before_it_runs(tmp_path: Path) -> None:
    attempt = acquire(tmp_path)
    lock = attempt.lock
    assert lock is not None
    there, here = os.pipe()
    pid = os.fork()
    if pid == 0:  # pragma: no cover - the child
        os.write(here, b"1" if lock.is_held else b"0")
        os.close(here)
        os.read(there, 0)
        os._exit(0)
    os.close(here)
    assert os.read(there, 1) == b"0"
    os.close(there)
    assert look(tmp_path).outcome is Outcome.HELD  # the parent still has it
    os.waitpid(pid, 0)
    lock.release()
    assert look(tmp_path).outcome is Outcome.FREE


def test_a_child_by_exec_does_not_keep_it(tmp_path: Path) -> None:
    attempt = acquire(tmp_path)
    assert attempt.lock is not None
    with subprocess.Popen(
        [sys.executable, "-c", "print('runs', flush=True); input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        close_fds=False,
    ) as started:
        assert started.stdout is not None and started.stdout.readline() == b"runs\n"
        attempt.lock.release()
        assert look(tmp_path).outcome is Outcome.FREE
        started.communicate(b"\n")


def test_a_lock_whose_file_was_replaced_does_not_count_for_its_holder(tmp_path: Path) -> None:
    attempt = acquire(tmp_path)
    assert attempt.lock is not None
    (tmp_path / "gateway.lock").rename(tmp_path / "moved")
    assert not attempt.lock.still_counts()
    second = acquire(tmp_path)
    assert second.lock is not None and second.lock.still_counts()
    for lock in (attempt.lock, second.lock):
        lock.release()


def test_a_file_that_is_replaced_between_opening_and_locking_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hermes_state.host import gateway_lock

    plain, moved = gateway_lock.lock, []

    def replacing(descriptor: int, *, shared: bool) -> None:
        plain(descriptor, shared=shared)
        if not moved:
            moved.append(True)
            (tmp_path / "gateway.lock").rename(tmp_path / "moved")

    monkeypatch.setattr(gateway_lock, "lock", replacing)
    attempt = acquire(tmp_path)
    assert attempt.lock is not None and attempt.lock.still_counts()
    attempt.lock.release()


@pytest.mark.parametrize("kind", ["folder", "link", "no folder"])
def test_what_cannot_be_opened_is_never_free(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "state"
    if kind == "no folder":
        place.write_text("a file where the folder would be")
    else:
        place.mkdir()
        if kind == "folder":
            (place / "gateway.lock").mkdir()
        else:
            (place / "elsewhere").touch()
            (place / "gateway.lock").symlink_to(place / "elsewhere")
    assert acquire(place).outcome is Outcome.COULD_NOT_OPEN
    assert look(place).outcome is Outcome.COULD_NOT_OPEN


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a file to another user needs root")
def test_a_lock_file_of_another_user_is_never_free_nor_held(tmp_path: Path) -> None:
    (tmp_path / "gateway.lock").touch()
    os.chown(tmp_path / "gateway.lock", 4321, 4321)
    said = f"{tmp_path / 'gateway.lock'} belongs to user 4321"
    assert (look(tmp_path).outcome, look(tmp_path).because) == (Outcome.COULD_NOT_OPEN, said)
    assert (acquire(tmp_path).outcome, acquire(tmp_path).because) == (Outcome.COULD_NOT_OPEN, said)
