"""Real processes that hold a store in one state until they are released.

Invariant: a child says "ready" when it is in its state and stays there until its input is closed; nothing sleeps.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

CHILD = Path(__file__).with_name("holder_child.py")
DEADLINE_SECONDS = 30.0

# An unprivileged user that owns nothing here, and one more; their own for each run, so that two runs do not meet.
USER = 100_000 + 2 * (os.getpid() % 20_000)
OTHER_USER = USER + 1


def _why_no_other_users() -> str:
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "needs root to start processes of other users"
    try:
        subprocess.run(
            [*as_user(USER), sys.executable, "-c", "import apsw"], check=True, capture_output=True, timeout=60
        )
    except (OSError, subprocess.CalledProcessError) as error:
        return f"another user cannot run this interpreter: {error}"
    return ""


def as_user(uid: int) -> tuple[str, ...]:
    """Start a command as another user, without groups and capabilities."""
    return ("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--inh-caps=-all")


WHY_NO_OTHER_USERS = _why_no_other_users()
needs_root = pytest.mark.skipif(bool(WHY_NO_OTHER_USERS), reason=WHY_NO_OTHER_USERS)
needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's /proc")


class Child:
    """One child and its two gates."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._rest = b""

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_for(self, word: str) -> str:
        """The rest of the line that begins with `word`."""
        assert self.process.stdout is not None
        while True:
            line, separator, rest = self._rest.partition(b"\n")
            if separator:
                self._rest = rest
                text = line.decode()
                if text.startswith(word):
                    return text[len(word) :].strip()
                continue
            readable, _, _ = select.select([self.process.stdout], [], [], DEADLINE_SECONDS)
            assert readable, f"the child did not say {word!r}"
            piece = os.read(self.process.stdout.fileno(), 4096)
            assert piece, f"the child ended before it said {word!r}"
            self._rest += piece

    def release(self) -> None:
        """Let it go on to its end."""
        if self.process.stdin is not None and not self.process.stdin.closed:
            self.process.stdin.close()
        self.process.wait(DEADLINE_SECONDS)


@contextmanager
def running(command: list[str]) -> Iterator[Child]:
    """A child of any command, ended at the end."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child = Child(process)
    try:
        yield child
    finally:
        try:
            child.release()
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        finally:
            if process.stdout is not None:
                process.stdout.close()


@contextmanager
def holding(state: str, path: Path, *, prefix: tuple[str, ...] = ()) -> Iterator[Child]:
    """A child that is in `state` on the store at `path`."""
    with running([*prefix, sys.executable, str(CHILD), state, str(path)]) as child:
        child.wait_for("ready")
        yield child


def make_store(path: Path, mode: str = "wal") -> Path:
    """A small store, made by a process of its own so that this one never had it open."""
    subprocess.run([sys.executable, str(CHILD), f"make-{mode}", str(path)], check=True, timeout=DEADLINE_SECONDS)
    return path
