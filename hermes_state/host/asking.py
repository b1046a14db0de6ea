"""Asking a gateway who it is, and answering: one line each way over a socket in the host's folder.

Invariant: an answer counts only when it comes from a process of our own uid and names the nonce that the record names.
Both ends are bounded: 64 KiB in, 512 KiB out, and a time. The socket is made after the record, by the process that
the record names, and closed in a forked child.

Not for: judging answers (see `decision`). A network port was rejected: anybody could answer on it, and a port that is
used again answers for somebody else.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import Any

from hermes_state.errors import CannotOpen
from hermes_state.host.facts import Answer, Party
from hermes_state.host.folder import our_uid
from hermes_state.host.forked import guarded
from hermes_state.host.states import RunState

FOLDER = "answers"
MOST_IN_BYTES = 64 * 1024
MOST_OUT_BYTES = 512 * 1024
PATIENCE_SECONDS = 2.0
_REST_SECONDS = 0.1  # after a call that could not be taken
_LONGEST_NAME = 100  # bytes of a socket's path that every system takes


class Question(StrEnum):
    """What can be asked."""

    IDENTIFY = "identify"
    RESCAN = "rescan"  # look for homes that are not served yet, then say the same


def socket_path(folder: Path, nonce: str) -> Path:
    """Where the process with this nonce answers."""
    return folder / FOLDER / f"{nonce[:16]}.sock"


def ask(party: Party, question: Question, seconds: float = PATIENCE_SECONDS) -> Answer | None:
    """Ask a gateway; None when nobody answers, not in time, nothing that can be read, or as somebody else."""
    if not party.socket or party.identity is None or not hasattr(socket, "AF_UNIX"):
        return None
    try:
        with _short(Path(party.socket)) as name, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            deadline = time.monotonic() + seconds
            line.settimeout(seconds)
            line.connect(name)
            if not _is_our_user(line):
                return None
            line.sendall(json.dumps({"question": question}).encode() + b"\n")
            said = _line(line, MOST_OUT_BYTES, deadline)
        answer = answer_from(json.loads(said))
    except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None  # no answer is what the caller is told; why makes no difference to a verdict
    return answer if answer.nonce == party.identity.nonce else None


def answer_from(said: dict[str, Any]) -> Answer:
    """An answer as it came over the line. When it is none, raises `KeyError`, `TypeError`, `ValueError` or
    `OverflowError` (a pid without an end).
    """
    served, multiplex, home = said["served"], said["multiplex"], said.get("home")
    if not (multiplex is None or isinstance(multiplex, bool)) or not (home is None or isinstance(home, str)):
        raise TypeError("multiplex or home")
    if served is not None and not (isinstance(served, list) and all(isinstance(one, str) for one in served)):
        raise TypeError("served")
    return Answer(
        nonce=str(said["nonce"]), pid=int(said["pid"]), home=home, state=RunState(said["state"]), multiplex=multiplex,
        served=None if served is None else frozenset(served), code_sha=said.get("code_sha"),
    )


def answer_to(answer: Answer) -> dict[str, Any]:
    """The form that goes over the line."""
    return {
        "nonce": answer.nonce, "pid": answer.pid, "home": answer.home, "state": str(answer.state),
        "multiplex": answer.multiplex, "served": None if answer.served is None else sorted(answer.served),
        "code_sha": answer.code_sha,
    }


class Answering:
    """A thread that answers for this process until `close`."""

    def __init__(self, path: Path, answer: Callable[[Question], Answer]) -> None:
        """Raises `CannotOpen` when the socket cannot be made. `answer` is called in that thread."""
        self.path = path
        self._answer = answer
        self._closed = False
        self._ending = threading.Event()
        # The last question that got no answer, and why; None while all did.
        self.failure: Exception | None = None
        self._listening: socket.socket | None = None
        try:
            if not hasattr(socket, "AF_UNIX"):
                raise OSError(0, "this system has no such sockets")
            path.parent.mkdir(mode=0o700, exist_ok=True)
            with _short(path) as name, guarded() as kept:
                self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                kept.add(self)
                # The name has a nonce in it: what lies there was left by this process.
                with suppress(FileNotFoundError):
                    os.unlink(path)
                self._listening.bind(name)
                os.chmod(path, 0o600)
                self._listening.listen(64)
        except OSError as error:
            self._drop()
            raise CannotOpen(
                f"{path} cannot be made, so this process cannot say who it is ({error}).",
                hint="Check who owns that folder, and that its path has less than 100 characters.",
                path=path, errno=error.errno or 0,
            ) from error
        self._thread = threading.Thread(target=self._serve, name="hermes-host-answers", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        self._ending.set()
        if self._listening is not None:
            with suppress(OSError):  # not connected any more: there is nothing to wake
                self._listening.shutdown(socket.SHUT_RDWR)
        self._drop()
        with suppress(FileNotFoundError):
            os.unlink(self.path)
        if threading.current_thread() is not self._thread:
            self._thread.join(PATIENCE_SECONDS)

    def forget(self) -> None:
        """For `forked`."""
        self._closed = True
        if self._listening is not None:
            self._listening.close()

    def _drop(self) -> None:
        with guarded() as kept:
            kept.discard(self)
            if self._listening is not None:
                self._listening.close()

    def _serve(self) -> None:
        while not self._closed and self._listening is not None:
            try:
                line, _from = self._listening.accept()
            except OSError as error:
                if not self._closed:
                    self.failure = error
                # No descriptor is free, say: that passes, and until then it is not tried all the time.
                self._ending.wait(_REST_SECONDS)
                continue
            with line:
                # One that asks and then says nothing costs its own time only: the next waits in the queue until then.
                try:
                    line.settimeout(PATIENCE_SECONDS)
                    self._answer_one(line)
                except Exception as error:  # whatever the owner's own function raises: it goes on answering others
                    self.failure = error

    def _answer_one(self, line: socket.socket) -> None:
        if not _is_our_user(line):
            return
        question = Question(json.loads(_line(line, MOST_IN_BYTES, time.monotonic() + PATIENCE_SECONDS))["question"])
        said = json.dumps(answer_to(self._answer(question))).encode() + b"\n"
        line.settimeout(PATIENCE_SECONDS)  # what is left of it was for the question
        line.sendall(said)


def _line(line: socket.socket, most: int, deadline: float) -> bytes:
    """What comes before the end of the line. The time is for all of it: parts that come one by one gain none."""
    found = bytearray()
    while b"\n" not in found:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("it took too long")
        line.settimeout(left)
        part = line.recv(65536)
        if not part:
            break
        found += part
        if len(found) > most:
            raise ValueError("too long")
    return bytes(found.partition(b"\n")[0])


def _is_our_user(line: socket.socket) -> bool:
    if not hasattr(socket, "SO_PEERCRED"):
        return True  # the folder is 0700: nobody else gets there
    said = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return bool(struct.unpack("3i", said)[1] == our_uid())


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """A name for a socket that is short enough for the kernel, however deep its folder lies."""
    if len(os.fsencode(path)) <= _LONGEST_NAME or not sys.platform.startswith("linux"):
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
